"""The same candidates at other batches and contexts: what the curves of a report go through.

Devices stay as they are at the report's own workload, so that a larger one may not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archsim.base.progress import counted
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import checked_workload
from archsim.memory.engine_memory import EngineMemoryModel
from archsim.predict.estimate import Estimate
from archsim.render.html.candidates import Candidate, ReportRequest, Study, at

BATCHES = tuple(2**i for i in range(9))
CONTEXTS = tuple(1024 * 2**i for i in range(8))

MANY = 8
"""Candidates from which on every second step is left out."""

LARGEST = 1 << 20
"""Sequences beyond which a frontier is not followed."""

STRAIGHT = 4
"""Guesses along a straight line before the search for a frontier halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """One candidate at other workloads: estimates by batch at the report's context, by context at its batch, and the
    largest batch that fits by context; 0 for none.
    """

    candidate: Candidate
    by_batch: dict[int, Estimate]
    by_context: dict[int, Estimate]
    most: dict[int, int]


def workloads(study: Study) -> tuple[Workloads, ...]:
    """Every candidate over the batches and contexts of the report."""
    batches, contexts = _steps(study)
    return tuple(_workloads(c, study.asked, batches, contexts) for c in counted([*study.candidates], "curves"))


def _workloads(c: Candidate, asked: ReportRequest, batches: tuple[int, ...], contexts: tuple[int, ...]) -> Workloads:
    base = c.answer

    def point(batch: int, context: int) -> Estimate:
        own = (batch, context) == (asked.batch, asked.input_len)
        return base if own else at(base, asked, c.asked, batch=batch, input_len=context)

    by_context = {n: point(asked.batch, n) for n in contexts}
    return Workloads(
        candidate=c, by_batch={b: point(b, asked.input_len) for b in batches}, by_context=by_context,
        most={n: _most(asked, base, n, e) for n, e in by_context.items()},
    )  # fmt: skip


def _steps(study: Study) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Batches and contexts, the report's own among them."""
    asked = study.asked
    short = [m.max_context for m in study.models if m.max_context]
    top = max([asked.input_len, *short]) if not study.decodes and short else CONTEXTS[-1]
    contexts = [c for c in ((128, 256, 512) if top < 1024 else CONTEXTS) if c <= top]
    stride = 2 if len(study.candidates) > MANY else 1
    return (
        tuple(sorted({*BATCHES[::stride], asked.batch})), tuple(sorted({*contexts[::stride], asked.input_len})),
    )  # fmt: skip


def _most(asked: ReportRequest, base: Estimate, context: int, known_one: Estimate) -> int:
    """The largest batch that fits at a context; 0 for none."""
    known = {asked.batch: float(known_one.memory.free)}
    if not known_one.memory.kv_cache:
        return asked.batch if known_one.memory.fits else 0  # nothing grows with the batch
    graphs = StepGraphs(base.model, base.formats)

    def free(batch: int) -> float:
        if batch not in known:
            load = checked_workload(batch, context, asked.output_len)
            known[batch] = float(EngineMemoryModel(base.tensors, load, graphs).on(base.plan).free)
        return known[batch]

    if free(1) < 0:
        return 0
    low = asked.batch if known[asked.batch] >= 0 else 1
    low, high = (low, asked.batch) if known[asked.batch] < 0 else _beyond(low, free)
    return _between(low, high, free)


def _beyond(low: int, free: Callable[[int], float]) -> tuple[int, int]:
    """A batch that fits and one that does not, or the largest followed: memory grows nearly evenly with the batch."""
    while low < LARGEST:
        other = min(2 * low, LARGEST)
        lost = (free(low) - free(other)) / (other - low)
        end = LARGEST if lost <= 0 else min(LARGEST, int(1.02 * (other + max(free(other), 0) / lost)) + 1)
        if free(other) < 0 or free(end) < 0:
            return (low, other) if free(other) < 0 else (other, end)
        low = end
    return LARGEST, LARGEST


def _between(low: int, high: int, free: Callable[[int], float]) -> int:
    """The largest that fits, to three digits: low fits, high does not. Guesses along a straight line, then halves."""
    tries = 0
    while high - low > max(1, low // 500):
        share = free(low) / (free(low) - free(high)) if tries < STRAIGHT else 0.5
        guess = min(max(low + int((high - low) * share), low + 1), high - 1)
        near = max(1, guess // 500)
        ends = (guess, guess + near) if free(guess) >= 0 else (guess - near, guess)
        for batch in ends:
            low, high = (max(low, batch), high) if batch <= low or free(batch) >= 0 else (low, min(high, batch))
        tries += 1
    return low
