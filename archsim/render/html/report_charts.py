"""The charts of a report, by the section that they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.predict.estimate import Estimate
from archsim.render.figures.bars import Case, memory_bars, time_bars
from archsim.render.figures.chart import Chart
from archsim.render.figures.curves import (
    ContextCurve,
    RateCurve,
    cache_growth,
    largest_batches,
    rate_of,
    throughput_latency,
    time_growth,
)
from archsim.render.figures.roofline import MeasuredStep, roofline
from archsim.render.html.candidates import Study
from archsim.render.html.workloads import Workloads


def report_charts(
    study: Study, runs: Sequence[Workloads], measured: Sequence[MeasuredStep]
) -> Mapping[str, list[Chart]]:
    """Section -> its charts."""
    cases = [Case(c.label, c.answer) for c in study.candidates]
    decodes = [time_bars(cases, "decode")] if study.decodes else []
    rates = [_rates(run, study) for run in runs]
    trade = [throughput_latency(rates)] if any(curve.rates for curve in rates) else []
    return {
        "speed": [*trade, memory_bars(cases), *decodes, time_bars(cases, "prefill")],
        "context": _growth(study, runs),
        "rooflines": [
            roofline(device, cases, [s for s in measured if s.device == device.id], key=f"roofline-{i}")
            for i, device in enumerate(study.devices)
        ],
    }  # fmt: skip


def _rates(run: Workloads, study: Study) -> RateCurve:
    found = (rate_of(e) for _, e in sorted(run.by_batch.items()))
    return RateCurve(run.candidate.label, [rate for rate in found if rate is not None], study.asked.batch)


def _growth(study: Study, runs: Sequence[Workloads]) -> list[Chart]:
    """What grows with the context; without a cache only the times do."""
    asked = study.asked
    found = []
    cached = [run for run in runs if any(e.memory.kv_cache for e in run.by_context.values())]
    if cached:
        found.append(cache_growth([_cache(run, asked.input_len) for run in cached], asked.batch))
        most = [ContextCurve(r.candidate.label, [(c, float(n)) for c, n in sorted(r.most.items())]) for r in cached]
        found.append(largest_batches(most, (asked.input_len, asked.batch)))
    for phase in ("decode", "prefill") if study.decodes else ("prefill",):
        times = [ContextCurve(run.candidate.label, _seconds(run, phase)) for run in runs]
        found.append(time_growth([curve for curve in times if curve.points], asked.batch, phase))
    return found


def _cache(run: Workloads, context: int) -> ContextCurve:
    """The cache by context, and what is left for it at the report's own."""
    points = [(c, float(e.memory.kv_cache)) for c, e in sorted(run.by_context.items()) if e.memory.kv_cache]
    memory = run.by_context[context].memory
    return ContextCurve(run.candidate.label, points, float(memory.free + memory.kv_cache))


def _seconds(run: Workloads, phase: str) -> list[tuple[int, float]]:
    return [(c, s) for c, e in sorted(run.by_context.items()) if (s := _expected(e, phase)) is not None]


def _expected(e: Estimate, phase: str) -> float | None:
    step = getattr(e, phase)
    return None if step is None else float(step.expected_s)
