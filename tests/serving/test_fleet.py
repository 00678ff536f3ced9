"""Fleets: nothing is lost, one replica is a fleet of one, lazy replicas equal eager ones, routers do what they say."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isclose
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.base.errors import UsageError
from archsim.serving.cache import BlockCache
from archsim.serving.engine import Arriving, Replica
from archsim.serving.fleet import Fleet, Member, Pool
from archsim.serving.gang import Gang, slowest
from archsim.serving.load import Arrivals, Prompts, Requests
from archsim.serving.policy import Policy
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.routers import ROUTERS, Loads, Prefix, Router, Routing, Session, TwoChoices, parse_router
from archsim.serving.scheduler import Scheduler

POLICY = Policy(max_seqs=4, budget=32)


class Times:
    """Steps without kernels: a floor, and some time for each token and each cached token."""

    def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        prompts = sum(new * (1.0 + 1e-3 * (past + new / 2)) for new, past in chunks)
        return 1.0 + 0.01 * decodes + 1e-4 * context + 0.02 * prompts


def engine_of(policy: Policy = POLICY, blocks: int = 40, ranks: int = 1):  # type: ignore[no-untyped-def]
    """Makes replicas."""

    def engine(record: RunRecord, arrivals: Arriving) -> Replica | Gang:
        schedulers = [Scheduler(policy, BlockCache(blocks * 4, 4), record) for _ in range(ranks)]
        times = Times()
        return Replica(schedulers[0], times, arrivals) if ranks == 1 else Gang(schedulers, slowest(times), arrivals)

    return engine


def fleet_of(requests: Requests, replicas: int, router: str = "round-robin", *, policy: Policy = POLICY,
             warmup: int = 0, watched: bool = False, **options: float) -> Fleet:  # fmt: skip
    """A fleet after its run."""
    record = RunRecord.of(requests.input_len, requests.output_len, warmup=warmup)
    rule = parse_router(router).router(requests, Stream.of(0, "routing"))
    pool = Pool(record, engine_of(policy), rule, 0.9)
    fleet = Fleet(Arrivals(requests), pool, replicas, waits=requests.waits, **options)  # type: ignore[arg-type]
    fleet.watched |= watched
    fleet.run()
    return fleet


LOADS = st.lists(
    st.tuples(st.floats(0, 60).map(lambda t: round(t, 1)), st.integers(1, 100), st.integers(1, 40)),
    min_size=1, max_size=30,
)  # fmt: skip
SHAPES = st.fixed_dictionaries({"replicas": st.integers(1, 4), "router": st.sampled_from([*ROUTERS, "prefix:2"])})


def requests_of(load: Sequence[tuple[float, int, int]], **options: object) -> Requests:
    """Requests in order of arrival; of every third, the answer is a later one's turn before."""
    times, prompts, answers = (list(column) for column in zip(*sorted(load), strict=True))
    return Requests(arrival_s=times, input_len=prompts, output_len=answers, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@given(
    LOADS, SHAPES, st.sampled_from([0, 1]), st.sampled_from([None, 1, 3]), st.booleans(), st.sampled_from([0.0, 0.7])
)
@settings(max_examples=120, deadline=None)
def test_nothing_is_lost_or_made_twice(
    load: list[tuple[float, int, int]], shape: dict, ahead: int, concurrency: int | None, turns: bool, delay_s: float
) -> None:
    """Requests, tokens, blocks and time, over all replicas; Little's law; a request is where its record says."""
    after = [i - 3 if turns and i % 3 == 2 and i > 3 else -1 for i in range(len(load))]
    requests = requests_of(load, concurrency=concurrency, after=after if turns else None)
    policy = Policy(max_seqs=4, budget=32, ahead=ahead)
    fleet = fleet_of(requests, **shape, policy=policy, warmup=len(load) // 3, delay_s=delay_s)
    record = fleet.record
    done = [i for i in range(len(record)) if i not in record.refused]
    assert len(done) == len(load) == record.finished + len(record.refused)
    assert record.output_tokens == sum(record.output_len[i] for i in done)
    assert record.prompt_tokens == sum(record.input_len[i] for i in done) + record.recomputed_tokens
    gaps = record.gaps.count + record.warmup_gaps.count
    assert gaps == sum(record.output_len[i] - 1 for i in done)
    for i in done:
        assert isclose(record.arrival_s[i] + delay_s, record.ready_s[i])
        assert record.ready_s[i] <= record.start_s[i] < record.first_s[i] <= record.last_s[i]
    sojourn = sum(record.last_s[i] - record.ready_s[i] for i in done)
    assert isclose(record.running_s + record.waiting_s, sojourn, rel_tol=1e-9, abs_tol=1e-6)
    for member in fleet.everyone():
        cache = member.engine.schedulers[0].cache
        assert cache.free == cache.total
        own = [i for i in done if record.replica[i] == member.number]
        assert member.record.finished == len(own)
        assert fleet.pool.loads.in_flight[member.number] == 0 or not fleet.watched


@given(LOADS, st.sampled_from([0, 1]), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_one_replica_is_a_fleet_of_one(load: list[tuple[float, int, int]], ahead: int, warmup: int) -> None:
    """Every column, sum and sample, to the bit; looked at all the time, every time of a request."""
    requests, policy = requests_of(load), Policy(max_seqs=4, budget=32, ahead=ahead)
    record = RunRecord.of(requests.input_len, requests.output_len, warmup=warmup)
    engine_of(policy)(record, Arrivals(requests)).run()
    fleet = fleet_of(requests, 1, policy=policy, warmup=warmup)
    whole = fleet.record
    columns = ("arrival_s", "ready_s", "start_s", "first_s", "last_s", "preemptions")
    for name in (*columns, "steps", "busy_s", "running_s", "waiting_s",
                 "used_block_s", "end_s", "limits", "output_tokens", "most_running", "most_waiting"):  # fmt: skip
        assert getattr(whole, name) == getattr(record, name), name
    assert whole.gaps.weights == record.gaps.weights and whole.gaps.total_s == record.gaps.total_s
    assert whole.parts[0].samples.t_s == record.samples.t_s
    watched = fleet_of(requests, 1, policy=policy, warmup=warmup, watched=True).record
    assert watched.first_s == record.first_s and watched.last_s == record.last_s and watched.steps == record.steps


class Eager(Pool):
    """Looks at every replica after each of its steps."""

    def next_sign_s(self, member: Member, until_s: float) -> float:
        found = super().next_sign_s(member, until_s)
        return min(found, member.engine.now_s + self.shortest_s) if found < inf else found


@pytest.mark.slow
@given(LOADS, SHAPES, st.sampled_from([0, 1]), st.sampled_from([None, 3]))
@settings(max_examples=60, deadline=None)
def test_replicas_that_are_left_alone_equal_those_looked_at_in_every_step(
    load: list[tuple[float, int, int]], shape: dict, ahead: int, concurrency: int | None
) -> None:
    """Where each request goes and when it ends; and whatever happens lies ahead of what has happened."""
    requests, policy = requests_of(load, concurrency=concurrency), Policy(max_seqs=4, budget=32, ahead=ahead)
    lazy = fleet_of(requests, **shape, policy=policy).record
    record = RunRecord.of(requests.input_len, requests.output_len)
    router = parse_router(shape["router"]).router(requests, Stream.of(0, "routing"))
    pool = Eager(record, engine_of(policy), router, 0.9)
    eager = Fleet(Arrivals(requests), pool, shape["replicas"], waits=requests.waits)
    eager.watched = True
    eager.run()
    assert lazy.replica == record.replica
    assert all(isclose(a, b) for a, b in zip(lazy.last_s, record.last_s, strict=True))


@pytest.mark.slow
def test_more_replicas_do_not_take_longer() -> None:
    """Mean end-to-end time over the same draws, up to chance."""
    rng = Random(0)
    load = [(rng.uniform(0, 900), rng.randint(1, 60), rng.randint(1, 30)) for _ in range(400)]
    for router in ("round-robin", "least-requests", "least-tokens", "two-choices", "random"):
        means = []
        for replicas in (2, 4, 8):
            record = fleet_of(requests_of(load), replicas, router).record
            means.append(sum(b - a for a, b in zip(record.arrival_s, record.last_s, strict=True)) / len(load))
        assert means[0] >= 0.99 * means[1] >= 0.98 * means[2], router


def test_ranks_that_step_together_are_one_replica() -> None:
    """A gang takes requests as a member of a fleet, and gives them all back."""
    load = [(0.4 * i, 10 + i, 1 + i % 9) for i in range(40)]
    requests = requests_of(load)
    record = RunRecord.of(requests.input_len, requests.output_len)
    router = parse_router("least-requests").router(requests, Stream.of(0, "routing"))
    Fleet(Arrivals(requests), Pool(record, engine_of(ranks=2), router, 0.9), 3).run()
    assert record.finished == 40 and record.total_blocks == 3 * 2 * 40
    assert {*record.replica} == {0, 1, 2}


def routed(router: Router, loads: Loads, requests: Sequence[int]) -> list[int]:
    """Where requests go while nothing ends; each counts as in flight from then on."""
    chosen = []
    for request in requests:
        entry = router.choose(request, loads)
        loads.in_flight[entry] += 1
        chosen.append(loads.replicas[entry])
    return chosen


def loads_of(in_flight: Sequence[int], tokens: Sequence[int] = ()) -> Loads:
    """Replicas numbered from 0."""
    count = len(in_flight)
    return Loads(list(range(count)), {i: i for i in range(count)}, list(in_flight), list(tokens or [0] * count))


NONE = requests_of([(0.0, 4, 1)])
ROUTED = {
    "round-robin": ([0, 0, 0], [], [0, 1, 2, 0]),
    "least-requests": ([2, 0, 1], [], [1, 2, 1, 2]),
    "least-tokens": ([0, 0, 0], [5, 3, 3], [1, 2, 1, 2]),
}
"""Rule -> requests in flight, their tokens, and where four requests go: written by hand."""


@pytest.mark.parametrize("name", ROUTED)
def test_a_router_sends_requests_where_its_rule_says(name: str) -> None:
    """Of equals each in turn: with 1 and 2 even, the one after the last choice comes first."""
    in_flight, tokens, expected = ROUTED[name]
    assert routed(parse_router(name).router(NONE, Stream.of(0, "r")), loads_of(in_flight, tokens), range(4)) == expected


def test_random_rules_are_even_and_two_choices_follow_the_load() -> None:
    """Each of four replicas gets a quarter; of two, the fuller one only when it was drawn twice, which cannot be."""
    found = routed(parse_router("random").router(NONE, Stream.of(0, "r")), loads_of([0] * 4), range(4000))
    assert all(900 < found.count(i) < 1100 for i in range(4))
    two = TwoChoices(Stream.of(0, "r"))
    assert {two.choose(i, loads_of([7, 3])) for i in range(50)} == {1}
    assert {two.choose(i, loads_of([9, 1, 1])) for i in range(50)} == {1, 2}


def test_a_session_stays_where_it_began() -> None:
    """Turns follow the first; where the replica is gone they move together."""
    after = [-1, -1, 0, 1, 2, 3]
    router, loads = Session(Stream.of(1, "r"), after), loads_of([0] * 5)
    chosen = routed(router, loads, range(4))
    assert chosen[2] == chosen[0] and chosen[3] == chosen[1]
    gone = Loads([7], {7: 0}, [0], [0])
    assert routed(router, gone, [4]) == [7]


def test_a_prefix_goes_where_its_tokens_are_unless_that_is_too_full() -> None:
    """Cost is tokens in flight and, by weight, the prompt's tokens that are not cached."""
    prompts = Prompts(runs=[((9, 60), (1, 40)), ((9, 60), (2, 40))], answers=[-1, -1])
    requests = Requests(arrival_s=[0.0, 0.0], input_len=[100, 100], output_len=[1, 1], prompts=prompts)
    for weight, busy, expected in ((1.0, 50, 0), (1.0, 70, 1), (2.0, 70, 0), (0.0, 1, 1)):
        router, loads = Prefix(weight, requests), loads_of([0, 0])
        assert router.choose(0, loads) == 0
        loads.tokens[0] = busy
        loads.hit = lambda entry, request: 60 if entry == 0 else 0
        assert router.choose(1, loads) == expected, (weight, busy)


def test_rules_that_are_none_are_refused() -> None:
    """With those there are."""
    assert parse_router("prefix:0.5") == Routing("prefix", 0.5) and str(Routing("prefix", 0.5)) == "prefix:0.5"
    for text in ("fastest", "random:2", "prefix:x", "prefix:-1", "prefix:nan"):
        with pytest.raises(UsageError, match="--router"):
            parse_router(text)
