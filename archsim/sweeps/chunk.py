"""The grid of a sweep cut into blocks, and a block of priced points: columns that broadcast over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from archsim.sweeps.columns import BY_NAME

Values = dict[str, Any]
"""Column -> a text, a number, None, or an array that broadcasts over the block."""


class Axes(NamedTuple):
    """Values of the numeric axes, ascending."""

    batch: tuple[int, ...]
    input_len: tuple[int, ...]
    output_len: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Values along each axis."""
        return len(self.batch), len(self.input_len), len(self.output_len)

    @property
    def points(self) -> int:
        """Points of the grid."""
        return len(self.batch) * len(self.input_len) * len(self.output_len)

    def blocks(self, most: int) -> Iterator[Axes]:
        """The grid in order, cut into blocks of at most so many points."""
        outputs = max(1, min(len(self.output_len), most))
        inputs = max(1, min(len(self.input_len), most // outputs)) if outputs == len(self.output_len) else 1
        batches = max(1, most // (outputs * inputs)) if inputs == len(self.input_len) else 1
        for b in _runs(self.batch, batches):
            for i in _runs(self.input_len, inputs):
                for o in _runs(self.output_len, outputs):
                    yield Axes(b, i, o)


def _runs(values: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [values[i : i + size] for i in range(0, len(values), size)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points that are complete. values: by column, in the order of output."""

    shape: tuple[int, ...]
    values: Values

    @property
    def points(self) -> int:
        """Rows."""
        return int(np.prod(self.shape))

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as an array of the block's shape; a value that does not exist is not a number."""
        value = self.values[name]
        return np.broadcast_to(np.asarray(np.nan if value is None else value, dtype=np.float64), self.shape)

    def fits(self) -> NDArray[np.bool_]:
        """Which points fit, as an array of the block's shape; all of them where the column is not asked for."""
        return np.broadcast_to(np.asarray(self.values.get("fits", True), dtype=bool), self.shape)

    def kept(self, mask: NDArray[np.bool_]) -> Chunk:
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


def _picked(value: Any, shape: tuple[int, ...], where: NDArray[np.bool_]) -> Any:
    return np.broadcast_to(value, shape)[where] if isinstance(value, np.ndarray) else value


def cells(name: str, value: object) -> Any:
    """A column's value as an array; in one of numbers, what does not exist is not a number."""
    if BY_NAME[name].kind == "text":
        return np.asarray(value, dtype=object)
    return np.asarray(np.nan if value is None else value)


BEYOND = 2.0**63
"""The first whole number that a column of 64 bits does not hold."""


def flat_list(name: str, value: object, shape: tuple[int, ...]) -> list[Any]:
    """A column's values, one for each point; what is no number is None."""
    size = int(np.prod(shape))
    if not isinstance(value, np.ndarray):
        return [plain(name, value)] * size
    if value.dtype == object:
        listed: list[Any] = np.broadcast_to(value, shape).ravel().tolist()
        return listed
    return repeat_list(plain(name, value), value.shape, shape)


def repeat_list(found: list[Any], own: tuple[int, ...], shape: tuple[int, ...]) -> list[Any]:
    """Values of a column of shape `own`, one for each point of a block of `shape`."""
    cells = np.empty(len(found), dtype=object)
    cells[:] = found
    repeated: list[Any] = np.broadcast_to(cells.reshape(own), shape).ravel().tolist()
    return repeated


def plain(name: str, value: Any) -> Any:
    """Values of a column as Python has them: whole numbers as int, no number as None."""
    kind = BY_NAME[name].kind
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        if kind != "number" and flat.dtype == np.float64:
            if not np.all(np.abs(flat) < BEYOND):  # and where it is no number
                return [int(v) if isfinite(v) else None for v in flat.tolist()]
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
