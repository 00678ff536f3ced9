"""Writes `towers.json`: encoders of families, of their usual size and of another, and what the classes of transformers
count for them.

`python tests/importers/reference_towers.py` with transformers and torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("towers.json")
LANGUAGE = re.compile(r"(^|\.)(language_model|text_model|lm_head)\b")

QWEN = {"depth": 5, "hidden_size": 48, "intermediate_size": 70, "num_heads": 4, "out_hidden_size": 96}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}  # fmt: skip
SIGLIP = {**CLIP, "model_type": "siglip_vision_model"}
LLAMA4 = {"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
          "image_size": 56, "vision_output_dim": 80, "projector_input_dim": 80, "projector_output_dim": 80}  # fmt: skip
GEMMA4 = {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 4, "head_dim": 12, "standardize": True,
          "global_head_dim": 12, "image_seq_length": 280}  # fmt: skip
MLLAMA = {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3, "num_global_layers": 2,
          "attention_heads": 4, "image_size": 56, "vision_output_dim": 144,
          "intermediate_layers_indices": [0, 2]}  # fmt: skip
SIGLIP_PLAIN = {key: value for key, value in CLIP.items() if key != "model_type"}
SIGLIP2 = {key: value for key, value in SIGLIP_PLAIN.items() if key != "image_size"} | {"num_patches": 30}
HUNYUAN = {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3, "num_attention_heads": 4,
           "num_key_value_heads": 4}  # fmt: skip
TEXTS = {"hunyuan_vl": {"head_dim": 8}}
"""What the default config of a language model lacks."""
FAMILIES: dict[str, tuple[dict[str, Any], ...]] = {
    "qwen2_vl": ({}, {"depth": 5, "embed_dim": 48, "num_heads": 4, "hidden_size": 96}),
    "qwen2_5_vl": ({}, {**QWEN, "fullatt_block_indexes": [1, 3]}), "qwen3_vl": ({}, QWEN), "qwen3_vl_moe": ({}, QWEN),
    "qwen3_5": ({}, QWEN), "qwen3_5_moe": ({}, QWEN), "glm4v": ({}, {**QWEN, "attention_bias": True}),
    "glm4v_moe": ({}, QWEN),
    "kimi_k25": ({}, {"intermediate_size": 70, "num_hidden_layers": 3}),
    "minimax_m3_vl": ({}, {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3,
                           "num_attention_heads": 4}),
    "gemma3": ({}, {**SIGLIP, "vision_use_head": False}),
    "gemma4": ({"model_type": "gemma4_vision"}, GEMMA4),
    "mllama": ({}, MLLAMA), "llama4": (LLAMA4,),
    "mistral3": ({}, {"hidden_size": 48, "num_attention_heads": 4, "head_dim": 12}),
    "internvl": ({}, {"hidden_size": 48, "num_attention_heads": 4, "use_qk_norm": True, "norm_type": "rms_norm",
                      "use_mean_pooling": False, "attention_bias": True}),
    "llava": ({}, SIGLIP), "llava_next": ({}, CLIP), "llava_onevision": ({}, SIGLIP), "deepseek_vl": ({}, SIGLIP),
    "paligemma": ({}, SIGLIP), "qwen2_audio": ({}, {"d_model": 48, "encoder_layers": 3, "encoder_attention_heads": 4}),
    "voxtral": ({}, {"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}),
    "lfm2_vl": ({}, {**SIGLIP2, "vision_use_head": False}), "cosmos3_edge": (SIGLIP2,), "idefics3": (SIGLIP_PLAIN,),
    "smolvlm": ({},), "modernvbert": (SIGLIP,), "paddleocr_vl": ({}, SIGLIP_PLAIN),
    "exaone4_5": ({}, {**QWEN, "num_key_value_heads": 2, "fullatt_block_indexes": [1, 3]}),
    "hyperclovax_vision_v2": ({**QWEN, "fullatt_block_indexes": [1, 3]},),
    "glm_ocr": ({}, {**QWEN, "attention_bias": False}), "cosmos3_omni": (QWEN,),
    "hy_v4_vl": ({}, HUNYUAN), "hunyuan_vl": (HUNYUAN,), "vipllava": (CLIP,),
    "muse_glimmer": ({}, {"num_hidden_layers": 3, "pos_emb_height": 5, "layer_types": ["full_attention"] * 3}),
    "lighton_ocr": ({}, {"hidden_size": 48, "num_attention_heads": 4, "head_dim": 12}),
    "qianfan_ocr": ({}, {"hidden_size": 48, "num_attention_heads": 4, "use_qk_norm": True}),
    "audioflamingo3": ({"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 3,
                        "num_attention_heads": 4},),
}  # fmt: skip
"""model_type -> what the configs of its encoder have that its class does not say."""

WHISPER = {"d_model": 48, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 70}
FAMILIES |= {
    "cohere2_vision": ({}, SIGLIP), "aya_vision": (SIGLIP,),
    "ernie4_5_vl_moe": ({}, {"depth": 3, "hidden_size": 48, "num_heads": 4, "intermediate_size": 70}),
    "step3p7": ({}, {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 1.5}),
    "minicpmv4_6": ({}, {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 8, "num_attention_heads": 4}),
    "minicpmv4_7": ({},), "minicpm_ocr": ({},), "lfm3_vl": ({},), "nemotron_h_omni": ({}, {"num_hidden_layers": 3}),
    "molmo2": ({}, {"intermediate_size": 70}), "ovis2": ({}, {"num_hidden_layers": 3}),
    "video_llama_3": ({}, SIGLIP_PLAIN), "janus": ({}, {"num_hidden_layers": 3, "depth": 3}),
    "phi4_multimodal": ({}, {"num_hidden_layers": 3, "intermediate_size": 70}),
    "qwen3_asr": ({}, WHISPER), "glmasr": ({}, {"num_hidden_layers": 3, "intermediate_size": 2560}),
    "moss_transcribe_diarize": ({},), "video_llava": ({},),
    "mistral_large4": ({}, {"hidden_size": 48, "num_attention_heads": 4, "head_dim": 12}),
    "glm5_next": ({}, {**QWEN, "projection_intermediate_size": 80}),
    "got_ocr2": ({}, {"num_hidden_layers": 3, "global_attn_indexes": [1]}), "pp_chart2table": ({},),
}  # fmt: skip
EVA = {"hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3, "num_attention_heads": 4}
FAMILIES |= {
    "idefics2": ({}, SIGLIP_PLAIN), "blip-2": ({}, EVA), "instructblip": ({}, EVA), "blip": ({}, EVA),
    "kosmos-2": ({}, SIGLIP_PLAIN), "kosmos-2.5": ({}, {"hidden_size": 48, "num_hidden_layers": 3}),
    "git": ({}, SIGLIP_PLAIN), "granite_docling": ({}, {**EVA, "use_fine_route": False}),
    "granite4_vision": ({}, {**CLIP, "hidden_size": 128}), "clip": ({}, SIGLIP_PLAIN),
}  # fmt: skip
DAVIT = {"embed_dim": [16, 32, 64], "depths": [1, 2, 1], "num_heads": [2, 2, 4], "num_groups": [2, 4, 4],
         "patch_size": [7, 3, 3], "patch_stride": [4, 2, 2], "patch_padding": [3, 1, 1],
         "patch_prenorm": [False, True, False], "projection_dim": 96, "window_size": 5,
         "max_position_embeddings": 20, "mlp_ratio": 2.0}  # fmt: skip
FAMILIES |= {
    "ultravbert": ({}, SIGLIP), "aria": ({}, {**SIGLIP_PLAIN, "image_size": 490}), "florence2": ({}, DAVIT),
    "deepseek_vl_hybrid": ({}, SIGLIP),
    "apertus1p5": ({}, {"base_channels": 32, "channel_multiplier": [1, 2, 2], "num_res_blocks": 2, "embed_dim": 48,
                        "latent_channels": 40, "attn_resolutions": [64, 32], "resolution": 128}),
}  # fmt: skip
SAMPLES = {"num_filters": 4, "downsampling_ratios": [40, 80], "depths": [1, 2, 3], "hidden_size": 24, "kernel_size": 5}
FAMILIES |= {
    "omniasr": ({}, {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "conv_dim": [24] * 3,
                     "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2], "conv_bias": False,
                     "num_conv_pos_embedding_groups": 4, "num_conv_pos_embeddings": 16}),
    "fun_asr_nano": ({}, {"hidden_size": 48, "num_hidden_layers": 5, "num_timestamp_prediction_layers": 2,
                          "num_stacked_frames": 3, "fsmn_kernel_size": 5, "intermediate_size": 70}),
    "vibevoice_asr": ({}, SAMPLES), "vibevoice": ({}, SAMPLES),
    "kyutai_speech_to_text": ({}, {"num_filters": 8, "upsampling_ratios": [5, 2], "hidden_size": 48, "head_dim": 8,
                                   "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
                                   "use_conv_shortcut": True, "upsample_groups": 48, "codebook_size": 32}),
    "nemo_speechlm": ({}, {"asr_config": {"hidden_size": 80, "num_attention_heads": 4, "num_hidden_layers": 3},
                           "diarization_config": {"model_type": "nemotron3_diarization",
                                                  "audio_config": {"hidden_size": 64, "num_hidden_layers": 2},
                                                  "head_config": {"hidden_size": 40, "audio_hidden_size": 64}}}),
}  # fmt: skip
OUTER: dict[str, dict[str, Any]] = {
    "granite_speech_plus": {"projector_config": {"encoder_hidden_size": 2048}},
    "granite_speech": {"projector_config": {"encoder_hidden_size": 1024}},
    "granite4_vision": {"downsample_rate": "4/8", "deepstack_layer_map": [[-2, 0], [-8, 4]]},
}  # fmt: skip
"""What the config of a whole model needs beside its default."""
SOUNDS: dict[str, tuple[dict[str, Any], ...]] = {
    "granite_speech_plus": ({"cat_hidden_layers": [3]},
                            {"num_layers": 3, "context_size": 40, "cat_hidden_layers": [1]}),
    "apertus1p5": ({}, {"num_filters": 8, "upsampling_ratios": [5, 2], "num_residual_layers": 2, "hidden_size": 24,
                        "codebook_dim": 24, "norm_type": "time_group_norm", "use_conv_shortcut": False}),
    "phi4_multimodal": ({}, {"num_blocks": 2, "intermediate_size": 70}),
    "gemma4": ({"model_type": "gemma4_audio"}, {"num_hidden_layers": 2, "output_proj_dims": 70}),
    "qwen3_omni_moe_thinker": ({}, WHISPER),
    "granite_speech": ({}, {"num_layers": 3, "context_size": 40, "max_pos_emb": 50}),
    "nemotron_h_omni": ({"model_type": "parakeet_encoder", "projection_hidden_size": 96, "projection_bias": True,
                         "num_hidden_layers": 2},),
}  # fmt: skip
"""The same of the encoder of sound beside that of images."""

KEYS = {"granite_speech": "encoder_config", "kyutai_speech_to_text": "codec_config",
        "granite_speech_plus": "encoder_config",
        "vibevoice_asr": "acoustic_tokenizer_encoder_config"}  # fmt: skip
"""The key of an encoder's config, where it is another one."""

CLASSES = {"kyutai_speech_to_text": "KyutaiSpeechToTextForConditionalGeneration"}
"""Classes with an encoder that the usual one lacks."""

OWN = {
    ("blip", "vision"): "^vision_model", ("clip", "vision"): "^vision_model|visual_projection",
    ("apertus1p5", "vision"): "vision_tokenizer", ("apertus1p5", "audio"): "audio_tokenizer",
    ("kyutai_speech_to_text", "audio"): "codec_model", ("git", "vision"): "image_encoder|visual_projection|img_temp",
    ("phi4_multimodal", "vision"): "image_embed", ("phi4_multimodal", "audio"): "audio_embed",
    ("gemma4", "audio"): "audio", ("gemma4", "vision"): "vision",
    ("qwen3_omni_moe_thinker", "audio"): "audio_tower", ("nemotron_h_omni", "audio"): "audio",
}  # fmt: skip
"""What is found in the names of an encoder's parameters, where a class has several encoders."""

MISSING: dict[tuple[str, str], dict[str, Any]] = {
    ("qwen3_omni_moe_thinker", "audio"): {"text_config": {"head_dim": 128}}
}
"""What the default config of a class lacks."""

AUDIO = frozenset({"qwen2_audio", "voxtral", "audioflamingo3", "qwen3_asr", "glmasr", "moss_transcribe_diarize",
                   "omniasr", "fun_asr_nano", "vibevoice_asr", "vibevoice", "nemo_speechlm",
                   "kyutai_speech_to_text"})  # fmt: skip
"""Families that only hear."""


PROJECTORS = frozenset({"adapter_config", "qformer_config", "perceiver_config", "projector_config", "adaptor_config",
                        "high_res_vision_config", "vq_config", "projector_patch_to_query_dict", "semantic_model_config",
                        "semantic_tokenizer_encoder_config", "diffusion_head_config",
                        "word_timestamp_config"})  # fmt: skip
"""Mappings beside an encoder's that say how it is projected."""

OF_TEXT = ("attention_heads", "hidden_act", "intermediate_size")
OF_TEXT_TOO = frozenset({"idefics2", "kosmos-2", "kosmos-2.5"})
"""Families whose projectors take sizes from the language model, and these."""


def is_own(name: str, model_type: str, tower: str) -> bool:
    """Whether a parameter belongs to the encoder."""
    if LANGUAGE.search(name):
        return False
    return re.search(OWN.get((model_type, tower), ""), name) is not None


def row(model_type: str, more: dict[str, Any], tower: str) -> dict[str, Any]:
    """One config and its count."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    usual = transformers.CONFIG_MAPPING[model_type](**OUTER.get(model_type, {}))
    key = KEYS.get(model_type, f"{tower}_config")
    inner = getattr(usual, key)
    same = inner is not None and more.get("model_type", inner.model_type) == inner.model_type
    own = {**(inner.to_dict() if same else {}), **more}
    text = {"text_config": TEXTS[model_type]} if model_type in TEXTS else MISSING.get((model_type, tower), {})
    config = transformers.CONFIG_MAPPING[model_type](**{key: own}, **text, **OUTER.get(model_type, {}))
    maps = (auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
            auto.MODEL_MAPPING_NAMES)  # fmt: skip
    usual_name = next(found[model_type] for found in maps if model_type in found)
    name = CLASSES.get(model_type, usual_name)
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    count = sum(p.numel() for n, p in model.named_parameters() if is_own(n, model_type, tower))
    outer = json.loads(config.to_json_string(use_diff=True))
    plain = {key: value for key, value in outer.items() if not isinstance(value, Mapping) or key in PROJECTORS}
    own = outer[key]
    if model_type in OF_TEXT_TOO:
        plain["text_config"] = {key: outer["text_config"][key] for key in OF_TEXT if key in outer["text_config"]}
    return {"model_type": model_type, "tower": tower, "width": config.get_text_config().hidden_size, "params": count,
            "config": plain, "own": own}  # fmt: skip


def main() -> None:
    """Write the file."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import transformers

    seen = [(name, more, "audio" if name in AUDIO else "vision") for name, each in FAMILIES.items() for more in each]
    heard = [(name, more, "audio") for name, each in SOUNDS.items() for more in each]
    rows = [row(*one) for one in (*seen, *heard)]
    text = ",\n".join(f"  {json.dumps(one)}" for one in rows)
    FILE.write_text(f'{{\n "transformers": "{transformers.__version__}",\n "towers": [\n{text}\n ]\n}}\n', "utf-8")


if __name__ == "__main__":
    main()
