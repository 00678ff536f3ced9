"""Tables of experts hold the whole layer: what stands between its products is not launched beside them."""

from __future__ import annotations

import pytest

from archsim.counts.formats import choose_formats
from archsim.graph.kernels import kernels_with_edges
from archsim.graph.step import Step
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.kernel_calls import FusedCall, lower_to_calls
from archsim.timing.step_pricer import StepPricer, engine_overheads


def calls_of(name: str) -> list[FusedCall]:
    model = load_model(name)
    pricer = StepPricer.of(model, load_hardware("h100"), choose_formats(model), engine_overheads("vllm"), Plan())
    step = Step.decode(32, 1024)
    kernels = [kernel for kernel, _ in kernels_with_edges(pricer.graphs.rank(step, Plan()))]
    return lower_to_calls(kernels, [cost.traffic for cost in pricer._roofline(step).costs], pricer.call_rules(step))


@pytest.mark.parametrize("name", ["gpt-oss-120b", "deepseek-v3", "mixtral-8x7b"])
def test_experts_activate_in_their_kernel(name: str) -> None:
    """Beside it only the selection of experts is left, a few numbers a token."""
    found = [(each, call.passes) for call in calls_of(name) for each in call.main if each.kernel_class == "moe"]
    assert found
    for moe, passes in found:
        for each in passes:
            assert each.dims["read_bytes"] < moe.dims["m"] * moe.dims["topk"] * moe.dims["inter"]


def test_dense_layers_still_launch_theirs() -> None:
    passes = [each for call in calls_of("llama3-8b") for each in call.passes]
    assert any(each.dims["read_bytes"] == 2 * each.dims["write_bytes"] == 32 * 2 * 14336 * 2 for each in passes)
