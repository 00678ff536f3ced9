"""One chart: what plotly draws, the finding in a sentence, and the same numbers as a table.

A chart is data until it is drawn: `spec` is what plotly.js takes, `figure` a plotly `Figure`. Only `figure` imports
plotly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from archsim.base.diagnostics import inert, shorten
from archsim.base.json_types import JsonObject
from archsim.render.figures.theme import Theme, coloured

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LABEL = 60
"""Characters of a name in a chart."""

LINES = 28
"""Pixels of a line of the legend."""

CONFIG: JsonObject = {
    "displaylogo": False, "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}  # fmt: skip
"""plotly's own controls: zoom, pan, back, and a picture as PNG."""

TICKS = 5
"""Labels along a horizontal logarithmic axis, about: more decades than half of it show no 2 and 5."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")
DASHES = ("solid", "dash", "dot")


class Table(NamedTuple):
    """The numbers of a chart: titles of columns, and rows whose first cell names them."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart. key: its id, the same in every run. finding: what it shows, in a sentence. traces, layout: as plotly.js
    takes them, colours by name. table: the same numbers.
    """

    key: str
    title: str
    finding: str
    traces: tuple[JsonObject, ...]
    layout: JsonObject
    table: Table

    def spec(self, theme: Theme = "light", *, titled: bool = False) -> JsonObject:
        """`data`, `layout` and `config` as plotly.js and Dash take them. titled: with the title above the chart."""
        bare = coloured({"data": list(self.traces), "layout": self.layout}, theme)
        if titled:
            layout = bare["layout"]
            heading = {"text": f"<b>{plain(self.title, 200)}</b>", "font": {"color": layout["font"]["color"]}}
            layout["title"] = {**heading, "x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 12}}
            layout["margin"] = {**layout["margin"], "t": layout["margin"]["t"] + 34}
            layout["height"] += 34
        return {**bare, "config": config(self.key)}

    def figure(self, theme: Theme = "light") -> Figure:
        """The chart with its title as a plotly `Figure`: `.show()`, `.write_html()`, `.write_image()`."""
        from plotly.graph_objects import Figure

        spec = self.spec(theme, titled=True)
        return Figure(data=spec["data"], layout=spec["layout"])


def config(key: str) -> JsonObject:
    """plotly's controls, with the name of a picture that is saved."""
    return {**CONFIG, "toImageButtonOptions": {"format": "png", "scale": 2, "filename": f"archsim-{key}"}}


def plain(value: object, limit: int = LABEL) -> str:
    """Text from outside as plotly shows it: on one line, bounded, and no markup of plotly's."""
    return escape(shorten(inert(str(value)[: limit + 1]), limit), quote=False)


def hover(*lines: str) -> str:
    """The text of a mark, one statement in each line; what comes from outside is `plain` already."""
    return "<br>".join(line for line in lines if line)


def layout(height: int, x: JsonObject, y: JsonObject, **more: object) -> JsonObject:
    """The common look: readable in light and dark, as wide as there is room, nothing random."""
    return {
        "height": height, "autosize": True, "margin": {"l": 12, "r": 14, "t": 30, "b": 12}, "hovermode": "closest",
        "paper_bgcolor": "@paper", "plot_bgcolor": "@paper",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@dim"},
        "hoverlabel": {"bgcolor": "@soft", "bordercolor": "@line", "align": "left", "font": {"color": "@ink"}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "traceorder": "normal",
                   "font": {"color": "@ink"}, "itemwidth": 30},
        "modebar": {"bgcolor": "@paper/0.0", "color": "@dim", "activecolor": "@accent"},
        "xaxis": x, "yaxis": y, "uirevision": "same", **more,
    }  # fmt: skip


def axis(title: str, **more: object) -> JsonObject:
    """An axis with its quantity and unit."""
    return {
        "title": {"text": title, "font": {"color": "@ink"}, "standoff": 8}, "automargin": True, "gridcolor": "@line",
        "linecolor": "@dim", "zerolinecolor": "@line", "ticks": "", "fixedrange": False, **more,
    }  # fmt: skip


def log_axis(title: str, values: Sequence[float] = (), **more: object) -> JsonObject:
    """A vertical logarithmic axis with a tick at 1, 2 and 5 of every decade, in words such as 20k; at every digit where
    the values that are given lie within one decade.
    """
    close = bool(values) and max(values) < 10 * min(values)
    return axis(title, **{"type": "log", "dtick": "D1" if close else "D2", "tickformat": "~s", **more})


def wide_log_axis(title: str, **more: object) -> JsonObject:
    """A horizontal one: over many decades their powers of ten alone, since labels beside one another take room."""
    return axis(title, **{"type": "log", "nticks": TICKS, "tickformat": "~s", **more})


def token_axis(title: str, values: Sequence[int]) -> JsonObject:
    """A logarithmic axis of powers of two, each value a tick: 4k for 4,096."""
    shown = sorted(set(values))
    stride = max(1, -(-len(shown) // 9))
    kept = shown[::stride]
    return axis(title, type="log", tickmode="array", tickvals=kept, ticktext=[short_tokens(v) for v in kept])


def short_tokens(tokens: float) -> str:
    """A number of tokens as people say it: 4k for 4,096."""
    return f"{tokens / 1024:g}k" if tokens >= 1024 and tokens % 512 == 0 else f"{tokens:g}"


def legend_height(names: Sequence[str], width: int = 640) -> int:
    """Pixels that a legend takes above a chart of a usual width."""
    if len(names) < 2:
        return 0
    long = sum(7 * len(name) + 50 for name in names)
    return LINES * -(-long // width)


def symbol(number: int) -> str:
    """The mark of one of several series: another for each that shares a colour."""
    return SYMBOLS[(number + number // len(SYMBOLS)) % len(SYMBOLS)]


def dash(number: int) -> str:
    """The line of one of several series: another for each that shares a colour."""
    return DASHES[number // len(SYMBOLS) % len(DASHES)]
