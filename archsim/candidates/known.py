"""The dimensions of the catalog's decoders, as candidates have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from archsim.base.errors import ArchsimError
from archsim.blocks.layer import walk_layers
from archsim.spec.catalog import names
from archsim.spec.load import load_model
from archsim.spec.model import Model


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A model, and its dimensions by the names that candidates have for them."""

    model: str
    numbers: Mapping[str, int]


@cache
def known_shapes() -> tuple[KnownShape, ...]:
    """Every decoder of the catalog whose layers have attention of one size."""
    found = []
    for entry in names("models"):
        try:
            model = load_model(entry.name)
        except ArchsimError:
            continue
        numbers = shape_of(model)
        if numbers:
            found.append(KnownShape(entry.name, numbers))
    return tuple(found)


def shape_of(model: Model) -> dict[str, int]:
    """The dimensions of a decoder; nothing where its layers have several sizes, or no attention."""
    layers = walk_layers(model.layers)
    attention = [layer.attention for layer in layers if layer.attention is not None]
    sizes = {(a.n_heads, a.kv_heads, a.head_size) for a in attention}
    ffns = [layer.ffn for layer in layers if layer.ffn is not None]
    widths = {ffn.inner_width for ffn in ffns}
    if model.architecture != "decoder" or len(sizes) != 1 or len(attention) != len(layers) or not ffns:
        return {}
    ((heads, kv_heads, head),) = sizes
    found = {"d_model": model.d_model, "n_layers": model.n_layers, "d_head": head, "n_heads": heads}
    if attention[0].caches_heads:
        found["n_kv_heads"] = kv_heads
    experts = next((ffn.experts for ffn in ffns if ffn.experts), None)
    if experts is not None:
        return {**found, "n_experts": experts.total, "top_k": experts.per_token}
    return {**found, "d_ff": widths.pop()} if len(widths) == 1 else {}
