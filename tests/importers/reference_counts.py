"""Writes `counted.json`: small configs of families, and the parameters that the classes of transformers have for them.

`python tests/importers/reference_counts.py` with transformers and torch; the versions are written beside the counts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SMALL = {
    "vocab_size": 128, "hidden_size": 64, "d_model": 64, "n_embd": 64, "intermediate_size": 96, "d_ff": 96, "dff": 96,
    "ffn_dim": 96, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "num_hidden_layers": 4, "num_layers": 4,
    "num_decoder_layers": 4, "n_layer": 4, "encoder_layers": 4, "decoder_layers": 4, "num_attention_heads": 4,
    "n_head": 4, "attention_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "max_position_embeddings": 64, "n_positions": 64,
    "moe_intermediate_size": 48, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "moe_num_experts": 8,
    "shared_expert_intermediate_size": 48, "sliding_window": 16, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "embedding_size": 32, "input_embedding_size": 32,
    "output_embedding_size": 48, "attention_window": 8, "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 32, "local_radius": 7, "codebook_vocab_size": 20, "num_codebooks": 4,
    "additional_vocab_size": 8, "dim_model_base": 16, "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2,
    "n_group": 1, "topk_group": 1, "relative_attention_num_buckets": 8, "conv_L_cache": 3, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "encoder_sparse_step": 2,
    "decoder_sparse_step": 2, "expert_capacity": 8,
}  # fmt: skip
"""What small configs have where the family's own has the key."""

TYPES = """ernie data2vec-text big_bird bert-generation megatron-bert roberta-prelayernorm xlm-roberta-xl rembert
    mpnet nomic_bert gte jina_embeddings_v3 eurobert esmc deberta-v2 glm4v_text glm_ocr_text granite_swa granitemoe_swa
    hy_v3 hyperclovax mellum minicpm3 youtu mistral4 aria_text cohere2_moe kolibri1 flint laguna cosmos3_edge_text
    paddleocr_vl_text
    molmo2_text muse_glimmer_text lfm3 glm4v_moe_text blenderbot-small mvp plbart bigbird_pegasus seamless_m4t nllb-moe
    longt5 led biogpt xglm ctrl moshi kyutai_speech_to_text roformer phi4_multimodal git
    inkling_text
    bitnet modernbert-decoder olmo_hybrid kimi_linear layoutlm tapas flaubert clip_text_model xmod whisper
    speech_to_text pop2piano trocr gpt_neox_japanese"""
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {name: ("", {}) for name in TYPES.split()}
"""model_type -> the class that counts (empty: that of the auto maps), and what its config has beside."""
FAMILIES["nllb-moe"] = ("", {"num_experts": 4})
FAMILIES["seamless_m4t"] = ("SeamlessM4TForTextToText", {})
FAMILIES["esmc"] = ("", {"num_key_value_heads": 4})
FAMILIES["mellum"] = ("", {"layer_types": ["sliding_attention"] * 3 + ["full_attention"],
                           "mlp_layer_types": ["sparse"] * 4})  # fmt: skip
FAMILIES["laguna"] = ("", {"num_attention_heads_per_layer": [4, 8, 8, 8], "num_attention_heads": 8,
                           "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
                           "mlp_layer_types": ["dense"] + ["sparse"] * 3})  # fmt: skip
FAMILIES["inkling_text"] = ("", {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 1, "swa_head_dim": 24,
                                 "layer_types": ["hybrid_sliding"] * 3 + ["hybrid"], "sliding_window_size": 16,
                                 "mlp_layer_types": ["dense"] + ["sparse"] * 3, "d_rel": 3,
                                 "rel_extent": 24})  # fmt: skip
PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
FAMILIES["mistral4"] = ("", {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, **PLAIN})
FAMILIES["cosmos3_edge_text"] = ("", {"rope_parameters": PLAIN["rope_parameters"] | {"mrope_section": [4, 2, 2]}})
FAMILIES["paddleocr_vl_text"] = (
    "PaddleOCRTextModel", {"rope_parameters": PLAIN["rope_parameters"] | {"mrope_section": [4, 2, 2]}}
)  # fmt: skip
FAMILIES["kyutai_speech_to_text"] = ("", {"audio_pad_token_id": 5, "audio_bos_token_id": 4})
FAMILIES["kimi_linear"] = ("", {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "mlp_layer_types":
                                ["dense"] + ["sparse"] * 3, "linear_num_heads": 4, "linear_head_dim": 16})  # fmt: skip
FAMILIES["cohere2_moe"] = ("", {"mlp_layer_types": ["sparse"] * 4})
HYBRID = ["linear_attention", "moe", "full_attention", "mlp"]
FAMILIES |= {
    "mimo_v2_flash": ("", {"routed_scaling_factor": 1.0, "num_key_value_heads": 1, "v_head_dim": 12,
                           "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
                           "mlp_layer_types": ["dense"] + ["sparse"] * 3}),
    "step3p5": ("Step3p7TextModel", {"layer_types": ["full_attention"] + ["sliding_attention"] * 3,
                                     "num_sliding_attention_heads": 6, "share_expert_dim": 48,
                                     "mlp_layer_types": ["dense"] + ["sparse"] * 3, "sliding_window": 16}),
    "minimax_m3_vl_text": ("", {"rotary_dim": 8, "dense_intermediate_size": 80, "shared_intermediate_size": 48}),
    "nemotron_h with latent experts": ("", {
        "model_type": "nemotron_h", "moe_latent_size": 24, "layers_block_type": HYBRID, "mamba_num_heads": 8,
        "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "moe_shared_expert_intermediate_size": 40}),
    "gemma4_text with experts": ("", {
        "model_type": "gemma4_text", "enable_moe_block": True, "num_experts": 8, "top_k_experts": 2,
        "moe_intermediate_size": 24, "global_head_dim": 16, "num_global_key_value_heads": 1,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "attention_k_eq_v": True,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}),
    "glm_moe_dsa with shared indexers": ("", {
        "model_type": "glm_moe_dsa", "indexer_types": ["full", "full", "shared", "shared"], "index_topk": 8,
        "index_n_heads": 2, "index_head_dim": 16, "mlp_layer_types": ["dense"] + ["sparse"] * 3,
        "first_k_dense_replace": 1}),
}  # fmt: skip
GEMMA = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "sliding_window": 16,
         "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
HALF = ["sliding_attention", "full_attention"] * 2
LATENT = {"num_key_value_heads": 4, "mlp_layer_types": ["dense"] + ["sparse"] * 3}
FAMILIES |= {
    "bailing_hybrid": ("", {
        **LATENT, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_num_heads": 4,
        "linear_head_dim": 16, "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_token": 2,
        "num_expert_group": 1, "topk_group": 1, "q_lora_rank": None}),
    "beam": ("", {"layer_types": HALF, "mlp_layer_types": ["dense"] + ["sparse"] * 3}),
    "axk1": ("", {**LATENT, "head_dim": 8}),
    "deepseek_ocr2_text": ("DeepseekOcr2TextModel", {**LATENT, "num_experts_per_tok": 2}),
    "gemma4_unified_text": ("", {"layer_types": ["sliding_attention"] * 3 + ["full_attention"],
                                 "per_layer_config": {"3": {"head_dim": 32}}}),
    "mllama_text_model": ("MllamaForCausalLM", {"cross_attention_layers": [1, 3]}),
    "blip_text_model": ("BlipTextLMHeadModel", {"encoder_hidden_size": 64}),
    "moonshine": ("", {f"{side}_{key}": 4 for side in ("encoder", "decoder")
                       for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")}),
    "cpmant": ("", {"num_attention_heads": 4, "dim_head": 16, "dim_ff": 96, "prompt_types": 2, "prompt_length": 4,
                    "segment_types": 4, "position_bias_num_buckets": 16}),
    "ultrabert": ("", {"layer_types": HALF}),
    "t5gemma": ("", {"encoder": GEMMA, "decoder": {**GEMMA, "cross_attention_hidden_size": 64}}),
}  # fmt: skip
FAMILIES |= {
    "diffllama": ("", {}),
    "deepseek_v4": ("", {
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"] * 2,
        "mlp_layer_types": ["hash_moe"] + ["moe"] * 5, "num_hidden_layers": 6, "head_dim": 16, "o_groups": 2,
        "o_lora_rank": 12, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4, "num_key_value_heads": 1,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}, "hc_mult": 3,
        "partial_rotary_factor": 0.5}),
}  # fmt: skip
FAMILIES |= {
    "lara_mini": ("", {"layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"],
                       "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                       "linear_key_head_dim": 16, "linear_value_head_dim": 12}),
    "mistral_large4_text": ("MistralLarge4TextModel", {
        **LATENT, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8,
        "indexer_types": ["full", "full", "shared", "full"], "no_rope_layers": [1, 1, 1, 0],
        "kv_source_layers": [0, 1, 2, 3], "layer_types": ["indexed_attention"] * 4}),
    "glm5_next_text": ("Glm5NextTextModel", {
        **LATENT, "layer_types": ["linear_attention", "indexed_attention"] * 2, "qk_rope_head_dim": 0,
        "linear_num_heads": 4, "linear_head_dim": 16, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 16,
        "index_kpool": 4, "hc_mult": 3, "indexer_types": ["full"] * 4}),
    "apertus1p5_text": ("", {"output_vocab_size": 100}),
    "sarvam_moe": ("", {"n_shared_experts": 1, "first_k_dense_replace": 1, "attention_bias": True}),
    "sarvam_mla": ("", {**LATENT, "first_k_dense_replace": 1, "n_shared_experts": 1}),
    "exaone": ("", {}),
    "bailing_hybrid with narrow queries": ("", {
        **FAMILIES["bailing_hybrid"][1], "model_type": "bailing_hybrid", "q_lora_rank": 24}),
}  # fmt: skip
FAMILIES["whisper"] = ("WhisperForConditionalGeneration", {})
FAMILIES["flaubert"] = ("", {"emb_dim": 64, "n_layers": 4, "n_heads": 4})
LISTS = ("layer_types", "mlp_layer_types", "layer_rope_theta", "rope_scaling_layers", "mlp_only_layers")
OTHERS = ("vision_tower", "vision_model", "visual", "audio", "image", "codec", "embed_positions.weights", "speech")
"""Words in names of parameters that are no part of the language model."""
FIXED = {"roformer": "embed_positions"}
"""Tables of sinusoids that a class holds as parameters."""


def small(model_type: str, more: dict[str, Any]) -> dict[str, Any]:
    """A config of the family with few layers and small widths."""
    from transformers import CONFIG_MAPPING

    model_type = more.get("model_type", model_type)
    usual = json.loads(CONFIG_MAPPING[model_type]().to_json_string(use_diff=False))
    found = {key: value for key, value in SMALL.items() if usual.get(key) is not None}
    for key in LISTS:
        if isinstance(usual.get(key), list):
            found[key] = usual[key][:4] if key != "mlp_only_layers" else [0]
    if "vocab_size" not in found:
        found["vocab_size"] = SMALL["vocab_size"]
    return {"model_type": model_type, **found, **more}


def parameters(model_type: str, named: str, config: dict[str, Any]) -> int:
    """Parameters of the class, of its text part where it has others; the base class with a head of its own."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    model_type = config["model_type"]
    built_config = transformers.CONFIG_MAPPING[model_type](**{k: v for k, v in config.items() if k != "model_type"})
    inside = model_type.removesuffix("_text")  # the text part of a model that writes has that model's head
    embeds = model_type in auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES and not (
        model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES | auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        or inside in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    )
    masked = model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    encoder = (masked or embeds) and not getattr(built_config, "is_encoder_decoder", 0)
    maps = (auto.MODEL_MAPPING_NAMES,) if encoder else (
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, auto.MODEL_MAPPING_NAMES)  # fmt: skip
    name = named or next(found[model_type] for found in maps if model_type in found)
    if isinstance(name, (tuple, list)):
        name = name[0]
    if model_type == "bert-generation":
        name = "BertGenerationEncoder"
    with torch.device("meta"):
        model = getattr(transformers, name)(built_config)
    model.tie_weights()
    left_out = (*OTHERS, FIXED.get(model_type, "no such name"))
    total = sum(p.numel() for n, p in model.named_parameters() if not any(word in n for word in left_out))
    base = not encoder and (name == auto.MODEL_MAPPING_NAMES.get(model_type) or name.endswith("TextModel"))
    head = (
        0
        if not base or getattr(built_config, "tie_word_embeddings", False)
        else config["vocab_size"] * config["hidden_size"]
    )
    return int(total + head)


def main() -> None:
    """Write the file."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import transformers

    rows: dict[str, Any] = {}
    for name, (named, more) in FAMILIES.items():
        config = small(name, more)
        rows[name] = {"config": config, "params": parameters(name, named, config)}
    text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    first = f'{{\n "transformers": "{transformers.__version__}",\n "families": {{\n'
    (HERE / "counted.json").write_text(f"{first}{text}\n }}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
