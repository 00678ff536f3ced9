"""Attention residuals (Kimi K3): a block's input is mixed from the running sum of its part of the model and from the
sums at the ends of the parts before it."""

from __future__ import annotations

from archsim.blocks.block import Context
from archsim.blocks.dispatch import Count, InvalidBlock, Spec
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor

BANK = "residuals"
"""Where the sums of the parts before stand among what the stack shares."""


class AttentionResiduals(Spec):
    """Each block's input is a weighted mean of `sources` streams: the running sum, and those at the ends of the parts
    before. Their weights are the softmax of a learned score of each normed stream.

    opens: the layer puts the running sum away as the end of a part, and a new sum begins with what its first block
    gives; so it stands by itself and is not repeated.
    """

    sources: Count
    opens: bool = False
    norm: Norm

    decisions = {"*": "residual"}
    brief = "a mixture of {sources} streams"

    def mix(self, b: Builder, name: str, x: Tensor, ctx: Context) -> Tensor:
        """The mixture that a block works on."""
        return mixture(b, name, x, ctx, self.norm)

    def check(self, ctx: Context) -> None:
        """Raises InvalidBlock where the layer does not find `sources` streams, or opens a part and is repeated."""
        found = len(ctx.shared.get(BANK, ())) + 1
        if found != self.sources:
            raise InvalidBlock(f"residuals: this layer finds {found} streams, not `sources: {self.sources}`")
        if self.opens and any(n != 1 for n in ctx.loops):
            raise InvalidBlock("residuals: a layer that `opens` a part stands once, outside repeated groups")

    def put_away(self, x: Tensor, ctx: Context) -> None:
        """Keep the running sum as the end of a part."""
        ctx.shared[BANK] = (*ctx.shared.get(BANK, ()), x)


def mixture(b: Builder, name: str, x: Tensor, ctx: Context, norm: Norm) -> Tensor:
    """All streams in the shares that their scores give."""
    bank = ctx.shared.get(BANK, ())
    with b.part("residual mixing"), b.block(name, kernel="residual_mix", One=1, A=len(bank) + 1):
        streams = b.map("streams", "stack_streams", *bank, x, axes="T A D")
        scores = b.linear("score", norm.lower(b, "norm", streams), "D One", "T A One", role="router")
        return b.map("mixed", "residual_mix", streams, scores, axes="T D")
