"""Learned vectors that sum up what an encoder gave by attending to it: perceiver resamplers and Q-Formers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import ceil_div
from archsim.blocks.block import AttentionBlock, Context
from archsim.blocks.dispatch import Count, InvalidBlock
from archsim.blocks.layer import Layer, lower_layers, walk_layers
from archsim.blocks.norm import Norm
from archsim.blocks.stage import StageSpec, given
from archsim.blocks.tiny import WIDTH
from archsim.graph.builder import Builder
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import Tensor


class LatentsStage(StageSpec):
    """`n` learned vectors of width `d` (default: that of the stream) for each image or sound, which attend to all that
    entered; only they go on. layers: transformer layers of the latents, whose `cross_attention` reads what entered
    (Q-Former, arXiv:2301.12597; Perceiver, arXiv:2103.03206). attention: in their place, one attention alone, without
    a norm and a residual (KOSMOS-2). joined: keys and values are made of the latents too (Flamingo, arXiv:2204.14198).
    norm: of the latents, before the layers. window: every so many vectors are summed up by themselves, the last of
    them filled up.
    """

    kind: Literal["latents"]
    n: Count
    d: Count | None = None
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)] | None = None
    attention: AttentionBlock | None = None
    joined: bool = False
    norm: Norm | None = None
    window: Count | None = None

    limits = {"d": WIDTH}

    @model_validator(mode="after")
    def _either(self) -> LatentsStage:
        if (self.layers is None) == (self.attention is None):
            raise InvalidBlock("`latents` needs either `layers` or one `attention`")
        return self

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The table of latents, and the layers or the attention."""
        x, inner = given(x), self._inner(step)
        read = inner.encoder().tokens
        with b.scope(T=read):
            memory = x if self.window is None else b.map("filled", "concat", x, axes="T D")
        width = self.d or x.axes["D"]
        with b.scope(T=inner.tokens, D=width, D2=width, Cn=self.n):
            table = b.weight("table", "Cn D", "position")
            latents = b.gather("latents", table.part(), "T D", index="latents")
            if self.norm is not None:
                latents = self.norm.lower(b, "latents_norm", latents)
            ctx = Context(step=inner, cached=False, memory=memory, joined=self.joined)
            if self.attention is not None:
                return self.attention.lower_cross(b, latents, ctx)
            layers = self.layers or ()
            for layer in walk_layers(layers):
                if layer.attention is not None:
                    layer.attention.declare(b, ctx)
            return lower_layers(b, latents, ctx, layers)

    def _inner(self, step: Step) -> Step:
        """The step of the latents, with what they attend to as their source."""
        if self.window is None:
            return Step(seqs=tuple(Seqs(s.batch, self.n, 0) for s in step.seqs), masked=step.masked, source=step.seqs)
        windows = [s.batch * ceil_div(s.new, self.window) for s in step.seqs]
        return Step(
            seqs=tuple(Seqs(count, self.n, 0) for count in windows), masked=step.masked,
            source=tuple(Seqs(count, self.window, 0) for count in windows),
        )  # fmt: skip

    def after(self, step: Step) -> Step:
        """`n` for each image or sound, or for each window of it."""
        windows = [1 if self.window is None else ceil_div(s.new, self.window) for s in step.seqs]
        seqs = tuple(s._replace(new=self.n * count) for s, count in zip(step.seqs, windows, strict=True))
        return replace(step, seqs=seqs, grids=())
