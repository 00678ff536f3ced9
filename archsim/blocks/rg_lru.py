"""The real-gated linear recurrent unit of Griffin (arXiv:2402.19427, RecurrentGemma)."""

from __future__ import annotations

from typing import Literal

from archsim.blocks import tiny
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Changes, Count
from archsim.blocks.recurrence import causal_conv
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class RgLru(MixerSpec):
    """Two branches of d_inner; one convolved and passed through a diagonal recurrence whose two gates are
    block-diagonal (n_blocks), the other a GELU gate.
    """

    kind: Literal["rg_lru"] = "rg_lru"
    d_inner: Count
    n_blocks: Count
    d_conv: Count = 4
    activation: str = "gelu_tanh"

    about = {"rg_lru": About("rg-lru", label="RG-LRU",
                             paper="Griffin: De et al. 2024, arXiv:2402.19427, section 2.4")}  # fmt: skip

    def tiny_fields(self) -> Changes:
        """Channels stay a multiple of their blocks."""
        blocks = min(self.n_blocks, tiny.HEADS)
        return {"n_blocks": blocks, "d_inner": min(self.d_inner, tiny.WIDTH) // blocks * blocks}

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
            decay, state = (b.weight("lambda", "Nb I", "scalar"), b.state("state", "S Nb I", "recurrent", fp32=True))
            with b.block("scan", kernel="rg_lru"):
                h = b.emit("scan", "h", (u, *gates, decay, state), b.tensor("h", "T Nb I"), state, fn="rg_lru", rate=8)
            return b.linear("out", b.map("gated", "mul", h, y), "Nb I D", "T D", bias="D")
