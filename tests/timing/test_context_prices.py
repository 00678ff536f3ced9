"""Steps over context are the steps one by one, at the cost of little more than one."""

from __future__ import annotations

from typing import Any

import pytest

from archsim import api
from archsim.graph.step import Step
from archsim.predict.estimate import pricer_for
from archsim.timing import context_prices, step_pricer
from archsim.timing.context_prices import prices_over_context

PAST = (1, 127, 2048, 8191, 40_000)

ASKED: dict[str, dict[str, Any]] = {
    "llama3-8b": {"batch": 5, "tp": 2, "dp": 2},
    "gpt-oss-20b": {"engine": "sglang"},
    "llama4-scout": {"tp": 2, "pp": 2, "weights": "fp8"},
    "deepseek-v3.1": {"weights": "fp8"},
    "glm-5": {"weights": "fp8"},
    "phi-3-small-8k": {},
    "mamba-2.8b": {},
    "t5-base": {},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", ASKED)
def test_steps_over_context_are_those_one_by_one(model: str) -> None:
    """Windows, chunks, indexers, latents, pipelines, replicas that are not full: to the last digit."""
    pricer = pricer_for(api.estimate(model, "h100", **ASKED[model]))
    source = 64 if model.startswith("t5") else None
    steps = [Step.decode(5, past + 1, source=source) for past in PAST]
    for found, step in zip(prices_over_context(pricer, steps), steps, strict=True):
        alone = pricer.price(step)
        assert found.to_dict() == alone.to_dict()
        assert found.ops == alone.ops
        assert found.by_class == alone.by_class


def test_only_what_reads_the_cache_is_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph for all contexts; per context, the launches of attention and no others."""
    pricer = pricer_for(api.estimate("llama3-8b", "h100"))
    timed: list[list[int]] = []
    launch_time = step_pricer.launch_time
    monkeypatch.setattr(
        context_prices,
        "launch_time",
        lambda call, costs, times: (timed.append(call.members), launch_time(call, costs, times))[1],
    )
    before = set(pricer.graphs._whole.known)
    steps = [Step.decode(1, past + 1) for past in PAST]
    every = prices_over_context(pricer, steps)
    assert len(set(pricer.graphs._whole.known) - before) == 1
    again = [members for i, members in enumerate(timed) if members in timed[:i]]
    assert len(timed) == len(every[0].rank.fused) + len(again)
    assert len(again) == len(PAST) - 1


def test_other_steps_are_priced_one_by_one() -> None:
    """Steps that differ in more than the cached tokens."""
    pricer = pricer_for(api.estimate("llama3-8b", "h100"))
    steps = [Step.decode(1, 100), Step.decode(2, 200), Step.prefill(1, 300)]
    assert prices_over_context(pricer, steps) == tuple(map(pricer.price, steps))
    assert prices_over_context(pricer, []) == ()
