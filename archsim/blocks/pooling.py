"""Attention of encoders that is no part of a transformer layer: over channels, with a memory of neighbours beside it,
and of learned queries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from archsim.blocks.dispatch import Count, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import depthwise
from archsim.blocks.stage import StageSpec, given
from archsim.blocks.tiny import WIDTH
from archsim.graph.builder import Builder
from archsim.graph.step import Mask, Seqs, Step
from archsim.graph.tensor import Tensor

OPEN = Mask(causal=False)
"""All queries see all keys."""


def head_width(width: object, n_heads: int) -> int:
    """The width of each of the heads that share a width evenly. Raises InvalidBlock where they do not."""
    if not isinstance(width, int) or width % n_heads:
        raise InvalidBlock(f"a width of {width} is not a multiple of {n_heads} heads")
    return width // n_heads


def attended(b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Tensor:
    """softmax(q kᵀ) v of queries over T, keys and values over C, for the pairs P of the scope; over T, K and H."""
    with b.block("core", kernel="attention"):
        p = b.map("p", "softmax", b.contract("qk", q, k, "K P", cls="attention"), mask=mask)
        return b.contract("pv", p, v, "T K H", cls="attention")


class ChannelAttentionStage(StageSpec):
    """Attention among the channels of each of `groups` runs of them, whose scores are sums over all vectors of an image
    (DaViT, arXiv:2204.03645).
    """

    kind: Literal["channel_attention"]
    groups: Count
    bias: bool = True

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """Channels by channels of each group, without a residual."""
        x = given(x)
        width = head_width(x.axes["D"], self.groups)
        with b.scope(S=step.n_seqs, K=self.groups, H=width, Hk=width):
            q = b.linear("q", x, "D K H", "T K H", bias=self.bias)
            k, v = (b.linear(name, x, "D K Hk", "T K Hk", bias=self.bias) for name in "kv")
            p = b.map("p", "softmax", b.contract("qk", q, k, "S K H Hk"), over=("Hk",))
            return b.linear("o", b.contract("pv", p, v, "T K H"), "K H D", "T D", bias="D")


class MemoryAttentionStage(StageSpec):
    """Attention whose values are also convolved along time, each channel by itself with `d_conv` taps, and added to
    what it gives (SAN-M, arXiv:2006.01713). d: the width of all heads, and of what leaves.
    """

    kind: Literal["memory_attention"]
    d: Count
    n_heads: Count
    d_conv: Count
    bias: bool = True

    limits = {"d": WIDTH}

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """Attention, convolution and their sum, without a residual."""
        x = given(x)
        sizes = {"K": self.n_heads, "H": head_width(self.d, self.n_heads), "Do": self.d, "Ck": self.d_conv}
        with b.scope(**sizes, C=step.tokens, P=step.pairs(OPEN)):
            q, k, v = (b.linear(name, x, "D K H", "T K H", bias=self.bias) for name in "qkv")
            o = attended(b, q, b.view("keys", k, "C K H"), b.view("values", v, "C K H"), OPEN)
            y = b.linear("o", o, "K H Do", "T Do", bias="Do" if self.bias else False)
            flat = b.view("flat", v, "T Do")
            memory = b.map("memory", "add", flat, depthwise(b, "conv", flat, "Do"))
            return b.map("with_memory", "add", y, memory)


class ResamplerStage(StageSpec):
    """`n` learned queries attend to all vectors of an image, and only what they give goes on. Queries, keys and values
    each go through a norm and a matrix of their own before those of the heads (Aria's projector).
    """

    kind: Literal["resampler"]
    n: Count
    n_heads: Count
    norm: Norm

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The norms, two matrices for each, and attention without a residual."""
        x = given(x)
        inner = Step(seqs=tuple(Seqs(s.batch, self.n, 0) for s in step.seqs), masked=step.masked, source=step.seqs)
        sizes = {"K": self.n_heads, "H": head_width(x.axes["D"], self.n_heads), "D2": x.axes["D"], "Cn": self.n}
        with b.scope(**sizes, C=step.tokens, P=inner.cross_pairs()):
            read = self.norm.lower(b, "norm_kv", x)
            k, v = (b.view(f"{name}_rows", self._twice(b, name, read), "C K H") for name in "kv")
            with b.scope(T=inner.tokens):
                table = b.gather("queries", b.weight("table", "Cn D", "position").part(), "T D", index="latents")
                q = self._twice(b, "q", self.norm.lower(b, "norm_q", table))
                return b.linear("o", attended(b, q, k, v, OPEN), "K H D", "T D", bias="D")

    def _twice(self, b: Builder, name: str, x: Tensor) -> Tensor:
        """Both matrices, over T, K and H."""
        first = b.view(f"{name}_first_out", b.linear(f"{name}_first", x, "D D2", "T D2"), "T D")
        return b.linear(name, first, "D K H", "T K H", bias=True)

    def after(self, step: Step) -> Step:
        """`n` for each image."""
        return replace(step, seqs=tuple(s._replace(new=self.n) for s in step.seqs), grids=())
