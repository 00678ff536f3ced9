"""Stages that bring vectors together: encoders beside each other, the mean of all vectors as a vector or as a gate, a
grid of another size, and a recurrence along time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from archsim.base.lazy_model import Field
from archsim.base.number import ceil_div
from archsim.blocks.dispatch import Activation, Count, InvalidBlock, Spec
from archsim.blocks.stage import StageBlock, StageSpec, given, lower_stages, step_after
from archsim.graph.builder import Builder
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


class Way(Spec):
    """One of several rows of stages. side: patches on a side of the image as this one sees it, where it is given the
    image in a size of its own.
    """

    stages: Annotated[tuple[StageBlock, ...], Field(min_length=1)]
    side: Count | None = None

    def step(self, step: Step) -> Step:
        """The sequences that enter the first of its stages."""
        if self.side is None:
            return step
        seqs = tuple(s._replace(new=self.side**2) for s in step.seqs)
        return replace(step, seqs=seqs, grids=((self.side, self.side),) * len(seqs))


class ParallelStage(StageSpec):
    """Rows of stages that all read what enters (an image, a sound, or the stream), and give as many vectors. join:
    these stand beside each other, or are added up. shared: stages that what each row gave goes through, with the same
    weights. gated: all but the first times a learned number.
    """

    kind: Literal["parallel"]
    ways: Annotated[tuple[Way, ...], Field(min_length=2)]
    join: Literal["concat", "add"] = "concat"
    shared: tuple[StageBlock, ...] = ()
    gated: bool = False

    @property
    def size(self) -> int:
        """Pixels on a side of the first one's patches, by which a grid is cut."""
        return int(getattr(self.ways[0].stages[0], "size", 1))

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """All rows, one after another, and their sum or a copy."""
        made = [self._row(b, f"way{i}", x, way, step) for i, way in enumerate(self.ways, 1)]
        left = {str(y.axes["T"]) for y in made}
        if len(left) > 1:
            raise InvalidBlock(f"`parallel` stages leave different numbers of vectors: {', '.join(sorted(left))}")
        widths = [y.axes["D"] for y in made]
        if (self.join == "add" or self.shared) and len(set(widths)) > 1:
            raise InvalidBlock(f"`parallel` stages that are added up have different widths: {widths}")
        if self.shared:
            made = [self._together(b, made, step)]
            widths = [made[0].axes["D"]] * len(self.ways)
        if self.gated:
            with b.scope(One=1):
                made[-1] = b.map("scaled", "mul", made[-1], b.weight("gate", "One", "scalar"))
        with b.scope(T=self.after(step).tokens, D=sum(widths) if self.join == "concat" else widths[0]):
            return b.map("joined", self.join, *made, axes="T D")

    def _row(self, b: Builder, name: str, x: Tensor | None, way: Way, step: Step) -> Tensor:
        own = way.step(step)
        with b.block(name, T=own.tokens):
            return lower_stages(b, x, way.stages, own)[0]

    def _together(self, b: Builder, made: Sequence[Tensor], step: Step) -> Tensor:
        """What all rows gave through the shared stages, as so many more images."""
        left, n = self._behind_rows(step), len(made)
        stacked = replace(left, seqs=tuple(s._replace(batch=s.batch * n) for s in left.seqs))
        with b.block("shared", T=stacked.tokens, D=made[0].axes["D"]):
            return lower_stages(b, b.map("stacked", "concat", *made, axes="T D"), self.shared, stacked)[0]

    def _behind_rows(self, step: Step) -> Step:
        return step_after(self.ways[0].stages, self.ways[0].step(step))

    def after(self, step: Step) -> Step:
        """As the first row and the shared stages leave them."""
        return step_after(self.shared, self._behind_rows(step))


class TogetherStage(StageSpec):
    """Stages that see all `n` pictures (tiles) of an image as one sequence, each picture filled up to a multiple of so
    many vectors (`multiple`), which are cut off behind them (Llama 3.2 Vision).
    """

    kind: Literal["together"]
    n: Count
    stages: Annotated[tuple[StageBlock, ...], Field(min_length=1)]
    multiple: Count = 1

    @property
    def along(self) -> tuple[StageSpec, ...]:
        """All of them."""
        return self.stages

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A copy, the stages, and a slice."""
        seqs = tuple(
            s._replace(batch=ceil_div(s.batch, self.n), new=self.n * self.multiple * ceil_div(s.new, self.multiple))
            for s in step.seqs
        )
        joined = replace(step, seqs=seqs, grids=())
        with b.scope(T=joined.tokens):
            y, _ = lower_stages(b, b.map("joined", "concat", given(x), axes="T D"), self.stages, joined)
        return b.select("cut", y, "T D", "first", T=step.tokens)


class MeanTokenStage(StageSpec):
    """The mean of all vectors of an image put before them."""

    kind: Literal["mean_token"]

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A mean and a copy."""
        with b.scope(T=step.n_seqs):
            mean = b.map("mean", "add", given(x), axes="T D")
        with b.scope(T=self.after(step).tokens):
            return b.map("with_mean", "concat", mean, given(x), axes="T D")

    def after(self, step: Step) -> Step:
        """One more for each image."""
        return replace(step, seqs=tuple(s._replace(new=s.new + 1) for s in step.seqs), grids=())


class ResampleStage(StageSpec):
    """A grid of vectors interpolated to `side` rows and columns."""

    kind: Literal["resample"]
    side: Count

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A weighted mean of neighbours."""
        with b.scope(T=self.after(step).tokens):
            return b.map("resampled", "add", given(x), axes="T D")

    def after(self, step: Step) -> Step:
        """So many rows and columns for each image."""
        seqs = tuple(s._replace(new=self.side**2) for s in step.seqs)
        return replace(step, seqs=seqs, grids=((self.side, self.side),) * len(seqs))


class SqueezeExciteStage(StageSpec):
    """Channels times a gate, which two matrices make of the mean of all vectors of an image (arXiv:1709.01507). d:
    width between these. outer: an activation behind the product.
    """

    kind: Literal["squeeze_excite"]
    d: Count
    activation: Activation = "relu"
    outer: Activation | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The mean, the matrices and the product."""
        x = given(x)
        with b.scope(T=step.n_seqs, S=step.n_seqs, Ds=self.d):
            inner = b.linear("squeeze", b.map("mean", "add", x, axes="T D"), "D Ds", "T Ds", bias=True)
            gate = b.linear("excite", b.map("squeeze()", self.activation, inner), "Ds D", "T D", bias=True)
            gate = b.view("gate", b.map("gate()", "sigmoid", gate), "S D")
        y = b.map("gated", "mul", x, gate)
        return b.map("gated()", self.outer, y) if self.outer else y


class LstmStage(StageSpec):
    """x plus what `n` layers of long short-term memory, as wide as x, make of it along time. The waiting from one
    moment to the next is in no time.
    """

    kind: Literal["lstm"]
    n: Count = 1

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """Two products for each moment, of the input and of what the moment before gave."""
        stream = given(x)
        with b.block("times", self.n, Gates=4 * stream.axes["D"]):
            new = b.linear("input", stream, "D Gates", "T Gates", bias=True)
            old = b.linear("recurrent", stream, "D Gates", "T Gates", bias=True)
            y = b.map("cell", "gate", new, old, axes="T D")
        return b.map("residual", "add", stream, y)


class AffineStage(StageSpec):
    """All numbers times a learned number, plus another."""

    kind: Literal["affine"]

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A product and a sum."""
        with b.scope(One=1):
            y = b.map("scaled", "mul", given(x), b.weight("scale", "One", "scalar"))
            return b.map("shifted", "add", y, b.weight("shift", "One", "scalar"))
