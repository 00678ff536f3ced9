"""One replica: its counters against a scheduler that visits every request, its laws, its limits, its golden steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isclose
from random import Random
from statistics import mean, stdev

import pytest
import reference_scheduler as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_runs import ENGINES, LOADS, Fixed, Times, conserved, equal, run, seconds

from archsim.base.errors import UsageError
from archsim.serving.cache import BlockCache
from archsim.serving.engine import Replica
from archsim.serving.front import FrontEnd, FrontQueue
from archsim.serving.gang import Gang, RankLoads, rank_rule, slowest
from archsim.serving.policy import Policy
from archsim.serving.random_numbers import Stream
from archsim.serving.record import Gaps, RunRecord
from archsim.serving.scheduler import Scheduler


@pytest.mark.slow
@given(LOADS, ENGINES)
@settings(max_examples=150, deadline=None)
def test_counters_equal_a_scheduler_that_visits_every_request(load: list[tuple[float, int, int]], e: dict) -> None:
    """Who runs in which step, how many tokens, who gives way, and every time: as vLLM's loop over requests has it."""
    load = [(t, i, o) for t, i, o in load if i + o - 1 <= e["blocks"] * e["block"]] or [(0.0, 5, 5)]
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    whole = "prompt" if e["whole"] else "chunk"
    policy = Policy(max_seqs=e["max_seqs"], budget=e["budget"], ahead=int(e["ahead"]), room=whole)
    cache = BlockCache(e["blocks"] * e["block"], e["block"])
    record, scheduler = run(arrivals, prompts, answers, policy, cache)
    theirs = reference.Engine(
        [reference.Request(i, *row) for i, row in enumerate(load)], seconds, e["max_seqs"], e["budget"], e["blocks"],
        e["block"], e["ahead"], e["whole"],
    )  # fmt: skip
    theirs.run()
    assert scheduler.steps == theirs.steps
    for request in theirs.requests:
        i = request.id
        assert isclose(record.first_s[i], request.token_s[0]) and isclose(record.last_s[i], request.token_s[-1])
        assert isclose(record.start_s[i], request.start_s) and record.preemptions[i] == request.preemptions
    gaps = [b - a for r in theirs.requests for a, b in zip(r.token_s, r.token_s[1:], strict=False)]
    assert record.gaps.count == len(gaps) and isclose(record.gaps.total_s, sum(gaps), abs_tol=1e-9)
    if gaps:
        assert isclose(record.gaps.largest, max(gaps)) and isclose(record.gaps.least, min(gaps))
    assert conserved(record, cache)


@given(LOADS, ENGINES, st.sampled_from(["prompt", "prompt_and_answer"]), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_every_policy_conserves_requests_tokens_and_blocks(
    load: list[tuple[float, int, int]], e: dict, room: str, longest: int
) -> None:
    """Prompts first or mixed, cut or whole, with or without room for answers: nothing is lost or made twice."""
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    for first, mixes, chunked in (("running", True, True), ("running", True, False), ("prompts", False, False),
                                  ("prompts", False, True)):  # fmt: skip
        policy = Policy(
            max_seqs=e["max_seqs"], budget=e["budget"], first=first, mixes=mixes, chunked=chunked, room=room,  # type: ignore[arg-type]
            longest_chunk=longest if chunked else 0, ahead=int(e["ahead"]), watermark=0.02,
        )  # fmt: skip
        cache = BlockCache(e["blocks"] * e["block"], e["block"])
        record, _ = run(arrivals, prompts, answers, policy, cache)
        assert conserved(record, cache)
        skipping = RunRecord.of(prompts, answers)
        cache = BlockCache(e["blocks"] * e["block"], e["block"])
        Replica(Scheduler(policy, cache, skipping), Times(), Fixed(arrivals)).run()
        assert conserved(skipping, cache) and equal(skipping, record)
        if room == "prompt_and_answer":
            assert not sum(record.preemptions)


def steps_of(load: Sequence[tuple[float, int, int]], blocks: int, budget: int = 16, max_seqs: int = 4,
             block: int = 4, **rules: object) -> list[dict[int, int]]:  # fmt: skip
    """Tokens of each request in each step; a step lasts one second."""

    class Second(Times):
        def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
            return 1.0

    policy = Policy(max_seqs=max_seqs, budget=budget, **rules)  # type: ignore[arg-type]
    columns = [list(column) for column in zip(*load, strict=True)]
    return run(*columns, policy, BlockCache(blocks * block, block), Second())[1].steps  # type: ignore[arg-type]


GOLDEN = {
    "a prompt is cut where the budget ends, behind the decodes": (
        [(0.0, 4, 3), (0.0, 20, 2), (0.0, 2, 1)], {"blocks": 20},
        [{0: 4, 1: 12}, {0: 1, 1: 8, 2: 2}, {0: 1, 1: 1}],
    ),
    "a slot that a request leaves is taken in the next step": (
        [(0.0, 4, 2), (0.0, 4, 3), (0.0, 4, 1)], {"blocks": 20, "max_seqs": 2},
        [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1, 2: 4}],
    ),
    "scheduled ahead, the slot is free one step later": (
        [(0.0, 4, 2), (0.0, 4, 4), (0.0, 4, 1)], {"blocks": 20, "max_seqs": 2, "ahead": 1},
        [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1}, {1: 1, 2: 4}],
    ),
    "an arrival during a step waits for its end": (
        [(0.0, 4, 3), (0.5, 4, 1)], {"blocks": 20},
        [{0: 4}, {0: 1, 1: 4}, {0: 1}],
    ),
    "an arrival at the end of a step is in the next one": (
        [(0.0, 4, 3), (1.0, 4, 1)], {"blocks": 20},
        [{0: 4}, {0: 1, 1: 4}, {0: 1}],
    ),
    "scheduled ahead, an arrival during a step misses the one after it": (
        [(0.0, 4, 4), (0.5, 4, 1)], {"blocks": 20, "ahead": 1},
        [{0: 4}, {0: 1}, {0: 1, 1: 4}, {0: 1}],
    ),
    "the last that was admitted gives way, and nobody is admitted in that step": (
        # 4 blocks of 4: both hold 2 after their prompts of 7 and 8; request 0 needs its third with its ninth token
        [(0.0, 7, 4), (0.0, 8, 2), (0.0, 1, 1)], {"blocks": 4, "max_seqs": 2},
        [{0: 7, 1: 8}, {0: 1}, {0: 1}, {0: 1}, {1: 9, 2: 1}],
    ),
    "a request gives way to itself when it is the last": (
        [(0.0, 8, 3), (0.0, 4, 6), (0.0, 4, 1)], {"blocks": 5, "max_seqs": 3},
        [{0: 8, 1: 4, 2: 4}, {0: 1, 1: 1}, {0: 1, 1: 1}, {1: 1}, {1: 1}, {1: 1}],
    ),
    "the head of the queue blocks those behind it": (
        [(0.0, 8, 3), (0.0, 13, 1), (0.0, 2, 1)], {"blocks": 5, "budget": 32},
        [{0: 8}, {0: 1}, {0: 1}, {1: 13, 2: 2}],
    ),
    "the first chunk is room enough, and may have to give way": (
        [(0.0, 4, 5), (0.0, 20, 1)], {"blocks": 5, "budget": 12},
        [{0: 4, 1: 8}, {0: 1}, {0: 1, 1: 11}, {0: 1}, {0: 1, 1: 11}, {1: 9}],
    ),
    "where the whole prompt must have room, it waits": (
        [(0.0, 4, 5), (0.0, 20, 1)], {"blocks": 5, "budget": 12, "room": "prompt"},
        [{0: 4}, {0: 1}, {0: 1}, {0: 1}, {0: 1}, {1: 12}, {1: 8}],
    ),
    "before V1 prompts run first and alone": (
        [(0.0, 4, 3), (0.5, 4, 2), (2.5, 4, 1)],
        {"blocks": 20, "first": "prompts", "mixes": False, "chunked": False, "room": "prompt"},
        [{0: 4}, {1: 4}, {0: 1, 1: 1}, {2: 4}, {0: 1}],
    ),
}  # fmt: skip
"""Requests (arrival, prompt, answer), the engine, and what each step computes, written by hand."""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_schedules(name: str) -> None:
    """Steps as the engine's source has them."""
    load, engine, steps = GOLDEN[name]
    assert steps_of(load, **engine) == steps  # type: ignore[arg-type]


@pytest.mark.slow
def test_one_server_waits_as_queueing_theory_says() -> None:
    """M/D/1: one sequence at a time, equal prompts, one token each: the mean wait is rho S / 2(1 - rho)."""

    class One(Times):
        def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
            return 1.0

    for rho, requests in ((0.3, 4000), (0.6, 4000), (0.8, 4000), (0.9, 12000)):
        waits, skipped = [], requests // 8
        for seed in range(6):
            rng = Random(seed)
            times, now = [], 0.0
            for _ in range(requests):
                now += rng.expovariate(rho)
                times.append(now)
            count = len(times)
            record = RunRecord.of([4] * count, [1] * count)
            policy = Policy(max_seqs=1, budget=16)
            Replica(Scheduler(policy, BlockCache(64, 4), record), One(), Fixed(times)).run()
            each = [s - t for s, t in zip(record.start_s, record.ready_s, strict=True)][skipped:]
            waits.append(sum(each) / len(each))
        error = stdev(waits) / len(waits) ** 0.5
        assert abs(mean(waits) - rho / 2 / (1 - rho)) < 3 * error


def test_a_request_that_can_never_run_is_refused() -> None:
    """Its prompt and answer exceed the cache, or a step that must hold it whole; the others run."""
    record, _ = run([0.0, 0.0], [100, 4], [1, 2], Policy(max_seqs=2, budget=16), BlockCache(40, 4))
    assert list(record.refused) == [0] and record.finished == 1
    policy = Policy(max_seqs=2, budget=16, chunked=False)
    record, _ = run([0.0, 0.0], [20, 4], [1, 2], policy, BlockCache(40, 4))
    assert list(record.refused) == [0] and record.finished == 1


def test_gaps_keep_quantiles_within_a_percent() -> None:
    """Bins of 1 %, exact ends, zeros apart."""
    gaps = Gaps()
    for i in range(1, 1001):
        gaps.add(i / 1000)
    for share in (0.01, 0.5, 0.9, 0.99):
        assert isclose(gaps.quantile(share), share, rel_tol=0.011)
    assert gaps.quantile(1) == 1.0 and gaps.least == 0.001 and isclose(gaps.mean, 0.5005)
    gaps.add(0.0, 10_000)
    assert gaps.quantile(0.5) == 0.0 and Gaps().quantile(0.5) == 0.0


def test_samples_stay_few_and_add_up() -> None:
    """However long the run; the last sums are those of the record."""
    count = 3000
    record, _ = run([float(i) for i in range(count)], [4] * count, [3] * count, Policy(max_seqs=2, budget=16),
                    BlockCache(64, 4))  # fmt: skip
    samples = record.samples
    assert len(samples.t_s) < samples.MOST and samples.stride > 1
    assert samples.t_s == sorted(samples.t_s) and samples.output_tokens == sorted(samples.output_tokens)


def test_a_bad_policy_is_refused() -> None:
    """With what is wrong."""
    with pytest.raises(UsageError, match="no room for 32 decodes"):
        Policy(max_seqs=32, budget=16)
    with pytest.raises(UsageError, match="step of their own"):
        Policy(max_seqs=2, budget=16, first="prompts")
    with pytest.raises(UsageError, match="less than one block"):
        BlockCache(8, 16)


@given(LOADS, st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_gang_steps_with_its_slowest_rank(load: list[tuple[float, int, int]], ranks: int, ahead: bool) -> None:
    """Nothing is lost; a step takes the longest of its ranks; one rank is a replica."""
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    policy = Policy(max_seqs=3, budget=32, ahead=int(ahead))
    record, times = RunRecord.of(prompts, answers), Times()
    caches = [BlockCache(200, 4) for _ in range(ranks)]
    gang = Gang([Scheduler(policy, cache, record) for cache in caches], slowest(times), Fixed(arrivals))
    gang.run()
    assert all(conserved(record, cache) for cache in caches)
    assert record.steps <= len(times.steps) <= ranks * record.steps
    assert record.busy_s <= sum(seconds(*step) for step in times.steps) + 1e-9
    if ranks == 1:
        alone, _ = run(arrivals, prompts, answers, policy, BlockCache(200, 4))
        assert equal(record, alone)


def test_ranks_share_requests_and_wait_for_each_other() -> None:
    """Two requests go to two ranks, and the short one's steps last as long as the long one's."""
    record = RunRecord.of([4, 40], [3, 3])
    policy = Policy(max_seqs=3, budget=64)
    ranks = [Scheduler(policy, BlockCache(200, 4), record) for _ in range(2)]
    Gang(ranks, slowest(Times()), Fixed([0.0, 0.0])).run()
    assert record.last_s[0] == record.last_s[1]
    assert isclose(record.first_s[0], seconds(0, 0, [(40, 0)]))


def test_ranks_get_requests_by_the_engine_s_rule() -> None:
    """By hand, of prompts of 50, 10, 10, 30 and 10 that all run on: in turn; by the fewest requests; by the fewest
    tokens of those with no more requests than the mean; by a draw of each request's own.
    """
    prompts = [50, 10, 10, 30, 10]
    chosen = {}
    for name in ("round_robin", "fewest_requests", "fewest_tokens", "random"):
        record = RunRecord.of(prompts, [9] * 5)
        ranks = [Scheduler(Policy(max_seqs=8, budget=64), BlockCache(400, 4), record) for _ in range(3)]
        loads, rule = RankLoads(ranks), rank_rule(name, Stream.of(0, "ranks"))
        chosen[name] = []
        for request, prompt in enumerate(prompts):
            rank = rule.choose(request, loads)
            loads.count(rank, 1, prompt)
            ranks[rank].add(request)
            chosen[name].append(rank)
    assert chosen["round_robin"] == chosen["fewest_requests"] == [0, 1, 2, 0, 1]
    assert chosen["fewest_tokens"] == [0, 1, 2, 1, 2]
    draws = Stream.of(0, "ranks").uniforms(5)
    assert chosen["random"] == [int(3 * draw) for draw in draws]


def test_the_front_end_serves_in_order_and_its_time_is_in_ttft_alone() -> None:
    """One worker, two seconds a request and a tenth for each token; closed loops wait for it as well."""
    record = RunRecord.of([10, 20, 10], [1, 1, 1])
    entry = FrontQueue(Fixed([0.0, 1.0, 20.0]), FrontEnd(request_s=2.0, token_s=0.1), record)
    Replica(Scheduler(Policy(max_seqs=4, budget=64), BlockCache(200, 4), record), Times(), entry).run()
    assert list(record.arrival_s) == [0.0, 1.0, 20.0] and list(record.ready_s) == [3.0, 7.0, 23.0]
    assert conserved(record, BlockCache(200, 4))
    two = RunRecord.of([10, 20, 10], [1, 1, 1])
    entry = FrontQueue(Fixed([0.0, 1.0, 20.0]), FrontEnd(request_s=2.0, token_s=0.1, workers=2), two)
    assert [entry.pop() for _ in range(3)] == [0, 1, 2] and entry.next_s == inf
    waiting = RunRecord.of([10, 20, 10], [1, 1, 1])
    entry = FrontQueue(Fixed([0.0, 1.0, 20.0]), FrontEnd(request_s=2.0, token_s=0.1, wait_s=5.0), waiting)
    Replica(Scheduler(Policy(max_seqs=4, budget=64), BlockCache(200, 4), waiting), Times(), entry).run()
    assert list(waiting.ready_s) == [8.0, 12.0, 28.0]  # nobody works meanwhile
