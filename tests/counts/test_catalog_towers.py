"""Catalog entries that are the text part of a larger checkpoint say so, alike in `count`, `estimate` and `fit`."""

from __future__ import annotations

import pytest

import archsim as a
from archsim.counts.towers import tower_params

TOWERS = {
    "gemma3n-e2b": {"vision", "audio"}, "gemma3n-e4b": {"vision", "audio"}, "kimi-k2.5": {"vision"},
    "llama4-scout": {"vision"}, "llama4-maverick": {"vision"}, "qwen3.5-397b-a17b": {"vision"},
    "gemma3-4b": {"vision"}, "mistral-small-3.1-24b": {"vision"}, "mistral-small-3.2-24b": {"vision"},
}  # fmt: skip


@pytest.mark.sampled(180)
@pytest.mark.parametrize("name", TOWERS)
def test_checkpoints_with_towers(name: str) -> None:
    """The towers are listed, with null where no size is known, and the text part stands as such."""
    counted, answer = a.count(name), a.estimate(name, "b200")
    towers = counted.to_dict()["params"]["towers"]
    assert set(towers) == TOWERS[name]
    assert answer.to_dict()["params"]["towers"] == towers
    kept = a.fit(name, "b200", devices=answer.plan.devices, tp=answer.plan.tp, suggest=False)
    assert tower_params(kept.model) == towers
    said = " ".join(note.text for note in answer.assumptions)
    held = said.partition("weights in memory include ")[2].partition(", as the engine loads them")[0]
    for tower, size in towers.items():
        assert (f"the {tower} tower (" in held) == (size is not None)
        assert size is not None or f"the {tower} tower, whose size is not known" in said


HELD = {
    "qwen3-vl-8b": 576_388_336, "qwen3-vl-4b": 415_347_712, "qwen3-vl-2b": 406_957_056, "llama4-maverick": 871_932_416,
    "kimi-k2.5": 471_143_920, "qwen3.5-9b": 456_010_480, "gemma3n-e2b": 298_587_456, "gemma3n-e4b": 298_587_456,
    "gemma4-31b": 575_741_232, "gemma4-26b-a4b": 572_792_112, "command-a-218b-a25b": 495_339_760, "inkling": 83_743_232,
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_vision_encoders_hold_what_their_class_does(name: str) -> None:
    """As transformers 5.24 builds them from the checkpoints' `vision_config`, with the projector; Kimi's as published
    sizes add up. The checkpoint of Qwen3.5 9B has 9,653,108,208 numbers: text, encoder and one module that predicts.
    """
    assert tower_params(a.load_model(name))["vision"] == HELD[name]


HEARD = {
    "gemma3n-e2b": 684_694_048, "gemma3n-e4b": 684_694_048, "gemma4-e2b": 307_183_904, "gemma4-e4b": 308_756_768,
    "inkling": 7_870_464,
}  # fmt: skip


@pytest.mark.parametrize("name", HEARD)
def test_encoders_of_sound_hold_what_their_class_does(name: str) -> None:
    """As transformers 5.24 builds them. Gemma 3n's two encoders and its text part make 5.42B and 7.82B; the checkpoints
    have 5.44B and 7.85B, with keys and values of layers that read those of others.
    """
    assert tower_params(a.load_model(name))["audio"] == HEARD[name]
