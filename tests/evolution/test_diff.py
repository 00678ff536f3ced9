"""What sets two architectures apart."""

from __future__ import annotations

from typing import Any

import pytest

from archsim import api
from archsim.evolution.diff import GROUPS

FIGURES = {figure for figures in GROUPS.values() for figure in figures}


def changes(a: str, b: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Decision -> its entry."""
    return {entry["decision"]: entry for entry in api.diff(a, b, **options).to_dict()["changes"]}


def test_groups_say_what_changes() -> None:
    """Each decision stands in every group in which it changes something, and in no other."""
    found = changes("llama2-70b", "deepseek-v3")
    assert found["vocabulary"]["groups"] == ["parameters", "flops"]
    assert found["latent"]["groups"] == ["parameters", "flops", "cache"]
    assert found["format"]["groups"] == ["storage"]
    assert found["rope"]["groups"] == ["wiring"]


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        ("attention.n_kv_heads=4", ["parameters", "flops", "cache"]),
        ("attention.mask={kind: sliding, window: 1024}", ["flops", "cache"]),
        ("head.tied=true", ["parameters"]),
        ("attention.position={kind: rope, theta: 1e6}", ["wiring"]),
    ],
)
def test_one_field(change: str, groups: list[str]) -> None:
    """One changed field is one decision, with its effect."""
    found = list(changes("llama3-8b", "llama3-8b", set=[change]).values())
    assert [entry["groups"] for entry in found] == [groups]


def test_the_size_of_an_effect() -> None:
    """Half the keys and values: parameters and cache by hand."""
    found = changes("llama3-8b", "llama3-8b", set=["attention.n_kv_heads=4"])["sharing"]["delta"]
    assert found["params"] == -32 * 2 * 4096 * 4 * 128
    assert found["kv_bytes"] == -8192 * 32 * 2 * 4 * 128 * 2


def test_what_the_first_cannot_have_is_undone_in_the_second() -> None:
    """A model without experts cannot have shared ones: their effect is what taking them away from the other saves."""
    entry = changes("llama2-70b", "deepseek-v3")["shared_experts"]
    assert entry["measured_in"] == "b"
    assert entry["delta"]["params"] == 58 * 3 * 7168 * 2048


def test_not_the_text() -> None:
    """Two spellings of one architecture do not differ, and names and sources are no difference."""
    found = api.diff("llama3-8b", "llama3-8b", set=["attention.d_head_v=128", "attention.out_bias=false"])
    assert found.same
    assert api.diff("deepseek-v3", "deepseek-r1").same


def test_totals_are_counts() -> None:
    """The whole difference is that of `count`."""
    total = api.diff("gpt2-xl", "llama3-8b").to_dict()["total"]
    assert total["params"] == 8030261248 - 1557611200
    assert total.keys() == FIGURES


def test_an_encoder_and_a_decoder() -> None:
    """They are set apart like any pair: what one of them lacks is a decision too, and the sums hold."""
    found = api.diff("bert-base", "gpt2-xl")
    counts = [api.count(name).to_dict()["params"]["total"] for name in ("bert-base", "gpt2-xl")]
    assert not found.same and found.to_dict()["total"]["params"] == counts[1] - counts[0]
