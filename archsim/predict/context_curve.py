"""An estimate over context: what the same batch costs as its sequences grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.json_types import JsonObject
from archsim.counts.workload import WorkloadSteps
from archsim.graph.step import Step
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.predict.estimate import Estimate, price_phases, pricer_for
from archsim.spec.equal_caches import with_equal_caches
from archsim.timing.context_prices import prices_over_context
from archsim.timing.duration import Duration
from archsim.timing.step_time import ClassTime, RankTime, StepTime

SHORTEST, USUAL = 128, 131_072
"""The first context of a series, and the last of a model that states no limit."""
MOST = 8
"""Contexts of a series: as many columns as a picture in one line wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtContext:
    """One context: a prompt of so many tokens for each sequence, and the decode step that follows it."""

    context: int
    prefill: StepTime
    decode: StepTime | None
    memory: DeviceMemory

    def to_dict(self) -> JsonObject:
        """Raw numbers."""
        step = self.decode
        return {
            "context": self.context, "ttft_s": float(self.prefill.expected_s),
            "tpot_s": float(step.expected_s) if step else None, "low_s": float(step.low_s) if step else None,
            "high_s": float(step.high_s) if step else None, "kv_cache_bytes": self.memory.kv_cache,
            "needed_bytes": self.memory.needed, "fits": self.memory.fits,
        }  # fmt: skip


def lengths(longest: int | None) -> tuple[int, ...]:
    """Powers of two up to the longest context of a model, which ends them: the last `MOST` of these."""
    last = longest or USUAL
    found = [SHORTEST << i for i in range(last.bit_length()) if SHORTEST << i < last]
    return (*found, last)[-MOST:]


def contexts_of(e: Estimate) -> tuple[int, ...]:
    """`lengths` of the model, or up to the context that was asked for where that is longer."""
    return lengths(max(e.model.max_context or USUAL, int(e.workload.context)))


def decode_times(e: Estimate, contexts: Sequence[int]) -> tuple[StepTime, ...]:
    """The decode step of the estimate's batch and plan at each context; none for an encoder."""
    if e.decode is None:
        return ()
    steps = [_steps(e, context).decode for context in contexts]
    return tuple(time.called("decode") for time in prices_over_context(pricer_for(e), steps))


def decode_seconds(e: Estimate, contexts: Sequence[int]) -> tuple[float, ...]:
    """The expected times of `decode_times`. Layers that differ in what does not go over the cache are timed as one: the
    step of the estimate and what longer caches add to it.
    """
    few, whole = replace(e, model=with_equal_caches(e.model)), e.decode
    if few.model is e.model or whole is None:
        return tuple(float(step.expected_s) for step in decode_times(e, contexts))
    pricer, steps = pricer_for(e), [_steps(e, context).decode for context in contexts]
    known, *others = prices_over_context(pricer_for(few), [WorkloadSteps(e.model, e.workload).decode, *steps])
    if known.total("state_bytes") != whole.total("state_bytes"):  # layers that read the caches of other layers
        return tuple(float(step.expected_s) for step in decode_times(e, contexts))
    found, launches = whole.rank.expected_s, whole.rank.launches

    def seconds(step: Step, time: StepTime) -> float:
        kernels = found + (time.rank.expected_s - known.rank.expected_s)
        rank = RankTime(by_class=(ClassTime("kernels", Duration(kernels, kernels, kernels)),), launches=launches)
        return float(pricer.with_kernels(step, rank).expected_s)

    return tuple(map(seconds, steps, others))


def at(e: Estimate, context: int) -> AtContext:
    """Times and memory of the estimate's batch and plan at one context."""
    pricer, steps = pricer_for(e), _steps(e, context)
    prefill, decode = price_phases(pricer, steps, e.decode is not None)
    memory = EngineMemoryModel(e.tensors, steps.load, pricer.graphs).on(e.plan)
    return AtContext(context=context, prefill=prefill, memory=memory, decode=decode)


def _steps(e: Estimate, context: int) -> WorkloadSteps:
    """As `estimate` runs them for a prompt of `context` tokens and one token of output."""
    return WorkloadSteps(e.model, replace(e.workload, input_len=context, output_len=1))
