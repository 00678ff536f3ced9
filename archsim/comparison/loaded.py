"""Servers under one load, or each at the largest that meets a service level: which of them holds more.

All candidates are sent the same requests. What their step times have in common is wrong in the same way for all, so
the interval of a ratio is narrower than those of its sides say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject

MEASURES: Mapping[str, int] = {
    "largest_concurrency": 1, "largest_rate_per_s": 1, "goodput_requests_per_s": 1, "tpot_s_p99": -1, "tpot_s_mean": -1,
}  # fmt: skip
"""What candidates are ordered by: the first of these that any of them has; 1: more is better."""


@dataclass(frozen=True, slots=True)
class LoadComparison(Tabular):
    """rows: of scenarios (see `sweeps.scenarios`), the first is the baseline."""

    rows: Sequence[JsonObject]

    __repr__ = Tabular.__repr__

    @property
    def measure(self) -> str | None:
        """What they are ordered by; None where no candidate has an answer."""
        return next((name for name in MEASURES if any(row[name] is not None for row in self.rows)), None)

    @property
    def order(self) -> list[int]:
        """Candidates with an answer, the best first; of equals the one with fewer devices."""
        name = self.measure
        if name is None:
            return []
        sign = MEASURES[name]
        known = [i for i, row in enumerate(self.rows) if row[name] is not None]
        return sorted(known, key=lambda i: (-sign * self.rows[i][name], self.rows[i]["devices"]))

    def ratio(self, index: int) -> float | None:
        """The measure of a candidate over the baseline's; None where one has none."""
        name = self.measure
        if name is None or self.rows[index][name] is None or not self.rows[0][name]:
            return None
        return float(self.rows[index][name] / self.rows[0][name])

    @property
    def overlap(self) -> bool | None:
        """Whether the intervals of the two best overlap; None where they have none."""
        if len(self.order) < 2:
            return None
        best, next_one = (self.rows[i] for i in self.order[:2])
        low, high = best.get(f"{self.measure}_low"), next_one.get(f"{self.measure}_high")
        return None if low is None or high is None else bool(low <= high)

    def to_dict(self) -> JsonObject:
        """The `archsim.compare-loads/1` object."""
        candidates = [{**row, "ratio": self.ratio(i)} for i, row in enumerate(self.rows)]
        return {
            "schema": "archsim.compare-loads/1", "measure": self.measure, "candidates": candidates,
            "order": self.order, "overlap": self.overlap,
        }  # fmt: skip
