"""What decisions do to training."""

from __future__ import annotations

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.evolution.figures import TRAINING
from archsim.spec.load import load_hardware, load_model
from archsim.training.one_device import training_needs


@pytest.mark.slow
def test_steps_add_up_to_the_difference_in_training() -> None:
    found = archsim.evolve("gpt2-small", "gpt2-medium", "h100", phase="train", orders=2, context_len=1024)
    data = found.to_dict()
    for name in TRAINING:
        whole = getattr(found.last, name) - getattr(found.first, name)
        assert sum(step.delta[name] or 0 for step in found.steps) == pytest.approx(whole)
        shares = found.attribution.shares if found.attribution else {}
        assert sum(share[name] or 0 for share in shares.values()) == pytest.approx(whole)
    assert set(TRAINING) <= set(data["steps"][0]["delta"])  # type: ignore[index]
    text = str(found)
    assert "Training step" in text and "training on one sequence of 1,024 tokens" in text


def test_figures_of_training_are_those_of_train() -> None:
    model, device = load_model("llama3.2-1b"), load_hardware("h100")
    needs = training_needs(model, 2048, device)
    run = archsim.train("llama3.2-1b", "h100", devices=1, seq_len=2048, global_batch=1, recompute="none")
    assert needs.step_s == run.priced.step.expected_s
    assert needs.bytes == round(run.priced.memory.most.allocated)
    assert needs.flops_per_token == int(run.priced.graph.flops.model_causal) // 2048
    without = training_needs(model, 2048)
    assert without == needs._replace(step_s=None)


def test_differences_in_training_where_they_are_asked_for() -> None:
    found = archsim.diff("gpt2-small", "gpt2-medium", phase="train", context_len=1024)
    totals = found.to_dict()["total"]
    assert totals["train_flops_per_token"] > 0 and totals["train_bytes"] > 0  # type: ignore[index]
    assert "Training" in str(found)
    plain = archsim.diff("gpt2-small", "gpt2-medium", context_len=1024)
    assert "train_bytes" not in plain.to_dict()["total"] and "Training" not in str(plain)  # type: ignore[operator]
    with pytest.raises(UsageError, match="inference or train"):
        archsim.diff("gpt2-small", "gpt2-medium", phase="both")


@pytest.mark.slow
def test_an_encoder_decoder_becomes_a_decoder() -> None:
    found = archsim.evolve("transformer-base", "gpt2-small", "h100", phase="train", orders=0, context_len=512)
    assert all(step.after.train_bytes for step in found.steps)
