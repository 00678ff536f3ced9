"""An estimate over context: what the same batch costs as its sequences grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from archsim.memory.budget import Memory
from archsim.predict.estimate import Estimate, Estimator, Workload
from archsim.timing.step_time import Phase

SHORTEST, USUAL = 128, 131_072
"""The first context of a series, and the last of a model that states no limit."""
MOST = 8
"""Contexts of a series: as many columns as a picture in one line wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtContext:
    """One context: a prompt of so many tokens for each sequence, and the decode step that follows it."""

    context: int
    prefill: Phase
    decode: Phase | None
    memory: Memory

    def to_dict(self) -> dict[str, Any]:
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


def decode_times(e: Estimate, contexts: Sequence[int]) -> tuple[Phase, ...]:
    """The decode step of the estimate's batch and plan at each context; none for an encoder."""
    if e.decode is None:
        return ()
    return tuple(_worker(e, context).phase("decode", e.plan) for context in contexts)


def at(e: Estimate, context: int) -> AtContext:
    """Times and memory of the estimate's batch and plan at one context."""
    worker = _worker(e, context)
    return AtContext(
        context=context, prefill=worker.phase("prefill", e.plan), memory=worker.memory(e.plan),
        decode=worker.phase("decode", e.plan) if e.decode else None,
    )  # fmt: skip


def _worker(e: Estimate, context: int) -> Estimator:
    """Answers as `estimate` does for a prompt of `context` tokens and one token of output."""
    load = Workload(batch=e.workload.batch, input_len=context, output_len=1)
    return Estimator(e.model, e.hardware, e.formats, load, profile=e.profile, store=e.store)
