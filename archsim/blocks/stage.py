"""Stages of a vision or audio encoder: from pixels or sound to the vectors that stand among those of the text.

An encoder is a list of stages. Each takes a stream of vectors, changes their number, their width or what they hold, and
hands it to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from archsim.base.lazy_model import Field
from archsim.base.number import Num, ceil_div, floor_div, maximum, minimum
from archsim.blocks.block import Context, FfnBlock
from archsim.blocks.dispatch import About, Activation, Count, InvalidBlock, OneOf, Spec
from archsim.blocks.layer import Layer, lower_layers, walk_layers
from archsim.blocks.norm import Norm
from archsim.blocks.tiny import WIDTH
from archsim.graph.builder import Builder
from archsim.graph.graph import OpClass
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


class StageSpec(Spec, ABC):
    """One stage. `name`: what it is called among the encoder's blocks, where its kind alone does not tell."""

    kind: str
    name: str | None = None

    about = {
        "patches": About("patch embedding", "Patch embedding", "patch embedding"),
        "codes": About("codes looked up", "Codes looked up", "codes looked up"),
        "conv": About("convolution", "Convolution", "convolution"),
        "positions": About("table of positions", "Table of positions", "table of positions"),
        "class_token": About("class token", "Class token", "class token"),
        "drop_class": About("class token dropped", "Class token dropped", "class token dropped"),
        "vectors": About("marks of places", "Marks of places", "marks of places"),
        "norm": About("norm", "Norm", "norm"),
        "layers": About("encoder layers", "Encoder layers", "encoder layers"),
        "merge": About("neighbours merged", "Neighbours merged", "neighbours merged"),
        "pool": About("neighbours averaged", "Neighbours averaged", "neighbours averaged"),
        "linear": About("projection", "Projection", "projection"),
        "network": About("feed-forward network", "Feed-forward network", "feed-forward network"),
        "attention_pool": About("attention pooling", "Attention pooling", "attention pooling"),
        "branch": About("deep features", "Deep features", "deep features"),
        "attend": About("attention", "Attention", "attention"),
        "latents": About("latents", "Latents", "latents"),
        "padded": About("padded to whole windows", "Padded to whole windows", "padded to whole windows"),
        "unused": About("stages for other inputs", "Stages for other inputs", "stages for other inputs"),
        "conv2d": About("convolution over patches", "Convolution over patches", "convolution over patches"),
        "spectrum": About("convolution of a spectrum", "Convolution of a spectrum", "convolution of a spectrum"),
        "residual": About("residual block", "Residual block", "residual block"),
        "grid_attention": About(
            "attention over a coarse grid", "Attention over a coarse grid", "attention over a coarse grid"
        ),
        "pooled_windows": About(
            "attention pooling of windows", "Attention pooling of windows", "attention pooling of windows"
        ),
        "fuse": About("scales beside each other", "Scales beside each other", "scales beside each other"),
        "parallel": About("encoders beside each other", "Encoders beside each other", "encoders beside each other"),
        "together": About("tiles together", "Tiles together", "tiles together"),
        "mean_token": About("mean of all vectors", "Mean of all vectors", "mean of all vectors"),
        "resample": About("resampled grid", "Resampled grid", "resampled grid"),
        "squeeze_excite": About("squeeze and excitation", "Squeeze and excitation", "squeeze and excitation"),
        "split": About("vectors split", "Vectors split", "vectors split"),
        "lstm": About("LSTM", "LSTM", "LSTM"),
        "affine": About("scale and shift", "Scale and shift", "scale and shift"),
        "channel_attention": About("attention over channels", "Attention over channels", "attention over channels"),
        "memory_attention": About("attention with a memory", "Attention with a memory", "attention with a memory"),
        "resampler": About(
            "attention of learned queries", "Attention of learned queries", "attention of learned queries"
        ),
    }

    @property
    def along(self) -> tuple[StageSpec, ...]:
        """Stages inside that the stream goes through as it is, some of which may be its main layers."""
        return ()

    @abstractmethod
    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The stage's operations on `x`, over T and D; returns a tensor of as many vectors as leave, and their width.
        The first stage of an encoder has no `x`: it reads what the processor makes of an image or a sound.
        """

    def after(self, step: Step) -> Step:
        """The sequences that leave the stage."""
        return step

    def before(self, step: Step) -> Step:
        """The sequences that the stage needs for those that leave it."""
        return step


def given(x: Tensor | None) -> Tensor:
    """What a stage works on, which only the first stage of an encoder can do without."""
    if x is None:
        raise ValueError("an encoder begins with `patches` or `frames`")
    return x


class PatchesStage(StageSpec):
    """Squares of `size` x `size` pixels in `channels` colours, of `frames` pictures in a row, each made one vector.
    norm: of the pixels (Gemma 4 12B). kernel: side of the square that is read, where squares overlap (a convolution).
    copies: vectors of each square, where an image stands for so many pictures in a row (Inkling). activation: of the
    vectors (a convolution).
    """

    kind: Literal["patches"]
    d: Count
    size: Count
    channels: Count = 3
    frames: Count = 1
    bias: bool = True
    norm: Norm | None = None
    kernel: Count | None = None
    copies: Count = 1
    activation: Activation | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """One product."""
        inner = self.channels * (self.kernel or self.size) ** 2 * self.frames
        with b.scope(Ci=inner, D=self.d, T=self.after(step).tokens):
            pixels = b.tensor("pixels", "T Ci")
            if self.norm is not None:
                pixels = self.norm.lower(b, "pixels_norm", pixels, "Ci")
            y = b.linear("patch", pixels, "Ci D", "T D", bias=self.bias)
            return b.map("patch()", self.activation, y) if self.activation else y

    def after(self, step: Step) -> Step:
        """`copies` for each."""
        if self.copies == 1:
            return step
        return replace(step, seqs=tuple(s._replace(new=s.new * self.copies) for s in step.seqs), grids=())


class CodesStage(StageSpec):
    """`n` codes of each moment of a sound, each from a table of `rows` vectors of its own, which are added up."""

    kind: Literal["codes"]
    d: Count
    n: Count
    rows: Count

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A look-up for each code, and their sum."""
        with b.scope(D=self.d, Cn=self.n * self.rows, Nc=self.n):
            table = b.weight("table", "Cn D", "position")
            read = table.part(Cn=minimum(self.n * self.rows, step.tokens * self.n))
            return b.map("summed", "add", b.gather("codes", read, "T Nc D", index="codes"), axes="T D")


class ConvStage(StageSpec):
    """A convolution along time: `kernel` neighbours become one vector of width `d`, one for every `stride`. channels:
    of the sound (mel bins), where it is the first stage. gated: times the sigmoid of a second convolution. groups: runs
    of channels, each convolved by itself. whole: only where all neighbours are, without padding at the ends.
    weight_norm: a learned length for each filter beside its direction (arXiv:1602.07868). norm: behind it, before the
    activation.
    """

    kind: Literal["conv"]
    d: Count
    kernel: Count = 3
    stride: Count = 1
    channels: Count | None = None
    bias: bool = True
    activation: Activation | None = "gelu"
    gated: bool = False
    groups: Count = 1
    whole: bool = False
    weight_norm: bool = False
    norm: Norm | None = None

    limits = {"d": WIDTH, "channels": 16}

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """One product over the columns of the convolution."""
        if self.channels is not None:
            with b.scope(D=self.channels):
                x = b.tensor("spectrum", "T D")
        x = given(x)
        if x.axes["D"] % self.groups or self.d % self.groups:
            raise InvalidBlock(f"widths of {x.axes['D']} and {self.d} are not multiples of {self.groups} groups")
        with b.scope(T=self.after(step).tokens, Ck=self.kernel, Do=self.d):
            columns = self._columns(b, x)
            y = self._filtered(b, "conv", columns)
            if self.gated:
                y = b.map("gated", "gate", y, self._filtered(b, "gate", columns))
            y = self.norm.lower(b, "conv_norm", y, "Do") if self.norm is not None else y
            return b.map("conv()", self.activation, y) if self.activation else y

    def _columns(self, b: Builder, x: Tensor) -> Tensor:
        """The neighbours of every vector that leaves, of each group by itself where there are several."""
        if self.groups == 1:
            with b.scope(D=x.axes["D"]):
                return b.view("columns", x, "T Ck D", stride=self.stride)
        with b.scope(Cg=self.groups, D=x.axes["D"] // self.groups):
            return b.view("columns", x, "T Cg Ck D", stride=self.stride)

    def _filtered(self, b: Builder, name: str, columns: Tensor) -> Tensor:
        """One product with a filter for each channel that leaves, over T and Do."""
        if self.weight_norm:
            b.idle(b.weight(f"length_{name}", "Do", "norm"))
        if self.groups == 1:
            with b.scope(D=columns.axes["D"]):
                bias = "Do" if self.bias else False
                return b.linear(name, columns, "Ck D Do", "T Do", bias=bias, role="conv")
        with b.scope(Cg=self.groups, D=columns.axes["D"], Dg=self.d // self.groups):
            w = b.weight(f"w_{name}", "Cg Ck D Dg", "conv", ("Ck", "D"))
            cls: OpClass = "conv" if self.groups == self.d else "matmul"
            y = b.emit("contract", name, (columns, w), b.tensor(name, "T Cg Dg"), cls=cls)
            y = b.map(f"{name}+b", "add", y, b.weight(f"b_{name}", "Cg Dg", "bias")) if self.bias else y
        return b.view(f"{name}_flat", y, "T Do")

    def after(self, step: Step) -> Step:
        """One vector for every stride."""
        if not self.whole:
            return _fewer(step, self.stride)
        lengths = (maximum(floor_div(s.new - self.kernel, self.stride) + 1, 1) for s in step.seqs)
        return replace(step, seqs=tuple(s._replace(new=n) for s, n in zip(step.seqs, lengths, strict=True)), grids=())

    def before(self, step: Step) -> Step:
        """`stride` for each."""
        ends = self.kernel - self.stride if self.whole else 0
        return replace(step, seqs=tuple(s._replace(new=s.new * self.stride + ends) for s in step.seqs), grids=())


class PositionsStage(StageSpec):
    """A learned table of `rows` vectors that are added. gated: times a learned number."""

    kind: Literal["positions"]
    rows: Count
    gated: bool = False

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A look-up and an addition."""
        x = given(x)
        with b.scope(X=self.rows, One=1):
            table = b.weight("table", "X D", "position")
            found = b.gather("position", table.part(X=minimum(self.rows, step.seqs[0].new)), "T D", index="position")
            if self.gated:
                found = b.map("gated", "mul", found, b.weight("gate", "One", "scalar"))
            return b.map("x_position", "add", x, found)


class ClassTokenStage(StageSpec):
    """`n` learned vectors put before those of each image."""

    kind: Literal["class_token"]
    n: Count = 1

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A copy."""
        with b.scope(Cn=self.n, T=self.after(step).tokens):
            return b.map("with_class", "concat", given(x), b.weight("class", "Cn D", "position"), axes="T D")

    def after(self, step: Step) -> Step:
        """`n` more for each image."""
        return replace(step, seqs=tuple(s._replace(new=s.new + self.n) for s in step.seqs), grids=())


class DropClassStage(StageSpec):
    """Without the first `n` vectors of each image."""

    kind: Literal["drop_class"]
    n: Count = 1

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A slice."""
        return b.select("patches", given(x), "T D", "rest", T=self.after(step).tokens)

    def after(self, step: Step) -> Step:
        """`n` fewer for each image."""
        return replace(step, seqs=tuple(s._replace(new=s.new - self.n) for s in step.seqs))


class VectorsStage(StageSpec):
    """`n` learned vectors of the stream's width that mark places (the end of a row of an image)."""

    kind: Literal["vectors"]
    n: Count = 1

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """Nothing that is counted per image."""
        with b.scope(Cn=self.n):
            b.idle(b.weight("vectors", "Cn D", "position"))
        return given(x)


class NormStage(StageSpec):
    """A norm, and an activation."""

    kind: Literal["norm"]
    norm: Norm
    activation: Activation | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The norm over the width."""
        y = self.norm.lower(b, "norm", given(x))
        return b.map("norm_act", self.activation, y) if self.activation else y


class LayersStage(StageSpec):
    """Transformer layers, as those of a language model; their masks look both ways."""

    kind: Literal["layers"]
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """All layers, with what they share declared before them."""
        ctx = Context(step=step, cached=False)
        for layer in walk_layers(self.layers):
            if layer.attention is not None:
                layer.attention.declare(b, ctx)
        return lower_layers(b, given(x), ctx, self.layers)


class MergeStage(StageSpec):
    """`tokens` neighbours become one vector that holds them all, side by side. stride: one for every so many, where
    they overlap. channels: of the sound (mel bins), where it is the first stage. dropped: those at the end that are
    fewer make none (GLM-ASR).
    """

    kind: Literal["merge"]
    tokens: Count
    stride: Count | None = None
    channels: Count | None = None
    dropped: bool = False

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The same numbers, seen otherwise."""
        if self.channels is not None:
            with b.scope(D=self.channels):
                x = b.tensor("spectrum", "T D")
        with b.scope(T=self.after(step).tokens, D=given(x).axes["D"] * self.tokens):
            return b.view("merged", given(x), "T D")

    def after(self, step: Step) -> Step:
        """One of every few."""
        if not self.dropped:
            return _fewer(step, self.stride or self.tokens)
        return replace(step, seqs=tuple(s._replace(new=s.new // self.tokens) for s in step.seqs), grids=())


class SplitStage(StageSpec):
    """Every vector becomes `tokens` in a row that hold its numbers: the inverse of `merge`."""

    kind: Literal["split"]
    tokens: Count

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The same numbers, seen otherwise."""
        width = given(x).axes["D"]
        if width % self.tokens:
            raise InvalidBlock(f"a width of {width} is not a multiple of {self.tokens} tokens")
        with b.scope(T=self.after(step).tokens, D=width // self.tokens):
            return b.view("split", given(x), "T D")

    def after(self, step: Step) -> Step:
        """So many for each."""
        return replace(step, seqs=tuple(s._replace(new=s.new * self.tokens) for s in step.seqs), grids=())


class TapsStage(StageSpec):
    """What `n` earlier layers gave, beside what the last one gave: vectors n + 1 times as wide."""

    kind: Literal["taps"]
    n: Count

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A copy."""
        stream = given(x)
        with b.scope(D=stream.axes["D"] * (self.n + 1)):
            return b.map("taps", "concat", stream, axes="T D")


class PoolStage(StageSpec):
    """The mean of `tokens` neighbours. first: the first of them instead, which those at the end have too."""

    kind: Literal["pool"]
    tokens: Count
    first: bool = False

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A mean, or a slice."""
        if self.first:
            return b.select("first", given(x), "T D", "first", T=self.after(step).tokens)
        with b.scope(T=self.after(step).tokens):
            return b.map("pooled", "add", given(x), axes="T D")

    def after(self, step: Step) -> Step:
        """One of every few; what is left at the end is dropped where a mean is taken."""
        if self.first:
            return _fewer(step, self.tokens)
        return replace(step, seqs=tuple(s._replace(new=s.new // self.tokens) for s in step.seqs), grids=())


class LinearStage(StageSpec):
    """A matrix to width `d`, and an activation. gated: what it gives, times an activation of a second one. fixed: a
    table in place of the matrix that is no parameter (sinusoids, a codebook). zeros: numbers that are put behind those
    of a vector, for which the matrix has rows too.
    """

    kind: Literal["linear"]
    d: Count
    bias: bool = True
    activation: Activation | None = None
    gated: bool = False
    fixed: bool = False
    zeros: int = Field(default=0, ge=0)

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A product."""
        x = given(x)
        with b.scope(Do=self.d, D=x.axes["D"] + self.zeros):
            x = b.map("padded", "concat", x, axes="T D") if self.zeros else x
            if self.fixed:
                return b.contract("linear", x, b.constant("table", "sinusoid", "D Do"), "T Do")
            bias = "Do" if self.bias else False
            y = b.linear("linear", x, "D Do", "T Do", bias=bias)
            if not self.gated:
                return b.map("linear()", self.activation, y) if self.activation else y
            gate = b.linear("gate", x, "D Do", "T Do", bias=bias)
            return b.map("gated", "mul", y, b.map("gate()", self.activation, gate) if self.activation else gate)


class NetworkStage(StageSpec):
    """A feed-forward network of the width that it reads."""

    kind: Literal["network"]
    ffn: FfnBlock

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The network, without a residual."""
        return self.ffn.lower(b, given(x), Context(step=step, cached=False))


class AttentionPoolStage(StageSpec):
    """One learned query attends to all vectors of an image, which are so summed up in one; then a norm and a
    feed-forward network (SigLIP's head).
    """

    kind: Literal["attention_pool"]
    n_heads: Count
    norm: Norm
    ffn: FfnBlock

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """Attention of one query for each image."""
        x = given(x)
        if x.axes["D"] % self.n_heads:
            raise InvalidBlock(f"a width of {x.axes['D']} is not a multiple of n_heads {self.n_heads}")
        heads = {"K": self.n_heads, "H": x.axes["D"] // self.n_heads, "C": step.tokens, "P": step.tokens}
        with b.scope(**heads, One=1):
            k, v = (b.linear(name, x, "D K H", "T K H", bias=True) for name in "kv")
            keys, values = b.view("keys", k, "C K H"), b.view("values", v, "C K H")
            with b.scope(T=step.n_seqs):
                probe = b.gather("probe", b.weight("probe_table", "One D", "position").part(), "T D", index="zero")
                q = b.linear("q", probe, "D K H", "T K H", bias=True)
                with b.block("core", kernel="attention"):
                    p = b.map("p", "softmax", b.contract("qk", q, keys, "K P", cls="attention"), mask=None)
                    o = b.contract("pv", p, values, "T K H", cls="attention")
                y = b.linear("o", o, "K H D", "T D", bias="D")
                return self.ffn.lower(b, self.norm.lower(b, "norm", y), Context(step=step, cached=False))

    def after(self, step: Step) -> Step:
        """One for each image."""
        return replace(step, seqs=tuple(s._replace(new=1) for s in step.seqs), grids=())


class BranchStage(StageSpec):
    """Stages that run `n` times beside the stream, on what earlier layers gave, each time with weights of their own.
    The language model takes what they give (DeepStack).
    """

    kind: Literal["branch"]
    n: Count = 1
    stages: tuple[StageBlock, ...]

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The stages; the stream goes on as it was."""
        stream = given(x)
        with b.block("times", self.n):
            lower_stages(b, stream, self.stages, step)
        return stream


class UnusedStage(StageSpec):
    """Stages for other inputs than the one at hand: their weights are held, and nothing runs. width: of the vectors
    that they would read, where it is not that of the stream.
    """

    kind: Literal["unused"]
    stages: tuple[StageBlock, ...]
    width: Count | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The stream as it was."""
        stream = given(x)
        with b.held(), b.scope(D=self.width or stream.axes["D"]):
            other = stream if self.width is None else b.tensor("others", "T D")
            lower_stages(b, other, self.stages, step)
        return stream


def _fewer(step: Step, n: int) -> Step:
    """One token for every `n`."""
    return replace(step, seqs=tuple(s._replace(new=ceil_div(s.new, n)) for s in step.seqs), grids=())


def lower_stages(b: Builder, x: Tensor | None, stages: Sequence[StageSpec], step: Step) -> tuple[Tensor, Step]:
    """One stage after another: what leaves the last, and its sequences."""
    for name, stage in stage_names(stages):
        with b.block(name):
            y = stage.lower(b, x, step)
        step = stage.after(step)
        tokens, width = y.axes.values()
        b.sizes = {**b.sizes, "T": tokens, "D": width, "D2": width}
        x = b.view(f"{name}_out", y, "T D")
    return given(x), step


def stage_names(stages: Sequence[StageSpec]) -> Iterator[tuple[str, StageSpec]]:
    """Stages under names of their own."""
    seen: dict[str, int] = {}
    for stage in stages:
        name = stage.name or stage.kind
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}{seen[name]}"), stage


def step_before(stages: Sequence[StageSpec], step: Step) -> Step:
    """The sequences that enter the stages for those of `step` to leave them."""
    for stage in reversed(stages):
        step = stage.before(step)
    return step


def step_after(stages: Sequence[StageSpec], step: Step) -> Step:
    """The sequences that leave the stages."""
    for stage in stages:
        step = stage.after(step)
    return step


def tokens_after(stages: Sequence[StageSpec], step: Step) -> Num:
    """Vectors that leave the stages."""
    return step_after(stages, step).tokens


StageBlock = Annotated[StageSpec, OneOf("stage")]
