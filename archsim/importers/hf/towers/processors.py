"""How the processors of families resize images, where no preprocessor_config.json is read: the defaults that their
checkpoints ship with or, without any, those of the classes of transformers 5.23.
"""

from __future__ import annotations

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config

AREA: JsonMapping = {
    "qwen2_vl": (56 * 56, 28 * 28 * 1280), "qwen2_5_vl": (56 * 56, 28 * 28 * 1280),
    "qwen3_vl": (65536, 16777216), "qwen3_vl_moe": (65536, 16777216), "qwen3_5": (65536, 16777216),
    "qwen3_5_moe": (65536, 16777216), "glm4v": (112 * 112 // 2, 28 * 28 * 15000 // 2),
    "glm4v_moe": (112 * 112 // 2, 28 * 28 * 15000 // 2), "glm46v": (112 * 112 // 2, 28 * 28 * 15000 // 2),
}  # fmt: skip
"""Least and most pixels. GLM-V's limits are of two frames, which an image is repeated to."""

FIXED = frozenset(["llava", "vipllava", "paligemma", "gemma3", "deepseek_vl"])
"""Families whose images all have the size of the encoder; without Gemma 3's crops, made on request."""

SOFT_TOKENS = 280
"""Tokens that Gemma 4's processor allows an image."""


def image_rule(model_type: str, own: Config) -> JsonObject | None:
    """The rule of a family, with the sizes of its encoder; None where it is not known."""
    patch = own.first("patch_size")
    if model_type in AREA:
        least, most = AREA[model_type]
        side = patch * own.count("spatial_merge_size")
        return {"resize": "area", "factor": side, "min_pixels": least, "max_pixels": most}
    if model_type in FIXED and isinstance(own.first("image_size"), int):
        return {"resize": "fixed", "edge": own.count("image_size")}
    if model_type == "mistral3":
        return {"resize": "longest", "factor": patch * 2, "edge": own.count("image_size"), "row_end": True}
    if model_type in ("gemma4", "gemma4_unified"):
        side = patch * own.count("pooling_kernel_size")
        return {"resize": "budget", "factor": side, "max_pixels": SOFT_TOKENS * side**2}
    return None
