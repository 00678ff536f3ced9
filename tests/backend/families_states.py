"""Families with state-space mixers or convolutions beside attention (Jamba, Bamba, Granite 4, Falcon-H1, LFM3)."""

from __future__ import annotations

from backend_parity import NORMS, UNTIED, D, Entry, F, Family, Table, attention, columns, imported, renamed, stacked

LAYERS = "model.layers.{i}."
INNER, HEADS, STATES, GROUPS, RANK = 2 * D, 8, 5, 2, 2
HIDDEN = {
    "hidden_size": D, "vocab_size": 64, "intermediate_size": F, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 128, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
MAMBA = {"mamba_d_state": STATES, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": HEADS, "mamba_d_head": 8,
         "mamba_n_groups": GROUPS, "mamba_chunk_size": 4}  # fmt: skip
TOP: Table = {**UNTIED, "final_norm": "model.final_layernorm.weight"}
BEFORE: Table = {f"{part}_norm": LAYERS + "input_layernorm.weight" for part in ("attention", "mixer")}
BEHIND: Table = {"ffn_norm": LAYERS + "pre_ff_layernorm.weight"}
DENSE: Table = {f"ffn.w_{n}": f"{LAYERS}feed_forward.{n}_proj.weight" for n in ("gate", "up", "down")}


def mamba2_table(where: str = LAYERS + "mamba.") -> dict[str, Entry]:
    """One matrix into gate, channels, B, C and steps, and one convolution over the middle three."""
    widths = (("z", INNER), ("x", INNER), ("B", GROUPS * STATES), ("C", GROUPS * STATES), ("dt", HEADS))
    table: dict[str, Entry] = {
        "A_log": where + "A_log", "D_skip": where + "D", "dt_bias": where + "dt_bias", "norm": where + "norm.weight",
        "w_out": where + "out_proj.weight",
    }  # fmt: skip
    start = 0
    for name, width in widths:
        table["w_" + name] = (where + "in_proj.weight", columns(start, start + width))
        if name in "xBC":
            rows = slice(start - INNER, start - INNER + width)
            table[f"conv_{name}_w"] = (where + "conv1d.weight", lambda w, rows=rows: w[rows])
            table[f"conv_{name}_b"] = (where + "conv1d.bias", lambda w, rows=rows: w[rows])
        start += width
    return renamed(table, "mixer.", "")


def routed(where: str, router: str) -> dict[str, Entry]:
    """Experts as stacks, gate and up in one."""
    return {
        "moe.w_router": where + router + ".weight", "moe.w_gate": (where + "experts.gate_up_proj", stacked(0, F)),
        "moe.w_up": (where + "experts.gate_up_proj", stacked(F, 2 * F)),
        "moe.w_down": (where + "experts.down_proj", lambda w: w.transpose(1, 2)),
    }  # fmt: skip


def _jamba() -> Family:
    """Mamba with normed steps, B and C; attention without positions; experts in every second layer."""
    m, table = LAYERS + "mamba.", dict[str, Entry]()
    bounds = {"dt_down": (0, RANK), "B": (RANK, RANK + STATES), "C": (RANK + STATES, RANK + 2 * STATES)}
    table |= {f"w_{n}": (m + "x_proj.weight", columns(*b)) for n, b in bounds.items()}
    table |= {
        "w_x": (m + "in_proj.weight", columns(0, INNER)), "w_z": (m + "in_proj.weight", columns(INNER, 2 * INNER)),
        "conv_w": m + "conv1d.weight", "conv_b": m + "conv1d.bias", "w_dt": m + "dt_proj.weight",
        "b_dt": m + "dt_proj.bias", "A_log": m + "A_log", "D_skip": m + "D", "w_out": m + "out_proj.weight",
        "dt_norm": m + "dt_layernorm.weight", "b_norm": m + "b_layernorm.weight", "c_norm": m + "c_layernorm.weight",
    }  # fmt: skip
    settings = HIDDEN | {
        "num_hidden_layers": 4, "mamba_d_state": STATES, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": RANK,
        "num_experts": 4, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "attn_layer_period": 4, "attn_layer_offset": 2, "use_mamba_kernels": False,
    }  # fmt: skip
    return imported("JambaForCausalLM", "jamba", settings, TOP, attention(), renamed(table, "mixer.", ""), BEFORE,
                    BEHIND, DENSE, routed(LAYERS + "feed_forward.", "router"))  # fmt: skip


def _bamba() -> Family:
    """Mamba-2 layers, rotated attention in those that are listed."""
    settings = HIDDEN | MAMBA | {"num_hidden_layers": 3, "attn_layer_indices": [1]}
    return imported("BambaForCausalLM", "bamba", settings, TOP, attention(), mamba2_table(), BEFORE, BEHIND, DENSE)


def _falcon_h1() -> Family:
    """Attention and a mixer without a norm side by side, with a factor on keys."""
    settings = HIDDEN | MAMBA | {
        "num_hidden_layers": 2, "mamba_d_ssm": INNER, "head_dim": 8, "key_multiplier": 0.7, "lm_head_multiplier": 0.5,
        "embedding_multiplier": 3.0,
    }  # fmt: skip
    return imported("FalconH1ForCausalLM", "falcon_h1", settings, TOP, attention(), mamba2_table(), BEFORE, BEHIND,
                    DENSE)  # fmt: skip


def _granite() -> Family:
    """Both kinds of layers, experts beside a shared network, factors on embedding, branches, scores and logits."""
    settings = HIDDEN | MAMBA | {
        "num_hidden_layers": 3, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 2.0,
    }  # fmt: skip
    shared = LAYERS + "shared_mlp."
    both: dict[str, Entry] = {
        "moe.shared.w_gate": (shared + "input_linear.weight", columns(0, 24)),
        "moe.shared.w_up": (shared + "input_linear.weight", columns(24, 48)),
        "moe.shared.w_down": shared + "output_linear.weight",
    }
    return imported("GraniteMoeHybridForCausalLM", "granitemoehybrid", settings, UNTIED, attention(), mamba2_table(),
                    BEFORE, {"ffn_norm": NORMS["ffn_norm"]}, both,
                    routed(LAYERS + "block_sparse_moe.", "router"))  # fmt: skip


def _lfm3() -> Family:
    """Convolutions, local and global attention with a gate for each head, norms on both sides."""
    m = LAYERS + "conv."
    settings = {k: v for k, v in HIDDEN.items() if k != "rms_norm_eps"} | {
        "num_hidden_layers": 3, "head_dim": 8, "layer_types": ["conv", "full_attention", "sliding_attention"],
        "sliding_window": 5, "tie_word_embeddings": True,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta}
                            for kind, theta in (("full_attention", 1e6), ("sliding_attention", 1e4))},
    }  # fmt: skip
    top = {"embedding.tokens": "model.embed_tokens.weight", "final_norm": "model.embedding_norm.weight"}
    own: dict[str, Entry] = {
        **{f"mixer.w_{n}": (m + "in_proj.weight", columns(i * D, (i + 1) * D)) for i, n in enumerate("BCx")},
        "mixer.conv_w": m + "conv.weight", "mixer.w_out": m + "out_proj.weight",
        **{f"{part}_norm": LAYERS + "operator_norm.weight" for part in ("attention", "mixer")},
        **{f"{part}_post_norm": LAYERS + "post_operator_norm.weight" for part in ("attention", "mixer")},
        "ffn_norm": LAYERS + "ffn_norm.weight", "ffn_post_norm": LAYERS + "post_ffn_norm.weight",
        **{f"ffn.w_{n}": f"{LAYERS}feed_forward.w{i}.weight" for n, i in (("gate", 1), ("up", 3), ("down", 2))},
    }  # fmt: skip
    gated = attention(q_norm="q_norm.weight", k_norm="k_norm.weight", w_gate="g_proj.weight")
    return imported("Lfm3ForCausalLM", "lfm3", settings, top, gated, own)


FAMILIES: dict[str, Family] = {
    "jamba": _jamba(), "bamba": _bamba(), "falcon-h1": _falcon_h1(), "granite-hybrid": _granite(), "lfm3": _lfm3(),
}  # fmt: skip
"""Every family by name."""
