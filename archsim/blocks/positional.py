"""What a position encoding may do to attention; each kind overrides the part that it is."""

from __future__ import annotations

from archsim.blocks.context import Context
from archsim.blocks.dispatch import Spec
from archsim.graph.builder import Builder, Operand
from archsim.graph.tensor import Tensor


class Position(Spec):
    """No position encoding: declares nothing, rotates nothing, adds nothing to the scores."""

    def declare(self, b: Builder, ctx: Context) -> None:
        """Declare what the whole stack shares (tables of relative positions)."""

    def rotate(self, b: Builder, name: str, x: Tensor) -> Tensor:
        """Queries or keys with positions worked in."""
        return x

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores with the position term added."""
        return s

    def softmax_factor(self) -> float:
        """Factor on the softmax scale."""
        return 1.0
