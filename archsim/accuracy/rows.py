"""Predictions and measurements side by side, by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats, Ints

Kind = Literal["kernels", "runs", "serving", "loaded", "training", "requests", "energy"]


class Refused(NamedTuple):
    """A row, or one metric of it, that has no prediction, and why."""

    id: str
    metric: str
    reason: str

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return self._asdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Predictions and measurements by column, in the file's own units. measured: NaN where the file has none.

    naive: what a roofline at datasheet peaks says. labels: what rows are grouped by. counted: rows that error
    figures are made of. titles: what each row is, in words. peers: equal for rows that do the same work on another
    device, engine or model; -1 for rows that have none.
    """

    ids: Sequence[str]
    metrics: Sequence[str]
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats
    naive: Floats
    evidence: Sequence[str]
    labels: Mapping[str, Sequence[str]]
    counted: Bools
    titles: Sequence[str]
    peers: Ints

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scored(self) -> Bools:
        """The mask of rows that have both figures and count."""
        return self.counted & np.isfinite(self.measured) & (self.measured > 0)

    @property
    def ape(self) -> Floats:
        """|predicted - measured| / measured; NaN where nothing was measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(self.predicted - self.measured) / self.measured
        return np.where(np.isfinite(error) & (self.measured > 0), error, np.nan)

    def dicts(self, start: int = 0, stop: int | None = None) -> Iterator[JsonObject]:
        """The contract's objects of some rows."""
        part = slice(start, stop)
        columns = (self.measured, self.predicted, self.low, self.high)
        numbers = zip(*(_plain(column[part]) for column in columns), strict=True)
        texts = zip(self.ids[part], self.metrics[part], self.evidence[part], strict=True)
        for (name, metric, evidence), (measured, predicted, low, high) in zip(texts, numbers, strict=True):
            yield {"id": name, "metric": metric, "measured": measured, "predicted": predicted, "low": low,
                   "high": high, "evidence": evidence}  # fmt: skip


def _plain(column: Floats) -> list[float | None]:
    """A column as Python floats; None where there is no number."""
    return [value if value == value else None for value in column.tolist()]
