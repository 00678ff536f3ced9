"""Model states on one rank: weights, gradients and optimizer, under ZeRO (Rajbhandari et al., arXiv:1910.02054)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from archsim.graph.tensor import BF16
from archsim.spec.recipe import Recipe, format_bytes_of
from archsim.training.layout import Layout
from archsim.training.optimizers import HIDDEN, Matrix, Optimizer

WIDE = BF16.bytes
"""Bytes of a number of frozen tables, head and norms: only matrices of layers are stored in fewer bits."""


class Weight(NamedTuple):
    """A weight of a rank before data ranks share anything out. expert: whether expert-data ranks share it."""

    matrix: Matrix
    trainable: bool = True
    expert: bool = False


class States(NamedTuple):
    """Bytes of one rank between steps. gathered: of whole weights, by which working copies are made (see `memory`)."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer

    def plus(self, other: States) -> States:
        """Both."""
        return States(*(a + b for a, b in zip(self, other, strict=True)))


class Bytes(NamedTuple):
    """Bytes of one number in the formats of a recipe. matrices: of those of layers, all copies included."""

    weights: float
    matrices: float
    working: float
    gradients: float
    master: float
    moments: float
    frozen: float

    @classmethod
    def of(cls, recipe: Recipe) -> Bytes:
        """The recipe's formats in bytes; `working` is 0 where weights are read as they are stored."""
        weights, copies = format_bytes_of(recipe.weights), sum(map(format_bytes_of, recipe.copies))
        return cls(
            weights, copies if recipe.copies_alone else weights + copies, format_bytes_of(recipe.working),
            format_bytes_of(recipe.gradients), format_bytes_of(recipe.master), format_bytes_of(recipe.moments),
            format_bytes_of(recipe.frozen),
        )  # fmt: skip


def rank_states(weights: Iterable[Weight], recipe: Recipe, optimizer: Optimizer, layout: Layout) -> States:
    """States of a rank that holds these weights, those that `zero` says shared out over its data ranks."""
    total, each = States(), Bytes.of(recipe)
    for weight in weights:
        n = layout.expert_shards if weight.expert else layout.shards
        total = total.plus(weight_states(weight, each, optimizer, layout.zero, n))
    return total


def weight_states(weight: Weight, each: Bytes, optimizer: Optimizer, zero: int, shards: int) -> States:
    """States of one weight. A working copy is whole where the weights are: under ZeRO 3 layers are gathered into it."""
    elements = weight.matrix.elements
    by_weight = shards if zero >= 3 else 1
    if not weight.trainable:
        stored = each.frozen if weight.matrix.role in HIDDEN else WIDE
        return States(elements * stored / by_weight)
    stored = each.matrices if weight.matrix.role in HIDDEN else each.weights
    working = each.working if zero < 3 else 0.0
    state = optimizer.state_bytes(weight.matrix, each.moments) + elements * each.master
    return States(
        elements * (stored / by_weight + working),
        elements * each.gradients / (shards if zero >= 2 else 1),
        state / (shards if zero >= 1 else 1),
    )
