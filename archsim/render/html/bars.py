"""Bars: where the time of both phases goes, and what fills the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archsim.base.units import format_bytes, format_seconds, format_span
from archsim.memory.engine_memory import DeviceMemory
from archsim.predict.estimate import Estimate
from archsim.predict.model_parts import seconds_by_part
from archsim.render.html.grid import PHASES, Grid, GridRun
from archsim.render.html.markup import Cell, figure, legend, list_names, safe, table
from archsim.render.page import percent
from archsim.timing.step_time import StepTime

LENGTH, THICK = 1000, 20
"""Units of a bar; the picture stretches it to the room there is."""

COLOURS = 8
MEMORY = ("weights", "cache", "activations", "runtime")
NAMES = {"prefill": "Prefill (time to the first token)", "decode": "Decode (time per token)"}


class Bar(NamedTuple):
    """One bar: pieces of (colour, share of the length, words), and what stands behind it.

    span: ends of the interval; ticks: marks across, as shares; room: end of the outline, for memory.
    """

    label: str
    value: str
    pieces: Sequence[tuple[int, float, str]]
    span: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    room: float | None = None


def bars(key: str, title: str, listed: Sequence[Bar]) -> str:
    """The bars below one another."""
    rows = "".join(_bar(bar) for bar in listed)
    return f'<div class="bars" id="{key}" role="img" aria-label="{safe(title)}">{rows}</div>'


def _bar(bar: Bar) -> str:
    parts, at, room = [], 0.0, ""
    if bar.room is not None:
        room = f'<rect class="room" x="0" width="{LENGTH * bar.room:.1f}" height="{THICK}"/>'
    for colour, share, words in bar.pieces:
        size = LENGTH * share
        parts.append(
            f'<rect class="p{min(colour, COLOURS - 1)}" x="{at:.1f}" width="{size:.1f}" height="{THICK}">'
            f"<title>{safe(words)}</title></rect>"
        )
        at += size
    if bar.span is not None:
        low, high = (LENGTH * end for end in bar.span)
        parts.append(f'<rect class="span" x="{low:.1f}" y="8.5" width="{high - low:.1f}" height="3"/>')
    parts += [f'<rect class="tick" x="{LENGTH * tick - 1.5:.1f}" width="3" height="{THICK}"/>' for tick in bar.ticks]
    return (
        f'<div class="bar"><span class="who">{safe(bar.label)}</span><svg viewBox="0 0 {LENGTH} {THICK}" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}{room}</svg>'
        f'<span class="val">{safe(bar.value)}</span></div>'
    )


def swatch(colour: int) -> str:
    """The sign of a colour in a legend."""
    square = f'<rect class="p{colour}" width="10" height="10"/>'
    return f'<svg viewBox="0 0 10 10" class="key" aria-hidden="true">{square}</svg>'


# ------------------------------------------------------------------ time
def time(grid: Grid) -> str:
    """Both phases, a bar for every candidate, by part of the model."""
    made = []
    for phase in PHASES:
        shown = [(run, found) for run in grid.compared if (found := getattr(run.base, phase)) is not None]
        if shown:
            top = max(float(found.high_s) for _, found in shown)
            listed = [_time_bars(run, found, grid, top) for run, found in shown]
            made.append(f"<h3>{NAMES[phase]}</h3>" + bars(f"time-{phase}", NAMES[phase], listed))
    head = ["", "phase", "expected", "80 % interval", "speed of light", "limited by", "parts"]
    twin = table("Time of one step", head, _time_rows(grid), "time-table")
    picture = _parts_key(grid) + "".join(made)
    told = f"{_fastest(grid)} Vertical tick: speed of light. Thin line: 80 % interval."
    return figure(picture, told, twin, "time", "wide")


def _time_bars(run: GridRun, phase: StepTime, grid: Grid, top: float) -> Bar:
    shares = seconds_by_part(phase)
    pieces = [(i, shares[name] / top, f"{name}: {format_seconds(shares[name])}")
              for i, name in enumerate(grid.parts) if shares.get(name)]  # fmt: skip
    return Bar(
        label=run.label, value=format_seconds(float(phase.expected_s)), pieces=pieces,
        span=(float(phase.low_s) / top, float(phase.high_s) / top), ticks=(float(phase.ideal_s) / top,),
    )  # fmt: skip


def _time_rows(grid: Grid) -> list[list[str]]:
    rows = []
    for run in grid.compared:
        for name in PHASES:
            phase = getattr(run.base, name)
            if phase is not None:
                parts = sorted(seconds_by_part(phase).items(), key=lambda item: -item[1])
                rows.append([
                    run.label, name, format_seconds(float(phase.expected_s)), interval_text(phase),
                    format_seconds(float(phase.ideal_s)), phase.bound,
                    "; ".join(f"{part} {format_seconds(s)}" for part, s in parts if s),
                ])  # fmt: skip
    return rows


def interval_text(phase: StepTime) -> str:
    """The 80 % interval."""
    return format_span(float(phase.low_s), float(phase.high_s), "to")


def _parts_key(grid: Grid) -> str:
    names = list(grid.parts[: COLOURS - 1])
    names += ["other parts"] if len(grid.parts) == COLOURS else []
    if len(grid.parts) > COLOURS:
        names.append(f"{len(grid.parts) - COLOURS + 1} smaller parts")
    return legend((swatch(i), name) for i, name in enumerate(names))


def _fastest(grid: Grid) -> str:
    """Who is fastest at what takes longest to wait for: a token, or the phase that all have."""
    able = [run for run in grid.compared if run.base.memory.fits]
    decodes = all(run.base.decode is not None for run in able)
    timed = [(run, found) for run in able if (found := run.base.decode if decodes else run.base.prefill) is not None]
    if not timed:
        return "Nothing fits."
    run, phase = min(timed, key=lambda pair: float(pair[1].expected_s))
    part, most = max(seconds_by_part(phase).items(), key=lambda item: item[1])
    share = f"{part} {percent(most / float(phase.expected_s))}"
    return f"Shortest {phase.name}: {run.label}, {format_seconds(float(phase.expected_s))}, of which {share}."


# ------------------------------------------------------------------ memory
def memory(grid: Grid) -> str:
    """What fills one device, against its capacity."""
    runs = grid.compared
    top = max(max(run.base.memory.capacity, run.base.memory.needed) for run in runs)
    listed = [_memory_bars(run, top) for run in runs]
    picture = legend((swatch(i), name) for i, name in enumerate(MEMORY))
    picture += bars("memory", "Memory of one device", listed)
    short = [run.label for run in runs if not run.base.memory.fits]
    told = f"Does not fit: {list_names(short)}." if short else "All fit." if len(runs) > 1 else "It fits."
    fullest = max(runs, key=lambda run: share_of(run.base.memory))
    told += f" Fullest: {fullest.label}, {percent(share_of(fullest.base.memory))} of what is usable."
    told += " Outline: the device's memory. Vertical tick: usable memory."
    twin = table("Memory of one device", ["", *MEMORY, "free", "usable", ""], [
        _memory_row(run.label, run.base) for run in runs
    ], "memory-table")  # fmt: skip
    return figure(picture, told, twin, "memory", "wide")


def share_of(m: DeviceMemory) -> float:
    """Needed over usable."""
    return float(m.needed / m.usable) if m.usable else 0.0


def _memory_bars(run: GridRun, top: int) -> Bar:
    m = run.base.memory
    sizes = (m.weights, m.kv_cache, m.activations, m.runtime)
    pieces = [(i, size / top, f"{name}: {format_bytes(size)}")
              for i, (name, size) in enumerate(zip(MEMORY, sizes, strict=True)) if size]  # fmt: skip
    used = percent(m.needed / m.usable) if m.usable else "–"
    value = f"{format_bytes(m.needed)}, {used} of usable" + ("" if m.fits else ": no fit")
    return Bar(label=run.label, value=value, pieces=pieces, ticks=(m.usable / top,), room=m.capacity / top)


def _memory_row(label: str, e: Estimate) -> list[str | Cell]:
    m = e.memory
    sizes = (m.weights, m.kv_cache, m.activations, m.runtime, m.free, m.usable)
    return [label, *(format_bytes(size) for size in sizes), "fits" if m.fits else Cell("does not fit", True)]
