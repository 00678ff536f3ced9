"""Smooth corrections in log-shape space: piecewise linear over a regular grid of log2 extents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from archsim.base.number import Num, floor, maximum, minimum


class Axis(NamedTuple):
    """One axis of a grid: a coordinate's name, its first node, the distance of nodes and their number.

    Coordinates are whatever the time model calls so, nearly always log2 of an extent.
    """

    name: str
    start: float
    step: float
    nodes: int

    def locate(self, x: Num) -> tuple[Num, Num]:
        """The node at or below x and how far x is towards the next, 0 to 1; beyond the ends the end counts."""
        at = x - self.start if self.start else x
        at = at / self.step if self.step != 1 else at
        if isinstance(at, (int, float)):
            at = min(max(at, 0.0), self.nodes - 1.0)
            node: int = min(math.floor(at), max(self.nodes - 2, 0))
            return node, at - node
        at = minimum(maximum(at, 0.0), self.nodes - 1.0)
        below = minimum(floor(at), max(self.nodes - 2, 0))
        return below, at - below


class Surface(NamedTuple):
    """A tensor-product hat basis: `values` at the nodes, the last axis running fastest."""

    axes: tuple[Axis, ...]
    values: Sequence[float]

    def corners(self, at: Mapping[str, Num]) -> list[tuple[Num, Num]]:
        """Every node whose hat covers a point: its index in `values`, and the hat's height there."""
        found: list[tuple[Num, Num]] = [(0, 1.0)]
        for axis in self.axes:
            below, share = axis.locate(at[axis.name])
            sides = ((0, 1 - share), (1, share)) if axis.nodes > 1 else ((0, 1 - share),)
            found = [(i * axis.nodes + below + bit, height * part) for i, height in found for bit, part in sides]
        return found

    def __call__(self, at: Mapping[str, Num]) -> Num:
        """The correction at a point or at arrays of points."""
        plain = [axis for axis in self.axes if isinstance(at[axis.name], (int, float))]
        if len(plain) < len(self.axes):
            return self._over_arrays(at, plain)
        found: list[tuple[int, float]] = [(0, 1.0)]
        for axis in self.axes:  # as `corners`, without those of no height
            below, share = axis.locate(at[axis.name])
            first = [(i * axis.nodes + below, height * (1 - share)) for i, height in found] if share < 1 else []
            found = [*first, *((i * axis.nodes + below + 1, height * share) for i, height in found)] if share else first
        return sum([self.values[index] * height for index, height in found])

    def ends_between(self, one: Mapping[str, float], other: Mapping[str, float]) -> tuple[float, float]:
        """The least and the largest value that points whose coordinates lie between those of two are made of."""
        indices = [0]
        for axis in self.axes:
            (first, _), (last, share) = map(axis.locate, sorted((one[axis.name], other[axis.name])))
            nodes = range(first, last + (2 if share else 1))
            indices = [index * axis.nodes + node for index in indices for node in nodes]
        values = [self.values[index] for index in indices]
        return min(values), max(values)

    def _over_arrays(self, at: Mapping[str, Num], plain: list[Axis]) -> Num:
        """The same at arrays of points: axes along which they do not differ are dealt with once."""
        import numpy

        values: Any = numpy.asarray(self.values).reshape([axis.nodes for axis in self.axes])
        for position in reversed(range(len(self.axes))):
            axis = self.axes[position]
            if axis in plain:
                below, share = axis.locate(at[axis.name])
                low, high = (values.take(min(below + bit, axis.nodes - 1), position) for bit in (0, 1))
                values = low * (1 - share) + high * share
        return interpolate(values, [axis.locate(at[axis.name]) for axis in self.axes if axis not in plain])


def interpolate(values: Any, places: Sequence[tuple[Num, Num]]) -> Num:
    """Values of a grid between its nodes, linear along each axis. places: on each axis the node below, and the share of
    the way to the next.
    """
    import numpy

    index: Num = 0
    for position, (below, _) in enumerate(places):
        index = index * values.shape[position] + below if position else below

    def along(position: int, table: Any) -> Num:
        if position == len(places):
            return table.ravel().take(index)
        rise = numpy.diff(table, axis=position, append=table.take([-1], position))
        return along(position + 1, table) + along(position + 1, rise) * places[position][1]

    return along(0, values)
