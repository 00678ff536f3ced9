"""How much load holds under a service level, and how many replicas a load needs: found by running it.

A point counts if its run is stationary and meets the service level. All points of a search share their random draws, so
that they differ by the load alone. The search runs on one replication; the others, and both ends of the step times'
interval, are searched from its answer on, so that sampling and the model are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, log, sqrt
from typing import Literal, Protocol

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.serving.interval import Interval, interval
from archsim.serving.observation import binding, is_stationary, meets, needed
from archsim.serving.observe import Measured
from archsim.serving.slo import Slo

End = Literal[-1, 0, 1]
"""Step times at the low end of their 80 % interval, expected, or at the high end."""

CAPACITY = "capacity"
"""What binds where requests would pile up before any target is missed."""

PRECISION = 1.01
"""Factor between the largest rate that holds and the smallest that does not, where a search ends."""

COARSE = 1.03
"""The same for the searches that make an interval of the answer; the middle is taken."""

FARTHEST = 16.0
"""Over its start no search goes up further: in a closed loop, requests that wait never raise TPOT."""

DOUBLINGS = 24
"""Steps by which a bracket grows at most."""


class Run(Protocol):
    """One replication of a load of a size (requests per second, or replicas)."""

    def __call__(self, size: float, replication: int, end: End) -> Measured: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One point that was tried. ratios: value over target of each metric, the largest first. stationary: whether
    requests did not pile up. score: how far the level is from being met, in logarithm: below 0 where it is.
    """

    size: float
    met: bool
    stationary: bool
    score: float
    ratios: tuple[tuple[str, float], ...]

    @property
    def binding(self) -> str:
        """The metric nearest to its target or furthest beyond; capacity where requests pile up with all targets met."""
        name, ratio = self.ratios[0]
        return CAPACITY if not self.stationary and ratio <= 1 else name

    def to_dict(self, size: str) -> JsonObject:
        """As in `found.tried` of the JSON."""
        return {size: self.size, "met": self.met, "stationary": self.stationary,
                "value_over_target": dict(self.ratios)}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The answer of a search. size: with intervals of sampling and model; None where nothing holds. binding: what is
    missed beyond it; None where nothing was as far as the search went: the size is then the least that it may be.
    next_binding: what would be missed next, were that target dropped, and at which size. ratio: of two pools, where
    that was asked for; ratios: the largest rate of each that was tried.
    """

    quantity: Literal["rate_per_s", "concurrency", "replicas"]
    size: Interval | None
    binding: str | None
    next_binding: tuple[str, float] | None = None
    tried: Sequence[Probe] = ()
    ratio: str | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> JsonObject:
        """`found` of the JSON."""
        following: JsonObject | None = None
        if self.next_binding is not None:
            following = {"metric": self.next_binding[0], self.quantity: self.next_binding[1]}
        return {
            self.quantity: None if self.size is None else self.size.to_dict(),
            "is_floor": self.binding is None, "binding": self.binding,
            "next_binding": following, "tried": [probe.to_dict(self.quantity) for probe in self.tried],
            **({} if self.ratio is None else {"ratio": self.ratio, "ratios": dict(self.ratios)}),
        }  # fmt: skip


@dataclass(slots=True)
class _Search:
    """Points of one replication at one end of the step times, each run once. whole: whether sizes are whole numbers."""

    run: Run
    slo: Slo
    replication: int = 0
    end: End = 0
    whole: bool = False
    points: dict[float, Measured] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)

    def holds(self, size: float) -> bool:
        """Whether the service level holds at a size."""
        return self.probe(size).met

    def probe(self, size: float) -> Probe:
        """What happens at a size."""
        known = size in self.points
        if not known:
            self.points[size] = self.run(size, self.replication, self.end)
        found = probe(self.points[size], size, self.slo)
        if not known:
            self.probes.append(found)
        return found

    def between(self, low: float, high: float) -> float:
        """The answer between a size that holds and one that does not; of neighbouring whole numbers the lower."""
        middle = sqrt(low * high)
        return middle if not self.whole else float(int(low if int(high) - int(low) <= 1 else middle))

    def without(self, name: str) -> _Search | None:
        """The same points under the other targets, each at its own percentile: runs count what meets all of them.
        None where there is no other.
        """
        left = {metric: target for metric, target in self.slo.targets.items() if metric != name}
        slo = replace(self.slo, targets=left, percentile=self.slo.level)
        return replace(self, slo=slo, probes=[]) if left else None


def probe(measured: Measured, size: float, slo: Slo) -> Probe:
    """A run as a point of a search."""
    levels: Mapping[str, float] = measured.at_level or {}
    stationary = is_stationary([measured])
    met = stationary and meets(slo, measured.attained or 0.0, levels)
    ratios = tuple(binding(slo, levels))
    away = ratios[0][1]
    if slo.percentile is None and slo.share < 1:
        away = (1 - (measured.attained or 0.0)) / (1 - slo.share)
    score = log(min(max(away, 0.1), 10.0))
    score = min(score, -1e-3) if met else max(score, 1e-3 if stationary else 0.5)
    return Probe(size=size, met=met, stationary=stationary, score=score, ratios=ratios)


def find_rate(run: Run, slo: Slo, guess: float, replications: int = 5, ends: bool = True) -> Found:
    """The largest rate at which the service level holds, to 1 %. guess: a rate of its order. Raises UsageError where a
    run has too few requests for the service level's percentile.
    """
    return _find_largest(run, slo, guess, replications, ends, "rate_per_s")


def find_concurrency(run: Run, slo: Slo, guess: float, replications: int = 5, ends: bool = True) -> Found:
    """The largest number of requests in flight at which the service level holds, as `find_rate`."""
    known: dict[tuple[int, int, End], Measured] = {}

    def whole(size: float, replication: int, end: End) -> Measured:
        key = (max(1, int(size)), replication, end)
        if key not in known:
            known[key] = run(*key)
        return known[key]

    found = _find_largest(whole, slo, guess, replications, ends, "concurrency")
    tried = {size: replace(one, size=size) for one in found.tried for size in (max(1, int(one.size)),)}
    size = found.size and replace(found.size, value=float(int(found.size.value)), low=float(int(found.size.low)),
                                  high=float(int(found.size.high)))  # fmt: skip
    following = found.next_binding and (found.next_binding[0], float(int(found.next_binding[1])))
    holds = size is not None and size.value >= 1
    return replace(found, size=size if holds else None, next_binding=following, tried=tuple(tried.values()))


def _find_largest(
    run: Run, slo: Slo, guess: float, replications: int, ends: bool,
    quantity: Literal["rate_per_s", "concurrency"],
) -> Found:  # fmt: skip
    """The largest size that holds."""
    whole = quantity == "concurrency"
    first = _Search(run, slo, whole=whole)
    _check_count(first, guess)
    value = _largest_rate(first, guess)
    if value is None:
        return Found(quantity=quantity, size=None, binding=_worst(first), tried=first.probes)
    slope = _slope(first, value)
    others = [_near(_Search(run, slo, number, whole=whole), value, slope) for number in range(1, replications)]
    values = [float(int(value)) if whole else value, *(other for other in others if other is not None)]
    model = [_near(_Search(run, slo, 0, end, whole), value, slope) or 0.0 for end in (-1, 1)] if ends else []
    above = first.probe(_above(first, value))
    name = None if above.met else above.binding
    return Found(
        quantity=quantity, size=interval(values, [[end] for end in model]), binding=name,
        next_binding=None if name is None else _next_rate(first, name, value),
        tried=sorted(first.probes, key=lambda tried: tried.size),
    )  # fmt: skip


def find_replicas(run: Run, slo: Slo, guess: float, most: int, replications: int = 5, ends: bool = True) -> Found:
    """The fewest replicas, up to `most`, with which a load meets the service level in every replication. guess: a
    number of their order. Raises UsageError where a run has too few requests for the service level's percentile.
    """
    first = _Search(run, slo)
    _check_count(first, min(most, max(1, ceil(guess))))
    value = _fewest(first, guess, most)
    if value is None:
        return Found(quantity="replicas", size=None, binding=_worst(first), tried=first.probes)
    values = [value, *(_fewest(_Search(run, slo, n), value, most) or most for n in range(1, replications))]
    fewest = max(values)
    model = [_fewest(_Search(run, slo, 0, end), value, most) or most for end in (-1, 1)] if ends else []
    size = Interval(value=fewest, low=min(*values, *model, fewest), high=max(*values, *model, fewest),
                    sampling_low=min(values), sampling_high=max(values))  # fmt: skip
    name = first.probe(value - 1).binding if value > 1 else first.probe(value).binding
    return Found(quantity="replicas", size=size, binding=name, tried=sorted(first.probes, key=lambda one: one.size))


def climb(value: Callable[[int], float], start: int, count: int) -> tuple[int, dict[int, float]]:
    """The place of the largest value among places 0 to `count` - 1, up from `start` as long as it grows on one side:
    (place, values by place).
    """
    known: dict[int, float] = {start: value(start)}
    for step in (1, -1):
        place = start
        while 0 <= place + step < count and (place == start or known[place] >= known[place - step]):
            place += step
            known[place] = value(place)
    return max(known, key=lambda place: (known[place], -place)), known


def _check_count(search: _Search, size: float) -> None:
    """Runs have enough requests for the percentile. Raises UsageError."""
    search.probe(size)
    count, least = search.points[size].count, needed(search.slo.level) if search.slo.level < 100 else 1
    if count < least:
        raise UsageError(
            f"p{search.slo.level:g} needs {least:,} measured requests, and a run has {count:,}",
            hints=(f"raise --requests to {ceil(1.1 * least):,}, or ask for a lower percentile",),
        )


def _largest_rate(search: _Search, guess: float) -> float | None:
    """The largest rate that holds, to 1 %; None where none down to a ten-thousandth of the guess does."""
    return _ends(search, guess, None, PRECISION)[0]


def _near(search: _Search, guess: float, slope: float | None) -> float | None:
    """The largest rate that holds, more coarsely. slope: of the score over the logarithm of the rate, where known."""
    low, high = _ends(search, guess, slope, COARSE)
    return low if low is None or high is None else search.between(low, high)


def _ends(search: _Search, guess: float, slope: float | None, precision: float) -> tuple[float | None, float | None]:
    """A rate that holds and one that does not, within a factor of each other; None where there is no such rate."""
    low, high = _bracket(search, guess, slope)
    if low is None or high is None:
        return low, high
    stuck = 0
    while high / low > precision:
        width = log(high / low)
        middle = low * exp(width * (0.5 if stuck > 1 else _crossing(search, low, high)))
        low, high = (middle, high) if search.holds(middle) else (low, middle)
        stuck = stuck + 1 if log(high / low) > 0.5 * width else 0
    return low, high


def _bracket(search: _Search, guess: float, slope: float | None) -> tuple[float | None, float | None]:
    """A rate that holds and a larger one that does not, as near to each other as the slope allows. Steps down grow:
    small loads are quickly run; steps up do not.
    """
    low = high = None
    rate, step = guess, log(2.0)
    for _ in range(DOUBLINGS):
        found = search.probe(rate)
        low, high = (rate, high) if found.met else (low, rate)
        if low is not None and high is not None:
            return low, high
        away = step if slope is None else min(max(1.3 * abs(found.score) / slope, 0.02), log(2.0))
        rate *= exp(away if found.met else -away)
        step, slope = log(2.0) if found.met else step * 1.5, slope and 0.7 * slope
        if rate < guess / 1e4:
            return None, high
        if rate > guess * FARTHEST:
            return low, None
    return low, high


def _crossing(search: _Search, low: float, high: float) -> float:
    """Where between two rates the score crosses zero if it is a line over the logarithm of the rate: a share of the
    way, a little beyond towards the further end, so that both ends move.
    """
    below, above = search.probe(low).score, search.probe(high).score
    if not below < 0 < above:
        return 0.5
    share = -below / (above - below)
    return min(max(share + (0.05 if share < 0.5 else -0.05), 0.05), 0.95)


def _slope(search: _Search, value: float) -> float | None:
    """The slope of the score around an answer, over points within a factor of two."""
    near = [(log(one.size), one.score) for one in search.probes if 0.5 < one.size / value < 2]
    (x, y), (u, v) = min(near), max(near)
    return (v - y) / (u - x) if u > x and v > y else None


def _above(search: _Search, value: float) -> float:
    """The smallest rate above the answer that was tried."""
    return min((size for size in search.points if size > value), default=value)


def _worst(search: _Search) -> str:
    """What binds at the smallest size that was tried."""
    return min(search.probes, key=lambda tried: tried.size).binding


def _next_rate(search: _Search, name: str, value: float) -> tuple[str, float] | None:
    """What binds when the first target is dropped, and the rate that then holds; None where it is the capacity that
    binds already.
    """
    metric = name.rpartition("_p")[0]
    rest = search.without(metric) if name != CAPACITY else None
    if rest is None:
        return None
    low, high = _ends(rest, value, None, COARSE)
    return None if low is None or high is None else (rest.probe(high).binding, rest.between(low, high))


def _fewest(search: _Search, guess: float, most: int) -> int | None:
    """The fewest replicas that hold; None where `most` do not."""
    high = min(most, max(1, ceil(guess)))
    low = 0
    while not search.holds(high):
        if high == most:
            return None
        low, high = high, min(most, high * 2)
    while low == 0 and high > 1 and search.holds(max(1, high // 2)):
        high = max(1, high // 2)
    low = max(low, high // 2 if high > 1 else 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search.holds(middle) else (middle, high)
    return high
