"""Encoders that a config gives by their name in timm, with some of their arguments: FastViT (FastVLM) and the
Perception Encoder (PerceptionLM).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import (
    BOTH_WAYS,
    ROTARY,
    layer,
    layernorm,
    layers,
    mha,
    mlp,
    norm,
    patches,
    two_layers,
)
from archsim.importers.hf.towers.pictures import projector
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject


class FastVit(NamedTuple):
    """Sizes of a FastViT: layers and widths of its steps, from which of them on layers attend."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    attends_from: int


FASTVIT = {
    "fastvit_mci3": FastVit((2, 12, 24, 4, 2), (96, 192, 384, 768, 1536), 3),
    "fastvit_mci4": FastVit((2, 12, 24, 4, 4), (128, 256, 512, 1024, 2048), 3),
}
"""Names of timm."""

KERNEL, HEAD, RATIO = 7, 32, 4
"""FastViT: sides of large convolutions, widths of heads, and of the networks' inner vectors in those of the stream."""


def conv(d: int | None = None, kernel: int = 1, **more: object) -> Doc:
    """A convolution with a bias; without `d` each channel by itself."""
    width: Doc = {"depthwise": True} if d is None else {"d": d}
    return {"kind": "conv2d", "kernel": kernel, "bias": True, **width, **more}


def network(d: int) -> Doc:
    """A large convolution of each channel under a norm, and two matrices."""
    first = conv(None, KERNEL, norm=layernorm(1e-5)) | {"bias": False}
    return {"kind": "residual", "scale": True, "stages": [first, {"kind": "network", "ffn": mlp("gelu", RATIO * d)}]}


def mixing(d: int, attends: bool) -> Doc:
    """Neighbours, or all vectors, mixed. The branches of training are one convolution (arXiv:2303.14189)."""
    if not attends:
        return conv(None, 3)
    attention = mha(d // HEAD, d, qkv_bias=False, out_bias=True, mask=BOTH_WAYS)
    return {"kind": "residual", "scale": True,
            "stages": [norm(layernorm(1e-5)), {"kind": "attend", "attention": attention}]}  # fmt: skip


def fastvit(size: FastVit) -> list[Doc]:
    """FastViT as timm's `FastVit` builds it with `inference_mode`; a grid with one vector for every 32 or 64 pixels."""
    first = size.widths[0]
    found: list[Doc] = [
        patches(first, 2) | {"kernel": 3, "activation": "gelu"},
        conv(None, 3, stride=2, activation="gelu"),
        conv(first, activation="gelu"),
    ]
    for i, (depth, d) in enumerate(zip(size.depths, size.widths, strict=True)):
        attends = i >= size.attends_from
        if i:
            found += [conv(None, KERNEL, stride=2, filters=2, activation="gelu"), conv(d, activation="gelu")]
        found += [conv(None, KERNEL)] if attends else []
        found.append({"kind": "residual", "skip": False, "repeat": depth, "stages": [mixing(d, attends), network(d)]})
    out = 2 * size.widths[-1]
    return [*found, conv(None, 3, filters=2), {"kind": "squeeze_excite", "d": out // 16, "outer": "gelu"}]


def arguments(c: Config) -> Config:
    """What the config says in place of the named encoder's own sizes."""
    c.skip("do_pooling", "label_names", "num_classes", "global_pool", "num_features", "hidden_size", "pretrained_cfg")
    given = c.get("model_args") or {}
    return Config(given if isinstance(given, Mapping) else {}, {}, "vision_config.model_args.")


# TimmWrapperConfig
@encoder("vision", "fast_vlm", architecture="fastvit_mci3", model_args={"inference_mode": True})
def fast_vlm(c: Config, around: Around) -> list[Doc]:
    """FastVLM: FastViTHD and two matrices."""
    arguments(c).only("inference_mode", True)
    return [*fastvit(FASTVIT[c.only("architecture", *FASTVIT)]), *projector(around)]


PERCEPTION: dict[str, Doc] = {
    "vit_pe_core_large_patch14_336": {"patch_size": 14, "embed_dim": 1024, "depth": 24, "num_heads": 16,
                                      "mlp_ratio": 4.0, "img_size": 336, "class_token": True,
                                      "use_post_transformer_norm": True, "init_values": None, "global_pool": "map"},
    "vit_pe_core_gigantic_patch14_448": {"patch_size": 14, "embed_dim": 1536, "depth": 50, "num_heads": 16,
                                         "mlp_ratio": 8960 / 1536, "img_size": 448, "class_token": False,
                                         "use_post_transformer_norm": True, "init_values": None, "global_pool": "map"},
    "vit_pe_lang_large_patch14_448": {"patch_size": 14, "embed_dim": 1024, "depth": 23, "num_heads": 16,
                                      "mlp_ratio": 4.0, "img_size": 448, "class_token": True,
                                      "use_post_transformer_norm": False, "init_values": 0.1},
    "vit_pe_lang_gigantic_patch14_448": {"patch_size": 14, "embed_dim": 1536, "depth": 47, "num_heads": 16,
                                         "mlp_ratio": 8960 / 1536, "img_size": 448, "class_token": False,
                                         "use_post_transformer_norm": False, "init_values": 0.1},
}  # fmt: skip
"""Names of timm and what it builds for them."""


# TimmWrapperConfig
@encoder("vision", "perception_lm")
def perception_lm(c: Config, around: Around) -> list[Doc]:
    """PerceptionLM: the Perception Encoder (arXiv:2504.13181), two matrices, and neighbours averaged."""
    name = c.only("architecture", *PERCEPTION)
    a = arguments(c)
    a = Config(a.data, PERCEPTION[name], a.where)
    a.only("global_pool", "", "avg")
    first, d, side = layernorm(1e-5), a.count("embed_dim"), a.count("patch_size")
    image = a.get("img_size")
    rows = int((image[0] if isinstance(image, list) else image) // side) ** 2
    scaled = {"layer_scale": "channel"} if a.get("init_values") else {}
    kept = bool(a.get("class_token"))
    attention = mha(a.count("num_heads"), d, bias=True, position=ROTARY)
    one = layer(first, attention, mlp("gelu", int(d * a.number("mlp_ratio"))), **scaled)
    ratio = around.config.count("projector_pooling_ratio", default=1)
    return [
        patches(d, side, bias=False),
        *([{"kind": "class_token"}] if kept else []),
        {"kind": "positions", "rows": rows + kept},
        norm(first, name="first_norm"),
        layers(a.count("depth"), one),
        *([norm(first)] if a.get("use_post_transformer_norm") else []),
        *([{"kind": "drop_class"}] if kept else []),
        *two_layers(around.width, "gelu"),
        *([{"kind": "pool", "tokens": ratio**2}] if ratio > 1 else []),
    ]
