"""Attention of encoders is priced by the sequences that it has, not by those that entered the encoder."""

from __future__ import annotations

from typing import Any

import pytest

import archsim as a
from archsim.counts.images import one_image
from archsim.graph.graph import Block
from archsim.graph.kernels import kernels
from archsim.importers.hf.towers.mobile import mobilenetv5_300m
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower
from archsim.timing.kernel_calls import AttentionSpec, _own_sequences

LAYER = {
    "norm": {"kind": "layernorm"}, "ffn": {"kind": "mlp", "activation": "gelu", "d_ff": 32},
    "attention": {"kind": "mha", "n_heads": 2, "d_head": 16, "mask": {"kind": "bidirectional"}},
}  # fmt: skip


def attention(graph: Block) -> list[AttentionSpec]:
    """What the attention kernels of a graph say."""
    return [AttentionSpec.of(kernel) for kernel in kernels(graph) if kernel.kind == "attention"]


def tower(*stages: dict[str, Any]) -> Tower:
    """An encoder of these stages."""
    return Tower.model_validate({"name": "vision", "stages": list(stages)})


def test_behind_a_convolution_and_a_class_token() -> None:
    """Three images of 8 x 8 patches: sixteen vectors are left of each, and one is added."""
    encoder = tower(
        {"kind": "patches", "d": 32, "size": 4}, {"kind": "conv2d", "d": 32, "stride": 2}, {"kind": "class_token"},
        {"kind": "layers", "layers": [LAYER]},
    )  # fmt: skip
    (spec,) = attention(lower_tower(encoder, one_image((8, 8), 3)))
    assert spec.encodes
    assert _own_sequences(spec)[:3] == (3, 17, 0)


def test_keys_of_a_coarser_grid() -> None:
    """MobileNetV5 at 768 x 768: 48 x 48 queries over 24 x 24 keys, and 24 x 24 over as many."""
    specs = attention(lower_tower(tower(*mobilenetv5_300m()), one_image((384, 384), 2)))
    found = {(int(s.batch), int(s.new), int(s.new + s.past)) for s in map(_own_sequences, specs)}
    assert all(spec.encodes for spec in specs)
    assert found == {(2, 48 * 48, 24 * 24), (2, 24 * 24, 24 * 24)}


def test_windows_are_sequences() -> None:
    """Squares of sixteen patches."""
    mask = {"kind": "chunked", "window": 16, "bidirectional": True}
    one = LAYER | {"attention": LAYER["attention"] | {"mask": mask}}  # type: ignore[operator]
    encoder = tower({"kind": "patches", "d": 32, "size": 4}, {"kind": "layers", "layers": [one]})
    (spec,) = attention(lower_tower(encoder, one_image((8, 8))))
    assert _own_sequences(spec)[:3] == (4, 16, 0)


def test_an_image_that_is_made_smaller_first_costs_as_one_that_came_small() -> None:
    """The same layers over as many vectors take as long, whatever stood before them."""
    layers = {"kind": "layers", "layers": [LAYER | {"repeat": 12}]}
    wide = tower({"kind": "patches", "d": 32, "size": 4}, {"kind": "pool", "tokens": 64}, layers)
    narrow = tower({"kind": "patches", "d": 32, "size": 4}, layers)
    steps = (wide, one_image((256, 256))), (narrow, one_image((32, 32)))
    first, second = (attention(lower_tower(t, step))[0] for t, step in steps)
    assert _own_sequences(first) == _own_sequences(second)


def test_gemma_3n_looks_at_an_image_in_milliseconds() -> None:
    """Its attention was taken for pieces of one sequence of all 147,456 patches: 44 ms on an H100."""
    answer = a.estimate("gemma3n-e4b", "h100", input_len=64, image="768x768").to_dict()
    encoder = answer["phases"]["encoder"]
    assert encoder["tokens"] == 256
    assert encoder["expected_s"] < 10 * encoder["ideal_s"]


@pytest.mark.parametrize("size", ["336x336", "1344x1344"])
def test_tiles_are_pictures(size: str) -> None:
    """The encoder does as much for each of seventeen pictures as for one alone."""
    counted = a.count("llama4-scout", image=size).to_dict()["images"]
    assert counted["pictures"] == {"336x336": 1, "1344x1344": 17}[size]
    alone = a.count("llama4-scout", image="336x336").to_dict()["images"]
    assert counted["flops"] == counted["pictures"] * alone["flops"]
