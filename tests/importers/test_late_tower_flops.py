"""FLOPs of encoders that convolve over grids and waveforms equal what FlopCounterMode counts of the classes of
transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.graph.step import Step
from archsim.importers.hf.describe import from_config
from archsim.spec.model import Model, Tower
from archsim.spec.tower import lower_tower, tokens_of
from tests.importers.test_recent_tower_flops import counted, linear_flops

pytestmark = pytest.mark.slow

WIDTH = 96
LLAMA = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 80, "vocab_size": 300, "pad_token_id": 0}  # fmt: skip
LAYERS = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SMALL = {**LAYERS, "image_size": 56, "patch_size": 14}
BART = {"model_type": "bart", "d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 300,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "pad_token_id": 0}  # fmt: skip
SAM = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 160, "patch_size": 16,
       "global_attn_indexes": [1], "window_size": 4, "output_channels": 12, "mlp_dim": 80}  # fmt: skip
DAVIT = {"embed_dim": [16, 32, 64], "depths": [1, 2, 1], "num_heads": [2, 2, 4], "num_groups": [2, 4, 4],
         "patch_size": [7, 3, 3], "patch_stride": [4, 2, 2], "patch_padding": [3, 1, 1],
         "patch_prenorm": [False, True, False], "projection_dim": WIDTH, "window_size": 5, "mlp_ratio": 2.0,
         "max_position_embeddings": 20}  # fmt: skip
IMAGES: dict[str, dict[str, Any]] = {
    "ultravbert": {"vision_config": SMALL, "text_config": {"hidden_size": WIDTH, "num_attention_heads": 4,
                                                           "num_key_value_heads": 2, "num_hidden_layers": 1,
                                                           "intermediate_size": 80, "vocab_size": 300},
                   "pixel_shuffle_factor": 2},
    "aria": {"vision_config": {"model_type": "idefics3_vision", **SMALL}, "projector_patch_to_query_dict": {16: 5},
             "text_config": {**LLAMA, "moe_num_experts": 2}},
    "deepseek_vl_hybrid": {"vision_config": {"model_type": "siglip_vision_model", **SMALL},
                           "high_res_vision_config": {"model_type": "sam_vision_model", **SAM},
                           "text_config": {"model_type": "llama", **LLAMA}},
    "florence2": {"vision_config": DAVIT, "text_config": BART},
}  # fmt: skip
TOKENS = {"ultravbert": 4, "aria": 5, "deepseek_vl_hybrid": 16, "florence2": 5 * 7 + 1}
GRID = {"florence2": (20, 27)}


def built(name: str, config: Any) -> Any:
    """A class of transformers whose attention the counter sees."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config._attn_implementation = "eager"
    with torch.device("cpu"):
        return getattr(transformers, name)(config).eval().requires_grad_(False)


def config_of(family: str, **fields: Any) -> Any:
    """A config of transformers."""
    transformers = pytest.importorskip("transformers")
    return transformers.CONFIG_MAPPING[family](**fields)


def read(config: Any) -> Model:
    """What is read of a config."""
    return Model.model_validate(from_config(json.loads(config.to_json_string(use_diff=False)), "read"))


def tower_of(config: Any, name: str) -> Tower:
    """An encoder of a config."""
    (found,) = [tower for tower in read(config).towers if tower.name == name]
    assert found.note is None
    return found


CLASSES = {"ultravbert": "UltraVBertModel", "aria": "AriaModel", "deepseek_vl_hybrid": "DeepseekVLHybridModel",
           "florence2": "Florence2Model"}  # fmt: skip


def seen(family: str, model: Any) -> Callable[[], Any]:
    """An image through a class."""
    import torch

    def image(rows: int, columns: int | None = None) -> Any:
        return torch.ones(1, 3, rows, columns or rows)

    if family == "ultravbert":
        vision, mask = model.vision_model, torch.ones(1, 4, 4, dtype=torch.bool)
        return lambda: model.connector(vision(pixel_values=image(56), patch_attention_mask=mask).last_hidden_state)
    if family == "aria":
        return lambda: model.get_image_features(image(56))
    if family == "deepseek_vl_hybrid":
        return lambda: model.get_image_features(image(56), image(160))
    return lambda: model.get_image_features(image(80, 108))


@pytest.mark.parametrize("family", IMAGES)
def test_images(family: str) -> None:
    """A picture goes in, and so many vectors come out."""
    config = config_of(family, **IMAGES[family])
    tower = tower_of(config, "vision")
    step = one_image(GRID.get(family, (4, 4)))
    assert tokens_of(tower, step) == TOKENS[family]
    assert int(flops(lower_tower(tower, step))) == counted(seen(family, built(CLASSES[family], config)))


SAMPLES = {"num_filters": 4, "downsampling_ratios": [4, 8], "depths": [1, 2, 3], "hidden_size": 24}
QWEN = {**LLAMA, "model_type": "qwen2"}
SOUNDS: dict[str, dict[str, Any]] = {
    "omniasr": {"audio_config": {
        **LAYERS,
        "conv_dim": [24] * 3, "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2],
        "num_conv_pos_embedding_groups": 4, "num_conv_pos_embeddings": 16}, "text_config": LLAMA},
    "fun_asr_nano": {"audio_config": {"hidden_size": 64, "num_hidden_layers": 5, "num_timestamp_prediction_layers": 2,
                                      "num_mel_bins": 10, "intermediate_size": 96},
                     "adaptor_config": {"hidden_size": WIDTH, "intermediate_size": WIDTH // 4, "num_attention_heads": 4,
                                        "projector_hidden_size": 40},
                     "text_config": {**LLAMA, "model_type": "qwen3"}},
    "vibevoice_asr": {"acoustic_tokenizer_encoder_config": SAMPLES, "text_config": QWEN,
                      "semantic_tokenizer_encoder_config": {**SAMPLES, "hidden_size": 40},
                      "acoustic_tokenizer_chunk_size": 3200},
    "vibevoice": {"audio_config": SAMPLES, "semantic_model_config": {**SAMPLES, "hidden_size": 40},
                  "text_config": QWEN, "diffusion_head_config": {"num_hidden_layers": 1, "intermediate_size": 50}},
    "nemo_speechlm": {
        "audio_config": {
            "asr_config": {**LAYERS, "num_mel_bins": 16},
            "diarization_config": {
                "model_type": "nemotron3_diarization",
                "audio_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                 "num_mel_bins": 16, "intermediate_size": 48},
                "head_config": {"hidden_size": 24, "audio_hidden_size": 32}}},
        "word_timestamp_config": {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 30, "blank_token_id": 29},
        "text_config": {"model_type": "nemotron_h", "hidden_size": WIDTH, "num_hidden_layers": 1, "vocab_size": 300,
                        "layers_block_type": ["full_attention"], "num_attention_heads": 4, "num_key_value_heads": 2,
                        "intermediate_size": 80, "head_dim": 24},
    },
    "kyutai_speech_to_text": {
        "codec_config": {"num_filters": 8, "upsampling_ratios": [5, 2], "hidden_size": 48, "head_dim": 8,
                         "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
                         "upsample_groups": 48, "num_quantizers": 4, "codebook_size": 32, "intermediate_size": 64},
        "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 24, "ffn_dim": 64,
        "num_codebooks": 4, "vocab_size": 300, "num_key_value_heads": 4},
    "apertus1p5": {"audio_config": {"num_filters": 8, "upsampling_ratios": [5, 2], "hidden_size": 24,
                                    "codebook_dim": 24, "num_lstm_layers": 1}, "text_config": {"vocab_size": 266752}},
}  # fmt: skip
FRAMES = {"omniasr": 1607, "fun_asr_nano": 64, "vibevoice_asr": 320, "vibevoice": 320, "nemo_speechlm": 160,
          "apertus1p5": 1003, "kyutai_speech_to_text": 400}  # fmt: skip
HEARD = {"omniasr": 79, "fun_asr_nano": 11, "vibevoice_asr": 10, "vibevoice": 10, "nemo_speechlm": 20,
         "apertus1p5": 101, "kyutai_speech_to_text": 20}  # fmt: skip


def heard(family: str, config: Any) -> Callable[[], Any]:
    """A sound through a class."""
    import torch

    names = {"omniasr": "OmniASRModel", "fun_asr_nano": "FunAsrNanoModel", "vibevoice_asr": "VibeVoiceAsrModel",
             "vibevoice": "VibeVoiceModel", "nemo_speechlm": "Nemotron3_5TranscribeModel"}  # fmt: skip
    n = FRAMES[family]
    if family == "apertus1p5":
        audio = built("WavTokenizerEncoderModel", config.audio_config)
        return lambda: audio.encode(torch.zeros(1, 1, n))
    if family == "kyutai_speech_to_text":
        codec = built("MimiModel", config.codec_config)
        return lambda: codec.encode(torch.zeros(1, 1, n))
    model = built(names[family], config)
    if family == "omniasr":
        return lambda: model.get_audio_features(torch.zeros(1, 1, n))
    if family == "fun_asr_nano":
        mask = torch.ones(1, HEARD[family], dtype=torch.long)
        return lambda: model.get_audio_features(torch.zeros(1, HEARD[family], 70), mask)
    if family == "nemo_speechlm":
        return lambda: model.get_audio_features(torch.zeros(1, n, 16), torch.ones(1, n, dtype=torch.long))
    mask = torch.ones(1, n, dtype=torch.bool)
    return lambda: model.get_audio_features(torch.zeros(1, 1, n), mask)


@pytest.mark.parametrize("family", SOUNDS)
def test_sounds(family: str) -> None:
    """A spectrum or a waveform goes in."""
    config = config_of(family, **SOUNDS[family])
    tower = tower_of(config, "audio")
    step = Step.of(1, FRAMES[family], masked=False)
    assert tokens_of(tower, step) == HEARD[family]
    assert int(flops(lower_tower(tower, step))) == counted(heard(family, config)) + BESIDE.get(family, 0)


BESIDE = {
    "omniasr": -linear_flops((1, 16 * 64, 64 // 4)),  # the class makes one vector more of positions, and cuts it off
    "kyutai_speech_to_text": 4 * linear_flops((20, 256, 32)),  # distances to codebooks
    "apertus1p5": linear_flops((101, 2 * 32, 4 * 32)),  # the counter does not see an LSTM
}  # fmt: skip
"""FLOPs that the counter does not count, less what the class throws away."""
