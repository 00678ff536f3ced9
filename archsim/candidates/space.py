"""The values that dimensions may take, and candidates as positions on them: all in chunks, a sample, neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from archsim.base.arrays import Array
from archsim.base.errors import UsageError
from archsim.base.ranges import parse_range
from archsim.candidates.structure import Structure, Values

CHUNK = 100_000
"""Combinations that are looked at together."""

ASPECT = (32, 160)
"""Width over depth (`specs/quality/depth.yaml`): beyond, few runs say anything."""

ALIGNED = 256
"""Feed-forward widths are multiples of this: whole tiles of the products, whatever the degree of parallelism."""

MOST_SHARED = 8
"""Query heads of a key/value head at most, unless more are allowed: quality of more is little studied."""

DEFAULTS: Mapping[str, tuple[float, ...]] = {
    "d_model": (*range(512, 4096, 128), *range(4096, 16385, 256)),
    "n_layers": tuple(range(8, 129, 2)),
    "d_head": (64, 128),
    "n_heads": (1.0,),
    "n_kv_heads": (1, 2, 4, 8, 16, 0),
    "d_ff": (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    "n_experts": (8, 16, 32, 64, 128, 256),
    "top_k": (1, 2, 4, 8),
    "d_expert": (0.25, 0.5, 1.0, 2.0, 3.5),
}  # fmt: skip
"""What is searched. Fractions of `n_heads` are of d_model / d_head, those of widths of d_model. 0 key/value heads: as
many as heads."""

Axes = dict[str, tuple[float, ...]]
"""Dimension -> the values that it may take, in order."""

Ratio = Callable[[Array, Values], Array]

RELATIVE: Mapping[str, Ratio] = {
    "n_heads": lambda ratio, values: ratio * values["d_model"] / values.get("d_head", 128),
    "d_ff": lambda ratio, values: np.rint(ratio * values["d_model"] / ALIGNED) * ALIGNED,
    "d_expert": lambda ratio, values: np.maximum(np.rint(ratio * values["d_model"] / 128), 1) * 128,
}
"""Dimensions whose defaults are relative, and what they are relative to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is left out of the space. aspect: width over depth. shared: query heads of a key/value head at most."""

    aspect: tuple[float, float] = ASPECT
    shared: int = MOST_SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The combinations of one structure. axes: values of each dimension, as in `DEFAULTS` or whole numbers."""

    structure: Structure
    axes: Mapping[str, tuple[float, ...]]
    rules: Rules = Rules()

    @property
    def size(self) -> int:
        """Combinations, legal or not."""
        return prod(len(values) for values in self.axes.values())

    def chunks(self) -> Iterator[Array]:
        """All combinations as positions on the axes, some at a time: arrays of candidates x dimensions."""
        shape = tuple(len(values) for values in self.axes.values())
        for first in range(0, self.size, CHUNK):
            flat = np.arange(first, min(first + CHUNK, self.size))
            yield np.stack(np.unravel_index(flat, shape), axis=1)

    def sample(self, count: int, seed: int = 0) -> Array:
        """Positions of so many combinations, in which every value of an axis is there equally often."""
        generator = np.random.default_rng(seed)
        columns = []
        for values in self.axes.values():
            strata = np.arange(count) % len(values)
            columns.append(generator.permutation(strata))
        return np.unique(np.stack(columns, axis=1), axis=0)

    def neighbours(self, positions: Array) -> Array:
        """Positions one step away along any axis, inside the space, each once."""
        shape = [len(values) for values in self.axes.values()]
        moved = []
        for axis, length in enumerate(shape):
            for step in (-1, 1):
                found = positions.copy()
                found[:, axis] += step
                moved.append(found[(found[:, axis] >= 0) & (found[:, axis] < length)])
        return np.unique(np.concatenate(moved), axis=0)

    def values(self, positions: Array) -> dict[str, Array]:
        """The numbers of candidates. Those of relative dimensions need not be whole: `legal` tells."""
        found: dict[str, Array] = {}
        for column, (name, axis) in zip(positions.T, self.axes.items(), strict=True):
            picked = np.asarray(axis)[column]
            relative = name in RELATIVE and picked.dtype.kind == "f"
            found[name] = RELATIVE[name](picked, found) if relative else picked.astype(np.int64)
        if "n_kv_heads" in found:
            found["n_kv_heads"] = np.where(found["n_kv_heads"] == 0, found["n_heads"], found["n_kv_heads"])
        return found

    def legal(self, values: Values) -> Array:
        """Which candidates are models that the rules admit."""
        whole = np.ones(len(values["d_model"]), dtype=bool)
        for column in values.values():
            whole &= (column == np.rint(column)) & (column >= 1)
        aspect = values["d_model"] / values["n_layers"]
        mask = whole & (aspect >= self.rules.aspect[0]) & (aspect <= self.rules.aspect[1])
        if "n_kv_heads" in values:
            mask &= values["n_heads"] <= self.rules.shared * values["n_kv_heads"]
        return mask & self.structure.legal(values)


def axes_of(structure: Structure, vary: Mapping[str, object], fix: Mapping[str, object]) -> Axes:
    """The axes of a structure: what is asked for, else `DEFAULTS`. Raises UsageError."""
    found: Axes = {}
    extra = [name for name in (*vary, *fix) if name == "vocab_size"]
    for name in dict.fromkeys((*structure.dimensions, *extra)):
        asked = fix.get(name, vary.get(name))
        found[name] = DEFAULTS[name] if asked is None else _values(name, asked)
    return found


def _values(name: str, asked: object) -> tuple[float, ...]:
    """The values that are asked for: a range of whole numbers, or fractions of a relative dimension."""
    words = [str(word) for word in asked] if isinstance(asked, (list, tuple)) else str(asked).split(",")
    if name in RELATIVE and any("." in word for word in words):
        try:
            found = tuple(sorted({float(word) for word in words}))
        except ValueError:
            found = ()
        if not found or not 0 < found[0] <= found[-1] < 1000:
            raise UsageError(f"`--vary {name}`: {asked!r} are no shares", hints=(f"such as `--vary {name}=2.5,3.5`",))
        return found
    return parse_range(",".join(words), f"vary {name}")


def checked_names(names: Mapping[str, object], option: str) -> None:
    """Raises UsageError for a dimension that no structure has."""
    known = (*DEFAULTS, "vocab_size")
    for name in names:
        if name not in known:
            raise UsageError(f"`--{option} {name}`: no such dimension", hints=(f"known: {', '.join(known)}",))
