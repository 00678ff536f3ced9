"""Throughput against latency: a small chart for each device, on the same axes, with the 80 % interval as a band."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from archsim.predict.estimate import Estimate
from archsim.render.figures.curves import front
from archsim.render.html.grid import Grid, GridRun
from archsim.render.html.markup import figure, significant, table
from archsim.render.html.plots import SHAPES, Frame, chart_svg, frame, line

NAMES = "tokens/s of one user", "tokens/s of one device"


class Rate(NamedTuple):
    """Both rates at one batch, and the factors from them to the slow and the fast end of the interval."""

    batch: int
    user: float
    device: float
    slow: float
    fast: float


def pareto(grid: Grid) -> str:
    """A chart for each device; nothing where no token is written."""
    every = [rate for run in grid.runs for e in run.answers.values() if (rate := rate_of(e)) is not None]
    if not every:
        return ""
    ends = [(rate.user * f, rate.device * f) for rate in every for f in (rate.slow, rate.fast)]
    found = frame([end[0] for end in ends], [end[1] for end in ends], *NAMES)
    shown = [(rate.user, rate.device) for run in grid.compared for rate in rates(run, grid)]
    best = _front(found, front(shown))
    devices = dict.fromkeys(run.base.hardware.id for run in grid.runs)
    return "".join(_panel(number, name, found, best, grid) for number, name in enumerate(devices))


def _panel(number: int, device: str, found: Frame, best: str, grid: Grid) -> str:
    """The candidates of one device before the best of all devices."""
    runs = [run for run in grid.compared if run.base.hardware.id == device]
    marks = best + "".join(_band(found, run, rates(run, grid)) for run in runs)
    marks += "".join(_line(found, run, grid) for run in runs)
    key = f"pareto{number}"
    head = ["", *(f"{batch:,}" for batch in grid.batches)]
    twin = table(
        f"{device}: {NAMES[0]} / {NAMES[1]}, by batch", head, [_row(run, grid) for run in runs], f"{key}-table"
    )
    title = f"{device}: throughput per device against speed per user"
    return figure(chart_svg(key, found, marks, title), _caption(device, runs, grid), twin, key)


def _caption(device: str, runs: Sequence[GridRun], grid: Grid) -> str:
    """Who is best at each end."""
    points = [(run, rate) for run in runs for rate in rates(run, grid)]
    if not points:
        return f"{device}: nothing fits."
    fast, full = max(points, key=lambda p: p[1].user), max(points, key=lambda p: p[1].device)
    return (
        f"{device}: for one user at most {significant(fast[1].user)} tokens/s ({fast[0].label}, batch "
        f"{fast[1].batch:,}), of a device at most {significant(full[1].device)} ({full[0].label}, batch "
        f"{full[1].batch:,})."
    )


def rate_of(e: Estimate) -> Rate | None:
    """The rates of one estimate; None where it does not fit or writes nothing."""
    if e.decode is None or not e.memory.fits:
        return None
    expected, m = float(e.decode.expected_s), e.metrics
    slow, fast = expected / float(e.decode.high_s), expected / float(e.decode.low_s)
    user, device = float(m["tokens_per_s_per_user"] or 0), float(m["tokens_per_s_per_device"] or 0)
    return Rate(e.workload.batch, user, device, slow, fast)


def rates(run: GridRun, grid: Grid) -> list[Rate]:
    """Of every batch that fits at the report's context."""
    found = (rate_of(run.answers[batch, grid.at[1]]) for batch in grid.batches)
    return [rate for rate in found if rate is not None]


def _path(found: Frame, points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{found.x.at(a):.1f} {found.y.at(b):.1f}" for a, b in points)


def _front(found: Frame, points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="front" d="M{_path(found, points)}"/>' if points else ""


def _band(found: Frame, run: GridRun, listed: Sequence[Rate]) -> str:
    """The area between the slow and the fast end; of a single batch a stroke."""
    if not listed:
        return ""
    slow = [(r.user * r.slow, r.device * r.slow) for r in listed]
    fast = [(r.user * r.fast, r.device * r.fast) for r in reversed(listed)]
    return f'<path class="band c{run.number % SHAPES}" d="M{_path(found, [*slow, *fast])}Z"/>'


def _line(found: Frame, run: GridRun, grid: Grid) -> str:
    points = [
        (r.user, r.device, f"{run.label}, batch {r.batch:,}: {significant(r.user)} tokens/s per user, "
         f"{significant(r.device)} of a device") for r in rates(run, grid)
    ]  # fmt: skip
    return line(found, run.number, points) + _ring(found, run, grid)


def _ring(found: Frame, run: GridRun, grid: Grid) -> str:
    """A ring around the report's own batch."""
    rate = rate_of(run.answers[grid.at])
    if rate is None:
        return ""
    return f'<circle class="seen" cx="{found.x.at(rate.user):.1f}" cy="{found.y.at(rate.device):.1f}" r="7"/>'


def _row(run: GridRun, grid: Grid) -> list[str]:
    known = {rate.batch: rate for rate in rates(run, grid)}
    cells = (f"{significant(r.user)} / {significant(r.device)}" if (r := known.get(b)) else "–" for b in grid.batches)
    return [run.label, *cells]
