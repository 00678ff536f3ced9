"""A block of a sweep's points, priced: columns that may be shorter than the block and are read as if repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from archsim.sweeps.columns import BY_NAME

Values = dict[str, Any]
"""Column -> a text, a number, None, or an array that broadcasts over the block."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points that are complete. values: by column, in the order of output."""

    shape: tuple[int, ...]
    values: Values

    @property
    def points(self) -> int:
        """Rows."""
        return int(np.prod(self.shape))

    def kept(self, mask: Any) -> Chunk:
        """The rows where `mask` (broadcast over the block) holds, in a row of their own."""
        where = np.broadcast_to(mask, self.shape)
        count = int(np.count_nonzero(where))
        picked = {name: _picked(value, self.shape, where) for name, value in self.values.items()}
        return Chunk((count,), picked)

    def only(self, names: tuple[str, ...]) -> Chunk:
        """Some of the columns."""
        return replace(self, values={name: self.values[name] for name in names})

    def rows(self) -> Iterator[dict[str, Any]]:
        """One mapping for each point, of plain numbers; null is None."""
        flat = [flat_list(name, value, self.shape) for name, value in self.values.items()]
        for line in zip(*flat, strict=True):
            yield dict(zip(self.values, line, strict=True))


def _picked(value: Any, shape: tuple[int, ...], where: Any) -> Any:
    return np.broadcast_to(value, shape)[where] if isinstance(value, np.ndarray) else value


def cells(name: str, value: object) -> Any:
    """A column's value as an array; in one of numbers, what does not exist is not a number."""
    if BY_NAME[name].kind == "text":
        return np.asarray(value, dtype=object)
    return np.asarray(np.nan if value is None else value)


def flat_list(name: str, value: object, shape: tuple[int, ...]) -> list[Any]:
    """A column's values, one for each point; what is no number is None."""
    size = int(np.prod(shape))
    if not isinstance(value, np.ndarray):
        return [plain(name, value)] * size
    if value.dtype == object:
        listed: list[Any] = np.broadcast_to(value, shape).ravel().tolist()
        return listed
    cells = np.empty(value.size, dtype=object)
    cells[:] = plain(name, value)
    repeated: list[Any] = np.broadcast_to(cells.reshape(value.shape), shape).ravel().tolist()
    return repeated


def plain(name: str, value: Any) -> Any:
    """Values of a column as Python has them: whole numbers as int, no number as None."""
    kind = BY_NAME[name].kind
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        if kind != "number" and flat.dtype == np.float64:
            flat = flat.astype(np.int64)
        found = flat.tolist()
        if kind != "number" or np.isfinite(flat).all():
            return found
        return [v if isfinite(v) else None for v in found]
    if value is None or isinstance(value, str):
        return value
    if kind == "truth":
        return bool(value)
    if kind == "whole":
        return int(value)
    return float(value) if isfinite(value) else None
