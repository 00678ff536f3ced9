"""The roofline of a device with the kernels of steps on it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10, sqrt
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.units import format_seconds
from archsim.render.figures.bars import EVIDENCE, Case
from archsim.render.figures.chart import Chart, Table, hover, layout, legend_height, log_axis, plain, wide_log_axis
from archsim.render.figures.theme import series
from archsim.render.page import percent
from archsim.spec.hardware import Hardware
from archsim.timing.device import DeviceRates
from archsim.timing.step_time import KernelTime, StepTime

HEIGHT = 460
SMALLEST, LARGEST = 6.0, 34.0
"""Pixels across of a kernel that takes nothing, and of one that takes all the time of its phase."""

NAMED = 0.08
"""Share of the time from which on a kernel carries its name."""

APART = (0.45, 0.22)
"""Decades of intensity and of rate that two names must be apart."""

SIGN = {"prefill": "square", "decode": "circle"}


class MeasuredStep(NamedTuple):
    """A measured step: FLOP per byte of what it computes, and FLOP/s that it reached on one device."""

    device: str
    intensity: float
    rate: float
    words: str


def arithmetic(phase: StepTime) -> list[KernelTime]:
    """The kernels that a roofline can show: those that multiply and move bytes."""
    return [op for op in phase.ops if op.flops and op.bytes and op.expected_s]


def compute_bound_share(phase: StepTime) -> float:
    """The share of the time that goes into kernels limited by arithmetic."""
    total = float(phase.total("expected_s")) or 1.0
    return sum(float(op.expected_s) for op in phase.ops if op.bound == "compute") / total


def roofline(
    device: Hardware, cases: Sequence[Case], measured: Sequence[MeasuredStep] = (), key: str = "roofline"
) -> Chart:
    """A device's roofs and every kernel at its expected rate, a line up to the speed of light; area: share of the time.

    cases: estimates; those on other devices are left out, and keep their colours.
    """
    numbered = [(i, case) for i, case in enumerate(cases) if case.estimate.hardware.id == device.id]
    shown = [case for _, case in numbered]
    peaks = _peaks(device, shown)
    steps = [(i, case, s) for i, case in numbered for s in (case.estimate.prefill, case.estimate.decode) if s]
    low, high = _reach([step for _, _, step in steps], [peak / device.bandwidth for peak in peaks.values()])
    traces = [_roof(device, names, peak, low, high) for peak, names in _by_peak(peaks).items()]
    named = _named([step for _, _, step in steps])
    traces += [trace for i, case, step in steps if (trace := _kernels(i, case, step, named)) is not None]
    if measured:
        traces.append(_measured(measured))
    legend = [str(trace["name"]) for trace in traces if trace.get("showlegend", True)]
    return Chart(
        key=key, title=f"Roofline of {device.name}", finding=_finding(device, shown, peaks), traces=tuple(traces),
        layout=layout(HEIGHT + legend_height(legend), wide_log_axis("FLOP per byte", tickformat="~g"),
                      log_axis("TFLOP/s per device", tickformat="~g")),
        table=_table(steps),
    )  # fmt: skip


def _peaks(device: Hardware, cases: Sequence[Case]) -> dict[str, float]:
    """FLOP/s of the dtypes that the cases multiply in, as the device computes them."""
    rates = DeviceRates(device)
    found = {"bf16": rates.matrix_flops("bf16")}
    for case in cases:
        for stored in case.estimate.formats.weights.values():
            found.setdefault(rates.computes(stored.compute), rates.matrix_flops(stored.compute))
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def _by_peak(peaks: dict[str, float]) -> dict[float, list[str]]:
    found: dict[float, list[str]] = {}
    for name, peak in peaks.items():
        found.setdefault(peak, []).append(name)
    return found


def _reach(steps: Sequence[StepTime], ridges: Sequence[float]) -> tuple[float, float]:
    """FLOP per byte from the left of all kernels to the right of all ridges."""
    across = [float(op.flops) / float(op.bytes) for step in steps for op in arithmetic(step)]
    return min([*across, *ridges]) / 2, max([*across, *(2 * r for r in ridges)]) * 1.5


def _roof(device: Hardware, names: Sequence[str], peak: float, low: float, high: float) -> JsonObject:
    """The slope of the memory and the ceiling of a dtype, with its name."""
    ridge, bandwidth = peak / device.bandwidth, device.bandwidth
    words = [
        hover(f"memory: {bandwidth / 1e12:.4g} TB/s", "FLOP/s = FLOP per byte × bandwidth", "basis: datasheet"),
        hover(f"ridge: {ridge:,.0f} FLOP per byte", "peak / bandwidth", "basis: datasheet"),
        hover(f"peak in {', '.join(names)}: {peak / 1e12:,.4g} TFLOP/s", "basis: datasheet"),
    ]
    return {
        "type": "scatter", "mode": "lines+text", "name": "roof", "showlegend": False, "x": [low, ridge, high],
        "y": [low * bandwidth / 1e12, peak / 1e12, peak / 1e12], "hovertext": words, "hoverinfo": "text",
        "line": {"color": "@ink", "width": 1.6}, "text": ["", "", f"{', '.join(names)} {peak / 1e12:,.0f} TFLOP/s"],
        "textposition": "top left", "textfont": {"color": "@ink", "size": 12},
    }  # fmt: skip


def _place(op: KernelTime) -> tuple[float, float]:
    """Decades of intensity and of rate."""
    return log10(float(op.flops) / float(op.bytes)), log10(float(op.flops) / float(op.expected_s))


def _named(steps: Sequence[StepTime]) -> set[tuple[float, float]]:
    """Places of the kernels that carry their names: those that take most, no two so near that names would overlap."""
    shares = [
        (float(op.expected_s) / (float(step.total("expected_s")) or 1.0), _place(op))
        for step in steps for op in arithmetic(step)
    ]  # fmt: skip
    kept: list[tuple[float, float]] = []
    for share, (x, y) in sorted(shares, key=lambda found: -found[0]):
        if share >= NAMED and all(abs(x - a) > APART[0] or abs(y - b) > APART[1] for a, b in kept):
            kept.append((x, y))
    return set(kept)


def _kernels(number: int, case: Case, step: StepTime, named: set[tuple[float, float]]) -> JsonObject | None:
    """The kernels of one phase of one case. named: places of those that carry their names."""
    ops = arithmetic(step)
    if not ops:
        return None
    total = float(step.total("expected_s")) or 1.0
    held = [(op, float(op.expected_s) / total) for op in ops]
    rates = [float(op.flops) / float(op.expected_s) / 1e12 for op in ops]
    lifts = [
        r * (float(op.expected_s / op.ideal_s) - 1) if op.ideal_s else 0.0 for op, r in zip(ops, rates, strict=True)
    ]
    return {
        "type": "scatter", "mode": "markers+text", "name": f"{plain(case.label)}, {step.name}",
        "x": [float(op.flops) / float(op.bytes) for op in ops], "y": rates, "hoverinfo": "text",
        "hovertext": [_kernel_words(case, step, op, share) for op, share in held],
        "text": _labels(ops, named),
        "textposition": "bottom center", "textfont": {"size": 11, "color": series(number)},
        "marker": {"symbol": SIGN[step.name], "size": [_across(share) for _, share in held],
                   "color": series(number, 0.45), "line": {"color": series(number), "width": 1.2}},
        "error_y": {"type": "data", "symmetric": False, "array": [max(lift, 0.0) for lift in lifts],
                    "arrayminus": [0.0] * len(ops), "color": series(number, 0.6), "thickness": 1, "width": 0},
    }  # fmt: skip


def _labels(ops: Sequence[KernelTime], named: set[tuple[float, float]]) -> list[str]:
    """The names of kernels at the places that carry one; a place is named once."""
    texts = []
    for op in ops:
        at = _place(op)
        texts.append(plain(op.path.rsplit(".", 1)[-1], 24) if at in named else "")
        named.discard(at)
    return texts


def _across(share: float) -> float:
    """Pixels across of a mark whose area grows with the share of the time."""
    return SMALLEST + (LARGEST - SMALLEST) * sqrt(share)


def _kernel_words(case: Case, step: StepTime, op: KernelTime, share: float) -> str:
    across, seconds = float(op.flops) / float(op.bytes), float(op.expected_s)
    light = f"speed of light {format_seconds(float(op.ideal_s))}, {percent(float(op.ideal_s) / seconds)} of it reached"
    return hover(
        f"<b>{plain(case.label)}</b>, {step.name}", plain(op.path),
        f"{across:,.4g} FLOP per byte, {float(op.flops) / seconds / 1e12:,.4g} TFLOP/s",
        f"{format_seconds(seconds)}, {percent(share)} of {step.name}", light, f"basis: {EVIDENCE[step.evidence]}",
    )  # fmt: skip


def _measured(seen: Sequence[MeasuredStep]) -> JsonObject:
    return {
        "type": "scatter", "mode": "markers", "name": "measured in public runs", "x": [s.intensity for s in seen],
        "y": [s.rate / 1e12 for s in seen], "hovertext": [plain(s.words, 200) for s in seen], "hoverinfo": "text",
        "marker": {"symbol": "diamond-open", "size": 11, "color": "@ink", "line": {"width": 2, "color": "@ink"}},
    }  # fmt: skip


def _finding(device: Hardware, cases: Sequence[Case], peaks: dict[str, float]) -> str:
    """How much of each phase is compute-bound, from the least to the most of the cases."""
    parts = []
    for name in SIGN:
        shares = [compute_bound_share(step) for case in cases if (step := getattr(case.estimate, name)) is not None]
        ends = list(dict.fromkeys(f"{100 * share:.0f}" for share in (min(shares), max(shares)))) if shares else []
        if ends:
            parts.append(f"{'none' if ends == ['0'] else ' to '.join(ends) + ' %'} of {name}")
    ridge = peaks["bf16"] / device.bandwidth
    limited = f"Compute-bound: {', '.join(parts)}" if parts else "No kernel to show"
    return f"{limited}; the bf16 ridge is at {ridge:,.0f} FLOP per byte."


def _table(steps: Sequence[tuple[int, Case, StepTime]]) -> Table:
    rows = []
    for _, case, step in steps:
        total = float(step.total("expected_s")) or 1.0
        for op in arithmetic(step):
            seconds, ideal = float(op.expected_s), float(op.ideal_s)
            rows.append([
                case.label, step.name, op.path, f"{float(op.flops) / float(op.bytes):,.4g}",
                f"{float(op.flops) / seconds / 1e12:,.4g}", f"{float(op.flops) / ideal / 1e12:,.4g}" if ideal else "–",
                percent(seconds / total),
            ])  # fmt: skip
    head = ["", "phase", "kernel", "FLOP per byte", "TFLOP/s expected", "TFLOP/s, speed of light", "share of the time"]
    return Table(head, rows)
