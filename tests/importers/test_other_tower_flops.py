"""FLOPs of encoders that other files do not run equal what FlopCounterMode counts of the classes of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.graph.step import Step
from archsim.importers.hf.describe import stages
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower
from tests.importers import test_recent_tower_flops as parts
from tests.importers.test_recent_tower_flops import counted, linear_flops

pytestmark = pytest.mark.slow

WIDTH = 96
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SIGHT = {**SMALL, "image_size": 56, "patch_size": 14}
CLIP = {"model_type": "clip_vision_model", **SIGHT}
SIGLIP = {"model_type": "siglip_vision_model", **SIGHT, "vision_use_head": False}
QWEN = {"depth": 4, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": WIDTH}
TEXT = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 64, "vocab_size": 300, "pad_token_id": 0, "head_dim": 24}  # fmt: skip
EXPERTS = {**TEXT, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_local_experts": 4}
GRID = (8, 12)


def built(family: str, fields: dict[str, Any]) -> Any:
    """The class, small, with attention that the counter sees."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto as auto

    maps = (auto.MODEL_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    config = transformers.CONFIG_MAPPING[family](**fields)
    config._attn_implementation = "eager"
    name = next(found[family] for found in maps if family in found)
    with torch.device("cpu"):
        return getattr(transformers, name)(config).eval().requires_grad_(False)


def own(model: Any, step: Step, name: str = "vision") -> int:
    """FLOPs of the graph."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    width, key = model.config.get_text_config().hidden_size, f"{name}_config"
    tower = Tower.model_validate(stages(name, config[key], config, config["model_type"], width))
    assert tower.note is None
    return int(flops(lower_tower(tower, step)))


def text(kind: str = "") -> dict[str, Any]:
    """A small language model's config, by its type where the class does not know it."""
    return {"text_config": {**({"model_type": kind} if kind else {}), **TEXT}}


ONE_SIZE: dict[str, dict[str, Any]] = {
    "deepseek_vl": {"vision_config": SIGLIP, **text("llama")},
    "vipllava": {"vision_config": CLIP, **text("llama"), "vision_feature_layers": [-1, -2, 1]},
    "janus": {"vision_config": {**{key: n for key, n in SIGHT.items() if key != "intermediate_size"}, "mlp_ratio": 1.5,
                                "projection_dim": WIDTH}, **text("llama")},
    "ovis2": {"vision_config": {**SIGHT, "vocab_size": 50}, **text("qwen2"), "hidden_size": WIDTH},
    "blip": {"vision_config": SIGHT},
    "video_llava": {"vision_config": CLIP, **text("llama")},
    "llava_next": {"vision_config": CLIP, **text("llama"), "image_grid_pinpoints": [[56, 56]]},
    "llava_onevision": {"vision_config": SIGLIP, **text("qwen2"), "image_grid_pinpoints": [[56, 56]]},
    "idefics3": {"vision_config": SIGHT, **text("llama")},
    "modernvbert": {"vision_config": SIGLIP, "pixel_shuffle_factor": 2, "text_config": {
        "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64,
        "vocab_size": 300, "pad_token_id": 0}},
    "aya_vision": {"vision_config": SIGLIP, **text("cohere2")},
    "mistral3": {"vision_config": {"model_type": "pixtral", **SIGHT, "head_dim": 16}, **text("mistral")},
    "llama4": {"vision_config": {**SIGHT, "intermediate_size": 256, "vision_output_dim": 80, "projector_input_dim": 80,
                                 "projector_output_dim": 80}, "text_config": EXPERTS},
}  # fmt: skip


def one_size(family: str, model: Any) -> Callable[[], Any]:
    """An image of 56 x 56 pixels through a class."""
    import torch

    pixels = torch.ones(1, 3, 56, 56)
    if family in ("llava_next", "llava_onevision"):
        both = torch.stack([pixels, pixels], dim=1)  # the whole image, and one tile
        return lambda: model.get_image_features(both, torch.tensor([[56, 56]]))
    if family == "blip":
        return lambda: model.vision_model(pixels)
    if family == "video_llava":
        return lambda: model.get_image_features(pixel_values_images=pixels)
    if family in ("idefics3", "modernvbert"):
        return lambda: model.get_image_features(pixels[None])
    if family == "mistral3":
        return lambda: model.get_image_features(pixels, torch.tensor([[56, 56]]))
    return lambda: model.get_image_features(pixels)


TWICE = frozenset(["llava_next", "llava_onevision"])


@pytest.mark.parametrize("family", ONE_SIZE)
def test_images_of_one_size(family: str) -> None:
    """A picture goes in."""
    model = built(family, ONE_SIZE[family])
    step = one_image((4, 4), 2 if family in TWICE else 1)
    assert own(model, step) == counted(one_size(family, model)) + BESIDE.get(family, 0)


BESIDE: dict[str, int] = {
    "llama4": linear_flops((4, 80, WIDTH)),
    "hunyuan_vl": -linear_flops((4, 4 * 64, WIDTH)),
    "lfm2_vl": -linear_flops((8 * 12, 9 * 9, 64)),
}  # fmt: skip
"""FLOPs of projectors that the classes run elsewhere, less those of learned vectors at the ends of rows, and of
products by which they stretch a table of positions.
"""

ANY_SIZE: dict[str, dict[str, Any]] = {
    "paddleocr_vl": {"vision_config": {**SMALL, "image_size": 56, "patch_size": 14}, **text()},
    "cosmos3_edge": {"vision_config": {**SMALL, "num_patches": 16, "patch_size": 16},
                     "text_config": {**TEXT, "head_dim": 128}},
    "hyperclovax_vision_v2": {"vision_config": {**QWEN, "fullatt_block_indexes": [1, 3]}, **text()},
    "muse_glimmer": {"vision_config": {**SMALL, "pos_emb_height": 5, "pos_emb_width": 5}, **text(),
                     "projector_hidden_size": 40, "out_hidden_size": 4 * 64},
    "minimax_m3_vl": {"vision_config": SMALL, "text_config": EXPERTS, "projector_hidden_size": 40},
    "kimi_k25": {"vision_config": {**SMALL, "pos_emb_height": 8, "pos_emb_width": 8}, "text_config": EXPERTS,
                 "projection_hidden_size": 64},
    "hy_v4_vl": {"vision_config": {**SMALL, "num_key_value_heads": 4, "out_hidden_size": WIDTH},
                 "text_config": EXPERTS},
    "video_llama_3": {"vision_config": {**SMALL, "patch_size": 14}, **text("qwen2")},
    "lfm2_vl": {"vision_config": {**SMALL, "num_patches": 81, "patch_size": 16, "vision_use_head": False},
                **text("lfm2")},
    "hunyuan_vl": {"vision_config": {**SMALL, "num_key_value_heads": 4, "text_hidden_size": WIDTH,
                                     "out_hidden_size": WIDTH, "max_image_size": 256}, **text()},
    "qwen2_5_omni_thinker": {"vision_config": {**QWEN, "fullatt_block_indexes": [1, 3]}, **text()},
}  # fmt: skip


def any_size(family: str, model: Any) -> Callable[[], Any]:
    """An image of 8 x 12 patches through a class."""
    import torch

    vision, n = model.config.vision_config, GRID[0] * GRID[1]
    grid = torch.tensor([[1, *GRID]])
    side, frames = vision.patch_size, getattr(vision, "temporal_patch_size", getattr(vision, "patch_temporal", 1))
    flat = torch.zeros(n, 3 * frames * side**2)
    if family == "lfm2_vl":
        mask = torch.ones(1, n, dtype=torch.long)
        return lambda: model.get_image_features(flat[None], torch.tensor([GRID]), mask)
    if family == "video_llama_3":
        return lambda: model.get_image_features(flat, grid, torch.tensor([1]))
    if family in ("kimi_k25", "paddleocr_vl"):
        return lambda: model.get_image_features(flat.reshape(n, 3, side, side), grid)
    return lambda: model.get_image_features(flat, grid)


@pytest.mark.parametrize("family", ANY_SIZE)
def test_images_of_any_size(family: str) -> None:
    """Patches and their grid go in."""
    model = built(family, ANY_SIZE[family])
    assert own(model, one_image(GRID)) == counted(any_size(family, model)) + BESIDE.get(family, 0)


WHISPER = {"d_model": 64, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 96, "num_mel_bins": 20}
SOUNDS: dict[str, dict[str, Any]] = {
    "qwen2_audio": {"audio_config": {**WHISPER, "max_source_positions": 60}, **text("qwen2")},
    "audioflamingo3": {"audio_config": {**SMALL, "num_mel_bins": 20, "max_source_positions": 60},
                       **text("qwen2")},
    "voxtral": {"audio_config": {**SMALL, "intermediate_size": 256, "num_mel_bins": 20, "max_source_positions": 60,
                                 "num_key_value_heads": 4, "head_dim": 16}, **text("llama")},
    "qwen2_5_omni_thinker": {"audio_config": {**WHISPER, "output_dim": WIDTH}, **text()},
    "moss_transcribe_diarize": {"audio_config": {**WHISPER, "max_source_positions": 60}, **text("qwen3")},
    "gemma4_unified": {"audio_config": {"audio_embed_dim": 40}, **text()},
}  # fmt: skip


def heard(family: str, model: Any) -> Callable[[], Any]:
    """A spectrum of 120 columns, or 120 pieces of a waveform, through a class."""
    import torch

    columns, mask = torch.zeros(1, 20, 120), torch.ones(1, 120, dtype=torch.long)
    if family == "qwen2_audio":
        return lambda: model.multi_modal_projector(model.audio_tower(columns).last_hidden_state)
    if family == "gemma4_unified":
        return lambda: model.get_audio_features(torch.zeros(1, 120, 40), mask.bool())
    if family == "voxtral":
        return lambda: model.get_audio_features(columns)
    if family == "moss_transcribe_diarize":
        return lambda: model.get_audio_features(columns, mask, torch.ones(1, 120 * 160, dtype=torch.long))
    return lambda: model.get_audio_features(columns, mask)


@pytest.mark.parametrize("family", SOUNDS)
def test_sounds(family: str) -> None:
    """A spectrum goes in."""
    model = built(family, SOUNDS[family])
    assert own(model, Step.of(1, 120), "audio") == counted(heard(family, model))


def module(path: str, *configs: Any) -> Any:
    """A part of a class."""
    return parts.built(path, *configs).eval().requires_grad_(False)


def of_stages(found: dict[str, Any], step: Step) -> int:
    """FLOPs of an encoder that is read by itself."""
    tower = Tower.model_validate(found)
    assert tower.note is None
    return int(flops(lower_tower(tower, step)))


def test_gemma4_images() -> None:
    """Patches pooled three by three."""
    import torch

    fields = {"model_type": "gemma4_vision", **SMALL, "head_dim": 16, "num_key_value_heads": 4, "patch_size": 16,
              "global_head_dim": 16}  # fmt: skip
    config = parts.transformers_class("gemma4.configuration_gemma4.Gemma4VisionConfig")(**fields)
    vision = module("gemma4.modeling_gemma4.Gemma4VisionModel", config)
    n = 9 * 4
    places = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="xy"), -1).reshape(1, n, 2)
    wanted = counted(lambda: vision(torch.zeros(1, n, 3 * 16 * 16), places))
    wanted += linear_flops((n // 9, 64, WIDTH)) - linear_flops((n // 9, n, 64))  # the class pools by a product
    assert of_stages(stages("vision", config.to_dict(), {}, "gemma4", WIDTH), one_image((6, 6))) == wanted


def test_mllama() -> None:
    """Tiles, layers with gates, and what three layers gave."""
    import torch

    config = parts.transformers_class("mllama.configuration_mllama.MllamaVisionConfig")(
        **{key: n for key, n in SIGHT.items() if key != "num_attention_heads"}, attention_heads=4, num_global_layers=2,
        vision_output_dim=3 * 64, intermediate_layers_indices=[0, 2], max_num_tiles=2,
        supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]],
    )  # fmt: skip
    vision = module("mllama.modeling_mllama.MllamaVisionModel", config)
    pixels = torch.zeros(1, 1, 2, 3, 56, 56)
    wanted = counted(lambda: vision(pixels, torch.tensor([[2]]), torch.ones(1, 1, 2, dtype=torch.long)))
    wanted += linear_flops((2 * 17, 3 * 64, WIDTH)) - linear_flops((48, 1, 48))  # the class makes its mask by a product
    assert of_stages(stages("vision", config.to_dict(), {}, "mllama", WIDTH), one_image((4, 4), 2)) == wanted


def test_radio() -> None:
    """Class tokens and registers."""
    import torch

    config = parts.transformers_class("radio.configuration_radio.RadioConfig")(
        **{key: n for key, n in SMALL.items() if key != "intermediate_size"}, mlp_ratio=1.5, max_img_size=128
    )
    vision = module("radio.modeling_radio.RadioModel", config)
    around = {"projector_hidden_size": 40}
    wanted = counted(lambda: vision(torch.zeros(1, 3, 64, 64)))
    wanted += linear_flops((4, 256, 40), (4, 40, WIDTH))
    found = stages("vision", config.to_dict(), around, "nemotron_h_omni", WIDTH)
    assert of_stages(found, one_image((4, 4))) == wanted


def test_git() -> None:
    """CLIP whose class token stays, and a matrix."""
    import torch

    config = pytest.importorskip("transformers").GitConfig(
        vision_config=SIGHT, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        vocab_size=300, pad_token_id=0,
    )  # fmt: skip
    model = module("git.modeling_git.GitModel", config)
    pixels = torch.zeros(1, 3, 56, 56)
    wanted = counted(lambda: model.visual_projection(model.image_encoder(pixels).last_hidden_state))
    found = stages("vision", config.vision_config.to_dict(), {}, "git", WIDTH)
    assert of_stages(found, one_image((4, 4))) == wanted


def test_kosmos_2_5() -> None:
    """Pix2Struct's layers over flattened patches, and latents."""
    import torch

    transformers = pytest.importorskip("transformers")
    config = transformers.CONFIG_MAPPING["kosmos-2.5"](
        vision_config={"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "head_dim": 16, "max_num_patches": 64},
        text_config={"embed_dim": WIDTH, "layers": 1, "ffn_dim": 64, "attention_heads": 4, "vocab_size": 300},
        latent_query_num=5,
    )  # fmt: skip
    model = module("kosmos2_5.modeling_kosmos2_5.Kosmos2_5Model", config)
    patches = torch.ones(1, 24, 2 + 16 * 16 * 3)
    wanted = counted(lambda: model.image_to_text_projection(model.vision_model(patches).last_hidden_state))
    assert own(model, one_image((4, 6))) == wanted


def test_inkling() -> None:
    """Pieces folded layer by layer."""
    import torch

    pytest.importorskip("scipy")
    config = parts.transformers_class("inkling.configuration_inkling.InklingVisionConfig")(
        text_hidden_size=WIDTH, patch_size=8, num_hidden_layers=3, temporal_patch_size=2
    )
    vision = module("inkling.modeling_inkling.InklingVisionModel", config)
    wanted = counted(lambda: vision(torch.zeros(6, 2, 8, 8, 3)))
    assert of_stages(stages("vision", config.to_dict(), {}, "inkling_mm_model", WIDTH), one_image((8, 12))) == wanted
