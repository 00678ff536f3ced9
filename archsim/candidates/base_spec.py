"""The spec that candidates are made from: what all of them have, with a layer whose sizes are left open."""

from __future__ import annotations

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.blocks.layer import Layer, walk_layers
from archsim.spec.model import Model

VOCABULARY = 128_256
"""Rows of the tables where no model is named: Llama 3's tokenizer."""

POSITION = {"kind": "rope", "theta": 500_000.0}
NORM = {"kind": "rmsnorm"}

USUAL: JsonObject = {
    "name": "design", "d_model": 1024, "vocab_size": VOCABULARY, "head": {"tied": False}, "final_norm": NORM,
    "layer": {"norm": NORM, "attention": {"position": POSITION}, "ffn": {"kind": "swiglu"}},
}  # fmt: skip
"""Llama's layers: norms before, rotary positions, gated feed-forward layers, tables apart."""

KEPT = ("embedding", "final_norm", "head", "vocab_size", "weights")
"""Fields of a model that candidates like it have."""

OF_ATTENTION = ("position", "qk_norm", "bias", "qkv_bias", "out_bias", "softcap", "sinks", "gate")
"""Fields of attention with heads of its own that do not hang on its sizes."""


def usual_spec(vocabulary: int = VOCABULARY) -> JsonObject:
    """A decoder as most are built."""
    return {**USUAL, "vocab_size": vocabulary}


def spec_like(model: Model) -> JsonObject:
    """A decoder with the norms, positions, activations and tables of a model. Raises UsageError for an encoder."""
    if model.architecture != "decoder":
        raise UsageError(f"{model.name} is not a decoder, which `--like` needs")
    document = model.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    leaves = [layer for layer in walk_layers(model.layers) if layer.attention is not None and layer.ffn is not None]
    if not leaves:
        raise UsageError(f"{model.name} has no layer with attention and a feed-forward network to be like")
    return {"name": f"like-{model.name}", "d_model": 1024, "layer": _layer(leaves[0])} | {
        name: document[name] for name in KEPT if name in document
    }


def _layer(layer: Layer) -> JsonObject:
    """A layer without its sizes."""
    found = layer.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    found = {name: value for name, value in found.items() if name not in ("name", "repeat", "shared_weights")}
    own = found["attention"] if "d_head" in found["attention"] else {"position": POSITION}
    ffn = found["ffn"].get("expert", found["ffn"])
    attention = {name: own[name] for name in OF_ATTENTION if name in own}
    return {**found, "attention": attention, "ffn": {"kind": ffn.get("kind", "swiglu"), **_plain(ffn)}}


def _plain(ffn: JsonObject) -> JsonObject:
    return {name: value for name, value in ffn.items() if name in ("bias", "activation")}
