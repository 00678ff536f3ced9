"""FLOPs of encoders equal what FlopCounterMode counts of the classes of transformers, for an image of a stated size."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.importers.hf.describe import stages
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower

QWEN = {"depth": 4, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 96}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14}  # fmt: skip
TEXT = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "intermediate_size": 64, "vocab_size": 300}  # fmt: skip
GRID = (12, 20)
ANY_SIZE = {
    "qwen2_vl": {"depth": 3, "embed_dim": 64, "num_heads": 4, "hidden_size": 96},
    "qwen2_5_vl": {**QWEN, "fullatt_block_indexes": [1, 3]}, "qwen3_5": QWEN,
    "qwen3_vl": {**QWEN, "deepstack_visual_indexes": [0, 2]}, "glm4v": QWEN,
    "exaone4_5": {**QWEN, "num_key_value_heads": 2, "fullatt_block_indexes": [1, 3]}, "glm_ocr": QWEN,
    "glm5_next": {**QWEN, "projection_intermediate_size": 80},
}  # fmt: skip
ONE_SIZE = {
    "llava": CLIP, "paligemma": {**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
    "gemma3": {**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
    "internvl": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
                 "image_size": [56, 56], "patch_size": [14, 14]},
}  # fmt: skip


def built(family: str, own: dict[str, Any]) -> Any:
    """The class with a small encoder."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto as auto

    inner = transformers.CONFIG_MAPPING[family]().text_config.model_type
    more = {"mm_tokens_per_image": 4} if family == "gemma3" else {}
    config = transformers.CONFIG_MAPPING[family](
        vision_config=own, text_config={"model_type": inner, **TEXT, "pad_token_id": 0}, **more
    )
    config._attn_implementation = "eager"  # the counter knows no fused attention of the CPU
    name = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[family]
    with torch.device("cpu"):
        return getattr(transformers, name)(config)


def counted(run: Any) -> int:
    """FLOPs of a call."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def own_flops(family: str, model: Any, grid: tuple[int, int]) -> int:
    """FLOPs of the graph for one image."""
    config = model.config
    around = {k: v for k, v in config.to_dict().items() if not isinstance(v, dict)}
    own = config.vision_config.to_dict()
    tower = Tower.model_validate(stages("vision", own, around, family, config.get_text_config().hidden_size))
    assert tower.note is None
    return int(flops(lower_tower(tower, one_image(grid))))


@pytest.mark.slow
@pytest.mark.parametrize("family", ANY_SIZE)
def test_encoders_of_any_size(family: str) -> None:
    """Patches and their grid go in."""
    model = built(family, ANY_SIZE[family])
    import torch

    vision = model.config.vision_config
    pixels = torch.zeros(GRID[0] * GRID[1], 3 * vision.temporal_patch_size * vision.patch_size**2)
    grid = torch.tensor([[1, *GRID]])
    assert own_flops(family, model, GRID) == counted(lambda: model.model.visual(pixels, grid_thw=grid))


@pytest.mark.slow
@pytest.mark.parametrize("family", ONE_SIZE)
def test_encoders_of_one_size(family: str) -> None:
    """A picture goes in."""
    model = built(family, ONE_SIZE[family])
    import torch

    pixels = torch.zeros(1, 3, 56, 56)
    assert own_flops(family, model, (4, 4)) == counted(lambda: model.model.get_image_features(pixels))
