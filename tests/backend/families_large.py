"""Mistral Large 4: queries that grow with their position, learned frequencies, layers without positions."""

from __future__ import annotations

import backend_families_delta as delta_families
import backend_families_glm as glm_families
import backend_families_sparse as stream_families
import torch
from backend_parity import COMMON, NORMS, SWIGLU, UNTIED, Entry, Family, N, imported, renamed
from transformers import AutoConfig, AutoModelForImageTextToText

NOPE, TURNED, VALUE, RANK = 8, 4, 8, 12
VISION = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
          "num_attention_heads": 2, "head_dim": 16, "image_size": 28, "patch_size": 14}  # fmt: skip


def _large() -> Family:
    """Three layers with rotation, of which one takes the choice of keys before it, and one without."""
    layers = "model.layers.{i}."
    a, mlp = layers + "self_attn.", layers + "mlp."
    text = {k: v for k, v in COMMON.items() if k not in ("rope_parameters", "attn_implementation")} | {
        "num_hidden_layers": 4, "num_key_value_heads": N, "kv_lora_rank": RANK, "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": TURNED, "v_head_dim": VALUE, "index_topk": 16, "index_n_heads": 2, "index_head_dim": 8,
        "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "routed_scaling_factor": 1.5,
        "indexer_types": ["full", "full", "shared", "full"], "final_logit_softcapping": 3.0,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "attention_factor": 1.0,
                            "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0},
    }  # fmt: skip
    settings = {"text_config": text, "vision_config": VISION, "attn_implementation": "eager"}
    with torch.device("meta"):
        whole = AutoModelForImageTextToText.from_config(AutoConfig.for_model("mistral_large4", **settings))
    index: dict[str, Entry] = {
        "w_q": "wq_b.weight", "w_k": "wk.weight", "w_weights": "weights_proj.weight", "k_norm": "k_norm.weight",
        "k_norm_bias": "k_norm.bias", "q_norm": "q_input_norm.weight", "q_norm_bias": "q_input_norm.bias",
        "query_scale": "softmax_scaling.scale", "query_bias": "softmax_scaling.bias",
    }  # fmt: skip
    own = {"attention.query_scale": a + "softmax_scaling.scale", "attention.query_bias": a + "softmax_scaling.bias"}
    common = [
        own, NORMS, renamed(index, "attention.indexer.", a + "indexer."), delta_families.SHARED,
        {"moe.w_router": mlp + "gate.weight"}, stream_families.routed(mlp + "experts."),
    ]  # fmt: skip
    plain = {k: v for k, v in delta_families.latent_tables(0, RANK, NOPE + TURNED, 0, VALUE).items() if "rope" not in k}
    unturned: dict[str, Entry] = {}
    for table in (plain, *common):
        unturned |= table
    top = glm_families.inside(UNTIED) | {"rope_frequencies": "model.language_model.rotary_emb.alpha"}
    return imported(
        "MistralLarge4ForConditionalGeneration", "mistral_large4", settings, top,
        *map(glm_families.inside, (*common, SWIGLU, delta_families.latent_tables(0, RANK, NOPE, TURNED, VALUE))),
        layers={"moe_nope": ([3], glm_families.inside(unturned))},
        unused=frozenset(n for n, _ in whole.named_parameters() if ".language_model." not in n) - {"lm_head.weight"},
    )  # fmt: skip


FAMILIES: dict[str, Family] = {"mistral-large-4": _large()}
"""Every family by name."""
