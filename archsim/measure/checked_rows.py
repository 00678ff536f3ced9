"""The contract's `archsim.validate/1` object of a model that was timed here: one row per case and metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import NamedTuple

from archsim.base.json_types import JsonObject

SCHEMA = "archsim.validate/1"


class CheckedRow(NamedTuple):
    """One figure of a case. metric: `prefill_s`, `decode_s` or `peak_bytes`. input_len: tokens of the prompt, or those
    in the cache before a decode step. form: `eager` or `compiled`. None: not measured, or not predicted.
    """

    id: str
    metric: str
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    evidence: str
    phase: str
    batch: int
    input_len: int
    form: str = "eager"

    @property
    def error(self) -> float:
        """Predicted over measured, less one; of a row that has both."""
        return float(self.predicted or 0.0) / float(self.measured or 1.0) - 1


def checked_object(rows: Iterable[CheckedRow]) -> JsonObject:
    """`rows` with both figures, `refused` with why one is missing, and `summary`."""
    found = list(rows)
    both = [row for row in found if row.measured and row.predicted]
    refused = [
        {"id": row.id, "metric": row.metric,
         "reason": "not measured: the budget ended before it" if row.predicted else "times are not predicted here"}
        for row in found if not (row.measured and row.predicted)
    ]  # fmt: skip
    by = {
        name: {value: _figures([row for row in both if getattr(row, name) == value]) for value in values}
        for name in ("metric", "phase", "form", "evidence")
        if (values := sorted({str(getattr(row, name)) for row in both}))
    }
    return {
        "schema": SCHEMA, "kind": "model", "rows": [row._asdict() for row in both], "refused": refused,
        "summary": {**_figures(both), "refused": len(refused), "by": by},
    }  # fmt: skip


def _figures(rows: Sequence[CheckedRow]) -> JsonObject:
    """Errors of some rows as shares; bias is the median signed error, as in other validations."""
    names = ("median_ape", "mape", "p90_ape", "time_weighted_error", "bias", "coverage_80")
    if not rows:
        return {"rows": 0, **dict.fromkeys(names)}
    sizes = sorted(abs(row.error) for row in rows)
    timed = [row for row in rows if row.metric.endswith("_s")]
    total = sum(float(row.measured or 0) for row in timed)
    weighted = sum(abs(row.error) * float(row.measured or 0) for row in timed) / total if total else None
    spans = [(row.low, row.measured or 0.0, row.high) for row in rows]
    inside = [low <= value <= high for low, value, high in spans if low is not None and high is not None]
    return {
        "rows": len(rows), "median_ape": median(sizes), "mape": fmean(sizes),
        "p90_ape": sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)], "time_weighted_error": weighted,
        "bias": median(row.error for row in rows), "coverage_80": fmean(inside) if inside else None,
    }  # fmt: skip
