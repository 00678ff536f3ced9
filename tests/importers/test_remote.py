"""Configs of checkpoints that bring their own class count as the models of the catalog do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import archsim
from archsim.blocks.layer import walk_layers
from archsim.importers.hf.describe import from_config

LING = {
    "model_type": "bailing_moe_v2", "attention_dropout": 0.0, "embedding_dropout": 0.0, "eos_token_id": 156892,
    "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 5120, "max_position_embeddings": 32768, "moe_intermediate_size": 512,
    "moe_router_enable_expert_bias": True, "moe_shared_expert_intermediate_size": 512, "n_group": 8,
    "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
    "num_hidden_layers": 20, "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "num_shared_experts": 1,
    "output_dropout": 0.0, "output_router_logits": False, "pad_token_id": 156892, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 600000, "rotary_dim": 64, "routed_scaling_factor": 2.5,
    "router_dtype": "fp32", "score_function": "sigmoid", "tie_word_embeddings": False, "topk_group": 4,
    "torch_dtype": "bfloat16", "use_bias": False, "use_cache": True, "use_qk_norm": True, "use_qkv_bias": False,
    "vocab_size": 157184,
}  # fmt: skip
GLM = {
    "model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True, "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True, "ffn_hidden_size": 13696, "fp32_residual_connection": False, "hidden_dropout": 0.0,
    "hidden_size": 4096, "kv_channels": 128, "layernorm_epsilon": 1e-05, "multi_query_attention": True,
    "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "original_rope": True,
    "padded_vocab_size": 65024, "post_layer_norm": True, "rmsnorm": True, "seq_length": 8192, "use_cache": True,
    "torch_dtype": "float16", "tie_word_embeddings": False, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA = {"hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True}
CONFIGS = {
    "internlm2.5-7b": LLAMA | {
        "model_type": "internlm2", "attn_implementation": "eager", "bias": False, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "rope_theta": 1000000, "vocab_size": 92544,
    },
    "baichuan2-7b": LLAMA | {
        "model_type": "baichuan", "_from_model_config": True, "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "model_max_length": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "rms_norm_eps": 1e-06, "vocab_size": 125696,
    },
    "baichuan2-13b": LLAMA | {
        "model_type": "baichuan", "gradient_checkpointing": False, "hidden_size": 5120, "intermediate_size": 13696,
        "model_max_length": 4096, "num_attention_heads": 40, "num_hidden_layers": 40, "rms_norm_eps": 1e-06,
        "vocab_size": 125696,
    },
    "exaone-3.5-7.8b": {
        "model_type": "exaone", "activation_function": "silu", "attention_dropout": 0.0, "embed_dropout": 0.0,
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32,
        "rope_theta": 1000000, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 102400,
    },
    "ling-mini-2.0": LING,
    "chatglm3-6b": GLM,
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_counts_as_its_model_of_the_catalog(name: str, tmp_path: Path) -> None:
    """Parameters, cache and FLOPs."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name]))
    read, known = (archsim.count(model).to_dict() for model in (path, name))
    for key in ("params", "kv_cache", "flops"):
        assert read[key] == known[key]


def test_small_minicpm(tmp_path: Path) -> None:
    """MiniCPM-2B: 2,724,880,896 parameters, its page says."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "minicpm", "hidden_size": 2304, "num_hidden_layers": 40, "num_attention_heads": 36,
        "num_key_value_heads": 36, "intermediate_size": 5760, "vocab_size": 122753, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "max_position_embeddings": 4096, "scale_emb": 12, "dim_model_base": 256,
        "scale_depth": 1.4, "rope_scaling": None, "torch_dtype": "bfloat16",
    }))  # fmt: skip
    assert archsim.count(path).to_dict()["params"]["total"] == 2_724_880_896


def test_ling_2_5_has_lightning_attention_under_the_type_of_ling_3() -> None:
    """One layer of latent attention in `layer_group_size`; the others' norm is of groups, and nothing is activated."""
    config = {
        "model_type": "bailing_hybrid", "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 128,
        "group_norm_size": 2, "layer_group_size": 4, "first_k_dense_replace": 1, "num_experts": 8,
        "num_experts_per_tok": 2, "num_shared_experts": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 16,
        "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "use_qk_norm": True,
        "partial_rotary_factor": 0.5, "rope_theta": 1e4, "linear_silu": False, "num_kv_heads_for_linear_attn": 4,
    }  # fmt: skip
    lightning = 5 * 64 * 64 + 64 + 2 * 16  # q, k, v, gate and output; the norm of the output; norms of q and k
    latent = 64 * 24 + 24 + 24 * 4 * 24 + 64 * (16 + 8) + 16 + 16 * 4 * 32 + 64 * 64
    experts = 8 * 64 + 9 * 3 * 64 * 32
    around = 2 * 128 * 64 + 64 + 4 * 2 * 64
    total = archsim.count(config).to_dict()["params"]["total"]
    assert total == 3 * lightning + latent + 3 * experts + 3 * 64 * 96 + around
    layers = archsim.load_model(config).layers
    mixers = [layer.mixer for layer in walk_layers(layers) if layer.mixer is not None]
    assert {mixer.norm.groups for mixer in mixers} == {2} and {mixer.activation for mixer in mixers} == {None}


def test_a_config_without_a_type_is_what_its_class_is_called(tmp_path: Path) -> None:
    """LongCat-Flash-Lite's file has none; 45.8 % of its parameters are vectors of the last tokens."""
    config = json.loads((Path(__file__).parent / "configs" / "longcat-flash-lite.json").read_text())
    del config["model_type"]
    config["architectures"] = ["LongcatFlashNgramForCausalLM"]
    assert archsim.count(config).to_dict()["params"]["total"] == 68_562_459_648
    llama = LLAMA | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "vocab_size": 128}  # fmt: skip
    named = [llama | {"model_type": "llama"}, llama | {"architectures": ["LlamaForCausalLM"]}]
    first, second = (archsim.count(one).to_dict()["params"] for one in named)
    assert first == second
    for odd in ([], ["Nobody"], [3], "LlamaForCausalLM", None):
        (tmp_path / "config.json").write_text(json.dumps(llama | {"architectures": odd}))
        with pytest.raises(archsim.ArchsimError, match="model_type"):
            archsim.count(tmp_path)


def test_a_class_of_another_family_than_the_type_is_believed() -> None:
    """Grok 2's file says `git`; other tasks' classes, and those of code of the file's own, are of the type's family."""
    grok = {
        "architectures": ["Grok1ForCausalLM"], "model_type": "git", "vocab_size": 131072, "hidden_size": 8192,
        "intermediate_size": 32768, "moe_intermediate_size": 16384, "max_position_embeddings": 131072,
        "num_experts_per_tok": 2, "num_local_experts": 8, "residual_moe": True, "num_attention_heads": 64,
        "num_key_value_heads": 8, "num_hidden_layers": 64, "head_dim": 128, "embedding_multiplier_scale": 90.5,
        "output_multiplier_scale": 0.5, "final_logit_softcapping": 50, "attn_logit_softcapping": 30.0,
        "router_logit_softcapping": 30.0, "rope_theta": 208533496, "global_attn_every_n": 1, "rope_type": "original",
    }  # fmt: skip
    assert archsim.count(grok).to_dict()["params"] == archsim.count("grok-2").to_dict()["params"]
    llama = LLAMA | {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "vocab_size": 128}  # fmt: skip
    plain = archsim.count(llama).to_dict()["params"]
    for named in ("LlamaForSequenceClassification", "LlamaForCausalLMEagle3", "MineForCausalLM"):
        assert archsim.count(llama | {"architectures": [named]}).to_dict()["params"] == plain


def test_ling_3_is_told_from_ling_2_5_by_its_convolution() -> None:
    """Both files have `group_norm_size`; Ling 3.0's has keys that its class does not read."""
    config = {
        "model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"], "group_norm_size": 1,
        "auto_map": {"AutoModelForCausalLM": "modeling_bailing_moe_v3.BailingMoeV3ForCausalLM"}, "linear_silu": True,
        "gated_attention_proj_granularity_type": "head_wise", "hidden_size": 2560, "intermediate_size": 6144,
        "kda_lower_bound": -5.0, "kda_safe_gate": True, "kv_lora_rank": 512, "layer_group_size": 6,
        "max_position_embeddings": 262144, "max_window_layers": 20, "moe_intermediate_size": 768,
        "moe_router_enable_expert_bias": True, "moe_shared_expert_intermediate_size": 768, "mtp_use_kda": False,
        "n_group": 8, "no_kda_lora": True, "num_attention_heads": 32, "num_experts": 512, "num_experts_per_tok": 8,
        "num_hidden_layers": 42, "num_key_value_heads": 32, "num_kv_heads_for_linear_attn": 0,
        "num_shared_experts": 1, "partial_rotary_factor": 0.5, "q_lora_rank": None, "qk_head_dim": 192,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_theta": 6000000, "rotary_dim": 64,
        "routed_scaling_factor": 2.5, "short_conv_kernel_size": 4, "topk_group": 4, "use_kda_lora": False,
        "use_mla_nope": False, "use_nGPT": False, "use_qk_norm": True, "v_head_dim": 128, "vocab_size": 157184,
        "expert_swiglu_limit_list": [0] * 35 + [4] * 7, "first_k_dense_replace": 2, "head_dim": 128,
    }  # fmt: skip
    assert archsim.count(config).to_dict()["params"] == archsim.count("ling-3.0-flash").to_dict()["params"]
    with pytest.raises(archsim.ArchsimError, match="use_kda_lora"):
        archsim.count(config | {"use_kda_lora": True})


def test_the_released_file_of_xlstm_names_its_sizes_otherwise() -> None:
    """`embedding_dim` and `num_blocks` for the width and the depth."""
    config = {"model_type": "xlstm", "vocab_size": 50304, "num_heads": 8, "add_post_blocks_norm": True}
    named = archsim.count(config | {"embedding_dim": 2048, "num_blocks": 16})
    assert (
        named.to_dict()["params"]
        == archsim.count(config | {"hidden_size": 2048, "num_hidden_layers": 16}).to_dict()["params"]
    )


def test_the_released_file_of_hy4_says_what_its_class_always_does() -> None:
    """Keys that the class does not read leave the document as it is, and another value is refused."""
    config = json.loads((Path(__file__).parent / "small_more.json").read_text())["hy_v4"]
    released = {"gated_mla": True, "gating_type": "elementwise", "enable_ihc": True, "enable_lm_head_fp32": True,
                "learnable_sink": True, "use_dsa": True, "use_mla": True, "mtp_loss_factor": 0.1}  # fmt: skip
    assert from_config(config | released, "x") == from_config(config, "x")
    for key in ("gated_mla", "learnable_sink", "use_mla"):
        with pytest.raises(archsim.ArchsimError, match=key):
            from_config(config | {key: False})
