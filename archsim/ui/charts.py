"""The charts of the page: those of `archsim.render.figures`, for the candidates that have an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from archsim.base.diagnostics import shorten
from archsim.base.json_types import JsonObject
from archsim.render.figures.bars import Case, memory_bars, time_bars
from archsim.render.figures.chart import Chart, legend_height
from archsim.render.figures.curves import ContextCurve, time_growth
from archsim.render.figures.roofline import roofline
from archsim.render.figures.theme import Theme
from archsim.ui.answers import Answer, Answers
from archsim.ui.cards import LETTERS

WIDTH = 640
"""Pixels across of a chart, where the browser does not say."""
ENTRY, LETTER, LINE = 56, 7, 21
"""Pixels of a legend: of an entry beside its name, of a letter, of a line."""
MOST_LETTERS = 24
"""Of a name in a chart."""


def charts(given: Sequence[Answer], answers: Answers) -> dict[str, Callable[[], Chart]]:
    """Chart by its place on the page (`CHARTS` of layout.py), made when it is asked for; a place without one is left
    out.
    """
    cases = [Case(_label(i, a, len(given)), a.estimate) for i, a in enumerate(given) if a.estimate is not None]
    if not cases:
        return {}
    found = {"memory": lambda: memory_bars(cases), "prefill": lambda: time_bars(cases, "prefill")}
    if any(case.estimate.decode is not None for case in cases):
        found |= {"decode": lambda: time_bars(cases, "decode"), "growth": lambda: _growth(given, cases, answers)}
    devices = {case.estimate.hardware.id: case.estimate.hardware for case in cases}
    for i, device in enumerate(devices.values()):
        found[f"roof{i}"] = partial(roofline, device, cases, key=f"roof{i}")
    return found


def _growth(given: Sequence[Answer], cases: Sequence[Case], answers: Answers) -> Chart:
    return time_growth(list(_curves(given, answers)), cases[0].estimate.workload.batch)


def _label(number: int, answer: Answer, count: int) -> str:
    """The model's name behind its letter: what it runs on stands on the card, and charts are narrow."""
    name = shorten(answer.name, MOST_LETTERS)
    return f"{LETTERS[number]}: {name}" if count > 1 else name


def _curves(given: Sequence[Answer], answers: Answers) -> Iterator[ContextCurve]:
    """Time per token over contexts, of each candidate that writes."""
    for i, answer in enumerate(given):
        contexts, times = answers.curve(answer)
        points = [(context, float(time.expected_s)) for context, time in zip(contexts, times, strict=True)]
        if points:
            yield ContextCurve(_label(i, answer, len(given)), points)


def height_of(chart: Chart, width: int) -> int:
    """Pixels of a chart of so many across: as many lines more for its legend as names then take."""
    if chart.layout.get("showlegend") is False:
        return int(chart.layout["height"])
    names = [str(trace.get("name", "")) for trace in chart.traces if trace.get("showlegend", True)]
    columns = max(1, width // (ENTRY + LETTER * max(map(len, names), default=1)))
    lines = -(-len(names) // columns)
    return int(chart.layout["height"]) + max(0, LINE * lines - legend_height(names))


def drawn(chart: Chart, theme: Theme, width: int) -> JsonObject:
    """A chart as page.js takes it: what plotly draws, its title and finding, and its numbers."""
    spec = chart.spec(theme)
    legend = {**spec["layout"].get("legend", {}), "maxheight": 1}
    return {
        "figure": {**spec, "layout": {**spec["layout"], "height": height_of(chart, width), "legend": legend}},
        "title": chart.title,
        "finding": chart.finding, "head": list(chart.table.head), "rows": [list(row) for row in chart.table.rows],
    }  # fmt: skip
