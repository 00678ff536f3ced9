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


def test_fp8_of_another_checkpoint_says_which_scales_it_means() -> None:
    """In one line: those of the engine's own quantiser, one for each tensor."""
    notes = [
        n.text
        for n in choose_formats(load_model("qwen3-235b-a22b"), "fp8", engine="vllm").assumptions
        if n.code == "A53"
    ]
    assert len(notes) == 1 and "one scale per tensor" in notes[0] and "fp8_block" in notes[0]
    for model, weights in (("qwen3-235b-a22b", "fp8_block"), ("qwen3-235b-a22b", None), ("deepseek-v3", "fp8")):
        assert not [note for note in choose_formats(load_model(model), weights).assumptions if note.code == "A53"]


@pytest.mark.parametrize("device", ["h100", "h200", "h20", "b200", "l40s"])
@pytest.mark.parametrize(("model", "tp"), [("glm-4.5-air", 4), ("qwen3-30b-a3b", 1)])
def test_experts_in_fp8_are_not_slower_than_in_sixteen_bits(model: str, tp: int, device: str) -> None:
    """One measured implementation takes 2.2 times as long as 16 bits on an H100; vLLM's own quantiser cannot use it."""
    times = {}
    for weights in ("fp8", "bf16"):
        found = archsim.estimate(model, device, tp=tp, batch=64, engine="vllm", weights=weights)
        assert found.decode is not None
        times[weights] = float(found.decode.expected_s), float(found.prefill.expected_s)
    assert all(narrow < 1.02 * wide for narrow, wide in zip(times["fp8"], times["bf16"], strict=True))
