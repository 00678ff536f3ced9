"""`--by part` and `--by op`: both add up to the phase, for every model."""

from __future__ import annotations

import json
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import ArchsimError
from archsim.predict.estimate import Estimate
from archsim.render.pages.breakdown import SHARES, shares
from archsim.spec.catalog import names


def check(e: Estimate) -> None:
    """By part equals by op equals the phase, within rounding."""
    for phase in (e.prefill, e.decode):
        if phase is None:
            continue
        for what in SHARES:
            found = shares(phase, what)
            for key in ("ideal_s", "expected_s"):
                assert sum(row[key] for row in found) == pytest.approx(float(getattr(phase, key)), rel=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("deepseek-v3", {"devices": 8}), ("llama2-70b", {"devices": 4, "pp": 2}), ("llama3-8b", {"engine": "vllm@0.9"}),
        ("llama2-13b", {"devices": 3, "engine": "llamacpp"}), ("switch-base-8", {}), ("bert-base", {}),
    ],
)  # fmt: skip
def test_parts_add_up(model: str, options: dict[str, Any]) -> None:
    """Plans, engines and pipelines too."""
    check(a.estimate(model, "h200", **options))


@pytest.mark.slow
def test_parts_of_the_catalog_add_up() -> None:
    """For every model."""
    for entry in names("models"):
        if entry.path is not None:
            try:
                check(a.estimate(entry.name, "h200"))
            except ArchsimError:
                continue


def test_experts_are_not_attention() -> None:
    """A layer group that is called `moe` holds attention too (DeepSeek-V3: a quarter of a step on 8 H200)."""
    decode = a.estimate("deepseek-v3", "h200", devices=8).decode
    assert decode is not None
    parts = {row["part"]: row["expected_s"] / float(decode.expected_s) for row in shares(decode, "part")}
    assert parts["experts"] < 0.6 and parts["attention projections"] > 0.1


def test_the_object(archsim: Any) -> None:
    """`--by part` adds `parts` to each phase, `--by op` its kernels."""
    for what, key in SHARES.items():
        data = json.loads(archsim("estimate", "llama3-8b", "--hw", "h100", "--by", what, "--json").out)
        for phase in data["phases"].values():
            assert set(phase[key][0]) == {what, "ideal_s", "expected_s"}
            assert sum(row["expected_s"] for row in phase[key]) == pytest.approx(phase["expected_s"])
        assert a.estimate("llama3-8b", "h100", by=what).to_dict() == data
    assert "experts" in archsim("estimate", "mixtral-8x7b", "--hw", "h100", "--by", "part").out


def test_python_refuses_what_there_is_not() -> None:
    """And says what there is."""
    colour: Any = "colour"
    with pytest.raises(ArchsimError, match="broken down by part, op"):
        a.estimate("llama3-8b", "h100", by=colour)
