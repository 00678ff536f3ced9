"""The real-gated linear recurrent unit of Griffin (arXiv:2402.19427, RecurrentGemma)."""

from __future__ import annotations

from typing import Literal

from archsim.blocks.context import Context
from archsim.blocks.conv import causal_conv
from archsim.blocks.dispatch import Count, Spec
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class RgLru(Spec):
    """Two branches of d_inner; one convolved and passed through a diagonal recurrence whose two gates are
    block-diagonal (n_blocks), the other a GELU gate.
    """

    kind: Literal["rg_lru"] = "rg_lru"
    d_inner: Count
    n_blocks: Count
    d_conv: Count = 4
    activation: str = "gelu_tanh"

    def widths(self) -> tuple[int, ...]:
        """Blocks of channels are cut."""
        return (self.n_blocks,)

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        width = self.d_inner // self.n_blocks
        with b.block(name, Nb=self.n_blocks, I=width, I2=width, W=self.d_conv, S=ctx.step.n_seqs):
            y = b.linear("y", x, "D Nb I", "T Nb I", bias="Nb I")
            y = b.map("y()", self.activation, y)
            u = b.linear("x", x, "D Nb I", "T Nb I", bias="Nb I")
            u = causal_conv(b, "conv", u, "Nb I", ctx, bias=True, activation=None)
            gates = [
                b.map(n + "()", "sigmoid", b.linear(n, u, "Nb I I2", "T Nb I2", bias="Nb I2"))
                for n in ("input_gate", "recurrence_gate")
            ]
            decay, state = (
                b.weight("lambda", "Nb I", "scalar"),
                b.state("state", "S Nb I", "recurrent", fp32=True),
            )
            with b.block("scan", kernel="rg_lru"):
                h = b.emit(
                    "scan",
                    "h",
                    (u, *gates, decay, state),
                    b.tensor("h", "T Nb I"),
                    state,
                    fn="rg_lru",
                    rate=8,
                )
            return b.linear("out", b.map("gated", "mul", h, y), "Nb I D", "T D", bias="D")
