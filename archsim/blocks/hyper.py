"""Hyper-connections (arXiv:2409.19606) in DeepSeek-V4's form: several residual streams that a block's input is mixed
from, and that its result is added to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from archsim.blocks.dispatch import Count, Spec
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class HyperConnections(Spec):
    """`n` residual streams. A projection of all of them gives, for every token, how much of each goes into a block, how
    much of its result goes into each, and a matrix by which they are mixed, whose rows and columns are brought to sums
    of one in `iterations` rounds. mixing: false where streams stay apart (Hy4); magnitude: the most of a result that
    goes into a stream; post_eps: the least. head: how streams become one behind the last layer: by weights of their
    own, or as their mean (GLM-5.3-Flash).
    """

    n: Count
    iterations: Count = 20
    eps: float = 1e-6
    norm_eps: float = 1e-6
    mixing: bool = True
    magnitude: float = 2.0
    post_eps: float = 0.0
    head: Literal["weighted", "mean"] = "weighted"

    decisions = {"*": "hyper_connections"}
    limits = {"n": 4, "iterations": 20}
    brief = "{n} streams"

    def spread(self, b: Builder, x: Tensor) -> Tensor:
        """The embedding as `n` streams, over T A D."""
        return b.map("streams", "repeat_streams", x, axes="T A D")

    def around(self, b: Builder, name: str, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """The streams (T A D) behind a block, which works on one that is made of them."""
        results, scales = ((2 + self.n) * self.n, 3) if self.mixing else (2 * self.n, 2)
        with b.scope(A=self.n, A2=self.n, Hc=results, H3=scales):
            with b.part(PART), b.block(name):
                numbers = self._numbers(b, x, "Hc", "H3")
                one = b.map("collapsed", "hyper_collapse", x, *numbers, axes="T D", eps=self.eps)
            y = block(one)
            with b.part(PART):
                share = {"magnitude": self.magnitude, "eps": self.post_eps}
                mixed = self._mixed(b, name, x, numbers) if self.mixing else x
                return b.map(name + "_streams", "hyper_expand", mixed, y, *numbers, axes="T A D", **share)

    def _mixed(self, b: Builder, name: str, x: Tensor, numbers: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The streams, mixed by their matrix."""
        more = {"eps": self.eps, "iterations": self.iterations}
        matrix = b.map(name + "_matrix", "hyper_mixing", *numbers, axes="T A A2", **more)
        return b.contract(name + "_mixed", x, matrix, "T A2 D")

    def _numbers(self, b: Builder, x: Tensor, out: str, scales: str) -> tuple[Tensor, Tensor, Tensor]:
        """What a projection of all streams gives, what is added to it, and the factors on it."""
        plain = Norm(kind="rmsnorm", affine=False, eps=self.norm_eps)
        mix = b.linear("mix", plain.lower(b, "norm", x, "A D"), f"A D {out}", f"T {out}", role="router")
        return mix, b.weight("base", out, "bias"), b.weight("scale", scales, "scalar")

    def merge(self, b: Builder, x: Tensor) -> Tensor:
        """All streams as one, behind the last layer."""
        with b.part(PART), b.block("hyper_head", A=self.n, Ah=self.n, H1=1):
            if self.head == "mean":
                return b.map("merged", "stream_mean", x, axes="T D")
            numbers = self._numbers(b, x, "Ah", "H1")
            return b.map("merged", "hyper_head", x, *numbers, axes="T D", eps=self.eps)


PART = "hyper-connections"
"""What pages call it."""
