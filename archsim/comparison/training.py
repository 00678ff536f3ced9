"""Training runs beside each other: which takes less time per token, by how much, and with what confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.comparison.uncertainty import Z80, Ratio
from archsim.sweeps.training_runs import RunAsked, RunPricer

MOST = 64
"""Runs that one comparison holds."""

OWN = 0.5
"""Share of the variance of errors that two runs on one device with one stack do not have in common. With it 80 % of
1,094 ratios of two public runs of one source lie in their interval; taking all errors as their own, 93 % do."""


@dataclass(frozen=True, slots=True)
class TrainingComparison(Tabular):
    """rows: of runs (see `sweeps.training_runs`), the first is the baseline."""

    rows: Sequence[JsonObject]

    __repr__ = Tabular.__repr__

    @property
    def order(self) -> list[int]:
        """Runs with an answer: those that fit first, then by the time of a token."""
        known = [i for i, row in enumerate(self.rows) if row["s_per_token"] is not None]
        return sorted(known, key=lambda i: (not self.rows[i]["fits"], self.rows[i]["s_per_token"]))

    def ratio(self, index: int) -> Ratio | None:
        """The time of a token over the baseline's; None where one has none."""
        this, first = self.rows[index], self.rows[0]
        if this["s_per_token"] is None or first["s_per_token"] is None:
            return None
        value = this["s_per_token"] / first["s_per_token"]
        if index == 0:
            return Ratio(value, value, value, 0.5)
        alike = this["hw"] == first["hw"] and this["stack"] == first["stack"]
        share = OWN if alike else 1.0
        width = sqrt(share * (_width(this) ** 2 + _width(first) ** 2))
        faster = NormalDist().cdf(-log(value) / (width / Z80)) if width else float(value < 1)
        return Ratio(value, value * exp(-width), value * exp(width), faster)

    @property
    def fits(self) -> bool:
        """Whether any of them fits."""
        return any(row["fits"] for row in self.rows)

    def to_dict(self) -> JsonObject:
        """The `archsim.compare-training/1` object."""
        ratios = [self.ratio(i) for i in range(len(self.rows))]
        candidates = [
            {**row, "time_ratio": None if each is None else each.to_dict()}
            for row, each in zip(self.rows, ratios, strict=True)
        ]
        return {"schema": "archsim.compare-training/1", "candidates": candidates, "order": self.order}


def _width(row: JsonObject) -> float:
    """Log of the upper end of the step's 80 % interval."""
    return log(row["step_high_s"] / row["step_expected_s"])


def compare_training(runs: Sequence[RunAsked]) -> TrainingComparison:
    """The runs, priced. Raises UsageError for nothing to compare with, or too many."""
    if len(runs) < 2:
        hints = ("name two models, two devices (`--hw h100,b200`), or several values: `--micro-batch 1,2`",)
        raise UsageError("there is nothing to compare with", hints=hints)
    if len(runs) > MOST:
        raise UsageError(f"{len(runs)} runs are more than {MOST}", hints=("`archsim sweep --phase train` takes more",))
    pricer = RunPricer()
    return TrainingComparison([pricer.row(run) for run in runs])
