"""Encoders of images that convolve over a grid or see an image twice: DaViT of Florence-2, DeepSeek-VL's SigLIP beside
SAM, the tokenizers of Apertus 1.5 and Janus; and SigLIP with Aria's resampler and with UltraVBERT's projector.
"""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import (
    act,
    held,
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
from archsim.importers.hf.towers.projectors import SAM, sam, sam_neck
from archsim.importers.hf.towers.registry import Around, encoder
from archsim.importers.hf.towers.resamplers import part
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
            raise c.error("patch_padding", "not a convolution that keeps the edges, with a norm after the first")
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


def vqgan(c: Config, out: int, attends: Sequence[bool]) -> list[Doc]:
    """The encoder of VQGAN (arXiv:2012.09841): residual convolutions on a grid that halves, from single pixels on.
    attends: on which of the grids there is attention too.
    """
    base, depth, channels = c.count("base_channels"), c.count("num_res_blocks"), c.count("in_channels")
    wide = c.get("channel_multiplier")
    found: list[Doc] = [patches(base, 1, channels=channels) | {"kernel": 3}]
    before = 1
    for i, times in enumerate(wide):
        d = base * times
        also = [attending(d)] if attends[i] else []
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
    where, grids = c.get("attn_resolutions") or (), range(len(c.get("channel_multiplier")))
    found = vqgan(c, c.count("latent_channels"), [c.count("resolution") // 2**i in where for i in grids])
    return [*found, linear(c.count("embed_dim")), linear(c.count("codebook_size"), bias=False)]


VQ: Doc = {
    "embed_dim": 8, "num_embeddings": 16384, "double_latent": False, "latent_channels": 256, "in_channels": 3,
    "base_channels": 128, "channel_multiplier": [1, 1, 2, 2, 4], "num_res_blocks": 2, "out_channels": 3,
    "projection_dim": 2048, "num_hidden_layers": 2, "image_token_embed_dim": 2048,
}  # fmt: skip
"""JanusVQVAEConfig."""


def drawing(v: Config) -> list[Doc]:
    """What turns images into codes, codes into images, and both into vectors of the language model."""
    d, latent, rows = v.count("embed_dim"), v.count("latent_channels"), v.count("num_embeddings")
    out, wide = latent * (2 if v.get("double_latent") else 1), v.count("projection_dim")
    last = [False] * (len(v.get("channel_multiplier")) - 1) + [True]
    codes = {"kind": "vectors", "name": "codes", "n": rows}
    deeper = [linear(wide) for _ in range(v.count("num_hidden_layers") - 1)]
    return [
        held("encode", *vqgan(v, out, last), linear(d), codes, width=1),
        held("decode", linear(latent), *vqgan_decoder(v), width=d),
        held("drawn", codes, linear(wide), *deeper, width=d),
        held("guess", linear(wide), linear(rows), width=v.count("image_token_embed_dim")),
    ]


def vqgan_decoder(v: Config) -> list[Doc]:
    """The other way round, with one block more on every grid; attention on the coarsest."""
    widths = [v.count("base_channels") * times for times in v.get("channel_multiplier")][::-1]
    before, depth = widths[0], v.count("num_res_blocks")
    conv: Doc = {"kind": "conv2d", "bias": True}
    found: list[Doc] = [conv | {"d": before}, resnet(before, False), attending(before), resnet(before, False)]
    for i, d in enumerate(widths):
        also = [attending(d)] if i == 0 else []
        found += [resnet(d, d != before), *also]
        found.append({"kind": "residual", "skip": False, "repeat": depth, "stages": [resnet(d, False), *also]})
        found += [conv | {"d": d}] if i + 1 < len(widths) else []
        before = d
    return [*found, norm(GROUPED), conv | {"d": v.count("out_channels")}]


# JanusVisionConfig
@encoder("vision", "janus", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, num_channels=3,
         image_size=384, patch_size=16, hidden_act="gelu", layer_norm_eps=1e-6, mlp_ratio=4.0, attention_bias=True,
         projection_dim=2048, use_qk_norm=False, depth=2)  # fmt: skip
def janus(c: Config, around: Around) -> list[Doc]:
    """Janus: SigLIP and matrices to the width of the language model; the codes that it draws images with, and what
    makes pictures of them, are held, and reading an image does not use them.
    """
    d, first = c.count("hidden_size"), layernorm(c.number("layer_norm_eps"))
    c.only("use_qk_norm", False)
    c.skip("num_image_tokens", "hidden_dropout_rate")
    attention = mha(c.count("num_attention_heads"), d, qkv_bias=bool(c.get("attention_bias")), out_bias=True)
    one, wide = layer(first, attention, mlp(act(c, "hidden_act"), int(d * c.number("mlp_ratio")))), "projection_dim"
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        {"kind": "positions", "rows": squares(c)},
        layers(c.count("num_hidden_layers"), one),
        norm(first),
        *(linear(c.count(wide), activation=act(c, "hidden_act")) for _ in range(c.count("depth") - 1)),
        linear(c.count(wide)),
        *drawing(part(around, "vq_config", VQ)),
    ]
