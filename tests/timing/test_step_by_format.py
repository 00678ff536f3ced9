"""A step in one weight format after another is timed as a pricer of each format times it."""

from __future__ import annotations

import pytest

import archsim as a
from archsim.counts.formats import choose_formats
from archsim.graph.step import Step
from archsim.spec.parallelism import Plan
from archsim.timing.step_by_format import StepByFormat
from archsim.timing.step_pricer import StepPricer, engine_overheads

FORMATS = ("bf16", "int4", "fp8", "nvfp4", "gguf_q4_k_m", "mxfp4")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "hw"), [("gpt-oss-20b", "rtx-4090"), ("qwen3.5-9b", "mi300x"), ("mixtral-8x7b", "b200-sxm")]
)
@pytest.mark.parametrize("step", [Step.decode(3, 5000), Step.prefill(1, 300)], ids=["decode", "prefill"])
def test_times_are_those_of_a_pricer_of_the_format(name: str, hw: str, step: Step) -> None:
    """To the last bit: seconds, the speed of light and every kernel's part, in whatever order formats come."""
    model, device = a.load_model(name), a.load_hardware(hw)

    def pricer(weights: str) -> StepPricer:
        return StepPricer.of(model, device, choose_formats(model, weights), engine_overheads(), Plan())

    shared = StepByFormat(pricer("int8"), step)
    for weights in (*FORMATS, "int8", "int4"):
        found, alone = shared.price(choose_formats(model, weights)), pricer(weights).price(step)
        assert (found.expected_s, found.ideal_s) == (alone.expected_s, alone.ideal_s)
        assert found.ops == alone.ops and found.by_class == alone.by_class


def test_processors_are_left_to_the_pricer() -> None:
    """What stays in their caches hangs on all that a step reads."""
    device, model = a.load_hardware("epyc-9654"), a.load_model("qwen2.5-0.5b")
    assert not StepByFormat.serves(StepPricer.of(model, device, choose_formats(model), engine_overheads(), Plan()))
