"""Pools for prompts and answers: nothing is lost, caches travel as fast as links allow, the decode side alone is a
replica whose prompts are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.serving.acceptance import AcceptedDrafts
from archsim.serving.admission import DecodeRoom
from archsim.serving.cache import BlockCache
from archsim.serving.disaggregation import (
    DecodePool,
    DecodeScheduler,
    DisaggregatedFleet,
    Links,
    PrefillScheduler,
    SpeculativeDecodeScheduler,
    pool_records,
)
from archsim.serving.engine import Arriving, Replica
from archsim.serving.fleet import Pool
from archsim.serving.gang import Gang, slowest
from archsim.serving.load import Arrivals, Requests
from archsim.serving.policy import Policy, PoolRules
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.routers import parse_router
from archsim.serving.scheduler import Scheduler


class Times:
    """Steps that take a second and some more for each sequence and token."""

    def __init__(self, step: float = 1.0, prompt: float = 0.02, decode: float = 0.01) -> None:
        self.step, self.prompt, self.decode = step, prompt, decode

    def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.step + self.decode * decodes + self.prompt * sum(new for new, _ in chunks)


def run(load: Sequence[tuple[float, int, int]], counts: tuple[int, int] = (1, 1), *, router: str = "round-robin",
        rate: float = inf, policies: tuple[Policy, Policy] | None = None, blocks: int = 40,
        first_blocks: int = 40, ranks: int = 1,
        times: tuple[Times, Times] | None = None, concurrency: int | None = None, warmup: int = 0,
        drafts: tuple[float, ...] = (), one_by_one: bool = False,
        ) -> DisaggregatedFleet:  # fmt: skip
    """A fleet after its run; a token of cache is one byte."""
    columns = [list(column) for column in zip(*sorted(load), strict=True)]
    requests = Requests(arrival_s=columns[0], input_len=columns[1], output_len=columns[2], concurrency=concurrency)
    record = RunRecord.of(columns[1], columns[2], warmup=warmup)
    first, second = pool_records(record)
    before, after = policies or (Policy(max_seqs=4, budget=32), Policy(max_seqs=4, budget=32))
    whole = [length == 1 for length in columns[2]]
    paces = times or (Times(), Times())

    def engine(kind: int, part: RunRecord, arrivals: Arriving) -> Replica | Gang:
        made: list[Scheduler] = []
        for _ in range(ranks):
            cache = BlockCache((blocks if kind else first_blocks) * 4, 4)
            if not kind:
                made.append(PrefillScheduler(before, cache, part, whole))
            elif drafts:
                accepts = AcceptedDrafts(drafts, Stream.of(0, "acceptance"))
                made.append(SpeculativeDecodeScheduler(after, cache, part, accepts, len(drafts)))
            else:
                made.append(DecodeScheduler(after, cache, part))
        if ranks == 1:
            return Replica(made[0], paces[kind], arrivals, one_by_one=one_by_one)
        return Gang(made, slowest(paces[kind]), arrivals, one_by_one=one_by_one)

    routers = [parse_router(router).router(requests, Stream.of(0, name)) for name in ("routing", "decode routing")]
    prefill = Pool(first, lambda part, inbox: engine(0, part, inbox), routers[0], 0.9 * paces[0].step)
    decode = DecodePool(second, lambda part, inbox: engine(1, part, inbox), routers[1], 0.9 * paces[1].step)
    fleet = DisaggregatedFleet(Arrivals(requests), record, prefill, decode, counts, Links(rate, rate), float,
                               room_first=after.pools.room_first)  # fmt: skip
    fleet.run()
    return fleet


@pytest.mark.parametrize("ranks", [1, 2])
def test_drafts_are_verified_where_answers_are_made(ranks: int) -> None:
    """All of them accepted: as many times quicker as a step makes tokens; nothing is lost."""
    load = [(float(i), 10, 33) for i in range(6)]
    plain, drafted, in_vain = (run(load, ranks=ranks, drafts=shares, blocks=60).record
                               for shares in ((), (1.0,) * 3, (0.0,) * 3))  # fmt: skip
    for record in (plain, drafted, in_vain):
        assert record.finished == len(load) and record.output_tokens == sum(record.output_len)
    times = [record.last_s[0] - record.first_s[0] for record in (plain, drafted, in_vain)]
    assert times[1] < times[0] / 3
    assert drafted.verified == len(load) * 8 and in_vain.verified == len(load) * 32


def test_room_that_was_expected_is_counted_anew() -> None:
    """Answers that have ended need none: the last of many requests waits no longer than the first."""
    policy = Policy(max_seqs=4, budget=32, room="expected")
    fleet = run([(60.0 * i, 8, 40) for i in range(30)], policies=(policy, policy))
    assert fleet.record.finished == 30
    assert fleet.transfer_s[29] == pytest.approx(fleet.transfer_s[0], abs=1.5)


PLACES = PoolRules(room_first=True, reserve=4, longest=4096, places=1, few=2, places_of_few=3, sent_run=True)

LOADS = st.lists(
    st.tuples(st.floats(0, 60).map(lambda t: round(t, 1)), st.integers(1, 100), st.integers(1, 40)),
    min_size=1, max_size=25,
)  # fmt: skip


@pytest.mark.slow
@given(LOADS, st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from([3.0, 40.0, inf]), st.integers(35, 60),
       st.sampled_from([0, 1]), st.sampled_from([None, 2]), st.sampled_from([1, 2]),
       st.sampled_from(["round-robin", "least-requests"]),
       st.sampled_from(["chunk", "prompt", "prompt_and_answer"]), st.booleans())  # fmt: skip
@settings(max_examples=160, deadline=None)
def test_nothing_is_lost_between_the_pools(
    load: list[tuple[float, int, int]], counts: tuple[int, int], rate: float, blocks: int, ahead: int,
    concurrency: int | None, ranks: int, router: str, room: str, places: bool,
) -> None:  # fmt: skip
    """Requests, tokens, gaps and blocks; the client sees the first token when the cache has arrived."""
    pools = PLACES if places else PoolRules()
    policy = Policy(max_seqs=4, budget=32, ahead=ahead, room=room, pools=pools)  # type: ignore[arg-type]
    fleet = run(load, counts, rate=rate, blocks=blocks, first_blocks=blocks, concurrency=concurrency, ranks=ranks,
                router=router, policies=(policy, policy), warmup=len(load) // 2)  # fmt: skip
    record = fleet.record
    assert not record.refused and record.finished == len(load) and not fleet.links.transfers
    assert record.output_tokens == sum(record.output_len)
    assert record.prompt_tokens == sum(record.input_len) + record.recomputed_tokens
    assert record.gaps.count + record.warmup_gaps.count == sum(length - 1 for length in record.output_len)
    for member in fleet.everyone():
        for scheduler in member.engine.schedulers:
            assert scheduler.cache.free == scheduler.cache.total
    for i in range(len(record)):
        assert record.arrival_s[i] <= record.start_s[i] < record.first_s[i] <= record.last_s[i]
        if record.output_len[i] > 1:
            assert fleet.transfer_s[i] >= record.input_len[i] / rate - 1e-9
            assert record.first_s[i] >= fleet.computed_s[i] + fleet.transfer_s[i] - 1e-9
            assert record.last_s[i] > record.first_s[i]
    spans = sum(b - a for a, b in zip(record.first_s, record.last_s, strict=True))
    assert isclose(record.gaps.total_s + record.warmup_gaps.total_s, spans, rel_tol=1e-9, abs_tol=1e-6)
    in_first, in_second = (sum(part.running_s + part.waiting_s for part in record.parts if part.name == name)
                           for name in ("prefill", "decode"))  # fmt: skip
    prompts = sum(done - ready for done, ready in zip(fleet.computed_s, record.ready_s, strict=True))
    assert isclose(in_first, prompts, rel_tol=1e-9, abs_tol=1e-6)  # Little's law
    there = sum(record.last_s[i] - fleet.computed_s[i] - fleet.transfer_s[i] for i in range(len(record))
                if record.output_len[i] > 1)  # fmt: skip
    asked = sum(done - came for done, came in zip(fleet.computed_s, record.arrival_s, strict=True) if places)
    assert in_second <= there + sum(max(0.0, time) for time in fleet.transfer_s) + asked + 1e-6


def test_one_request_prefills_travels_and_decodes() -> None:
    """By hand: 1 s and 0.02 s for each of 20 tokens; 20 bytes at 10 a second; then two steps of 1.01 s."""
    record = run([(0.0, 20, 3)], rate=10.0).record
    assert isclose(record.first_s[0], 1.4 + 2.0) and isclose(record.last_s[0], 1.4 + 2.0 + 2 * 1.01)
    assert isclose(record.gaps.largest, 1.01, rel_tol=1e-9) and isclose(record.gaps.least, 1.01)


def test_transfers_share_links_evenly() -> None:
    """Two from one sender take twice as long until one has ended; a receiver's limit counts as well."""
    links = Links(10.0, 10.0)
    links.start(0, 0, 0, 100.0, 0.0)
    assert links.transfers[0].end_s == 10.0
    assert sorted(links.start(1, 0, 1, 20.0, 5.0)) == [0, 1]
    assert links.transfers[1].end_s == 9.0 and links.transfers[0].end_s == 15.0
    assert links.finish(1, 9.0) == [0] and links.transfers[0].end_s == 12.0
    links.start(2, 1, 0, 15.0, 9.0)
    assert links.transfers[2].end_s == 12.0 and links.transfers[0].end_s == 15.0


def test_room_comes_before_the_transfer() -> None:
    """The decode side has 40 tokens for prompts of 30: the second travels when the first has ended, not before."""
    fleet = run([(0.0, 30, 2), (0.0, 30, 5)], rate=30.0, blocks=10,
                policies=(Policy(max_seqs=2, budget=64), Policy(max_seqs=2, budget=64)))  # fmt: skip
    record = fleet.record
    assert isclose(fleet.transfer_s[0], 1.0)
    assert isclose(fleet.computed_s[1], 2.2) and isclose(record.last_s[0], 2.2 + 1.0 + 1.01)
    assert isclose(fleet.computed_s[1] + fleet.transfer_s[1], record.last_s[0] + 1.0)
    assert isclose(record.first_s[1], record.last_s[0] + 1.0)


def test_a_prompt_keeps_its_blocks_until_it_has_travelled() -> None:
    """The first side has 40 tokens for prompts of 30: the second is computed when the first is gone."""
    fleet = run([(0.0, 30, 2), (0.0, 30, 5)], rate=30.0, first_blocks=10,
                policies=(Policy(max_seqs=2, budget=64), Policy(max_seqs=2, budget=64)))  # fmt: skip
    assert isclose(fleet.computed_s[0], 1.6) and isclose(fleet.computed_s[1], 1.6 + 1.0 + 1.6)


def test_with_free_prompts_the_decode_pool_is_a_replica_whose_prompts_are_free() -> None:
    """All arrive at once and decode in one batch: one step for each further token, by the closed form of a batch."""
    free = Times(step=1e-9, prompt=0.0, decode=0.0)
    policy = Policy(max_seqs=64, budget=64)
    load = [(0.0, 8, 11)] * 16
    record = run(load, times=(free, Times()), policies=(Policy(max_seqs=64, budget=256), policy),
                 blocks=200).record  # fmt: skip
    step = 1.0 + 0.01 * 16
    for first_s, last_s in zip(record.first_s, record.last_s, strict=True):
        assert (last_s - first_s) / 10 == pytest.approx(step, rel=0.02)
    decode = record.parts[1]
    assert decode.busy_s == pytest.approx(10 * step, rel=0.02)


def test_a_prompt_waits_for_room_where_its_answer_is_made() -> None:
    """The decode side has 40 tokens for prompts of 30: the second prompt is computed when the first answer has ended,
    and travels at once.
    """
    policy = Policy(max_seqs=2, budget=64, pools=PoolRules(room_first=True))
    fleet = run([(0.0, 30, 2), (0.0, 30, 5)], rate=30.0, blocks=10, policies=(policy, policy))
    record = fleet.record
    assert isclose(fleet.computed_s[0], 1.6) and isclose(record.last_s[0], 1.6 + 1.0 + 1.01)
    assert isclose(fleet.computed_s[1], record.last_s[0] + 1.6) and isclose(fleet.transfer_s[1], 1.0)


def test_every_request_with_room_keeps_some_for_its_answer() -> None:
    """168 tokens and 20 kept for each request: of prompts of 30, four have room by themselves and three beside what is
    kept; a fourth would find 168 - 3 × 32 - 3 × 20 = 12 tokens for its 50.
    """
    policy = Policy(max_seqs=4, budget=64, pools=PoolRules(reserve=20))
    fleet = run([(0.0, 30, 9)] * 4, policies=(policy, policy), blocks=42)
    first = sorted(fleet.record.first_s)
    assert first[3] >= min(fleet.record.last_s) > first[2]
    plain = replace(policy, pools=PoolRules())
    assert max(run([(0.0, 30, 9)] * 4, policies=(plain, plain), blocks=42).record.first_s) < min(fleet.record.last_s)


def test_room_for_the_longest_answer_is_kept() -> None:
    """By hand: 100 tokens are free beside one request that holds 20 and may reach 10 + 90. 80 are kept for it, not the
    reserve of 5; a prompt of 10 with 5 fits 20, one of 16 does not. The prompt of a longer answer must have room once
    all others give way.
    """
    cache = BlockCache(120, 1)
    assert cache.admit(0, 0, 20)
    room = DecodeRoom(5, 4096, cache, [10, 10, 16, 10], [90, 20, 20, 300], {0: 10})
    room.open(1, 20, (0,))
    assert room.fits(1, 0, 10) and not room.fits(2, 0, 16) and not room.fits(3, 0, 10)
    room.admit(1)
    assert not room.fits(1, 0, 6)  # 20 - 15 tokens are left
    assert not room.settled  # those that decode need less with every token
    room.open(3, 300, (0,))
    assert room.fits(1, 0, 80) and not room.fits(1, 0, 81)  # 100 - 3 × 5 for a prompt with its 5
    assert room.settled


def test_places_are_counted_with_those_whose_caches_travel() -> None:
    """One request runs at a time: three have places where few run, so the fourth prompt waits for the first answer."""
    policy = Policy(max_seqs=1, budget=64, pools=replace(PLACES, reserve=None, sent_run=False))
    fleet = run([(0.0, 8, 40)] * 5, policies=(policy, policy), blocks=200)
    record = fleet.record
    computed = sorted(fleet.computed_s)
    ends = sorted(record.last_s)
    assert computed[2] < ends[0] < computed[3] < ends[1] < computed[4]
    assert record.most_running <= 2 and record.finished == 5


def test_prompts_on_their_way_hold_places() -> None:
    """Two prompts run at a time: the third is computed when one of the caches has been sent."""
    policy = Policy(max_seqs=2, budget=64, pools=PoolRules(sent_run=True))
    after = Policy(max_seqs=8, budget=64)
    fleet = run([(0.0, 10, 2)] * 3, rate=1.0, policies=(policy, after), blocks=200)
    assert isclose(fleet.computed_s[1], 1.4) and isclose(fleet.computed_s[2], 1.4 + 20.0 + 1.2)


def test_a_prompt_that_is_refused_gives_its_room_back() -> None:
    """The second prompt is longer than the first side's cache: its room on the other side serves the third."""
    policy = Policy(max_seqs=4, budget=64, pools=PoolRules(room_first=True))
    fleet = run([(0.0, 8, 3), (0.0, 60, 3), (9.0, 60, 3)], first_blocks=10, blocks=30, policies=(policy, policy))
    assert set(fleet.record.refused) == {1, 2} and fleet.record.finished == 1
    assert all(s.cache.free == s.cache.total for m in fleet.everyone() for s in m.engine.schedulers)


def test_ranks_for_answers_share_requests_that_want_room() -> None:
    """Both ranks hold two requests with their answers: of eight at once each rank gets four, two after two."""
    policy = Policy(max_seqs=8, budget=64, room="prompt_and_answer")
    record = run([(0.0, 8, 24)] * 8, ranks=2, blocks=16, policies=(policy, policy)).record
    ends = sorted(record.last_s)
    assert ends[3] < ends[4] and ends[0] == ends[1] and record.parts[1].most_running == 4
    assert ends[7] - ends[0] == pytest.approx(ends[0] - min(record.first_s), rel=0.2)


@given(LOADS, st.sampled_from([(), (0.8, 0.5)]), st.sampled_from([PLACES, PoolRules()]),
       st.sampled_from(["chunk", "expected"]), st.sampled_from([1, 2]))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_servers_for_answers_that_go_on_as_before_are_not_asked(
    load: list[tuple[float, int, int]], drafts: tuple[float, ...], pools: PoolRules, room: str, ranks: int
) -> None:
    """Each rank has the same times of every request as where it is asked in every step: room is looked for again as
    soon as a request has left.
    """
    policy = Policy(max_seqs=4, budget=32, ahead=1, room=room, pools=pools)  # type: ignore[arg-type]
    asked, passed = (run(load, ranks=ranks, drafts=drafts, policies=(policy, policy), rate=20.0, one_by_one=one)
                     for one in (True, False))  # fmt: skip
    for name in ("first_s", "last_s"):
        assert getattr(passed.record, name) == pytest.approx(getattr(asked.record, name), rel=1e-9)


def test_a_full_batch_takes_no_room() -> None:
    """One request runs at a time, and room is given out while none does: the second cache travels when the first answer
    has ended, though the cache holds both.
    """
    policy = Policy(max_seqs=1, budget=64)
    fleet = run([(0.0, 8, 9), (3.0, 8, 2)], rate=8.0, policies=(policy, policy), blocks=200)
    record = fleet.record
    assert fleet.computed_s[1] < record.last_s[0] and record.first_s[1] >= record.last_s[0] + 1.0
