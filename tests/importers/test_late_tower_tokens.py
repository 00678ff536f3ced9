"""Tokens of images and sounds of encoders that convolve over grids and waveforms, as the processors of transformers
5.24 count them; and the encoders of timm that configs name.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import archsim as a
from archsim.counts.graph_counts import flops, params
from archsim.counts.images import Images, ImageWork, one_image
from archsim.counts.sounds import Sounds, SoundWork
from archsim.importers.hf.describe import stages
from archsim.spec.canvas import canvas
from archsim.spec.model import Tower
from archsim.spec.tiles import TileRule
from archsim.spec.tower import lower_tower

SIZES = ((1024, 1024), (1920, 1080), (640, 480), (50, 90), (4000, 3000), (336, 1344))
LENGTHS = (0.5, 1.01, 7.3, 12.34, 29.99, 30.0)
ENCODER = {"embed_dim": 1024, "depth": 23, "global_pool": "", "img_size": [448, 448], "init_values": 0.1,
           "use_post_transformer_norm": False, "ref_feat_shape": [32, 32]}  # fmt: skip
PERCEPTION = {"architecture": "vit_pe_core_large_patch14_336", "model_args": ENCODER}
"""What Perception-LM-1B says of its encoder."""

OWN: dict[str, dict[str, Any]] = {
    "perception_lm": PERCEPTION, "ultravbert": {"image_size": 512, "patch_size": 16},
    "deepseek_vl_hybrid": {"image_size": 384, "patch_size": 16}, "aria": {"image_size": 980, "patch_size": 14},
}  # fmt: skip
AROUND = {
    "perception_lm": {"projector_pooling_ratio": 2},
    "granite_speech_plus": {"projector_config": {"encoder_hidden_size": 1024}},
}  # fmt: skip
SEEN = {
    "perception_lm": (9472, 8448, 9216, 8448, 3328, 9472), "ultravbert": (1722, 1655, 1391, 1657, 1391, 865),
    "aria": (256,) * 6, "deepseek_vl_hybrid": (576,) * 6, "fast_vlm": (256,) * 6, "florence2": (577,) * 6,
}  # fmt: skip
HEARD = {
    "omniasr": (24, 50, 364, 616, 1499, 1499), "fun_asr_nano": (8, 17, 122, 206, 500, 500),
    "vibevoice": (4, 8, 55, 93, 225, 225), "vibevoice_asr": (4, 8, 55, 93, 225, 225),
    "nemo_speechlm": (7, 13, 92, 155, 375, 375), "apertus1p5": (20, 41, 292, 494, 1200, 1200),
}  # fmt: skip


def tower_of(family: str, name: str = "vision") -> Tower:
    """The encoder of a family."""
    found = Tower.model_validate(stages(name, OWN.get(family, {}), AROUND.get(family, {}), family, 2048))
    assert found.note is None
    return found


def holder(tower: Tower) -> Any:
    """A model that has no other part."""
    return SimpleNamespace(towers=(tower,), tower_names=(tower.name,), name="model", encoder=None)


@pytest.mark.parametrize("family", SEEN)
def test_tokens_of_images(family: str) -> None:
    """Of six sizes."""
    model = holder(tower_of(family))
    assert tuple(ImageWork.of(model, Images(*size)).tokens for size in SIZES) == SEEN[family]


@pytest.mark.parametrize("family", HEARD)
def test_tokens_of_sounds(family: str) -> None:
    """Of six lengths."""
    model = holder(tower_of(family, "audio"))
    assert tuple(SoundWork.of(model, Sounds(seconds)).tokens for seconds in LENGTHS) == HEARD[family]


def test_codes_of_an_image() -> None:
    """Apertus 1.5: one for 16 x 16 pixels, and one at the end of each row."""
    model = holder(tower_of("apertus1p5"))
    assert ImageWork.of(model, Images(1024, 512)).tokens == 64 * 32 + 32
    assert ImageWork.of(model, Images(4000, 4000)).tokens == 87 * 87 + 87  # 1400 / 16 = 87.5


@pytest.mark.slow
@pytest.mark.oracle
def test_omnilingual_as_the_processor_counts() -> None:
    """By its own function."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.omniasr.processing_omniasr import OmniASRProcessor

    own: Any = SimpleNamespace(conv_kernel=[10, 3, 3, 3, 3, 2, 2], conv_stride=[5, 2, 2, 2, 2, 2, 2])
    samples = torch.tensor([round(seconds * 16000) for seconds in LENGTHS])
    assert tuple(OmniASRProcessor._get_num_audio_tokens(own, samples).tolist()) == HEARD["omniasr"]


def test_canvas() -> None:
    """The largest canvas that holds the image, else the nearest proportions; as PerceptionLM's processor finds."""
    assert canvas(448, 448, 448, 4) == (2, 2)
    assert canvas(900, 448, 448, 4) == (1, 3) and canvas(448, 900, 448, 4) == (3, 1)
    assert canvas(4000, 3000, 448, 36) == (3, 4)  # 4 x 3 is the only one of these proportions
    assert canvas(9000, 100, 448, 4) == (1, 4) and canvas(100, 9000, 448, 4) == (4, 1)


def test_tiles_in_all() -> None:
    """Fewer along the longer side where they would be too many, as UltraVBERT's processor makes them."""
    rule = TileRule(choose="sides", edge=512, most=6, in_all=27)
    assert [rule.arrangement(*size) for size in SIZES] == [(5, 5), (4, 6), (4, 5), (6, 4), (4, 5), (6, 2)]
    assert rule.model_copy(update={"in_all": None}).arrangement(640, 480) == (5, 6)


NAMED = {
    "fast_vlm": ("fastvit_mci3", {"inference_mode": True}, 896, (512, 126_271_328, 488_528_150_528)),
    "fast_vlm, larger": ("fastvit_mci4", {"inference_mode": True}, 896, (256, 322_897_792, 223_503_974_400)),
    "perception_lm": (PERCEPTION["architecture"], ENCODER, 2048, (32, 297_710_592, 706_379_608_064)),
    "perception_lm, its own size": (
        PERCEPTION["architecture"], {"embed_dim": 1024, "global_pool": ""}, 2048, (24, 309_803_008, 389_165_973_504)),
    "perception_lm, larger": (
        "vit_pe_lang_gigantic_patch14_448", {"embed_dim": 1536, "img_size": 448}, 2048,
        (32, 1_748_266_752, 3_877_520_801_792)),
}  # fmt: skip
"""timm's name, arguments, width of the language model -> a side in patches, and the parameters and FLOPs of
transformers 5.24 with timm 1.0.31 (FlopCounterMode, on meta)."""


@pytest.mark.parametrize("case", NAMED)
def test_encoders_of_timm(case: str) -> None:
    """With the projectors of FastVLM and PerceptionLM."""
    name, arguments, width, (side, held, work) = NAMED[case]
    family = case.partition(",")[0]
    own, around = {"architecture": name, "model_args": arguments}, AROUND.get(family, {})
    tower = Tower.model_validate(stages("vision", own, around, family, width))
    assert tower.note is None
    found = lower_tower(tower, one_image((side, side)))
    assert (params(found), flops(found)) == (held, work)


@pytest.mark.parametrize(
    ("family", "own"),
    [("fast_vlm", {"model_args": {}}), ("fast_vlm", {"architecture": "resnet50"}),
     ("perception_lm", {"architecture": "resnet50"}), ("perception_lm", {**PERCEPTION, "model_args": {}})],
)  # fmt: skip
def test_other_encoders_of_timm_are_not_guessed(family: str, own: dict[str, Any]) -> None:
    """An encoder in its form for training, and one that nobody described, have no size and say why."""
    told = {"model_args": {"inference_mode": False}} if own == {"model_args": {}} else own
    found = stages("vision", told, {}, family, 64)
    assert "stages" not in found and found["note"]


def test_images_of_an_encoder_decoder(tmp_path: Path) -> None:
    """Florence-2's vectors stand in the source; the encoder of images comes before."""
    config = {"model_type": "florence2", "vision_config": {"model_type": "florence_vision"},
              "text_config": {"model_type": "bart"}}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = a.estimate(path, "h100", input_len=1, source_len=20, image="1024x768").to_dict()
    assert found["workload"]["source_len"] == 20 + 577 and found["workload"]["input_len"] == 1
    assert found["phases"]["encoder"]["tokens"] == 577
