"""Functions of single elements that a spec names: one that the graph cannot count is refused with those it can."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from archsim.blocks.dispatch import Spec
from archsim.blocks.linear_attention import Lightning
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import RgLru
from archsim.blocks.streams import PerLayerInput
from archsim.graph.builder import ELEMENTWISE_RATE

NORM = Norm(kind="rmsnorm", eps=1e-6)
BLOCKS: list[tuple[type[Spec], dict[str, object]]] = [
    (Lightning, {"n_heads": 2, "d_head": 4}),
    (RgLru, {"d_inner": 4, "n_blocks": 2}),
    (PerLayerInput, {"d": 4, "norm": NORM}),
]


@pytest.mark.parametrize(("block", "fields"), BLOCKS)
@pytest.mark.parametrize("activation", ["a\0b", "silly", "softmax", 3])
def test_unknown_ones_are_refused(block: type[Spec], fields: dict[str, object], activation: object) -> None:
    """They were an internal error once the block was lowered."""
    assert block(**fields)
    with pytest.raises(ValidationError, match="activation"):
        block(**fields, activation=activation)


@pytest.mark.parametrize("activation", ["relu", "relu2", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
def test_known_ones_have_a_rate(activation: str) -> None:
    """What a spec may name, the graph counts."""
    assert Lightning(n_heads=2, d_head=4, activation=activation).activation in ELEMENTWISE_RATE
