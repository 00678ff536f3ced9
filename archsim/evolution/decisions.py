"""The decisions that make an architecture, and the order in which they are told; classes say which fields each sets.

The order is the one in which the transformer of 2017 became today's: position, norms, biases, activation, attention,
experts, vocabulary, sizes, context, format.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from archsim.blocks.dispatch import Spec

TITLES: Mapping[str, str] = {
    "stacks": "encoder and decoder",
    "front": "what the encoder reads",
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
    "attention": "attention",
    "latent": "latent attention",
    "latent_sizes": "latent sizes",
    "query_latent": "query latent",
    "short_convolutions": "short convolutions",
    "ngram_embedding": "n-gram embedding",
    "compression": "entries of several tokens",
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
    "dense_beside": "dense network alongside experts",
    "image_experts": "experts of image tokens",
    "latent_experts": "latent width of experts",
    "router": "router",
    "capacity": "expert capacity",
    "altup": "parallel streams",
    "hyper_connections": "hyper-connections",
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

MERGED: Mapping[str, frozenset[str]] = {
    "position": frozenset({"position", "positions"}),
    "mixing": frozenset({"attention", "mixer"}),
}
"""Decision -> its fields of which a layer has one or the other."""

HIDDEN: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("encoder", "cross_attention", "head"), frozenset({"architecture"})
)
"""Field -> the fields that say the same where they change too."""

WHOLE = frozenset({"mtp", "towers", "weights", "mlm_head", "per_layer", "per_layer_input", "altup", "hyper", "laurel",
                   "router", "indexer", "gate", "scaling", "mask", "temperature"})  # fmt: skip
"""Fields that are taken whole from one side."""


def decision_of(owner: type[Spec], field: str, holder: str = "") -> str:
    """The decision that sets a field of a class; of a class that states none, that of the field that `holder` is."""
    return owner.decisions.get(field) or owner.decisions.get("*") or holder or field


def decision_of_class(owner: type[Spec], field: str, one: type[Spec], two: type[Spec], presence: str) -> str:
    """The decision that changes a field's spec from class `one` to class `two`; `presence` sets if there is one."""
    return two.kind_decision or one.kind_decision or owner.decisions.get(f"{field}.kind") or presence


def title_of(decision: str) -> str:
    """What a decision is called; one that a new class brings along by its own name."""
    return TITLES.get(decision, decision.replace("_", " "))


def in_order(decisions: Collection[str]) -> tuple[str, ...]:
    """Decisions in the order of the story, those that new classes bring along last."""
    return (*(name for name in TITLES if name in decisions), *sorted(set(decisions) - set(TITLES)))
