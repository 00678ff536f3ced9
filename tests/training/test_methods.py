"""LoRA and QLoRA: what is trained, what it takes, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import InvalidPlan, UsageError
from archsim.spec.stack import load_stack
from archsim.training.methods import tuning_of


def answer(**options: Any) -> Any:
    return archsim.train("qwen3-0.6b", "rtx-4090", seq_len=512, global_batch=2, recompute="none", **options)


@pytest.mark.slow
def test_adapters_are_trained_alone() -> None:
    full, lora, qlora = (answer(method=method) for method in ("full", "lora", "qlora"))
    assert full.params[2] == full.params[0] == lora.params[0]
    # Per layer: q, k, v, o, gate, up and down, each with rank x (inputs + outputs).
    widths = (1024 + 2048, 1024 + 1024, 1024 + 1024, 2048 + 1024, 1024 + 3072, 1024 + 3072, 3072 + 1024)
    assert lora.params[2] == qlora.params[2] == 28 * 16 * sum(widths)
    memory = [each.priced.memory.most for each in (full, lora, qlora)]
    assert memory[0].states.gradients > 30 * memory[1].states.gradients
    assert memory[1].states.optimizer == 2 * memory[1].states.gradients == 4 * lora.params[2]
    assert memory[2].states.weights < 0.6 * memory[1].states.weights


def test_qlora_dequantises_at_every_use() -> None:
    lora, qlora = (answer(method=method).priced.step for method in ("lora", "qlora"))
    assert qlora.parts.forward_s > lora.parts.forward_s and qlora.parts.backward_s > lora.parts.backward_s


def test_rank_and_targets() -> None:
    one = answer(method="lora", rank=4, targets="q,v")
    assert one.params[2] == 28 * 4 * (1024 + 2048 + 1024 + 1024)
    assert not any(note.code == "A46" for note in one.assumptions)
    assert any(note.code == "A46" for note in answer(method="lora").assumptions)
    with pytest.raises(UsageError, match="no product `nothing`"):
        answer(method="lora", targets="nothing")
    with pytest.raises(UsageError, match="of adapters"):
        answer(method="full", rank=8)
    with pytest.raises(UsageError, match="no method named"):
        answer(method="dora")


def test_a_recipe_brings_its_method() -> None:
    stack = load_stack("generic")
    assert tuning_of(stack, recipe="qlora").method == "qlora"
    assert tuning_of(stack, rank=8).recipe.name == "lora"
    assert tuning_of(stack, method="qlora").recipe.name == "qlora-nf4"
    warned = tuning_of(stack, method="full", recipe="lora")
    assert warned.adapters is None and [note.code for note in warned.warnings] == ["W14"]


def test_whole_experts_take_tensor_parallel_ranks_first() -> None:
    with pytest.raises(InvalidPlan, match="multiple of tp 4"):
        archsim.train("mixtral-8x7b", "h200", tp=4, dp=4, ep=2, etp=1)
