"""Predicted against measured on two equal logarithmic axes, with bands around what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.units import format_number
from archsim.render.figures.chart import (
    Chart,
    Table,
    hover,
    layout,
    legend_height,
    log_axis,
    plain,
    symbol,
    wide_log_axis,
)
from archsim.render.figures.theme import series

HEIGHT = 460
BANDS = ((0.25, 0.08), (0.10, 0.14))
"""Relative errors that a band stands for, and how much of it covers what lies behind."""


class Point(NamedTuple):
    """One row: both figures, its group's number, and what it is."""

    measured: float
    predicted: float
    group: int
    words: str


def predicted_measured(
    points: Sequence[Point], groups: Sequence[str], unit: str, *, key: str, title: str, finding: str,
    table: Table | None = None,
) -> Chart:  # fmt: skip
    """The scatter. groups: names by number. unit: of both axes. table: instead of the points themselves."""
    values = [value for p in points for value in (p.measured, p.predicted)]
    low, high = min(values) / 1.3, max(values) * 1.3
    traces = [*(_band(error, cover, low, high) for error, cover in BANDS), _exact(low, high)]
    for number, name in enumerate(groups):
        own = [p for p in points if p.group == number]
        if own:
            traces.append(_marks(number, name, own))
    form = "~s" if low >= 1 else "~g"  # 0.5, not 500m
    rows = [[p.words, format_number(p.measured), format_number(p.predicted), change(p)] for p in points]
    return Chart(
        key=key, title=title, finding=finding, traces=tuple(traces),
        layout=layout(HEIGHT + legend_height([*groups, "x" * 20]), wide_log_axis(f"measured ({unit})", tickformat=form),
                      log_axis(f"predicted ({unit})", tickformat=form)),
        table=table or Table(["", f"measured ({unit})", f"predicted ({unit})", "error"], rows),
    )  # fmt: skip


def change(p: Point) -> str:
    """How far off the prediction is, with its sign."""
    return f"{100 * (p.predicted / p.measured - 1):+.1f} %".replace("-", "−")


def _band(error: float, cover: float, low: float, high: float) -> JsonObject:
    return {
        "type": "scatter", "mode": "lines", "name": f"± {error:.0%}", "x": [low, high, high, low],
        "y": [low * (1 - error), high * (1 - error), high * (1 + error), low * (1 + error)], "fill": "toself",
        "fillcolor": f"@s0/{cover:g}", "line": {"width": 0, "color": "@s0/0.3"}, "hoverinfo": "skip",
    }  # fmt: skip


def _exact(low: float, high: float) -> JsonObject:
    return {
        "type": "scatter", "mode": "lines", "name": "predicted = measured", "x": [low, high], "y": [low, high],
        "line": {"color": "@ink", "width": 1.2}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _marks(number: int, name: str, points: Sequence[Point]) -> JsonObject:
    words = [
        hover(plain(p.words, 160), f"measured {format_number(p.measured)}, predicted {format_number(p.predicted)}",
              f"error {change(p)} = predicted / measured − 1") for p in points
    ]  # fmt: skip
    return {
        "type": "scatter", "mode": "markers", "name": plain(name), "x": [p.measured for p in points],
        "y": [p.predicted for p in points], "hovertext": words, "hoverinfo": "text",
        "marker": {"symbol": symbol(number), "size": 7, "color": series(number, 0.7), "line": {"width": 0}},
    }  # fmt: skip
