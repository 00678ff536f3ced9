"""What is measured of a run, against plain computations over its requests; refusals, intervals, growth."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.base.errors import UsageError
from archsim.serving.interval import interval
from archsim.serving.observation import binding, is_stationary, meets, needed, observe
from archsim.serving.observe import Measured, measure, series
from archsim.serving.record import RunRecord
from archsim.serving.slo import parse_slo
from archsim.serving.warm_up import WarmUp, parse_warm_up

request_rows = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 5), st.floats(0, 5), st.floats(0.001, 5), st.floats(0.001, 0.2),
              st.integers(1, 50), st.integers(1, 500)),
    min_size=1, max_size=40,
).map(sorted)  # fmt: skip


def record_of(rows: list[tuple[float, float, float, float, float, int, int]], warmup: int = 0) -> RunRecord:
    """A run whose requests took these times: arrival, front end, queue, prompt, gap, tokens of answer and prompt."""
    record = RunRecord.of([row[6] for row in rows], [row[5] for row in rows], warmup=warmup)
    for i, (arrival, front, queue, prompt, gap, answer, _) in enumerate(rows):
        record.arrival_s[i], record.ready_s[i] = arrival, arrival + front
        record.start_s[i] = arrival + front + queue
        record.first_s[i] = record.start_s[i] + prompt
        record.last_s[i] = record.first_s[i] + gap * (answer - 1)
        if answer > 1:
            (record.gaps if i >= warmup else record.warmup_gaps).add(gap, answer - 1)
    record.end_s = max(record.last_s)
    return record


@given(request_rows, st.integers(0, 3))
@settings(max_examples=60)
def test_latencies_are_those_of_the_requests(rows: list[Any], warmup: int) -> None:
    """Each statistic equals NumPy's over a list made request by request."""
    record = record_of(rows, warmup)
    found = measure(record).latencies
    kept = rows[warmup:]
    expected = {
        "ttft_s": [f + q + p for _, f, q, p, *_ in kept], "ttft_engine_s": [q + p for _, _, q, p, *_ in kept],
        "queue_s": [q for _, _, q, *_ in kept], "tpot_s": [g for *_, g, n, _ in kept if n > 1],
        "e2e_s": [f + q + p + g * (n - 1) for _, f, q, p, g, n, _ in kept],
        "normalized_s_per_token": [(f + q + p + g * (n - 1)) / n for _, f, q, p, g, n, _ in kept],
    }  # fmt: skip
    for metric, values in expected.items():
        if not values:
            assert metric not in found
            continue
        assert found[metric]["mean"] == pytest.approx(fmean(values), abs=1e-9)
        assert found[metric]["p90"] == pytest.approx(np.percentile(values, 90), abs=1e-9)
    gaps = [g for *_, g, n, _ in kept for _ in range(n - 1)]
    if gaps:
        assert found["itl_s"]["mean"] == pytest.approx(fmean(gaps))
        assert found["itl_s"]["p99"] == pytest.approx(np.percentile(gaps, 99, method="inverted_cdf"), rel=0.011)


@given(request_rows)
@settings(max_examples=60)
def test_all_tokens_are_counted_over_the_whole_run(rows: list[Any]) -> None:
    """Over the run, rates times its length are the requests and their tokens."""
    record = record_of(rows)
    seconds = record.end_s - rows[0][0]
    whole = measure(record).whole_run
    assert whole["requests_per_s"] * seconds == pytest.approx(len(rows))
    assert whole["output_tokens_per_s"] * seconds == pytest.approx(sum(row[5] for row in rows))
    assert whole["total_tokens_per_s"] * seconds == pytest.approx(sum(row[5] + row[6] for row in rows))


def test_littles_law_holds_in_any_window() -> None:
    """Requests in the system on average: the sum of their times in the window over its length, moment by moment."""
    rng = random.Random(5)
    rows = sorted((rng.uniform(0, 50), 0.0, rng.uniform(0, 3), 0.2, 0.05, 20, 9) for _ in range(200))
    found = measure(record_of(rows))
    times = [rows[0][0] + (rows[-1][0] - rows[0][0]) * (i + 0.5) / 20_000 for i in range(20_000)]
    start = np.sort([a + q for a, _, q, *_ in rows])
    last = np.sort([a + q + 0.2 + 0.05 * 19 for a, _, q, *_ in rows])
    inside = np.searchsorted(start, times) - np.searchsorted(last, times)
    assert found.running == pytest.approx(inside.mean(), rel=1e-3)
    waits = np.searchsorted(np.sort([row[0] for row in rows]), times) - np.searchsorted(start, times)
    assert found.waiting == pytest.approx(waits.mean(), rel=1e-3)


def queue_run(rho: float, seed: int, count: int = 3000, service: float = 1.0) -> Measured:
    """One server, equal service, Poisson arrivals at `rho` of its capacity."""
    rng, now, free, rows = random.Random(seed), 0.0, 0.0, []
    for _ in range(count):
        now += rng.expovariate(rho / service)
        start = max(now, free)
        free = start + service
        rows.append((now, 0.0, start - now, service, 0.1, 1, 10))
    return measure(record_of(rows), parse_slo("ttft=5"))


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_waiting_of_one_server_follows_the_closed_form(rho: float) -> None:
    """M/D/1: rho S / 2(1 - rho), within the 95 % interval doubled; the run is stationary and its rate the offered."""
    seen = observe([queue_run(rho, seed) for seed in range(6)])
    wait = seen.latencies["queue_s"]["mean"]
    assert wait is not None and wait.sampling_high is not None
    assert abs(wait.value - rho / 2 / (1 - rho)) < 2 * (wait.sampling_high - wait.value)
    assert seen.stationary and seen.backlog_per_s == 0
    assert set(seen.refused) == {"tpot_s", "itl_s", "itl_request_s"}  # answers of one token
    assert seen.rates["requests_per_s"].value == pytest.approx(rho, rel=0.03)


@pytest.mark.parametrize(("rho", "replications"), [(1.03, 5), (1.3, 1), (1.3, 5), (3.0, 1)])
def test_a_load_above_capacity_has_no_percentiles(rho: float, replications: int) -> None:
    """The backlog grows by the difference of the rates; what depends on how long one looks is refused."""
    seen = observe([queue_run(rho, seed) for seed in range(replications)])
    assert not seen.stationary and seen.latencies["ttft_s"]["p50"] is None
    assert seen.backlog_per_s == pytest.approx(rho - 1, rel=0.3, abs=0.03)
    assert "per minute" in seen.refused["ttft_s"]
    assert "second token" in seen.refused["tpot_s"]
    assert observe([queue_run(rho, 0)], endless=False).latencies["ttft_s"]["p50"] is not None


@pytest.mark.slow
def test_no_false_alarm_at_loads_that_are_served() -> None:
    """At most one in forty groups of five runs at 80 % of capacity is called unstable."""
    runs = [queue_run(0.8, seed, count=1000) for seed in range(200)]
    assert sum(not is_stationary(runs[i : i + 5]) for i in range(0, 200, 5)) <= 1


def test_percentiles_need_requests() -> None:
    """Ten beyond each: 999 measured requests have no p99, 1,000 have one; means are stated of any."""
    rows = [(0.01 * i, 0.0, 0.0, 0.1, 0.01, 5, 5) for i in range(1050)]
    enough, short = (observe([measure(record_of(rows, warmup))]) for warmup in (50, 51))
    assert enough.latencies["ttft_s"]["p99"] is not None and short.latencies["ttft_s"]["p99"] is None
    assert short.refused["ttft_s.p99"] == "999 measured requests; it takes 1,000"
    assert short.latencies["ttft_s"]["p95"] is not None and needed(99.9) == 10_000
    one = observe([measure(record_of(rows[:1]))])
    assert one.latencies["ttft_s"]["mean"] is not None and one.latencies["ttft_s"]["p50"] is None
    none = observe([measure(record_of(rows[:1], warmup=1))])
    assert none.refused["ttft_s"] == "no request was measured"


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=8), st.floats(0.7, 1), st.floats(1, 1.4))
def test_intervals_keep_sampling_and_model_apart(values: list[float], low: float, high: float) -> None:
    """Sampling is the t-interval of the replications whatever the model says; together they are wider than either."""
    ends = [[v * low for v in values], [v * high for v in values]]
    alone, both = interval(values), interval(values, ends)
    assert both.sampling_low == alone.sampling_low and both.sampling_high == alone.sampling_high
    assert both.low <= min(alone.low, fmean(values) * low) + 1e-9
    assert both.high >= max(alone.high, fmean(values) * high) - 1e-9
    only_model = interval(values[:1], [end[:1] for end in ends])
    assert only_model.sampling_low is None and only_model.low == pytest.approx(values[0] * low)


def test_sampling_intervals_cover_the_mean() -> None:
    """Of 2,000 samples of five, 95 and 80 % intervals hold the mean as often as they say."""
    rng = random.Random(2)
    wide = narrow = 0
    for _ in range(2000):
        found = interval([rng.gauss(10, 1) for _ in range(5)])
        assert found.sampling_low is not None and found.sampling_high is not None
        wide += found.sampling_low <= 10 <= found.sampling_high
        narrow += found.low <= 10 <= found.high
    assert abs(wide / 2000 - 0.95) < 0.02 and abs(narrow / 2000 - 0.8) < 0.03


def test_service_levels_count_requests_that_meet_every_target() -> None:
    """At once; one that was refused meets none."""
    rows = [(float(i), 0.0, 0.0, 0.1 * (i % 10), 0.01 * (i % 4), 10, 5) for i in range(100)]
    slo = parse_slo("ttft=0.55,tpot=0.025")
    good = sum(0.1 * (i % 10) <= 0.55 and 0.01 * (i % 4) <= 0.025 for i in range(100)) / 100
    record = record_of(rows)
    found = measure(record, slo)
    assert found.attained == pytest.approx(good)
    assert found.rates["goodput_requests_per_s"] == pytest.approx(good * found.rates["requests_per_s"])
    record.refused[7] = "too long"
    assert measure(record, slo).attained == pytest.approx(good * 100 / 101)
    seen = observe([found], slo=slo)
    assert seen.met is False and seen.slo_json() is not None
    each = parse_slo("ttft=0.95,tpot=0.005,p=99")
    levels = measure(record, each).at_level
    assert levels is not None and binding(each, levels)[0][0] == "tpot_p99"
    assert not meets(each, 1.0, levels) and meets(parse_slo("ttft=0.95,p=99"), 0.0, {"ttft": levels["ttft"]})


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=-1", "speed=3", "ttft=1,ttft=2", "p=99", "ttft=nan", "itl=1"]
)
def test_bad_service_levels_are_refused(text: str) -> None:
    """With what to write."""
    with pytest.raises(UsageError, match="--slo"):
        parse_slo(text)


def test_goodput_and_percentile_are_two_ways() -> None:
    """One or the other."""
    assert parse_slo("ttft=1", goodput=0.9).level == 90
    for options in ({"goodput": 0.5}, {"goodput": 2.0}):
        with pytest.raises(UsageError):
            parse_slo("ttft=1,p=99" if options["goodput"] < 1 else "ttft=1", **options)


def test_numbers_of_the_json_are_finite() -> None:
    """No NaN anywhere, whatever the run."""
    rows = [(0.0, 0.0, 0.0, 0.1, 0.0, 1, 1)] * 3
    for record in (record_of(rows), record_of(rows, warmup=3)):
        found = measure(record, parse_slo("tpot=1"))
        numbers = [*found.rates.values(), *found.whole_run.values(), found.growth, found.ttft_growth, found.completed]
        assert all(math.isfinite(number) for number in numbers)
        assert series(record)["t_s"] == []
    assert replace(found, count=5).count == 5
    assert stdev([1.0, 2.0]) > 0


def delay_run(rate: float, count: int, seed: int, service: float = 2.0) -> Measured:
    """As many servers as there are requests: nobody waits, and their number in the system is Poisson's."""
    rng, now, rows = random.Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        rows.append((now, 0.0, 0.0, service / 2, service / 2, 2, 10))
    return measure(record_of(rows))


@pytest.mark.slow
def test_requests_in_flight_at_the_end_are_no_backlog() -> None:
    """A server that never makes anyone wait holds every load: chance alone makes fewer end than arrive."""
    assert sum(not is_stationary([delay_run(8.0, 950, seed)]) for seed in range(100)) <= 3
    assert all(is_stationary([delay_run(10.0, 20, seed)]) for seed in range(20))  # ends before the first one leaves


def test_arrivals_within_a_moment_of_the_run_are_still_too_many() -> None:
    """A hundred times the capacity: all arrive within a hundredth of the run."""
    seen = observe([queue_run(100.0, 0)])
    assert not seen.stationary and seen.latencies["ttft_s"]["mean"] is None and seen.backlog_per_s > 50


def test_rates_of_few_requests_are_those_that_end() -> None:
    """Three answers that outlast their arrivals: none ends before the last arrival, and all of them count."""
    seen = observe([measure(record_of([(0.5 * i, 0.0, 0.0, 0.1, 0.01, 161 + n, 100) for i in range(3)]))
                    for n in range(5)])  # fmt: skip
    rate = seen.rates["requests_per_s"]
    assert rate.value == pytest.approx(3 / 2.72, rel=0.01) and rate.low > 0.9 * rate.value
    tokens = seen.rates["output_tokens_per_s"].value
    assert tokens == pytest.approx(163 * rate.value, rel=0.01)


def test_rates_of_a_long_run_are_those_between_its_arrivals() -> None:
    """Where answers are short beside the arrivals nothing of the end counts."""
    rows = [(0.1 * i, 0.0, 0.0, 0.1, 0.01, 11, 100) for i in range(200)] + [(20.0, 0.0, 0.0, 0.1, 0.01, 3000, 100)]
    assert measure(record_of(rows)).rates["requests_per_s"] == pytest.approx(10, rel=0.02)


def test_warm_up_is_requests_or_seconds_or_what_drifts() -> None:
    """`auto` drops the requests before the level that the others have; of a steady run hardly any."""
    rng = random.Random(3)
    rows = [(float(i), 0.0, rng.uniform(0, 1) + max(0.0, 8 - 0.1 * i), 1.0, 0.1, 5, 9) for i in range(600)]
    record = record_of(rows)
    dropped = WarmUp().count(record)
    assert 50 <= dropped <= 110
    assert WarmUp().count(record_of(rows[100:])) <= 60
    assert WarmUp(seconds=30).count(record) == 30 and WarmUp(requests=7).count(record) == 7
    assert parse_warm_up("30s") == WarmUp(seconds=30) and parse_warm_up("12") == WarmUp(requests=12)
    assert parse_warm_up("auto") == WarmUp() and parse_warm_up(None) is None
    for text in ("soon", "-1", "3m", "nans", "s", "1e999s"):
        with pytest.raises(UsageError, match="--warmup"):
            parse_warm_up(text)
