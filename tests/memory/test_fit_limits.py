"""What `fit` refuses, and where memory sets no limit."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError


@pytest.mark.parametrize(
    "option", [{"tp": 0}, {"max_loras": -1}, {"n_gpu_layers": -1}, {"n_cpu_moe": -1}, {"host_bandwidth": -1.0}]
)
def test_numbers_that_mean_nothing_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        archsim.fit("llama3.1-8b", "h100", **option)


def test_a_windowed_cache_sets_no_limit() -> None:
    found = archsim.fit("mistral-7b-v0.1", "h100", engine="vllm", suggest=False)
    assert found.fits
    assert found.longest is None
    assert found.to_dict()["max_model_len"] is None


def test_an_estimate_says_what_it_assumes_of_the_engine() -> None:
    notes = {n.code: n.text for n in archsim.estimate("llama3.1-8b", "h100", engine="autoawq").assumptions}
    assert {"A09", "A20", "A21"} <= set(notes)
    assert "its own rules" not in notes["A09"]
