"""What servers hold under load: a bar for each candidate, with its 80 % interval."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.render.figures.bars import THICK, bar_layout
from archsim.render.figures.chart import Chart, Table, hover, plain
from archsim.render.figures.theme import series


def load_bars(rows: Sequence[JsonObject], labels: Sequence[str], measure: str, unit: str, finding: str) -> Chart:
    """The measure of each candidate with an answer. measure: its column; unit: in words; finding: the answer in a
    sentence.
    """
    known = [(one, label) for one, label in zip(rows, labels, strict=True) if one[measure] is not None]
    values = [one[measure] for one, _ in known]
    spans = [_span(one, measure) for one, _ in known]
    words = [f"{low:.4g} – {high:.4g}" if high > low else "" for low, high in spans]
    trace = {
        "type": "bar", "orientation": "h", "name": unit, "x": values, "y": list(range(len(known))), "width": THICK,
        "hoverinfo": "text", "marker": {"color": series(0)}, "showlegend": False,
        "hovertext": [hover(f"<b>{plain(label)}</b>", f"{value:.4g} {unit}", span)
                      for (_, label), value, span in zip(known, values, words, strict=True)],
        "error_x": {
            "type": "data", "symmetric": False, "color": "@ink", "thickness": 1.5,
            "array": [high - value for value, (_, high) in zip(values, spans, strict=True)],
            "arrayminus": [value - low for value, (low, _) in zip(values, spans, strict=True)],
        },
    }  # fmt: skip
    names = [label for _, label in known]
    lines = [[label, f"{value:.4g}", span] for label, value, span in zip(names, values, words, strict=True)]
    return Chart(
        key="load", title=f"{unit[:1].upper()}{unit[1:]}", finding=finding, traces=(trace,),
        layout=bar_layout(names, [f"{value:.4g}" for value in values], unit, []),
        table=Table(["", unit, "80 % interval"], lines),
    )  # fmt: skip


def _span(row: JsonObject, measure: str) -> tuple[float, float]:
    """The ends of the interval; the value itself where there is none."""
    value = row[measure]
    low, high = (row.get(f"{measure}_{end}") for end in ("low", "high"))
    return (value if low is None else min(low, value)), (value if high is None else max(high, value))
