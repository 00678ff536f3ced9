"""Serving points and batches in flight: the closed form of `archsim.serving.steady_state`, asked about a row."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from archsim.accuracy.question import Run, device_of, model_of, weights_of
from archsim.accuracy.times import Span, prefill
from archsim.serving.steady_state import Interval, Steady, steady
from archsim.timing.calibration import FORGETTING

LONGER = 2.0
"""Factor from a wait that follows from the queue's length to the upper end of its interval."""


class Served(NamedTuple):
    """Seconds of a steady state: TPOT, and TTFT or, where a queue decides it, why there is none.

    wait: seconds in the queue by Little's law, waiting requests over requests a second; 0 without a queue.
    """

    tpot: Span
    ttft: Span | None
    why: str = ""
    wait: float = 0.0


@lru_cache(maxsize=4096)
def served(run: Run, batch: int, isl: int, osl: int, most: int | None = None) -> Served:
    """The steady state of `batch` requests in flight. most: how many of them have room in the cache."""
    spec, _ = model_of(run.model)
    found = steady(
        spec, device_of(run.device), concurrency=batch, input_len=max(isl, 1), output_len=max(osl, 1), tp=run.tp,
        pp=run.pp, ep=run.ep, dp=run.dp, weights=weights_of(run.model, run.weights), kv_cache_dtype=run.kv,
        engine=run.engine, most_running=most,
    )  # fmt: skip
    ttft = _span(found.ttft) if found.ttft is not None else None
    return Served(_span(found.tpot), ttft, found.refusal or "", _wait(found, osl))


FORGETTING.append(served.cache_clear)


def _span(found: Interval) -> Span:
    return Span(found.seconds, found.low, found.high, found.ideal, found.evidence)


def _wait(found: Steady, osl: int) -> float:
    """Little's law: a queue of W requests that leave at X a second takes W / X."""
    return (found.concurrency - found.running) * osl / found.tokens_per_s


def first_token(run: Run, batch: int, isl: int, osl: int, most: int | None) -> Span:
    """TTFT, also where a queue decides it: then the wait by Little's law before the own prompt, with an interval that
    reaches from no queue at all to twice the wait.
    """
    state = served(run, batch, isl, osl, most)
    if state.ttft is not None:
        return state.ttft
    own = prefill(run, 1, isl)
    return own._replace(expected=own.expected + state.wait, high=own.high + LONGER * state.wait)
