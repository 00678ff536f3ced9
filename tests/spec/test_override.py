"""`--set`: where a path begins, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest

from archsim import api
from archsim.base.errors import ArchsimError


def count(model: str, *changes: str) -> dict[str, Any]:
    """`archsim count` with fields set."""
    return api.count(model, set=changes).to_dict()["params"]  # type: ignore[no-any-return]


def test_depth() -> None:
    """Half the layers of a model with one group have half the parameters outside the tables and the last norm."""
    whole, half = count("llama3-8b"), count("llama3-8b", "layers.repeat=16")
    assert half["non_embedding"] - 4096 == (whole["non_embedding"] - 4096) // 2


def test_a_field_of_every_layer() -> None:
    """What belongs to the layer itself, in all groups; four norms of a layer where there were two."""
    more = count("llama3-8b", "layers.placement=pre+post")["total"] - count("llama3-8b")["total"]
    assert more == 32 * 2 * 4096
    both = count("deepseek-v3", "layers.placement=pre+post")["total"] - count("deepseek-v3")["total"]
    assert both == 61 * 2 * 7168


def test_layers_that_lack_the_field_are_left_alone() -> None:
    """The experts' router of a model whose first layers are dense."""
    found = api.diff("deepseek-v3", "deepseek-v3", set=["ffn.router.scale=2.0"]).to_dict()
    assert [change["change"] for change in found["changes"]] != []


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("deepseek-v3", "layers.repeat=4", "2 groups of layers"), ("llama3-8b", "foo.bar=1", "no layer has `foo`"),
        ("llama3-8b", "layers.foo.bar=1", "no layer has `foo`"), ("llama3-8b", "layers.foo=1", "unknown field"),
        ("llama3-8b", "ffn.router.scale=1", "unknown field `router`"), ("llama3-8b", "d_model", "FIELD=VALUE"),
        ("llama3-8b", "layers.repeat=0", "greater than 0"),
        ("bart-base", "encoder.embedding.factor=16", "share one embedding table"),
    ],
)  # fmt: skip
def test_paths_that_fit_nowhere(model: str, change: str, words: str) -> None:
    """Said, with what is missing."""
    with pytest.raises(ArchsimError) as caught:
        count(model, change)
    assert words in str(caught.value.message) + str(caught.value)
