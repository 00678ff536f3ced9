"""Convolutions of encoders: over the patches of an image, over time and the bins of a spectrum, and the module of a
conformer's layer.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.base.number import Num, ceil_div
from archsim.blocks.block import AttentionBlock, Context, MixerSpec
from archsim.blocks.dispatch import About, Activation, Count, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.position import Decomposed
from archsim.blocks.recurrence import convolution, depthwise
from archsim.blocks.stage import StageBlock, StageSpec, given, lower_stages, step_after
from archsim.blocks.tiny import WIDTH
from archsim.graph.builder import Builder
from archsim.graph.graph import OpClass
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor

OPEN = Mask(causal=False)
"""All queries see all keys."""


class Conv2dStage(StageSpec):
    """A convolution over the rows and columns of an image's patches: kernel x kernel neighbours, one vector of width
    `d` for every stride x stride of them, with as much padding as keeps the others. depthwise: every channel by itself,
    by so many `filters`. norm: behind it, before the activation.
    """

    kind: Literal["conv2d"]
    d: Count | None = None
    kernel: Count = 3
    stride: Count = 1
    depthwise: bool = False
    filters: Count = 1
    bias: bool = False
    norm: Norm | None = None
    activation: Activation | None = None

    limits = {"d": WIDTH}

    @model_validator(mode="after")
    def _width(self) -> Conv2dStage:
        if self.depthwise == (self.d is not None):
            raise InvalidBlock("`conv2d` needs `d`, its width, or `depthwise: true`, which keeps it")
        return self

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """One product, or one filter for each channel."""
        x = given(x)
        width = x.axes["D"] * self.filters if self.d is None else self.d
        with b.scope(T=self.after(step).tokens, Ck=self.kernel**2, D=x.axes["D"], Do=width, Fc=self.filters):
            if not self.depthwise:
                y = convolution(b, "conv", x, "Ck D Do", "T Do", bias="Do" if self.bias else "")
            elif self.filters == 1:
                y = depthwise(b, "conv", x, "D", self.bias)
            else:
                bias = "D Fc" if self.bias else ""
                y = b.view("conv_flat", convolution(b, "conv", x, "Ck D Fc", "T D Fc", bias=bias, cls="conv"), "T Do")
            channels = "D" if self.depthwise and self.filters == 1 else "Do"
            y = self.norm.lower(b, "conv_norm", y, channels) if self.norm is not None else y
            return b.map("conv()", self.activation, y) if self.activation else y

    def after(self, step: Step) -> Step:
        """One for every square of `stride`."""
        return strided(step, self.stride)


def strided(step: Step, stride: int) -> Step:
    """One vector for every `stride` rows and columns; of sequences without a grid, for every stride² vectors."""
    if stride == 1:
        return step
    grids = tuple((-(-rows // stride), -(-columns // stride)) for rows, columns in step.grids)
    if not grids:
        return replace(step, seqs=tuple(s._replace(new=ceil_div(s.new, stride**2)) for s in step.seqs))
    seqs = tuple(s._replace(new=grid[0] * grid[1]) for s, grid in zip(step.seqs, grids, strict=True))
    return replace(step, seqs=seqs, grids=grids)


class SpectrumStage(StageSpec):
    """A convolution over time and the `bins` of a spectrum, each of which holds as many channels as a vector has
    numbers for it: kernel x kernel neighbours, one bin of `d` channels for every stride x stride. A vector that leaves
    holds all bins of its time.

    depthwise: every channel by itself. norm: of the channels, before the activation. chunk: frames that are convolved
    at a time, without those around them (Qwen3-Omni).
    """

    kind: Literal["spectrum"]
    bins: Count
    d: Count | None = None
    kernel: Count = 3
    stride: Count = 2
    depthwise: bool = False
    bias: bool = True
    norm: Norm | None = None
    activation: Activation | None = "gelu"
    chunk: Count | None = None

    @model_validator(mode="after")
    def _width(self) -> SpectrumStage:
        if self.depthwise == (self.d is not None):
            raise InvalidBlock("`spectrum` needs `d`, channels of each bin, or `depthwise: true`, which keeps them")
        return self

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """One product over the neighbours of every bin that leaves."""
        if x is None:
            with b.scope(D=self.bins):
                x = b.tensor("spectrum", "T D")
        bins = ceil_div(self.bins, self.stride)
        if x.axes["D"] % self.bins:
            raise InvalidBlock(f"a width of {x.axes['D']} is not a multiple of {self.bins} bins")
        channels = x.axes["D"] // self.bins
        width = channels if self.d is None else self.d
        with b.scope(Bn=self.bins, Dc=channels):
            cells = b.view("cells", x, "T Bn Dc")
        with b.scope(T=self.after(step).tokens, Bn=bins, Ck=self.kernel**2, Dc=channels, Do=width):
            y = self._convolved(b, cells)
            with b.scope(D=bins * width):
                return b.view("flat", y, "T D")

    def _convolved(self, b: Builder, cells: Tensor) -> Tensor:
        """The filters, the norm and the activation, over T, Bn and the channels."""
        last = "Dc" if self.depthwise else "Do"
        bias, weight = last if self.bias else "", "Ck Dc" if self.depthwise else "Ck Dc Do"
        cls: OpClass = "conv" if self.depthwise else "matmul"
        y = convolution(b, "conv", cells, weight, f"T Bn {last}", bias=bias, cls=cls)
        y = self.norm.lower(b, "conv_norm", y, last) if self.norm is not None else y
        return b.map("conv()", self.activation, y) if self.activation else y

    def after(self, step: Step) -> Step:
        """One vector for every stride of each chunk."""
        if self.chunk is None:
            return replace(step, seqs=tuple(s._replace(new=ceil_div(s.new, self.stride)) for s in step.seqs), grids=())
        return replace(step, seqs=tuple(s._replace(new=self._of_chunks(s.new)) for s in step.seqs), grids=())

    def _of_chunks(self, frames: Num) -> Num:
        chunk = self.chunk or 1
        whole = frames // chunk
        return whole * ceil_div(chunk, self.stride) + ceil_div(frames - whole * chunk, self.stride)


class ResidualStage(StageSpec):
    """x plus what `stages` make of it, `repeat` times with weights of their own. scale: times a learned factor for each
    channel. skip: false where only what they make goes on (a block that changes the number or the width of vectors).
    shortcut: what x itself goes through before the sum (a matrix to another width).
    """

    kind: Literal["residual"]
    stages: tuple[StageBlock, ...]
    repeat: Count = 1
    scale: bool = False
    skip: bool = True
    shortcut: tuple[StageBlock, ...] = ()

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The stages, the factor and the sum."""
        stream = given(x)
        with b.block("times", self.repeat):
            with b.block("shortcut"):
                beside = lower_stages(b, stream, self.shortcut, step)[0] if self.shortcut else stream
            y, _ = lower_stages(b, stream, self.stages, step)
            if self.scale:
                y = b.map("scaled", "mul", y, b.weight("scale", "D", "norm"))
            if self.skip:
                y = b.map("residual", "add", beside, y)
        return y

    def after(self, step: Step) -> Step:
        """As the stages leave them."""
        return step_after(self.stages, step)


class AttendStage(StageSpec):
    """Attention without a norm and a residual, which stages around it bring. side: scores have a bias for the distance
    in rows and one for that in columns, within squares of side x side patches (SAM).
    """

    kind: Literal["attend"]
    attention: AttentionBlock
    side: Count | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The attention."""
        attention = self.attention
        if self.side is not None:
            attention = attention.model_copy(update={"position": Decomposed(side=self.side)})
        return attention.lower(b, given(x), Context(step=step, cached=False))


class PaddedStage(StageSpec):
    """Stages that run on rows and columns filled up to multiples of `size`, which are cut off behind them (windows of
    SAM, which are all whole).
    """

    kind: Literal["padded"]
    size: Count
    stages: tuple[StageBlock, ...]

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A copy, the stages, and a slice."""
        grids = tuple((-(-r // self.size) * self.size, -(-c // self.size) * self.size) for r, c in step.grids)
        seqs = tuple(s._replace(new=r * c) for s, (r, c) in zip(step.seqs, grids, strict=False)) or step.seqs
        filled = replace(step, seqs=seqs, grids=grids)
        with b.scope(T=filled.tokens):
            y, _ = lower_stages(b, b.map("filled", "concat", given(x), axes="T D"), self.stages, filled)
        return b.select("cut", y, "T D", "first", T=step.tokens)


class GridAttentionStage(StageSpec):
    """Attention of every patch of an image over patches of a coarser grid, one for `stride` x `stride`, which a
    depthwise convolution and a norm make for keys and for values; one key/value head (MobileNetV4, arXiv:2404.10518).
    """

    kind: Literal["grid_attention"]
    n_heads: Count
    d_head: Count
    stride: Count = 1
    kernel: Count = 3
    norm: Norm | None = None

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """The attention, without a residual."""
        x = given(x)
        coarse = strided(step, self.stride)
        rows = sum(fine.batch * fine.new * far.new for fine, far in zip(step.seqs, coarse.seqs, strict=True))
        with b.scope(K=1, G=self.n_heads, H=self.d_head, C=coarse.tokens, P=rows, Ck=self.kernel**2):
            q = b.linear("q", x, "D K G H", "T K G H")
            with b.scope(T=coarse.tokens):
                keys, values = (self._coarse(b, kind, x) for kind in "kv")
            with b.block("core", kernel="attention"):
                p = b.map("p", "softmax", b.contract("qk", q, keys, "K G P", cls="attention"), mask=OPEN)
                o = b.contract("pv", p, values, "T K G H", cls="attention")
            return b.linear("o", o, "K G H D", "T D")

    def _coarse(self, b: Builder, kind: str, x: Tensor) -> Tensor:
        """Keys or values of the coarse grid, over C, K and H."""
        if self.stride > 1:
            x = depthwise(b, f"{kind}_down", x, "D")
            x = self.norm.lower(b, f"{kind}_norm", x) if self.norm is not None else x
        return b.view(f"{kind}_rows", b.linear(kind, x, "D K H", "T K H"), "C K H")


class PooledWindowsStage(StageSpec):
    """The mean of `tokens` neighbours attends to these: one vector of n_heads x d_head numbers for all of them (Molmo's
    pooling). A square number of them are squares of the picture, filled up at its edges.
    """

    kind: Literal["pooled_windows"]
    n_heads: Count
    d_head: Count
    tokens: Count
    bias: bool = True

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """One query for each window, keys and values of all vectors."""
        x = given(x)
        pooled = self.after(step).tokens
        with b.scope(K=self.n_heads, H=self.d_head, C=step.tokens, P=pooled * self.tokens):
            k, v = (b.linear(kind, x, "D K H", "T K H", bias=self.bias) for kind in "kv")
            keys, values = b.view("keys", k, "C K H"), b.view("values", v, "C K H")
            with b.scope(T=pooled, Do=self.n_heads * self.d_head):
                q = b.linear("q", b.map("mean", "add", x, axes="T D"), "D K H", "T K H", bias=self.bias)
                with b.block("core", kernel="attention"):
                    p = b.map("p", "softmax", b.contract("qk", q, keys, "K P", cls="attention"), mask=OPEN)
                    o = b.contract("pv", p, values, "T K H", cls="attention")
                return b.linear("o", o, "K H Do", "T Do", bias="Do" if self.bias else False)

    def after(self, step: Step) -> Step:
        """One for each window."""
        side = isqrt(self.tokens)
        if step.grids and side**2 == self.tokens:
            fewer = [ceil_div(rows, side) * ceil_div(columns, side) for rows, columns in step.grids]
        else:
            fewer = [ceil_div(s.new, self.tokens) for s in step.seqs]
        return replace(step, seqs=tuple(s._replace(new=n) for s, n in zip(step.seqs, fewer, strict=True)), grids=())


class FuseStage(StageSpec):
    """What came out of an earlier stage of `d` channels, on a grid `factor` times as fine, beside what comes now, which
    is repeated on that grid: vectors of both widths (MobileNetV5's fusion of scales).
    """

    kind: Literal["fuse"]
    d: Count
    factor: Count = 2

    def lower(self, b: Builder, x: Tensor | None, step: Step) -> Tensor:
        """A copy."""
        stream = given(x)
        with b.scope(T=self.after(step).tokens, D=stream.axes["D"] + self.d):
            return b.map("fused", "concat", stream, axes="T D")

    def after(self, step: Step) -> Step:
        """factor² for each."""
        seqs = tuple(s._replace(new=s.new * self.factor**2) for s in step.seqs)
        return replace(step, seqs=seqs, grids=tuple((r * self.factor, k * self.factor) for r, k in step.grids))


class ConvModule(MixerSpec):
    """The convolution of a conformer's layer (arXiv:2005.08100): two matrices of which one gates the other, a depthwise
    convolution along time of d_conv taps, a norm, an activation, and a matrix back.

    gate: the gate's activation. gate_bias: a bias for each half, behind the matrices. pointwise: a matrix behind the
    depthwise convolution.
    """

    kind: Literal["conv_module"] = "conv_module"
    d_inner: Count
    d_conv: Count
    bias: bool = False
    conv_bias: bool = False
    gate: Activation = "sigmoid"
    gate_bias: bool = False
    pointwise: bool = False
    norm: Norm | None = None
    activation: Activation | None = "silu"

    about = {"conv_module": About("convolution module", label="Conv module",
                                  paper="Conformer: Gulati et al. 2020, arXiv:2005.08100, section 2.2")}  # fmt: skip

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of neighbours; returns a tensor over T and D."""
        with b.block(name, I=self.d_inner, I2=self.d_inner, Ck=self.d_conv):
            up, gate = (b.linear(n, x, "D I", "T I", bias=self.bias) for n in ("up", "gate"))
            if self.gate_bias:
                up, gate = (b.map(f"{n}+b2", "add", y, b.weight(f"b2_{n}", "I", "bias"))
                            for n, y in (("up", up), ("gate", gate)))  # fmt: skip
            y = b.map("gated", "mul", up, b.map("gate()", self.gate, gate))
            y = depthwise(b, "conv", y, "I", self.conv_bias)
            if self.pointwise:
                y = b.view("pointed", b.linear("pointwise", y, "I I2", "T I2", bias=self.conv_bias), "T I")
            y = self.norm.lower(b, "conv_norm", y, "I") if self.norm is not None else y
            y = b.map("conv()", self.activation, y) if self.activation else y
            return b.linear("down", y, "I D", "T D", bias=self.bias)
