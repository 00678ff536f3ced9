"""Times of a run: prefill, decode, the steady state and what they compose to, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import exp, hypot, log
from typing import NamedTuple

from archsim.accuracy.question import Run, device_of, model_of, weights_of
from archsim.base.errors import UsageError
from archsim.predict.estimate import Estimate, estimate
from archsim.serving.steady_state import steady
from archsim.timing.calibration import Store, default_store
from archsim.timing.duration import Duration, Evidence, weakest
from archsim.timing.step_time import StepTime

REMEMBERED = 4096
"""Estimates that are kept."""

LONGER = 2.0
"""Factor from a wait that follows from the queue's length to the upper end of its interval."""


class Prediction(NamedTuple):
    """What is predicted of a run, in the unit of its metric: seconds, a rate or bytes.

    low, high: ends of the 80 % interval. naive: by the roofline at datasheet peaks.
    """

    expected: float
    low: float
    high: float
    naive: float
    evidence: Evidence = "datasheet"
    bound: str = ""

    @classmethod
    def of(cls, time: Duration, bound: str = "") -> Prediction:
        """A time in seconds; the speed of light is what a naive roofline says."""
        return cls(time.expected, time.low, time.high, time.ideal, time.evidence, bound)

    @classmethod
    def of_step(cls, step: StepTime) -> Prediction:
        """The time of one step."""
        return cls.of(step.duration, step.bound)

    def inverse(self, amount: float = 1.0) -> Prediction:
        """amount / this: a rate of a time."""
        return self._replace(
            expected=amount / self.expected, low=amount / self.high, high=amount / self.low,
            naive=amount / self.naive,
        )  # fmt: skip

    def scaled(self, factor: float) -> Prediction:
        """The same in another unit."""
        return self._replace(
            expected=self.expected * factor, low=self.low * factor, high=self.high * factor,
            naive=self.naive * factor,
        )  # fmt: skip


def compose(make: Callable[..., float], *parts: Prediction) -> Prediction:
    """A figure that grows with every part: its ends are those of all parts together (errors go together)."""
    expected, low, high, naive = (make(*(getattr(part, name) for part in parts)) for name in Prediction._fields[:4])
    main = max(parts, key=lambda part: part.expected)
    evidence = weakest(part.evidence for part in parts)
    return Prediction(expected, min(low, high, expected), max(low, high, expected), naive, evidence, main.bound)


class Served(NamedTuple):
    """Seconds of a steady state: TPOT, and TTFT or the reason why there is none.

    wait: seconds in the queue by Little's law, waiting requests over requests a second; 0 without a queue.
    """

    tpot: Prediction
    ttft: Prediction | None
    why: str = ""
    wait: float = 0.0


class RunTimes:
    """Times of runs priced with one calibration store; what one row asks for is kept for the others."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or default_store()
        self._estimate = lru_cache(maxsize=REMEMBERED)(self._new_estimate)
        self.served = lru_cache(maxsize=REMEMBERED)(self._served)

    def estimate(self, run: Run, batch: int, isl: int, osl: int) -> Estimate:
        """The estimate of a run's model, device, plan and formats for a batch of equal requests."""
        asked = replace(
            run, devices=1, metric="", definition="", isl=None, osl=None, batch=None, memory_share=None,
            longest=None, total_gib=None, static=False, notes=(),
        )  # fmt: skip
        return self._estimate(asked, max(batch, 1), max(isl, 1), max(osl, 1))

    def _new_estimate(self, run: Run, batch: int, isl: int, osl: int) -> Estimate:
        spec, _ = model_of(run.model)
        return estimate(
            spec, device_of(run.device), devices=run.tp * run.pp * run.dp, tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp,
            batch=batch, input_len=isl, output_len=osl, weights=weights_of(run.model, run.weights),
            kv_cache_dtype=run.kv, engine=run.engine, store=self.store,
        )  # fmt: skip

    def prefill(self, run: Run, batch: int, isl: int) -> Prediction:
        """One forward pass over the prompts of a whole batch."""
        return Prediction.of_step(self.estimate(run, batch, isl, 1).prefill)

    def decode(self, run: Run, batch: int, isl: int, osl: int) -> Prediction:
        """One decode step at the mean context, prompt and half the answer."""
        phase = self.estimate(run, batch, isl, osl).decode
        if phase is None:
            raise UsageError(f"{run.model} is an encoder: it has no decode step")
        return Prediction.of_step(phase)

    def _served(self, run: Run, batch: int, isl: int, osl: int, most: int | None = None) -> Served:
        """The steady state of `batch` requests in flight. most: how many of them have room in the cache."""
        spec, _ = model_of(run.model)
        found = steady(
            spec, device_of(run.device), concurrency=batch, input_len=max(isl, 1), output_len=max(osl, 1),
            tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp, weights=weights_of(run.model, run.weights),
            kv_cache_dtype=run.kv, engine=run.engine, most_running=most, store=self.store,
            one_length=run.one_length, flags=run.flags,
        )  # fmt: skip
        # Little's law: a queue of W requests that leave at X a second takes W / X
        wait = (found.concurrency - found.running) * osl / found.tokens_per_s
        ttft = Prediction.of(found.ttft) if found.ttft is not None else None
        return Served(Prediction.of(found.tpot), ttft, found.refusal or "", wait)

    def first_token(self, run: Run, batch: int, isl: int, osl: int, most: int | None) -> Prediction:
        """TTFT, also near saturation: then the wait by Little's law before the own prompt, with an interval that
        reaches from no queue at all to twice the wait.
        """
        state = self.served(run, batch, isl, osl, most)
        if state.ttft is not None:
            return state.ttft
        own = self.prefill(run, 1, isl)
        return own._replace(expected=own.expected + state.wait, high=own.high + LONGER * state.wait)


# ---------------------------------------------------------------------- whole runs
KINDS: Mapping[str, str] = {
    "out_system": "throughput", "gen_over_wall": "batches", "all_over_wall": "batches", "peak_mem": "peak_mem",
}  # fmt: skip
"""By the name of a definition, what it is fitted with: `throughput` of servers, whose batches change with arrivals, and
of `batches` that run from beginning to end.
"""


def widened(span: Prediction, definition: str, store: Store) -> Prediction:
    """The span with what whole runs of its definition are off."""
    found = store.engines.get("composition", {}).get(KINDS.get(definition, ""))
    return span if found is None else joined(span, *found["interval"])


def joined(span: Prediction, below: float, above: float) -> Prediction:
    """The span with an independent error from `below` to `above`, in log."""
    low = hypot(log(span.expected / span.low), below)
    high = hypot(log(span.high / span.expected), above)
    return span._replace(low=span.expected * exp(-low), high=span.expected * exp(high))
