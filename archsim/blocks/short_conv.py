"""The gated short convolution of LFM2 (arXiv:2511.23404)."""

from __future__ import annotations

from typing import Literal

from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Count
from archsim.blocks.recurrence import causal_conv
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class ShortConv(MixerSpec):
    """C · conv(B · x): a causal convolution of d_inner channels between two gates, all three read from the input.

    Nothing is carried over but the last d_conv - 1 inputs of the convolution.
    """

    kind: Literal["short_conv"] = "short_conv"
    d_inner: Count
    d_conv: Count = 3
    bias: bool = False

    about = {"short_conv": About("short convolution", label="Short conv",
                                 paper="LFM2 technical report: Liquid AI 2025, arXiv:2511.23404")}  # fmt: skip

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        with b.block(name, I=self.d_inner, W=self.d_conv, S=ctx.step.n_seqs):
            before, after, u = (b.linear(n, x, "D I", "T I", bias=self.bias) for n in ("B", "C", "x"))
            u = b.map("gated_in", "mul", before, u)
            u = causal_conv(b, "conv", u, "I", ctx, bias=self.bias, activation=None)
            return b.linear("out", b.map("gated", "mul", after, u), "I D", "T D", bias=self.bias)
