"""Several sequences in one step: decodes are one ragged kernel, prompts another, and drafts are verified in decodes."""

from __future__ import annotations

import pytest

from archsim.graph.step import Seqs, Step
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model
from archsim.timing.step_pricer import StepPricer
from archsim.timing.step_time import StepTime

NAMES = ("llama3.1-8b", "qwen3-30b-a3b", "deepseek-v3")


def _pricer(name: str) -> StepPricer:
    answer = estimate(load_model(name), load_hardware("h200-sxm"), devices=8)
    return StepPricer.of(answer.model, answer.hardware, answer.formats, answer.overheads, answer.plan)


def _attention(time: StepTime) -> float:
    """Seconds of all attention kernels."""
    return float(sum(part.time.expected for part in time.by_class if part.kernel_class.startswith(("attn", "mla"))))


def _step(*parts: tuple[int, int, int]) -> Step:
    return Step(seqs=tuple(Seqs(*part, absorbed=part[1] <= 8) for part in parts))


@pytest.mark.parametrize("name", NAMES)
def test_a_ragged_decode_lies_between_the_mean_and_separate_kernels(name: str) -> None:
    """No less than as many sequences of the mean length, no more than one kernel for each length."""
    clock = _pricer(name)
    ragged = _attention(clock.price(_step((32, 1, 1000), (32, 1, 9000))))
    mean = _attention(clock.price(_step((64, 1, 5000))))
    apart = sum(_attention(clock.price(_step(part))) for part in ((32, 1, 1000), (32, 1, 9000)))
    assert mean * (1 - 0.02) <= ragged <= apart * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_equal_sequences_are_one_kernel_however_they_are_written(name: str) -> None:
    """Two groups of the same length are one batch."""
    clock = _pricer(name)
    together, split = clock.price(_step((64, 1, 4000))), clock.price(_step((16, 1, 4000), (48, 1, 4000)))
    assert split.expected_s == pytest.approx(together.expected_s, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("drafts", [2, 4, 8])
def test_verifying_costs_between_one_and_as_many_decodes(name: str, drafts: int) -> None:
    """A few new tokens after a long past read the cache once."""
    clock = _pricer(name)
    one, many = clock.price(_step((64, 1, 4000))), clock.price(_step((64, drafts, 4000)))
    assert _attention(one) * (1 - 1e-9) <= _attention(many) <= drafts * _attention(one)
    assert {part.kernel_class for part in many.by_class} == {part.kernel_class for part in one.by_class}


@pytest.mark.parametrize("name", NAMES)
def test_chunks_of_one_step_are_one_kernel(name: str) -> None:
    """Two chunks of prompts cost no more together than apart."""
    clock = _pricer(name)
    together = _attention(clock.price(_step((1, 512, 0), (1, 1536, 0))))
    apart = _attention(clock.price(_step((1, 512, 0)))) + _attention(clock.price(_step((1, 1536, 0))))
    assert together <= apart * (1 + 1e-9)
