"""Gemma 4 in GGUF files: what its layers have beyond those of others. Experts beside a dense layer are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.importers.gguf.reader import TensorInfo
from archsim.importers.hf.families.gemma3n import segments
from archsim.importers.hf.pattern import Entry, difference, shared, stack

if TYPE_CHECKING:
    from archsim.importers.gguf.layers import Layers

Doc = JsonObject
ARCHITECTURE = "gemma4"


def entry(layers: Layers, i: int, made: Entry) -> Entry:
    """A layer with norms of heads and values, and its embedding of the token."""
    name, layer = ("local" if made[0] == "local" else "global"), dict(made[1])
    norm = layers.norm(f"blk.{i}.attn_q_norm")
    if norm is None or "attention" not in layer:
        raise SpecError(f"layer {i} has no attention with normed queries", code="E109")
    layer["attention"] = layer["attention"] | {"scale": 1.0, "qk_norm": norm | {"value": True}}
    if layers.has(i, "inp_gate"):
        added = layers.norm(f"blk.{i}.post_norm")
        layer["per_layer_input"] = {"d": layers.shape(i, "inp_gate")[1], "norm": added}
    return name, layer


def stacked(entries: Sequence[Entry], readers: int) -> Doc:
    """The layers; the last `readers` of them have no keys and values, but read those of the last that has."""
    if not readers:
        return stack(entries)
    own = len(entries) - readers
    if own < 1 or not {name for name, _ in entries[own:]} <= {name for name, _ in entries[:own]}:
        raise SpecError(f"{readers:,} layers share keys and values that no layer has", code="E110")
    base = shared([layer for _, layer in entries])
    return {"layer": base, "layers": segments([(n, difference(layer, base)) for n, layer in entries], own)}


def check(tensors: Mapping[str, TensorInfo]) -> None:
    """Refuses the variant with experts."""
    if any(name.endswith("ffn_gate_inp.weight") for name in tensors):
        reason = "experts with norms of their own beside a dense layer cannot be expressed"
        raise SpecError(f"gguf architecture `{ARCHITECTURE}`: {reason}", code="E112")


def table(layers: Layers, tensors: Mapping[str, TensorInfo]) -> Doc:
    """The embedding: scaled, and with a small one for every layer where the file has it."""
    found: Doc = {"scale": "sqrt_d_model"}
    rows = tensors.get("per_layer_token_embd.weight")
    norm = layers.norm("per_layer_proj_norm")
    gates = [name for name in tensors if name.endswith(".inp_gate.weight")]
    if rows is None and norm is None and not gates:
        return found
    if rows is None or norm is None or "per_layer_model_proj.weight" not in tensors:
        raise SpecError("the file has embeddings per layer in part only", code="E109")
    return found | {
        "per_layer": {"d": layers.shape(0, "inp_gate")[1], "vocab_size": rows.shape[-1], "norm": norm}
    }
