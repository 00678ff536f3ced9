"""Convolutions along time: sequences that go on by a token have a kernel of their own beside a prompt."""

from __future__ import annotations

import pytest

from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.graph.step import Step
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.step_pricer import StepPricer, engine_overheads

MODELS = ("nemotron-h-47b", "qwen3.5-4b", "mamba2-2.7b")


def seconds(name: str, step: Step) -> dict[str, float]:
    """Expected seconds of convolutions by kernel class, on a device that nothing was fitted on."""
    model, hardware = load_model(name), load_hardware("rtx-5070-ti")
    formats = choose_formats(model, None, None, engine="vllm")
    plan = Plan(tp=1, engine=choose_engine("vllm").rules.name)
    priced = StepPricer.of(model, hardware, formats, engine_overheads("vllm"), plan).price(step)
    return {c.kernel_class: float(c.time.expected) for c in priced.by_class if c.kernel_class.startswith("conv1d")}


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_both_takes_what_decodes_and_prompts_take(name: str) -> None:
    decodes, prompt = Step.decode(128, 1024), Step.prefill(1, 1024)
    both, one, other = (seconds(name, step) for step in (Step.mixed(decodes, prompt), decodes, prompt))
    assert set(one) == {"conv1d_decode"} and set(other) == {"conv1d_prefill"}
    assert both == pytest.approx(one | other, rel=0.02)
