"""`archsim compare` as a page: sizes and times with ratios, how sure the ranking is, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import floor, log10
from typing import TYPE_CHECKING

from archsim.base.diagnostics import shorten
from archsim.base.json_types import JsonObject
from archsim.base.notes import urgent
from archsim.base.units import format_bytes, format_flops, format_rate, format_seconds
from archsim.comparison.compare import LOADS, Candidate, Comparison
from archsim.comparison.uncertainty import Ratio
from archsim.counts.workload import Workload
from archsim.render.flat import flatten
from archsim.render.page import Cell, Page, Row, Section, bar, footer, plural, row
from archsim.render.pages.cost import paid_text, usd
from archsim.render.signed import scaled_count, signed_change, times

if TYPE_CHECKING:
    from archsim.render.figures.chart import Chart

SIZES = ("params", "active_params", "weight_bytes", "kv_bytes_per_token", "flops_per_token")
TIMES = ("devices", "memory_bytes_per_device", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s_per_device")
COSTS = ("usd_per_m_input", "usd_per_m_output")
COST_HEADS = ("$/M in", "$/M out")
ENERGY = ("power_w_per_device", "j_per_output_token")
ENERGY_HEADS = ("W/device", "J/token")
SIZE_HEADS = ("params", "active", "weights", "KV/token", "FLOPs/token")
TIME_HEADS = ("devices", "memory each", "TTFT", "TPOT", "end to end", "tok/s/device")
LOAD_WORDS = {"batch": "batch {}", "input_len": "{} tokens in", "output_len": "{} out"}

CERTAIN, SURE, LIKELY = 0.995, 0.9, 0.65
"""Probabilities from which a ranking is called certain, is stated, and is called probable."""

PARTS = 6
"""Parts of the model that are shown; the others are summed."""

IN_FULL = 4
"""Candidates up to which the difference in prefill is shown as well."""

NAME = 40
"""Characters of a model's or device's name that are shown."""

SURE_TITLE = "Confidence"
AGAINST = "  vs. baseline"


def page(c: Comparison, *, changes: Sequence[str] = ()) -> Page:
    """The report. changes: `--set` assignments, of all models but the first."""
    changed = (f"changed, in all but the first model: {', '.join(changes)}",) if changes else ()
    loads = c.by_workload
    sections: list[Section] = [_sizes(c)] if any(x.answer for x in c.candidates) else []
    for load in loads:
        sections += _at(c, load, len(loads) > 1)
    sections[-1:] = [_explain_confidence(c, section) for section in sections[-1:]]
    sections += _where(c) if len(loads) == 1 else [_elsewhere()]
    sections += _refused_section(c)
    return Page(head=(*_head(c), *changed), notes=_notes(c), sections=tuple(sections))


def label(x: Candidate) -> str:
    """What a candidate is called, with names that are not too long."""
    degrees = (f"{name} {value}" for name, value in x.degrees.items())
    return ", ".join((f"{shorten(x.name, NAME)} on {shorten(x.hardware.id, NAME)}", *degrees))


def charts(c: Comparison) -> list[Chart]:
    """Memory and both phases of the candidates at the first workload."""
    from archsim.render.figures.bars import Case, memory_bars, time_bars

    first = c.candidates[0].workload
    cases = [Case(label(x), x.answer) for x in c.candidates if x.answer is not None and x.workload == first]
    phases = [name for name in ("decode", "prefill") if any(getattr(case.estimate, name) for case in cases)]
    return [memory_bars(cases), *(time_bars(cases, name) for name in phases)] if cases else []


def _head(c: Comparison) -> tuple[str, ...]:
    models = ", ".join(dict.fromkeys(shorten(x.name, 2 * NAME) for x in c.candidates))
    devices = ", ".join(dict.fromkeys(shorten(x.hardware.id, 2 * NAME) for x in c.candidates))
    spans = []
    for name in LOADS:
        values = dict.fromkeys(getattr(load, name) for load in c.by_workload)
        spans.append(LOAD_WORDS[name].format(", ".join(f"{value:,}" for value in values)))
    return f"{models} on {devices}", " · ".join((*spans, f"baseline: {label(c.first)}"))


def _notes(c: Comparison) -> tuple[str, ...]:
    """What is not as asked: candidates that do not fit, a baseline without an answer, engines that weights imply."""
    told: dict[str, list[str]] = {}
    for x in c.candidates:
        if x.answer is not None and not x.fits:
            m = x.answer.memory
            short = f"{format_bytes(m.needed)} needed, {format_bytes(m.usable)} usable"
            told.setdefault(label(x), []).append(f"{_workload_prefix(c, x.workload)}{short}")
    parts = [f"{name} does not fit ({'; '.join(found)}): its times assume more memory" for name, found in told.items()]
    if any(c.base(x).answer is None for x in c.candidates) and any(x.answer for x in c.candidates):
        parts.append("the first has no answer, so there is no baseline")
    answers = (x.answer for x in c.candidates if x.answer is not None)
    return tuple(dict.fromkeys((*parts, *(text for answer in answers for text in urgent(answer.assumptions)))))


def _workload_prefix(c: Comparison, load: Workload) -> str:
    """What is particular about a workload: `batch 8: `; nothing where there is one workload."""
    names = [name for name in LOADS if len({getattr(x, name) for x in c.by_workload}) > 1]
    words = ", ".join(LOAD_WORDS[name].format(f"{getattr(load, name):,}") for name in names)
    return f"{words}: " if words else ""


def _sizes(c: Comparison) -> Section:
    """Each model once; below it its figures over those of the first."""
    lines: list[Row] = []
    seen: set[str] = set()
    for x in c.candidates:
        if x.answer is None or x.name in seen:
            continue
        seen.add(x.name)
        lines.append(row(shorten(x.name, NAME), *(_size(key, x.figures[key]) for key in SIZES)))
        if x.name != c.first.name and c.base(x).answer is not None:
            lines.append(_ratios(c, x, SIZES))
    return Section(title="Size", rows=tuple(lines), align="lrrrrr", header=SIZE_HEADS)


def _size(name: str, value: float | None) -> str:
    value = value or 0
    if name.endswith("params"):
        return scaled_count(value)
    return format_flops(value) if name.startswith("flops") else format_bytes(value)


def _at(c: Comparison, load: Workload, several: bool) -> list[Section]:
    """Times and ranking at one workload."""
    found = [x for x in c.by_workload[load] if x.answer is not None]
    where = f" at {_workload_prefix(c, load).removesuffix(': ')}" if several else ""
    sections = [_times(c, found, where)] if found else []
    if len(found) > 1 and c.base(found[0]).answer is not None:
        sections.append(_sure(c, found[1:], where))
    return sections


def _times(c: Comparison, found: Sequence[Candidate], where: str) -> Section:
    lines: list[Row] = []
    for x in found:
        f = x.figures
        cells: list[str | Cell] = [
            f"{f['devices']:,}",
            Cell(format_bytes(f["memory_bytes_per_device"] or 0), "" if x.fits else "bad"),
            *(format_seconds(f[key] or 0) if f[key] else "–" for key in ("ttft_s", "tpot_s", "e2e_s")),
            format_rate(f["tokens_per_s_per_device"] or 0, "").strip() if f["tokens_per_s_per_device"] else "–",
        ]  # fmt: skip
        cells += [usd(f[key]) for key in COSTS if key in f]
        cells += [f"{f[key]:,.3g}" for key in ENERGY if key in f]
        lines.append(row(label(x), *cells))
        if not x.fits:
            lines.append(row(Cell("  does not fit", "bad")))
        if x is not c.base(x) and c.base(x).answer is not None:
            lines.append(_ratios(c, x, (*TIMES, *(key for key in (*COSTS, *ENERGY) if key in f))))
    priced = [x.answer.cost for x in found if x.answer is not None and x.answer.cost is not None]
    drawn = any(x.answer is not None and x.answer.energy is not None for x in found)
    heads = (*TIME_HEADS, *(COST_HEADS if priced else ()), *(ENERGY_HEADS if drawn else ()))
    below = tuple(dict.fromkeys(f"{x.hardware.id}: {paid_text(x.answer.cost.cost)}" for x in found
                                if x.answer is not None and x.answer.cost is not None))  # fmt: skip
    return Section(
        title=f"Expected time{where}", rows=tuple(lines), align="l" + "r" * len(heads), header=heads, below=below
    )


def _ratios(c: Comparison, x: Candidate, names: Sequence[str]) -> Row:
    found = c.ratios(x)
    return row(Cell(AGAINST, "dim"), *(Cell(times(found.get(name)), "dim") for name in names))


def _sure(c: Comparison, found: Sequence[Candidate], where: str) -> Section:
    """The ratio of times, its interval, and the ranking in words."""
    lines: list[Row] = []
    for x in found:
        lines.append(row(label(x)))
        for name, ratio in c.ranking(x).items():
            if ratio is not None:
                value, span = interval(ratio)
                lines.append(row(f"  {name}", value, span, verdict(ratio)))
        if (dollars := c.cost_ratio(x)) is not None:
            value, span = interval(dollars)
            lines.append(row("  dollars per token", value, span, verdict(dollars, CHEAPER)))
    return Section(
        title=f"{SURE_TITLE}{where}", rows=tuple(lines), align="lrrl", header=("ratio", "80 % interval", "")
    )  # fmt: skip


def _explain_confidence(c: Comparison, section: Section) -> Section:
    """The last of the sections on how sure a ranking is, with what it means."""
    if not section.title.startswith(SURE_TITLE):
        return section
    about = (
        f"ratio = time / time of {label(c.first)}; errors that both sides share cancel in a ratio; docs/compare.md "
        "says which are taken as shared"
    )
    return section._replace(below=(about,))


def interval(found: Ratio) -> tuple[str, str]:
    """The ratio and its interval, with as many digits as it takes to tell them apart."""
    if found.low == found.high:
        return f"{found.value:.3f}", "exact"
    size = floor(log10(found.value))
    places = max(3 - size, 0) if size > 0 else max(3, 2 - size)
    while places < 9 and len({f"{x:.{places}f}" for x in (found.low, found.value, found.high)}) < 3:
        places += 1
    low, value, high = (f"{x:,.{places}f}" for x in (found.low, found.value, found.high))
    return value, f"{low} – {high}"


FASTER, CHEAPER = ("faster", "slower"), ("cheaper", "dearer")
"""What a ratio below one means, and one above: of times, and of dollars."""


def verdict(found: Ratio, words: tuple[str, str] = FASTER) -> str:
    """The ranking in words."""
    if found.value == 1 and found.low == found.high:
        return "the same"
    sure, word = (found.faster, words[0]) if found.value < 1 else (1 - found.faster, words[1])
    if sure >= CERTAIN:
        return f"{word}, > 99 % sure"
    share = f"{100 * sure:.0f} %"
    if sure < LIKELY:
        return f"too close to call ({share} likely {word})"
    return f"{word}, {share} sure" if sure >= SURE else f"probably {word}, {share} sure"


def _where(c: Comparison) -> list[Section]:
    """The parts in which a phase takes more or less time than in the first, phase by phase."""
    sections: list[Section] = []
    for phase in ("decode", "prefill") if len(c.candidates) <= IN_FULL else ("decode",):
        found = [section for x in c.candidates[1:] if (section := _parts(c, x, phase)) is not None]
        if found:
            about = f"expected time of each part of the model; baseline: {label(c.first)}"
            sections += [Section(title=f"Where {phase} differs", below=(about,)), *found]
    return sections


def _parts(c: Comparison, x: Candidate, phase: str) -> Section | None:
    parts = [part for part in c.parts(x, phase) if part.delta_s]
    if not parts:
        return None
    less, more = (max((sign * part.delta_s for part in parts), default=0.0) for sign in (-1, 1))
    less, more = max(less, 0.0), max(more, 0.0)
    lines = [
        row(part.name, _time(part.first_s), _time(part.this_s), signed_change("decode_s", part.delta_s),
            _to_either_side(part.delta_s, less, more))
        for part in parts[:PARTS]
    ]  # fmt: skip
    rest = parts[PARTS:]
    if rest:
        first, this, delta = (sum(getattr(part, name) for part in rest) for name in ("first_s", "this_s", "delta_s"))
        lines.append(
            row(f"{plural(len(rest), 'other')}", _time(first), _time(this), signed_change("decode_s", delta), bar(0))
        )
    return Section(
        title=f"{label(x)}: {phase}", rows=tuple(lines), align="lrrrl", header=("baseline", "this", "difference", ""),
        sub=True,
    )  # fmt: skip


def _to_either_side(delta: float, less: float, more: float) -> Cell:
    """The bar of a difference: right of a common zero where it is more, left of it where it is less. less, more: the
    largest of each.
    """
    span = less + more or 1.0
    return bar(abs(delta) / span, (less + min(delta, 0.0)) / span)


def _time(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "–"


def _elsewhere() -> Section:
    text = "where the differences come from, part by part for each workload: `--format csv` or `json`"
    return footer([("More", text)])


def _refused_section(c: Comparison) -> list[Section]:
    lines = dict.fromkeys(row(label(x), x.reason) for x in c.candidates if x.answer is None)
    return [Section(title="Not answered", rows=tuple(lines))] if lines else []


# ------------------------------------------------------------------ as CSV
PART = ("phase", "part", "first_s", "this_s", "delta_s")


def rows(c: Comparison) -> list[JsonObject]:
    """A row for each candidate (`row` is `candidate`: figures, ratios, ranking), then one for each part of the model in
    each phase (`row` is `part`: its seconds in the candidate that it is set against, in this one, and the difference).
    """
    return [_candidate_row(c, x) for x in c.candidates] + [part for x in c.candidates for part in _part_rows(c, x)]


def _row_key(kind: str, x: Candidate) -> JsonObject:
    """What tells rows apart, in every row; then the columns of parts, which candidates leave empty."""
    own = {"label": x.label, "model": x.name, "hardware": x.hardware.id}
    return {"row": kind, **own, **asdict(x.workload), **dict.fromkeys(PART)}


def _candidate_row(c: Comparison, x: Candidate) -> JsonObject:
    ranked = {name.replace(" ", "_"): r.to_dict() for name, r in c.ranking(x).items() if r}
    ratios = {f"ratio_{name}": value for name, value in c.ratios(x).items()}
    remarks = {"against": c.base(x).label, "fits": x.fits, "reason": x.reason or None}
    return {**_row_key("candidate", x), **remarks, **x.figures, **ratios, **flatten(ranked)}


def _part_rows(c: Comparison, x: Candidate) -> Iterator[JsonObject]:
    for phase in ("prefill", "decode"):
        for part in c.parts(x, phase):
            yield {
                **_row_key("part", x), "against": c.base(x).label, "phase": phase, "part": part.name,
                "first_s": part.first_s, "this_s": part.this_s, "delta_s": part.delta_s,
            }  # fmt: skip
