"""What a comparison with transformers needs: a configuration, our spec, and which weight is which.

A table maps our names to those of the state dict, `{i}` standing for the layer. Matrices of ours whose name
starts with `w_` are (in, out) where transformers stores (out, in): they are transposed, then reshaped. A pair
(name, function) takes its own way instead; a list of entries is stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from archsim.backend import build
from archsim.backend.module import Net
from archsim.blocks.layer import Layer, depth, layer_name
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.model import Model

Entry = str | tuple[str, Callable[[Tensor], Tensor]] | list[str]
Table = Mapping[str, Entry]

RMS = {"kind": "rmsnorm", "eps": 1e-6}
UNIT = {"kind": "rmsnorm", "eps": 1e-6, "offset": True}
LAYER = {"kind": "layernorm", "eps": 1e-5}
ROPE = {"kind": "rope", "theta": 10000.0}
D, VOCAB, F, N = 32, 64, 48, 4


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family. layers: for each group of ours the layers it holds over there, in order, with its table.
    extra: more inputs for transformers' model, by the ids. sound: inputs by the frames of a sound. unused: weights of
    it that no result depends on.
    """

    config: str
    model: str
    settings: Mapping[str, Any]
    spec: Mapping[str, Any] | Model
    top: Table
    layers: Mapping[str, tuple[Sequence[int], Table]] = field(default_factory=dict)
    extra: Callable[[Tensor], dict[str, Any]] = lambda ids: {}
    sound: Callable[[Tensor], dict[str, Any]] | None = None
    unused: frozenset[str] = frozenset()


def imported(
    name: str, model_type: str, settings: Mapping[str, Any], top: Table, *tables: Table, **more: Any
) -> Family:
    """A family whose spec is what its configuration is read as; tables name the weights of any of its layers."""
    known = {k: v for k, v in settings.items() if k != "attn_implementation"}
    model = model_from(from_config({"model_type": model_type, **known}, "x"), changes=more.pop("changes", ()))
    config = type(AutoConfig.for_model(model_type)).__name__
    merged: dict[str, Entry] = {}
    for table in tables:
        merged |= table
    found = groups(model, model.layers, merged) | more.pop("layers", {})
    return Family(config=config, model=name, settings=settings, spec=model, top=top, layers=found, **more)


def groups(model: Model, layers: tuple[Layer, ...], table: Table, prefix: str = "") -> dict[str, Any]:
    """Every group of `layers`, with its layers in order and the part of `table` that it has weights for."""
    weights, found = build(model).weights(), {}
    for path, repeats in _leaves(layers):
        loops = list(repeats)
        indices = [
            depth(layers, path, dict(zip(loops, at, strict=True)))
            for at in product(*(range(n) for n in repeats.values()))
        ]
        own = {ours: entry for ours, entry in table.items() if f"{prefix}{path}.{ours}" in weights}
        found[prefix + path] = (indices, own)
    return found


def _leaves(layers: tuple[Layer, ...], around: Mapping[str, int] = MappingProxyType({})) -> Iterator[Any]:
    """Path and repetitions, those around it included, of every layer that is no group."""
    for i, layer in enumerate(layers):
        path = ".".join([*list(around)[-1:], layer_name(layers, i)])
        repeats = {**around, path: layer.repeat}
        yield from _leaves(layer.layers, repeats) if layer.layers else [(path, repeats)]


def columns(start: int, stop: int) -> Callable[[Tensor], Tensor]:
    """Rows start to stop of an (out, in) matrix or a bias, as (in, out)."""
    return lambda w: w[start:stop].T if w.ndim == 2 else w[start:stop]


def per_head(part: int, parts: int, heads: int = N) -> Callable[[Tensor], Tensor]:
    """One of `parts` projections that are interleaved head by head in one matrix."""

    def pick(w: Tensor) -> Tensor:
        rows = w.reshape(heads, parts, -1, *w.shape[1:])[:, part].flatten(0, 1)
        return rows.T if w.ndim == 2 else rows

    return pick


def stacked(start: int, stop: int) -> Callable[[Tensor], Tensor]:
    """Rows start to stop of every expert's (out, in) matrix, as (in, out)."""
    return lambda w: w[:, start:stop].transpose(1, 2)


def renamed(table: Table, ours: str, theirs: str) -> dict[str, Entry]:
    """A table with a prefix on either side."""

    def longer(entry: Entry) -> Entry:
        if isinstance(entry, list):
            return [theirs + one for one in entry]
        return theirs + entry if isinstance(entry, str) else (theirs + entry[0], entry[1])

    return {ours + name: longer(entry) for name, entry in table.items()}


def projections(names: str = "q k v o", suffix: str = "_proj", bias: str = "") -> dict[str, Entry]:
    """The four matrices of attention, and biases of those listed."""
    weights: dict[str, Entry] = {f"w_{n}": f"{n}{suffix}.weight" for n in names.split()}
    return weights | {f"b_{n}": f"{n}{suffix}.bias" for n in bias.split()}


def attention(bias: str = "", **extra: str) -> dict[str, Entry]:
    """Self-attention as Llama names it."""
    return renamed(projections(bias=bias) | extra, "attention.", "model.layers.{i}.self_attn.")


SWIGLU: Table = renamed({f"w_{n}": f"{n}_proj.weight" for n in ("gate", "up", "down")}, "ffn.", "model.layers.{i}.mlp.")
NORMS: Table = {
    "attention_norm": "model.layers.{i}.input_layernorm.weight",
    "ffn_norm": "model.layers.{i}.post_attention_layernorm.weight",
}
FOUR_NORMS: Table = {
    "attention_norm": "model.layers.{i}.input_layernorm.weight",
    "attention_post_norm": "model.layers.{i}.post_attention_layernorm.weight",
    "ffn_norm": "model.layers.{i}.pre_feedforward_layernorm.weight",
    "ffn_post_norm": "model.layers.{i}.post_feedforward_layernorm.weight",
}
TIED: Table = {"embedding.tokens": "model.embed_tokens.weight", "final_norm": "model.norm.weight"}
UNTIED: Table = {**TIED, "head.w_logits": "lm_head.weight"}
HEAD_NORMS = {"q_norm": "q_norm.weight", "k_norm": "k_norm.weight"}

COMMON: dict[str, Any] = {
    "hidden_size": D,
    "vocab_size": VOCAB,
    "intermediate_size": F,
    "num_attention_heads": N,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}

PLAIN = {
    "hidden_size": D,
    "vocab_size": VOCAB,
    "intermediate_size": F,
    "num_attention_heads": N,
    "num_hidden_layers": 3,
    "attn_implementation": "eager",
}
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
HALF_ROPE = {"kind": "rope", "dim": D // N // 2}
MLP = {"kind": "mlp", "d_ff": F, "bias": True}


def gqa(**fields: Any) -> dict[str, Any]:
    """Four query heads, two key/value heads."""
    base = {"kind": "gqa", "n_heads": N, "n_kv_heads": 2, "d_head": D // N, "position": ROPE}
    return base | fields


def mha(**fields: Any) -> dict[str, Any]:
    """Four heads."""
    return {"kind": "mha", "n_heads": N, "d_head": D // N} | fields


def layer(**fields: Any) -> dict[str, Any]:
    """Three pre-norm layers with a SwiGLU."""
    return {"repeat": 3, "norm": RMS, "ffn": {"kind": "swiglu", "d_ff": F}} | fields


def spec(*layers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A model document."""
    base = {"name": "x", "d_model": D, "vocab_size": VOCAB, "layers": list(layers), "final_norm": RMS}
    return base | fields


def one(*tables: Table, count: int = 3) -> dict[str, tuple[Sequence[int], Table]]:
    """All layers in one group."""
    merged: dict[str, Entry] = {}
    for table in tables:
        merged |= table
    return {"layers": (range(count), merged)}


def rope(kind: str, **scaling: Any) -> dict[str, Any]:
    """Scaled rotation by 4 from 32 tokens."""
    return ROPE | {"scaling": {"kind": kind, "factor": 4.0, "original_max": 32} | scaling}


def scaled(kind: str, **parameters: Any) -> dict[str, Any]:
    """The same for transformers."""
    base = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    return COMMON | {"rope_parameters": base | parameters}


def affine(ours: str, theirs: str) -> dict[str, Entry]:
    """A LayerNorm's weight and bias."""
    return {ours: theirs + ".weight", ours + "_bias": theirs + ".bias"}


def dense(prefix: str, names: dict[str, str], bias: bool = True) -> dict[str, Entry]:
    """Linear maps, by our names and theirs, and their biases."""
    weights: dict[str, Entry] = {f"{prefix}w_{a}": f"{b}.weight" for a, b in names.items()}
    return weights | ({f"{prefix}b_{a}": f"{b}.bias" for a, b in names.items()} if bias else {})


def split(prefix: str, theirs: str, pick: Callable[[int], Any], bias: bool = True) -> dict[str, Entry]:
    """Queries, keys and values out of one matrix (and bias)."""
    kinds = (("w", "weight"), ("b", "bias")) if bias else (("w", "weight"),)
    return {f"{prefix}{k}_{n}": (f"{theirs}.{end}", pick(i)) for i, n in enumerate("qkv") for k, end in kinds}


def unhidden(kind: Any, config: Any) -> nn.Module:
    """A transformers model with weights that no default would hide: norms off one, biases off zero."""
    config._experts_implementation = "eager"  # torch has no FLOP formula for its grouped product
    model: nn.Module = kind(config).eval()
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if isinstance(p, nn.Parameter) or "correction_bias" in name:
            p.normal_(0.0, 0.15)
            if "norm" in name.lower() and "weight" in name:
                p.add_(1.0)
        elif name.endswith("tid2eid"):  # the experts of every token
            p.copy_(torch.rand(len(p), 8).argsort(-1)[:, : p.shape[1]])
    return model


def copy_weights(net: Net, family: Any, state: dict[str, Tensor]) -> set[str]:
    """Fill every weight of `net` from a state dict; returns the names that were used."""
    used: set[str] = set()

    def find(entry: Any, i: int, matrix: bool) -> Tensor:
        if isinstance(entry, list):
            return torch.stack([find(one, i, matrix) for one in entry])
        name, change = entry if isinstance(entry, tuple) else (entry, None)
        used.add(name.format(i=i))
        x = state[name.format(i=i)]
        return change(x) if change else x.T if matrix and x.ndim == 2 else x

    groups = [("", (0,), family.top), *((f"{g}.", *rest) for g, rest in family.layers.items())]
    missing = set(net.weights())
    for prefix, indices, table in groups:
        for ours, entry in table.items():
            matrix = ours.split(".")[-1].startswith("w_") and ours != "head.w_logits"
            x = torch.stack([find(entry, i, matrix) for i in indices])
            weight = net.weight(prefix + ours)
            assert x.numel() == weight.numel(), f"{ours}: {tuple(x.shape)} for {tuple(weight.shape)}"
            weight.copy_(x.reshape(weight.shape))
            missing.discard(prefix + ours)
    assert not missing, f"not filled: {sorted(missing)}"
    return used
