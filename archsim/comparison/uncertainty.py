"""How sure a comparison of two expected times is.

The errors of one class of kernels, with one kind of evidence on one device, have a part that is common to both sides of
a ratio: where the products of A are slower than expected, so are those of B. Kernels of the very same size err alike,
and their error cancels; of others, `COMMON` of the error's variance is common, and the rest is their own. What is
common cancels as far as both sides spend the same share of their time on it; all else adds up as independent. On
another device, and of another class or evidence, nothing is common.

Errors are taken as log-normal: the ends of an 80 % interval are those of a two-piece normal distribution of the
logarithm, and to first order d ln T = Σ (share of the class in T) x (error of the class).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from archsim.base.json_types import JsonObject
from archsim.timing.step_time import ClassTime, StepTime

COMMON = 0.05
"""Share of the variance of errors that is common to different kernels of a class. Of the errors of one metric on one
device with one engine, 0.05 of the mean square is their mean's (14 groups of at least 8 public figures, 665 in all).
With it 76 % of 6,121 ratios of two such figures lie in their interval, as 85 % of the single figures do; taking all
errors as common would hold 16 %. `benchmarks/accuracy/ratios.py` measures this."""

Z80 = NormalDist().inv_cdf(0.9)
"""Standard deviations from the middle to an end of an 80 % interval."""

SMALLEST = 1e-3
"""Lower end of an interval over its time, at the least: a logarithm needs one above zero."""

Key = tuple[str, str]
"""Class of kernels and evidence."""


class Ratio(NamedTuple):
    """A time over another. low, high: 80 % interval. faster: the probability that it is the shorter one."""

    value: float
    low: float
    high: float
    faster: float

    def to_dict(self) -> JsonObject:
        """Raw numbers."""
        return self._asdict()


class Timing(NamedTuple):
    """An expected time: its shares by class of kernels, and the seconds spent in kernels of each size."""

    shares: tuple[ClassTime, ...]
    sizes: Mapping[Any, float]


class Error(NamedTuple):
    """What an error of one class does to the logarithm of a whole time, at the ends of its 80 % interval."""

    up: float = 0.0
    down: float = 0.0

    def times(self, factor: float) -> Error:
        """Both ends, `factor` times as far."""
        return Error(self.up * factor, self.down * factor)


def timing(phase: StepTime, count: float = 1.0) -> Timing:
    """The time of `count` runs of a phase."""
    factor = count * phase.busy
    shares = tuple(ClassTime(part.kernel_class, part.time.scaled(factor)) for part in phase.by_class)
    sizes: dict[Any, float] = {}
    for op in phase.ops:
        runs = op.count or 1
        key = (op.kind, round(op.flops / runs), round(op.bytes / runs), round(op.comm_bytes / runs))
        sizes[key] = sizes.get(key, 0.0) + float(op.expected_s) * factor
    return Timing(shares, sizes)


def add_times(a: Timing, b: Timing) -> Timing:
    """One time after the other."""
    sizes = dict(a.sizes)
    for size, seconds in b.sizes.items():
        sizes[size] = sizes.get(size, 0.0) + seconds
    return Timing((*a.shares, *b.shares), sizes)


def ratio(a: Timing, b: Timing, same_device: bool, common: float = COMMON, factor: float = 1.0) -> Ratio:
    """The time of A over that of B; both must take some time. common: share of the variance of errors of different
    kernels of a class that both have in common on the same device. factor: exact, of what a second of A costs over one
    of B: the ratio is then one of costs, `faster` the probability that A is the cheaper one.
    """
    middle = log(factor * _total(a.shares) / _total(b.shares))
    parts = sqrt(common) if same_device else 0.0
    one, two = (errors(x.shares) for x in (a, b))
    alike = (shared(a, b), shared(b, a)) if same_device else (0.0, 0.0)
    up, down = 0.0, 0.0
    for key in {**one, **two}:
        x, y = one.get(key, Error()), two.get(key, Error())
        ends = _both(x, y, *(part + (1 - part) * parts for part in alike))
        own = _apart(x, y, *((1 - part) * sqrt(1 - parts**2) for part in alike))
        up, down = up + ends.up**2 + own.up**2, down + ends.down**2 + own.down**2
    high, low = sqrt(up), sqrt(down)
    return Ratio(exp(middle), exp(middle - low), exp(middle + high), _below_zero(middle, low, high))


def errors(shares: Sequence[ClassTime]) -> dict[Key, Error]:
    """Class and evidence -> what its error does to the whole."""
    total, sums = _total(shares), dict[Key, Error]()
    for share in shares:
        found = _error(share, total)
        before = sums.get((share.kernel_class, share.evidence), Error())
        sums[share.kernel_class, share.evidence] = Error(before.up + found.up, before.down + found.down)
    return sums


def _error(share: ClassTime, total: float) -> Error:
    """What the error of a share does to a whole; one without time of its own moves the whole by its ends."""
    seconds, low, high = (float(x) for x in share.time[:3])
    if not seconds:
        return Error(log(max(1 + high / total, 1.0)), -log(min(max(1 + low / total, SMALLEST), 1.0)))
    up, down = log(max(high / seconds, 1.0)), -log(min(max(low / seconds, SMALLEST), 1.0))
    return Error(up, down).times(seconds / total)


def shared(a: Timing, b: Timing) -> float:
    """The share of the time of A that is spent in kernels of sizes that B has too."""
    total = sum(a.sizes.values())
    return sum(seconds for size, seconds in a.sizes.items() if size in b.sizes) / total if total else 0.0


def _total(shares: Sequence[ClassTime]) -> float:
    return float(sum(share.time.expected for share in shares))


def _both(a: Error, b: Error, of_a: float, of_b: float) -> Error:
    """How far the ratio moves where both sides have the same error; what moves both alike cancels."""
    a, b = a.times(of_a), b.times(of_b)
    moves = a.up - b.up, b.down - a.down
    return Error(max(*moves, 0.0), -min(*moves, 0.0))


def _apart(a: Error, b: Error, of_a: float, of_b: float) -> Error:
    """How far the ratio moves where each side has an error of its own."""
    a, b = a.times(of_a), b.times(of_b)
    return Error(sqrt(a.up**2 + b.down**2), sqrt(a.down**2 + b.up**2))


def _below_zero(middle: float, low: float, high: float) -> float:
    """The probability that the logarithm of the ratio is negative."""
    if middle == 0:
        return 0.5
    spread = (high if middle < 0 else low) / Z80
    return NormalDist().cdf(-middle / spread) if spread else float(middle < 0)
