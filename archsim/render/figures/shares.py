"""Shares by year as stacked bars: a colour and a pattern for each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.json_types import JsonObject
from archsim.render.figures.chart import Chart, Table, axis, hover, layout, legend_height, plain
from archsim.render.figures.theme import SERIES, series

HEIGHT = 320
PATTERNS = ("", "/", ".", "\\", "-", "|", "x", "+")
"""What is drawn over each colour, so that no colour stands alone."""


def shares_by_year(
    years: Sequence[str],
    wholes: Sequence[int],
    values: Mapping[str, Sequence[int]],
    *,
    key: str,
    title: str,
    finding: str,
) -> Chart:
    """Bars of the values' shares, one a year. wholes: designs of each year; years without any are left out.

    A design may have several values, so that a year's values can be more than its designs: shares are of their sum.
    """
    shown = [i for i, whole in enumerate(wholes) if whole]
    sums = [sum(counts[i] for counts in values.values()) or 1 for i in shown]
    traces: list[JsonObject] = []
    for number, (name, counts) in enumerate(values.items()):
        colour = min(number, SERIES - 1)
        words = [hover(f"{years[i]}: {plain(name)}", f"{counts[i]} of {wholes[i]} designs") for i in shown]
        traces.append({
            "type": "bar", "name": plain(name), "x": [years[i] for i in shown], "hovertext": words, "hoverinfo": "text",
            "y": [100 * counts[i] / total for i, total in zip(shown, sums, strict=True)],
            "marker": {"color": series(colour), "line": {"color": "@paper", "width": 1},
                       "pattern": {"shape": PATTERNS[colour], "bgcolor": series(colour), "fgcolor": "@paper",
                                   "solidity": 0.25, "size": 7}},
        })  # fmt: skip
    rows = [[name, *(f"{n}" if n else "·" for n in counts)] for name, counts in values.items()]
    return Chart(
        key=key, title=title, finding=finding, traces=tuple(traces),
        layout=layout(HEIGHT + legend_height([*values]), axis("year of release", type="category"),
                      axis("share of designs (%)", range=[0, 100]), barmode="stack", bargap=0.12),
        table=Table(["", *years], [*rows, ["designs", *(f"{n}" for n in wholes)]]),
    )  # fmt: skip
