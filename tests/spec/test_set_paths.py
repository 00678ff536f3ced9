"""`--set` makes the mappings that it needs, and knows other names of fields."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.base.errors import ArchsimError
from archsim.spec.load import load_model


def test_a_mask_where_there_is_none(archsim: Any) -> None:
    """A nested field gives the mapping that holds it; both spellings are the same model."""
    changes = ["attention.mask.kind=sliding", "attention.mask.window=4096"]
    assert load_model("llama3-8b", changes) == load_model("llama3-8b", ["attention.mask={kind: sliding, window: 4096}"])
    assert archsim("count", "llama3-8b", "--set", changes[0], "--set", changes[1], "-q").code == 0
    alone = archsim("count", "llama3-8b", "--set", changes[0])
    assert alone.code == 3 and "needs `window`" in alone.err
    hint = next(line for line in alone.err.splitlines() if "a further `--set`" in line)
    words = hint.partition("`--set attention")[2].removesuffix("`")
    assert archsim("count", "llama3-8b", *f"--set attention{words}".split(), "-q").code == 0


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("n_layers=40", "layers.repeat=40"), ("num_hidden_layers=3", "layers.repeat=3"),
        ("num_key_value_heads=4", "attention.n_kv_heads=4"), ("intermediate_size=8192", "ffn.d_ff=8192"),
    ],
)  # fmt: skip
def test_other_names_of_fields(change: str, same: str) -> None:
    """Names of config.json mean the spec's fields."""
    assert load_model("llama3-8b", [change]) == load_model("llama3-8b", [same])
    assert load_model("llama3-8b", [change]) != load_model("llama3-8b")


@pytest.mark.parametrize("change", ["attention.nothing.x=1", "attention.n_heads.x=1", "norm.eps.x=3", "nothing.x=1"])
def test_paths_that_lead_nowhere(change: str) -> None:
    """They are refused, as before."""
    with pytest.raises(ArchsimError):
        load_model("llama3-8b", [change])


@pytest.mark.parametrize(
    ("value", "label"),
    [("1,2,4,8", "one number belongs here"), ("14,336", "write 14336"), ("1,000,000", "write 1000000")],
)
def test_several_numbers_are_not_joined(value: str, label: str, archsim: Any) -> None:
    """Commas between thousands are left out; between several values they are not."""
    found = archsim("count", "llama3-8b", "--set", f"ffn.d_ff={value}")
    assert found.code == 3 and label in found.err
