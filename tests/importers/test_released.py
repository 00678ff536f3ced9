"""Released files name what their classes call otherwise, and carry keys that no model of theirs reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import SpecError
from archsim.counts.count import count
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from

HERE = Path(__file__).parent
SMALL: dict[str, dict[str, Any]] = {
    name: config
    for file in ("small.json", "small_more.json")
    for name, config in json.loads((HERE / file).read_text()).items()
}
COUNTED = json.loads((HERE / "counted.json").read_text())["families"]
SMALL |= {name: row["config"] for name, row in COUNTED.items()}
DENSE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 128}


def layers(config: dict[str, Any]) -> dict[str, Any]:
    """The document without what it notes."""
    return {key: value for key, value in from_config(config, "x").items() if key != "unused"}


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("llama", {"is_llama_config": True, "pixel_shuffle_factor": 3, "qk_layer_norms": False,
                   "perceiver_config": {"resampler_depth": 6}, "sliding_window": None}),  # SmolVLM2, Voxtral
        ("mistral", {"is_composition": True}),  # Pixtral
        ("qwen3", {"is_original_qwen3_reranker": True, "classifier_from_token": ["no", "yes"]}),
        ("qwen2", {"dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192}}),  # 1M
        ("minicpm", {"mup_denominator": 32}),
        ("hunyuan_v1_moe", {"num_media_embeds": 257, "vit_norm_type": "fused", "vit_remove_prenorm": True}),
        ("paddleocr_vl_text", {"compression_ratio": 1.0, "ignored_index": -100, "weight_share_add_bias": True,
                               "use_3d_rope": True, "rope_is_neox_style": True}),
    ],
)  # fmt: skip
def test_keys_that_released_files_carry(family: str, keys: dict[str, Any]) -> None:
    """They change nothing."""
    config = SMALL.get(family) or {"model_type": family, **DENSE, "num_key_value_heads": 2}
    assert layers(config | keys) == layers(config)


def test_nomic_under_the_names_of_gpt_2() -> None:
    """nomic-embed-text's own file, and another activation refused."""
    released = {
        "model_type": "nomic_bert", "n_embd": 64, "n_head": 4, "n_inner": 96, "n_layer": 2, "n_positions": 256,
        "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "vocab_size": 128,
        "activation_function": "swiglu", "qkv_proj_bias": False, "prenorm": False, "causal": False,
    }  # fmt: skip
    plain = {"model_type": "nomic_bert", **DENSE, "intermediate_size": 96, "max_position_embeddings": 256}
    assert layers(released) == layers(plain)
    with pytest.raises(SpecError, match="activation_function"):
        from_config(released | {"activation_function": "gelu"})


def test_gte_under_the_type_of_its_own_code() -> None:
    """`new`, with keys of its kernels; other positions refused."""
    own = {"pack_qkv": True, "unpad_inputs": False, "use_memory_efficient_attention": False, "layer_norm_eps": 1e-12,
           "layer_norm_type": "layer_norm", "logn_attention_scale": False, "position_embedding_type": "rope",
           "rope_scaling": {"type": "ntk", "factor": 8.0}}  # fmt: skip
    plain = {"model_type": "gte", **DENSE, "intermediate_size": 96}
    assert layers(plain | own | {"model_type": "new"}) == layers(plain)
    with pytest.raises(SpecError, match="position_embedding_type"):
        from_config(plain | {"position_embedding_type": "relative"})


def test_phi_4_multimodal_under_the_type_of_its_own_code() -> None:
    """`phi4mm`, with its encoders and adapters beside."""
    plain = {"model_type": "phi4_multimodal", **DENSE, "num_key_value_heads": 2, "intermediate_size": 96}
    own = {"model_type": "phi4mm", "embd_layer": {"embedding_cls": "image_audio"}, "speech_lora": {"r": 320},
           "vision_lora": {"r": 256}, "img_processor": None, "full_attn_mod": 1}  # fmt: skip
    assert layers(plain | own) == layers(plain)


def test_exaone_under_both_names() -> None:
    """The depth, the activation and the epsilon of EXAONE 3 were renamed by transformers 5.24."""
    old = {"model_type": "exaone", **DENSE, "num_layers": 3, "activation_function": "silu", "layer_norm_epsilon": 1e-5}
    old.pop("num_hidden_layers")
    new = {"model_type": "exaone", **DENSE, "num_hidden_layers": 3, "hidden_act": "silu", "rms_norm_eps": 1e-5}
    assert layers(old) == layers(new)


def test_language_models_by_the_type_around_them() -> None:
    """Kimi-VL's and DeepSeek-OCR's say no type; MiniMax-M1 is MiniMax-01's layer."""
    inner = {key: value for key, value in SMALL["deepseek_v3"].items() if key != "model_type"}
    assert layers({"model_type": "kimi_vl", "text_config": inner}) == layers(SMALL["deepseek_v3"])
    assert layers(SMALL["minimax"] | {"model_type": "minimax_m1"}) == layers(SMALL["minimax"])


def test_ernie_4_5_vl_without_a_nested_language_model() -> None:
    """The released file is flat, and of another type than the class."""
    plain = {
        "model_type": "ernie4_5_vl_moe_text", **DENSE, "num_key_value_heads": 2, "intermediate_size": 96, "moe_k": 2,
        "moe_intermediate_size": [24, 12], "moe_num_experts": [8, 8], "moe_num_shared_experts": 2,
    }  # fmt: skip
    released = plain | {"model_type": "ernie4_5_moe_vl", "moe_layer_end_index": [1, 1], "moe_layer_start_index": [1, 1],
                        "freq_allocation": 20, "rope_3d": True, "spatial_conv_size": 2, "temporal_conv_size": 2,
                        "vision_config": {"depth": 2}, "max_text_id": 120, "moe_gate": "top2_fused"}  # fmt: skip
    assert layers(released)["layers"] == layers(plain)["layers"]


def test_interleaved_sections_under_an_older_name() -> None:
    """Qwen3-Omni's file says both; without sections the word is not understood."""
    sections = {"mrope_section": [2, 1, 1], "interleaved": True, "rope_type": "default"}
    config = {"model_type": "qwen3_moe", **DENSE, "head_dim": 16, "num_key_value_heads": 2}
    assert layers(config | {"rope_scaling": sections})
    with pytest.raises(SpecError, match="interleaved"):
        from_config(config | {"rope_scaling": {"interleaved": True, "rope_type": "default"}})


def test_deepseek_ocr_keeps_whole_keys_and_values() -> None:
    """`use_mla: false`: the attention of the first DeepSeek MoE."""
    own = {
        **DENSE, "intermediate_size": 96, "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 2,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    }  # fmt: skip
    latent = {"kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}
    released = own | latent | {"use_mla": False, "lm_head": True, "rm_head": False, "topk_method": "greedy",
                               "n_group": 1, "topk_group": 1}  # fmt: skip
    around = {"model_type": "deepseek_vl_v2", "language_config": released}
    assert layers(around)["layers"] == layers({"model_type": "deepseek", **own})["layers"]


def test_minicpm_v_is_the_qwen_that_its_version_says() -> None:
    """4.5 is Qwen3, 2.6 is Qwen2; others are not known."""
    beside = {"query_num": 64, "slice_config": {"max_slice_nums": 9}, "slice_mode": True, "patch_size": 14}
    for version, family in (("4.5", "qwen3"), ("2.6", "qwen2")):
        config = {"model_type": "minicpmv", **DENSE, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96}
        assert layers(config | beside | {"version": version}) == layers(config | {"model_type": family})
    with pytest.raises(SpecError, match="version"):
        from_config(config | beside | {"version": "9"})


def test_bitnet_is_packed_offline() -> None:
    """Two bits for each of three values; online, 16 bits that are rounded when they are used."""
    stored = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    packed = from_config(SMALL["bitnet"] | {"quantization_config": stored | {"quantization_mode": "offline"}})
    assert packed["weights"]["linear"] == "bitnet_2bit=1*2bit@int8"
    online = from_config(SMALL["bitnet"] | {"quantization_config": stored | {"quantization_mode": "online"}})
    assert online["weights"] == {"default": "bf16"}


def test_spark_x2_5() -> None:
    """The released file of the 4B model names switches that its layer does not have; its weights are 4,112,079,360."""
    released = {
        "architectures": ["Spark2_5ForCausalLM"], "model_type": "spark2_5", "vocab_size": 131072, "hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 256, "hidden_act": "gelu", "max_position_embeddings": 1048576, "sliding_window": 512,
        "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 5000000},
                            "sliding_attention": {"partial_rotary_factor": 1.0, "rope_theta": 10000}},
        "headwise_attn_output_gate": True, "gate_attn_act_mode": "sigmoid", "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 9,
        "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-06,
    }  # fmt: skip
    assert count(model_from(from_config(released))).total == 4_112_079_360
    with pytest.raises(SpecError, match="attention_bias"):
        from_config(released | {"attention_bias": True})


def test_phi_3_small_is_the_model_of_the_catalog() -> None:
    """The released file, whose class comes with the checkpoint."""
    released = {
        "model_type": "phi3small", "attention_bias": False, "blocksparse_block_size": 64, "vocab_size": 100352,
        "blocksparse_homo_head_pattern": False, "blocksparse_num_local_blocks": 16, "blocksparse_vert_stride": 8,
        "blocksparse_triton_kernel_block_size": 64, "dense_attention_every_n_layers": 2, "ff_dim_multiplier": None,
        "ff_intermediate_size": 14336, "gegelu_limit": 20.0, "gegelu_pad_to_256": True, "hidden_act": "gegelu",
        "hidden_size": 4096, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 8192, "mup_attn_multiplier": 1.0,
        "mup_embedding_multiplier": 10.0, "mup_use_scaling": True, "mup_width_multiplier": 8.0,
        "torch_dtype": "bfloat16",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_position_scale": 1.0,
        "pad_sequence_to_multiple_of_64": True, "reorder_and_upcast_attn": False, "rope_embedding_base": 1000000,
    }  # fmt: skip
    read, known = (archsim.count(model).to_dict() for model in (released, "phi-3-small-8k"))
    for key in ("params", "kv_cache", "flops"):
        assert read[key] == known[key]


def test_flat_llava_names_its_encoder_alone() -> None:
    """The first LLaVA files stand beside LLaMA's keys; the encoder is another checkpoint, and the answer says so."""
    plain = {"model_type": "llama", **DENSE, "intermediate_size": 96}
    beside = {
        "mm_hidden_size": 1024, "mm_projector_type": "mlp2x_gelu", "mm_vision_select_layer": -2, "use_mm_proj": True,
        "mm_vision_tower": "openai/clip-vit-large-patch14-336", "image_aspect_ratio": "pad",
    }  # fmt: skip
    released = plain | beside | {"model_type": "llava"}
    assert layers(released)["layers"] == layers(plain)["layers"]
    (tower,) = layers(released)["towers"]
    assert "openai/clip-vit-large-patch14-336" in tower["note"]


@pytest.mark.parametrize(
    ("outer", "inner", "keys"),
    [
        ("dots_ocr", "qwen2", {"image_token_id": 90, "vision_config": {"embed_dim": 32}, "video_token_id": 91}),
        ("qwen3_asr_text", "qwen3", {}),
        ("minimax_m3_text", "minimax_m3_vl_text", {"index_head_dim": 16}),
    ],
)
def test_types_that_are_another_family(outer: str, inner: str, keys: dict[str, Any]) -> None:
    """dots.ocr's file is a flat Qwen2, Qwen3-ASR writes text with Qwen3, MiniMax-M3 has a type for texts alone."""
    plain = {"model_type": inner, **DENSE, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96}
    assert layers(plain | keys | {"model_type": outer})["layers"] == layers(plain)["layers"]


def test_switches_of_released_files() -> None:
    """MiMo-V2's projections in three matrices, Ling's normed queries and keys, ChatGLM's groups switched off."""
    mimo = SMALL["mimo_v2_flash"]
    assert layers(mimo | {"attention_projection_layout": "split"}) == layers(mimo)
    ling = {"model_type": "bailing_moe", **DENSE, "head_dim": 16, "num_key_value_heads": 2}
    normed, plain = (count(model_from(from_config(ling | {"use_qk_norm": on}))).total for on in (True, False))
    assert normed - plain == 2 * 2 * 16
    glm = {"model_type": "chatglm", "hidden_size": 64, "num_attention_heads": 4, "num_layers": 2, "kv_channels": 16}
    assert layers(glm | {"multi_query_group_num": 2, "interleaved_qkv": False}) == layers(glm)
