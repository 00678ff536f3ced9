"""What blocks say of themselves is complete, and agrees with the operations that they lower to."""

from __future__ import annotations

import pytest

from archsim.blocks.block import AttentionSpec, BlockSpec, _widths
from archsim.blocks.dispatch import KINDS, InvalidBlock, Spec, load_kind
from archsim.blocks.layer import walk_layers
from archsim.evolution.decisions import TITLES, decision_of
from archsim.spec.catalog import names
from archsim.spec.load import load_model
from archsim.spec.symbolic import specs_in

KNOWN = [(family, kind) for family, kinds in KINDS.items() for kind in kinds]
NAMES = [entry.name for entry in names("models") if entry.path is not None]


@pytest.mark.parametrize(("family", "kind"), KNOWN)
def test_every_kind_is_named(family: str, kind: str) -> None:
    """A kind is spelt for people, and what defines a block is cited; stages of encoders are made of such blocks."""
    about = load_kind(family, kind).names(kind)
    assert "_" not in about.words + about.title
    assert about.paper or family in ("position", "stage")


def classes_in(spec: Spec) -> set[type[Spec]]:
    """The classes of a spec and of all specs inside it."""
    return {type(spec)}.union(*(classes_in(inner) for inner in specs_in(spec)))


@pytest.mark.slow
def test_every_field_belongs_to_a_decision() -> None:
    """No field of a block that some model of the catalog has falls through to a decision without a title."""
    classes = {cls for name in NAMES for layer in walk_layers(load_model(name).layers) for cls in classes_in(layer)}
    lost = {
        (cls.__name__, field)
        for cls in classes
        if cls.decisions
        for field in cls.all_fields
        if decision_of(cls, field) not in TITLES
    }
    assert len(classes) > 20 and not lost


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_stated_widths_are_those_of_the_weights(name: str) -> None:
    """What a class states that tensor parallelism must divide is what the axes of its weights say."""
    for layer in walk_layers(load_model(name).layers):
        for block in (layer.attention, layer.mixer, layer.ffn):
            if block is not None and getattr(block, "kv_from", None) is None:
                assert set(block.widths()) == set(_widths(block))


class Plain(BlockSpec):
    """A block that says nothing of how it runs."""

    kind: str = "plain"


def test_a_block_without_operations_is_refused() -> None:
    """A class without `lower` cannot be used, and one without a form for it is no cross-attention."""
    with pytest.raises(TypeError, match="lower"):
        Plain()  # type: ignore[abstract]
    mla = next(layer.attention for layer in walk_layers(load_model("deepseek-v3").layers))
    assert isinstance(mla, AttentionSpec)
    with pytest.raises(InvalidBlock, match="cross_attention"):
        mla.lower_cross(None, None, None)  # type: ignore[arg-type]
