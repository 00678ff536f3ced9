"""Several sequences in one step: decodes are one ragged kernel, prompts another, and drafts are verified in decodes."""

from __future__ import annotations

import pytest

from archsim.graph.kernels import kernels_with_edges, traffics
from archsim.graph.step import Seqs, Step
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model
from archsim.timing.kernel_calls import lower_to_calls
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


@pytest.mark.sampled(3)
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


@pytest.mark.sampled(3)
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


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*NAMES, "gpt-oss-20b", "qwen3.5-397b-a17b"])
def test_a_ragged_kernel_of_prompts_lies_between_its_kinds(name: str) -> None:
    """Two prompts in one kernel: no less than the longer one by itself, no more than both apart; one floor."""
    clock = _pricer(name)

    def attention(*parts: tuple[int, int, int]) -> float:
        classes = ("attn_prefill", "mla_prefill", "gdn_prefill")
        return float(sum(p.time.expected for p in clock.price(_step(*parts)).by_class if p.kernel_class in classes))

    long, short = (1, 900, 6000), (1, 200, 0)
    both = attention(long, short)
    assert attention(long) <= both * (1 + 1e-9) <= (attention(long) + attention(short)) * (1 + 2e-9)
    assert both == pytest.approx(attention(short, long), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_decodes_beside_a_chunk_cost_what_they_cost_apart(name: str) -> None:
    """In a mixed step decodes are absorbed and chunks are not: attention of each is that of a step of its own."""
    clock = _pricer(name)
    decodes, chunk = Step.decode(48, 3000), Step.prefill_chunk(700, 2000)
    mixed = clock.price(Step.mixed(decodes, chunk))
    apart = _attention(clock.price(decodes)) + _attention(clock.price(chunk))
    assert _attention(mixed) == pytest.approx(apart, rel=1e-6)


@pytest.mark.slow
def test_a_long_sequence_among_short_ones_is_seen() -> None:
    """One sequence of 32k tokens among 63 short ones takes no less than as many of the mean length."""
    clock = _pricer("llama3.1-8b")
    assert _attention(clock.price(_step((1, 1, 120_000), (7, 1, 100)))) >= 0.999 * _attention(
        clock.price(_step((8, 1, 15_087)))
    )


def test_products_of_a_scan_are_shared_by_tokens() -> None:
    """Decodes beside a prompt count their own part of the delta rule's products, not the prompt's."""
    clock = _pricer("qwen3.5-397b-a17b")
    step = Step.mixed(Step.decode(10, 1000), Step.prefill_chunk(990))
    kernels = [kernel for kernel, _ in kernels_with_edges(clock.graphs.rank(step, clock.plan))]
    moved = traffics(clock.graphs.rank(step, clock.plan), clock.timer.machine.cache_bytes)
    launches = lower_to_calls(kernels, moved, clock.call_rules(step))
    decodes, prompts = (
        next(call for launch in launches for call in launch.calls if call.kernel_class == name)
        for name in ("gdn_decode", "gdn_prefill")
    )
    assert decodes.dims["flops"] == pytest.approx(prompts.dims["flops"] / 99)
