"""A model whose many layers differ in the width of their feed-forward block alone, with those layers as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from archsim.base.number import column
from archsim.blocks.ffn import Ffn
from archsim.blocks.layer import Layer, layer_name
from archsim.graph.step import Step
from archsim.spec.model import Model

MANY = 64
"""Layers from which on columns take less long than one layer after another."""

EXACT = 2**53
"""Whole numbers below this are exact as floating-point numbers."""

FIRST, MIDDLE, LAST = "first|", "middle|", "last|"
"""Names of the three layers that stand for a run, and begin the names of what is in them."""


def place_of(name: str) -> int:
    """Which of the three layers something of a graph belongs to: 1, 2 or 3; 0 for what is outside of them."""
    return next((i for i, layer in enumerate((FIRST, MIDDLE, LAST), 1) if name.startswith(layer)), 0)


class LayerRun(NamedTuple):
    """Layers of a model from `start` to before `end` that differ in the width of their feed-forward block alone."""

    model: Model
    start: int
    end: int

    @property
    def names(self) -> list[str]:
        """What the layers are called in a graph."""
        return [layer_name(self.model.layers, i) for i in range(self.start, self.end)]

    def with_three(self, rows: Sequence[int]) -> Model:
        """The model with three layers in place of the run, whose widths are columns: at each row of them three layers
        follow one another as in the model, that of the row first.
        """
        layers, width = self.model.layers, [_ffn(layer).d_ff for layer in self.model.layers[self.start : self.end]]
        three = []
        for place, name in enumerate((FIRST, MIDDLE, LAST)):
            layer = layers[self.start]
            ffn = _ffn(layer).model_copy(update={"d_ff": column([width[row + place] for row in rows])})
            three.append(layer.model_copy(update={"name": name, "ffn": ffn}))
        around = [layer.model_copy(update={"name": layer_name(layers, i)}) for i, layer in enumerate(layers)
                  if not self.start <= i < self.end]  # fmt: skip
        return self.model.model_copy(update={"layers": (*around[: self.start], *three, *around[self.start :])})

    def serves(self, step: Step) -> bool:
        """Whether the model's graph of a step is made of its layers, and all sizes are numbers."""
        sizes = [n for s in step.seqs for n in s[:3]]
        numbers = all(isinstance(n, (int, float)) for n in (*sizes, step.room))
        return numbers and not step.source and self.model.traced_graph(step) is None

    @property
    def rows(self) -> range:
        """All layers that two others follow."""
        return range(self.end - self.start - 2)

    @property
    def outermost(self) -> list[int]:
        """The first and the last of them, and those with the narrowest and the widest block."""
        width = [_ffn(layer).d_ff for layer in self.model.layers[self.start : self.end]]
        extremes = [min(width.index(f(width)), len(width) - 3) for f in (min, max)]
        return sorted({0, len(width) - 3, *extremes})

    @property
    def widest(self) -> int:
        """The widest block."""
        return max(_ffn(layer).d_ff for layer in self.model.layers[self.start : self.end])

    def divides(self, ranks: int) -> bool:
        """Whether every width is a multiple of so many ranks."""
        return all(_ffn(layer).d_ff % ranks == 0 for layer in self.model.layers[self.start : self.end])


def longest_run(model: Model) -> LayerRun | None:
    """The longest run of layers that differ so; None where it is short."""
    if any(place_of(layer.name or "") for layer in model.layers):
        return None
    runs: list[list[int]] = []
    for same, members in groupby(range(len(model.layers)), key=_Kinds(model.layers).of):
        if same:
            runs.append(list(members))
    own = max(runs, key=len, default=[])
    return LayerRun(model, own[0], own[-1] + 1) if len(own) >= MANY else None


class _Kinds:
    """Numbers layers by kind: two neighbours of one kind differ in name and width alone; 0 for layers of no kind."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self.layers, self.number = layers, 0

    def of(self, i: int) -> int:
        """The kind of a layer, asked in order."""
        layer = self.layers[i]
        if layer.layers is not None or layer.repeat != 1 or type(layer.ffn) is not Ffn:
            return 0
        if not i or not _alike(layer, self.layers[i - 1]):
            self.number += 1
        return self.number


def _alike(a: Layer, b: Layer) -> bool:
    """Whether two layers differ in name and width alone."""
    if type(b.ffn) is not Ffn or b.layers is not None or b.repeat != 1:
        return False
    own = all(getattr(a, name) == getattr(b, name) for name in Layer.all_fields if name not in ("name", "ffn"))
    first, second = _ffn(a), _ffn(b)
    return own and all(getattr(first, name) == getattr(second, name) for name in Ffn.all_fields if name != "d_ff")


def _ffn(layer: Layer) -> Ffn:
    assert isinstance(layer.ffn, Ffn)
    return layer.ffn
