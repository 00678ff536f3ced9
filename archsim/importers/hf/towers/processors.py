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
    **dict.fromkeys(("qwen3_omni_moe", "qwen3_omni_moe_thinker", "cosmos3_omni", "lfm3_vl", "hyperclovax_vision_v2",
                     "video_llama_3"), (56 * 56, 28 * 28 * 1280)),
    "cosmos3_edge": (256 * 256, 4096 * 4096),
    "glmga": (112 * 112 // 2, 28 * 28 * 15000 // 2),
}  # fmt: skip
"""Least and most pixels. GLM-V's limits are of two frames, which an image is repeated to."""

ENDS: Mapping[str, JsonMapping] = {"hunyuan_vl": {"row_end": True, "around": 2}, "hy_v4_vl": {"row_end": True}}
"""Families whose encoders put a learned vector at the end of every row, and two around an image."""

FIXED: Mapping[str, JsonMapping] = {
    "llava": {}, "vipllava": {}, "paligemma": {}, "gemma3": {}, "shieldgemma2": {}, "deepseek_vl": {}, "janus": {},
    "got_ocr2": {}, "pp_chart2table": {}, "deepseek_vl_hybrid": {}, "blip-2": {}, "instructblip": {}, "git": {},
    "video_llava": {}, "kosmos-2": {"around": 2}, "ovis2": {"around": 3},
}  # fmt: skip
"""Families whose images all have the size of the encoder; without Gemma 3's and Ovis 2's crops, made on request."""

GRIDS: Mapping[str, JsonMapping] = {
    "glm5_next": {"resize": "fill", "min_pixels": 16 * 4, "max_pixels": 8000 * 4},
    "muse_glimmer": {"resize": "grid", "min_pixels": 1, "max_pixels": 4096 * 4, "around": 2},
    "nemotron_h_omni": {"resize": "patches", "min_pixels": 1024, "max_pixels": 13312, "around": 2},
}
"""Families whose images are of at least and at most so many patches, of which four become one vector."""

STATED: Mapping[str, JsonMapping] = {
    "idefics2": {"resize": "longest", "edge": 980, "shortest": 378, "around": 2},
    "kosmos-2.5": {"resize": "fixed", "edge": 64 * 16, "around": 2},
    "lfm2_vl": {
        "resize": "tiles", "factor": 32, "min_pixels": 64 * 32**2, "max_pixels": 256 * 32**2,
        "tiles": {"choose": "closest", "edge": 512, "least": 2, "most": 10, "factor": 32, "beyond": 2 * 256 * 32**2,
                  "marks": 3, "alone": 2, "per_tile": 1},
    },
}  # fmt: skip
"""Families whose processors have sizes of their own, whatever their encoders' configs say. KOSMOS-2.5's gives 4,096
patches of any image, those behind it empty; LFM2-VL's cuts images of more than twice the pixels of 256 vectors, and
gives the whole one 64 to 256.
"""

SIDES = range(384, 2305, 384)
"""Sides of the sizes that LLaVA-OneVision brings images to."""

ROW_ENDS: Mapping[str, bool] = {"mistral3": True, "mistral_large4": True, "lighton_ocr": False}
"""Families of Pixtral's processor, whose encoders' neighbours then become one, and whether tokens end rows."""

MERGED: Mapping[str, int] = {"video_llama_3": 1}
"""How many patches on a side become one vector, where the encoder's config does not say it."""

EDGES: Mapping[str, int] = {"aria": 980, "florence2": 768, "fast_vlm": 1024}
"""Pixels on a side of the images of families whose encoders have none of their own: the default of Aria's processor, of
Florence-2 (arXiv:2311.06242), and what the processor of FastVLM is converted with.
"""

MOBILE = frozenset(["mobilenetv5_300m_enc"])
MOBILE_EDGE = 768
"""Pixels on a side of the images of Gemma 3n, whose MobileNetV5 leaves 16 x 16 vectors."""

PHI4: JsonMapping = {"choose": "cover", "most": 36, "always": True, "marks": 1,
                     "join": {"cut": "behind", "patch": 1, "whole_rows": True}}  # fmt: skip
NEXT: JsonMapping = {"choose": "listed", "always": True, "join": {"cut": "both_ends"}, "image_grid_pinpoints":
                     [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]}  # fmt: skip
SIDES_OF_IDEFICS: JsonMapping = {"choose": "sides", "most": 4, "marks": 4, "alone": 3, "per_tile": 2, "between_rows": 1}
TILES: Mapping[str, JsonMapping] = {
    "internvl": {"choose": "closest", "most": 12, "marks": 2},
    "internvl_chat": {"choose": "closest", "most": 12, "marks": 2},
    "aya_vision": {"choose": "closest", "most": 12, "marks": 3, "per_tile": 1},
    "cohere2_vision": {"choose": "fits", "most": 12, "marks": 2, "per_picture": 1},
    "llama4": {"choose": "fits", "most": 16, "marks": 3, "per_tile": 1},
    "idefics3": SIDES_OF_IDEFICS,
    "smolvlm": SIDES_OF_IDEFICS,
    "modernvbert": SIDES_OF_IDEFICS,
    "ultravbert": {**SIDES_OF_IDEFICS, "most": 6, "in_all": 27},
    "qianfan_ocr": {"choose": "closest", "most": 12, "marks": 2},
    "granite_docling": {"choose": "closest", "most": 32, "longest": 16, "marks": 4, "alone": 3, "per_tile": 2,
                        "between_rows": 1},
    "step3p7": {"choose": "windows", "most": 49, "edge": 504, "whole": 728, "longest": 3024, "marks": 2, "per_tile": 2,
                "between_rows": 1},
    "perception_lm": {"choose": "canvas", "edge": 448, "most": 36, "always": True},
    "molmo2": {"choose": "crops", "most": 8, "always": True, "marks": 4,
               "join": {"overlap": 8, "unit": 2, "whole_rows": True}},
    "phi4_multimodal": PHI4, "phi4mm": PHI4,
    "llava_next": NEXT, "llava_next_video": NEXT, "granite4_vision": NEXT,
    "llava_onevision": {
        "choose": "listed", "always": True, "single": True, "join": {"cut": "both_ends"}, "aspect": "anyres_max_9",
        "image_grid_pinpoints": [[height, width] for height in SIDES for width in SIDES],
    },
}  # fmt: skip
"""Families whose images are cut into tiles of the encoder's size, as their processors in transformers 5.24 do: those of
InternVL and Aya write two and three tokens around an image, Llama 4's a separator behind every tile. Of Idefics 3,
SmolVLM and UltraVBERT write two tokens before each tile and the whole image, one behind that, line ends between rows
and two line ends, one token, before the whole image. `overlap`, `unit` and `patch` are of patches here;
`image_grid_pinpoints` and `aspect` what the config of the model may say instead.
"""

AS_IS = frozenset(["inkling_mm_model"])
"""Families whose images are cut into pieces as they are."""

SLICED = frozenset(["minicpmv4_6", "minicpmv4_7", "minicpm_ocr"])
SLICE: JsonMapping = {"choose": "slices", "edge": 448, "most": 9, "marks": 5, "per_tile": 2, "between_rows": 1}
"""MiniCPM-V: a number in two marks and two around the whole image, two around each slice, line ends between rows."""

CODED = frozenset(["apertus1p5"])
CODES = (128 * 128, 1400 * 1400)
"""Families whose images become codes, and the least and most pixels: of Apertus 1.5, whose rows end in a token; the
tokens that begin an image and say how large it is are not counted.
"""

BUDGET = frozenset(["gemma4", "gemma4_unified"])
SOFT_TOKENS = 280
"""Families whose images take as many tokens as they may, and how many Gemma 4's processor allows."""


def image_rule(model_type: str, own: Config, around: JsonMapping) -> JsonObject | None:
    """The rule of a family, with the sizes of its encoder; None where it is not known. around: the whole config."""
    patch, edge = own.first("patch_size"), _side(own.first("image_size"))
    if model_type in STATED:
        return dict(STATED[model_type])
    if model_type in ROW_ENDS or own.first("model_type") == "pixtral":
        merged = around.get("spatial_merge_size") or 2 if model_type in ROW_ENDS else 1
        ends = {"row_end": True} if ROW_ENDS.get(model_type, True) else {}
        return {"resize": "longest", "factor": patch * merged, "edge": own.count("image_size"), **ends}
    if model_type in AREA:
        least, most = AREA[model_type]
        side = patch * own.count("spatial_merge_size", default=MERGED.get(model_type))
        more = {**({"enlarged": True} if model_type in ENLARGED else {}), **ENDS.get(model_type, {})}
        return {"resize": "area", "factor": side, "min_pixels": least, "max_pixels": most, **more}
    if model_type in GRIDS:
        rule = GRIDS[model_type]
        pixels = {key: rule[key] * patch**2 for key in ("min_pixels", "max_pixels")}
        return {**rule, "factor": 2 * patch, "patch": patch, **pixels}
    if model_type in TILES:
        tiles = _tiles(TILES[model_type], own, around)
        return None if tiles is None else {"resize": "tiles", "tiles": tiles}
    if model_type in FIXED and isinstance(edge, int):
        return {"resize": "fixed", "edge": edge, **FIXED[model_type]}
    if model_type in EDGES:
        return {"resize": "fixed", "edge": EDGES[model_type]}
    return _of_one_family(model_type, own)


def _of_one_family(model_type: str, own: Config) -> JsonObject | None:
    """The rule of a family whose processor is like no other's."""
    patch = own.first("patch_size")
    if model_type in NAVIT:
        merged = own.get("merge_kernel_size") or (2, 2)
        side = patch * merged[0]
        return {"resize": "pad", "factor": side, "patch": patch, "edge": PATCHES_ON_A_SIDE * patch,
                "max_pixels": PATCHES * patch**2}  # fmt: skip
    if model_type in CODED:
        side = 2 ** (len(own.get("channel_multiplier")) - 1)
        return {"resize": "area", "factor": side, "min_pixels": CODES[0], "max_pixels": CODES[1], "row_end": True}
    if own.first("architecture") in MOBILE:
        return {"resize": "fixed", "edge": MOBILE_EDGE}
    if model_type in AS_IS:
        return {"resize": "as_is", "factor": patch}
    if model_type in SLICED:
        return {"resize": "tiles", "tiles": {**SLICE, "factor": 4 * patch}}
    if model_type in BUDGET:
        side = patch * own.count("pooling_kernel_size")
        return {"resize": "budget", "factor": side, "max_pixels": SOFT_TOKENS * side**2}
    return None


def _tiles(rule: JsonMapping, own: Config, around: JsonMapping) -> JsonObject | None:
    """The tiles of a family, of the size of its encoder's images unless it has one of its own."""
    patch, edge = own.first("patch_size"), rule.get("edge", _side(own.first("image_size")))
    if not isinstance(edge, int):
        return None
    found: JsonObject = {**rule, "edge": edge}
    if "join" in rule:
        pixels = {key: n * patch for key, n in rule["join"].items() if key in ("overlap", "unit", "patch")}
        found["join"] = {**rule["join"], **pixels}
    if rule["choose"] == "listed":
        sizes = around.get("image_grid_pinpoints") or rule["image_grid_pinpoints"]
        grids = [[height // edge, width // edge] for height, width in sizes]
        found |= {"arrangements": grids, "most": max(rows * columns for rows, columns in grids)}
        del found["image_grid_pinpoints"]
        if (
            most := str(around.get("vision_aspect_ratio") or rule.get("aspect", "")).removeprefix("anyres_max_")
        ).isdigit():
            found["join"] = {**found["join"], "most": int(most)}
        found.pop("aspect", None)
    return found


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
    "audioflamingo3": {"longest": 600, "tokens": "sound"}, "glmasr": {"longest": 630, "tokens": "sound"},
    "musicflamingo": {"longest": 1200, "tokens": "sound", "around": 2},
    "moss_transcribe_diarize": {"tokens": "sound", "numbers": 25, "second": 2},
    "nemotron_h_omni": {"piece": None, "padded": False, "tokens": "sound", "fewer": -1, "around": 2},
}  # fmt: skip
"""Qwen2-Audio fills a sound up to 30 s and counts what is sound; Voxtral counts whole pieces of 30 s; Qwen2.5-Omni's
encoder sees 2 s at a time, which is what its attention is cut to (`n_window`), Qwen3-Omni's and Qwen3-ASR's 8 s
(`n_window_infer`), Phi-4-multimodal's 500 vectors. Gemma 3n always takes 188 tokens, of 30 s; Gemma 4
12B one for every 640 samples of 16 kHz, Inkling one for 50 ms. Granite Speech puts two columns of 10 ms side by side.
Omnilingual ASR, VibeVoice and Apertus 1.5 read samples. Nemotron 3.5 Transcribe hears 40 s at a time (`chunk_length`);
what it hears again around them is not counted.
Audio Flamingo 3, Music Flamingo and GLM-ASR fill whole windows of 30 s up, 20, 40 and 21 of them at most, and count
what is sound; MOSS writes the second behind every 25 vectors. Nemotron Omni's spectrum has a column more than the sound
has hundredths of a second.
"""

NAVIT = frozenset(["kimi_k25", "kimi_k3"])
PATCHES, PATCHES_ON_A_SIDE = 16384, 512
"""Families whose images are never enlarged, and the most patches of one, in all and on a side."""

TWO_FRAMES = frozenset(["glm4v", "glm4v_moe", "glm46v", "glmga"])
"""Families whose limits are of two frames."""

ENLARGED = TWO_FRAMES | {"cosmos3_edge"}
"""Families that enlarge images whose sides are shorter than that of one vector."""


def with_processor(document: JsonObject, processor: JsonMapping, model_type: str) -> JsonObject:
    """The document with what a preprocessor_config.json says of its images: the least and most pixels, how many tiles,
    or that there are any.
    """

    def changed(tower: JsonObject) -> JsonObject:
        rule = tower.get("images")
        return tower | {"images": _as_stated(rule, processor, model_type)} if isinstance(rule, Mapping) else tower

    return document | ({"towers": [changed(tower) for tower in document["towers"]]} if "towers" in document else {})


def _as_stated(rule: JsonMapping, processor: JsonMapping, model_type: str) -> JsonObject:
    """A rule with what a processor's own file says instead."""
    size = processor.get("size")
    edges = size if isinstance(size, Mapping) else {}
    if rule["resize"] == "area":
        frames = 2 if model_type in TWO_FRAMES else 1
        limits = {"min_pixels": ("min_pixels", "shortest_edge"), "max_pixels": ("max_pixels", "longest_edge")}
        given = {name: processor.get(key, edges.get(edge)) for name, (key, edge) in limits.items()}
        return {**rule, **{key: max(n // frames, 1) for key, n in _counts(given).items()}}
    if rule["resize"] == "longest":
        return {**rule, **_counts({"edge": edges.get("longest_edge")})}
    if rule["resize"] == "tiles":
        return _tiles_as_stated(_with_tokens(rule, processor), processor)
    if model_type in CUT_ON_REQUEST and processor.get("crop_to_patches"):
        edge = _counts({"edge": edges.get("height")}).get("edge", rule["edge"])
        most = _counts({"most": processor.get("max_patches")})
        return {"resize": "tiles", "tiles": {**CUT_ON_REQUEST[model_type], "edge": edge, **most}}
    return _with_tokens(rule, processor)


def _tiles_as_stated(rule: JsonMapping, processor: JsonMapping) -> JsonObject:
    """How many tiles there are at most and at least, or that an image is not cut."""
    tiles = rule["tiles"]
    if processor.get(CUT_KEY) is False:
        around = tiles.get("alone", tiles.get("marks", 0)) + tiles.get("per_picture", 0)
        if "max_pixels" in rule:
            return {**{key: value for key, value in rule.items() if key != "tiles"}, "resize": "area", "around": around}
        return {"resize": "fixed", "edge": tiles.get("whole", tiles["edge"]), "around": around}
    stated = {name: processor.get(key) for key, name in TILE_KEYS.items() if key in processor}
    return {**rule, "tiles": {**tiles, **_counts(stated)}}


def _with_tokens(rule: JsonMapping, processor: JsonMapping) -> JsonObject:
    """The least and most pixels where a processor states vectors or patches of an image."""
    if "max_pixels" not in rule:
        return dict(rule)
    most = processor.get("max_soft_tokens", processor.get("max_image_tokens"))
    tokens = {"min_pixels": processor.get("min_image_tokens"), "max_pixels": most}
    patches = {"min_pixels": processor.get("min_num_patches"), "max_pixels": processor.get("max_num_patches")}
    found = {**rule, **{name: n * rule["factor"] ** 2 for name, n in _counts(tokens).items()}}
    if "patch" in rule:
        found |= {name: n * rule["patch"] ** 2 for name, n in _counts(patches).items()}
    if "tiles" in rule:  # an image is cut from so many times the most pixels of the whole one
        beyond = rule["tiles"]["beyond"] * found["max_pixels"] // rule["max_pixels"]
        found["tiles"] = {**rule["tiles"], "beyond": beyond}
    return found


def _counts(given: JsonMapping) -> dict[str, int]:
    """Those that are positive whole numbers."""
    return {key: n for key, n in given.items() if isinstance(n, int) and not isinstance(n, bool) and n > 0}


TILE_KEYS: Mapping[str, str] = {"max_patches": "most", "max_tiles": "most", "max_crops": "most", "dynamic_hd": "most",
                                "min_tiles": "least", "min_patches": "least"}  # fmt: skip
"""What processors call the most and fewest tiles of an image."""

CUT_KEY = "do_image_splitting"
"""Where it is false, a processor does not cut images. InternVL and Aya pass over `crop_to_patches` of their files."""

CUT_ON_REQUEST: Mapping[str, JsonMapping] = {
    "ovis2": {"choose": "covering", "most": 12, "marks": 2, "alone": 3, "per_tile": 1}
}
"""Families whose processors cut images into tiles where their files say so."""
