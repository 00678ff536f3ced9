"""What requests saw of one simulated run: latencies, their percentiles, throughput, goodput, and whether they pile up.

Everything is computed from the columns of requests, and gaps between tokens from their histogram. Throughput is what
happens inside the measuring window over its length: from the first measured arrival to the last arrival, so that
filling and draining stay outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonObject
from archsim.serving.record import RunRecord
from archsim.serving.slo import Slo

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats, Ints

PERCENTILES: Mapping[str, float] = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}

LATENCIES = (
    *("ttft_s", "ttft_engine_s", "tpot_s", "itl_s", "itl_request_s", "e2e_s", "queue_s"),
    "normalized_s_per_token",
)
"""Metrics of requests, as in the JSON of `simulate`. ttft: from arrival at the server to the first token; ttft_engine:
without the front end; tpot: (last - first) / (tokens - 1); itl: all gaps pooled; itl_request: one mean gap per request;
queue: from the engine's queue to the first step; normalized: e2e over output tokens."""

GRID = 256
"""Moments at which the requests in the system are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. count: measured requests. latencies: by metric and statistic; a metric of no request is absent. rates:
    requests, output tokens and all tokens per second in the window; whole_run: the same over all of the run, as
    benchmarks print them. attained: share of requests that meet the service level, of those measured and those
    refused; at_level: each of its metrics at its percentile.

    Of the second half of the arrivals, which lasts `half_s`: growth: by how many requests per second those in the
    system become more (those that wait, where it is too short for requests to leave: see `_piling`), and growth_error:
    its standard error; in_system: their mean; completed: that of arrivals which is not left over, on the trend;
    ttft_growth: seconds by which TTFT grows per second.
    """

    count: int
    latencies: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, float]
    whole_run: Mapping[str, float]
    running: float
    waiting: float
    half_s: float
    growth: float
    growth_error: float
    in_system: float
    completed: float
    ttft_growth: float
    attained: float | None = None
    at_level: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """A record's columns as arrays, of the requests that have ended."""

    arrival: Floats
    ready: Floats
    start: Floats
    first: Floats
    last: Floats
    prompt: Ints
    answer: Ints
    measured: Bools

    @classmethod
    def of(cls, record: RunRecord) -> _Columns:
        import numpy as np

        ended: Bools = np.asarray(record.last_s) >= 0
        columns = (record.arrival_s, record.ready_s, record.start_s, record.first_s, record.last_s)
        arrival, ready, start, first, last = (np.asarray(column, np.float64)[ended] for column in columns)
        prompt, answer = (np.asarray(column, np.int64)[ended] for column in (record.input_len, record.output_len))
        return cls(
            arrival=arrival, ready=ready, start=start, first=first, last=last, prompt=prompt, answer=answer,
            measured=np.flatnonzero(ended) >= record.warmup,
        )  # fmt: skip

    def latencies(self) -> dict[str, Floats]:
        """Each metric of each measured request that has one."""
        arrival, ready, start, first, last = (
            column[self.measured] for column in (self.arrival, self.ready, self.start, self.first, self.last)
        )
        answer = self.answer[self.measured]
        several = answer > 1
        tpot = (last - first)[several] / (answer[several] - 1)
        return {
            "ttft_s": first - arrival, "ttft_engine_s": first - ready, "tpot_s": tpot, "itl_request_s": tpot,
            "e2e_s": last - arrival, "queue_s": start - ready, "normalized_s_per_token": (last - arrival) / answer,
        }  # fmt: skip


def measure(record: RunRecord, slo: Slo | None = None) -> Measured:
    """What the requests of a run saw, from request `record.warmup` on."""
    columns = _Columns.of(record)
    values = columns.latencies()
    latencies = {name: _statistics(column) for name, column in values.items() if len(column)}
    if record.gaps.count:
        pooled = {name: record.gaps.quantile(level / 100) for name, level in PERCENTILES.items()}
        latencies["itl_s"] = {"mean": record.gaps.mean} | pooled
    served = columns.last[columns.measured] - columns.start[columns.measured]
    begin, end = window(columns.arrival[columns.measured], record.end_s, float(served.mean()) if len(served) else 0.0)
    running, waiting = (_mean_inside(*pair, begin, end) for pair in (
        (columns.start, columns.last), (columns.ready, columns.start)))  # fmt: skip
    attained = None if slo is None else _attained(record, columns, slo)
    rates = _rates(columns, begin, end)
    if attained is not None:
        rates["goodput_requests_per_s"] = attained * rates["requests_per_s"]
    half, last = _second_half(columns.arrival[columns.measured])
    growth, error, in_system = _piling(columns, half, last)
    return Measured(
        count=int(columns.measured.sum()), latencies=latencies, rates=rates,
        whole_run=_rates(columns, float(columns.arrival.min(initial=record.end_s)), record.end_s),
        running=running, waiting=waiting, half_s=last - half, growth=growth, growth_error=error, in_system=in_system,
        completed=1 - growth * (last - half) / max(1, _arrived(columns, half, last)),
        ttft_growth=_ttft_growth(columns, half, last), attained=attained,
        at_level=None if slo is None else _at_level(record, values, slo),
    )  # fmt: skip


def window(arrivals: Floats, end_s: float, served_s: float = 0.0) -> tuple[float, float]:
    """From the first measured arrival to the last; to the end of the run where all arrive within a tenth of it, or
    before a few could have been served: hardly any would end between. served_s: mean seconds of a request from its
    start to its end.
    """
    if not len(arrivals):
        return 0.0, max(end_s, 1e-9)
    begin, end = float(arrivals.min()), float(arrivals.max())
    lasts = end - begin > max(0.1 * (end_s - begin), SOJOURNS * served_s)
    return begin, end if lasts else max(end_s, begin + 1e-9)


def _statistics(values: Floats) -> dict[str, float]:
    """Mean and percentiles, interpolated as the benchmarks of engines do."""
    import numpy as np

    levels = np.percentile(values, list(PERCENTILES.values()))
    return {"mean": float(values.mean())} | dict(zip(PERCENTILES, map(float, levels), strict=True))


def _overlap(start: Floats, end: Floats, low: float, high: float) -> Floats:
    """Seconds of each stretch that are inside a window."""
    import numpy as np

    inside: Floats = np.minimum(end, high) - np.maximum(start, low)
    return inside.clip(0.0)


def _mean_inside(start: Floats, end: Floats, low: float, high: float) -> float:
    """How many stretches cover a moment of a window, on average."""
    return float(_overlap(start, end, low, high).sum()) / max(high - low, 1e-12)


def _rates(columns: _Columns, low: float, high: float) -> dict[str, float]:
    """Requests that end, output tokens, and prompt and output tokens, per second of a window. A prompt counts when it
    makes its first token; the tokens after that one are spread evenly to the last.
    """
    import numpy as np

    seconds = max(high - low, 1e-12)
    inside = (columns.first >= low) & (columns.first <= high)
    length = columns.last - columns.first
    share = np.divide(_overlap(columns.first, columns.last, low, high), length, out=np.zeros_like(length),
                      where=length > 0)  # fmt: skip
    output = float((inside + share * (columns.answer - 1)).sum())
    return {
        "requests_per_s": float(((columns.last >= low) & (columns.last <= high)).sum()) / seconds,
        "output_tokens_per_s": output / seconds,
        "total_tokens_per_s": (output + float(columns.prompt[inside].sum())) / seconds,
    }


SOJOURNS = 3.0
"""Times that requests run, that the second half of the arrivals must last for requests to leave as others arrive."""


def _second_half(arrivals: Floats) -> tuple[float, float]:
    """The second half of the time in which the measured requests arrive."""
    if not len(arrivals):
        return 0.0, 0.0
    begin, end = float(arrivals.min()), float(arrivals.max())
    return (begin + end) / 2, end


def _piling(columns: _Columns, low: float, high: float) -> tuple[float, float, float]:
    """By how many requests per second those in the system become more, the standard error, and their mean.

    While the server fills, every arrival is one more. So where a stretch is shorter than a few times that requests
    run, only those that wait are counted: a server that keeps up lets nobody wait for long.
    """
    ran = float((columns.last - columns.start).mean()) if len(columns.last) else 0.0
    leave = columns.last if high - low >= SOJOURNS * ran else columns.start
    growth, error = _growth(columns.arrival, leave, low, high)
    return growth, error, _mean_inside(columns.arrival, leave, low, high)


def _growth(enter: Floats, leave: Floats, low: float, high: float) -> tuple[float, float]:
    """Slope of the number that has entered and not left, per second, and its standard error.

    The number at one moment says nothing new about another one a stay away, so there are as many independent points as
    stays in the stretch.
    """
    import numpy as np

    if high <= low:
        return 0.0, 0.0
    times = np.linspace(low, high, GRID)
    entered, left = (np.searchsorted(np.sort(column), times, side="right") for column in (enter, leave))
    number = (entered - left).astype(float)
    slope = _slope(times, number)
    inside = (enter > low) & (enter <= high)
    stay = float((leave - enter)[inside].mean()) if inside.any() else 0.0
    spread = float((number - number.mean() - slope * (times - times.mean())).std())
    points = min(float(GRID), (high - low) / max(stay, 1e-12))
    return slope, spread * (12 / max(points, 1.0)) ** 0.5 / (high - low)


def _arrived(columns: _Columns, low: float, high: float) -> int:
    """Requests that arrive in a stretch."""
    return int(((columns.arrival > low) & (columns.arrival <= high)).sum())


def _ttft_growth(columns: _Columns, low: float, high: float) -> float:
    """Slope of TTFT over the time of arrival, in seconds per second."""
    inside = (columns.arrival > low) & (columns.arrival <= high)
    return _slope(columns.arrival[inside], (columns.first - columns.arrival)[inside])


def _slope(x: Floats, y: Floats) -> float:
    """The slope of a line through points by least squares; 0 of fewer than two places."""
    if len(x) < 2:
        return 0.0
    away = x - x.mean()
    square = float((away * away).sum())
    return float((away * (y - y.mean())).sum()) / square if square > 0 else 0.0


def _attained(record: RunRecord, columns: _Columns, slo: Slo) -> float:
    """Share of requests that meet every target at once; an answer of one token meets any TPOT."""
    import numpy as np

    first, last, arrival, answer = columns.first, columns.last, columns.arrival, columns.answer
    each = {
        "ttft": first - arrival, "e2e": last - arrival, "tpot": (last - first) / np.maximum(answer - 1, 1),
    }  # fmt: skip
    good = columns.measured.copy()
    for name, target in slo.targets.items():
        if name in each:
            good &= each[name] <= target
    refused = sum(1 for request in record.refused if request >= record.warmup)
    every = int(columns.measured.sum()) + refused
    return float(good.sum()) / every if every else 0.0


def _at_level(record: RunRecord, values: Mapping[str, Floats], slo: Slo) -> dict[str, float]:
    """Each metric of the service level at its percentile; 0 where no request has it."""
    import numpy as np

    found = {}
    for name in slo.targets:
        column = values.get(f"{name}_s")
        if name == "itl":
            found[name] = record.gaps.quantile(slo.level / 100)
        else:
            found[name] = float(np.percentile(column, slo.level)) if column is not None and len(column) else 0.0
    return found


def series(record: RunRecord, most: int = 240) -> JsonObject:
    """The state over time, at most `most` moments of equal distance, as in the JSON of `simulate`; of a fleet the sum
    over its replicas.
    """
    import numpy as np

    parts = [part for part in record.parts or (record,) if len(part.samples.t_s) >= 2]
    if not parts:
        names = ("t_s", "running", "waiting", "kv_occupancy", "output_tokens_per_s", "replicas")
        return {name: [] for name in names}
    count, last = max(len(part.samples.t_s) for part in parts), max(part.samples.t_s[-1] for part in parts)
    ends = np.linspace(0.0, last, min(most, count) + 1)

    def level(name: str) -> list[float]:
        total = np.zeros(len(ends))
        for part in parts:
            total += np.interp(ends, [0.0, *part.samples.t_s], [0.0, *getattr(part.samples, name)])
        return [float(value) for value in np.diff(total) / np.diff(ends)]

    used, room, there = (np.zeros(len(ends) - 1) for _ in range(3))
    for part in record.parts or (record,):
        serving = (part.from_s <= ends[1:]) & (ends[1:] <= part.until_s)
        room += serving * part.total_blocks
        there += serving
    for part in parts:
        used += np.interp(ends[1:], part.samples.t_s, part.samples.used_blocks, right=0.0)
    return {
        "t_s": [float(value) for value in ends[1:]], "running": level("running_s"), "waiting": level("waiting_s"),
        "kv_occupancy": [float(value) for value in used / room.clip(1)],
        "output_tokens_per_s": level("output_tokens"), "replicas": [int(count) for count in there],
    }  # fmt: skip


def _first_arrival(record: RunRecord) -> float:
    """When the first request arrives, in seconds."""
    import numpy as np

    arrival: Floats = np.asarray(record.arrival_s)
    return float(arrival[arrival >= 0].min())


def alive_s(record: RunRecord) -> float:
    """Seconds of a server from the first arrival to the end of the run; of a fleet the sum over its replicas."""
    first, parts = _first_arrival(record), record.parts or (record,)
    return max(sum(min(part.until_s, record.end_s) - max(part.from_s, first) for part in parts), 1e-12)


def replicas_at_once(record: RunRecord) -> tuple[float, int]:
    """Replicas that are there, on average from the first arrival to the end of the run, and at most."""
    first, parts = _first_arrival(record), record.parts or (record,)
    changes = sorted([(part.from_s, 1) for part in parts] + [(min(part.until_s, record.end_s), -1) for part in parts])
    most = there = 0
    for _, change in changes:
        there += change
        most = max(most, there)
    return alive_s(record) / max(record.end_s - first, 1e-12), most


def cache_use(record: RunRecord) -> tuple[float, float]:
    """Share of the cache that is in use in steps, on average and at most in any replica."""
    parts = record.parts or (record,)
    room = sum(part.busy_s * part.total_blocks for part in parts)
    mean = sum(part.used_block_s for part in parts) / room if room else 0.0
    return mean, max(part.most_used_blocks / part.total_blocks for part in parts)


def by_replica(record: RunRecord) -> list[JsonObject]:
    """What each replica did, as in the JSON of `simulate`. Means are of all its requests that have ended."""
    import numpy as np

    parts = record.parts or (record,)
    ended: Bools = np.asarray(record.last_s) >= 0
    arrival, first, last = (np.asarray(column)[ended] for column in (record.arrival_s, record.first_s, record.last_s))
    begin, rows = float(arrival.min(initial=inf)), list[JsonObject]()
    sums: dict[int, list[Floats]] = {}  # of requests, TTFT and end to end, by pool
    for part in parts:
        if id(part.replica) not in sums:
            where: Ints = np.asarray(part.replica)[ended]
            there, count = where >= 0, len(parts)
            columns = (np.ones(len(where)), first - arrival, last - arrival)
            sums[id(part.replica)] = [
                np.bincount(where[there], weights=column[there], minlength=count).astype(float) for column in columns
            ]
        rows.append(_replica(part, sums[id(part.replica)], begin, record.end_s))
    return rows


def _replica(part: RunRecord, sums: Sequence[Floats], begin_s: float, end_s: float) -> JsonObject:
    """One replica; where answers are made, TTFT is another's."""
    count, ttft, e2e = (column[part.number] for column in sums)
    mean, largest = cache_use(part)
    span = max(min(part.until_s, end_s) - max(part.from_s, begin_s), 1e-12)
    return {
        "replica": part.number, "pool": part.name or None, "requests": int(count),
        "ttft_s": float(ttft / count) if count and part.name != "decode" else None,
        "e2e_s": float(e2e / count) if count else None,
        "running": part.running_s / span, "waiting": part.waiting_s / span, "utilisation": part.busy_s / span,
        "kv_occupancy": {"mean": mean, "max": largest}, "output_tokens": part.output_tokens,
        "prompt_tokens": part.prompt_tokens, "from_s": part.from_s,
        "until_s": part.until_s if part.until_s < inf else None,
    }  # fmt: skip
