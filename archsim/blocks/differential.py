"""Differential attention: what two halves of the heads see, one subtracted from the other (arXiv:2410.05258)."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num, divide
from archsim.blocks import tiny
from archsim.blocks.block import AttentionSpec, Context
from archsim.blocks.dispatch import About, Changes, Count, InvalidBlock
from archsim.blocks.mask import MaskSpec
from archsim.blocks.norm import Norm
from archsim.blocks.rope import Rope
from archsim.graph.builder import Builder
from archsim.graph.step import Mask
from archsim.graph.tensor import Tensor

PAPER = "differential attention: Ye et al. 2024, arXiv:2410.05258, section 2.1"

HALVES = ("first", "second")
"""Halves of the value heads: each serves both halves of the query heads, in an attention of its own."""


class DifferentialAttention(AttentionSpec):
    """`n_heads` query heads of `d_head` in two halves over n_kv_heads keys; a pair of heads, one of each half, attends
    to values of 2·d_head, and the second result is subtracted from the first times a learned number, which begins
    larger in deeper layers. A norm without weights follows (`eps`). Attention runs twice, over each half of the values.
    """

    kind: Literal["differential"] = "differential"
    n_heads: Count
    n_kv_heads: Count
    d_head: Count
    bias: bool = False
    eps: float = 1e-5
    position: Rope | None = Field(default_factory=Rope)
    mask: MaskSpec = Field(default_factory=MaskSpec)

    about = {"differential": About("differential attention", "Differential attention", "Diff", PAPER)}
    decisions = {"n_kv_heads": "sharing"}
    kind_decision = "attention"

    @model_validator(mode="after")
    def _halves(self) -> DifferentialAttention:
        if self.n_kv_heads % 2 or self.n_heads % self.n_kv_heads:
            raise InvalidBlock(
                f"`kind: differential` needs an even number of key/value heads that divides the heads, "
                f"not {self.n_kv_heads} for {self.n_heads}"
            )
        return self

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""
        return self.n_kv_heads

    def tiny_fields(self) -> Changes:
        """Four heads on two, or as many as there are."""
        heads = min(self.n_heads, tiny.HEADS)
        return super().tiny_fields() | {"n_heads": heads, "n_kv_heads": min(self.n_kv_heads, 2)}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "attention") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step, mask = ctx.step, self.mask.mask()
        sizes: dict[str, Num] = {"A": 2, "K": divide(self.n_kv_heads, 2), "G": self.groups, "H": self.d_head}
        sizes |= {"Hv": self.d_head, "Hw": 2 * self.d_head, "C": step.stored(mask), "P": step.pairs(mask)}
        with b.block(name, **sizes):
            q = self.encoding.rotate(b, "q_rope", b.linear("q", x, "D A K G H", "T A K G H", bias=self.bias))
            k = self.encoding.rotate(b, "k_rope", b.linear("k", x, "D A K H", "T A K H", bias=self.bias))
            keys = b.state("k_cache", "C A K H")
            b.append(keys, k, step.appended(mask))
            seen = [self._seen(b, x, half, q, keys, ctx, mask) for half in HALVES]
            learned = [b.weight(f"lambda_{n}", "H", "scalar") for n in ("q1", "k1", "q2", "k2")]
            o = b.map("difference", "difference", *seen, *learned, axes="T K G Hw")
            o = Norm(kind="rmsnorm", affine=False, eps=self.eps).lower(b, "norm", o, "Hw")
            o = b.map("scaled", "difference_scale", o)
            return b.linear("o", o, "K G Hw D", "T D", bias="D" if self.bias else False)

    def _seen(self, b: Builder, x: Tensor, half: str, q: Tensor, keys: Tensor, ctx: Context, mask: Mask) -> Tensor:
        """What all heads see of one half of the values."""
        step = ctx.step
        v = b.linear(f"v_{half}", x, "D K Hv", "T K Hv", bias=self.bias)
        cache = b.state(f"v_{half}_cache", "C K Hv")
        b.append(cache, v, step.appended(mask))
        read = step.read(mask)
        with b.block(half, kernel="attention"):
            s = b.contract("qk", q, keys.part(C=read), "A K G P", cls="attention", scale=self.d_head**-0.5)
            p = b.map("p", "softmax", s, mask=mask)
            values = b.map("values", "repeat_streams", cache.part(C=read), axes="C A K Hv")
            return b.contract("pv", p, values, "T A K G Hv", cls="attention")
