"""Error figures of predictions against measurements, for all rows and for every group of them.

APE is |predicted - measured| / measured, as a share; bias the median of the signed error, + where the prediction
is the larger number; time-weighted error Σ|Δt| / Σt over rows that are times or rates (of a rate, the seconds of
one token); coverage the share of measurements inside the 80 % interval. None where no row has a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from archsim.accuracy.rows import Rows
from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats, Ints

Labels = dict[str, tuple[list[str], "Ints"]]
"""Of each dimension, the names of its groups and the group of every row; -1 where a row is in none."""

UNITS: Mapping[str, float | str] = {"_tok_s": "rate", "_us": 1e-6, "_ms": 1e-3, "_s": 1.0}
"""Endings of metrics that are times, with their unit in seconds, or rates. The first that fits counts."""

NAMES = ("median_ape", "mape", "p90_ape", "time_weighted_error", "bias")


def groups_by_label(columns: Mapping[str, Sequence[str]]) -> Labels:
    """Groups by name, for every dimension that has any."""
    found: Labels = {}
    for dimension, texts in columns.items():
        index: dict[str, int] = {}
        codes = [index.setdefault(text, len(index)) if text else -1 for text in texts]
        if index:
            found[dimension] = list(index), np.array(codes)
    return found


def as_seconds(metric: str, values: Floats) -> Floats:
    """Values of a metric in seconds: a rate as the seconds of one token; NaN where it is no time."""
    unit = next((unit for ending, unit in UNITS.items() if metric.endswith(ending)), None)
    if isinstance(unit, str):
        with np.errstate(divide="ignore"):
            return 1.0 / values
    return values * unit if unit is not None else np.full(len(values), np.nan)


def summarise(rows: Rows, scored: Bools) -> JsonObject:
    """The figures of all rows that count."""
    return {name: value for name, value in figures(rows, scored, 0).items() if name != "rows"}


def figures(rows: Rows, where: Bools, count: int) -> JsonObject:
    """The figures of some rows. count: rows of the group, also those that no figure is made of."""
    measured, predicted = rows.measured[where], rows.predicted[where]
    metrics = _codes(rows.metrics, where)
    found: JsonObject = {"rows": count, "scored": len(measured)}
    found |= errors(metrics, measured, predicted)
    inside = (rows.low[where] <= measured) & (measured <= rows.high[where])
    found["coverage_80"] = _mean(inside)
    with np.errstate(divide="ignore", invalid="ignore"):
        width = rows.high[where] / rows.low[where]
    found["median_high_over_low"] = _median(width[np.isfinite(width)])
    error = np.abs(predicted - measured) / measured
    found["within_10"], found["within_25"] = _mean(error <= 0.10), _mean(error <= 0.25)
    found["naive"] = errors(metrics, measured, rows.naive[where])
    return found


def _codes(metrics: Sequence[str], where: Bools) -> list[tuple[str, Bools]]:
    """Masks by metric, over the rows that are picked."""
    if isinstance(metrics, Repeated):
        return [(metrics.text, np.ones(int(where.sum()), np.bool_))]
    picked = np.array(metrics, dtype=object)[where]
    return [(name, picked == name) for name in dict.fromkeys(picked.tolist())]


class Repeated(Sequence[str]):
    """One text for every row."""

    def __init__(self, text: str, count: int) -> None:
        self.text, self.size = text, count

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Repeated(self.text, len(range(*at.indices(self.size))))
        if not -self.size <= at < self.size:
            raise IndexError(at)
        return self.text


LAGS = 16
"""Of a group of alike rows, each is compared with so many that follow it."""

APART = 0.05
"""Share by which two measurements must differ for their order to mean something."""


def ranking(rows: Rows) -> JsonObject:
    """How many pairs of alike rows, the same work on two devices, engines or models, are put in the right order."""
    taken = np.flatnonzero(rows.scored & (rows.peers >= 0))
    order = taken[np.argsort(rows.peers[taken], kind="stable")]
    peers, measured, predicted = rows.peers[order], rows.measured[order], rows.predicted[order]
    count = right = 0
    for lag in range(1, min(LAGS, len(order))):
        pair = peers[lag:] == peers[:-lag]
        pair &= np.abs(measured[lag:] - measured[:-lag]) > APART * np.minimum(measured[lag:], measured[:-lag])
        agree = (measured[lag:] > measured[:-lag]) == (predicted[lag:] > predicted[:-lag])
        count, right = count + int(pair.sum()), right + int((pair & agree).sum())
    return {"count": count, "ranked_right": right / count if count else None}


def codes_of(columns: Sequence[Sequence[object]]) -> Ints:
    """Equal numbers for rows that are equal in every column."""
    index: dict[object, int] = {}
    return np.array([index.setdefault(key, len(index)) for key in zip(*columns, strict=True)], dtype=int)


def errors(metrics: Sequence[tuple[str, Bools]], measured: Floats, predicted: Floats) -> dict[str, float | None]:
    """Median, mean, 90th percentile, time-weighted error and bias of one set of predictions."""
    known = np.isfinite(predicted)
    signed = (predicted[known] - measured[known]) / measured[known]
    size = np.abs(signed)
    off = total = 0.0
    for metric, here in metrics:
        taken = here & known & (predicted > 0)
        truth, said = as_seconds(metric, measured[taken]), as_seconds(metric, predicted[taken])
        usable = np.isfinite(truth) & np.isfinite(said)
        off, total = off + float(np.abs(said - truth)[usable].sum()), total + float(truth[usable].sum())
    p90 = float(np.quantile(size, 0.9)) if len(size) else None
    values = (_median(size), _mean(size), p90, off / total if total else None, _median(signed))
    return dict(zip(NAMES, values, strict=True))


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _mean(values: Floats | Bools) -> float | None:
    return float(np.mean(values)) if len(values) else None
