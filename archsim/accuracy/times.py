"""Times of a run from the estimator: prefill, decode and what they compose to, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from archsim.accuracy.question import Run, device_of, model_of, weights_of
from archsim.predict.estimate import Estimate, estimate
from archsim.timing.calibration import FORGETTING

GRADES = ("measured", "calibrated", "transferred", "datasheet")
"""Evidence from the strongest to the weakest."""


class Span(NamedTuple):
    """A figure in SI units: expected, the ends of its 80 % interval, and by the naive roofline."""

    expected: float
    low: float
    high: float
    naive: float
    evidence: str = "datasheet"
    bound: str = ""

    def inverse(self, amount: float = 1.0) -> Span:
        """amount / this: a rate of a time."""
        return self._replace(
            expected=amount / self.expected, low=amount / self.high, high=amount / self.low,
            naive=amount / self.naive,
        )  # fmt: skip

    def scaled(self, factor: float) -> Span:
        """The same in another unit."""
        return self._replace(
            expected=self.expected * factor, low=self.low * factor, high=self.high * factor,
            naive=self.naive * factor,
        )  # fmt: skip


def composed(make: Callable[..., float], *parts: Span) -> Span:
    """A figure that grows with every part: its ends are those of all parts together (errors go together)."""
    expected, low, high, naive = (make(*(getattr(part, name) for part in parts)) for name in Span._fields[:4])
    main = max(parts, key=lambda part: part.expected)
    weakest = max((part.evidence for part in parts), key=GRADES.index)
    return Span(expected, min(low, high, expected), max(low, high, expected), naive, weakest, main.bound)


@lru_cache(maxsize=4096)
def _estimated(
    model: str, device: str, weights: str | None, kv: str | None, engine: str, plan: tuple[int, ...],
    batch: int, isl: int, osl: int,
) -> Estimate:  # fmt: skip
    tp, pp, ep, dp = plan
    spec, _ = model_of(model)
    return estimate(
        spec, device_of(device), devices=tp * pp * dp, tp=tp, pp=pp, ep=ep, dp=dp, batch=batch, input_len=isl,
        output_len=osl, weights=weights_of(model, weights), kv_cache_dtype=kv, engine=engine,
    )  # fmt: skip


FORGETTING.append(_estimated.cache_clear)


def estimated(run: Run, batch: int, isl: int, osl: int) -> Estimate:
    """The estimate of a run's model, device, plan and formats for a batch of equal requests."""
    plan = (run.tp, run.pp, run.ep, run.dp)
    return _estimated(
        run.model, run.device, run.weights, run.kv, run.engine, plan, max(batch, 1), max(isl, 1), max(osl, 1)
    )


def prefill(run: Run, batch: int, isl: int) -> Span:
    """One forward pass over the prompts of a whole batch."""
    return _span(estimated(run, batch, isl, 1).prefill)


def decode(run: Run, batch: int, isl: int, osl: int) -> Span:
    """One decode step at the mean context, prompt and half the answer."""
    phase = estimated(run, batch, isl, osl).decode
    if phase is None:
        from archsim.base.errors import UsageError

        raise UsageError(f"{run.model} is an encoder: it has no decode step")
    return _span(phase)


def _span(phase: Any) -> Span:
    told: Mapping[str, Any] = phase.to_dict()
    expected, low, high, ideal = (float(told[name]) for name in ("expected_s", "low_s", "high_s", "ideal_s"))
    return Span(expected, low, high, ideal, told["evidence"], told["bound"])
