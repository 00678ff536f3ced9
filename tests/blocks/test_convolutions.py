"""Convolutions of encoders: parameters, FLOPs and the vectors that leave, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.counts.graph_counts import flops, params
from archsim.counts.images import one_image
from archsim.graph.graph import Block
from archsim.graph.step import Mask, Step
from archsim.importers.hf.towers.mobile import gemma3n, mobilenetv5_300m
from archsim.importers.hf.towers.registry import Around, Config
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower, tokens_of

PATCHES = {"kind": "patches", "d": 8, "size": 4, "bias": False}
ROWS, COLUMNS = 6, 5
IMAGE = one_image((ROWS, COLUMNS))
SEEN = 3 * 16 * 8
"""Weights of the patches."""


def tower(*stages: dict[str, Any], name: str = "vision") -> Tower:
    """An encoder of these stages."""
    return Tower.model_validate({"name": name, "stages": list(stages)})


def graph(*stages: dict[str, Any]) -> Block:
    """The graph of an encoder of images."""
    return lower_tower(tower(PATCHES, *stages), IMAGE)


def counted(*stages: dict[str, Any]) -> tuple[int, int]:
    """Parameters and FLOPs beside those of the patches."""
    found = graph(*stages)
    return int(params(found)) - SEEN, int(flops(found)) - 2 * SEEN * ROWS * COLUMNS


def test_over_patches() -> None:
    """A full convolution of stride 2: nine neighbours, an odd column rounded up."""
    stage = {"kind": "conv2d", "d": 12, "stride": 2, "bias": True, "norm": {"kind": "rmsnorm"}}
    left = 3 * 3
    assert counted(stage) == (9 * 8 * 12 + 12 + 12, 2 * left * 9 * 8 * 12)
    assert tokens_of(tower(PATCHES, stage, stage), IMAGE) == 2 * 2


def test_each_channel_by_itself() -> None:
    """A depthwise convolution keeps the width."""
    assert counted({"kind": "conv2d", "depthwise": True, "kernel": 5}) == (25 * 8, 2 * 30 * 25 * 8)


def test_over_time_and_frequency() -> None:
    """Bins and frames halve; a vector holds all bins of its time, and pieces are convolved by themselves."""
    first = {"kind": "spectrum", "bins": 7, "d": 6, "chunk": 10}
    second = {"kind": "spectrum", "bins": 4, "depthwise": True, "activation": None, "bias": False}
    encoder = tower(first, second, {"kind": "linear", "d": 5, "bias": False}, name="audio")
    step = Step.of(1, 23)
    found = lower_tower(encoder, step)
    frames = 5 + 5 + 2
    assert params(found) == 9 * 6 + 6 + 9 * 6 + 2 * 6 * 5
    assert flops(found) == 2 * (frames * 4 * 9 * 6 + 6 * 2 * 9 * 6 + 6 * 12 * 5)
    assert tokens_of(encoder, step) == 6


def test_a_coarser_grid_for_keys() -> None:
    """Attention of every patch over one for every four."""
    stage = {"kind": "grid_attention", "n_heads": 3, "d_head": 4, "stride": 2, "norm": {"kind": "rmsnorm"}}
    held = 2 * 8 * 12 + 2 * (9 * 8 + 8 + 8 * 4)
    coarse = 3 * 3
    work = 2 * 30 * 2 * 8 * 12 + 2 * coarse * 2 * (9 * 8 + 8 * 4) + 2 * 2 * 30 * coarse * 12
    assert counted(stage) == (held, work)


def test_the_mean_of_a_window_attends_to_it() -> None:
    """One query for each five patches."""
    stage = {"kind": "pooled_windows", "n_heads": 3, "d_head": 4, "tokens": 5, "bias": False}
    pooled = 6
    work = 2 * (2 * 30 * 8 * 12 + pooled * 8 * 12 + pooled * 12 * 12) + 2 * 2 * 30 * 12
    assert counted(stage) == (3 * 8 * 12 + 12 * 12, work)


def test_stages_for_other_inputs_are_held() -> None:
    """Parameters without work, those of repeated layers as often as they repeat."""
    assert counted({"kind": "unused", "stages": [{"kind": "linear", "d": 7}]}) == (8 * 7 + 7, 0)
    repeated = {"kind": "residual", "repeat": 5, "stages": [{"kind": "linear", "d": 8, "bias": False}]}
    assert counted({"kind": "unused", "stages": [repeated]}) == (5 * 64, 0)


def test_residual_blocks_repeat() -> None:
    """With weights of their own."""
    stage = {"kind": "residual", "repeat": 3, "scale": True, "stages": [{"kind": "linear", "d": 8, "bias": False}]}
    assert counted(stage) == (3 * (64 + 8), 3 * 2 * 30 * 64)


def test_convolution_module() -> None:
    """Two matrices, a depthwise convolution with a norm, and a matrix back."""
    mixer = {"kind": "conv_module", "d_inner": 6, "d_conv": 3, "norm": {"kind": "rmsnorm"}}
    stage = {"kind": "layers", "layers": [{"repeat": 2, "mixer": mixer, "norm": {"kind": "rmsnorm"}}]}
    one = 2 * 8 * 6 + 3 * 6 + 6 * 8
    assert counted(stage) == (2 * (one + 6 + 8), 2 * 2 * 30 * one)


def test_blocks_of_queries() -> None:
    """Whole chunks, each query with all keys in and around its chunk."""
    mask = Mask(causal=True, chunk=12, context=24)
    assert Step.of(2, 30).pairs(mask) == 2 * 36 * 24 == Step.of(2, 30, masked=False).pairs(mask)


@pytest.mark.parametrize("broken", [{"kind": "conv2d"}, {"kind": "conv2d", "d": 3, "depthwise": True}])
def test_a_width_or_none(broken: dict[str, Any]) -> None:
    """A convolution has a width of its own or keeps each channel."""
    with pytest.raises(ValueError, match="depthwise"):
        tower(PATCHES, broken)


def test_mobilenet_v5() -> None:
    """As timm 1.0's `mobilenetv5_300m_enc` has: parameters, and what FlopCounterMode counts for 768 x 768 pixels; with
    Gemma 3n's projector as transformers 5.24 builds it.
    """
    encoder = tower(*mobilenetv5_300m())
    found = lower_tower(encoder, one_image((384, 384)))
    assert params(found) == 294_126_912
    assert flops(found) == 871_482_949_632
    assert tokens_of(encoder, one_image((384, 384))) == 256
    defaults = {"architecture": "mobilenetv5_300m_enc", "vocab_size": 128, "hidden_size": 2048}
    whole = tower(*gemma3n(Config({}, defaults), Around(Config({}, {}), 2048)))
    assert params(lower_tower(whole, one_image((384, 384)))) == 298_587_456
