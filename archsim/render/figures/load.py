"""A simulated load: latencies of requests, the server over time, and requests one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.units import format_seconds
from archsim.predict.request_timeline import request_rows
from archsim.predict.simulation import Simulation
from archsim.render.figures.chart import Chart, Table, axis, hover, layout
from archsim.render.figures.theme import series
from archsim.render.page import percent

DRAWN = 300
"""Requests of the timeline."""

POINTS = 400
"""Points of a curve at most."""

TABLE = 20
"""Rows of a curve's table."""

PERCENTILES = (0.5, 0.9, 0.95, 0.99)

SHORT = {"end to end": "E2E"}
"""Names of latencies below panels that are narrow on a phone."""


def load_charts(answer: Simulation) -> list[Chart]:
    """All of them."""
    return [latencies(answer), over_time(answer), requests(answer)]


def _thinned(values: Sequence[float]) -> list[float]:
    """Sorted values at even shares, both ends included."""
    ordered = sorted(values)
    if len(ordered) <= POINTS:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (POINTS - 1))] for i in range(POINTS)]


def _times(answer: Simulation) -> Iterator[tuple[str, list[float], float | None]]:
    """Name, seconds of each measured request, and the target."""
    slo = answer.how.slo
    rows = [
        row for row in request_rows(answer.record) if row["id"] >= answer.record.warmup and row["last_s"] is not None
    ]
    targets = {} if slo is None else dict(slo.targets)
    yield "TTFT", [row["first_s"] - row["arrival_s"] for row in rows], targets.get("ttft")
    decoded = [row for row in rows if row["output"] > 1]
    yield "TPOT", [(r["last_s"] - r["first_s"]) / (r["output"] - 1) for r in decoded], targets.get("tpot")
    yield "end to end", [row["last_s"] - row["arrival_s"] for row in rows], targets.get("e2e")


def latencies(answer: Simulation) -> Chart:
    """The share of requests that took at most so long, a panel for each latency."""
    measured = [(name, sorted(seconds), target) for name, seconds, target in _times(answer)]
    traces: list[JsonObject] = []
    axes: JsonObject = {}
    for column, (name, seconds, target) in enumerate(measured, 1):
        thin = _thinned([1e3 * value for value in seconds])
        end = "" if column == 1 else str(column)
        shares = [(i + 1) / len(thin) for i in range(len(thin))]
        words = [
            hover(f"{name}: {share:.1%} within {value:,.4g} ms") for share, value in zip(shares, thin, strict=True)
        ]
        traces.append({
            "type": "scatter", "mode": "lines", "name": name, "x": thin, "y": shares, "xaxis": f"x{end}",
            "line": {"shape": "hv", "color": series(column - 1), "width": 2}, "hovertext": words, "hoverinfo": "text",
        })  # fmt: skip
        if target is not None:
            traces.append({
                "type": "scatter", "mode": "lines+text", "x": [1e3 * target] * 2, "y": [0, 1], "xaxis": f"x{end}",
                "line": {"color": "@ink", "dash": "dash"}, "text": ["", "target"], "textposition": "bottom left",
                "showlegend": False, "hoverinfo": "skip",
            })  # fmt: skip
        room = [(column - 1) / 3 + (0.03 if column > 1 else 0), column / 3 - 0.03]
        axes[f"xaxis{end}"] = axis(f"{SHORT.get(name, name)} (ms)", domain=room, rangemode="tozero")
    made = layout(
        340, axes.pop("xaxis"), axis("share of requests", tickformat=".0%", range=[0, 1.02]), showlegend=False
    )
    return Chart(
        key="latencies", title="Latency of requests", finding=_latency_finding(measured), traces=tuple(traces),
        layout={**made, **axes},
        table=Table(["", *(f"p{100 * share:g}" for share in PERCENTILES), "longest"],
                    [[name, *(_at(seconds, share) for share in (*PERCENTILES, 1.0))] for name, seconds, _ in measured]),
    )  # fmt: skip


def _at(ordered: Sequence[float], share: float) -> str:
    if not ordered:
        return "–"
    return format_seconds(ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))])


def _latency_finding(measured: Sequence[tuple[str, list[float], float | None]]) -> str:
    name, seconds, _ = measured[0]
    return f"Half of the requests have a {name} within {_at(seconds, 0.5)}, 99 % within {_at(seconds, 0.99)}."


class OverTime(NamedTuple):
    """Running and waiting requests and the share of the cache in use, at some moments; what the moments are."""

    t_s: Sequence[float]
    running: Sequence[float]
    waiting: Sequence[float]
    used: Sequence[float]
    moments: str

    @classmethod
    def of(cls, answer: Simulation) -> OverTime:
        """After steps of the engine; of several replicas their sums, on average between moments."""
        samples, blocks = answer.record.samples, max(answer.record.total_blocks, 1)
        if samples.t_s:
            used = [used / blocks for used in samples.used_blocks]
            return cls(samples.t_s, samples.running, samples.waiting, used, "After some steps of one run")
        sums = answer.series
        parts = f"Of all replicas of one run, in {len(sums['t_s']):,} equal parts of it"
        return cls(sums["t_s"], sums["running"], sums["waiting"], sums["kv_occupancy"], parts)


def _count(requests: float) -> str:
    """Requests at a moment, or on average."""
    return f"{requests:,}" if isinstance(requests, int) else f"{requests:,.1f}"


def over_time(answer: Simulation) -> Chart:
    """Running and waiting requests and the cache in use over one run."""
    shown = OverTime.of(answer)
    stride = max(1, len(shown.t_s) // POINTS)
    curves: tuple[tuple[str, Sequence[float], str], ...] = (
        ("running requests", shown.running, ""), ("waiting requests", shown.waiting, ""),
        ("KV cache in use", shown.used, ".2~%"),
    )  # fmt: skip
    traces: list[JsonObject] = []
    axes: JsonObject = {}
    for number, (name, values, form) in enumerate(curves):
        short = name.removesuffix(" requests").removesuffix(" in use")
        end = "" if not number else str(number + 1)
        room = [1 - (number + 1) / 3 + 0.04, 1 - number / 3]
        axes[f"yaxis{end}"] = axis(short, domain=room, rangemode="tozero", tickformat=form)
        traces.append({
            "type": "scatter", "mode": "lines", "name": name, "x": list(shown.t_s[::stride]),
            "y": list(values)[::stride], "yaxis": f"y{end}", "line": {"color": series(number), "width": 1.5},
        })  # fmt: skip
    top, used = (max(values, default=0.0) for values in (shown.waiting, shown.used))
    made = layout(480, axis("seconds", anchor="y3"), axes.pop("yaxis"), showlegend=False)
    at = range(0, len(shown.t_s), max(1, len(shown.t_s) // TABLE))
    finding = f"{shown.moments}: at most {_count(top)} requests wait, the cache is filled to {percent(used)}."
    return Chart(
        key="over-time", title="Over time", finding=finding, traces=tuple(traces), layout={**made, **axes},
        table=Table(["time", *(name for name, _, _ in curves)], [
            [f"{shown.t_s[i]:.4g} s", _count(shown.running[i]), _count(shown.waiting[i]), percent(shown.used[i])]
            for i in at
        ]),
    )  # fmt: skip


def requests(answer: Simulation) -> Chart:
    """The first requests of one run, each a line."""
    rows = [row for row in request_rows(answer.record) if row["first_s"] is not None][:DRAWN]
    ends = [(r["arrival_s"], r["arrival_s"] + r["wait_s"], r["first_s"], r["last_s"]) for r in rows]
    traces: list[JsonObject] = []
    for place, name in enumerate(("waiting", "prompt", "decode")):
        lengths = [max(end[place + 1] - end[place], 0.0) for end in ends]
        words = [f"request {r['id']:,}: {name} {format_seconds(s)}" for r, s in zip(rows, lengths, strict=True)]
        traces.append({
            "type": "bar", "orientation": "h", "name": name, "y": [row["id"] for row in rows], "x": lengths,
            "base": [end[place] for end in ends], "hovertext": words, "hoverinfo": "text",
            "marker": {"color": series(place), "line": {"width": 0}},
        })  # fmt: skip
    shown = [[f"{r['id']:,}", *(f"{t:.4g} s" for t in end)] for r, end in zip(rows, ends, strict=True)]
    return Chart(
        key="requests", title="Requests", finding=f"The first {len(rows):,} requests of one run, each a line.",
        traces=tuple(traces), table=Table(["request", "arrives", "starts", "first token", "last token"], shown),
        layout=layout(560, axis("seconds"), axis("request", autorange="reversed"), barmode="overlay", bargap=0.05),
    )  # fmt: skip
