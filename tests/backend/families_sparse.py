"""Attention over chosen blocks of keys, compressed keys, differences of two attentions, several streams."""

from __future__ import annotations

from backend_parity import (
    COMMON,
    HEAD_NORMS,
    NORMS,
    UNTIED,
    Entry,
    F,
    Family,
    Table,
    attention,
    columns,
    imported,
    renamed,
    stacked,
)

LAYERS, MLP, WIDTH = "model.layers.{i}.", "model.layers.{i}.mlp.", 24


def gate_and_up(theirs: str, width: int) -> dict[str, Entry]:
    """Gate and up in one matrix, and down."""
    return {
        "w_gate": (theirs + "gate_up_proj.weight", columns(0, width)),
        "w_up": (theirs + "gate_up_proj.weight", columns(width, 2 * width)),
        "w_down": theirs + "down_proj.weight",
    }  # fmt: skip


def routed(theirs: str, width: int = WIDTH) -> Table:
    """Experts, their gates and ups in one tensor."""
    return {
        "moe.w_gate": (theirs + "gate_up_proj", stacked(0, width)),
        "moe.w_up": (theirs + "gate_up_proj", stacked(width, 2 * width)),
        "moe.w_down": (theirs + "down_proj", lambda w: w.transpose(1, 2)),
    }  # fmt: skip


def _minimax_m3() -> Family:
    """Two of the blocks of four keys, chosen for each key/value head, the query's own among them."""
    settings = COMMON | {
        "intermediate_size": WIDTH, "dense_intermediate_size": F, "shared_intermediate_size": WIDTH,
        "num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 4, "head_dim": 8, "index_n_heads": 2,
        "index_head_dim": 6, "index_block_size": 4, "index_topk_blocks": 2, "index_local_blocks": 1,
        "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "mlp_layer_types": ["dense", "sparse", "sparse"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    index = {"w_q": "q_proj.weight", "w_k": "k_proj.weight"} | HEAD_NORMS
    return imported(
        "MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", settings, UNTIED, attention(**HEAD_NORMS), NORMS,
        renamed(index, "attention.indexer.", LAYERS + "self_attn.indexer."), routed(MLP + "experts."),
        renamed(gate_and_up("", F), "ffn.", MLP),
        renamed(gate_and_up("", WIDTH), "moe.shared.", MLP + "shared_experts."),
        {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"},
    )  # fmt: skip


FAMILIES: dict[str, Family] = {"minimax-m3": _minimax_m3()}
"""Every family by name."""
