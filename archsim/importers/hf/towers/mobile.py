"""MobileNetV5, Gemma 3n's encoder of images, whose layers convolve and attend over a grid that gets coarser."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.conformers import embedder
from archsim.importers.hf.towers.parts import norm, patches, rmsnorm
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject
NORM = rmsnorm(1e-6)
"""Of all channels of a patch."""


def conv(d: int | None, kernel: int = 1, stride: int = 1, active: bool = True) -> Doc:
    """A convolution, a norm and an activation; without `d` each channel by itself."""
    width: Doc = {"depthwise": True} if d is None else {"d": d}
    named = {"activation": "gelu"} if active else {}
    return {"kind": "conv2d", "kernel": kernel, "stride": stride, "norm": NORM, **width, **named}


def edge(inner: int, d: int, stride: int = 1) -> Doc:
    """A full convolution to more channels, and a matrix back."""
    return {"kind": "residual", "skip": stride == 1, "stages": [conv(inner, 3, stride), conv(d, active=False)]}


def inverted(inner: int, d: int, start: int = 0, middle: int = 0, stride: int = 1) -> Doc:
    """The universal inverted bottleneck (MobileNetV4, arXiv:2404.10518): depthwise convolutions of these sizes before
    and between two matrices.
    """
    stages = [
        *([conv(None, start, stride if not middle else 1, active=False)] if start else []),
        conv(inner),
        *([conv(None, middle, stride)] if middle else []),
        conv(d, active=False),
    ]
    return {"kind": "residual", "skip": stride == 1, "scale": True, "stages": stages}


def attending(n_heads: int, d_head: int, stride: int) -> Doc:
    """Attention over a coarser grid, in a residual."""
    attention: Doc = {"kind": "grid_attention", "n_heads": n_heads, "d_head": d_head, "stride": stride, "kernel": 3}
    return {"kind": "residual", "scale": True,
            "stages": [norm(NORM), attention | ({"norm": NORM} if stride > 1 else {})]}  # fmt: skip


def alternating(n: int, d: int, n_heads: int, d_head: int, stride: int) -> list[Doc]:
    """`n` times attention and a bottleneck of twice the width."""
    pair = [attending(n_heads, d_head, stride), inverted(2 * d, d)]
    return [{"kind": "residual", "skip": False, "repeat": n, "stages": pair}]


def plain_bottlenecks(d: int, kernels: Sequence[int]) -> list[Doc]:
    """Bottlenecks of four times the width that begin with convolutions of these sizes."""
    return [inverted(4 * d, d, start=kernel) for kernel in kernels]


def mobilenetv5_300m() -> list[Doc]:
    """The 300M encoder, as timm's `mobilenetv5_300m_enc` builds it (`_gen_mobilenet_v5`): what the last two of its
    four stages gave is brought beside each other on the finer grid, and averaged to 16 x 16 vectors of 2,048 numbers.
    """
    return [
        patches(64, 2) | {"kernel": 3},
        norm(NORM, name="stem_norm"),
        edge(256, 128, 2),
        edge(512, 128),
        edge(512, 128),
        inverted(768, 256, 3, 5, 2),
        *plain_bottlenecks(256, list(islice(cycle([5, 3]), 4))),
        inverted(1536, 640, 5, 5, 2),
        *plain_bottlenecks(640, [5] * 7),
        inverted(640, 640),
        *alternating(14, 640, 12, 64, 2),
        inverted(3840, 1280, 5, 5, 2),
        *alternating(19, 1280, 16, 96, 1),
        {"kind": "fuse", "d": 640, "factor": 2},
        {"kind": "residual", "skip": False, "stages": [conv(3840), conv(2048, active=False)]},
        {"kind": "pool", "tokens": 9},
        norm(NORM),
    ]


KNOWN = {"mobilenetv5_300m_enc": mobilenetv5_300m}
"""Names of timm."""


# Gemma3nVisionConfig
@encoder("vision", "gemma3n", architecture="mobilenetv5_300m_enc", vocab_size=128, hidden_size=2048)
def gemma3n(c: Config, around: Around) -> list[Doc]:
    """Gemma 3n: MobileNetV5, then as for sounds."""
    c.skip("do_pooling", "model_args", "vocab_offset", "rms_norm_eps", "num_classes", "label_names")
    c.only("hidden_size", 2048)
    name = c.only("architecture", *KNOWN)
    return [*KNOWN[name](), *embedder(around, c.count("vocab_size"))]
