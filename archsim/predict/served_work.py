"""What the devices of an estimate do for one request: the seconds that cost and energy are counted over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archsim.cost.served_cost import ServedWork
from archsim.graph.step import Step
from archsim.predict.estimate import Estimate, pricer_for
from archsim.timing.step_pricer import StepPricer

if TYPE_CHECKING:
    from archsim.serving.steady_state import SteadyState


def served_work(e: Estimate) -> ServedWork:
    """Seconds per request: of the steady state where the estimate has one, else of its single batch."""
    pricer = pricer_for(e)
    if e.serving is not None:
        return _in_steady_state(e, e.serving, pricer)
    load, later = e.workload, max(e.workload.output_len - 1, 0)
    first = [float(x) for x in (e.prefill.expected_s, e.prefill.low_s, e.prefill.high_s)]
    for time in (encoder.time for encoder in e.encoders):
        first = [a + float(b) for a, b in zip(first, (time.expected_s, time.low_s, time.high_s), strict=True)]
    rest = [0.0] * 3 if e.decode is None else [
        later * float(x) for x in (e.decode.expected_s, e.decode.low_s, e.decode.high_s)
    ]  # fmt: skip
    whole, low, high = ((a + b) / load.batch for a, b in zip(first, rest, strict=True))
    answer = load.output_len if e.decode is not None else 0
    read_s = cached_read_s(pricer, load.input_len) if e.decode is not None else 0.0
    return ServedWork(
        e.plan.devices, load.input_len, answer, whole, low, high, first[0] / load.batch / whole, cached_token_s=read_s,
    )  # fmt: skip


def _in_steady_state(e: Estimate, state: SteadyState, pricer: StepPricer) -> ServedWork:
    load, request = e.workload, state.request
    return ServedWork(
        e.plan.devices, load.input_len, load.output_len, request.expected, request.low, request.high,
        state.utilisation, e.cached_input, cached_read_s(pricer, load.input_len, e.cached_input),
    )  # fmt: skip


def cached_read_s(pricer: StepPricer, input_len: int, cached_len: int = 0) -> float:
    """Seconds of the whole system that a prompt takes longer for each token of it which the cache holds: its reading.
    Where none are cached, of a prompt that is cached but for its last token.
    """
    cached = cached_len or input_len - 1
    if cached < 1 or pricer.graphs.model.encoder is not None:
        return 0.0
    replicas, new = pricer.plan.dp, input_len - cached
    after, alone = (pricer.price(Step.prefill_chunk(new, past, replicas)).expected_s for past in (cached, 0))
    return max(float(after) - float(alone), 0.0) / cached / replicas / pricer.plan.pp
