"""How the processors of families resize images: the defaults of the classes of transformers, and what the
preprocessor_config.json of a checkpoint says instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config

AREA: JsonMapping = {
    "qwen2_vl": (56 * 56, 28 * 28 * 1280), "qwen2_5_vl": (56 * 56, 28 * 28 * 1280),
    "qwen2_5_omni": (56 * 56, 28 * 28 * 1280), "qwen2_5_omni_thinker": (56 * 56, 28 * 28 * 1280),
    "qwen3_vl": (65536, 16777216), "qwen3_vl_moe": (65536, 16777216), "qwen3_5": (65536, 16777216),
    "qwen3_5_moe": (65536, 16777216), "glm4v": (112 * 112 // 2, 28 * 28 * 15000 // 2),
    "minimax_m3_vl": (56 * 56, 28 * 28 * 1280),
    "glm4v_moe": (112 * 112 // 2, 28 * 28 * 15000 // 2), "glm46v": (112 * 112 // 2, 28 * 28 * 15000 // 2),
    "ernie4_5_vl_moe": (56 * 56, 28 * 28 * 6177), "ernie4_5_moe_vl": (56 * 56, 28 * 28 * 6177),
    "paddleocr_vl": (384 * 384, 1536 * 1536), "exaone4_5": (56 * 56, 28 * 28 * 1280),
    "hunyuan_vl": (512 * 512, 2048 * 2048), "hy_v4_vl": (512 * 512, 2048 * 2048),
}  # fmt: skip
"""Least and most pixels. GLM-V's limits are of two frames, which an image is repeated to."""

ENDS: Mapping[str, JsonMapping] = {"hunyuan_vl": {"row_end": True, "around": 2}, "hy_v4_vl": {"row_end": True}}
"""Families whose encoders put a learned vector at the end of every row, and two around an image."""

FIXED = frozenset([
    "llava", "vipllava", "paligemma", "gemma3", "deepseek_vl", "janus", "got_ocr2", "blip-2", "instructblip",
    "deepseek_vl_hybrid",
])  # fmt: skip
"""Families whose images all have the size of the encoder; without Gemma 3's crops, made on request."""

EDGES: Mapping[str, int] = {"aria": 980, "florence2": 768, "fast_vlm": 1024}
"""Pixels on a side of the images of families whose encoders have none of their own: the default of Aria's processor, of
Florence-2 (arXiv:2311.06242), and what the processor of FastVLM is converted with.
"""

MOBILE = frozenset(["mobilenetv5_300m_enc"])
MOBILE_EDGE = 768
"""Pixels on a side of the images of Gemma 3n, whose MobileNetV5 leaves 16 x 16 vectors."""

TILES: Mapping[str, JsonMapping] = {
    "internvl": {"choose": "closest", "most": 12, "marks": 2},
    "internvl_chat": {"choose": "closest", "most": 12, "marks": 2},
    "aya_vision": {"choose": "closest", "most": 12, "marks": 3, "per_tile": 1},
    "cohere2_vision": {"choose": "fits", "most": 12, "marks": 2, "per_picture": 1},
    "llama4": {"choose": "fits", "most": 16, "marks": 3, "per_tile": 1},
    "idefics3": {"choose": "sides", "most": 4, "marks": 4, "per_tile": 2, "between_rows": 1},
    "smolvlm": {"choose": "sides", "most": 4, "marks": 4, "per_tile": 2, "between_rows": 1},
    "ultravbert": {"choose": "sides", "most": 6, "in_all": 27, "marks": 4, "per_tile": 2, "between_rows": 1},
}  # fmt: skip
"""Families whose images are cut into tiles of the encoder's size, as their processors in transformers 5.24 do: those of
InternVL and Aya write two and three tokens around an image, Llama 4's a separator behind every tile. Of Idefics 3,
SmolVLM and UltraVBERT write two tokens before each tile and the whole image, one behind that, line ends between rows
and two line ends, one token, before the whole image.
"""

AS_IS = frozenset(["inkling_mm_model"])
"""Families whose images are cut into pieces as they are."""

SLICED = frozenset(["minicpmv4_6", "minicpmv4_7", "minicpm_ocr"])
SLICE: JsonMapping = {"choose": "slices", "edge": 448, "most": 9, "marks": 5, "per_tile": 2, "between_rows": 1}
"""MiniCPM-V: a number in two marks and two around the whole image, two around each slice, line ends between rows."""

CANVAS: JsonMapping = {"choose": "canvas", "edge": 448, "most": 36}
"""PerceptionLM."""

CODES = (128 * 128, 1400 * 1400)
"""Least and most pixels of Apertus 1.5, whose rows end in a token; the tokens that begin an image and say how large it
is are not counted.
"""

SOFT_TOKENS = 280
"""Tokens that Gemma 4's processor allows an image."""


def image_rule(model_type: str, own: Config) -> JsonObject | None:
    """The rule of a family, with the sizes of its encoder; None where it is not known."""
    patch = own.first("patch_size")
    if model_type in AREA:
        least, most = AREA[model_type]
        side = patch * own.count("spatial_merge_size")
        return {"resize": "area", "factor": side, "min_pixels": least, "max_pixels": most, **ENDS.get(model_type, {})}
    if model_type == "mistral3" or own.first("model_type") == "pixtral":
        side = patch * (2 if model_type == "mistral3" else 1)
        return {"resize": "longest", "factor": side, "edge": own.count("image_size"), "row_end": True}
    if model_type in NAVIT:
        merged = own.get("merge_kernel_size") or (2, 2)
        side = patch * merged[0]
        return {"resize": "pad", "factor": side, "patch": patch, "edge": PATCHES_ON_A_SIDE * patch,
                "max_pixels": PATCHES * patch**2}  # fmt: skip
    if model_type in FIXED and isinstance(own.first("image_size"), int):
        return {"resize": "fixed", "edge": own.count("image_size")}
    if model_type in EDGES:
        return {"resize": "fixed", "edge": EDGES[model_type]}
    if model_type == "perception_lm":
        return {"resize": "tiles", "tiles": dict(CANVAS)}
    if model_type == "apertus1p5":
        side = 2 ** (len(own.get("channel_multiplier")) - 1)
        return {"resize": "area", "factor": side, "min_pixels": CODES[0], "max_pixels": CODES[1], "row_end": True}
    if own.first("architecture") in MOBILE:
        return {"resize": "fixed", "edge": MOBILE_EDGE}
    if model_type in AS_IS:
        return {"resize": "as_is", "factor": patch}
    edge = _side(own.first("image_size"))
    if model_type in TILES and isinstance(edge, int):
        return {"resize": "tiles", "tiles": {**TILES[model_type], "edge": edge}}
    if model_type in SLICED:
        return {"resize": "tiles", "tiles": {**SLICE, "factor": 4 * patch}}
    if model_type in ("gemma4", "gemma4_unified"):
        side = patch * own.count("pooling_kernel_size")
        return {"resize": "budget", "factor": side, "max_pixels": SOFT_TOKENS * side**2}
    return None


def _side(size: object) -> object:
    """The side of square images, which some configs give twice."""
    return size[0] if isinstance(size, list | tuple) and len(set(size)) == 1 else size


def sound_rule(model_type: str) -> JsonObject | None:
    """How the processor of a family cuts sounds; None where it is not known."""
    found = SOUNDS.get(model_type)
    return None if found is None else dict(found)


SOUNDS: Mapping[str, JsonMapping] = {
    "qwen2_audio": {"longest": 30, "tokens": "sound"}, "voxtral": {},
    "qwen2_5_omni": {"piece": 2, "padded": False, "longest": 300, "tokens": "sound"},
    "qwen2_5_omni_thinker": {"piece": 2, "padded": False, "longest": 300, "tokens": "sound"},
    "qwen3_omni_moe": {"piece": 8, "padded": False, "tokens": "sound"},
    "qwen3_omni_moe_thinker": {"piece": 8, "padded": False, "tokens": "sound"},
    "qwen3_asr": {"piece": 8, "padded": False, "tokens": "sound"}, "gemma3n": {"longest": 30},
    "gemma4": {"piece": None, "padded": False, "longest": 30, "tokens": "sound", "fewer": 1},
    "gemma4_unified": {"frames_per_second": 25, "piece": None, "padded": False, "tokens": "sound"},
    "inkling_mm_model": {"frames_per_second": 20, "piece": None, "padded": False, "tokens": "sound"},
    "granite_speech": {"frames_per_second": 50, "piece": None, "padded": False, "tokens": "sound"},
    "phi4_multimodal": {"piece": 40, "padded": False, "tokens": "sound", "fewer": 2},
    "phi4mm": {"piece": 40, "padded": False, "tokens": "sound", "fewer": 2},
    "granite_speech_plus": {"frames_per_second": 50, "piece": None, "padded": False, "tokens": "sound"},
    "omniasr": {"frames_per_second": 16000, "piece": None, "padded": False, "tokens": "sound"},
    "fun_asr_nano": {"piece": None, "padded": False, "tokens": "sound", "fewer": 2},
    "vibevoice": {"frames_per_second": 24000, "piece": None, "padded": False, "tokens": "sound"},
    "vibevoice_asr": {"frames_per_second": 24000, "piece": None, "padded": False, "tokens": "sound"},
    "apertus1p5": {"frames_per_second": 24000, "piece": None, "padded": False, "tokens": "sound"},
    "nemo_speechlm": {"piece": 40, "padded": False, "tokens": "sound"},
}  # fmt: skip
"""Qwen2-Audio fills a sound up to 30 s and counts what is sound; Voxtral counts whole pieces of 30 s; Qwen2.5-Omni's
encoder sees 2 s at a time, which is what its attention is cut to (`n_window`), Qwen3-Omni's and Qwen3-ASR's 8 s
(`n_window_infer`), Phi-4-multimodal's 500 vectors. Gemma 3n always takes 188 tokens, of 30 s; Gemma 4
12B one for every 640 samples of 16 kHz, Inkling one for 50 ms. Granite Speech puts two columns of 10 ms side by side.
Omnilingual ASR, VibeVoice and Apertus 1.5 read samples. Nemotron 3.5 Transcribe hears 40 s at a time (`chunk_length`);
what it hears again around them is not counted.
"""

NAVIT = frozenset(["kimi_k25", "kimi_k3"])
PATCHES, PATCHES_ON_A_SIDE = 16384, 512
"""Families whose images are never enlarged, and the most patches of one, in all and on a side."""

TWO_FRAMES = frozenset(["glm4v", "glm4v_moe", "glm46v"])
"""Families whose limits are of two frames."""


def with_processor(document: JsonObject, processor: JsonMapping, model_type: str) -> JsonObject:
    """The document with the least and most pixels of a preprocessor_config.json, where its rule has such."""
    frames = 2 if model_type in TWO_FRAMES else 1
    size = processor.get("size")
    edges = size if isinstance(size, Mapping) else {}
    given = {
        "min_pixels": processor.get("min_pixels", edges.get("shortest_edge")),
        "max_pixels": processor.get("max_pixels", edges.get("longest_edge")),
    }
    stated = {
        key: max(n // frames, 1) for key, n in given.items() if isinstance(n, int) and not isinstance(n, bool) and n > 0
    }

    def changed(tower: JsonObject) -> JsonObject:
        rule = tower.get("images")
        if not isinstance(rule, Mapping) or rule.get("resize") != "area" or not stated:
            return tower
        return tower | {"images": {**rule, **stated}}

    return document | ({"towers": [changed(tower) for tower in document["towers"]]} if "towers" in document else {})
