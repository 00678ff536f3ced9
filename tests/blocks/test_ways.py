"""Stages that bring vectors together, and attention that is no part of a layer: parameters and FLOPs by hand."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.counts.graph_counts import flops, params
from archsim.counts.images import one_image
from archsim.counts.towers import tower_depth, tower_tp
from archsim.graph.step import Step
from archsim.spec.tower import lower_tower, tokens_of
from tests.blocks.test_convolutions import IMAGE, PATCHES, counted, tower

SEEN, WIDTH = 6 * 5, 8
"""Patches of the image, and their width."""


def linear(d: int) -> dict[str, Any]:
    """A matrix."""
    return {"kind": "linear", "d": d, "bias": False}


def test_two_encoders_of_one_image() -> None:
    """Each with a size of its own; what they give stands beside each other."""
    low = {"stages": [PATCHES, linear(3)], "side": 4}
    high = {"stages": [{**PATCHES, "size": 2}, {"kind": "merge", "tokens": 4}, linear(5)], "side": 8}
    encoder = tower({"kind": "parallel", "ways": [low, high]})
    found = lower_tower(encoder, one_image((4, 4), 2))
    assert params(found) == 3 * 16 * 8 + 8 * 3 + 3 * 4 * 8 + 4 * 8 * 5
    assert flops(found) == 2 * 2 * (16 * (3 * 16 * 8 + 8 * 3) + 64 * 3 * 4 * 8 + 16 * 4 * 8 * 5)
    assert tokens_of(encoder, one_image((4, 4), 2)) == 2 * 16
    assert encoder.patch_size == 4


def test_shared_stages_run_for_each_way() -> None:
    """Their weights are held once, and a learned number scales the sum."""
    stage = {"kind": "parallel", "join": "add", "gated": True, "ways": [{"stages": [linear(5)]}] * 2,
             "shared": [linear(7)]}  # fmt: skip
    assert counted(stage) == (2 * 8 * 5 + 5 * 7 + 1, 2 * SEEN * (2 * 8 * 5 + 2 * 5 * 7))


@pytest.mark.parametrize(
    ("ways", "join"),
    [([[{"kind": "merge", "tokens": 2}], [linear(16)]], "concat"), ([[linear(3)], [linear(5)]], "add")],
)  # fmt: skip
def test_ways_fit_together(ways: list[list[dict[str, Any]]], join: str) -> None:
    """As many vectors, of one width where they are added up."""
    with pytest.raises(SpecError, match="different"):
        counted({"kind": "parallel", "join": join, "ways": [{"stages": stages} for stages in ways]})


def test_tiles_of_an_image_see_each_other() -> None:
    """Two tiles are one sequence, each filled up to a multiple of eight, which is cut off behind the layers."""
    attention = {"kind": "mha", "n_heads": 2, "d_head": 3, "mask": {"kind": "bidirectional"}}
    stage = {"kind": "together", "n": 2, "multiple": 8, "stages": [{"kind": "attend", "attention": attention}]}
    encoder, step = tower(PATCHES, stage, linear(3)), one_image((6, 5), 4)
    found = flops(lower_tower(encoder, step)) - flops(lower_tower(tower(PATCHES), step))
    rows = 4 * 32  # 30 patches become 32
    assert found == 2 * (rows * 4 * 8 * 6 + 2 * rows * 64 * 6 + 4 * SEEN * 8 * 3)
    assert tokens_of(encoder, step) == 4 * SEEN


def test_the_mean_is_one_vector_more() -> None:
    """Of each image, before the others."""
    assert counted({"kind": "mean_token"}, linear(3)) == (24, 2 * (SEEN + 1) * 24)
    assert tokens_of(tower(PATCHES, {"kind": "mean_token"}), one_image((6, 5), 3)) == 3 * (SEEN + 1)


def test_a_grid_of_another_size() -> None:
    """A convolution behind it sees the new rows and columns."""
    stages = {"kind": "resample", "side": 4}, {"kind": "conv2d", "d": 3, "stride": 2}
    assert counted(*stages) == (9 * 8 * 3, 2 * 2 * 2 * 9 * 8 * 3)


def test_a_gate_of_the_mean() -> None:
    """Two matrices with biases, for one vector of each image."""
    assert counted({"kind": "squeeze_excite", "d": 2}) == (2 * 16 + 2 + 8, 2 * 2 * 16)


def test_a_recurrence() -> None:
    """Four gates, of the input and of what came before, each with a bias."""
    assert counted({"kind": "lstm", "n": 3}) == (3 * 2 * (8 * 32 + 32), 3 * 2 * 2 * SEEN * 8 * 32)


def test_channels_attend_to_channels() -> None:
    """Within each group, over all patches: as many FLOPs for two images as for each."""
    stage = {"kind": "channel_attention", "groups": 2, "bias": False}
    work = 2 * SEEN * (4 * 64 + 2 * 2 * 4 * 4)
    assert counted(stage) == (4 * 64 + 8, work)
    two = lower_tower(tower(PATCHES, stage), one_image((6, 5), 2))
    assert flops(two) == 2 * (work + 2 * SEEN * 3 * 16 * 8)
    with pytest.raises(SpecError, match="multiple"):
        counted({"kind": "channel_attention", "groups": 3})


def test_a_memory_of_neighbours() -> None:
    """Values are convolved too; heads may be wider than what they read."""
    stage = {"kind": "memory_attention", "d": 12, "n_heads": 3, "d_conv": 5}
    held = 3 * (8 * 12 + 12) + 12 * 12 + 12 + 5 * 12
    assert counted(stage) == (held, 2 * SEEN * (3 * 8 * 12 + 12 * 12 + 5 * 12 + 2 * SEEN * 12))


def test_learned_queries_through_two_matrices() -> None:
    """Queries, keys and values, each under a norm."""
    n = 4
    stage = {"kind": "resampler", "n": n, "n_heads": 2, "norm": {"kind": "layernorm"}}
    held = n * 8 + 2 * 16 + 3 * (64 + 64 + 8) + 64 + 8
    work = 2 * (n * 2 * 64 + SEEN * 4 * 64 + n * 64) + 2 * 2 * n * SEEN * 8
    assert counted(stage) == (held, work)
    assert tokens_of(tower(PATCHES, stage), one_image((6, 5), 3)) == 3 * n


def test_filters_for_each_channel() -> None:
    """Two of every channel make a stream twice as wide."""
    stage = {"kind": "conv2d", "depthwise": True, "filters": 2, "kernel": 5, "bias": True}
    assert counted(stage, linear(3)) == (25 * 16 + 16 + 16 * 3, 2 * SEEN * (25 * 16 + 16 * 3))


def test_a_shortcut_of_another_width() -> None:
    """What is added is a matrix of the input."""
    stage = {"kind": "residual", "stages": [linear(5)], "shortcut": [linear(5)]}
    assert counted(stage, linear(3)) == (2 * 40 + 15, 2 * SEEN * (2 * 40 + 15))


def test_samples() -> None:
    """Only where all neighbours are, in groups, with learned lengths of filters."""
    first = {"kind": "conv", "d": 6, "channels": 1, "kernel": 10, "stride": 5, "whole": True, "weight_norm": True}
    second = {"kind": "conv", "d": 4, "kernel": 3, "groups": 2, "bias": False, "activation": None}
    encoder = tower(first, second, {"kind": "merge", "tokens": 3, "stride": 2}, {"kind": "affine"}, name="audio")
    found, left = lower_tower(encoder, Step.of(1, 52)), (52 - 10) // 5 + 1
    assert params(found) == 10 * 6 + 6 + 6 + 3 * 3 * 4 + 2
    assert flops(found) == 2 * left * (10 * 6 + 3 * 3 * 4)
    assert tokens_of(encoder, Step.of(1, 52)) == -(-left // 2)


def test_vectors_split() -> None:
    """The inverse of merging; a fixed table costs work and no parameters."""
    stages = {"kind": "split", "tokens": 4}, {"kind": "linear", "d": 5, "fixed": True}
    assert counted(*stages) == (0, 2 * 4 * SEEN * 2 * 5)
    assert tokens_of(tower(PATCHES, stages[0]), IMAGE) == 4 * SEEN
    with pytest.raises(SpecError, match="multiple"):
        counted({"kind": "split", "tokens": 3})


def test_held_stages_of_another_width() -> None:
    """They would read other vectors than those of the stream."""
    assert counted({"kind": "unused", "width": 11, "stages": [linear(WIDTH)]}) == (88, 0)


def test_zeros_behind_a_vector() -> None:
    """The matrix has rows for them."""
    assert counted(linear(3) | {"zeros": 2}) == (10 * 3, 2 * SEEN * 10 * 3)


def test_layers_inside_a_stage_are_the_encoder_s() -> None:
    """Their number, their width and their heads."""
    layer = {"repeat": 5, "attention": {"kind": "mha", "n_heads": 3, "d_head": 3}, "norm": {"kind": "rmsnorm"}}
    stage = {"kind": "together", "n": 2, "stages": [{"kind": "layers", "layers": [layer]}]}
    assert tower_depth(tower(PATCHES, stage)) == (5, WIDTH)
    assert tower_tp(tower(PATCHES, stage), 2) == 1 and tower_tp(tower(PATCHES, stage), 3) == 3
