"""Tokens per image are those of the image processors of transformers, and FLOPs those of the encoders' classes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import SpecError, UsageError
from archsim.counts.images import Images, ImageWork, one_image
from archsim.importers.hf.describe import stages
from archsim.importers.hf.towers.processors import with_processor
from archsim.spec.model import Tower

HERE = Path(__file__).parent
TOKENS = json.loads((HERE / "image_tokens.json").read_text("utf-8"))
GEMMA3 = {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_attention_heads": 16, "image_size": 896,
          "patch_size": 14, "num_hidden_layers": 27, "intermediate_size": 4304, "vision_use_head": False}  # fmt: skip
CLIP = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14, "hidden_size": 1024}
OWN: dict[str, dict[str, Any]] = {
    "gemma3": GEMMA3,
    "llava": CLIP,
    "paligemma": {**GEMMA3, "image_size": 224}, "mistral3": {"image_size": 1540, "patch_size": 14},
    "aya_vision": {**GEMMA3, "image_size": 364}, "cohere2_vision": {**GEMMA3, "image_size": 512, "patch_size": 16},
    "llama4": {"image_size": 336, "intermediate_size": 3072, "vision_output_dim": 4096},
    "idefics3": {"image_size": 364, "patch_size": 14}, "hunyuan_vl": {"text_hidden_size": 4096},
    "inkling_mm_model": {"n_layers": 4, "decoder_dmodel": 64}, "shieldgemma2": GEMMA3,
    "llava_next": CLIP, "granite4_vision": CLIP, "video_llava": {**CLIP, "image_size": 224},
    "llava_onevision": {**GEMMA3, "image_size": 384, "patch_size": 14},
    "video_llama_3": {"patch_size": 14}, "nemotron_h_omni": {"patch_size": 16, "video_temporal_patch_size": 2},
    "lfm3_vl": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "lighton_ocr": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
    "modernvbert": {"image_size": 512, "patch_size": 16}, "smolvlm": {"image_size": 512, "patch_size": 16},
}  # fmt: skip
"""What the released configs have that the classes' defaults do not."""

CONFIG: dict[str, dict[str, Any]] = {
    "granite4_vision": {"downsample_rate": "1/2", "deepstack_layer_map": [[-2, 0]]},
    "modernvbert": {"pixel_shuffle_factor": 4}, "smolvlm": {"scale_factor": 4},
    "video_llava": {"vision_feature_select_strategy": "full"},
}  # fmt: skip
"""What their configs say outside the encoder's."""

ON_REQUEST = {"hidden_stride": 2, "image_size": 448}
CUT = {"crop_to_patches": True, "size": {"height": 448, "width": 448}}


def tower_of(family: str, **own: Any) -> Tower:
    """The vision tower of a family; `_cut`: where a preprocessor_config.json asks for tiles."""
    family, cut = family.removesuffix("_cut"), family.endswith("_cut")
    own = {**own, **(ON_REQUEST if cut else {})}
    found = stages("vision", {**OWN.get(family, {}), **own}, CONFIG.get(family, {}), family, 4096)
    document = with_processor({"towers": [found]}, CUT, family) if cut else {"towers": [found]}
    return Tower.model_validate(document["towers"][0])


def work_of(tower: Tower, images: Images) -> ImageWork:
    """What images ask of a tower, of a model that has no other part."""
    model: Any = SimpleNamespace(towers=(tower,), tower_names=("vision",), name="model")
    return ImageWork.of(model, images)


@pytest.mark.parametrize("family", TOKENS["tokens"])
def test_tokens_per_image(family: str) -> None:
    """Of fifteen sizes."""
    tower = tower_of(family)
    found = [work_of(tower, Images(width, height)).tokens for width, height in TOKENS["sizes"]]
    assert found == TOKENS["tokens"][family]


def test_windows_are_square() -> None:
    """A layer of Qwen2.5-VL computes the pairs of 8 x 8 windows, smaller at the edges; another those of the image."""
    tower = tower_of("qwen2_5_vl", depth=1, fullatt_block_indexes=[])
    whole = tower_of("qwen2_5_vl", depth=1, fullatt_block_indexes=[0])
    grid, work = (18, 12), Images(168, 252)
    assert work_of(tower, work).pictures == ((1, grid),)
    saved = work_of(whole, work).to_dict()["flops"] - work_of(tower, work).to_dict()["flops"]
    pairs = (18 * 12) ** 2 - (8**2 + 8**2 + 2**2) * (8**2 + 4**2)
    assert saved == 2 * 2 * 3584 * pairs
    assert one_image(grid).tokens == 216


def test_images_are_part_of_the_prompt_and_of_the_time(tmp_path: Path, archsim: Any) -> None:
    """Their tokens are added to the prompt; the encoder comes before the prefill, and TTFT is both."""
    text = {"model_type": "qwen3_vl_text", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
            "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 36, "vocab_size": 151936,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "hidden_act": "silu"}  # fmt: skip
    config = {"model_type": "qwen3_vl", "vision_config": {"out_hidden_size": 4096}, "text_config": text}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    plain = a.estimate(path, "h100", input_len=256 + 2 * 1024).to_dict()
    seen = a.estimate(path, "h100", input_len=256, image="1024x1024x2").to_dict()
    encoder = seen["phases"]["encoder"]
    assert encoder["tokens"] == 2048 and seen["workload"]["input_len"] == 256 + 2048
    assert seen["phases"]["prefill"] == plain["phases"]["prefill"]
    assert seen["metrics"]["ttft_s"] == pytest.approx(plain["metrics"]["ttft_s"] + encoder["expected_s"])
    assert 0 < encoder["ideal_s"] < encoder["expected_s"]
    counted = a.count(path, image="1024x1024x2").to_dict()["images"]
    assert counted["tokens"] == 2048 and counted["flops"] == encoder["flops"]
    assert "the encoder is" in archsim("estimate", str(path), "--hw", "h100", "--image", "1024x1024").out
    served = a.estimate(path, "h100", image="64x64", concurrency=4).serving
    assert served is not None and served.encoder is not None


def test_pages_say_what_an_image_is_cut_into(archsim: Any) -> None:
    """Patches, pictures and tokens; encoders have parameters of their own."""
    page = archsim("count", "llama4-scout", "--image", "1024x1024").out
    assert "9,792 patches in 17 pictures" in page and "2,467" in page
    assert "1,024 patches" in archsim("count", "qwen3-vl-8b", "--image", "512x512").out
    assert "not lowered" not in archsim("count", "gemma3n-e4b", "--with", "vision,audio").out


@pytest.mark.parametrize("text", ["1024", "0x10", "10x10x0", "axb", "9999999x1"])
def test_sizes_that_mean_nothing(text: str) -> None:
    """Refused, with an example."""
    with pytest.raises(UsageError, match="1024x768"):
        Images.parse(text)


def test_models_that_see_nothing() -> None:
    """Refused by name."""
    with pytest.raises(UsageError, match="no vision encoder"):
        a.count("llama3-8b", image="64x64")


def test_a_processor_beside_the_config_says_how_large_images_get(tmp_path: Path) -> None:
    """As checkpoints of Qwen2.5-VL have it: up to 16,384 tokens."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "vision_config": {}}), "utf-8")
    usual = ImageWork.of(a.load_model(tmp_path), Images(4000, 3000)).tokens
    stated = {"min_pixels": 3136, "max_pixels": 12845056}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated), "utf-8")
    assert usual <= 1280 < ImageWork.of(a.load_model(tmp_path), Images(4000, 3000)).tokens <= 16384
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": 784 * 100}}), "utf-8")
    assert ImageWork.of(a.load_model(tmp_path), Images(4000, 3000)).tokens <= 100


def test_pixtral_in_the_config_of_llava() -> None:
    """Its own processor, not that of LLaVA."""
    own = {"model_type": "pixtral", "image_size": 1024, "patch_size": 16, "hidden_size": 1024}
    assert work_of(tower_of("llava", **own), Images(640, 480)).tokens == 30 * (40 + 1)


def test_several_images_are_not_cut() -> None:
    """LLaVA-OneVision cuts one image, and gives each of several 729 vectors and the end of a row."""
    tower = tower_of("llava_onevision")
    assert work_of(tower, Images(1920, 1080)).tokens == 7269
    several = work_of(tower, Images(1920, 1080, 3))
    assert (several.tokens, several.prompt_tokens, several.pictures) == (730, 3 * 730, ((1, (27, 27)),))


def test_a_file_beside_the_config_says_how_many_tiles(tmp_path: Path) -> None:
    """InternVL's with four at most; LFM2-VL's fewest; Nemotron's most patches."""
    stated: list[tuple[str, dict[str, Any], int]] = [
        ("internvl", {"max_patches": 4}, 256 * 5 + 2),
        ("lfm2_vl", {"max_tiles": 4}, 4 * 256 + 256 + 4 + 3),
        ("nemotron_h_omni", {"max_num_patches": 2048}, 508),
    ]
    for family, processor, tokens in stated:
        found = {"towers": [stages("vision", OWN.get(family, {}), CONFIG.get(family, {}), family, 64)]}
        tower = Tower.model_validate(with_processor(found, processor, family)["towers"][0])
        assert work_of(tower, Images(2000, 2000)).tokens == tokens, family


def stated_by(processor: dict[str, Any], family: str, width: int, height: int) -> int:
    """Tokens of an image where the file of the processor says so."""
    found = stages("vision", OWN.get(family, {}), CONFIG.get(family, {}), family, 4096)
    document = with_processor({"towers": [found]}, processor, family)
    return work_of(Tower.model_validate(document["towers"][0]), Images(width, height)).tokens


@pytest.mark.parametrize(("family", "tokens"), [("idefics3", 169 + 3), ("smolvlm", 64 + 3), ("lfm2_vl", 12 * 21 + 2)])
def test_a_processor_that_does_not_cut_images_gives_the_whole_one_alone(family: str, tokens: int) -> None:
    """`do_image_splitting`: Idefics 3 then writes three tokens around it; LFM2-VL's is of 12 x 21 vectors."""
    assert stated_by({"do_image_splitting": False}, family, 1920, 1080) == tokens
    assert stated_by({"do_image_splitting": True}, family, 1920, 1080) > tokens


def test_cutting_that_the_processor_itself_asks_for_is_not_switched_off() -> None:
    """InternVL's and Aya's ask their image processors for it, whatever the file of these says."""
    assert stated_by({"crop_to_patches": False}, "internvl", 1920, 1080) == work_of(
        tower_of("internvl"), Images(1920, 1080)
    ).tokens  # fmt: skip


def test_vectors_of_an_image_that_a_processor_states() -> None:
    """Gemma 4's `max_soft_tokens`; LFM2-VL's tokens, beyond twice which an image is cut; no others have such limits."""
    assert 560 < stated_by({"max_soft_tokens": 1120}, "gemma4", 1920, 1080) <= 1120
    assert stated_by({"max_image_tokens": 512}, "lfm2_vl", 640, 480) == 20 * 15 + 2
    assert stated_by({"max_image_tokens": 128}, "lfm2_vl", 640, 480) > 1000  # cut
    for odd in ({"max_image_tokens": 5}, {"max_num_patches": 5}):
        assert stated_by(odd, "llava", 640, 480) == 576
        assert stated_by({"max_num_patches": 5}, "gemma4", 640, 480) == stated_by({}, "gemma4", 640, 480)


def test_an_image_of_which_a_processor_leaves_no_patch_is_refused() -> None:
    """Pixtral's makes the shorter side of such an image nothing."""
    with pytest.raises(UsageError, match="less than a patch of 1x99999"):
        work_of(tower_of("lighton_ocr"), Images(1, 99999))


@pytest.mark.parametrize("stated", [{"max_patches": 10**9}, {"min_patches": 50}])
def test_numbers_of_tiles_that_cannot_be_are_refused(tmp_path: Path, stated: dict[str, int]) -> None:
    """All arrangements are looked through: a billion tiles would take for ever, and at least 50 of 12 are none."""
    config = {"model_type": "internvl", "vision_config": {}, "text_config": {"model_type": "qwen2"}}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated), "utf-8")
    with pytest.raises(SpecError, match=r"an image has at most 1,024 tiles|are at least 50 and at most 12"):
        a.load_model(tmp_path)
