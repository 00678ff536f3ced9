"""When requests arrive: `poisson`, `constant`, `gamma:CV` or `burst:N`, at a rate that may change with time.

Times are drawn at a rate of one and then stretched: the same draws serve every rate and every profile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, isfinite

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.serving.random_numbers import Stream


@dataclass(frozen=True, slots=True)
class Arrival:
    """How requests arrive. kind: poisson, constant, gamma or burst. value: the coefficient of variation of gaps, or the
    requests of a burst.
    """

    kind: str = "poisson"
    value: float = 1.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:g}" if self.kind in ("gamma", "burst") else self.kind

    def unit_times(self, stream: Stream, count: int) -> list[float]:
        """Times of `count` arrivals at a mean rate of one."""
        if self.kind == "constant":
            return [float(i) for i in range(count)]
        if self.kind == "gamma":
            return list(accumulate(stream.gammas(self.value**-2, count)))
        size = round(self.value) if self.kind == "burst" else 1
        starts = list(accumulate(stream.exponentials(-(-count // size))))
        return starts if size == 1 else [start * size for start in starts for _ in range(size)][:count]


POISSON = Arrival()


def parse_arrival(text: str) -> Arrival:
    """What `--arrival` says. Raises UsageError."""
    kind, _, value = text.strip().partition(":")
    if kind in ("poisson", "constant") and not value:
        return Arrival(kind)
    match = re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", value)
    number = float(value) if match else 0.0
    if kind == "gamma" and 0.01 <= number <= 100:
        return Arrival(kind, number)
    if kind == "burst" and 1 <= number <= 1e6 and number == int(number):
        return Arrival(kind, number)
    raise UsageError(
        f"`--arrival`: {quote(text)} is not an arrival process",
        hints=("write poisson, constant, gamma:CV (CV of the gaps, 0.01 to 100) or burst:N (N requests together)",),
    )


Profile = tuple[tuple[float, float], ...]
"""Times in seconds, each with the factor of the rate from there on."""


def parse_profile(text: str) -> Profile:
    """What `--rate-profile` says: `0:1,60:10,120:1` is ten times the rate in the second minute. Raises UsageError."""
    points = []
    for part in text.split(","):
        start, _, factor = part.partition(":")
        match = [re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", value.strip()) for value in (start, factor)]
        if not all(match):
            raise _no_profile(text, f"{quote(part)} is no TIME:FACTOR")
        points.append((float(start), float(factor)))
    if any(a[0] >= b[0] for a, b in pairwise(points)):
        raise _no_profile(text, "times must rise")
    if points[-1][1] == 0:
        raise _no_profile(text, "the last factor holds for ever and must be above 0")
    return tuple(points) if points[0][0] == 0 else ((0.0, 1.0), *points)


def _no_profile(text: str, why: str) -> UsageError:
    return UsageError(
        f"`--rate-profile`: {quote(text)}: {why}", hints=("write 0:1,60:10,120:1: 10 x from 60 to 120 s",)
    )


def stretch(unit_times: Sequence[float], rate: float, profile: Profile = ()) -> list[float]:
    """Seconds of arrivals at `rate` requests per second times the profile's factor at each moment."""
    if not profile:
        return [0.0 if rate == inf else time / rate for time in unit_times]
    pieces = [(start, rate * factor) for start, factor in profile]
    out, at, begun = [], 0, 0.0  # `begun`: unit time at which the piece begins
    for time in unit_times:
        while at + 1 < len(pieces):
            ends = begun + (pieces[at + 1][0] - pieces[at][0]) * pieces[at][1]
            if time < ends:
                break
            at, begun = at + 1, ends
        out.append(pieces[at][0] + (time - begun) / pieces[at][1])
    return out


def expected_arrivals(seconds: float, rate: float, profile: Profile = ()) -> float:
    """The mean number of arrivals within a time."""
    ends = [start for start, _ in profile[1:]] + [inf]
    pieces = zip(profile, ends, strict=True) if profile else [((0.0, 1.0), inf)]
    return sum(rate * factor * max(0.0, min(seconds, end) - start) for (start, factor), end in pieces)


def checked_rate(rate: float | None, option: str = "rate") -> float:
    """A rate above 0, or infinite: all at once. Raises UsageError."""
    if not (isinstance(rate, (int, float)) and rate > 0 and (rate == inf or (isfinite(rate) and 1e-6 <= rate <= 1e9))):
        raise UsageError(f"`--{option}` must be requests per second from 0.000001 to 10^9, or inf for all at once")
    return float(rate)
