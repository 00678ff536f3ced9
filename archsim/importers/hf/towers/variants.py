"""Encoders of 2025 and 2026 that vary the usual ones: LFM2-VL, SmolVLM, EXAONE 4.5, PaddleOCR-VL, GLM-OCR, Hunyuan."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.parts import heads
from archsim.importers.hf.pattern import Entry, pattern
from archsim.importers.hf.towers.parts import (
    ROTARY,
    act,
    glu,
    layer,
    layernorm,
    layers,
    linear,
    mha,
    mlp,
    norm,
    patch_size,
    patches,
    rmsnorm,
    squares,
    two_layers,
)
from archsim.importers.hf.towers.pictures import CLIP, SIGLIP, clip
from archsim.importers.hf.towers.qwen import embedding, merged, qwen2_5_vl, windows_and_whole
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject

PLAIN = {**SIGLIP, "vision_use_head": False}
"""SigLIP without the head that sums an image up."""


def plain(c: Config, rows: int, position: Doc | None = None) -> list[Doc]:
    """SigLIP's layers over a table of so many positions (0: none), and the norm after them."""
    last, d = layernorm(c.number("layer_norm_eps")), c.count("hidden_size")
    turned = {"position": position} if position else {}
    one = layer(last, mha(c.count("num_attention_heads"), d, bias=True, **turned),
                mlp(act(c, "hidden_act"), c.count("intermediate_size")))  # fmt: skip
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        *([{"kind": "positions", "rows": rows}] if rows else []),
        layers(c.count("num_hidden_layers"), one),
        norm(last),
    ]


def summed(c: Config) -> list[Doc]:
    """SigLIP's head where the encoder has one: what it gives goes nowhere."""
    if not c.get("vision_use_head"):
        return []
    last = layernorm(c.number("layer_norm_eps"))
    pool = {"kind": "attention_pool", "n_heads": c.count("num_attention_heads"), "norm": last,
            "ffn": mlp(act(c, "hidden_act"), c.count("intermediate_size"))}  # fmt: skip
    return [{"kind": "branch", "name": "head", "stages": [pool]}]


def stated(around: Around, key: str, usual: object) -> object:
    """What the whole config says of the projector, else the default of its class."""
    given = around.config.get(key)
    return usual if given is None else given


# Lfm2VlConfig and Siglip2VisionConfig
@encoder("vision", "lfm2_vl", **{**SIGLIP, "num_patches": 256})
def lfm2_vl(c: Config, around: Around) -> list[Doc]:
    """LFM2-VL: SigLIP 2 with a table that is stretched, neighbours side by side, two matrices."""
    side = around.config.count("downsample_factor", default=2)
    bias, inner = bool(stated(around, "projector_bias", True)), around.config.count("projector_hidden_size",
                                                                                   default=2560)  # fmt: skip
    name = act(Config(around.config.data, {"projector_hidden_act": "gelu"}), "projector_hidden_act")
    normed = [norm(layernorm(1e-5), name="projector_norm")] if stated(around, "projector_use_layernorm", True) else []
    return [
        *plain(c, c.count("num_patches")),
        *summed(c),
        {"kind": "merge", "tokens": side**2},
        *normed,
        *two_layers(around.width, name, bias, inner),
    ]


# Idefics3VisionConfig and SmolVLMVisionConfig
@encoder("vision", "idefics3", "smolvlm", **{**PLAIN, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32})
def idefics3(c: Config, around: Around) -> list[Doc]:
    """Idefics 3 and SmolVLM: SigLIP, a pixel shuffle, one matrix."""
    c.skip("tie_word_embeddings", "max_image_size", "size", "use_base_siglip")
    side = around.config.count("scale_factor", default=2)
    rows = squares(c)
    return [*plain(c, rows), {"kind": "merge", "tokens": side**2}, linear(around.width, bias=False)]


# ModernVBertConfig
@encoder("vision", "modernvbert", **SIGLIP)
def modernvbert(c: Config, around: Around) -> list[Doc]:
    """ModernVBERT: SigLIP, neighbours side by side, one matrix."""
    side = around.config.count("pixel_shuffle_factor", default=4)
    found = [*plain(c, squares(c)), *summed(c)]
    return [*found, {"kind": "merge", "tokens": side**2}, linear(around.width, bias=False)]


# PaddleOCRVisionConfig
@encoder("vision", "paddleocr_vl", **{**PLAIN, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
         "num_attention_heads": 16, "image_size": 384, "patch_size": 14}, spatial_merge_size=2)  # fmt: skip
def paddleocr_vl(c: Config, around: Around) -> list[Doc]:
    """PaddleOCR-VL: SigLIP with rotary positions beside its table, neighbours merged under a norm."""
    c.skip("temporal_patch_size", "tokens_per_second", "pad_token_id")
    d, side = c.count("hidden_size"), c.count("spatial_merge_size")
    return [
        *plain(c, squares(c), ROTARY),
        norm(layernorm(1e-5), name="projector_norm"),
        *merged(c, *two_layers(around.width, "gelu", inner=d * side**2)),
    ]


# Cosmos3EdgeVisionConfig
@encoder("vision", "cosmos3_edge", **{**PLAIN, "hidden_size": 1152, "intermediate_size": 4304,
         "num_hidden_layers": 27, "num_attention_heads": 16, "num_patches": 256}, spatial_merge_size=2)  # fmt: skip
def cosmos3_edge(c: Config, around: Around) -> list[Doc]:
    """Cosmos 3 Edge: SigLIP 2, neighbours merged under a norm through a wide matrix."""
    inner = around.config.count("projector_hidden_size", default=11520)
    return [
        *plain(c, c.count("num_patches")),
        norm(layernorm(), name="projector_norm"),
        *merged(c, *two_layers(around.width, "gelu", inner=inner)),
    ]


# Exaone4_5_VisionConfig
@encoder("vision", "exaone4_5", depth=32, hidden_size=3584, hidden_act="silu", intermediate_size=3420, num_heads=16,
         num_key_value_heads=8, in_channels=3, patch_size=14, spatial_merge_size=2, temporal_patch_size=2,
         window_size=112, out_hidden_size=3584, fullatt_block_indexes=[7, 15, 23, 31])  # fmt: skip
def exaone4_5(c: Config, around: Around) -> list[Doc]:
    """EXAONE 4.5: Qwen2.5-VL's encoder with shared keys and values."""
    d, n = c.count("hidden_size"), c.count("num_heads")
    return windows_and_whole(c, heads(n, c.count("num_key_value_heads"), d // n, bias=True, position=ROTARY))


# Qwen2_5_VLVisionConfig
@encoder("vision", "hyperclovax_vision_v2", depth=32, hidden_size=3584, hidden_act="silu", intermediate_size=3420,
         num_heads=16, in_channels=3, patch_size=14, spatial_merge_size=2, temporal_patch_size=2, window_size=112,
         out_hidden_size=3584, fullatt_block_indexes=[7, 15, 23, 31])  # fmt: skip
def hyperclovax_v2(c: Config, around: Around) -> list[Doc]:
    """HyperCLOVA X SEED Think: Qwen2.5-VL's encoder and one more matrix."""
    return [*qwen2_5_vl(c, around), linear(around.width)]


# GlmOcrVisionConfig
@encoder("vision", "glm_ocr", depth=24, hidden_size=1024, hidden_act="silu", num_heads=16, in_channels=3,
         image_size=336, patch_size=14, rms_norm_eps=1e-5, spatial_merge_size=2, temporal_patch_size=2,
         out_hidden_size=1536, intermediate_size=4096, attention_bias=True)  # fmt: skip
def glm_ocr(c: Config, around: Around) -> list[Doc]:
    """GLM-OCR: no table of positions, normed queries and keys; a convolution merges, and a gated network follows."""
    d, n, out = c.count("hidden_size"), c.count("num_heads"), c.count("out_hidden_size")
    first, bias = rmsnorm(c.number("rms_norm_eps")), bool(c.get("attention_bias"))
    attention = mha(n, d, position=ROTARY, qk_norm=first, **({"bias": True} if bias else {}))
    one = layer(first, attention, glu(act(c, "hidden_act"), c.count("intermediate_size"), bias))
    return [
        embedding(c, d, bias=True),
        layers(c.count("depth"), one),
        norm(first),
        *merged(c, linear(out), linear(out, bias=False), norm(layernorm(1e-5), name="projector_norm")),
        {"kind": "network", "ffn": glu(act(c, "hidden_act"), out * c.count("in_channels"))},
    ]


# Glm5NextVisionConfig
@encoder("vision", "glm5_next", depth=24, hidden_size=1024, hidden_act="silu", num_heads=16, in_channels=3,
         image_size=336, patch_size=14, rms_norm_eps=1e-5, spatial_merge_size=2, temporal_patch_size=2,
         out_hidden_size=1536, intermediate_size=4096, attention_bias=True, projection_intermediate_size=10240,
         swiglu_limit=10.0)  # fmt: skip
def glm5_next(c: Config, around: Around) -> list[Doc]:
    """GLM-5.3-Flash: GLM-OCR's layers and merge, activations bounded, a projector of a width of its own."""
    clamped = {"clamp": c.number("swiglu_limit"), "alpha": 1.0, "up_offset": 0.0}
    first, layered, *rest, network = glm_ocr(c, around)
    (one,) = layered["layers"]
    one = one | {"ffn": one["ffn"] | clamped}
    projector = glu(act(c, "hidden_act"), c.count("projection_intermediate_size")) | clamped
    return [first, layered | {"layers": [one]}, *rest, network | {"ffn": projector}]


HUNYUAN = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_channels": 3, "patch_size": 16, "hidden_act": "gelu", "rms_norm_eps": 1e-5, "spatial_merge_size": 2,
    "max_image_size": 2048,
}  # fmt: skip
"""HunYuanVLVisionConfig."""


def hunyuan(c: Config, *projector: Doc) -> list[Doc]:
    """Hunyuan's layers over a table for the largest image, and a projector that a norm and a convolution begin."""
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    c.only("num_key_value_heads", n)
    c.skip("interpolate_mode", "max_vit_seq_len", "img_max_token_num", "anyres_pooling_size",
           "anyres_vit_max_image_size", "anyres_vit_two_views", "cat_extra_token", "video_max_image_size",
           "video_min_image_size", "min_image_size", "temporal_patch_size", "adaptor_patch_size",
           "max_num_frames")  # fmt: skip
    first, eps = layernorm(c.number("rms_norm_eps")), c.number("rms_norm_eps")
    rows = (c.count("max_image_size") // patch_size(c)) ** 2 + 1
    one = layer(first, mha(n, d, bias=True), mlp(act(c, "hidden_act"), c.count("intermediate_size")))
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        {"kind": "positions", "rows": rows},
        layers(c.count("num_hidden_layers"), one),
        norm(rmsnorm(eps), name="projector_norm"),
        *merged(c, *projector),
    ]


# HYV4VLVisionConfig
@encoder("vision", "hy_v4_vl", **{**HUNYUAN, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 40},
         out_hidden_size=6144)  # fmt: skip
def hy_v4_vl(c: Config, around: Around) -> list[Doc]:
    """Hy4: a convolution and a matrix to the width of the language model; a learned vector ends a row."""
    inner = c.count("hidden_size") * c.count("spatial_merge_size") ** 2
    name = act(c, "hidden_act")
    return hunyuan(c, linear(inner, activation=name), linear(c.count("out_hidden_size")), {"kind": "vectors"})


@encoder("vision", "hunyuan_vl", **HUNYUAN)
def hunyuan_vl(c: Config, around: Around) -> list[Doc]:
    """HunyuanOCR: one more matrix and a norm; learned vectors end a row, and stand before and behind an image."""
    d, name = c.count("hidden_size"), act(c, "hidden_act")
    c.only("text_hidden_size", around.width)
    c.only("out_hidden_size", around.width)
    return hunyuan(
        c, linear(2 * d, activation=name), linear(4 * d), {"kind": "vectors"}, linear(around.width),
        {"kind": "vectors", "name": "marks", "n": 3}, norm(rmsnorm(c.number("rms_norm_eps")), name="last_norm"),
    )  # fmt: skip


@encoder("vision", "vipllava", **CLIP)
def vipllava(c: Config, around: Around) -> list[Doc]:
    """VipLLaVA: what several layers of CLIP gave, beside each other under a norm."""
    chosen = around.config.first("vision_feature_layers", "vision_feature_layer") or [-2, -5, -8, -11, 6]
    chosen = [chosen] if isinstance(chosen, int) else chosen
    if not isinstance(chosen, list):
        raise around.config.error("vision_feature_layers", "not a list of layers")
    name = act(Config(around.config.data, {"projector_hidden_act": "gelu"}), "projector_hidden_act")
    taps = [{"kind": "taps", "n": len(chosen) - 1}] if len(chosen) > 1 else []
    eps = stated(around, "projector_layernorm_eps", 1e-5)
    return [*clip(c, around), *taps, norm(layernorm(eps), name="projector_norm"), *two_layers(around.width, name)]


# MuseGlimmerVisionConfig
@encoder("vision", "muse_glimmer", patch_size=14, pos_emb_height=32, pos_emb_width=32, num_attention_heads=16,
         num_hidden_layers=50, hidden_size=1536, intermediate_size=8960, hidden_act="gelu", patch_temporal=2,
         merge_size=2, layer_norm_eps=1e-5)  # fmt: skip
def muse_glimmer(c: Config, around: Around) -> list[Doc]:
    """Muse Glimmer: most layers see windows as large as the table of positions, some the whole image."""
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    rows, first = c.count("pos_emb_height") * c.count("pos_emb_width"), layernorm(c.number("layer_norm_eps"))
    attention = mha(n, d, bias=True, position=ROTARY)
    window = {"mask": {"kind": "chunked", "window": rows, "bidirectional": True}}
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"))
    kinds: dict[str, Entry] = {
        "window_attention": ("window", layer(first, attention | window, ffn)),
        "full_attention": ("whole", layer(first, attention, ffn)),
    }
    number = c.count("num_hidden_layers")
    types = c.listed("layer_types", number)
    if types is None:
        types = ["full_attention" if (i + 1) % 4 == 0 or i + 1 == number else "window_attention" for i in range(number)]
    inner = around.config.count("projector_hidden_size", default=4096)
    return [
        patches(d, c.count("patch_size"), frames=c.count("patch_temporal"), bias=False),
        {"kind": "positions", "rows": rows},
        norm(first, name="first_norm"),
        {"kind": "layers", "layers": pattern([kinds[kind] for kind in types])},
        norm(first),
        {"kind": "merge", "tokens": c.count("merge_size") ** 2},
        linear(inner, bias=False, activation="gelu"),
        linear(inner, bias=False, activation="gelu"),
        linear(around.width, bias=False),
    ]
