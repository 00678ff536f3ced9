"""The roofline of each device with every kernel of every candidate on it, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from archsim.render.figures.roofline import MeasuredStep
from archsim.render.html.grid import PHASES, Grid, GridRun, arithmetic, compute_bound_share, roof_of
from archsim.render.html.markup import details, figure, figures, name_of, safe, table
from archsim.render.html.plots import SHAPES, Frame, chart_svg, frame
from archsim.render.page import plural
from archsim.spec.hardware import Hardware
from archsim.timing.device import DeviceRates
from archsim.timing.step_time import KernelTime

SMALLEST, GROWTH = 2.2, 9.0
"""Radius of a kernel without weight in the time, and what one that takes all of it has more."""

LETTER = 14
SLIGHT = 0.01
"""Share of the time below which a kernel is slight: it is left out first where a file would be too large."""


def rooflines(grid: Grid, devices: Sequence[Hardware], seen: Sequence[MeasuredStep]) -> str:
    """One chart for each device: its roofs, kernels at the expected rate, a line up to the speed of light."""
    made = []
    for number, device in enumerate(devices):
        runs = [run for run in grid.runs if run.base.hardware.id == device.id]
        made.append(_panel(number, device, runs, [s for s in seen if s.device == device.id]))
    twins = "".join(_twin(number, device, grid) for number, device in enumerate(devices))
    return f'<div class="plots">{"".join(made)}</div>' + details("Every kernel as a table", twins, "long kernels")


def peaks_of(device: Hardware, runs: Sequence[GridRun]) -> dict[str, float]:
    """FLOP/s of the dtypes that the runs multiply in, as the device computes them."""
    rates = DeviceRates(device)
    found = {"bf16": rates.matrix_flops("bf16")}
    for run in runs:
        for stored in run.base.formats.weights.values():
            found.setdefault(rates.computes(stored.compute), rates.matrix_flops(stored.compute))
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def _panel(number: int, device: Hardware, runs: Sequence[GridRun], seen: Sequence[MeasuredStep]) -> str:
    peaks = peaks_of(device, runs)
    every = [p for run in runs for e in run.answers.values() for phase in (e.prefill, e.decode)
             if phase is not None for op in arithmetic(phase) for p in [roof_of(op, 1.0)]]  # fmt: skip
    points = [*every, *((s.intensity, s.rate / 1e12, s.rate / 1e12, 0.0) for s in seen)]
    ridges = [peak / device.bandwidth for peak in peaks.values()]
    found = frame(
        [*(p[0] for p in points), *ridges, 2 * max(ridges)],
        [*(p[1] for p in points), max(peaks.values()) / 1e12],
        "FLOP per byte", "TFLOP/s of one device",
    )  # fmt: skip
    marks = "".join(_marks(found, run) for run in runs if run.compared)
    fixed = _roofs(found, device.bandwidth, peaks)
    over = "".join(_measured_points(found, s) for s in seen) + _ceilings(found, peaks)
    title = f"Roofline of {device.id} with every kernel"
    picture = chart_svg(f"roof{number}", found, marks, title).replace('<g class="marks"', f'{fixed}<g class="marks"', 1)
    picture = picture.removesuffix("</svg>") + f"{over}</svg>"
    return figure(picture, _caption(device, runs, peaks, seen), key=f"roof{number}")


def _caption(device: Hardware, runs: Sequence[GridRun], peaks: dict[str, float], seen: Sequence[MeasuredStep]) -> str:
    ridges = ", ".join(f"{name} {peak / device.bandwidth:,.0f}" for name, peak in peaks.items())
    several = (
        f"Hollow diamonds: {plural(len(seen), 'step')} measured in public runs."
        if seen
        else "No published measurement of these models to show."
    )
    return f"{name_of(device.name)}: {_bound(runs)}. The ridge is at {ridges} FLOP per byte. {several}"


def _bound(runs: Sequence[GridRun]) -> str:
    """How much of each phase arithmetic limits, from the least to the most of the runs."""
    found = []
    for name in PHASES:
        shares = [compute_bound_share(p) for run in runs if run.compared and (p := getattr(run.base, name)) is not None]
        if shares:
            ends = dict.fromkeys(f"{100 * share:.0f}" for share in (min(shares), max(shares)))
            found.append(f"{'none' if list(ends) == ['0'] else ' to '.join(ends) + ' %'} of {name}")
    return f"arithmetic limits {' and '.join(found)}"


def _roofs(found: Frame, bandwidth: float, peaks: dict[str, float]) -> str:
    """The slope of the memory and a ceiling for each dtype."""
    x, y = found.x, found.y
    low, high, floor = 10**x.low, 10**x.high, 10**y.low
    parts = []
    for peak in sorted(set(peaks.values())):
        ridge, start = peak / bandwidth, max(low, floor * 1e12 / bandwidth)
        path = f"M{x.at(start):.1f} {y.at(start * bandwidth / 1e12):.1f}L{x.at(ridge):.1f} {y.at(peak / 1e12):.1f}"
        parts.append(f'<path class="roof" d="{path}H{x.at(high):.1f}"/>')
    return "".join(parts)


def _ceilings(found: Frame, peaks: dict[str, float]) -> str:
    """The name of each ceiling, above its line where there is room, else below."""
    parts, above = [], -math.inf
    for peak in sorted(set(peaks.values()), reverse=True):
        name = ", ".join(dtype for dtype, value in peaks.items() if value == peak)
        up = found.y.at(peak / 1e12)
        at = up - 5 if up - above >= 2 * LETTER else up + LETTER
        parts.append(
            f'<text class="roof-name" x="{found.x.end - 4}" y="{at:.1f}" text-anchor="end">'
            f"{safe(name)} {peak / 1e12:,.0f}</text>"
        )
        above = up
    return "".join(parts)


def _marks(found: Frame, run: GridRun) -> str:
    weighty: list[str] = []
    slight: list[str] = []
    for name in PHASES:
        phase = getattr(run.base, name)
        if phase is None:
            continue
        total = float(phase.total("expected_s"))
        for op in arithmetic(phase):
            kind = slight if float(op.expected_s) < SLIGHT * total else weighty
            kind.append(_mark(found, run, name, op, total))
    return "".join(weighty) + (f'<g class="slight">{"".join(slight)}</g>' if slight else "")


def _mark(found: Frame, run: GridRun, phase: str, op: KernelTime, total: float) -> str:
    across, rate, ideal, share = roof_of(op, total)
    x, y, r = found.x.at(across), found.y.at(rate), SMALLEST + GROWTH * math.sqrt(share)
    style = f"c{run.number % SHAPES}"
    what = f"{figures(across)} FLOP/B, {figures(rate)} TFLOP/s, {figures(100 * share)} % of the time"
    words = f"{run.label}, {phase}, {op.path}: {what}"
    dot = (
        f'<circle class="op {style}" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}">'
        if phase == "decode"
        else f'<rect class="op {style}" x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}">'
    )
    end = "</circle>" if phase == "decode" else "</rect>"
    top = found.y.at(ideal)
    lift = f'<path class="gap {style}" d="M{x:.1f} {y:.1f}V{top:.1f}"/>' if y - top >= 1 else ""
    return f"{lift}{dot}<title>{safe(words)}</title>{end}"


def _measured_points(found: Frame, seen: MeasuredStep) -> str:
    x, y = found.x.at(seen.intensity), found.y.at(seen.rate / 1e12)
    return f'<path class="seen" d="M{x:.1f} {y - 6:.1f}l6 6-6 6-6-6z"><title>{safe(seen.words)}</title></path>'


def _twin(number: int, device: Hardware, grid: Grid) -> str:
    rows = [
        [run.label, name, op.path, *(figures(value) for value in roof_of(op, float(phase.total("expected_s")))[:3]),
         f"{figures(100 * float(op.expected_s) / float(phase.total('expected_s')))} %"]
        for run in grid.compared if run.base.hardware.id == device.id
        for name in PHASES if (phase := getattr(run.base, name)) is not None
        for op in arithmetic(phase)
    ]  # fmt: skip
    head = ["", "phase", "kernel", "FLOP per byte", "TFLOP/s expected", "TFLOP/s, speed of light", "share of the time"]
    return table(f"Kernels on {device.id}", head, rows, f"roof{number}-table")
