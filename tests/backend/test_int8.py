"""Linear layers in int8: close to the module in fp32, with weights of a quarter of the size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.compile.parts import Shape
from archsim.backend.compile.program import Program
from archsim.backend.int8 import Int8Packed
from archsim.backend.module import build
from archsim.backend.packed import Packed
from archsim.counts.formats import choose_formats
from archsim.counts.graph_counts import weight_bytes
from archsim.graph.step import Step
from archsim.measure.cpu_layers import LAYERS, Layer, model_of
from archsim.spec.lower import lower

KINDS = ("gated", "learned", "windowed")


def small(kind: str) -> Layer:
    """The first layer of a kind, narrower."""
    layer = next(layer for layer in LAYERS if layer.kind == kind)
    sizes = {"d": 256, "ff": 512, "heads": 4, "kv": 2 if kind == "gated" else 4, "dim": 64}
    return layer._replace(sizes=tuple((key, sizes.get(key, value)) for key, value in layer.sizes))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_products_in_int8(kind: str) -> None:
    """Logits are those of fp32 but for rounding, again and again; weights take what the format says."""
    model = model_of(small(kind), 2, "int8")
    net = build(model, "cpu", torch.float32).requires_grad_(False)
    net.fused = net.fast = True
    whole = sum(x.nbytes for x in net.parameters())
    wide = Program(net, Shape(2, 8, 0), packed=Packed(net))
    expected = wide()
    packed = Int8Packed(net, release=True)
    narrow = Program(net, Shape(2, 8, 0), packed=packed)
    narrow.tokens.copy_(wide.tokens)
    found = narrow()
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()
    assert not torch.equal(found, expected)
    assert torch.equal(narrow(), found)
    formats = choose_formats(model, "int8_dynamic", engine="torch")
    assert whole - packed.saved_bytes == weight_bytes(formats.apply(lower(model, Step.prefill(1, 1))))
    others = weight_bytes(formats.apply(lower(model, Step.prefill(1, 1))), where=lambda x: x.role != "linear")
    assert sum(x.nbytes for x in net.parameters()) == others


@torch.no_grad()
def test_repetitions_are_quantised_once() -> None:
    """A second program of other shape takes the products that are there."""
    net = build(model_of(small("gated"), 3, "int8"), "cpu", torch.float32).requires_grad_(False)
    net.fused = net.fast = True
    packed = Int8Packed(net, release=True)
    Program(net, Shape(1, 4, 0), packed=packed)()
    before = packed.saved_bytes
    Program(net, Shape(3, 1, 5), packed=packed)()
    assert packed.saved_bytes == before > 0


@torch.no_grad()
def test_products_meet_rows_in_one_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's one token too, which is cut out of its sequence: torch multiplies by a loop in 16 bits where a slice
    keeps the strides of what it was cut from.
    """
    seen: list[tuple[int, ...]] = []
    whole = functional.linear

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append(x.stride())
        return whole(x, weight, bias)

    net = build(model_of(small("gated"), 1, "bf16"), "cpu", torch.bfloat16).requires_grad_(False)
    net.fused = net.fast = True
    program = Program(net, Shape(1, 16, 0), packed=Packed(net))
    monkeypatch.setattr(functional, "linear", linear)
    program()
    assert len(seen) == 5
    assert {len(stride) for stride in seen} == {2}
