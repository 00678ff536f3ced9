"""Rotary position embedding (arXiv:2104.09864) and the ways its frequencies are stretched."""

from __future__ import annotations

import math
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks import tiny
from archsim.blocks.block import Position
from archsim.blocks.dispatch import About, Count, InvalidBlock, Spec
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class RopeScaling(Spec):
    """Stretching of RoPE to longer contexts: linear (position interpolation), ntk (dynamic base), yarn
    (arXiv:2309.00071), llama3, longrope (per-dimension factors; `factors` names the published list's size).
    """

    kind: Literal["linear", "ntk", "yarn", "llama3", "longrope"]
    factor: float = 1.0
    original_max: Count | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()


class Rope(Position):
    """Rotation of pairs of query and key dimensions by position.

    dim: dimensions rotated, when only a part is (GPT-NeoX, GLM, Phi). interleaved: pairs are (2i, 2i+1)
    instead of (i, i + dim/2). sections: M-RoPE's split of the frequencies over (time, height, width); recorded,
    without a cost, and without effect on text, whose three positions are one.
    """

    kind: Literal["rope"] = "rope"
    theta: float = 10000.0
    dim: Count | None = None
    interleaved: bool = False
    scaling: RopeScaling | None = None
    sections: tuple[int, ...] = ()

    about = {"rope": About(label="RoPE")}
    decisions = {"*": "rope"}

    @model_validator(mode="after")
    def _even(self) -> Rope:
        if self.dim is not None and self.dim % 2:
            raise InvalidBlock(f"rope turns pairs of dimensions: dim {self.dim} is odd")
        return self

    def rotate(self, b: Builder, name: str, x: Tensor) -> Tensor:
        """`x` with its last axis rotated by the position of each token."""
        return b.map(name, "rope", x, rope=self)

    def rotated_size(self, d_head: int) -> int:
        """All of the head, or as many of its dimensions as are named."""
        return self.dim or d_head

    def shrink(self, d_head: int, was: int) -> Rope:
        """Fewer rotated dimensions, and per-dimension factors as many as pairs are left."""
        dim = None if self.dim is None else max(self.dim * d_head // was // 2 * 2, 2)
        pairs, scaling = (dim or d_head) // 2, self.scaling
        if scaling is not None:
            original = None if scaling.original_max is None else min(scaling.original_max, tiny.CONTEXT)
            factors = {"short_factor": scaling.short_factor[:pairs], "long_factor": scaling.long_factor[:pairs]}
            scaling = scaling.model_copy(update={"original_max": original, **factors})
        return self.model_copy(update={"dim": dim, "scaling": scaling, "sections": ()})

    def latent_softmax_factor(self) -> float:
        """Factor on the softmax scale of latent attention that YaRN's mscale_all_dim asks for (mscale squared)."""
        s = self.scaling
        if s is None or s.kind != "yarn" or not s.mscale_all_dim or s.factor <= 1:
            return 1.0
        return (0.1 * s.mscale_all_dim * math.log(s.factor) + 1.0) ** 2
