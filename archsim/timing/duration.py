"""Seconds as archsim states them: expected, an interval, the speed of light, and the evidence they rest on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from archsim.base.number import Num, where

Evidence = Literal["datasheet", "transferred", "calibrated", "measured"]

EVIDENCE: tuple[Evidence, ...] = ("datasheet", "transferred", "calibrated", "measured")
"""Evidence from the weakest to the strongest."""

WEIGHTY = 0.25
"""Share of the time from which on weak evidence speaks for the whole."""


class Duration(NamedTuple):
    """Seconds. low, high: ends of the 80 % interval. ideal: the speed of light, which no kernel can beat.

    Each may be an array. evidence: what the expected time rests on, for all points of an array alike.
    """

    expected: Num
    low: Num
    high: Num
    ideal: Num = 0.0
    evidence: Evidence = "datasheet"

    def scaled(self, factor: Num) -> Duration:
        """So many of these one after another, which err alike."""
        return Duration(
            self.expected * factor, self.low * factor, self.high * factor, self.ideal * factor, self.evidence
        )

    def or_else(self, other: Duration, condition: object) -> Duration:
        """The other where a condition holds."""
        if isinstance(condition, (bool, int)):
            return other if condition else self
        expected, low, high, ideal = (where(condition, b, a) for a, b in zip(self[:4], other[:4], strict=True))
        return Duration(expected, low, high, ideal, weakest((self.evidence, other.evidence)))


def weakest(kinds: Iterable[Evidence]) -> Evidence:
    """The weakest of several kinds of evidence."""
    return min(kinds, key=EVIDENCE.index)


def prevailing_evidence(parts: Iterable[Duration]) -> Num:
    """Position in `EVIDENCE` of the weakest that, with all weaker, stands behind more than `WEIGHTY` of the time."""
    sums: list[Num] = [0.0] * len(EVIDENCE)
    for part in parts:
        i = EVIDENCE.index(part.evidence)
        sums[i] = sums[i] + part.expected
    total = sum(sums)
    found: Num = 0
    for i in reversed(range(len(EVIDENCE))):
        found = where(sum(sums[: i + 1]) > WEIGHTY * total, i, found)
    return found


DEFAULT_INTERVAL = (0.75, 2.0)
"""Factors from an expected time to the ends of its interval where nothing is fitted: the upper one is where a naive
roofline, 35 to 60 % low on real kernels, would put the truth; the lower end is never below the speed of light.
"""
