"""Bytes of weights against the sizes of published checkpoints (tests/facts/file_sizes.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import archsim
from archsim.counts.count import CountResult

FACTS = yaml.safe_load((Path(__file__).parents[1] / "facts" / "file_sizes.yaml").read_text("utf-8"))["files"]
UNITS = {"gb": 10**9, "gib": 2**30}


def counted(fact: dict[str, Any]) -> CountResult:
    """What archsim counts for a file."""
    return archsim.count(
        fact["model"], weights=fact.get("weights"), imatrix=fact.get("imatrix"), parts=fact.get("parts", ())
    )


def half_a_digit(printed: float) -> float:
    """What rounding can have hidden of a printed number."""
    _, _, digits = str(printed).partition(".")
    return 0.5 * 10.0 ** -len(digits)


@pytest.mark.parametrize("fact", FACTS, ids=[f"{f['model']}-{f.get('weights', 'native')}" for f in FACTS])
def test_published_size(fact: dict[str, Any]) -> None:
    """Within 0.1 % of the published size, or what its last digit hides; never off by more than 0.5 %."""
    size = counted(fact).weight_bytes + fact.get("buffers", 0)
    assert isinstance(size, int)
    for key, unit in UNITS.items():
        if key in fact:
            slack = max(fact.get("within", 1e-3) * fact[key], half_a_digit(fact[key]))
            metadata = 0.015e9 / unit  # tokenizer and header
            assert -slack - metadata <= size / unit - fact[key] <= slack
            assert size / unit == pytest.approx(fact[key], rel=max(5e-3, half_a_digit(fact[key]) / fact[key]))


@pytest.mark.parametrize("fact", [f for f in FACTS if "bpw" in f], ids=lambda f: f"{f['model']}-{f['weights']}")
def test_published_bits_per_weight(fact: dict[str, Any]) -> None:
    """To the last digit that llama.cpp prints."""
    found = counted(fact)
    assert 8 * found.weight_bytes / found.total == pytest.approx(fact["bpw"], abs=half_a_digit(fact["bpw"]))
