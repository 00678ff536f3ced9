"""Kimi delta attention: the gated delta rule with a forget gate for every channel of the keys."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field
from archsim.base.number import Num
from archsim.blocks.block import Context
from archsim.blocks.dispatch import About, Count
from archsim.blocks.linear_attention import DeltaRule
from archsim.blocks.recurrence import chunk_pairs, padded
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class KimiDelta(DeltaRule):
    """Kimi delta attention (arXiv:2510.26692): `n_heads` states of d_head x d_head, each row of which forgets by a gate
    of its own; this gate and that of the output come through matrices of rank `gate_rank` (default: d_head; `full`:
    each is one matrix, as in Ling 3.0). full_output_gate: that of the output alone is one matrix (Kimi K3).
    decay_bound: the logarithm of a forget gate lies between 0 and it, by a sigmoid (GLM-5.3-Flash).

    Inside a chunk the products of keys and of queries with keys are counted as matrix products and the two triangular
    solves as vector work, as for the gated delta net; the implementation in transformers does it the other way around,
    which is as many FLOP.
    """

    kind: Literal["kimi_delta"] = "kimi_delta"
    n_heads: Count
    d_head: Count
    gate_rank: Count | Literal["full"] | None = None
    full_output_gate: bool = False
    decay_bound: float | None = Field(default=None, lt=0)

    about = {"kimi_delta": About("kimi delta attention", label="KDA",
                                 paper="Kimi Linear: Moonshot AI 2025, arXiv:2510.26692, section 3")}  # fmt: skip

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"N": self.n_heads, "J": 1, "H": self.d_head, "Hv": self.d_head, "W": self.d_conv}
        sizes |= {"S": step.n_seqs, "Gr": self.d_head if self.gate_rank in (None, "full") else self.gate_rank}
        with b.block(name, **sizes, P=chunk_pairs(step, self.chunk), C=padded(step, self.chunk)):
            q, k = self._branch(b, "q", x, "N H", ctx), self._branch(b, "k", x, "N H", ctx)
            v = self._branch(b, "v", x, "N J Hv", ctx)
            beta = b.map("beta()", "sigmoid", b.linear("beta", x, "D N J", "T N J"))
            decay = self._gate(b, "decay", x, "N J H")
            dt, a = b.weight("dt_bias", "N J H", "scalar"), b.weight("A_log", "N J", "scalar")
            decay = self._decay(b, decay, dt, a)
            z = self._gate(b, "z", x, "N J Hv", self.full_output_gate)
            o = self.norm.lower(b, "norm", self._mix(b, q, k, v, beta, decay, step), "Hv")
            return b.linear("o", b.map("gated", "gate", o, z), "N J Hv D", "T D")

    def _decay(self, b: Builder, decay: Tensor, dt: Tensor, a: Tensor) -> Tensor:
        """The logarithm of the forget gates."""
        if self.decay_bound is None:
            return b.map("decay()", "softplus", decay, dt, a, decay=True)
        return b.map("decay()", "bounded_decay", decay, dt, a, bound=self.decay_bound)

    def _gate(self, b: Builder, name: str, x: Tensor, axes: str, full: bool = False) -> Tensor:
        """A gate for every channel, through a narrow matrix unless it is one whole one."""
        if full or self.gate_rank == "full":
            return b.linear(name, x, f"D {axes}", f"T {axes}")
        return b.linear(name, b.linear(f"{name}_down", x, "D Gr", "T Gr"), f"Gr {axes}", f"T {axes}")
