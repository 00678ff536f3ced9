"""`archsim compare` as a page: sizes and times with ratios, where they differ, and how sure the ranking is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archsim.base.units import format_bytes, format_flops, format_rate, format_seconds
from archsim.report.flat import flatten
from archsim.report.page import Cell, Page, Row, Section, bar, row
from archsim.report.signed import scaled, signed, times
from archsim.sim.compare import PHASES, Candidate, Comparison
from archsim.sim.ranking import Ratio

SIZES = ("params", "active_params", "weight_bytes", "kv_bytes_per_token", "flops_per_token")
TIMES = ("devices", "memory_bytes_per_device", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s_per_device")
SIZE_HEADS = ("params", "active", "weights", "KV/token", "FLOPs/token")
TIME_HEADS = ("devices", "memory each", "TTFT", "TPOT", "end to end", "tok/s/device")

CERTAIN, SURE, LIKELY = 0.995, 0.9, 0.65
"""Probabilities from which a ranking is called certain, is stated, and is called probable."""

PARTS = 6
"""Parts of the model that are shown; the others are summed."""

IN_FULL = 4
"""Candidates up to which the difference in prefill is shown as well."""


def page(c: Comparison, *, changes: Sequence[str] = ()) -> Page:
    """The report. changes: `--set` assignments, of all models but the first."""
    changed = (f"changed, in all but the first model: {', '.join(changes)}",) if changes else ()
    answered = [x for x in c.candidates if x.answer is not None]
    sections: list[Section] = [_sizes(c), _times(c)] if answered else []
    sections += [_sure(c)] if c.first.answer is not None and len(answered) > 1 else []
    phases = ("decode", "prefill") if len(c.candidates) <= IN_FULL else ("decode",)
    sections += [s for x in c.candidates[1:] for phase in phases if (s := _where(c, x, phase)) is not None]
    sections += _refused(c)
    return Page(head=(*_head(c), *changed), sections=tuple(sections))


def rows(c: Comparison) -> list[dict[str, Any]]:
    """A row for each candidate, for CSV."""
    found = []
    for x in c.candidates:
        ranked = {name.replace(" ", "_"): r.to_dict() for name, r in c.ranking(x).items() if r}
        ratios = {f"ratio_{name}": value for name, value in c.ratios(x).items()}
        own = {"label": x.label, "model": x.model.name, "hardware": x.hardware.id, "reason": x.reason or None}
        found.append({**own, **x.figures, **ratios, **flatten(ranked)})
    return found


def _head(c: Comparison) -> tuple[str, ...]:
    models = ", ".join(dict.fromkeys(x.label.rsplit(" on ", 1)[0] for x in c.candidates))
    devices = ", ".join(dict.fromkeys(x.hardware.id for x in c.candidates))
    load = next((x.answer.workload for x in c.candidates if x.answer), None)
    asked = (
        [
            f"batch {load.batch:,} · {load.input_len:,} tokens in · {load.output_len:,} out · against {c.first.label}"
        ]
        if load
        else []
    )
    return f"{models} on {devices}", *asked


def _sizes(c: Comparison) -> Section:
    """Each model once; below it its figures over those of the first."""
    lines: list[Row] = []
    seen: set[str] = set()
    for x in c.candidates:
        name = x.label.rsplit(" on ", 1)[0]
        if x.answer is None or name in seen:
            continue
        seen.add(name)
        f = x.figures
        texts = [_size(key, f[key]) for key in SIZES]
        lines.append(row(name, *texts))
        if x is not c.first and c.first.answer is not None:
            lines.append(_ratios(c, x, SIZES))
    return Section(title="Size", rows=tuple(lines), align="lrrrrr", header=SIZE_HEADS)


def _size(name: str, value: float | None) -> str:
    value = value or 0
    if name.endswith("params"):
        return scaled(value)
    return format_flops(value) if name.startswith("flops") else format_bytes(value)


def _times(c: Comparison) -> Section:
    lines: list[Row] = []
    for x in c.candidates:
        if x.answer is None:
            continue
        f = x.figures
        cells = [
            f"{f['devices']:,}", format_bytes(f["memory_bytes_per_device"] or 0),
            *(format_seconds(f[key] or 0) if f[key] else "–" for key in ("ttft_s", "tpot_s", "e2e_s")),
            format_rate(f["tokens_per_s_per_device"] or 0, "").strip() if f["tokens_per_s_per_device"] else "–",
        ]  # fmt: skip
        fits = x.answer.memory.fits
        lines.append(row(x.label, *cells, "" if fits else Cell("does not fit", "bad")))
        if x is not c.first and c.first.answer is not None:
            lines.append(_ratios(c, x, TIMES))
    return Section(title="Expected time", rows=tuple(lines), align="lrrrrrrl", header=TIME_HEADS)


def _ratios(c: Comparison, x: Candidate, names: Sequence[str]) -> Row:
    found = c.ratios(x)
    return row(Cell("", "dim"), *(Cell(times(found.get(name)), "dim") for name in names))


def _sure(c: Comparison) -> Section:
    """The ratio of times, its interval, and the ranking in words."""
    lines = []
    for x in c.candidates[1:]:
        for i, name in enumerate(PHASES):
            found = c.ranking(x)[name]
            if found is not None:
                span = f"{found.low:.3g} – {found.high:.3g}"
                lines.append(row(x.label if i == 0 else "", name, f"{found.value:.3f}", span, verdict(found)))
    return Section(
        title=f"Time over that of {c.first.label}", rows=tuple(lines), align="llrrl",
        header=("", "ratio", "80 % interval", ""),
        below=("errors that both sides share cancel in a ratio; docs/compare.md says which are taken as shared",),
    )  # fmt: skip


def verdict(found: Ratio) -> str:
    """The ranking in words."""
    if found.value == 1 and found.low == found.high:
        return "the same"
    sure, word = (found.faster, "faster") if found.value < 1 else (1 - found.faster, "slower")
    if sure >= CERTAIN:
        return f"{word}, p > 0.99"
    if sure < LIKELY:
        return f"cannot be told ({word}: p = {sure:.2f})"
    return f"{word}, p = {sure:.2f}" if sure >= SURE else f"probably {word}, p = {sure:.2f}"


def _where(c: Comparison, x: Candidate, phase: str) -> Section | None:
    """The parts in which a phase takes more or less time than in the first."""
    parts = [part for part in c.parts(x, phase) if part.delta_s]
    if not parts:
        return None
    most = max(abs(part.delta_s) for part in parts)
    lines = [
        row(part.name, format_seconds(part.first_s), format_seconds(part.this_s), signed("decode_s", part.delta_s),
            bar(abs(part.delta_s) / most))
        for part in parts[:PARTS]
    ]  # fmt: skip
    rest = parts[PARTS:]
    sums = [sum(getattr(part, name) for part in rest) for name in ("first_s", "this_s", "delta_s")]
    if rest:
        lines.append(row("all others", *map(format_seconds, sums[:2]), signed("decode_s", sums[2]), bar(0)))
    return Section(
        title=f"Where {phase} differs", rows=tuple(lines), align="lrrrl", header=("first", "this", "change", ""),
        aside=x.label,
    )  # fmt: skip


def _refused(c: Comparison) -> list[Section]:
    lines = tuple(row(x.label, x.reason) for x in c.candidates if x.answer is None)
    return [Section(title="Not answered", rows=lines)] if lines else []
