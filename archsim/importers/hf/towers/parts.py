"""Pieces that encoders share: a layer of a vision transformer, the usual encoders, projectors."""

from __future__ import annotations

from math import prod

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.parts import ACTIVATIONS, heads
from archsim.importers.hf.parts import glu as glu_block
from archsim.importers.hf.parts import mlp as mlp_block

Doc = JsonObject

SIGMOID = {"quick_gelu": "silu"}
"""x times a sigmoid of x, as SiLU, with a factor inside."""

BOTH_WAYS = {"kind": "bidirectional"}
ROTARY = {"kind": "rope", "theta": 10000}


def act(c: Config, *keys: str) -> str:
    """The name here of an activation."""
    name = c.first(*keys)
    known = ACTIVATIONS | SIGMOID
    if name not in known:
        raise c.error(keys[0], f"unknown activation {name!r}")
    return known[name]


def layernorm(eps: object = 1e-6) -> Doc:
    """A LayerNorm."""
    return {"kind": "layernorm", "eps": eps}


def rmsnorm(eps: object = 1e-6) -> Doc:
    """An RMSNorm."""
    return {"kind": "rmsnorm", "eps": eps}


def layer(norm: Doc, attention: Doc, ffn: Doc, **more: object) -> Doc:
    """One layer that looks both ways."""
    return {"norm": norm, "attention": {"mask": BOTH_WAYS} | attention, "ffn": ffn} | more


def mha(n: int, d: int, **more: object) -> Doc:
    """Heads that share a width evenly."""
    return heads(n, n, d // n, **more)


def mlp(activation: str, d_ff: int, bias: bool = True) -> Doc:
    """Two matrices."""
    return mlp_block(activation, d_ff, bias)


def glu(activation: str, d_ff: int, bias: bool = False) -> Doc:
    """Two matrices and a gate."""
    return glu_block(activation, d_ff, **({"bias": True} if bias else {}))


def layers(n: int, one: Doc) -> Doc:
    """`n` layers, all alike."""
    return {"kind": "layers", "layers": [{"repeat": n} | one]}


def norm(which: Doc, **more: object) -> Doc:
    """A norm as a stage."""
    return {"kind": "norm", "norm": which} | more


def linear(d: int, bias: bool = True, activation: str | None = None) -> Doc:
    """A matrix as a stage."""
    return {"kind": "linear", "d": d, "bias": bias} | ({"activation": activation} if activation else {})


def two_layers(d: int, activation: str, bias: bool = True, inner: int | None = None) -> list[Doc]:
    """A projector of two matrices."""
    return [linear(inner or d, bias, activation), linear(d, bias)]


def held(name: str, *stages: Doc, width: int | None = None) -> Doc:
    """Stages whose weights are held and that do not run, over vectors of this width."""
    return {"kind": "unused", "name": name, "stages": [*stages]} | ({"width": width} if width else {})


def patches(d: int, size: int, *, channels: int = 3, frames: int = 1, bias: bool = True) -> Doc:
    """The patch embedding."""
    found: Doc = {"kind": "patches", "d": d, "size": size, "channels": channels, "bias": bias}
    return found | ({"frames": frames} if frames > 1 else {})


def squares(c: Config) -> int:
    """Patches of an image of the encoder's own size."""
    image, patch = (_sides(c, key) for key in ("image_size", "patch_size"))
    return prod(a // b for a, b in zip(image, patch, strict=True))


def patch_size(c: Config) -> int:
    """The side of a patch."""
    rows, columns = _sides(c, "patch_size")
    if rows != columns:
        raise c.error("patch_size", "patches are not square")
    return rows


def _sides(c: Config, key: str) -> tuple[int, int]:
    value = c.get(key)
    found = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(found) != 2 or not all(isinstance(n, int) and n > 0 for n in found):
        raise c.error(key, "not a size in pixels")
    return found[0], found[1]
