"""FLOPs of the encoders of 2025 and 2026 equal what FlopCounterMode counts of the classes of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.graph.step import Step
from archsim.importers.hf.describe import stages
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower

pytestmark = pytest.mark.slow

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SIGLIP = {**SMALL, "model_type": "siglip_vision_model", "image_size": 56, "patch_size": 14, "vision_use_head": False}
WHISPER = {"d_model": 64, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 96}
GRID = (8, 12)
WIDTH = 96


def transformers_class(path: str) -> Any:
    """A class of transformers by module and name."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from importlib import import_module

    module, _, name = path.rpartition(".")
    return getattr(import_module(f"transformers.models.{module}"), name)


def counted(run: Callable[[], Any]) -> int:
    """FLOPs of a call."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def own(tower: str, family: str, config: Any, step: Step, around: dict[str, Any] | None = None) -> int:
    """FLOPs of the graph."""
    found = stages(tower, config.to_dict(), {"model_type": family, **(around or {})}, family, WIDTH)
    read = Tower.model_validate(found)
    assert read.note is None
    return int(flops(lower_tower(read, step)))


def built(path: str, *configs: Any) -> Any:
    """A module whose attention is written out, which the counter sees."""
    import torch

    for config in configs:
        config._attn_implementation = "eager"
    with torch.device("cpu"):
        return transformers_class(path)(*configs)


def text(**more: Any) -> Any:
    """What a projector asks of the language model's config."""
    from types import SimpleNamespace

    return SimpleNamespace(hidden_size=WIDTH, rms_norm_eps=1e-6, **more)


def around(**fields: Any) -> Any:
    """A config of the whole model, of which a projector reads some fields."""
    from types import SimpleNamespace

    return SimpleNamespace(text_config=text(), **fields)


def linear_flops(*shapes: tuple[int, int, int]) -> int:
    """FLOPs of products of rows x inner x columns."""
    return sum(2 * rows * inner * columns for rows, inner, columns in shapes)


def test_cohere() -> None:
    """A pixel shuffle and a gated pair of matrices behind SigLIP."""
    import torch

    config = transformers_class("siglip.configuration_siglip.SiglipVisionConfig")(**SIGLIP)
    siglip = built("siglip.modeling_siglip.SiglipVisionModel", config)
    fields = {"vision_config": config, "downsample_factor": 2, "alignment_intermediate_size": 80}
    projector = built("cohere2_vision.modeling_cohere2_vision.Cohere2VisionMultiModalProjector", around(**fields))
    pixels = torch.zeros(1, 3, 56, 56)
    wanted = counted(lambda: projector(siglip(pixels).last_hidden_state))
    told = {"downsample_factor": 2, "alignment_intermediate_size": 80}
    assert own("vision", "cohere2_vision", config, one_image((4, 4)), told) == wanted


def test_ernie() -> None:
    """Neighbours and frames are merged."""
    import torch

    kind = transformers_class("ernie4_5_vl_moe.configuration_ernie4_5_vl_moe.Ernie4_5_VLMoeVisionConfig")
    config = kind(depth=3, hidden_size=64, num_heads=4, intermediate_size=96)
    module = "ernie4_5_vl_moe.modeling_ernie4_5_vl_moe.Ernie4_5_VLMoe"
    vision = built(f"{module}VisionTransformerPretrainedModel", config)
    whole = transformers_class("ernie4_5_vl_moe.configuration_ernie4_5_vl_moe.Ernie4_5_VLMoeConfig")(
        vision_config=config.to_dict(), text_config={"hidden_size": WIDTH, "num_attention_heads": 4}
    )
    merger = built(f"{module}VariableResolutionResamplerModel", whole)
    grid = torch.tensor([[1, *GRID]])
    pixels = torch.zeros(GRID[0] * GRID[1], 3 * 14 * 14)
    wanted = counted(lambda: merger(vision(pixels, grid_thw=grid).last_hidden_state, grid))
    assert own("vision", "ernie4_5_vl_moe", config, one_image(GRID)) == wanted


def test_step() -> None:
    """Two convolutions of stride 2."""
    import torch

    config = transformers_class("step3p7.configuration_step3p7.Step3p7VisionConfig")(
        **{**SMALL, "image_size": 112, "mlp_ratio": 1.5}
    )
    vision = built("step3p7.modeling_step3p7.Step3p7VisionModel", config)
    wanted = counted(lambda: vision(torch.zeros(1, 3, 8 * 14, 12 * 14)))
    wanted += linear_flops((2 * 3, 4 * 64, WIDTH))
    assert own("vision", "step3p7", config, one_image(GRID)) == wanted


def test_minicpm() -> None:
    """Windows of four patches become one in the middle of the layers."""
    import torch

    kind = transformers_class("minicpmv4_6.configuration_minicpmv4_6.MiniCPMV4_6VisionConfig")
    config = kind(**{**SMALL, "insert_layer_id": 1})
    vision = built("minicpmv4_6.modeling_minicpmv4_6.MiniCPMV4_6VisionModel", config)
    sizes = torch.tensor([[8, 12]], dtype=torch.int32)
    wanted = counted(lambda: vision(torch.zeros(1, 3, 16, 16 * 8 * 12), target_sizes=sizes))
    wanted += linear_flops((2 * 3, 256, 256), (2 * 3, 256, WIDTH))
    assert own("vision", "minicpmv4_6", config, one_image(GRID)) == wanted


def test_lfm3() -> None:
    """Gated convolutions over squares of patches."""
    import torch

    kind = transformers_class("lfm3_vl.configuration_lfm3_vl.Lfm3VlVisionConfig")
    config = kind(**{**SMALL, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention", "conv"]})
    vision = built("lfm3_vl.modeling_lfm3_vl.Lfm3VlVisionModel", config)
    grid = torch.tensor([[1, *GRID]])
    pixels = torch.zeros(GRID[0] * GRID[1], 3 * 2 * 16 * 16)
    wanted = counted(lambda: vision(pixels, grid_thw=grid)) + linear_flops((24, 256, 80), (24, 80, WIDTH))
    told = {"projector_hidden_size": 80}
    assert own("vision", "lfm3_vl", config, one_image(GRID), told) == wanted


def test_molmo() -> None:
    """The mean of four patches attends to them."""
    import torch

    base = "molmo2.configuration_molmo2.Molmo2"
    config = transformers_class(f"{base}VisionConfig")(
        **{**SMALL, "num_key_value_heads": 4, "head_dim": 16, "image_size": [56, 56]}
    )
    inner = transformers_class(f"{base}AdapterConfig")(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=4, head_dim=16, intermediate_size=80,
        text_hidden_size=WIDTH, vision_feature_layer=[-1, -2],
    )  # fmt: skip
    adapter = built("molmo2.modeling_molmo2.Molmo2Adapter", inner)
    pooling = torch.arange(16).reshape(4, 4)
    wanted = counted(lambda: adapter(torch.zeros(1, 16, 128), pooling))
    found = Tower.model_validate(
        stages("vision", config.to_dict(), {"adapter_config": inner.to_dict()}, "molmo2", WIDTH)
    )
    whole = int(flops(lower_tower(found, one_image((4, 4)))))
    first = found.model_copy(update={"stages": found.stages[:3]})
    assert whole - int(flops(lower_tower(first, one_image((4, 4))))) == wanted


@pytest.mark.parametrize("frames", [800, 500])
def test_qwen3_asr(frames: int) -> None:
    """Convolutions of a second each, attention over eight."""
    import torch

    kind = transformers_class("qwen3_asr.configuration_qwen3_asr.Qwen3ASREncoderConfig")
    config = kind(**{**WHISPER, "num_mel_bins": 20, "downsample_hidden_size": 12, "output_dim": 80})
    audio = built("qwen3_asr.modeling_qwen3_asr.Qwen3ASREncoder", config)
    features, mask = torch.zeros(1, 20, frames), torch.ones(1, frames, dtype=torch.long)
    wanted = counted(lambda: audio(features, input_features_mask=mask))
    tokens = frames // 100 * 13
    wanted += linear_flops((tokens, 64, 64), (tokens, 64, 80))
    assert own("audio", "qwen3_asr", config, Step.of(1, frames)) == wanted


@pytest.mark.parametrize("family", ["gemma3n", "gemma4"])
def test_gemma_audio(family: str) -> None:
    """Conformers that attend within blocks of twelve, with keys for distances."""
    import torch

    made = {"gemma3n": "Gemma3nAudioConfig", "gemma4": "Gemma4AudioConfig"}
    names = {"gemma3n": {"conf_num_attention_heads": 4, "conf_num_hidden_layers": 2, "input_feat_size": 32},
             "gemma4": {"num_attention_heads": 4, "num_hidden_layers": 2, "output_proj_dims": 80,
                        "subsampling_conv_channels": [32, 16]}}  # fmt: skip
    kind = transformers_class(f"{family}.configuration_{family}.{made[family]}")
    channels = {"gemma3n": {"sscp_conv_channel_size": (16, 8)}, "gemma4": {}}[family]
    config = kind(hidden_size=64, **names[family], **channels)
    prefix = made[family].removesuffix("AudioConfig")
    model = "AudioEncoder" if family == "gemma3n" else "AudioModel"
    audio = built(f"{family}.modeling_{family}.{prefix}{model}", config)
    frames = 4 * 12 * 5
    features, mask = torch.zeros(1, frames, 32), torch.zeros(1, frames, dtype=torch.bool)
    kept = frames // 4
    if family == "gemma3n":
        wanted = counted(lambda: audio(features, mask)) + linear_flops((kept // 4, 64, WIDTH))
    else:
        wanted = counted(lambda: audio(features, ~mask)) + linear_flops((kept, 80, WIDTH))
    assert own("audio", family, config, Step.of(1, frames)) == wanted


def test_phi4_audio() -> None:
    """Depthwise convolutions over time and frequency, conformers."""
    import torch

    kind = transformers_class("phi4_multimodal.configuration_phi4_multimodal.Phi4MultimodalAudioConfig")
    config = kind(
        hidden_size=64, intermediate_size=48, num_blocks=2, num_attention_heads=4, ext_pw_out_channel=64,
        depthwise_separable_out_channel=64, nemo_conv_channels=24,
    )  # fmt: skip
    audio = built("phi4_multimodal.modeling_phi4_multimodal.Phi4MultimodalAudioModel", config)
    wanted = counted(lambda: audio(torch.zeros(1, 160, 80), None))
    wanted += linear_flops((20, 64, WIDTH), (20, WIDTH, WIDTH))
    wanted -= 2 * linear_flops((2, 3, 64), (2, 64, 64))  # of two vectors behind the end, which each layer cuts off
    assert own("audio", "phi4_multimodal", config, Step.of(1, 160)) == wanted


def test_glm_asr() -> None:
    """Whisper with rotary positions, vectors side by side."""
    import torch

    kind = transformers_class("glmasr.configuration_glmasr.GlmAsrEncoderConfig")
    config = kind(**{**SMALL, "intermediate_size": 256, "num_mel_bins": 20})
    audio = built("glmasr.modeling_glmasr.GlmAsrEncoder", config)
    wanted = counted(lambda: audio(torch.zeros(1, 20, 80)))
    wanted += linear_flops((10, 256, 2 * WIDTH), (10, 2 * WIDTH, WIDTH))
    assert own("audio", "glmasr", config, Step.of(1, 80)) == wanted


def test_parakeet() -> None:
    """A FastConformer: a key for each distance."""
    import torch

    kind = transformers_class("parakeet.configuration_parakeet.ParakeetEncoderConfig")
    config = kind(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, num_mel_bins=32,
        subsampling_conv_channels=16, attention_bias=False,
    )  # fmt: skip
    audio = built("parakeet.modeling_parakeet.ParakeetEncoder", config)
    config.projection_hidden_size, config.projection_bias = 80, False
    wanted = counted(lambda: audio(torch.zeros(1, 160, 32))) + linear_flops((20, 64, 80), (20, 80, WIDTH))
    wanted += 2 * linear_flops((20, 64, 1))  # u times keys, where the class adds u to the queries of each layer
    assert own("audio", "nemotron_h_omni", config, Step.of(1, 160)) == wanted


def test_sam() -> None:
    """Windows that are filled up, biases by rows and by columns, a neck; the projector of GOT-OCR 2."""
    import torch

    kind = transformers_class("got_ocr2.configuration_got_ocr2.GotOcr2VisionConfig")
    config = kind(
        hidden_size=64, output_channels=24, num_hidden_layers=3, num_attention_heads=4, image_size=320, window_size=7,
        global_attn_indexes=[1], mlp_dim=96,
    )  # fmt: skip
    vision = built("got_ocr2.modeling_got_ocr2.GotOcr2VisionEncoder", config)
    projector = built("got_ocr2.modeling_got_ocr2.GotOcr2MultiModalProjector", around(vision_config=config))
    wanted = counted(lambda: projector(vision(torch.zeros(1, 3, 320, 320)).last_hidden_state))
    assert own("vision", "got_ocr2", config, one_image((20, 20))) == wanted
