"""What fills the memory of a device, and where the time of a step goes: a bar for each case, its pieces named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_flops, format_seconds, format_span
from archsim.memory.engine_memory import DeviceMemory
from archsim.predict.estimate import Estimate
from archsim.predict.model_parts import part_of
from archsim.render.figures.chart import Chart, Table, axis, hover, layout, legend_height, plain
from archsim.render.figures.theme import SERIES, series
from archsim.render.page import percent
from archsim.timing.step_time import StepTime

ROW = 46
"""Pixels of a bar with its name above it."""

THICK = 0.42
"""Of a row that the bar takes."""

MEMORY = {
    "weights": ("parameters × bytes of their format, the share of one device", "exact"),
    "KV cache": ("requests × bytes of each at input + output tokens", "exact"),
    "activations": ("what the largest step needs besides weights and cache", "modelled"),
    "runtime": ("what the process needs besides its tensors", "modelled"),
}
"""What fills a device: how it is computed, and what that rests on."""

EVIDENCE = {
    "measured": "measured here", "calibrated": "fitted on the device", "transferred": "fitted on other devices",
    "datasheet": "not fitted",
}  # fmt: skip
"""What stands behind an expected time, in few words."""

PHASES = {"prefill": "Prefill: time to the first token", "decode": "Decode: time per token"}


class Case(NamedTuple):
    """One estimate and the words that tell it from the others."""

    label: str
    estimate: Estimate


# ------------------------------------------------------------------ memory
def memory_bars(cases: Sequence[Case]) -> Chart:
    """What one device holds, against its memory and the part of it that the engine may use."""
    sizes = [_sizes(case.estimate.memory) for case in cases]
    rows = list(range(len(cases)))
    traces = [_memory_piece(i, name, cases, sizes) for i, name in enumerate(MEMORY)]
    traces = [trace for trace in traces if any(trace["x"])]
    usable = [float(case.estimate.memory.usable) / 1e9 for case in cases]
    whole = [case.estimate.memory.capacity / 1e9 for case in cases]
    traces += [
        _ticks("usable by the engine", usable, rows, "@ink", [f"usable: {format_bytes(1e9 * v)}" for v in usable]),
        _ticks("memory of the device", whole, rows, "@s7", [f"memory: {format_bytes(1e9 * v)}" for v in whole]),
    ]
    values = [_filled(case.estimate.memory) for case in cases]
    return Chart(
        key="memory", title="Memory per device", finding=_memory_finding(cases), traces=tuple(traces),
        layout=bar_layout([c.label for c in cases], values, "GB per device", [str(t["name"]) for t in traces]),
        table=Table(["", *MEMORY, "free", "usable", "fits"], [_memory_row(case) for case in cases]),
    )  # fmt: skip


def _sizes(m: DeviceMemory) -> tuple[float, ...]:
    return tuple(float(size) for size in (m.weights, m.kv_cache, m.activations, m.runtime))


def _memory_piece(number: int, name: str, cases: Sequence[Case], sizes: Sequence[tuple[float, ...]]) -> JsonObject:
    formula, basis = MEMORY[name]
    words = [
        hover(f"<b>{plain(case.label)}</b>", f"{name}: {format_bytes(held[number])}", formula, f"basis: {basis}")
        for case, held in zip(cases, sizes, strict=True)
    ]
    return _piece(name, number, [held[number] / 1e9 for held in sizes], words)


def _filled(m: DeviceMemory) -> str:
    """`70.11 of 76.97 GB`, and that it does not fit."""
    needed, usable = format_bytes(m.needed), format_bytes(m.usable)
    number, _, unit = needed.partition(" ")
    text = f"{number if usable.endswith(f' {unit}') else needed} of {usable}"
    return text if m.fits else f"{text}: no fit"


def _memory_finding(cases: Sequence[Case]) -> str:
    short = [plain(case.label) for case in cases if not case.estimate.memory.fits]
    if short and len(short) == len(cases):
        return "Nothing fits." if len(cases) > 1 else f"{short[0]} does not fit."
    if short:
        return f"{len(short):,} of {len(cases):,} do not fit."
    fullest = max(cases, key=lambda case: float(case.estimate.memory.needed / case.estimate.memory.usable))
    used = percent(fullest.estimate.memory.needed / fullest.estimate.memory.usable)
    return f"It takes {used} of what is usable." if len(cases) == 1 else f"All fit; {fullest.label} is fullest, {used}."


def _memory_row(case: Case) -> list[str]:
    m = case.estimate.memory
    sizes = (*_sizes(m), m.free, m.usable)
    return [case.label, *(format_bytes(size) for size in sizes), "yes" if m.fits else "no"]


# ------------------------------------------------------------------ time
class PartTime(NamedTuple):
    """What the kernels of one part of the model take together in a step."""

    expected_s: float = 0.0
    ideal_s: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0


def part_times(phase: StepTime) -> dict[str, PartTime]:
    """Each part of the model in one step of a device; the expected seconds add up to the phase's."""
    found: dict[str, PartTime] = {}
    for op in phase.ops:
        name, held = part_of(op, phase.name), (op.expected_s * phase.busy, op.ideal_s * phase.busy, op.flops, op.bytes)
        before = found.get(name, PartTime())
        found[name] = PartTime(*(a + float(b) for a, b in zip(before, held, strict=True)))
    return found


def time_bars(cases: Sequence[Case], phase: str) -> Chart:
    """Where the time of one step goes. phase: `prefill` or `decode`; cases without it are left out."""
    shown = [(case, step) for case in cases if (step := getattr(case.estimate, phase)) is not None]
    parts = [part_times(step) for _, step in shown]
    names = _largest_parts(parts)
    scale, unit = _scale(max((float(step.high_s) for _, step in shown), default=1.0))
    colours = _part_colours(cases)
    traces = [_time_piece(colours.get(name, SERIES - 1), name, names, shown, parts, scale) for name in names]
    rows = list(range(len(shown)))
    expected = [float(step.expected_s) / scale for _, step in shown]
    spans = [_span_words(case, step) for case, step in shown]
    ends = {"array": [(float(s.high_s) - float(s.expected_s)) / scale for _, s in shown],
            "arrayminus": [(float(s.expected_s) - float(s.low_s)) / scale for _, s in shown]}  # fmt: skip
    interval = _ticks("80 % interval", expected, rows, "@ink", spans)
    interval["marker"] = {"symbol": "circle", "size": 5, "color": "@ink"}
    interval["error_x"] = {"type": "data", "symmetric": False, **ends, "color": "@ink", "thickness": 2, "width": 5}
    ideal = [float(step.ideal_s) / scale for _, step in shown]
    light = [f"speed of light: {format_seconds(scale * v)}, every byte and FLOP at the datasheet's peak" for v in ideal]
    traces += [interval, _ticks("speed of light", ideal, rows, "@ink", light)]
    values = [format_seconds(float(step.expected_s)) for _, step in shown]
    return Chart(
        key=f"time-{phase}", title=PHASES[phase], finding=_time_finding(shown, parts, phase), traces=tuple(traces),
        layout=bar_layout([case.label for case, _ in shown], values, f"{unit} of one step",
                          [str(trace["name"]) for trace in traces]),
        table=Table(["", "expected", "80 % interval", "speed of light", "limited by", "evidence", "parts"],
                    [_time_row(case, step, held) for (case, step), held in zip(shown, parts, strict=True)]),
    )  # fmt: skip


def _largest_parts(parts: Sequence[dict[str, PartTime]]) -> list[str]:
    """Names of the parts that take most of any case, largest first; the last stands for the rest."""
    shares: dict[str, float] = {}
    for held in parts:
        total = sum(part.expected_s for part in held.values()) or 1.0
        for name, part in held.items():
            shares[name] = shares.get(name, 0.0) + part.expected_s / total
    ranked = sorted((name for name in shares if shares[name]), key=lambda name: (-shares[name], name))
    return ranked if len(ranked) <= SERIES else [*ranked[: SERIES - 1], OTHERS]


def _part_colours(cases: Sequence[Case]) -> dict[str, int]:
    """A colour for each part, the same in both phases; parts beyond the last but one share the last."""
    both = [part_times(step) for c in cases for step in (c.estimate.decode, c.estimate.prefill) if step is not None]
    shares: dict[str, float] = {}
    for held in both:
        total = sum(part.expected_s for part in held.values()) or 1.0
        for name, part in held.items():
            shares[SAME.get(name, name)] = shares.get(SAME.get(name, name), 0.0) + part.expected_s / total
    ranked = sorted(shares, key=lambda name: (-shares[name], name))
    numbers = {name: min(i, SERIES - 1) for i, name in enumerate(ranked)}
    return numbers | {name: numbers[other] for name, other in SAME.items() if other in numbers}


SAME = {"attention scores": "attention over cache"}
"""Parts with one colour: the same kernel of both phases."""

OTHERS = "other parts"


def _scale(seconds: float) -> tuple[float, str]:
    return next(((f, u) for f, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= f), (1e-6, "µs"))


def _time_piece(
    number: int, name: str, names: Sequence[str], shown: Sequence[tuple[Case, StepTime]],
    parts: Sequence[dict[str, PartTime]], scale: float,
) -> JsonObject:  # fmt: skip
    values, words = [], []
    for (case, step), held in zip(shown, parts, strict=True):
        found = held.get(name, PartTime())
        if name == OTHERS:
            rest = [part for key, part in held.items() if key not in names]
            found = PartTime(*(sum(column) for column in zip(*rest, strict=True))) if rest else found
        values.append(found.expected_s / scale)
        words.append(_part_words(case.label, name, found, step))
    return _piece(name, number, values, words)


def _part_words(label: str, name: str, part: PartTime, step: StepTime) -> str:
    share = percent(part.expected_s / float(step.expected_s)) if step.expected_s else ""
    return hover(
        f"<b>{plain(label)}</b>", f"{plain(name)}: {format_seconds(part.expected_s)}, {share} of {step.name}",
        f"{format_flops(part.flops)}, {format_bytes(part.bytes)} of memory traffic on one device",
        f"speed of light {format_seconds(part.ideal_s)} = max(FLOP / peak, bytes / bandwidth) of each kernel",
        f"basis: {EVIDENCE[step.evidence]}",
    )  # fmt: skip


def _span_words(case: Case, step: StepTime) -> str:
    span = format_span(float(step.low_s), float(step.high_s), "to")
    return hover(f"<b>{plain(case.label)}</b>", f"expected: {format_seconds(float(step.expected_s))}",
                 f"80 % interval: {span}", f"basis: {EVIDENCE[step.evidence]}")  # fmt: skip


def _time_finding(shown: Sequence[tuple[Case, StepTime]], parts: Sequence[dict[str, PartTime]], phase: str) -> str:
    if not shown:
        return f"No case has a {phase}."
    at = min(range(len(shown)), key=lambda i: float(shown[i][1].expected_s))
    case, step = shown[at]
    part, most = max(parts[at].items(), key=lambda item: item[1].expected_s)
    who = f"{case.label} is shortest, {format_seconds(float(step.expected_s))}; " if len(shown) > 1 else ""
    return f"{who}{part} takes {percent(most.expected_s / float(step.expected_s))}" + (" of it." if who else ".")


def _time_row(case: Case, step: StepTime, parts: dict[str, PartTime]) -> list[str]:
    ranked = sorted(parts.items(), key=lambda item: -item[1].expected_s)
    return [
        case.label, format_seconds(float(step.expected_s)), format_span(float(step.low_s), float(step.high_s), "to"),
        format_seconds(float(step.ideal_s)), step.bound, EVIDENCE[step.evidence],
        "; ".join(f"{name} {format_seconds(part.expected_s)}" for name, part in ranked if part.expected_s),
    ]  # fmt: skip


# ------------------------------------------------------------------ common to both
FIXED: JsonObject = {"fixedrange": True}
"""An axis that no one zooms: rows of bars stay where they are."""


def _piece(name: str, number: int, values: Sequence[float], words: Sequence[str]) -> JsonObject:
    """One part of all bars."""
    return {
        "type": "bar", "orientation": "h", "name": plain(name), "x": list(values), "y": list(range(len(values))),
        "width": THICK, "marker": {"color": series(number), "line": {"color": "@paper", "width": 1}},
        "hovertext": list(words), "hoverinfo": "text", "textposition": "none",
    }  # fmt: skip


def _ticks(name: str, values: Sequence[float], rows: Sequence[int], colour: str, words: Sequence[str]) -> JsonObject:
    """A line across every bar."""
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": list(values), "y": list(rows),
        "hovertext": list(words), "hoverinfo": "text", "cliponaxis": False,
        "marker": {"symbol": "line-ns-open", "size": 14, "color": colour, "line": {"width": 3, "color": colour}},
    }  # fmt: skip


def bar_layout(labels: Sequence[str], values: Sequence[str], unit: str, names: Sequence[str]) -> JsonObject:
    """Bars below one another, the name above each and its figure at the end of that line."""
    count = len(labels)
    above = {"xref": "paper", "yref": "y", "yanchor": "bottom", "showarrow": False, "font": {"color": "@ink"}}
    notes = [
        {**above, "x": side, "xanchor": anchor, "xshift": 4 * (1 - side), "y": i - THICK / 2 - 0.02, "text": text}
        for i, (label, value) in enumerate(zip(labels, values, strict=True))
        for side, anchor, text in ((0, "left", plain(label, 44)), (1, "right", f"<b>{plain(value)}</b>"))
    ]
    height = ROW * count + 66 + legend_height(names)
    return layout(
        height, axis(unit, rangemode="tozero", tickformat="~g"),
        axis("", range=[count - 1 + 0.45, -0.85], showticklabels=False, showgrid=False, zeroline=False) | FIXED,
        barmode="stack", bargap=0, annotations=notes,
    )  # fmt: skip
