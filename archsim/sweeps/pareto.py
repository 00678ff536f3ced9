"""Pareto sets of a stream of points: those that no other point beats in every objective."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.sweeps.chunk import Chunk, cells
from archsim.sweeps.columns import COLUMNS, Column, column


class Objective(NamedTuple):
    """A column, and 1 where more of it is better, -1 where less is."""

    column: Column
    sign: int


def objectives(names: Iterable[str]) -> tuple[Objective, ...]:
    """Objectives by column; `min:` or `max:` before a name overrides which way is better. Raises UsageError."""
    return tuple(dict.fromkeys(_objective(name.strip()) for name in names if name.strip()))


def _objective(text: str) -> Objective:
    way, _, name = text.rpartition(":")
    if way and name in ("min", "max"):
        raise UsageError(f"an objective is `{name}:{column(way).name}`, not {quote(text)}")
    found = column(name)
    if way not in ("", "min", "max"):
        raise UsageError(f"an objective is `min:{found.name}` or `max:{found.name}`, not `{way}:`")
    sign = {"min": -1, "max": 1}.get(way, found.better)
    if not sign or found.kind in ("text", "truth"):
        able = ", ".join(c.name for c in COLUMNS if c.better)
        raise UsageError(f"`{found.name}` is no objective", hints=(f"objectives: {able}",))
    return Objective(found, sign)


class Front:
    """The best points so far."""

    def __init__(self, wanted: tuple[Objective, ...]) -> None:
        self.wanted = wanted
        self.best: Chunk | None = None

    def add(self, chunk: Chunk) -> None:
        """Take in the points of a block that fit and have all objectives."""
        mask = chunk.fits()
        for objective in self.wanted:
            mask = mask & ~np.isnan(chunk.numbers(objective.column.name))
        new = self._reduced(chunk.kept(mask))
        self.best = new if self.best is None else self._reduced(joined(self.best, new))

    def _reduced(self, chunk: Chunk) -> Chunk:
        """The rows that no other row beats, the best in the first objective first."""
        costs = np.stack([-o.sign * chunk.numbers(o.column.name) for o in self.wanted], axis=1)
        kept = front(costs)
        values = {n: value[kept] if isinstance(value, np.ndarray) else value for n, value in chunk.values.items()}
        return Chunk((len(kept),), values)


def joined(one: Chunk, other: Chunk) -> Chunk:
    """The rows of two flat blocks."""
    values = {}
    for name, first in one.values.items():
        parts = [np.broadcast_to(cells(name, part.values[name]), part.shape) for part in (one, other)]
        values[name] = np.concatenate(parts) if first is not None or parts[1].dtype != object else first
    return Chunk((one.points + other.points,), values)


def front(costs: Any) -> Any:
    """Positions of the rows of `costs` (points x objectives, less is better) that no other row beats, in order of the
    first objective. Of equal rows the first stays.
    """
    order = np.lexsort(costs.T[::-1])
    if costs.shape[1] == 1:
        return order[:1]
    if costs.shape[1] == 2:
        second = costs[order, 1]
        before = np.minimum.accumulate(np.concatenate([[np.inf], second]))[:-1]
        return order[second < before]
    left, kept = order, []
    while len(left):
        first = left[0]
        kept.append(first)
        left = left[1:]
        left = left[np.any(costs[left] < costs[first], axis=1)]
    return np.asarray(kept, dtype=np.int64)
