"""Line charts on logarithmic axes. A frame stays as it is while the page's script moves the marks in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from archsim.base.units import format_bytes
from archsim.predict.estimate import Estimate
from archsim.render.html.grid import Grid, GridRun
from archsim.render.html.markup import figure, safe, table
from archsim.render.html.validate_svg import Axis, axis_ends, number, ticks

WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 48
SHAPES = 8

BEYOND = 4
"""How far the cache's axis goes beyond the largest room that a device has for it."""

INSIDE = (
    f'<svg width="0" height="0" class="defs" aria-hidden="true"><clipPath id="inside"><rect x="{LEFT - 6}" '
    f'y="{TOP - 8}" width="{WIDTH - LEFT - RIGHT + 14}" height="{HEIGHT - TOP - BOTTOM + 16}"/></clipPath></svg>'
)
"""What every chart's marks are cut at, once for a page."""

Point = tuple[float, float, str]
"""Both values, and what the point is in words."""


class Frame(NamedTuple):
    """Axes with their names and ticks: (value, text) pairs."""

    x: Axis
    y: Axis
    x_name: str
    y_name: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]


def frame(xs: Iterable[float], ys: Iterable[float], x_name: str, y_name: str, doubling: bool = False) -> Frame:
    """Axes around all values. doubling: ticks across at the values themselves, as powers of two are read."""
    across, up = [v for v in xs if v > 0] or [1.0], [v for v in ys if v > 0] or [1.0]
    x = Axis(*axis_ends(across, 0.5), LEFT, WIDTH - RIGHT)
    y = Axis(*axis_ends(up, 0.5), HEIGHT - BOTTOM, TOP)
    marks = sorted(set(across)) if doubling else ticks(x.low, x.high)
    texts = [(v, size(v) if doubling else number(v)) for v in marks]
    return Frame(x, y, x_name, y_name, texts, [(v, number(v)) for v in ticks(y.low, y.high)])


def size(tokens: float) -> str:
    """A number of tokens as people say it: 4k for 4,096."""
    return f"{tokens / 1024:g}k" if tokens >= 1024 and tokens % 512 == 0 else f"{tokens:g}"


def chart_svg(key: str, found: Frame, marks: str, title: str) -> str:
    """The chart. title: what it shows, for readers who cannot see it."""
    x, y = found.x, found.y
    ends = [" ".join(f"{v:.6g}" for v in axis) for axis in (x, y)]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(title)}" id="{key}" data-x="{ends[0]}" '
        f'data-y="{ends[1]}">{_axes(found)}<g class="marks" clip-path="url(#inside)">{marks}</g></svg>'
    )


def _axes(found: Frame) -> str:
    x, y = found.x, found.y
    parts = []
    for value, text in found.x_ticks:
        at = x.at(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {y.start}V{y.end}"/>')
        parts.append(f'<text x="{at:.1f}" y="{y.start + 17}" text-anchor="middle">{safe(text)}</text>')
    for value, text in found.y_ticks:
        up = y.at(value)
        parts.append(f'<path class="grid" d="M{x.start} {up:.1f}H{x.end}"/>')
        parts.append(f'<text x="{x.start - 6}" y="{up + 4:.1f}" text-anchor="end">{safe(text)}</text>')
    middle, centre = (x.start + x.end) / 2, (y.start + y.end) / 2
    return (
        f"{''.join(parts)}"
        f'<path class="frame" d="M{x.start} {y.end}V{y.start}H{x.end}"/>'
        f'<text class="name" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{safe(found.x_name)}</text>'
        f'<text class="name" transform="translate(13 {centre}) rotate(-90)" text-anchor="middle">'
        f"{safe(found.y_name)}</text>"
    )


def shape_of(number_: int) -> int:
    """The mark of a candidate: another for every one of the eight that share a colour."""
    return (number_ + number_ // SHAPES) % SHAPES


def line(found: Frame, number_: int, points: Sequence[Point]) -> str:
    """One candidate's points, joined."""
    style = f"c{number_ % SHAPES}"
    parts = []
    if len(points) > 1:
        path = "L".join(f"{found.x.at(a):.1f} {found.y.at(b):.1f}" for a, b, _ in points)
        parts.append(f'<path class="line {style}" d="M{path}"/>')
    for a, b, words in points:
        parts.append(
            f'<use href="#g{shape_of(number_)}" class="{style}" x="{found.x.at(a):.1f}" y="{found.y.at(b):.1f}">'
            f"<title>{safe(words)}</title></use>"
        )
    return "".join(parts)


# ------------------------------------------------------------------ what grows with the context
def growth(grid: Grid) -> str:
    """Bytes of the cache of one device against the context, and what is left for it."""
    runs = [run for run in grid.runs if any(e.memory.kv_cache for e in run.answers.values())]
    if not runs:
        return ""
    rooms = [_room(run, grid) for run in runs]
    ys = [e.memory.kv_cache / 1e9 for run in runs for (b, _), e in run.answers.items() if b == grid.at[0]]
    top = max(*ys, BEYOND * max(rooms))  # of other batches only as much as lies near what devices hold
    ys += [y for run in runs for e in run.answers.values() if (y := e.memory.kv_cache / 1e9) <= top]
    found = frame(grid.contexts, [*ys, *rooms], "context (prompt tokens)", "cache of one device (GB)", doubling=True)
    batch = grid.at[0]
    marks = []
    for run in (r for r in runs if r.compared):
        points = [
            (c, e.memory.kv_cache / 1e9, f"{run.label}, {c:,} tokens: {format_bytes(e.memory.kv_cache)}")
            for c in grid.contexts if (e := run.answers[batch, c]).memory.kv_cache
        ]  # fmt: skip
        marks.append(line(found, run.number, points) + _limit(found, run, grid))
    told = f"{_longest_prompts(grid)}Dashed: what a device has left for the cache beside weights and activations."
    twin = _by_context(grid, "cache", "Cache of one device", lambda e: format_bytes(e.memory.kv_cache))
    return figure(chart_svg("cache", found, "".join(marks), "Cache against context"), told, twin, "cache")


def _longest_prompts(grid: Grid) -> str:
    """The longest prompts that fit at the report's batch, of who can take most and who least."""
    batch, most = grid.at[0], []
    for run in grid.compared:
        fitting = [c for c in grid.contexts if run.answers[batch, c].memory.fits]
        most.append((max(fitting, default=0), run.label))
    high, low = max(most, key=lambda m: m[0]), min(most, key=lambda m: m[0])
    said = f"At batch {batch:,} prompts of {high[0]:,} tokens fit {high[1]}" if high[0] else "No prompt shown fits"
    rest = f", of {low[0]:,} {low[1]}" if low[0] else f", none shown fits {low[1]}"
    return f"{said}{rest if high[0] > low[0] else ''}. "


def _room(run: GridRun, grid: Grid) -> float:
    """Gigabytes that are left for the cache at the report's workload."""
    m = run.answers[grid.at].memory
    return float(m.free + m.kv_cache) / 1e9


def _limit(found: Frame, run: GridRun, grid: Grid) -> str:
    """A line across at what is left for the cache, with the candidate's mark at its end."""
    room, style = _room(run, grid), f"c{run.number % SHAPES}"
    if room <= 0:
        return ""
    up = f"{found.y.at(room):.1f}"
    return (
        f'<path class="line beyond {style}" d="M{found.x.start} {up}H{found.x.end}"/>'
        f'<use href="#g{shape_of(run.number)}" class="{style}" x="{found.x.end}" y="{up}"/>'
    )


def _by_context(grid: Grid, key: str, caption: str, shown: Callable[[Estimate], str]) -> str:
    rows = [[run.label, *(shown(run.answers[grid.at[0], c]) for c in grid.contexts)] for run in grid.compared]
    return table(caption, ["", *(f"{c:,}" for c in grid.contexts)], rows, f"{key}-table")


def frontier(grid: Grid) -> str:
    """The largest batch that fits at each context, with the report's own workload marked."""
    if not any(e.memory.kv_cache for run in grid.runs for e in run.answers.values()):
        return ""
    ys = [float(v) for run in grid.runs for v in run.most.values()] + [float(b) for b in grid.batches]
    found = frame(grid.contexts, ys, "context (prompt tokens)", "largest batch that fits", doubling=True)
    marks = [line(found, run.number, _edge(run)) for run in grid.compared]
    batch, context = grid.at
    here = f'<path class="here" d="M{found.x.at(context):.1f} {found.y.start}V{found.y.end}'
    marks.append(f'{here}M{found.x.start} {found.y.at(batch):.1f}H{found.x.end}"/>')
    rows = [[run.label, *(f"{run.most[c]:,}" for c in grid.contexts)] for run in grid.compared]
    twin = table("Largest batch that fits", ["", *(f"{c:,}" for c in grid.contexts)], rows, "frontier-table")
    told = f"{_roomiest(grid)} What fits lies below a line; dotted: the workload shown."
    return figure(chart_svg("frontier", found, "".join(marks), "Largest batch against context"), told, twin, "frontier")


def _edge(run: GridRun) -> list[Point]:
    return [(c, most, f"{run.label}, {c:,} tokens: batch {most:,}") for c, most in run.most.items() if most > 0]


def _roomiest(grid: Grid) -> str:
    best = max(grid.compared, key=lambda run: run.most[grid.at[1]])
    most = best.most[grid.at[1]]
    return f"At {grid.at[1]:,} tokens {best.label} holds most: {most:,} sequences." if most else "Nothing fits."
