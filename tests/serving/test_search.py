"""Searches for capacity, over queues whose answer is known in closed form."""

from __future__ import annotations

from collections import Counter
from functools import partial
from math import exp, factorial

import pytest
from queues import fleet_run

from archsim.base.errors import UsageError
from archsim.serving.observe import Measured
from archsim.serving.search import End, find_concurrency, find_rate, find_replicas
from archsim.serving.slo import Slo, parse_slo

SCALE = {-1: 0.9, 0: 1.0, 1: 1.14}


def one_server(
    size: float, replication: int, end: End, *, slo: Slo, count: int = 4000, calls: Counter[str]
) -> Measured:
    """A server of one second per request at `size` requests per second."""
    calls["runs"] += 1
    return fleet_run(size, 1, replication, SCALE[end], slo, count)


def waits_longer(rho: float, than: int) -> float:
    """P(W > x) of M/D/1 with service 1 (Erlang 1909): 1 - (1 - rho) sum of (rho (k - x))^k / k! e^(-rho (k - x))."""
    terms = ((rho * (k - than)) ** k / factorial(k) * exp(-rho * (k - than)) for k in range(than + 1))
    return 1 - (1 - rho) * sum(terms)


def test_the_rate_is_that_of_the_closed_form() -> None:
    """A tenth of the requests waits more than two service times at a load that Erlang's formula gives."""
    slo, calls = parse_slo("ttft=3", goodput=0.9), Counter[str]()
    found = find_rate(partial(one_server, slo=slo, calls=calls), slo, guess=1.0)
    assert found.size is not None and found.size.sampling_low is not None and found.size.sampling_high is not None
    rho = next(r / 10_000 for r in range(1, 10_000) if waits_longer(r / 10_000, 2) > 0.1)
    assert found.size.sampling_low < rho < found.size.sampling_high
    assert found.size.value == pytest.approx(rho, rel=0.03) and found.binding == "ttft_p90"
    assert found.size.low < found.size.value / 1.08 and found.size.high > found.size.value * 1.06
    assert calls["runs"] < 60


def test_the_number_in_flight_is_one_that_holds() -> None:
    """Whole numbers between replications are not rounded up to one that was seen to miss the level."""
    slo, calls = parse_slo("ttft=3", goodput=0.9), Counter[str]()

    def of_25(size: float, replication: int, end: End) -> Measured:
        """A server that serves requests in flight as one with a 25th of them a second."""
        return one_server(size / 25, replication, end, slo=slo, calls=calls)

    found = find_concurrency(of_25, slo, guess=20.0, replications=1, ends=False)
    assert found.size is not None
    tried = {probe.size: probe.met for probe in found.tried}
    assert tried[found.size.value] and not tried[found.size.value + 1]


def test_the_next_binding_is_what_remains() -> None:
    """Where TPOT is met at any load, only capacity is left: one request per second."""
    slo, calls = parse_slo("ttft=2,tpot=1"), Counter[str]()
    found = find_rate(partial(one_server, slo=slo, calls=calls), slo, guess=9.0, replications=1, ends=False)
    assert found.next_binding is not None and found.size is not None
    assert found.next_binding[0] == "capacity" and found.next_binding[1] == pytest.approx(1.0, rel=0.06)
    assert found.size.sampling_low is None and found.size.value < 0.6
    shown = found.to_dict()
    assert shown["binding"] == "ttft_p99" and shown["next_binding"]["metric"] == "capacity"
    sizes = [tried["rate_per_s"] for tried in shown["tried"]]
    assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes)


def test_nothing_is_found_where_one_request_alone_is_too_slow() -> None:
    """And it says what binds."""
    slo = parse_slo("ttft=0.5")
    found = find_rate(partial(one_server, slo=slo, calls=Counter[str](), count=1100), slo, guess=1.0)
    assert found.size is None and found.binding == "ttft_p99" and found.to_dict()["rate_per_s"] is None


def test_a_percentile_needs_enough_requests() -> None:
    """p99 of 500 requests is refused, with the number."""
    slo = parse_slo("ttft=5")
    with pytest.raises(UsageError, match="1,000"):
        find_rate(partial(one_server, slo=slo, calls=Counter[str](), count=500), slo, guess=1.0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("guess", [1, 7, 40])
def test_the_fewest_replicas_are_found_from_anywhere(guess: int) -> None:
    """The same as trying one after another."""
    slo = parse_slo("ttft=2.5", goodput=0.95)

    def run(size: float, replication: int, end: End) -> Measured:
        return fleet_run(9.0, int(size), replication, SCALE[end], slo, 3000)

    found = find_replicas(run, slo, guess, most=64, replications=2)
    fewest = next(n for n in range(1, 64) if all((run(n, r, 0).attained or 0) >= 0.95 for r in (0, 1)))
    assert found.size is not None and found.size.value == fewest
    assert found.size.low <= fewest <= found.size.high and found.size.high > fewest - 1
    assert find_replicas(run, slo, 1, most=5, replications=1).size is None


def test_a_search_ends_where_no_load_is_too_large() -> None:
    """Requests that wait never raise TPOT: with TTFT dropped nothing binds, and the search gives up."""
    sizes: list[float] = []

    def run(size: float, replication: int, end: End) -> Measured:
        sizes.append(size)
        return fleet_run(0.5 if size > 20 else 0.9, 1, replication, SCALE[end], parse_slo("tpot=1"), 1100)

    found = find_rate(run, parse_slo("tpot=1"), guess=1.0, replications=1, ends=False)
    assert len(sizes) < 20 and max(sizes) < 40 and found.next_binding is None
    assert found.binding is None and found.to_dict()["is_floor"] is True


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("ttft=2s,tpot=50ms", {"ttft": 2, "tpot": 0.05}), ("ttft=0.5,tpot=0.03", {"ttft": 0.5, "tpot": 0.03}),
        ("e2e=1.5 s", {"e2e": 1.5}), ("tpot=800us", {"tpot": 8e-4}), ("ttft=1e3ms", {"ttft": 1}),
    ],
)  # fmt: skip
def test_targets_with_units(text: str, targets: dict[str, float]) -> None:
    """Seconds where no unit stands."""
    assert parse_slo(text).targets == pytest.approx(targets)


@pytest.mark.parametrize("text", ["ttft=2m", "ttft=s", "ttft=2ss", "ttft=-2ms", "ttft=inf", "ttft=2 ms s", "p=99ms"])
def test_targets_that_are_none(text: str) -> None:
    """Other units, and values that are no time."""
    with pytest.raises(UsageError):
        parse_slo(text)
