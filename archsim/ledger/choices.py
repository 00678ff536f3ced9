"""What a model chose: norm, positions, activation, attention, block and experts, read from its spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from archsim.blocks.block import NO_POSITION as NO_ENCODING
from archsim.blocks.layer import Layer, walk_layers
from archsim.spec.model import Model

PLACEMENTS: Mapping[str, str] = {
    "pre": "Pre", "post": "Post", "post_inside": "Inside", "pre+post": "Pre+Post",
    "residual_after_norm": "After-norm residual",
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
        activation=_distinct(part.activation_label for ffn in ffns for part in ffn.networks),
        attention=_distinct(_attentions(layers)),
        block=_distinct("Parallel" if layer.parallel else "Serial" for layer in layers),
        moe=_distinct(ffn.label for ffn in ffns if ffn.experts) or (DENSE,),
    )  # fmt: skip


def all_layers(model: Model) -> list[Layer]:
    """Every distinct layer of the main stack and, before it, of the encoder."""
    encoder = walk_layers(model.encoder.layers) if model.encoder is not None else []
    return [*encoder, *walk_layers(model.layers)]


def _norms(layers: Iterable[Layer]) -> Iterator[str]:
    for layer in layers:
        if layer.norm is not None:
            yield f"{PLACEMENTS[layer.placement]} {layer.norm.names(layer.norm.kind).label}"


def _positions(model: Model, layers: Iterable[Layer]) -> Iterator[str]:
    """Absolute positions, else those inside attention; layers without any count where no table helps them."""
    absolute = model.embedding.positions
    if absolute is not None:
        yield absolute.names(absolute.kind).label
    for attention in (layer.attention for layer in layers):
        if attention is not None and attention.encoding is not NO_ENCODING:
            yield attention.encoding.names(attention.encoding.kind).label
        elif attention is not None and absolute is None:
            yield NO_POSITION


def _attentions(layers: Iterable[Layer]) -> Iterator[str]:
    return (block.label for layer in layers for block in (layer.attention, layer.mixer) if block is not None)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
