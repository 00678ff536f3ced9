"""Latent attention with sinks and a gate behind streams that stay apart, and with experts that pass through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import backend_families_2026 as latent_families
import backend_families_sparse as stream_families
from backend_parity import COMMON, NORMS, SWIGLU, UNTIED, D, Entry, F, Family, N, imported, renamed

if TYPE_CHECKING:
    from backend_parity import Table

LAYERS, MLP, WIDTH = "model.layers.{i}.", "model.layers.{i}.mlp.", 24


def _hy4() -> Family:
    """Three streams, an indexer that serves the layers behind it, bounded experts."""
    a = LAYERS + "self_attn."
    settings = COMMON | {
        "num_hidden_layers": 3, "q_lora_rank": 10, "kv_lora_rank": latent_families.RANK,
        "v_head_dim": latent_families.VALUE,
        "qk_nope_head_dim": latent_families.NOPE, "qk_rope_head_dim": latent_families.ROPE, "num_key_value_heads": N,
        "indexer_types": ["full", "shared", "full"], "index_topk": 16, "index_n_heads": 2, "index_head_dim": 8,
        "mlp_layer_types": ["dense", "sparse", "sparse"], "moe_intermediate_size": WIDTH, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "hc_mult": stream_families.STREAMS, "swiglu_limit": 0.5,
        "hc_magnitude": 1.5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    own: Table = {"attention.w_gate": a + "gate_proj.weight", "attention.sinks": a + "sinks"}
    index: dict[str, Entry] = {
        "w_q": "wq_b.weight", "w_k": "wk.weight", "w_weights": "weights_proj.weight",
        "k_norm": "k_norm.weight", "k_norm_bias": "k_norm.bias",
    }  # fmt: skip
    router = {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    shared = {f"moe.shared.w_{n}": f"{MLP}shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    top = UNTIED | {
        "hyper_head.w_mix": ("model.hc_head.hc_fn", stream_families.by_stream),
        "hyper_head.base": "model.hc_head.hc_base", "hyper_head.scale": "model.hc_head.hc_scale",
    }  # fmt: skip
    return imported(
        "HYV4ForCausalLM", "hy_v4", settings, top, latent_families.latent_table(a), own, NORMS, SWIGLU, router, shared,
        renamed(index, "attention.indexer.", a + "indexer."), stream_families.routed(MLP + "experts."),
        stream_families.hyper_site("attention_hyper", LAYERS + "attn_hc."),
        stream_families.hyper_site("ffn_hyper", LAYERS + "ffn_hc."),
    )  # fmt: skip


def _scaled(entry: Entry, factor: float) -> Entry:
    """A weight times a number."""
    assert isinstance(entry, str)
    return entry, lambda w: w * factor


def _known(entry: Entry) -> Entry:
    """The matrices of experts that have some: transformers allots two of the three to the others too."""
    assert not isinstance(entry, str)
    name, pick = entry
    return name, lambda w: pick(w[:8])


def _longcat() -> Family:
    """Two attentions to one set of experts, some of which give back what they get."""
    tables = []
    for j in (0, 1):
        a = f"{LAYERS}self_attn.{j}."
        found = dict(latent_families.latent_table(a))
        scales = {"q_norm": 10, "kv_norm": latent_families.RANK}
        found |= {f"attention.{n}": _scaled(found[f"attention.{n}"], (D / rank) ** 0.5) for n, rank in scales.items()}
        part = "ffn" if j else "moe.dense"
        found |= {f"{part}.w_{n}": f"{LAYERS}mlps.{j}.{n}_proj.weight" for n in ("gate", "up", "down")}
        found |= {"attention_norm": f"{LAYERS}input_layernorm.{j}.weight",
                  "ffn_norm": f"{LAYERS}post_attention_layernorm.{j}.weight"}  # fmt: skip
        tables.append(found)
    tables[0] |= {"moe.w_router": MLP + "router.classifier.weight",
                  "moe.selection_bias": MLP + "router.e_score_correction_bias"}  # fmt: skip
    experts = stream_families.routed(MLP + "experts.", WIDTH)
    tables[0] |= {ours: _known(entry) for ours, entry in experts.items()}
    settings = {
        "hidden_size": D, "vocab_size": 64, "num_attention_heads": N, "num_layers": 1, "ffn_hidden_size": F,
        "q_lora_rank": 10, "kv_lora_rank": latent_families.RANK, "qk_nope_head_dim": latent_families.NOPE,
        "qk_rope_head_dim": latent_families.ROPE, "v_head_dim": latent_families.VALUE, "moe_topk": 3,
        "head_dim": latent_families.ROPE, "n_routed_experts": 8, "zero_expert_num": 4, "expert_ffn_hidden_size": WIDTH,
        "max_position_embeddings": 128, "attn_implementation": "eager", "routed_scaling_factor": 2.0,
    }  # fmt: skip
    layers = {name: ([0], table) for name, table in zip(("experts", "dense"), tables, strict=True)}
    return imported("LongcatFlashForCausalLM", "longcat_flash", settings, UNTIED, {}, layers=layers)


FAMILIES: dict[str, Family] = {"hy4": _hy4(), "longcat": _longcat()}
"""Every family by name."""
