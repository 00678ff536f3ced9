"""Decoders whose spec is read from their configuration: names of weights are all that is written here."""

from __future__ import annotations

from collections.abc import Callable

from backend_parity import (
    COMMON,
    FOUR_NORMS,
    HEAD_NORMS,
    NORMS,
    SWIGLU,
    TIED,
    UNTIED,
    VOCAB,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    affine,
    attention,
    columns,
    dense,
    imported,
    per_head,
    projections,
    renamed,
    split,
    stacked,
)
from torch import Tensor

LAYERS, MLP, WIDTH = "model.layers.{i}.", "model.layers.{i}.mlp.", 24
ALIBI = {"hidden_size": D, "n_layer": 3, "n_head": N, "vocab_size": VOCAB, "attn_implementation": "eager"}


def experts(prefix: str, width: int = WIDTH) -> Table:
    """Gate and up side by side in one tensor, (experts, out, in)."""
    return {
        "moe.w_gate": (prefix + "gate_up_proj", stacked(0, width)),
        "moe.w_up": (prefix + "gate_up_proj", stacked(width, 2 * width)),
        "moe.w_down": (prefix + "down_proj", stacked(0, D)),
    }


def shared(prefix: str) -> Table:
    """The expert that all tokens use."""
    return {f"moe.shared.w_{n}": f"{prefix}{n}_proj.weight" for n in ("gate", "up", "down")}


def same(w: Tensor) -> Tensor:
    """As it is stored."""
    return w


def _bloom() -> Family:
    h, t = "transformer.h.{i}.", "transformer."
    top = {
        "embedding.tokens": t + "word_embeddings.weight", **affine("final_norm", t + "ln_f"),
        **affine("embedding.norm", t + "word_embeddings_layernorm"),
    }  # fmt: skip
    return imported(
        "BloomForCausalLM", "bloom", ALIBI, top,
        affine("attention_norm", h + "input_layernorm"), affine("ffn_norm", h + "post_attention_layernorm"),
        split("attention.", h + "self_attention.query_key_value", lambda i: per_head(i, 3)),
        dense("attention.", {"o": h + "self_attention.dense"}),
        dense("ffn.", {"up": h + "mlp.dense_h_to_4h", "down": h + "mlp.dense_4h_to_h"}),
    )  # fmt: skip


def _mpt() -> Family:
    h, t = "transformer.blocks.{i}.", "transformer."
    settings = {"d_model": D, "n_layers": 3, "n_heads": N, "vocab_size": VOCAB,
                "attn_implementation": "eager"}  # fmt: skip
    return imported(
        "MptForCausalLM", "mpt", settings,
        {"embedding.tokens": t + "wte.weight", "final_norm": t + "norm_f.weight"},
        {"attention_norm": h + "norm_1.weight", "ffn_norm": h + "norm_2.weight"},
        split("attention.", h + "attn.Wqkv", lambda i: columns(i * D, (i + 1) * D), bias=False),
        dense("attention.", {"o": h + "attn.out_proj"}, bias=False),
        dense("ffn.", {"up": h + "ffn.up_proj", "down": h + "ffn.down_proj"}, bias=False),
    )  # fmt: skip


def _gptj() -> Family:
    h, t = "transformer.h.{i}.", "transformer."
    settings = {"n_embd": D, "n_layer": 3, "n_head": N, "vocab_size": VOCAB, "n_positions": 64, "rotary_dim": 4,
                "tie_word_embeddings": False, "attn_implementation": "eager"}  # fmt: skip
    top = {
        "embedding.tokens": t + "wte.weight", **affine("final_norm", t + "ln_f"),
        "head.w_logits": "lm_head.weight", "head.b_logits": "lm_head.bias",
    }  # fmt: skip
    return imported(
        "GPTJForCausalLM", "gptj", settings, top,
        affine("norm", h + "ln_1"), renamed(projections("q k v"), "attention.", h + "attn."),
        dense("attention.", {"o": h + "attn.out_proj"}, bias=False),
        dense("ffn.", {"up": h + "mlp.fc_in", "down": h + "mlp.fc_out"}),
    )  # fmt: skip


def _olmo() -> Family:
    top = {k: v for k, v in UNTIED.items() if k != "final_norm"}
    settings = {k: v for k, v in COMMON.items() if k != "rms_norm_eps"} | {"clip_qkv": 0.5}
    return imported("OlmoForCausalLM", "olmo", settings, top, attention(), SWIGLU)


def _smollm3() -> Family:
    settings = COMMON | {"num_hidden_layers": 4, "no_rope_layer_interval": 2, "pad_token_id": 0}
    return imported("SmolLM3ForCausalLM", "smollm3", settings, UNTIED, attention(), SWIGLU, NORMS)


def _cohere2() -> Family:
    settings = COMMON | {
        "num_hidden_layers": 4, "sliding_window": 5, "head_dim": 16, "layer_norm_eps": 1e-5, "logit_scale": 0.25,
        "tie_word_embeddings": True,
    }  # fmt: skip
    settings = {k: v for k, v in settings.items() if k != "rms_norm_eps"}
    norm = {"norm": LAYERS + "input_layernorm.weight"}
    return imported("Cohere2ForCausalLM", "cohere2", settings, TIED, attention(), SWIGLU, norm)


def _glm4_moe() -> Family:
    settings = COMMON | {
        "head_dim": 16, "moe_intermediate_size": WIDTH, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "use_qk_norm": True,
        "routed_scaling_factor": 1.5, "attention_bias": True,
    }  # fmt: skip
    router = {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    return imported(
        "Glm4MoeForCausalLM", "glm4_moe", settings, UNTIED, attention("q k v", **HEAD_NORMS), SWIGLU, NORMS, router,
        experts(MLP + "experts."), shared(MLP + "shared_experts."),
    )  # fmt: skip


def _llama4() -> Family:
    f = LAYERS + "feed_forward."
    settings = COMMON | {
        "num_hidden_layers": 8, "head_dim": 16, "intermediate_size": WIDTH, "intermediate_size_mlp": F,
        "num_local_experts": 6, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "floor_scale": 3,
        "attention_chunk_size": 4, "attn_scale": 0.5, "attn_temperature_tuning": True,
    }  # fmt: skip
    routed: Table = {
        "moe.w_gate": (f + "experts.gate_up_proj", lambda w: w[..., :WIDTH]),
        "moe.w_up": (f + "experts.gate_up_proj", lambda w: w[..., WIDTH:]),
        "moe.w_down": (f + "experts.down_proj", same), "moe.w_router": f + "router.weight",
    }  # fmt: skip
    own = {f"ffn.w_{n}": f"{f}{n}_proj.weight" for n in ("gate", "up", "down")}
    return imported(
        "Llama4ForCausalLM", "llama4_text", settings, UNTIED, attention(), NORMS, own, routed,
        shared(f + "shared_expert."),
    )  # fmt: skip


def _afmoe() -> Family:
    settings = COMMON | {
        "num_hidden_layers": 6, "num_dense_layers": 2, "head_dim": 16, "moe_intermediate_size": WIDTH,
        "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1, "global_attn_every_n_layers": 4,
        "sliding_window": 5, "mup_enabled": True, "route_scale": 1.5,
    }  # fmt: skip
    norms = FOUR_NORMS | {
        "ffn_norm": LAYERS + "pre_mlp_layernorm.weight", "ffn_post_norm": LAYERS + "post_mlp_layernorm.weight",
    }  # fmt: skip
    router = {"moe.w_router": MLP + "router.gate.weight", "moe.selection_bias": MLP + "expert_bias"}
    return imported(
        "AfmoeForCausalLM", "afmoe", settings, UNTIED, attention(**HEAD_NORMS, w_gate="gate_proj.weight"), SWIGLU,
        norms, router, experts(MLP + "experts."), shared(MLP + "shared_experts."),
    )  # fmt: skip


KEYS, GROUPS, WIDE, VALUE = 2, 2, 6, 5


def delta_table() -> Table:
    """Queries, keys and values of Qwen3.5's delta net share a matrix and a convolution."""
    m, start = LAYERS + "linear_attn.", 0
    table: dict[str, Entry] = {
        "dt_bias": m + "dt_bias", "A_log": m + "A_log", "norm": m + "norm.weight", "w_o": m + "out_proj.weight",
        "w_z": m + "in_proj_z.weight", "w_beta": m + "in_proj_b.weight", "w_decay": m + "in_proj_a.weight",
    }  # fmt: skip
    for name, width in (("q", KEYS * WIDE), ("k", KEYS * WIDE), ("v", KEYS * GROUPS * VALUE)):
        stop = start + width
        table["w_" + name] = (m + "in_proj_qkv.weight", columns(start, stop))
        table[f"conv_{name}_w"] = (m + "conv1d.weight", lambda w, start=start, stop=stop: w[start:stop])
        start = stop
    return renamed(table, "mixer.", "")


def _qwen3_5() -> Family:
    settings = COMMON | {
        "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": KEYS, "linear_key_head_dim": WIDE,
        "linear_num_value_heads": KEYS * GROUPS, "linear_value_head_dim": VALUE, "full_attention_interval": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    q = LAYERS + "self_attn.q_proj.weight"
    gate = {"attention.w_q": (q, per_head(0, 2)), "attention.w_gate": (q, per_head(1, 2))}
    norms = NORMS | {"mixer_norm": LAYERS + "input_layernorm.weight"}
    return imported(
        "Qwen3_5ForCausalLM",
        "qwen3_5_text",
        settings,
        UNTIED,
        attention(**HEAD_NORMS),
        gate,
        SWIGLU,
        norms,
        delta_table(),
    )


def _minimax() -> Family:
    a = LAYERS + "self_attn."
    settings = COMMON | {
        "num_hidden_layers": 4, "head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "block_size": 4,
        "full_attn_alpha_factor": 2.0, "linear_attn_alpha_factor": 2.0, "mlp_alpha_factor": 2.0,
    }  # fmt: skip
    lightning: dict[str, Entry] = {
        **{f"mixer.w_{n}": (a + "qkv_proj.weight", per_head(i, 3)) for i, n in enumerate("qkv")},
        "mixer.norm": a + "norm.weight", "mixer.w_gate": a + "output_gate.weight", "mixer.w_o": a + "out_proj.weight",
    }  # fmt: skip
    norms = NORMS | {"mixer_norm": LAYERS + "input_layernorm.weight"}
    router = {"moe.w_router": MLP + "gate.weight"}
    return imported(
        "MiniMaxForCausalLM", "minimax", settings, UNTIED, attention(), lightning, norms, router,
        experts(MLP + "experts.", F),
    )  # fmt: skip


def _lfm2(model_type: str, name: str, table: Table, **own: object) -> Family:
    """Convolutions, and attention in the third layer; biases where the configuration has them."""
    m, a = LAYERS + "conv.", LAYERS + "self_attn."
    top = {"embedding.tokens": "model.embed_tokens.weight", "final_norm": "model.embedding_norm.weight"}
    settings = {k: v for k, v in COMMON.items() if k != "rms_norm_eps"} | {
        "num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"], "conv_bias": True,
        "tie_word_embeddings": True, **own,
    }  # fmt: skip
    mixer: dict[str, Entry] = {
        **{f"mixer.{k}_{n}": (f"{m}in_proj.{end}", columns(i * D, (i + 1) * D))
           for i, n in enumerate("BCx") for k, end in (("w", "weight"), ("b", "bias"))},
        **dense("mixer.", {"out": m + "out_proj"}),
        "mixer.conv_w": m + "conv.weight", "mixer.conv_b": m + "conv.bias",
    }  # fmt: skip
    norms = {f"{n}_norm": LAYERS + "operator_norm.weight" for n in ("attention", "mixer")}
    full = renamed(projections("q k v") | {"w_o": "out_proj.weight"}, "attention.", a)
    full |= {f"attention.{n}_norm": f"{a}{n}_layernorm.weight" for n in "qk"}
    mlp = {f"ffn.w_{n}": f"{LAYERS}feed_forward.w{i}.weight" for n, i in (("gate", 1), ("up", 3), ("down", 2))}
    norms["ffn_norm"] = LAYERS + "ffn_norm.weight"
    return imported(name, model_type, settings, top, mixer, full, norms, mlp, table)


def _lfm2_moe() -> Family:
    f = LAYERS + "feed_forward."
    table = {"moe.w_router": f + "gate.weight", "moe.selection_bias": f + "expert_bias"} | experts(f + "experts.")
    return _lfm2(
        "lfm2_moe", "Lfm2MoeForCausalLM", table, moe_intermediate_size=WIDTH, num_dense_layers=1, num_experts=6,
        num_experts_per_tok=2, routed_scaling_factor=1.5,
    )  # fmt: skip


READ: dict[str, Callable[[], Family]] = {
    "bloom": _bloom, "mpt": _mpt, "gptj": _gptj, "olmo": _olmo, "smollm3": _smollm3, "cohere2": _cohere2,
    "glm4-moe": _glm4_moe, "llama4": _llama4, "afmoe": _afmoe, "qwen3.5": _qwen3_5, "minimax": _minimax,
    "lfm2": lambda: _lfm2("lfm2", "Lfm2ForCausalLM", {}, block_multiple_of=16), "lfm2-moe": _lfm2_moe,
}  # fmt: skip
FAMILIES: dict[str, Family] = {name: make() for name, make in READ.items()}
"""Every family by name."""
