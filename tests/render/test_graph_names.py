"""Captured graphs have the name that their vendor gives them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("hw", "name"), [("h100", "CUDA graphs"), ("mi300x", "HIP graphs")])
def test_memory_of_captured_graphs(archsim: Any, hw: str, name: str) -> None:
    """In `fit` and in `estimate`, and never another vendor's name."""
    for command in ("fit", "estimate"):
        out = archsim(command, "llama3.1-8b", "--hw", hw, "--engine", "vllm", "--devices", "1").out
        assert [word for word in ("CUDA graphs", "HIP graphs") if word in out] == [name]
