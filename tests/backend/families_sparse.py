"""Attention over chosen blocks of keys, compressed keys, differences of two attentions, several streams."""

from __future__ import annotations

from collections.abc import Callable

import torch
from backend_parity import (
    COMMON,
    HEAD_NORMS,
    NORMS,
    SWIGLU,
    UNTIED,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    attention,
    columns,
    imported,
    renamed,
    stacked,
)
from torch import Tensor

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


HEAD, TURNED, INDEX, RANK, GROUPS, RATIO = 8, 4, 6, 10, 2, 4
"""Widths of a head, of its rotated end, of an index head and of the query latent; output groups; tokens of an entry."""


def _turned_first(size: int, heads: int = 1) -> Callable[[Tensor], Tensor]:
    """Rows of `heads` heads of so many, whose rotated end comes first here."""

    def pick(w: Tensor) -> Tensor:
        rows = w.reshape(heads, size, *w.shape[1:])
        rows = torch.cat([rows[:, -TURNED:], rows[:, :-TURNED]], 1).flatten(0, 1)
        return rows.T if w.ndim == 2 else rows

    return pick


def _columns_first(size: int) -> Callable[[Tensor], Tensor]:
    """The same for tables whose last axis holds two series of `size`, or one."""

    def pick(w: Tensor) -> Tensor:
        columns = torch.unflatten(w, -1, (-1, size))
        return torch.cat([columns[..., -TURNED:], columns[..., :-TURNED]], -1).flatten(-2)

    return pick


def _compressor(theirs: str, size: int, series: int) -> Table:
    """Numbers, gates, positions and norm of a compressor."""
    return {
        "w_kv": (theirs + "kv_proj.weight", _turned_first(size, series)),
        "w_gate": (theirs + "gate_proj.weight", _turned_first(size, series)),
        "position_bias": (theirs + "position_bias", _columns_first(size)),
        "norm": (theirs + "kv_norm.weight", _turned_first(size)),
    }


def _output_down(w: Tensor) -> Tensor:
    """(groups x rank, heads of a group x head) as groups, heads, head, rank."""
    y = w.reshape(GROUPS, -1, N // GROUPS, HEAD)
    y = torch.cat([y[..., -TURNED:], y[..., :-TURNED]], -1)
    return y.permute(0, 2, 3, 1)


def by_stream(w: Tensor) -> Tensor:
    """A projection of all streams, as streams, width, results."""
    return torch.unflatten(w, 1, (STREAMS, D)).permute(1, 2, 0)


def hyper_site(ours: str, theirs: str) -> Table:
    """One site of hyper-connections."""

    def projection(w: Tensor) -> Tensor:
        return torch.unflatten(w, 1, (STREAMS, D)).permute(1, 2, 0)

    return {
        f"{ours}.w_mix": (theirs + "fn", projection),
        f"{ours}.base": theirs + "base",
        f"{ours}.scale": theirs + "scale",
    }


STREAMS = 3


def deepseek_v4(kinds: list[str]) -> Family:
    """Windows, entries of four tokens chosen by an indexer or of eight, three streams, experts looked up by token."""
    plain = ("intermediate_size", "num_key_value_heads", "rope_parameters")
    settings = {k: v for k, v in COMMON.items() if k not in plain} | {
        "num_hidden_layers": len(kinds), "layer_types": kinds, "head_dim": HEAD, "q_lora_rank": RANK,
        "moe_intermediate_size": WIDTH, "n_routed_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4,
        "o_groups": GROUPS, "o_lora_rank": 6, "index_n_heads": 2, "index_head_dim": INDEX, "index_topk": 1,
        "compress_rates": {SPARSE: RATIO, HEAVY: 3}, "hc_mult": STREAMS, "hc_sinkhorn_iters": 4, "swiglu_limit": 1.0,
        "mlp_layer_types": ["hash_moe"] + ["moe"] * (len(kinds) - 1), "partial_rotary_factor": TURNED / HEAD,
        "pad_token_id": 0,
    }  # fmt: skip
    a = LAYERS + "self_attn."
    attention: dict[str, Entry] = {
        "w_q_down": a + "q_a_proj.weight", "q_norm": a + "q_a_norm.weight",
        "w_q": (a + "q_b_proj.weight", _turned_first(HEAD, N)), "w_kv": (a + "kv_proj.weight", _turned_first(HEAD)),
        "kv_norm": (a + "kv_norm.weight", _turned_first(HEAD)), "w_o_down": (a + "o_a_proj.weight", _output_down),
        "w_o": a + "o_b_proj.weight", "core.sinks": a + "sinks",
    }  # fmt: skip
    series = 2 if kinds[-1] == SPARSE else 1
    attention |= renamed(_compressor(a + "compressor.", HEAD, series), "compressor.", "")
    indexer: dict[str, Entry] = {
        "w_q": (a + "compressor.indexer.q_b_proj.weight", _turned_first(INDEX, 2)),
        "w_weights": a + "compressor.indexer.scorer.weights_proj.weight",
    }
    indexer |= renamed(_compressor(a + "compressor.indexer.", INDEX, 2), "compressor.", "")
    top: dict[str, Entry] = {
        **UNTIED, "hyper_head.w_mix": ("model.hc_head.hc_fn", by_stream),
        "hyper_head.base": "model.hc_head.hc_base", "hyper_head.scale": "model.hc_head.hc_scale",
    }  # fmt: skip
    moe: dict[str, Entry] = {
        "moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias",
        "moe.experts_of_tokens": MLP + "gate.tid2eid",
    }  # fmt: skip
    moe |= {f"moe.shared.w_{n}": f"{MLP}shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    return imported(
        "DeepseekV4ForCausalLM", "deepseek_v4", settings, top, renamed(attention, "attention.", ""),
        renamed(indexer, "attention.indexer.", ""), moe, routed(MLP + "experts."), NORMS,
        hyper_site("attention_hyper", LAYERS + "attn_hc."), hyper_site("ffn_hyper", LAYERS + "ffn_hc."),
    )  # fmt: skip


def _value_half(half: int) -> Callable[[Tensor], Tensor]:
    """The rows of one half of the value heads, as (in, out)."""
    return lambda w: w.chunk(2)[half].T


def _diffllama() -> Family:
    """Two attentions, one subtracted from the other, with a share that grows with the depth."""
    a = LAYERS + "self_attn."
    own: dict[str, Entry] = {f"w_{n}": f"{a}{n}_proj.weight" for n in ("q", "k", "o")}
    own |= {f"w_v_{half}": (a + "v_proj.weight", _value_half(i)) for i, half in enumerate(("first", "second"))}
    own |= {f"lambda_{n}": f"{a}lambda_{n}" for n in ("q1", "k1", "q2", "k2")}
    return imported("DiffLlamaForCausalLM", "diffllama", COMMON, UNTIED, renamed(own, "attention.", ""), NORMS, SWIGLU)


WINDOWED, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"

FAMILIES: dict[str, Family] = {
    "minimax-m3": _minimax_m3(),
    "diffllama": _diffllama(),
    "deepseek-v4-sparse": deepseek_v4([WINDOWED, SPARSE, SPARSE]),
    "deepseek-v4-heavy": deepseek_v4([HEAVY, HEAVY]),
}
"""Every family by name."""
