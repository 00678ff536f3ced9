"""A word for a format means the scheme that the checkpoint is stored in."""

from __future__ import annotations

import pytest

import archsim
from archsim.counts.formats import choose_formats, own_scheme
from archsim.spec.load import load_model


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["generic", "vllm", "sglang"])
def test_fp8_of_a_block_scaled_checkpoint_is_its_blocks(engine: str) -> None:
    """The same weights and times as the checkpoint's own, in one line; never another kernel in silence."""
    model = load_model("deepseek-v3")
    asked, own = choose_formats(model, "fp8", engine=engine), choose_formats(model, engine=engine)
    assert (asked.name, asked.weights) == (own.name, own.weights) == ("fp8_block", own.weights)
    assert [note.code for note in asked.assumptions].count("A35") == 1
    times = [
        archsim.estimate("deepseek-v3", "h200", devices=8, batch=64, engine=engine, weights=weights).decode
        for weights in ("fp8", None)
    ]
    assert times[0] is not None and times[1] is not None
    assert times[0].expected_s == times[1].expected_s


def test_other_words_and_other_checkpoints_mean_what_they_say() -> None:
    assert own_scheme(load_model("deepseek-v3"), None) is None
    assert own_scheme(load_model("deepseek-v3"), "int4") is None
    assert own_scheme(load_model("deepseek-v3"), "fp8_block") is None
    assert own_scheme(load_model("llama3.1-8b"), "fp8") is None
    assert choose_formats(load_model("llama3.1-8b"), "fp8").name == "fp8"
