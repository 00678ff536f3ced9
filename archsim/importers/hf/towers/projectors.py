"""Encoders of images that merge, pool or project in their own ways: Cohere, ERNIE, Step, MiniCPM-V, Molmo, LFM3-VL."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.parts import heads
from archsim.importers.hf.pattern import pattern
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
from archsim.importers.hf.towers.pictures import SIGLIP, body
from archsim.importers.hf.towers.qwen import embedding, merged
from archsim.importers.hf.towers.registry import Around, encoder
from archsim.importers.hf.towers.variants import PLAIN, plain

Doc = JsonObject


def gated_pair(around: Around, inner: int) -> list[Doc]:
    """Two matrices, where half of what the first gives gates the other half."""
    return [linear(inner // 2, activation="silu") | {"gated": True}, linear(around.width)]


# Cohere2VisionConfig
@encoder("vision", "cohere2_vision")
def cohere2_vision(c: Config, around: Around) -> list[Doc]:
    """Command A Vision: SigLIP, neighbours side by side, a gated pair of matrices."""
    side = around.config.count("downsample_factor", default=2)
    inner = around.config.count("alignment_intermediate_size", default=36864)
    found = [*body(c, around, "siglip_vision_model"), {"kind": "merge", "tokens": side**2}]
    return [*found, *gated_pair(around, inner)]


# AyaVisionConfig
@encoder("vision", "aya_vision")
def aya_vision(c: Config, around: Around) -> list[Doc]:
    """Aya Vision: the same with a norm, as wide inside as the language model where nothing is said."""
    side = around.config.count("downsample_factor", default=2)
    inner = around.config.count("alignment_intermediate_size", default=around.width)
    found = [*body(c, around, "siglip_vision_model"), {"kind": "merge", "tokens": side**2}]
    return [*found, norm(layernorm(), name="projector_norm"), *gated_pair(around, inner)]


# Ernie4_5_VLMoeVisionConfig
@encoder("vision", "ernie4_5_vl_moe", "ernie4_5_moe_vl", depth=32, hidden_size=1280, hidden_act="quick_gelu",
         num_heads=16, in_channels=3, patch_size=14, spatial_merge_size=2, intermediate_size=5120,
         temporal_merge_size=2, rms_norm_eps=1e-6)  # fmt: skip
def ernie4_5_vl(c: Config, around: Around) -> list[Doc]:
    """ERNIE 4.5 VL: neighbours are merged, then as many frames; an image stands in for the second frame."""
    d, n, frames = c.count("hidden_size"), c.count("num_heads"), c.count("temporal_merge_size")
    first, side = layernorm(c.number("rms_norm_eps")), c.count("spatial_merge_size")
    one = layer(first, mha(n, d, bias=True, position=ROTARY), mlp(act(c, "hidden_act"), c.count("intermediate_size")))
    wide = d * side**2
    pair = [*two_layers(wide, "gelu"), norm(layernorm(c.number("rms_norm_eps")))]
    return [
        patches(d, patch_size(c), channels=c.count("in_channels"), bias=False),
        layers(c.count("depth"), one),
        norm(first),
        {"kind": "merge", "tokens": side**2},
        *pair,
        {"kind": "taps", "n": frames - 1},
        *pair,
        linear(around.width),
        norm(rmsnorm()),
    ]


# Step3p7VisionConfig
@encoder("vision", "step3p7", hidden_size=1536, num_hidden_layers=47, num_attention_heads=16, num_channels=3,
         image_size=728, patch_size=14, hidden_act="quick_gelu", layer_norm_eps=1e-5,
         mlp_ratio=8960 / 1536)  # fmt: skip
def step3p7(c: Config, around: Around) -> list[Doc]:
    """Step 3.7: a learned factor on every branch, and two convolutions that each leave a quarter of the vectors."""
    d, first = c.count("hidden_size"), layernorm(c.number("layer_norm_eps"))
    c.skip("intermediate_size")  # the class reads `mlp_ratio`
    ffn = mlp(act(c, "hidden_act"), int(d * c.number("mlp_ratio")))
    one = layer(first, mha(c.count("num_attention_heads"), d, bias=True, position=ROTARY), ffn, layer_scale="channel")
    return [
        patches(d, patch_size(c), channels=c.count("num_channels"), bias=False),
        {"kind": "positions", "rows": squares(c)},
        norm(first),
        layers(c.count("num_hidden_layers"), one),
        *({"kind": "conv2d", "d": width * d, "stride": 2, "bias": True} for width in (2, 4)),
        linear(around.width, bias=False),
    ]


# MiniCPMV4_6VisionConfig
@encoder("vision", "minicpmv4_6", "minicpmv4_7", "minicpm_ocr", **PLAIN, insert_layer_id=6, window_kernel_size=[2, 2])
def minicpmv(c: Config, around: Around) -> list[Doc]:
    """MiniCPM-V 4.6: in the middle of its layers, attention within squares of neighbours, which then become one."""
    c = c.changed(vision_use_head=False) if "vision_use_head" in c.data else c
    stages, d = plain(c, squares(c)), c.count("hidden_size")
    rows, columns = c.get("window_kernel_size")
    told, own = around.config.get("insert_layer_id"), c.get("insert_layer_id")
    before, inner_width = (own if told is None else told) + 1, 4 * c.count("intermediate_size")
    one = {key: value for key, value in stages[2]["layers"][0].items() if key != "repeat"}
    window = {"kind": "chunked", "window": rows * columns, "bidirectional": True}
    squared = {"norm": one["norm"], "attention": one["attention"] | {"mask": window}}
    merge = {"kind": "merge", "tokens": rows * columns}
    inner = [linear(inner_width, activation="gelu_tanh"), linear(d)]
    times = around.config.count("merger_times", default=1)
    kernel = around.config.get("merge_kernel_size") or (2, 2)
    wide = d * kernel[0] * kernel[1]
    return [
        *stages[:2],
        layers(before, one),
        layers(1, squared) | {"name": "windows"},
        merge,
        norm(one["norm"], name="merged_norm"),
        *inner,
        layers(c.count("num_hidden_layers") - before, one),
        *stages[3:],
        *(stage for i in range(times) for stage in (
            {"kind": "merge", "tokens": kernel[0] * kernel[1]}, norm(layernorm(), name="projector_norm"),
            linear(wide, activation="gelu"), linear(around.width if i == times - 1 else d))),
    ]  # fmt: skip


# Lfm3VlVisionConfig
@encoder("vision", "lfm3_vl", hidden_size=1024, intermediate_size=2560, in_channels=3, patch_size=16,
         spatial_merge_size=2, temporal_patch_size=2, num_hidden_layers=14, num_attention_heads=16,
         num_key_value_heads=8, conv_kernel_size=3, norm_eps=1e-5)  # fmt: skip
def lfm3_vl(c: Config, around: Around) -> list[Doc]:
    """LFM3-VL: gated convolutions over the patches in most layers, attention in the others."""
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    first, ffn = rmsnorm(c.number("norm_eps")), glu("silu", c.count("intermediate_size"))
    mixer = {"kind": "short_conv", "d_inner": d, "d_conv": c.count("conv_kernel_size"), "square": True}
    attention = heads(n, c.count("num_key_value_heads"), d // n, position=ROTARY, qk_norm=first)
    kinds = {"conv": {"norm": first, "mixer": mixer, "ffn": ffn}, "full_attention": layer(first, attention, ffn)}
    chosen = c.listed("layer_types", c.count("num_hidden_layers"))
    if chosen is None or not set(chosen) <= set(kinds):
        raise c.error("layer_types", "a list of `conv` and `full_attention`")
    inner = around.config.count("projector_hidden_size", default=4096)
    bias = around.config.get("projector_bias")
    name = act(Config(around.config.data, {"projector_hidden_act": "gelu"}), "projector_hidden_act")
    return [
        embedding(c, d, bias=False),
        norm(first),
        {"kind": "layers", "layers": pattern([(kind, kinds[kind]) for kind in chosen])},
        norm(layernorm(), name="projector_norm"),
        *merged(c, *two_layers(around.width, name, bias is None or bool(bias), inner)),
    ]


# RadioConfig
@encoder("vision", "nemotron_h_omni", hidden_size=1280, num_hidden_layers=32, num_attention_heads=16, mlp_ratio=4.0,
         hidden_act="gelu", layer_norm_eps=1e-6, use_swiglu_ffn=False, qkv_bias=True, num_channels=3, patch_size=16,
         max_img_size=2048, num_cls_tokens=3, num_registers=7)  # fmt: skip
def radio(c: Config, around: Around) -> list[Doc]:
    """Nemotron Omni: RADIO with its class tokens and registers, a pixel shuffle, two matrices without biases."""
    d, first, extra = c.count("hidden_size"), layernorm(c.number("layer_norm_eps")), c.get("num_registers")
    c.only("use_swiglu_ffn", False)
    c.skip("layerscale_value", "summary_idxs", "norm_mean", "norm_std", "patch_dim", "video_patch_dim")
    attention = mha(c.count("num_attention_heads"), d, qkv_bias=bool(c.get("qkv_bias")), out_bias=True)
    ffn = mlp(act(c, "hidden_act"), int(d * c.number("mlp_ratio")))
    side, n = patch_size(c), c.count("num_cls_tokens") + extra
    frames = c.get("video_temporal_patch_size") or 0
    video = [{"kind": "vectors", "name": "video_patches", "n": c.count("num_channels") * side**2 * frames}]
    shuffle = round(1 / (around.config.get("downsample_ratio") or 0.5))
    inner = around.config.count("projector_hidden_size", default=4096)
    return [
        patches(d, side, channels=c.count("num_channels"), bias=False),
        *(video if frames else []),
        {"kind": "positions", "rows": (c.count("max_img_size") // side) ** 2},
        {"kind": "class_token", "n": n},
        layers(c.count("num_hidden_layers"), layer(first, attention, ffn, layer_scale="channel")),
        {"kind": "drop_class", "n": n},
        {"kind": "merge", "tokens": shuffle**2},
        norm(rmsnorm(), name="projector_norm"),
        linear(inner, bias=False, activation="relu2"),
        linear(around.width, bias=False),
    ]


# Molmo2VisionConfig and Molmo2AdapterConfig
@encoder("vision", "molmo2", hidden_size=1152, intermediate_size=4304, num_hidden_layers=25, num_attention_heads=16,
         hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, image_size=[378, 378], patch_size=14, num_channels=3,
         attention_bias=True)  # fmt: skip
def molmo2(c: Config, around: Around) -> list[Doc]:
    """Molmo 2: what two layers gave, pooled two by two by attention, and a gated network."""
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), layernorm(c.number("layer_norm_eps"))
    c.only("num_key_value_heads", n)
    head = c.count("head_dim", default=d // n)
    adapter = Config(around.parts.get("adapter_config") or {}, ADAPTER)
    bias = {"bias": True} if c.get("attention_bias") else {}
    attention: Doc = {"kind": "mha", "n_heads": n, "d_head": head, **bias}
    one = layer(first, attention, mlp(act(c, "hidden_act"), c.count("intermediate_size")))
    rows = c.count("num_position_embeddings", default=squares(c))
    pool = {"kind": "pooled_windows", "n_heads": adapter.count("num_attention_heads"), "tokens": 4,
            "d_head": adapter.count("head_dim"), "bias": bool(adapter.get("attention_bias"))}  # fmt: skip
    inner, plain_bias = adapter.count("intermediate_size"), bool(adapter.get("mlp_bias"))
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        {"kind": "positions", "rows": rows},
        layers(c.count("num_hidden_layers"), one),
        {"kind": "taps", "n": len(adapter.get("vision_feature_layer") or (-3, -9)) - 1},
        pool,
        linear(inner, plain_bias, act(adapter, "hidden_act")) | {"gated": True},
        linear(adapter.count("text_hidden_size", default=around.width), plain_bias),
    ]


ADAPTER = {
    "num_attention_heads": 16, "head_dim": 72, "attention_bias": True, "hidden_act": "silu",
    "intermediate_size": 18944, "mlp_bias": False,
}  # fmt: skip
"""Molmo2AdapterConfig."""


# Phi4MultimodalVisionConfig
@encoder("vision", "phi4_multimodal", "phi4mm", **{**SIGLIP, "hidden_size": 1152, "intermediate_size": 4304,
         "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 448, "patch_size": 14})  # fmt: skip
def phi4_multimodal(c: Config, around: Around) -> list[Doc]:
    """Phi-4-multimodal: SigLIP with its head, vectors averaged two by two, two matrices; learned vectors end a row and
    stand between the crops and the whole image.
    """
    c.skip("crop_size", "image_token_id", "feature_layer")
    usual = {key: value for key, value in c.defaults.items() if key not in c.data}
    siglip = body(c.changed(**usual, model_type="siglip_vision_model"), around)
    return [*siglip, {"kind": "pool", "tokens": 4}, {"kind": "vectors", "n": 2}, *two_layers(around.width, "gelu")]


# Ovis2VisionConfig
@encoder("vision", "ovis2", hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=8,
         num_channels=3, image_size=224, patch_size=14, rms_norm_eps=1e-5, qkv_bias=False, mlp_bias=False,
         hidden_act="silu", vocab_size=16384, hidden_stride=1, num_visual_indicator_tokens=5)  # fmt: skip
def ovis2(c: Config, around: Around) -> list[Doc]:
    """Ovis 2: every vector becomes a mixture of visual words, whose table the language model reads; of the words that
    mark places in it there is nothing in a picture.
    """
    d, first = c.count("hidden_size"), rmsnorm(c.number("rms_norm_eps"))
    c.skip("tokenize_function")
    width = around.config.count("hidden_size", default=around.width)
    bias, words = bool(c.get("qkv_bias")), c.count("vocab_size") - c.count("num_visual_indicator_tokens")
    one = layer(first, mha(c.count("num_attention_heads"), d, bias=bias),
                glu(act(c, "hidden_act"), c.count("intermediate_size"), bool(c.get("mlp_bias"))))  # fmt: skip
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        norm(first),
        {"kind": "positions", "rows": squares(c)},
        layers(c.count("num_hidden_layers"), one),
        norm(first),
        {"kind": "merge", "tokens": c.count("hidden_stride") ** 2},
        linear(words, bias=False),
        norm(layernorm(1e-5), name="words_norm"),
        linear(width, bias=False) | {"zeros": c.count("num_visual_indicator_tokens")},
    ]


# VideoLlama3VisionConfig
@encoder("vision", "video_llama_3", **PLAIN)
def video_llama_3(c: Config, around: Around) -> list[Doc]:
    """VideoLLaMA 3: SigLIP of any resolution, without a table of positions, two matrices."""
    return [*plain(c, 0, ROTARY), *two_layers(around.width, "gelu")]


# VideoLlavaConfig
@encoder("vision", "video_llava")
def video_llava(c: Config, around: Around) -> list[Doc]:
    """Video-LLaVA: CLIP, another for videos whose class token stays, two matrices for both."""
    found = body(c, around)
    videos = [stage for stage in found if stage["kind"] != "drop_class"]
    name = act(Config(around.config.data, {"projector_hidden_act": "gelu"}), "projector_hidden_act")
    return [*found, {"kind": "unused", "name": "videos", "stages": videos}, *two_layers(around.width, name)]


SAM = {
    "hidden_size": 768, "output_channels": 256, "num_hidden_layers": 12, "num_attention_heads": 12, "num_channels": 3,
    "image_size": 1024, "patch_size": 16, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "qkv_bias": True,
    "use_abs_pos": True, "use_rel_pos": True, "window_size": 14, "global_attn_indexes": [2, 5, 8, 11], "mlp_dim": 3072,
}  # fmt: skip
"""GotOcr2VisionConfig."""


def sam(c: Config) -> list[Doc]:
    """SAM's encoder: attention within padded windows, in some layers over all patches, and a neck of two
    convolutions.
    """
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), layernorm(c.number("layer_norm_eps"))
    c.only("use_rel_pos", True)
    whole, window = c.count("image_size") // patch_size(c), c.count("window_size")
    network: Doc = {"kind": "network", "ffn": mlp(act(c, "hidden_act"), c.count("mlp_dim"))}
    everywhere = set(c.get("global_attn_indexes") or ())

    def attend(side: int, mask: Doc) -> Doc:
        heads_of = mha(n, d, qkv_bias=bool(c.get("qkv_bias")), out_bias=True, mask=mask)
        return {"kind": "attend", "side": side, "attention": heads_of}

    within = attend(window, {"kind": "chunked", "window": window**2, "bidirectional": True})
    padded = {"kind": "padded", "size": window, "stages": [within]}
    over_all = attend(whole, {"kind": "bidirectional"})
    blocks = [
        {"kind": "residual", "stages": stages}
        for i in range(c.count("num_hidden_layers"))
        for stages in ([norm(first), over_all if i in everywhere else padded], [norm(first), network])
    ]
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        *([{"kind": "positions", "rows": whole**2}] if c.get("use_abs_pos") else []),
        *blocks,
        *sam_neck(c),
    ]


def sam_neck(c: Config) -> list[Doc]:
    """Two convolutions, each before a norm."""
    neck: Doc = {"kind": "conv2d", "d": c.count("output_channels"), "norm": layernorm(c.number("layer_norm_eps"))}
    return [neck | {"kernel": 1}, neck]


# GotOcr2VisionConfig
@encoder("vision", "got_ocr2", "pp_chart2table", **SAM)
def got_ocr2(c: Config, around: Around) -> list[Doc]:
    """GOT-OCR 2: SAM's encoder, two convolutions that each leave a quarter of the vectors, one matrix."""
    halved = ({"kind": "conv2d", "d": width, "stride": 2} for width in (2 * c.count("output_channels"), around.width))
    return [*sam(c), *halved, linear(around.width)]
