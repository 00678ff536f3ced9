"""Writes `image_tokens.json`: tokens that images of fifteen sizes take in families, by the functions that the image
processors of transformers 5.24 resize with (parsed out of their source, since their modules need torchvision), or by
the processors themselves where these cut images into tiles.

`python tests/importers/reference_images.py` with transformers, torchvision and Pillow.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("image_tokens.json")
SIZES = ((1024, 1024), (1920, 1080), (640, 480), (50, 90), (4000, 3000), (336, 1344), (1000, 300), (33, 700),
         (1365, 2048), (2200, 40), (777, 333), (5000, 1200), (19, 152), (16, 141), (591, 23))  # fmt: skip
"""Width and height."""


def function(family: str, name: str) -> Callable[..., Any]:
    """A function of a family's image processor, that needs nothing but `math`."""
    spec = util.find_spec("transformers")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / f"models/{family}/image_processing_{family}.py"
    tree = ast.parse(path.read_text("utf-8"))
    wanted = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    for argument in wanted.args.args:
        argument.annotation = None
    wanted.returns = None
    scope: dict[str, Any] = {"math": math, "get_image_size": lambda image, form: image,
                             "_num_image_tokens": lambda image, patch: tuple((n - 1) // p + 1 for n, p in zip(image, patch, strict=True))}  # fmt: skip  # noqa: E501
    exec(compile(ast.Module(body=[wanted], type_ignores=[]), str(path), "exec"), scope)
    found: Callable[..., Any] = scope[name]
    return found


def area(width: int, height: int, patch: int, least: int, most: int) -> int:
    """Qwen's."""
    rows, columns = function("qwen2_vl", "smart_resize")(height, width, 2 * patch, least, most)
    return int(rows * columns // (2 * patch) ** 2)


def glm(width: int, height: int) -> int:
    """GLM-V's, over two frames."""
    rows, columns = function("glm4v", "smart_resize")(2, height, width, 2, 28, 112 * 112, 28 * 28 * 15000)
    return int(rows * columns // 28**2)


def pixtral(width: int, height: int, edge: int, side: int) -> int:
    """Pixtral's, with a token at the end of every row."""
    rows, columns = function("pixtral", "get_resize_output_image_size")((height, width), edge, side)
    return int((columns // side + 1) * (rows // side))


def gemma4(width: int, height: int) -> int:
    """Gemma 4's, of 280 tokens at most."""
    rows, columns = function("gemma4", "get_aspect_ratio_preserving_size")(height, width, 16, 280 * 9, 3)
    return int(rows * columns // 48**2)


def kimi(width: int, height: int) -> int:
    """Kimi's, of 16,384 patches at most."""
    _, (rows, columns) = function("kimi_k25", "navit_resize")(height, width, 14, 2, 16384, 512)
    return int(rows * columns // 28**2)


def minimax(width: int, height: int) -> int:
    """MiniMax-M3's."""
    rows, columns = function("minimax_m3_vl", "smart_resize")(height, width)
    return int(rows * columns // 28**2)


def processed(name: str, width: int, height: int, **options: Any) -> Any:
    """What an image processor with its defaults makes of a black image."""
    import torch
    import transformers

    made = getattr(transformers, name)(**options)
    return made(images=[torch.zeros(3, height, width, dtype=torch.uint8)], return_tensors="pt")


def area_by_processor(name: str, width: int, height: int) -> int:
    """Vectors of an image whose patches are merged two by two."""
    return int(processed(name, width, height)["image_grid_thw"].prod()) // 4


def with_row_ends(name: str, width: int, height: int, around: int = 0) -> int:
    """The same, with a vector at the end of every row and some around the image, as `HunYuanVLProcessor` and
    `HYV4VLProcessor` write them.
    """
    _, rows, columns = (int(n) for n in processed(name, width, height)["image_grid_thw"][0])
    return rows // 2 * (columns // 2 + 1) + around


def tiles(name: str, width: int, height: int, edge: int, per_tile: int, **options: Any) -> tuple[int, int]:
    """Vectors of all pictures, and how many pictures there are."""
    size = {"height": edge, "width": edge}
    found = int(processed(name, width, height, size=size, **options)["num_patches"][0])
    return found * per_tile, found


def internvl(width: int, height: int) -> int:
    """`InternVLProcessor.replace_image_token`: a token before an image, one behind it."""
    return 2 + tiles("GotOcr2ImageProcessor", width, height, 448, 256, crop_to_patches=True)[0]


def aya(width: int, height: int) -> int:
    """`AyaVisionProcessor.replace_image_token`: three tokens around an image, one before each tile but the whole."""
    vectors, n = tiles("GotOcr2ImageProcessor", width, height, 364, 169, crop_to_patches=True)
    return 3 + vectors + n - 1


def cohere(width: int, height: int) -> int:
    """`Cohere2VisionProcessor.replace_image_token`: a line end behind every tile."""
    vectors, n = tiles("Cohere2VisionImageProcessor", width, height, 512, 256)
    return 2 + vectors + n


def llama4(width: int, height: int) -> int:
    """`Llama4Processor._prompt_split_image`: three tokens around the whole image, a separator behind every tile."""
    rows, columns = processed("Llama4ImageProcessor", width, height)["aspect_ratios"][0].tolist()
    n = rows * columns
    return 3 + 144 * (n + 1 if n > 1 else 1) + (rows * (columns - 1) + rows if n > 1 else 0)


def minicpm(width: int, height: int) -> int:
    """`MiniCPMV4_6Processor.replace_image_token`: marks around the image's number, the image and each slice, a line end
    between rows of slices.
    """
    found = processed("MiniCPMV4_6ImageProcessor", width, height, patch_size=16)
    rows, columns = found["grids"][0]
    vectors = int((found["target_sizes"].prod(-1) // 16).sum())
    return vectors + 3 + 2 + 2 * rows * columns + max(rows - 1, 0)


def idefics3(width: int, height: int, edge: int = 364, per_tile: int = 169) -> int:
    """`Idefics3Processor._get_num_multimodal_tokens`, whose tokenizer makes two line ends one token."""
    for name, longest in (("_resize_output_size_rescale_to_max_len", 4 * edge),
                          ("_resize_output_size_scale_below_upper_bound", 4096)):  # fmt: skip
        height, width = function("idefics3", name)(height, width, max_len=longest)
    rows, columns = math.ceil(height / edge), math.ceil(width / edge)
    return per_tile + 3 + rows * ((per_tile + 2) * columns + 1)


def counted(family: str, name: str, width: int, height: int, image_processor: str, *, inside: Any = None,
            **attributes: Any) -> int:  # fmt: skip
    """What the `replace_image_token` of a processor without a tokenizer makes of what its image processor gives: tokens
    are marks in angle brackets, or line ends, of which two make one.
    """
    import torch
    import transformers

    found = importlib.import_module(f"transformers.models.{family}.processing_{family}")
    cls = getattr(found, name)
    made = cls.__new__(cls)
    made.image_processor = getattr(transformers, image_processor)(**(inside or {}))
    marks = {key: f"<{key}>" for key in ("image_token", "image_start_token", "image_end_token", "start_image_token",
                                         "end_image_token", "image_thumbnail_token", "fake_image_token",
                                         "global_image_tag", "image_break_token")}  # fmt: skip
    made.__dict__.update({**marks, **attributes})
    options = {"return_row_col_info": True} if family == "lfm2_vl" else {}
    black = torch.zeros(3, height, width, dtype=torch.uint8)
    inputs = made.image_processor(images=[black], return_tensors="pt", **options)
    text = made.replace_image_token(inputs, 0, **({"use_image_special_tokens": True} if options else {}))
    return len(re.findall(r"<[^>]+>|\n+", text))


def next_tokens(family: str, name: str, edge: int, width: int, height: int, **attributes: Any) -> int:
    """LLaVA-NeXT's and those of its kin."""
    inside = {"size": {"shortest_edge": edge}, "crop_size": {"height": edge, "width": edge}}
    return counted(family, name, width, height, "LlavaNextImageProcessor", inside=inside, patch_size=14,
                   **attributes)  # fmt: skip


def onevision(width: int, height: int) -> int:
    """LLaVA-OneVision's, of one image."""
    return counted("llava_onevision", "LlavaOnevisionProcessor", width, height, "LlavaOnevisionImageProcessor",
                   num_image_tokens=729, vision_feature_select_strategy="full",
                   vision_aspect_ratio="anyres_max_9")  # fmt: skip


def merged(name: str, patch: int, merge: int, width: int, height: int, **options: Any) -> int:
    """Vectors of an image whose patches are merged, by its grid."""
    grid = processed(name, width, height, patch_size=patch, merge_size=merge, **options)["image_grid_thw"]
    return int(grid.prod()) // merge**2


FAMILIES: dict[str, Callable[[int, int], int]] = {
    "qwen2_vl": lambda w, h: area(w, h, 14, 56 * 56, 28 * 28 * 1280),
    "qwen2_5_vl": lambda w, h: area(w, h, 14, 56 * 56, 28 * 28 * 1280),
    "qwen3_vl": lambda w, h: area(w, h, 16, 65536, 16777216),
    "qwen3_5": lambda w, h: area(w, h, 16, 65536, 16777216),
    "glm4v": glm, "glm4v_moe": glm, "mistral3": lambda w, h: pixtral(w, h, 1540, 28), "gemma4": gemma4,
    "kimi_k25": kimi, "minimax_m3_vl": minimax,
    "gemma3": lambda w, h: 256, "llava": lambda w, h: 576, "paligemma": lambda w, h: 256, "gemma3n": lambda w, h: 256,
    "janus": lambda w, h: 576, "idefics3": idefics3,
    "ernie4_5_vl_moe": lambda w, h: area_by_processor("Ernie4_5_VLMoeImageProcessor", w, h),
    "paddleocr_vl": lambda w, h: area_by_processor("PaddleOCRVLImageProcessor", w, h),
    "qwen2_5_omni": lambda w, h: area_by_processor("Qwen2VLImageProcessor", w, h),
    "exaone4_5": lambda w, h: area_by_processor("Qwen2VLImageProcessor", w, h),
    "hunyuan_vl": lambda w, h: with_row_ends("HunYuanVLImageProcessor", w, h, 2),
    "hy_v4_vl": lambda w, h: with_row_ends("HYV4VLImageProcessor", w, h),
    "inkling_mm_model": lambda w, h: int(processed("InklingImageProcessor", w, h)["num_patches"][0]),
    "internvl": internvl, "aya_vision": aya, "cohere2_vision": cohere, "llama4": llama4, "minicpmv4_6": minicpm,
    "llava_next": lambda w, h: next_tokens("llava_next", "LlavaNextProcessor", 336, w, h, num_additional_image_tokens=1,
                                           vision_feature_select_strategy="default"),
    "granite4_vision": lambda w, h: next_tokens("granite4_vision", "Granite4VisionProcessor", 336, w, h,
                                                num_additional_image_tokens=0, downsample_rate="1/2",
                                                vision_feature_select_strategy="full"),
    "llava_onevision": onevision,
    "lfm2_vl": lambda w, h: counted("lfm2_vl", "Lfm2VlProcessor", w, h, "Lfm2VlImageProcessor"),
    "lfm3_vl": lambda w, h: merged("Qwen2VLImageProcessor", 16, 2, w, h),
    "qwen3_omni_moe": lambda w, h: merged("Qwen2VLImageProcessor", 16, 2, w, h),
    "cosmos3_omni": lambda w, h: merged("Qwen2VLImageProcessor", 16, 2, w, h),
    "hyperclovax_vision_v2": lambda w, h: merged("Qwen2VLImageProcessor", 14, 2, w, h),
    "video_llama_3": lambda w, h: merged("VideoLlama3ImageProcessor", 14, 1, w, h),
    "cosmos3_edge": lambda w, h: merged("Cosmos3EdgeImageProcessor", 16, 2, w, h),
    "glmga": lambda w, h: merged("GlmgaImageProcessor", 14, 2, w, h),
    "glm5_next": lambda w, h: merged("Glm5NextImageProcessor", 14, 2, w, h),
    "muse_glimmer": lambda w, h: counted("muse_glimmer", "MuseGlimmerProcessor", w, h, "MuseGlimmerImageProcessor"),
    "nemotron_h_omni": lambda w, h: counted("nemotron_h_omni", "NemotronH_Omni_Reasoning_V3Processor", w, h,
                                            "NemotronH_Omni_Reasoning_V3ImageProcessor"),
    "molmo2": lambda w, h: counted("molmo2", "Molmo2Processor", w, h, "Molmo2ImageProcessor", image_use_col_tokens=True,
                                   use_single_crop_col_tokens=None, use_single_crop_start_token=True),
    "phi4_multimodal": lambda w, h: int(processed("Phi4MultimodalImageProcessor", w, h)["num_img_tokens"][0]),
    "step3p7": lambda w, h: counted("step3p7", "Step3p7Processor", w, h, "Step3p7ImageProcessor",
                                    image_feature_placeholder="<v>" * 169, patch_feature_placeholder="<v>" * 81),
    "granite_docling": lambda w, h: counted("granite_docling", "GraniteDoclingProcessor", w, h,
                                            "GraniteDoclingImageProcessor", image_seq_len=64),
    "qianfan_ocr": lambda w, h: counted("qianfan_ocr", "QianfanOCRProcessor", w, h, "GotOcr2ImageProcessor",
                                        image_seq_length=256, inside={"crop_to_patches": True, "size":
                                                                      {"height": 448, "width": 448}}),
    "ovis2": lambda w, h: counted("ovis2", "Ovis2Processor", w, h, "Ovis2ImageProcessor", image_seq_length=256),
    "ovis2_cut": lambda w, h: counted("ovis2", "Ovis2Processor", w, h, "Ovis2ImageProcessor", image_seq_length=256,
                                      inside={"crop_to_patches": True, "size": {"height": 448, "width": 448}}),
    "mistral_large4": lambda w, h: pixtral(w, h, 1540, 28),
    "lighton_ocr": lambda w, h: counted("lighton_ocr", "LightOnOcrProcessor", w, h, "PixtralImageProcessor",
                                        effective_patch_size=28, inside={"size": {"longest_edge": 1540},
                                                                         "patch_size": 28}),
    "modernvbert": lambda w, h: idefics3(w, h, 512, 64),
    "smolvlm": lambda w, h: idefics3(w, h, 512, 64),
    "idefics2": lambda w, h: 66, "kosmos-2": lambda w, h: 66, "kosmos-2.5": lambda w, h: 2050,
    "git": lambda w, h: 197, "pp_chart2table": lambda w, h: 256, "shieldgemma2": lambda w, h: 256,
    "video_llava": lambda w, h: 257,
}  # fmt: skip
"""Tokens of an image. Of gemma3 to janus, and of idefics2 to video_llava, the processors put as many tokens whatever
the size. `ovis2_cut`: where a preprocessor_config.json asks for tiles.
"""


def main() -> None:
    """Write the file."""
    rows = {name: [count(*size) for size in SIZES] for name, count in FAMILIES.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(counts)}" for name, counts in rows.items())
    FILE.write_text(f'{{\n "sizes": {json.dumps(SIZES)},\n "tokens": {{\n{lines}\n }}\n}}\n', "utf-8")


if __name__ == "__main__":
    main()
