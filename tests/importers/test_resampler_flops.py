"""FLOPs of encoders that latents attend to equal what FlopCounterMode counts of the classes of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.counts.sounds import Sounds, SoundWork
from archsim.graph.step import Step
from archsim.importers.hf.describe import from_config, stages
from archsim.spec.model import Model, Tower
from archsim.spec.tower import lower_tower, tokens_of
from tests.importers.test_recent_tower_flops import counted, linear_flops

pytestmark = pytest.mark.slow

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
         "image_size": 56, "patch_size": 14}  # fmt: skip
OPT = {"model_type": "opt", "hidden_size": 96, "ffn_dim": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
       "word_embed_proj_dim": 96, "vocab_size": 300}  # fmt: skip
LLAMA = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 80, "vocab_size": 300, "pad_token_id": 0}  # fmt: skip
KOSMOS = {"embed_dim": 96, "layers": 1, "ffn_dim": 64, "attention_heads": 4, "vocab_size": 300}
QFORMER = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 72}

FAMILIES: dict[str, dict[str, Any]] = {
    "blip-2": {"vision_config": SMALL, "qformer_config": QFORMER, "text_config": OPT, "num_query_tokens": 5},
    "idefics2": {
        "vision_config": SMALL, "text_config": {"model_type": "mistral", **LLAMA},
        "perceiver_config": {"resampler_n_latents": 5, "resampler_depth": 2, "resampler_n_heads": 4,
                             "resampler_head_dim": 16, "num_key_value_heads": 2, "hidden_size": 96},
    },
    "kosmos-2": {"vision_config": SMALL, "text_config": KOSMOS, "latent_query_num": 5},
    "granite_docling": {
        "vision_config": {**SMALL, "scale_factor": 2, "out_hidden_size": 96, "deepstack_visual_indexes": [0, 1],
                          "use_fine_route": True},
        "text_config": {**LLAMA, "bos_token_id": 1, "eos_token_id": 2},
        "pad_token_id": 0,
    },
    "granite4_vision": {
        "vision_config": {"model_type": "clip_vision_model", **SMALL},
        "text_config": LLAMA, "downsample_rate": "1/2", "deepstack_layer_map": [[-2, 0]], "image_seq_length": 16,
        "vision_feature_layer": -1, "image_grid_pinpoints": [[56, 56]],
    },
}  # fmt: skip
TOKENS = {"blip-2": 5, "idefics2": 5, "kosmos-2": 5, "granite_docling": 4, "granite4_vision": 4}


def built(family: str) -> Any:
    """The class, small, with attention that the counter sees."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto as auto

    config = transformers.CONFIG_MAPPING[family](**FAMILIES[family])
    config._attn_implementation = "eager"
    with torch.device("cpu"):
        model = getattr(transformers, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[family])(config).eval()
    return model.requires_grad_(False)


def tower_of(family: str, model: Any) -> Tower:
    """The encoder as it is read from the class's config."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    width = config["text_config"].get("embed_dim", config["text_config"].get("hidden_size"))
    own = config["vision_config"]
    assert isinstance(own, Mapping)
    return Tower.model_validate(stages("vision", own, config, family, width))


def features(family: str, model: Any) -> Any:
    """One image of 56 x 56 pixels through the class."""
    import torch

    pixels = torch.ones(1, 3, 56, 56)  # images that are black are taken for padding
    if family == "granite_docling":
        mask = torch.ones(1, 1, dtype=torch.bool)
        return model.model.get_image_features(pixels[None], mask)
    if family == "granite4_vision":
        both = torch.stack([pixels, pixels], dim=1)  # the whole image, and one tile
        return model.model.get_image_features(both, torch.tensor([[56, 56]]))
    if family == "idefics2":
        return model.model.get_image_features(pixels[None])
    return model.get_image_features(pixels)


@pytest.mark.parametrize("family", FAMILIES)
def test_latents(family: str) -> None:
    """A picture goes in, and so many vectors come out."""
    model = built(family)
    tower = tower_of(family, model)
    assert tower.note is None
    assert tokens_of(tower, one_image((4, 4))) == TOKENS[family]
    step = one_image((4, 4), 2 if family == "granite4_vision" else 1)
    assert int(flops(lower_tower(tower, step))) == counted(lambda: features(family, model))


def test_clip() -> None:
    """What the class token has become goes through one matrix."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.CLIPConfig(vision_config=SMALL, projection_dim=40)
    config._attn_implementation = "eager"
    with torch.device("cpu"):
        model = transformers.CLIPModel(config).eval()
    document = json.loads(config.to_json_string(use_diff=True))
    tower = Tower.model_validate(stages("vision", document["vision_config"], document, "clip", 512))
    wanted = counted(lambda: model.get_image_features(torch.ones(1, 3, 56, 56)))
    assert (tokens_of(tower, one_image((4, 4))), int(flops(lower_tower(tower, one_image((4, 4)))))) == (1, wanted)


SPEECH = {
    "encoder_config": {"input_dim": 20, "num_layers": 3, "hidden_dim": 64, "num_heads": 4, "context_size": 10,
                       "max_pos_emb": 16, "output_dim": 7},
    "projector_config": {"model_type": "blip_2_qformer", **QFORMER, "encoder_hidden_size": 64},
    "text_config": {"model_type": "granite", **LLAMA},
}  # fmt: skip


def speech(**fields: Any) -> tuple[Any, Model]:
    """Granite Speech's config, and what is read of it."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GraniteSpeechConfig(**{**SPEECH, **fields})
    return config, Model.model_validate(from_config(json.loads(config.to_json_string(use_diff=True)), "speech"))


def test_granite_speech() -> None:
    """A conformer over whole blocks, and a Q-Former over windows of which the last is filled up."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config, read = speech()
    config._attn_implementation = "eager"
    with torch.device("cpu"):
        model = transformers.GraniteSpeechForConditionalGeneration(config).eval().requires_grad_(False)
    (tower,) = read.towers
    step = Step.of(1, 40)
    assert tokens_of(tower, step) == 3 * 3
    wanted = counted(lambda: model.get_audio_features(torch.zeros(1, 40, 20)))
    rows, d = 2 * 3, 48  # until the first queries see a window, the class computes them once for all three
    wanted += linear_flops(*[(rows, d, d)] * 5) + 2 * 2 * linear_flops((3, d, 3))
    assert int(flops(lower_tower(tower, step))) == wanted


@pytest.mark.parametrize("seconds", [0.5, 1, 2.37, 7.9, 30, 61.03])
def test_tokens_of_granite_speech(seconds: float) -> None:
    """As many as the processor of transformers writes."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from types import SimpleNamespace

    from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor

    _, read = speech()
    own = SimpleNamespace(melspec_kwargs={"hop_length": 160}, projector_window_size=15, projector_downsample_rate=5)
    (wanted,) = GraniteSpeechFeatureExtractor._get_num_audio_features(own, [round(seconds * 16000)])
    assert SoundWork.of(read, Sounds(seconds)).tokens == wanted
