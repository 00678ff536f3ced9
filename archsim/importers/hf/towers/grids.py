"""Encoders of images that convolve over a grid or see an image twice: DaViT of Florence-2, DeepSeek-VL's SigLIP beside
SAM, the tokenizer of Apertus 1.5; and SigLIP with Aria's resampler and with UltraVBERT's projector.
"""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import (
    act,
    layernorm,
    linear,
    mha,
    mlp,
    norm,
    patches,
    rmsnorm,
    squares,
    two_layers,
)
from archsim.importers.hf.towers.pictures import SIGLIP, body
from archsim.importers.hf.towers.projectors import SAM, sam, sam_neck
from archsim.importers.hf.towers.registry import Around, encoder
from archsim.importers.hf.towers.variants import PLAIN, plain, summed

Doc = JsonObject


# UltraVBertConfig
@encoder("vision", "ultravbert", **PLAIN)
def ultravbert(c: Config, around: Around) -> list[Doc]:
    """UltraVBERT: SigLIP, neighbours side by side, one matrix and a norm."""
    side = around.config.count("pixel_shuffle_factor", default=4)
    found = [*plain(c, squares(c)), *summed(c), {"kind": "merge", "tokens": side**2}]
    return [*found, linear(around.width, bias=False), norm(rmsnorm(), name="projector_norm")]


# Idefics3VisionConfig and AriaConfig
@encoder("vision", "aria", **{**PLAIN, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32})
def aria(c: Config, around: Around) -> list[Doc]:
    """Aria: SigLIP, whose vectors learned queries attend to, as many as its largest image gets, and two matrices."""
    c.skip("tie_word_embeddings", "max_image_size", "size", "use_base_siglip")
    by_patches = around.parts.get("projector_patch_to_query_dict") or {"4900": 256}
    queries = max(int(n) for n in by_patches.values())
    first, d = layernorm(1e-5), c.count("hidden_size")
    return [
        *plain(c, squares(c)),
        {"kind": "resampler", "n": queries, "n_heads": c.count("num_attention_heads"), "norm": first},
        linear(d),
        norm(first, name="projector_norm"),
        *two_layers(around.width, "gelu_tanh", bias=False),
    ]


HIGH = {**SAM, "mlp_dim": None, "mlp_ratio": 4.0}
"""SamVisionConfig."""


# SiglipVisionConfig and SamVisionConfig
@encoder("vision", "deepseek_vl_hybrid", **SIGLIP)
def deepseek_vl_hybrid(c: Config, around: Around) -> list[Doc]:
    """DeepSeek-VL 7B: SigLIP, and SAM that sees the image larger; what one of its layers gave goes through a neck of
    its own and the same convolutions as what it gave in the end.
    """
    given = Config(around.parts.get("high_res_vision_config") or {}, HIGH, "high_res_vision_config.")
    inner = given.get("mlp_dim") or int(given.count("hidden_size") * given.number("mlp_ratio"))
    large = given.changed(mlp_dim=inner)
    out, half = large.count("output_channels"), around.width // 2
    side = c.count("image_size", default=224) // c.count("patch_size", default=16)
    halved = ({"kind": "conv2d", "d": width, "stride": 2} for width in (2 * out, 4 * out))
    necks: Doc = {
        "kind": "parallel", "name": "necks", "join": "add", "gated": True, "ways": [{"stages": sam_neck(large)}] * 2,
        "shared": [{"kind": "resample", "side": 4 * side}, *halved],
    }  # fmt: skip
    high = [*sam(large)[:-2], necks, linear(half, activation="gelu")]
    low = [*body(c, around, "siglip_vision_model"), linear(half, activation="gelu")]
    ways = [{"stages": low, "side": side},
            {"stages": high, "side": large.count("image_size") // large.count("patch_size")}]  # fmt: skip
    return [{"kind": "parallel", "ways": ways}, linear(around.width)]


FLORENCE: Doc = {
    "in_channels": 3, "depths": [1, 1, 9, 1], "patch_size": [7, 3, 3, 3], "patch_stride": [4, 2, 2, 2],
    "patch_padding": [3, 1, 1, 1], "patch_prenorm": [False, True, True, True], "embed_dim": [128, 256, 512, 1024],
    "num_heads": [4, 8, 16, 32], "num_groups": [4, 8, 16, 32], "window_size": 12, "mlp_ratio": 4.0, "qkv_bias": True,
    "activation_function": "gelu", "projection_dim": 1024, "max_temporal_embeddings": 100,
    "max_position_embeddings": 50,
}  # fmt: skip
"""Florence2VisionConfig."""

BY_STAGE = ("embed_dim", "depths", "num_heads", "num_groups", "patch_size", "patch_stride", "patch_padding",
            "patch_prenorm")  # fmt: skip


@encoder("vision", "florence2", **FLORENCE)
def florence2(c: Config, around: Around) -> list[Doc]:
    """Florence-2: DaViT (arXiv:2204.03645), a table for rows and columns, the mean of all vectors before them, a matrix
    and a norm.
    """
    c.skip("max_temporal_embeddings", "max_position_embeddings", "projection_dim")
    found: list[Doc] = []
    for d, depth, heads, groups, size, stride, padding, before in zip(*map(c.get, BY_STAGE), strict=True):
        if size != 2 * padding + 1 or (before and not found):
            raise c.error("patch_padding", "not a convolution that keeps the edges, with a norm behind the first")
        first: Doc = patches(d, stride, channels=c.count("in_channels")) | {"kernel": size}
        conv = {"kind": "conv2d", "d": d, "kernel": size, "stride": stride, "bias": True} if found else first
        found += [norm(layernorm(1e-5)), conv] if before else [conv, norm(layernorm(1e-5))]
        found.append({"kind": "residual", "skip": False, "repeat": depth, "stages": davit(c, d, heads, groups)})
    return [
        *found,
        {"kind": "positions", "rows": c.count("max_position_embeddings")},
        {"kind": "mean_token"},
        linear(c.count("projection_dim"), bias=False),
        norm(layernorm(1e-5), name="projector_norm"),
    ]


def davit(c: Config, d: int, n_heads: int, groups: int) -> list[Doc]:
    """Attention within padded windows and attention over channels, each with a network, and a convolution before each
    of the four.
    """
    side, bias = c.count("window_size"), bool(c.get("qkv_bias"))
    mask = {"kind": "chunked", "window": side**2, "bidirectional": True}
    windows: Doc = {"kind": "attend", "attention": mha(n_heads, d, qkv_bias=bias, out_bias=True, mask=mask)}
    padded: Doc = {"kind": "padded", "size": side, "stages": [windows]}
    network: Doc = {"kind": "network", "ffn": mlp(act(c, "activation_function"), int(d * c.number("mlp_ratio")))}
    channels: Doc = {"kind": "channel_attention", "groups": groups, "bias": bias}
    near: Doc = {"kind": "residual", "stages": [{"kind": "conv2d", "depthwise": True, "bias": True}]}
    return [
        stage
        for inner in (padded, network, channels, network)
        for stage in (near, {"kind": "residual", "stages": [norm(layernorm(1e-5)), inner]})
    ]


GROUPED = layernorm(1e-6) | {"groups": 32}
"""A GroupNorm."""


def resnet(d: int, change: bool) -> Doc:
    """Two convolutions, each behind a norm and an activation. change: from another width."""
    conv: Doc = {"kind": "conv2d", "d": d, "bias": True}
    before = norm(GROUPED, activation="silu")
    shortcut = {"shortcut": [conv | {"kernel": 1}]} if change else {}
    return {"kind": "residual", "stages": [before, conv, before, conv], **shortcut}


def attending(d: int) -> Doc:
    """One head over all positions."""
    attention = mha(1, d, bias=True, mask={"kind": "bidirectional"})
    return {"kind": "residual", "stages": [norm(GROUPED), {"kind": "attend", "attention": attention}]}


def vqgan(c: Config, channels: int) -> list[Doc]:
    """The encoder of VQGAN (arXiv:2012.09841): residual convolutions on a grid that halves, from single pixels on."""
    base, depth, out = c.count("base_channels"), c.count("num_res_blocks"), c.count("latent_channels")
    wide, where = c.get("channel_multiplier"), c.get("attn_resolutions") or ()
    found: list[Doc] = [patches(base, 1, channels=channels) | {"kernel": 3}]
    before = 1
    for i, times in enumerate(wide):
        d = base * times
        also = [attending(d)] if c.count("resolution") // 2**i in where else []
        rest = {"kind": "residual", "skip": False, "repeat": depth - 1, "stages": [resnet(d, False), *also]}
        found += [resnet(d, times != before), *also, *([rest] if depth > 1 else [])]
        found += [{"kind": "conv2d", "d": d, "stride": 2, "bias": True}] if i + 1 < len(wide) else []
        before = times
    d, last = base * before, {"kind": "conv2d", "d": out, "bias": True}
    return [*found, resnet(d, False), attending(d), resnet(d, False), norm(GROUPED, activation="silu"), last]


# Apertus1p5VisionTokenizerConfig
@encoder("vision", "apertus1p5", codebook_size=131072, embed_dim=256, latent_channels=256, in_channels=3,
         base_channels=256, channel_multiplier=[1, 1, 2, 2, 4], num_res_blocks=4, attn_resolutions=[16],
         resolution=256)  # fmt: skip
def apertus(c: Config, around: Around) -> list[Doc]:
    """Apertus 1.5: every vector is told by the entry of a codebook that it is most like, whose number is a token."""
    c.skip("spatial_scale_factor")
    found = vqgan(c, c.count("in_channels"))
    return [*found, linear(c.count("embed_dim")), linear(c.count("codebook_size"), bias=False)]
