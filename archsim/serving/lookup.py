"""Tables of seconds that a simulator reads: plain lists over whole numbers, or over knots with lines between them.

Rows are lists of floats, since single elements of an array cost ten times as much to read. What each class of kernels
takes, with its interval, is kept beside them in arrays, for those who ask why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from archsim.timing.duration import Duration

Array = npt.NDArray[np.float64]

ByClass = dict[str, Array]
"""Expected, low and high seconds (the first axis) by class of kernels."""


def stacked(parts: Mapping[str, Duration], shape: tuple[int, ...]) -> ByClass:
    """Durations as arrays of one shape."""
    return {
        name: np.stack([np.broadcast_to(np.asarray(n, float), shape) for n in time[:3]]) for name, time in parts.items()
    }


def added(one: ByClass, other: ByClass, factor: float = 1.0) -> ByClass:
    """A table and another one times a factor, over the same knots."""
    result = dict(one)
    for name, values in other.items():
        result[name] = result[name] + factor * values if name in result else factor * values
    return result


class Error(NamedTuple):
    """A world in which classes of kernels err together: all steps take longer, or all take less. end: 1 the low, 2 the
    high end of each class. shares: of the way to that end, by class. whole: of every step, beside its classes.
    """

    end: int = 0
    shares: Mapping[str, float] = {}
    whole: float = 0.0


AS_EXPECTED = Error()


def total(parts: ByClass, shape: tuple[int, ...], error: Error = AS_EXPECTED) -> Array:
    """Seconds of all classes together: the expected ones, or those of an error."""
    result = np.zeros(shape)
    for name, values in parts.items():
        share = error.shares.get(name, 0.0)
        result = result + values[0] * (1 + error.whole) + share * (values[error.end] - values[0])
    return result


class Line:
    """Seconds over whole numbers, from 0 on."""

    def __init__(self, parts: ByClass, size: int, error: Error = AS_EXPECTED) -> None:
        self.parts = parts
        self.values: list[float] = total(parts, (size,), error).tolist()

    def with_error(self, error: Error) -> Line:
        """The line in another world."""
        return Line(self.parts, len(self.values), error)

    def at(self, n: int) -> ByClass:
        """Seconds by class at a number."""
        return {name: values[:, n] for name, values in self.parts.items()}


class Places:
    """Knots, and where a number lies among them. The first and last segments go on beyond them."""

    def __init__(self, knots: Array) -> None:
        self.knots: list[float] = knots.tolist()
        self.inner: list[float] = self.knots[1:-1]
        self.inverse: list[float] = (1 / np.diff(knots)).tolist()
        self._segments: dict[int, tuple[list[int], list[float]]] = {}

    def weights(self, numbers: Array) -> tuple[npt.NDArray[np.int64], Array]:
        """The segment of each number, and its share of the way through it."""
        low = np.searchsorted(np.array(self.inner), numbers, side="right")
        knots = np.array(self.knots)
        return low, (numbers - knots[low]) * np.array(self.inverse)[low]

    def segments(self, size: int) -> tuple[list[int], list[float]]:
        """Segment and share of every whole number below `size`, which all tables over these knots have in common."""
        if size not in self._segments:
            low, share = self.weights(np.arange(size, dtype=float))
            self._segments[size] = low.tolist(), share.tolist()
        return self._segments[size]


class Grid:
    """Seconds over knots of two quantities, with planes between four of them."""

    def __init__(self, x: Places, y: Places, parts: ByClass, error: Error = AS_EXPECTED) -> None:
        self.x, self.y, self.parts, self.error = x, y, parts, error

    @classmethod
    def of(cls, x: Array, y: Array, parts: ByClass, error: Error = AS_EXPECTED) -> Grid:
        """A grid over these knots."""
        return cls(Places(x), Places(y), parts, error)

    @cached_property
    def values(self) -> list[list[float]]:
        """Seconds at the knots: made when first read, since a run at an end of the interval reads few grids."""
        rows: list[list[float]] = self.array.tolist()
        return rows

    @property
    def array(self) -> Array:
        """`values` as an array, which is not kept."""
        return total(self.parts, (len(self.x.knots), len(self.y.knots)), self.error)

    def with_error(self, error: Error) -> Grid:
        """The grid in another world, over the same knots."""
        return Grid(self.x, self.y, self.parts, error)

    def value(self, x: float, y: float) -> float:
        """Seconds at a point."""
        across, along = self.x, self.y
        i, j = bisect_right(across.inner, x), bisect_right(along.inner, y)
        share = (y - along.knots[j]) * along.inverse[j]
        row, above = self.values[i], self.values[i + 1]
        low = row[j]
        low += (row[j + 1] - low) * share
        high = above[j]
        high += (above[j + 1] - high) * share
        return low + (high - low) * (x - across.knots[i]) * across.inverse[i]

    def at(self, x: float, y: float) -> ByClass:
        """Seconds by class at a point."""
        (i, v), (j, w) = self.x.weights(np.array(float(x))), self.y.weights(np.array(float(y)))
        return {
            name: (1 - v) * ((1 - w) * t[:, i, j] + w * t[:, i, j + 1])
            + v * ((1 - w) * t[:, i + 1, j] + w * t[:, i + 1, j + 1])
            for name, t in self.parts.items()
        }

    def row(self, x: float) -> list[float]:
        """The row at a number of x."""
        i = bisect_right(self.x.inner, x)
        share = (x - self.x.knots[i]) * self.x.inverse[i]
        return [low * (1 - share) + high * share for low, high in zip(self.values[i], self.values[i + 1], strict=True)]


def geometric(start: int, end: float, octave: int) -> list[float]:
    """Whole numbers from `start` to beyond `end`, `octave` of them for each doubling."""
    count = int(np.ceil(octave * np.log2(max(end, start + 1) / start))) + 1
    return sorted({float(round(start * 2 ** (i / octave))) for i in range(count)})


def knots(numbers: Iterable[float]) -> Array:
    """Numbers in order, each once."""
    return np.array(sorted(set(map(float, numbers))))


def jumps(values: Array, relative: float) -> npt.NDArray[np.int64]:
    """The positions at both sides of every step in values over whole numbers that is larger than a share of them."""
    bends = np.abs(np.diff(values, 2)) > relative * values[1:-1]
    return np.flatnonzero(bends) + 1
