"""What a model chose: norm, positions, activation, attention, block and experts, read from its spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from archsim.blocks.layer import Layer, walk_layers
from archsim.spec.model import Model

PLACEMENTS: Mapping[str, str] = {
    "pre": "Pre", "post": "Post", "post_inside": "Inside", "pre+post": "Pre+Post",
    "residual_after_norm": "After-norm residual",
}  # fmt: skip
NORMS: Mapping[str, str] = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "l2norm": "L2Norm"}
POSITIONS: Mapping[str, str] = {
    "learned": "Learned Abs", "sinusoidal": "Sinusoidal", "rope": "RoPE", "alibi": "ALiBi", "t5": "Relative",
    "transformer_xl": "Relative", "xlnet": "Relative", "deberta": "Relative",
}  # fmt: skip
PLAIN: Mapping[str, str] = {
    "relu": "ReLU", "relu2": "ReLU²", "gelu": "GeLU", "gelu_tanh": "GeLU", "silu": "SiLU", "xielu": "xIELU",
    "tanh": "tanh", "sigmoid": "sigmoid",
}  # fmt: skip
GATED: Mapping[str, str] = {
    "relu": "ReGLU", "gelu": "GeGLU", "gelu_tanh": "GeGLU", "silu": "SwiGLU", "sigmoid": "GLU",
    "tanh": "tanh-GLU",
}  # fmt: skip
MIXERS: Mapping[str, str] = {
    "mamba": "Mamba", "mamba2": "Mamba-2", "lightning": "Lightning", "gated_delta_net": "Gated DeltaNet",
    "rg_lru": "RG-LRU", "short_conv": "Short conv",
}  # fmt: skip
NO_POSITION = "NoPE"
DENSE = "No"


class Choices(NamedTuple):
    """The values of one model, in the order of its layers; several where its layers differ."""

    norm: tuple[str, ...]
    position: tuple[str, ...]
    activation: tuple[str, ...]
    attention: tuple[str, ...]
    block: tuple[str, ...]
    moe: tuple[str, ...]

    def text(self, choice: str) -> str:
        """One choice as one text: `RoPE+NoPE`."""
        return "+".join(getattr(self, choice))


def choices(model: Model) -> Choices:
    """The choices of a model."""
    layers = all_layers(model)
    ffns = [layer.ffn for layer in layers if layer.ffn is not None]
    return Choices(
        norm=_distinct(_norms(layers)), position=_distinct(_positions(model, layers)),
        activation=_distinct(activation(part) for ffn in ffns for part in parts(ffn)),
        attention=_distinct(_attentions(layers)),
        block=_distinct("Parallel" if layer.parallel else "Serial" for layer in layers),
        moe=_distinct(experts(ffn) for ffn in ffns if ffn.kind == "moe") or (DENSE,),
    )  # fmt: skip


def all_layers(model: Model) -> list[Layer]:
    """Every distinct layer of the main stack and, before it, of the encoder."""
    encoder = walk_layers(model.encoder.layers) if model.encoder is not None else []
    return [*encoder, *walk_layers(model.layers)]


def parts(ffn: Any) -> list[Any]:
    """The plain feed-forward networks in a block: itself, or the experts and what stands beside them."""
    if ffn.kind != "moe":
        return [ffn]
    return [part for part in (ffn.expert, ffn.shared, ffn.dense) if part is not None]


def activation(ffn: Any) -> str:
    """The name of a feed-forward network's activation, gated or not."""
    known = GATED if ffn.gated else PLAIN
    return known.get(ffn.act, ffn.act)


def experts(moe: Any) -> str:
    """`256E+1/8act`: routed experts, those that every token uses, and how many are chosen."""
    shared = f"+{moe.shared.n}" if moe.shared is not None else ""
    return f"{moe.n_experts}E{shared}/{moe.top_k}act"


def sharing(attention: Any) -> str:
    """MHA, GQA, MQA or MLA, by the number of key/value heads rather than by the name in the spec."""
    if attention.kind == "mla":
        return "MLA"
    if attention.kv_heads == attention.n_heads:
        return "MHA"
    return "MQA" if attention.kv_heads == 1 else "GQA"


def _norms(layers: Iterable[Layer]) -> Iterator[str]:
    for layer in layers:
        if layer.norm is not None:
            yield f"{PLACEMENTS[layer.placement]} {NORMS[layer.norm.kind]}"


def _positions(model: Model, layers: Iterable[Layer]) -> Iterator[str]:
    """Absolute positions, else those inside attention; layers without any count where no table helps them."""
    absolute = model.embedding.positions
    if absolute is not None:
        yield POSITIONS[absolute.kind]
    for layer in layers:
        attention = layer.attention
        if attention is None:
            continue
        position = attention.position
        if position is not None:
            yield POSITIONS[position.kind]
        elif absolute is None:
            yield NO_POSITION


def _attentions(layers: Iterable[Layer]) -> Iterator[str]:
    for layer in layers:
        if layer.attention is not None:
            yield sharing(layer.attention)
        if layer.mixer is not None:
            yield MIXERS.get(layer.mixer.kind, layer.mixer.kind)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
