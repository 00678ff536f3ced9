"""Pipelines: batches in flight from one queue and one cache, by hand and against one stage."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_runs import ENGINES, LOADS, Fixed, Times, conserved

from archsim.serving.cache import BlockCache
from archsim.serving.engine import Replica
from archsim.serving.fleet import Fleet, Pool
from archsim.serving.load import Arrivals, Requests
from archsim.serving.micro_batches import MicroBatches
from archsim.serving.pipeline import Pipeline, StageScheduler
from archsim.serving.policy import Policy
from archsim.serving.prefix_cache import PrefixCache
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.routers import parse_router
from archsim.serving.scheduler import Scheduler


class Watched(Times):
    """Steps last two seconds."""

    def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        super().seconds(decodes, context, chunks)
        return 2.0


def pipeline(
    load: Sequence[tuple[float, int, int]], stages: int, policy: Policy, cache: BlockCache | None = None,
    times: Times | None = None, split: bool = False,
) -> RunRecord:  # fmt: skip
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    record = RunRecord.of(prompts, answers)
    cache = cache or BlockCache(4000, 4)
    batches = StageScheduler.batches(policy, cache, record, stages, split=split)
    Pipeline(batches, times or Times(), Fixed(arrivals)).run()
    assert conserved(record, cache) and not any(batch.n or batch.partial for batch in batches)
    return record


def test_stages_work_on_several_batches_at_once() -> None:
    """Two prompts fill a step each; they follow each other at the distance of one stage, and stay apart."""
    times = Watched()
    record = pipeline([(0.0, 8, 3), (0.0, 8, 3)], 2, Policy(max_seqs=4, budget=8), times=times)
    assert list(record.first_s) == [2.0, 3.0] and list(record.last_s) == [6.0, 7.0]
    assert [(decodes, chunks) for decodes, _, chunks in times.steps] == [
        (0, [(8, 0)]), (0, [(8, 0)]), (1, []), (1, []), (1, []), (1, [])]  # fmt: skip
    assert record.busy_s == record.end_s == 7.0 and isclose(record.running_s, 13.0)


def test_the_next_chunk_of_a_prompt_follows_in_the_next_batch() -> None:
    """Three chunks of one prompt: two stages are at work on them together, and the third waits for a place."""
    record = pipeline([(0.0, 24, 1)], 2, Policy(max_seqs=4, budget=8), times=Watched())
    assert record.first_s[0] == 4.0 and record.steps == 3


def test_a_request_that_arrives_while_a_batch_is_in_flight_joins_the_one_that_ends_next() -> None:
    """As the engine blocks on the oldest batch; both then decode in one batch."""
    times = Watched()
    record = pipeline([(0.0, 8, 4), (0.5, 8, 2)], 2, Policy(max_seqs=4, budget=32), times=times)
    assert record.start_s[1] == 2.0 and record.first_s[1] == 4.0
    assert [(decodes, len(chunks)) for decodes, _, chunks in times.steps] == [(0, 1), (1, 1), (2, 0), (1, 0)]


def test_batches_share_the_limit_of_requests_or_split_it() -> None:
    load = [(0.0, 8, 5)] * 4
    shared, split = (pipeline(load, 2, Policy(max_seqs=4, budget=64), times=Watched(), split=one) for one in (0, 1))
    assert list(shared.start_s) == [0.0] * 4 and shared.steps == 5
    assert list(split.start_s) == [0.0] * 4 and split.steps == 10 and list(split.first_s) == [2.0, 2.0, 3.0, 3.0]


def test_a_request_in_flight_may_have_to_give_way() -> None:
    """The cache has six blocks; the batch behind loses its prompt to the answer of the batch ahead."""
    record = pipeline([(0.0, 11, 6), (0.0, 11, 2)], 2, Policy(max_seqs=4, budget=11), BlockCache(24, 4))
    assert list(record.preemptions) == [0, 1] and record.last_s[0] < record.last_s[1]
    assert record.first_s[1] < record.last_s[0] and record.recomputed_tokens == 12


@given(LOADS, ENGINES, st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_stage_is_a_replica(load: list[tuple[float, int, int]], e: dict[str, int], shares: bool) -> None:
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    policy = Policy(max_seqs=e["max_seqs"], budget=e["budget"], room="prompt" if e["whole"] else "chunk")
    columns = "arrival_s", "start_s", "first_s", "last_s", "preemptions"
    found = []
    for one in (False, True):
        record, tokens = RunRecord.of(prompts, answers), e["blocks"] * e["block"]
        cache = PrefixCache(tokens, e["block"], prompts) if shares else BlockCache(tokens, e["block"])
        if one:
            Pipeline(StageScheduler.batches(policy, cache, record, 1), Times(), Fixed(arrivals)).run()
        else:
            Replica(Scheduler(policy, cache, record), Times(), Fixed(arrivals)).run()
        found.append([list(getattr(record, name)) for name in columns] + [[record.steps], record.gaps.weights])
        sums = record.busy_s, record.running_s, record.waiting_s, record.used_block_s
        found[-1].append([round(value, 6) for value in sums])
    assert found[0] == found[1]


@pytest.mark.slow
@given(LOADS, ENGINES, st.integers(2, 4), st.booleans(), st.sampled_from(["last", "fewest_tokens"]))
@settings(max_examples=120, deadline=None)
def test_nothing_is_lost_over_several_stages(
    load: list[tuple[float, int, int]], e: dict[str, int], stages: int, split: bool, way: str
) -> None:
    """Tokens, blocks and Little's law; with room for all, TTFT is never later than on one stage for the first."""
    first = way == "fewest_tokens"
    policy = Policy(
        max_seqs=e["max_seqs"], budget=e["budget"], room="expected" if first else "prompt" if e["whole"] else "chunk",
        gives_way=way, requeue="tail" if first else "head", first="prompts" if first else "running", mixes=not first,
    )  # type: ignore[arg-type]  # fmt: skip
    prompts = [prompt for _, prompt, _ in load]
    for cache in (BlockCache(e["blocks"] * e["block"], e["block"]),
                  PrefixCache(e["blocks"] * e["block"], e["block"], prompts)):  # fmt: skip
        pipeline(load, stages, policy, cache, split=split)


def test_a_router_sees_the_ends_of_requests_of_a_pipeline() -> None:
    """The same as when every replica is looked at after each event of another one: least-requests needs the ends."""
    count = 300
    stream = Stream.of(3, "arrivals")
    times = sorted(200 * u for u in stream.uniforms(count))
    prompts = [8 + int(60 * u) for u in Stream.of(3, "in").uniforms(count)]
    answers = [1 + int(20 * u) for u in Stream.of(3, "out").uniforms(count)]
    requests = Requests(arrival_s=times, input_len=prompts, output_len=answers)
    found = []
    for shortest in (0.9 * Times().seconds(1, 1, ()), 1e-3):
        record = RunRecord.of(prompts, answers)

        def engine(part: RunRecord, inbox: object) -> Pipeline:
            stages = StageScheduler.batches(Policy(max_seqs=8, budget=64), BlockCache(4000, 4), part, 3)
            return Pipeline(stages, Times(), inbox)  # type: ignore[arg-type]

        pool = Pool(record, engine, parse_router("least-requests").router(requests, Stream.of(0, "routing")), shortest)
        Fleet(Arrivals(requests), pool, 4).run()
        assert record.finished == count
        found.append((list(record.replica), list(record.last_s)))
    assert found[0] == found[1]


def test_micro_batches_go_through_stages_together() -> None:
    """Four equal ones on two stages take five stages' time."""
    assert isclose(MicroBatches(Watched(), 8, 2).seconds(0, 0, [(32, 0)]), 5.0)
    assert isclose(MicroBatches(Watched(), 8).seconds(0, 0, [(32, 0)]), 8.0)
    assert isclose(MicroBatches(Watched(), 8, 2).seconds(4, 40, ()), 2.0)
