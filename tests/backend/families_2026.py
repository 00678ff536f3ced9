"""Blocks of 2025 and 2026: experts beside a dense branch, indexers shared by layers, heads by kind of layer."""

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
    dense,
    imported,
    renamed,
    stacked,
)
from torch import Tensor
from torch.nn.functional import pad

LAYERS, MLP, WIDTH = "model.layers.{i}.", "model.layers.{i}.mlp.", 24


def _routed(prefix: str, width: int = WIDTH) -> Table:
    return {
        "moe.w_gate": (prefix + "gate_up_proj", stacked(0, width)),
        "moe.w_up": (prefix + "gate_up_proj", stacked(width, 2 * width)),
        "moe.w_down": (prefix + "down_proj", stacked(0, D)),
    }


def _gemma4() -> Family:
    """Experts beside the feed-forward layer, each branch between norms of its own."""
    settings = {k: v for k, v in COMMON.items() if k not in ("rope_parameters", "num_hidden_layers")} | {
        "num_hidden_layers": 2, "head_dim": 16, "global_head_dim": 16, "sliding_window": 5, "enable_moe_block": True,
        "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": WIDTH, "tie_word_embeddings": True,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "num_global_key_value_heads": 2,
        "attention_k_eq_v": False, "layer_types": ["sliding_attention", "full_attention"],
        "hidden_activation": "gelu_pytorch_tanh", "pad_token_id": 0,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0}
                            for kind in ("sliding_attention", "full_attention")},
    }  # fmt: skip
    beside = {f"moe.dense.w_{n}": f"{MLP}{n}_proj.weight" for n in ("gate", "up", "down")}
    norms = {k: v for k, v in FOUR_NORMS.items() if k != "ffn_norm"} | {
        "moe.dense_norm": LAYERS + "pre_feedforward_layernorm.weight",
        "moe.dense_post_norm": LAYERS + "post_feedforward_layernorm_1.weight",
        "moe.experts_norm": LAYERS + "pre_feedforward_layernorm_2.weight",
        "moe.experts_post_norm": LAYERS + "post_feedforward_layernorm_2.weight",
        # our norm is not divided by the root of the width, which the router's input is
        "moe.router_norm": (LAYERS + "router.scale", lambda w: w * D**-0.5),
        "moe.w_router": LAYERS + "router.proj.weight", "moe.expert_scale": LAYERS + "router.per_expert_scale",
    }  # fmt: skip
    return imported("Gemma4ForCausalLM", "gemma4_text", settings, TIED, attention(**HEAD_NORMS), norms, beside,
                    _routed(LAYERS + "experts."))  # fmt: skip


def _mimo() -> Family:
    """Local layers with twice the key/value heads and sinks; values narrower than keys."""
    settings = COMMON | {
        "num_hidden_layers": 3, "head_dim": 12, "v_head_dim": 8, "num_key_value_heads": 1, "sliding_window": 5,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "attention_value_scale": 1.0,
        "mlp_layer_types": ["dense", "sparse", "sparse"], "moe_intermediate_size": WIDTH, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "routed_scaling_factor": 1.5, "n_group": 1, "topk_group": 1,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.334}
                            for kind in ("sliding_attention", "full_attention")},
    }  # fmt: skip
    router = {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    own = attention(**{"core.sinks": "sinks"})
    return imported("MiMoV2FlashForCausalLM", "mimo_v2_flash", settings, UNTIED, own, SWIGLU, NORMS, router,
                    _routed(MLP + "experts."))  # fmt: skip


def _mpnet() -> Family:
    """Relative biases by bucket, one table for all layers, in an encoder."""
    e, h = "embeddings.", "encoder.layer.{i}."
    settings = {"hidden_size": D, "vocab_size": VOCAB, "intermediate_size": F, "num_attention_heads": N,
                "num_hidden_layers": 3, "max_position_embeddings": 40, "attn_implementation": "eager",
                "pad_token_id": 1}  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": e + "word_embeddings.weight", "embedding.positions": e + "position_embeddings.weight",
        **affine("embedding.norm", e + "LayerNorm"), "relative_bias": "encoder.relative_attention_bias.weight",
        "pooler.w_dense": "pooler.dense.weight", "pooler.b_dense": "pooler.dense.bias",
    }  # fmt: skip
    return imported(
        "MPNetModel", "mpnet", settings, top,
        dense("attention.", {n: f"{h}attention.attn.{n}" for n in "qkvo"}),
        dense("ffn.", {"up": h + "intermediate.dense", "down": h + "output.dense"}),
        affine("attention_norm", h + "attention.LayerNorm"), affine("ffn_norm", h + "output.LayerNorm"),
    )  # fmt: skip


def _nomic() -> Family:
    """Rotary positions and a gated network behind post-norms."""
    e, h = "embeddings.", "layers.{i}."
    settings = {"hidden_size": D, "vocab_size": VOCAB, "intermediate_size": F, "num_attention_heads": N,
                "num_hidden_layers": 3, "max_position_embeddings": 40, "attn_implementation": "eager",
                "type_vocab_size": 2}  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": e + "word_embeddings.weight", "embedding.token_types": e + "token_type_embeddings.weight",
        **affine("embedding.norm", e + "LayerNorm"),
    }  # fmt: skip
    return imported(
        "NomicBertModel", "nomic_bert", settings, top,
        renamed({f"w_{n}": f"self_attn.{n}_proj.weight" for n in "qkvo"}, "attention.", h),
        renamed({f"w_{n}": f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")}, "ffn.", h),
        affine("attention_norm", h + "post_attention_layernorm"), affine("ffn_norm", h + "post_mlp_layernorm"),
    )  # fmt: skip


def _youtu() -> Family:
    """Latent attention in a dense decoder."""
    return _latent("YoutuForCausalLM", "youtu", UNTIED, SWIGLU)


NOPE, ROPE, VALUE, RANK = 6, 4, 5, 12


def _latent(name: str, model_type: str, top: Table, *tables: Table, **more: object) -> Family:
    a = LAYERS + "self_attn."
    settings = COMMON | {
        "q_lora_rank": 10, "kv_lora_rank": RANK, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE, "num_key_value_heads": N, "head_dim": ROPE, **more,
    }  # fmt: skip
    return imported(name, model_type, settings, top, latent_table(a), NORMS, *tables)


def latent_table(a: str) -> Table:
    """Projections of latent attention, which checkpoints hold in pairs."""

    def heads(width: int, start: int, stop: int) -> Callable[[Tensor], Tensor]:
        return lambda w: w.reshape(N, width, -1)[:, start:stop].flatten(0, 1).T

    def up(width: int, start: int, stop: int) -> Callable[[Tensor], Tensor]:
        return lambda w: w.reshape(N, width, -1)[:, start:stop].permute(2, 0, 1)

    return {
        "attention.w_q_down": a + "q_a_proj.weight", "attention.q_norm": a + "q_a_layernorm.weight",
        "attention.w_q_nope": (a + "q_b_proj.weight", heads(NOPE + ROPE, 0, NOPE)),
        "attention.w_q_rope": (a + "q_b_proj.weight", heads(NOPE + ROPE, NOPE, NOPE + ROPE)),
        "attention.w_kv_down": (a + "kv_a_proj_with_mqa.weight", lambda w: w[:RANK].T),
        "attention.w_k_rope": (a + "kv_a_proj_with_mqa.weight", lambda w: w[RANK:].T),
        "attention.kv_norm": a + "kv_a_layernorm.weight",
        "attention.w_uk": (a + "kv_b_proj.weight", up(NOPE + VALUE, 0, NOPE)),
        "attention.w_uv": (a + "kv_b_proj.weight", up(NOPE + VALUE, NOPE, NOPE + VALUE)),
        "attention.w_o": a + "o_proj.weight",
    }  # fmt: skip


def _glm() -> Family:
    """Indexers of some layers serve the ones behind them; they choose among fewer tokens than they may keep, since
    ours do not rotate what they compare.
    """
    i = LAYERS + "self_attn.indexer."
    more = {
        "num_hidden_layers": 4, "indexer_types": ["full", "shared", "full", "shared"], "index_topk": 16,
        "index_n_heads": 2, "index_head_dim": 8, "mlp_layer_types": ["dense"] + ["sparse"] * 3,
        "moe_intermediate_size": WIDTH, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    }  # fmt: skip
    own = {"w_q": "wq_b.weight", "w_k": "wk.weight", "w_weights": "weights_proj.weight"}
    index = renamed(own | affine("k_norm", "k_norm"), "attention.indexer.", i)
    shared = {f"moe.shared.w_{n}": f"{MLP}shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    router = {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    return _latent("GlmMoeDsaForCausalLM", "glm_moe_dsa", UNTIED, SWIGLU, index, router, shared,
                   _routed(MLP + "experts."), **more)  # fmt: skip


def _nemotron() -> Family:
    """Experts that work in a latent, behind attention in layers of one branch each."""
    m = "model.layers.{i}.mixer."
    settings = {
        "hidden_size": D, "vocab_size": VOCAB, "num_attention_heads": N, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": F, "layers_block_type": ["attention", "moe", "attention", "mlp"], "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH, "moe_latent_size": 12, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 20, "routed_scaling_factor": 1.5, "attn_implementation": "eager",
        "max_position_embeddings": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    top = {**UNTIED, "embedding.tokens": "model.embeddings.weight", "final_norm": "model.norm_f.weight"}
    norms = {f"{part}_norm": "model.layers.{i}.norm.weight" for part in ("attention", "ffn")}
    own: dict[str, Entry] = {
        "moe.w_router": m + "gate.weight", "moe.selection_bias": m + "gate.e_score_correction_bias",
        "moe.w_latent_down": m + "fc1_latent_proj.weight", "moe.w_latent_up": m + "fc2_latent_proj.weight",
        **{f"moe.w_{n}": (f"{m}experts.{n}_proj", lambda w: w.transpose(1, 2)) for n in ("up", "down")},
        **{f"moe.shared.w_{n}": f"{m}shared_experts.{n}_proj.weight" for n in ("up", "down")},
        **{f"ffn.w_{n}": f"{m}{n}_proj.weight" for n in ("up", "down")},
        **{f"attention.w_{n}": f"{m}{n}_proj.weight" for n in "qkvo"},
    }  # fmt: skip
    return imported("NemotronHForCausalLM", "nemotron_h", settings, top, norms, own)


def _laguna() -> Family:
    """Heads of their own number in every layer, a softplus gate per head."""
    settings = COMMON | {
        "num_hidden_layers": 3, "head_dim": 8, "num_attention_heads_per_layer": [4, 6, 6], "sliding_window": 5,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "num_experts": 8,
        "mlp_layer_types": ["dense", "sparse", "sparse"], "moe_intermediate_size": WIDTH, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 20, "moe_routed_scaling_factor": 1.5, "gating": True,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0}
                            for kind in ("sliding_attention", "full_attention")},
    }  # fmt: skip
    router = {"moe.w_router": MLP + "gate.weight", "moe.selection_bias": MLP + "gate.e_score_correction_bias"}
    shared = {f"moe.shared.w_{n}": f"{MLP}shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    return imported("LagunaForCausalLM", "laguna", settings, UNTIED, attention(**HEAD_NORMS, w_gate="g_proj.weight"),
                    SWIGLU, NORMS, router, shared, _routed(MLP + "experts."))  # fmt: skip


def _inkling() -> Family:
    """Profiles of distances, short convolutions everywhere, shared experts that the router weighs."""
    settings = {k: v for k, v in COMMON.items() if k not in ("rope_parameters", "num_hidden_layers", "hidden_act")} | {
        "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 8, "swa_num_attention_heads": N,
        "swa_num_key_value_heads": 1, "swa_head_dim": 12, "sliding_window_size": 5, "d_rel": 3, "rel_extent": 7,
        "local_layer_ids": [0, 2], "mlp_layer_types": ["dense", "sparse", "sparse"], "moe_intermediate_size": WIDTH,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2, "log_scaling_n_floor": 4,
        "log_scaling_alpha": 0.3, "route_scale": 1.5, "logits_mup_width_multiplier": 2.0,
        "attn_implementation": "eager",
    }  # fmt: skip
    joined, flat = MLP + "shared_experts.", lambda w: w.flatten(0, 1).T
    own = attention(**HEAD_NORMS, w_r="r_proj.weight", k_conv_w="k_sconv.conv1d.weight",
                    v_conv_w="v_sconv.conv1d.weight")  # fmt: skip
    convolutions = {f"{ours}_conv_w": f"{LAYERS}{theirs}_sconv.conv1d.weight"
                    for ours, theirs in (("attention", "attn"), ("ffn", "mlp"))}  # fmt: skip
    own |= {"attention.w_r_profile": (LAYERS + "self_attn.rel_logits_proj.proj", lambda w: w)}
    experts = {
        "moe.w_router": MLP + "gate.weight", "moe.scale": MLP + "gate.global_scale",
        "moe.selection_bias": (MLP + "gate.e_score_correction_bias", lambda w: pad(w, (0, 2))),
        "moe.shared.w_gate": (joined + "gate_proj", flat), "moe.shared.w_up": (joined + "up_proj", flat),
        "moe.shared.w_down": (joined + "down_proj", lambda w: w.transpose(1, 2).flatten(0, 1)),
        "ffn.scale": MLP + "global_scale",
    }  # fmt: skip
    top = UNTIED | {"embedding.norm": "model.embed_tokens.embed_norm.weight"}
    return imported("InklingForCausalLM", "inkling_text", settings, top, own, SWIGLU, NORMS, convolutions, experts,
                    _routed(MLP + "experts."))  # fmt: skip


FAMILIES: dict[str, Family] = {
    "inkling": _inkling(),
    "gemma4-moe": _gemma4(), "mimo-v2": _mimo(), "mpnet": _mpnet(), "nomic": _nomic(), "youtu": _youtu(),
    "glm-shared": _glm(), "nemotron-latent": _nemotron(), "laguna": _laguna(),
}  # fmt: skip
"""Every family by name."""
