"""A vision-language model that is answered for by its text part says so where no page does."""

from __future__ import annotations

from typing import Any

import pytest

ASKED = (
    ("count",), ("estimate", "--hw", "h100"), ("fit", "--hw", "h100"), ("train", "--hw", "h100", "--method", "lora"),
    ("simulate", "--hw", "h100", "--rate", "1", "--requests", "20"),
)  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked[0])
def test_one_line_where_only_the_figure_is_asked_for(asked: tuple[str, ...], archsim: Any) -> None:
    """With `-q` on standard error; nothing for a model that the catalog holds by that name."""
    command, *options = asked
    said = archsim(command, "Qwen/Qwen2.5-VL-7B-Instruct", *options, "-q")
    assert said.err.count("is counted as qwen2.5-7b, without its vision tower") == 1
    assert "counted as" not in said.out and said.out.strip()
    assert "counted as" not in archsim(command, "qwen2.5-7b", *options, "-q").err


def test_a_model_whose_tower_is_known(archsim: Any) -> None:
    """Nothing is left out of it."""
    assert archsim("estimate", "Qwen/Qwen3-VL-8B-Instruct", "--hw", "h100", "-q").err == ""
