"""The decisions that make an architecture: which fields of a spec each of them sets, and in which order they are told.

The order is the one in which the transformer of 2017 became today's: position, norms, biases, activation, attention,
experts, vocabulary, sizes, context, format.
"""

from __future__ import annotations

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "stacks": "encoder and decoder",
    "position": "position encoding",
    "rope": "rotary embedding",
    "norm_type": "norm",
    "norm_place": "norm placement",
    "embedding_norm": "norm of the embedding",
    "qk_norm": "norm of queries and keys",
    "parallel": "parallel branches",
    "residual": "residual scaling",
    "biases": "biases",
    "gating": "gated feed-forward",
    "activation": "activation",
    "heads": "attention heads",
    "head_size": "head size",
    "sharing": "shared key/value heads",
    "latent": "latent attention",
    "latent_sizes": "latent sizes",
    "query_latent": "query latent",
    "indexer": "sparse attention",
    "keys_as_values": "keys as values",
    "cache_sharing": "caches shared by layers",
    "windows": "attention mask",
    "mixing": "token mixing",
    "mixer_sizes": "recurrent mixer",
    "attention_extras": "attention scores",
    "attention_gate": "attention gate",
    "ffn": "feed-forward network",
    "experts": "experts",
    "expert_count": "number of experts",
    "top_k": "experts per token",
    "expert_width": "expert width",
    "shared_experts": "shared experts",
    "dense_beside": "dense network beside experts",
    "router": "router",
    "capacity": "expert capacity",
    "altup": "parallel streams",
    "laurel": "low-rank residual",
    "per_layer": "per-layer embeddings",
    "weight_sharing": "weights shared by layers",
    "vocabulary": "vocabulary",
    "tying": "tied output matrix",
    "embedding": "embedding",
    "segments": "segment embedding",
    "logits": "logits",
    "pooler": "pooler",
    "mlm_head": "pre-training head",
    "depth": "depth",
    "encoder_depth": "depth of the encoder",
    "width": "width",
    "d_ff": "feed-forward width",
    "context": "context",
    "format": "format",
    "mtp": "multi-token prediction",
    "towers": "vision and audio towers",
}
"""Decision -> what it is called, in the order of the story."""

_NETWORK = {"gated": "gating", "bias": "biases", "*": "activation"}

FIELDS: Mapping[str, Mapping[str, str]] = {
    "Model": {
        "d_model": "width", "vocab_size": "vocabulary", "max_context": "context", "architecture": "stacks",
        "encoder": "stacks", "head": "stacks", "final_norm": "norm_place", "embedding": "embedding",
        "pooler": "pooler", "mlm_head": "mlm_head", "mtp": "mtp", "towers": "towers", "weights": "format",
    },
    "Stack": {"final_norm": "norm_place", "embedding": "embedding"},
    "Head": {"tied": "tying", "bias": "biases", "*": "logits"},
    "Embedding": {
        "rows": "vocabulary", "norm": "embedding_norm", "positions": "position", "token_types": "segments",
        "per_layer": "per_layer", "*": "embedding",
    },
    "Positions": {"max": "context", "offset": "context", "*": "position"},
    "Layer": {
        "shared_weights": "weight_sharing", "parallel": "parallel", "residual_scale": "residual",
        "branch_scale": "residual", "altup": "altup", "laurel": "laurel", "per_layer_input": "per_layer",
        "attention": "mixing", "mixer": "mixing", "cross_attention": "stacks", "ffn": "ffn", "*": "norm_place",
    },
    "Norm": {"*": "norm_type"},
    "QkNorm": {"*": "qk_norm"},
    "LatentNorm": {"*": "latent_sizes"},
    "Attention": {
        "n_heads": "heads", "d_head": "head_size", "d_head_v": "head_size", "n_kv_heads": "sharing",
        "qkv_bias": "biases", "out_bias": "biases", "qk_norm": "qk_norm", "position": "position",
        "mask": "windows", "global_projections": "windows", "kv_from": "cache_sharing",
        "keys_as_values": "keys_as_values", "gate": "attention_gate", "*": "attention_extras",
    },
    "Mla": {
        "n_heads": "heads", "bias": "biases", "position": "position", "mask": "windows",
        "q_rank": "query_latent", "indexer": "indexer", "*": "latent_sizes",
    },
    "MaskSpec": {"*": "windows"},
    "Indexer": {"*": "indexer"},
    "Gate": {"*": "attention_gate"},
    "Rope": {"*": "rope"},
    "Ffn": {"d_ff": "d_ff", **_NETWORK},
    "Expert": {"d_ff": "expert_width", **_NETWORK},
    "Shared": {**_NETWORK, "d_ff": "shared_experts", "n": "shared_experts", "gate": "shared_experts"},
    "Beside": {"d_ff": "dense_beside", **_NETWORK},
    "Moe": {
        "n_experts": "expert_count", "top_k": "top_k", "expert": "experts", "shared": "shared_experts",
        "dense": "dense_beside", "router": "router", "capacity": "capacity", "capacity_factor": "capacity",
    },
    "Router": {"*": "router"},
    **{name: {"*": "position"} for name in ("Alibi", "T5Bias", "TransformerXl", "Deberta")},
    **{
        name: {"*": "mixer_sizes"}
        for name in ("Mamba", "Mamba2", "Lightning", "GatedDeltaNet", "RgLru", "ShortConv")
    },
    "AltUp": {"*": "altup"},
    "Laurel": {"*": "laurel"},
    "PerLayerInput": {"*": "per_layer"},
}  # fmt: skip
"""Class -> its fields -> the decision that sets each; `*` stands for all others. Of a field that holds a spec, the
decision is whether there is one."""

KIND: Mapping[str, str] = {"attention": "latent", "cross_attention": "latent", "ffn": "experts"}
"""Field -> the decision that sets which kind of block it holds, where that is not the one of its presence."""

WORDS: Mapping[str, str] = {
    **dict.fromkeys((
        "kind", "activation", "attention", "ffn", "mask", "layers", "weights", "position", "positions", "d_model",
        "vocab_size", "max_context", "n_heads", "d_head", "n_kv_heads", "q_rank", "mtp", "towers", "shared", "router",
        "qk_norm", "n_experts", "top_k", "tied", "parallel", "gated", "indexer", "gate", "pooler", "mlm_head", "mixer",
        "placement", "architecture", "d_ff", "dense", "altup", "laurel", "per_layer", "per_layer_input", "kv_from",
        "token_types", "shared_weights", "keys_as_values", "Embedding.norm", "capacity", "expert",
    ), ""),
    "qkv_bias": "q/k/v", "out_bias": "output", "Mla.bias": "q/k/v", "Ffn.bias": "feed-forward",
    "Expert.bias": "feed-forward", "Shared.bias": "feed-forward", "Beside.bias": "feed-forward", "Head.bias": "logits",
    "Embedding.positions": "positions", "Positions.max": "position table", "Positions.offset": "offset of the table",
    "Shared.d_ff": "width", "Shared.n": "number", "Shared.gate": "gate", "rows": "rows of the table",
    "factor": "width of the table", "eps": "epsilon", "affine": "learned scale", "Norm.offset": "weights around one",
    "QkNorm.offset": "weights around one", "d_head_v": "of the values", "dim": "rotated dimensions",
    "interleaved": "pairs interleaved", "residual_scale": "residual", "branch_scale": "branch",
}  # fmt: skip
"""Field, or class and field -> what it is called beside the title of its decision, where not by its name."""

MERGED: Mapping[str, frozenset[str]] = {
    "position": frozenset({"position", "positions"}),
    "mixing": frozenset({"attention", "mixer"}),
}
"""Decision -> its fields of which a layer has one or the other."""

HIDDEN: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("encoder", "cross_attention", "head"), frozenset({"architecture"})
)
"""Field -> the fields that say the same where they change too."""

WHOLE = frozenset({"mtp", "towers", "weights", "mlm_head", "per_layer", "per_layer_input", "altup", "laurel", "router",
                   "indexer", "gate", "scaling", "mask", "temperature"})  # fmt: skip
"""Fields that are taken whole from one side."""


def decision(owner: str, field: str) -> str:
    """The decision that sets a field of a class."""
    fields = FIELDS.get(owner, {})
    return fields.get(field) or fields.get("*") or "embedding"
