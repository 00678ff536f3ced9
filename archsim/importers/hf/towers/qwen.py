"""Encoders of any resolution whose patches are merged two by two: Qwen-VL and its relatives, GLM-V, Kimi, MiniMax."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
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
    patches,
    rmsnorm,
    two_layers,
)
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject


def embedding(c: Config, d: int, bias: bool) -> Doc:
    """Patches of two frames."""
    channels = c.count("in_channels", "in_chans", "num_channels", default=3)
    return patches(d, c.count("patch_size"), channels=channels, frames=c.count("temporal_patch_size"), bias=bias)


def merged(c: Config, *projector: Doc) -> list[Doc]:
    """A square of neighbours made one, and a projector."""
    return [{"kind": "merge", "tokens": c.count("spatial_merge_size") ** 2}, *projector]


# Qwen2VLVisionConfig
@encoder("vision", "qwen2_vl", depth=32, embed_dim=1280, hidden_size=3584, hidden_act="quick_gelu", mlp_ratio=4,
         num_heads=16, in_channels=3, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)  # fmt: skip
def qwen2_vl(c: Config, around: Around) -> list[Doc]:
    """Qwen2-VL: every layer sees the whole image."""
    d, n = c.count("embed_dim"), c.count("num_heads")
    attention = mha(n, d, bias=True, position=ROTARY)
    one = layer(layernorm(), attention, mlp(act(c, "hidden_act"), int(d * c.number("mlp_ratio"))))
    inner = d * c.count("spatial_merge_size") ** 2
    return [
        embedding(c, d, bias=False),
        layers(c.count("depth"), one),
        norm(layernorm()),
        *merged(c, *two_layers(c.count("hidden_size"), "gelu", inner=inner)),
    ]


# Qwen2_5_VLVisionConfig
@encoder("vision", "qwen2_5_vl", "qwen2_5_omni", "qwen2_5_omni_thinker", depth=32, hidden_size=3584, hidden_act="silu",
         intermediate_size=3420, num_heads=16, in_channels=3, patch_size=14, spatial_merge_size=2,
         temporal_patch_size=2, window_size=112, out_hidden_size=3584,
         fullatt_block_indexes=[7, 15, 23, 31])  # fmt: skip
def qwen2_5_vl(c: Config, around: Around) -> list[Doc]:
    """Qwen2.5-VL: most layers see square windows of the image, some all of it."""
    d, n = c.count("hidden_size"), c.count("num_heads")
    return windows_and_whole(c, mha(n, d, bias=True, position=ROTARY))


def windows_and_whole(c: Config, attention: Doc) -> list[Doc]:
    """Qwen2.5-VL's stages with this attention."""
    d, side = c.count("hidden_size"), c.count("window_size") // c.count("patch_size")
    ffn = glu(act(c, "hidden_act"), c.count("intermediate_size"), bias=True)
    whole = layer(rmsnorm(), attention, ffn)
    window = {"kind": "chunked", "window": side**2, "bidirectional": True}
    within = layer(rmsnorm(), attention | {"mask": window}, ffn)
    full = set(c.get("fullatt_block_indexes") or ())
    entries = [("whole", whole) if i in full else ("window", within) for i in range(c.count("depth"))]
    inner = d * c.count("spatial_merge_size") ** 2
    return [
        embedding(c, d, bias=False),
        {"kind": "layers", "layers": pattern(entries)},
        norm(rmsnorm()),
        *merged(c, *two_layers(c.count("out_hidden_size"), "gelu", inner=inner)),
    ]


QWEN3 = {
    "depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 4304, "num_heads": 16,
    "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}  # fmt: skip


# Qwen3VLVisionConfig and Qwen3_5VisionConfig
@encoder("vision", "qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe", "qwen3_omni_moe_thinker", "cosmos3_omni", **QWEN3,
         deepstack_visual_indexes=[8, 16, 24])  # fmt: skip
@encoder("vision", "qwen3_5", "qwen3_5_moe", **QWEN3)
def qwen3_vl(c: Config, around: Around) -> list[Doc]:
    """Qwen3-VL and Qwen3.5: a learned table of positions; the former also merges what some layers give (DeepStack)."""
    d, n, out = c.count("hidden_size"), c.count("num_heads"), c.count("out_hidden_size")
    one = layer(layernorm(), mha(n, d, bias=True, position=ROTARY), mlp(act(c, "hidden_act"),
                c.count("intermediate_size")))  # fmt: skip
    projector = two_layers(out, "gelu", inner=d * c.count("spatial_merge_size") ** 2)
    taps = len(c.get("deepstack_visual_indexes") or ())
    deep = merged(c, norm(layernorm()), *projector)
    return [
        embedding(c, d, bias=True),
        {"kind": "positions", "rows": c.count("num_position_embeddings")},
        layers(c.count("depth"), one),
        *([{"kind": "branch", "name": "deepstack", "n": taps, "stages": deep}] if taps else []),
        norm(layernorm()),
        *merged(c, *projector),
    ]


# Glm4vVisionConfig
@encoder("vision", "glm4v", "glm4v_moe", "glm46v", "glmga", depth=24, hidden_size=1536, hidden_act="silu", num_heads=12,
         in_channels=3, image_size=336, patch_size=14, rms_norm_eps=1e-5, spatial_merge_size=2, temporal_patch_size=2,
         out_hidden_size=4096, intermediate_size=13696, attention_bias=False)  # fmt: skip
def glm4v(c: Config, around: Around) -> list[Doc]:
    """GLM-4.1V to GLM-4.6V: a convolution merges, and a gated network follows."""
    d, n, out = c.count("hidden_size"), c.count("num_heads"), c.count("out_hidden_size")
    first = rmsnorm(c.number("rms_norm_eps"))
    rows = (c.count("image_size") // c.count("patch_size")) ** 2
    bias = {"qkv_bias": True} if c.get("attention_bias") else {}
    one = layer(first, mha(n, d, position=ROTARY, **bias), glu(act(c, "hidden_act"), out))
    return [
        embedding(c, d, bias=True),
        norm(first, name="conv_norm"),
        {"kind": "positions", "rows": rows},
        layers(c.count("depth"), one),
        norm(first),
        *merged(c, linear(out), linear(out, bias=False), norm(layernorm(1e-5))),
        {"kind": "network", "ffn": glu(act(c, "hidden_act"), c.count("intermediate_size"))},
    ]


# KimiK25VisionConfig
@encoder("vision", "kimi_k25", "kimi_vl", patch_size=14, pos_emb_height=64, pos_emb_width=64, num_attention_heads=16,
         num_hidden_layers=27, hidden_size=1152, intermediate_size=4304, hidden_act="gelu_pytorch_tanh",
         merge_kernel_size=[2, 2])  # fmt: skip
def kimi(c: Config, around: Around) -> list[Doc]:
    """MoonViT of Kimi K2.5."""
    c = _moonvit(c)
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    rows, columns = c.get("merge_kernel_size")
    around.config.only("projection_hidden_size", d)
    c.only("mm_hidden_size", d)
    c.only("mm_projector_type", "patchmerger")
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"))
    return [
        patches(d, c.count("patch_size")),
        {"kind": "positions", "rows": c.count("pos_emb_height") * c.count("pos_emb_width")},
        layers(c.count("num_hidden_layers"), layer(layernorm(), mha(n, d, bias=True, position=ROTARY), ffn)),
        norm(layernorm()),
        norm(layernorm(), name="projector_norm"),
        {"kind": "merge", "tokens": rows * columns},
        *two_layers(around.width, "gelu", inner=d * rows * columns),
    ]


RELEASED = {
    "init_pos_emb_height": "pos_emb_height", "init_pos_emb_width": "pos_emb_width", "vt_hidden_size": "hidden_size",
    "vt_num_attention_heads": "num_attention_heads", "vt_num_hidden_layers": "num_hidden_layers",
    "vt_intermediate_size": "intermediate_size", "activation_func": "hidden_act",
}  # fmt: skip
"""Names in released files and those that transformers gives them."""


def _moonvit(c: Config) -> Config:
    """The config under the names of transformers."""
    c.skip("init_pos_emb_time", "projector_hidden_act", "projector_ln_eps", "text_hidden_size",
           "pos_emb_interpolation_mode")  # fmt: skip
    return c.changed(**{new: c.get(old) for old, new in RELEASED.items() if old in c.data})


# KimiK3VisionConfig in vLLM
@encoder("vision", "kimi_k3", patch_size=14, pos_emb_height=64, pos_emb_width=64, num_attention_heads=12,
         num_hidden_layers=27, hidden_size=1024, intermediate_size=4096, hidden_act="gelu_pytorch_tanh",
         qkv_hidden_size=1536, norm_type="rmsnorm", attn_bias=False, patch_embed_proj_bias=False, linear_bias=False,
         mm_projector_type="patchmergerv2", mlp_type="mlp2", merge_kernel_size=[2, 2])  # fmt: skip
def kimi_k3(c: Config, around: Around) -> list[Doc]:
    """MoonViT of Kimi K3: RMSNorm, heads wider than the stream in all, no biases, a norm after the projector."""
    c = _moonvit(c)
    for key, known in (("norm_type", "rmsnorm"), ("mlp_type", "mlp2"), ("mm_projector_type", "patchmergerv2")):
        c.only(key, known)
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    c.only("mm_hidden_size", d)
    rows, columns = c.get("merge_kernel_size")
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"), bool(c.get("linear_bias")))
    bias = {"bias": True} if c.get("attn_bias") else {}
    return [
        patches(d, c.count("patch_size"), bias=bool(c.get("patch_embed_proj_bias"))),
        {"kind": "positions", "rows": c.count("pos_emb_height") * c.count("pos_emb_width")},
        layers(c.count("num_hidden_layers"),
               layer(rmsnorm(), mha(n, c.count("qkv_hidden_size"), position=ROTARY, **bias), ffn)),
        norm(rmsnorm()),
        {"kind": "merge", "tokens": rows * columns},
        *two_layers(around.width, "gelu", bias=False, inner=d * rows * columns),
        norm(rmsnorm(1e-5), name="projector_norm"),
    ]  # fmt: skip


MERGED_BY = ("spatial_merge_size", "temporal_patch_size")
"""Keys that released files of MiniMax-M3 have in a mapping of their own."""


# MiniMaxM3VLVisionConfig
@encoder("vision", "minimax_m3_vl", hidden_size=1280, intermediate_size=5120, num_hidden_layers=32,
         num_attention_heads=16, num_channels=3, patch_size=14, temporal_patch_size=2, spatial_merge_size=2,
         hidden_act="gelu", layer_norm_eps=1e-5)  # fmt: skip
def minimax(c: Config, around: Around) -> list[Doc]:
    """MiniMax-M3: projected before and after the merge."""
    c.only("rope_mode", "3d")
    c.skip("vision_segment_max_frames")
    nested = c.child("img_token_compression_config")
    if nested is not None:
        nested.only("image_token_compression_method", "patch_merge")
        c = c.changed(**{key: nested.get(key) for key in MERGED_BY if key in nested.data})
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    first = layernorm(c.number("layer_norm_eps"))
    inner = around.config.count("projector_hidden_size", default=6144)
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"))
    return [
        embedding(c, d, bias=False),
        norm(first),
        layers(c.count("num_hidden_layers"), layer(first, mha(n, d, bias=True, position=ROTARY), ffn)),
        *two_layers(around.width, "gelu", inner=inner),
        *merged(c, *two_layers(around.width, "gelu", inner=inner)),
    ]
