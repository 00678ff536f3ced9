"""One layer: norms, token mixer, feed-forward, and how they are wired to the residual stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.blocks.block import LATE, AttentionBlock, BlockSpec, Context, FfnBlock, MixerBlock
from archsim.blocks.dispatch import InvalidBlock, Spec
from archsim.blocks.hyper import HyperConnections
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import convolved
from archsim.blocks.residuals import AttentionResiduals
from archsim.blocks.streams import AltUp, Laurel, PerLayerInput
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor

Placement = Literal["pre", "post", "post_inside", "pre+post", "residual_after_norm"]


PARTS = {
    "attention": "attention projections", "cross_attention": "cross-attention projections",
    "mixer": "recurrent mixer", "ffn": "MLP",
}  # fmt: skip
"""What pages call the blocks of a layer; blocks inside them may say it more precisely (experts, indexer)."""

SCORES = "attention scores"
"""What pages call the products over pairs of tokens; of a decode, attention over the cache."""

MAX_REPEAT = 10_000
"""Repetitions of one layer; the deepest models of the literature have 1,000."""


class Layer(Spec):
    """A layer repeated `repeat` times, or a group of layers repeated as a pattern.

    placement: pre (x + f(norm x)), post (norm(x + f x)), post_inside (x + norm(f x), OLMo 2), pre+post
    (x + norm(f(norm x)), Gemma 2), residual_after_norm (norm x + f(norm x), MiniMax-01). parallel: attention and
    feed-forward read the same input and are added together, with one or two input norms. residual: factors on
    the stream and on the branch (DeepNorm's alpha, MiniMax, Granite). shared_weights: all repetitions use one
    set of weights (ALBERT). attention_norm: false where attention has no norm of its own (ModernBERT's first);
    ffn_norm: false where the feed-forward block brings its own (Gemma 4's experts).
    for_images: a layer that texts pass by, which attends to images alone (Llama 3.2 Vision): its weights are held.
    hyper: several residual streams around every block (DeepSeek-V4), the same in all layers of a stack.
    residuals: blocks that read a mixture of the sums so far (Kimi K3); the last layer's `norm` mixes the output.
    layer_scale: a learned factor on what each block adds, for every channel or one for all (arXiv:2103.17239).
    Attention and a mixer in one layer read the same input, and their outputs are added (Falcon-H1).
    round_norm, exit_score: of a group that is run several times: the norm after each round, and the score by which
    a token may leave after it (Ouro). adds_late: what `late` experts of the layer before gave is added at its end.
    branch_conv: taps of a causal convolution over time of what each block gives, added to it (Inkling).
    """

    name: str | None = None
    repeat: Annotated[int, Field(strict=True, gt=0, le=MAX_REPEAT)] = 1
    shared_weights: bool = False
    layers: tuple[Layer, ...] | None = None
    norm: Norm | None = None
    attention_norm: Literal[False] | None = None
    ffn_norm: Literal[False] | None = None
    placement: Placement = "pre"
    attention: AttentionBlock | None = None
    mixer: MixerBlock | None = None
    cross_attention: AttentionBlock | None = None
    ffn: FfnBlock | None = None
    parallel: Literal[False, "one_norm", "two_norms"] = False
    residual_scale: float = 1.0
    branch_scale: float = 1.0
    layer_scale: Literal["channel", "one"] | None = None
    for_images: bool = False
    post_norm: Norm | None = None
    altup: AltUp | None = None
    hyper: HyperConnections | None = None
    residuals: AttentionResiduals | None = None
    laurel: Laurel | None = None
    per_layer_input: PerLayerInput | None = None
    round_norm: Norm | None = None
    exit_score: bool = False
    adds_late: bool = False
    branch_conv: Annotated[int, Field(strict=True, gt=0, le=1024)] | None = None

    letters = {"repeat": ("L", "layers")}
    decisions = {
        "shared_weights": "weight_sharing", "round_norm": "weight_sharing", "exit_score": "weight_sharing",
        "adds_late": "dense_beside", "branch_conv": "short_convolutions",
        "parallel": "parallel", "residual_scale": "residual",
        "branch_scale": "residual", "layer_scale": "residual", "for_images": "stacks",
        "altup": "altup", "hyper": "hyper_connections", "residuals": "residual", "laurel": "laurel",
        "per_layer_input": "per_layer",
        "attention": "mixing", "attention.kind": "attention", "mixer": "mixing", "cross_attention": "stacks",
        "cross_attention.kind": "attention", "ffn": "ffn", "*": "norm_place",
    }  # fmt: skip

    def extents(self) -> dict[str, int]:
        """A layer that stands once needs no letter."""
        return super().extents() if self.repeat > 1 else {}

    @model_validator(mode="after")
    def _content(self) -> Layer:
        own = [f for f in ("attention", "mixer", "cross_attention", "ffn") if getattr(self, f) is not None]
        if self.layers == ():
            raise InvalidBlock("a group of layers is empty")
        check_names(self.layers or ())
        if self.layers is not None and own:
            raise InvalidBlock(f"a group of layers has no `{own[0]}` of its own; put it into one of its layers")
        if self.layers is None and not own:
            raise InvalidBlock("a layer needs `attention`, `mixer` or `ffn` (or `layers`, as a group)", "E104")
        if self.layers is None and (self.round_norm is not None or self.exit_score):
            raise InvalidBlock("`round_norm` and `exit_score` stand behind a group of layers: give it `layers`")
        if self.hyper is not None and (self.placement != "pre" or self.parallel or self.altup is not None):
            raise InvalidBlock("`hyper` goes with `placement: pre` alone, without `parallel` and `altup`")
        if self.residuals is not None and (self.placement != "pre" or self.parallel or self.hyper is not None):
            raise InvalidBlock("`residuals` goes with `placement: pre` alone, without `parallel` and `hyper`")
        if self.parallel and own and ("ffn" not in own or not {"attention", "mixer"} & set(own)):
            raise InvalidBlock("`parallel` adds up attention (or a mixer) and `ffn`: a layer needs both")
        return self

    # ------------------------------------------------------------------ lowering
    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str) -> Tensor:
        """The layer or group, all repetitions of it, as one block."""
        outer = ctx.path, ctx.loops
        ctx.path, ctx.loops = f"{ctx.path}.{name}".lstrip("."), (*ctx.loops, self.repeat)
        with b.block(name, self.repeat, shared=self.shared_weights):
            if self.layers is not None:
                y = self._round_end(b, lower_layers(b, x, ctx, self.layers))
            else:
                ctx.repeats[ctx.path] = ctx.loops
                y = self._one(b, x, ctx)
            b.carry(x, y)
        ctx.path, ctx.loops = outer
        return y

    def _round_end(self, b: Builder, y: Tensor) -> Tensor:
        y = self._norm(b, "round_norm", y, self.round_norm) if self.round_norm is not None else y
        if self.exit_score:
            with b.scope(One=1):
                b.map("exit()", "sigmoid", b.linear("exit", y, "D One", "T One", bias=True))
        return y

    def _one(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        if self.for_images:
            with b.held():
                self._serial(b, x, ctx)
            return x
        if self.altup is not None:
            return self.altup.around(b, x, lambda active: self._serial(b, active, ctx), self.per_layer_input, ctx)
        if self.parallel:
            y = self._parallel(b, x, ctx)
        else:
            y = self._serial(b, x, ctx)
        return self.per_layer_input.add(b, y, y, ctx) if self.per_layer_input else y

    def _serial(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        if self.residuals is not None:
            self.residuals.check(ctx)
        if self.attention is not None or self.mixer is not None:
            x = self._branch(b, x, ctx, "attention" if self.attention is not None else "mixer")
        if self.cross_attention is not None:
            x = self._branch(b, x, ctx, "cross_attention")
        if self.ffn is not None:
            x = self._branch(b, x, ctx, "ffn")
        return b.map("with_late", "add", x, *ctx.shared.pop(LATE)) if self.adds_late else x

    def _branch(self, b: Builder, x: Tensor, ctx: Context, part: str) -> Tensor:
        """x plus one sub-block, normed where the placement says."""
        if self.hyper is not None:
            return self.hyper.around(
                b, f"{part}_hyper", x, lambda one: self._apply(b, self._norm(b, part + "_norm", one), ctx, part)
            )
        if self.residuals is not None:
            return self._mixed_branch(b, x, ctx, part, self.residuals)
        stream = x
        h = (
            self._norm(b, part + "_norm", x)
            if self.placement in ("pre", "pre+post", "residual_after_norm")
            and not (part == "attention" and self.attention_norm is False)
            and not (part == "ffn" and self.ffn_norm is False)
            else x
        )
        if self.placement == "residual_after_norm":
            stream = h
        y = self._apply(b, h, ctx, part)
        if self.placement in ("post_inside", "pre+post"):
            y = self._norm(b, part + "_post_norm", y, self.post_norm)
        extra = self.laurel.lower(b, h) if self.laurel is not None and part != "ffn" else None
        if self.layer_scale is not None:
            with b.scope(One=1):
                axes = "D" if self.layer_scale == "channel" else "One"
                y = b.map(part + "_scaled", "mul", y, b.weight(part + "_scale", axes, "norm"))
        y = self._add(b, part + "_residual", stream, y)
        if extra is not None:
            y = b.map(part + "_laurel", "add", y, extra, scale_sum=2**-0.5)
        return self._norm(b, part + "_norm", y) if self.placement == "post" else y

    def _mixed_branch(self, b: Builder, x: Tensor, ctx: Context, part: str, residuals: AttentionResiduals) -> Tensor:
        """The running sum plus a block over a mixture of streams; the first block of a layer that opens a part begins
        a new sum.
        """
        h = residuals.mix(b, f"{part}_mixture", x, ctx)
        y = self._apply(b, self._norm(b, part + "_norm", h), ctx, part)
        if residuals.opens and part != "ffn":
            residuals.put_away(x, ctx)
            return y
        return self._add(b, part + "_residual", x, y)

    def _parallel(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """x + attention(norm x) + ffn(norm x)."""
        h = self._norm(b, "norm", x)
        g = self._norm(b, "ffn_norm", x) if self.parallel == "two_norms" else h
        a = self._apply(b, h, ctx, "attention" if self.attention is not None else "mixer")
        return self._add(b, "residual", x, b.map("branches", "add", a, self._apply(b, g, ctx, "ffn")))

    def _apply(self, b: Builder, h: Tensor, ctx: Context, part: str) -> Tensor:
        with b.part(PARTS[part]):
            if part == "cross_attention" and self.cross_attention is not None:
                return self.cross_attention.lower_cross(b, h, ctx)
            block: BlockSpec = getattr(self, part)
            result = block.lower(b, h, ctx)
            if self.branch_conv is not None:
                result = convolved(b, part + "_conv", result, "D", ctx, self.branch_conv)
        if part == "attention" and self.mixer is not None:
            with b.part(PARTS["mixer"]):
                beside = self.mixer.lower(b, h, ctx)
            return b.map("mixed", "add", result, beside)
        return result

    def _norm(self, b: Builder, name: str, x: Tensor, norm: Norm | None = None) -> Tensor:
        norm = norm or self.norm
        return x if norm is None else norm.lower(b, name, x)

    def _add(self, b: Builder, name: str, x: Tensor, y: Tensor) -> Tensor:
        scales: dict[str, Any] = {"left": self.residual_scale, "right": self.branch_scale}
        return b.map(name, "add", x, y, **{k: v for k, v in scales.items() if v != 1.0})


def lower_layers(b: Builder, x: Tensor, ctx: Context, layers: tuple[Layer, ...]) -> Tensor:
    """One layer or group after another."""
    for i, layer in enumerate(layers):
        x = layer.lower(b, x, ctx, layer_name(layers, i))
    return x


def check_names(layers: tuple[Layer, ...]) -> None:
    """Refuses two neighbours of one name: weights belong to a name, so they would be counted once."""
    names = [layer_name(layers, i) for i in range(len(layers))]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InvalidBlock(f"two layers side by side are named {twice}; give each a name of its own")


def layer_name(layers: tuple[Layer, ...], i: int) -> str:
    """What the i-th of these layers is called in a graph."""
    return layers[i].name or f"layers{'' if len(layers) == 1 else i}"


def depth(layers: tuple[Layer, ...], path: str, index: Mapping[str, int], prefix: str = "") -> int:
    """How many layers run before the one that the block `path` is in, at the repetitions `index` of all blocks."""
    before = 0
    for i, layer in enumerate(layers):
        name, inner = prefix + layer_name(layers, i), layer.layers or ()
        size = count_layers(inner) if inner else 1
        if f"{path}.".startswith(name + "."):
            return before + index[name] * size + depth(inner, path, index, name + ".")
        before += layer.repeat * size
    return before


def walk_layers(layers: tuple[Layer, ...]) -> list[Layer]:
    """Every distinct layer once, groups opened."""
    return [leaf for layer in layers for leaf in (walk_layers(layer.layers) if layer.layers else [layer])]


def count_layers(layers: tuple[Layer, ...]) -> int:
    """Layers of a stack, repetitions counted."""
    return sum(layer.repeat * (count_layers(layer.layers) if layer.layers else 1) for layer in layers)
