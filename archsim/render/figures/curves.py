"""Curves on logarithmic axes: throughput against speed for one user, and what grows with the context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import log
from typing import Any, NamedTuple, TypeVar

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_number, format_seconds
from archsim.predict.estimate import Estimate
from archsim.render.figures.bars import EVIDENCE
from archsim.render.figures.chart import (
    Chart,
    Table,
    dash,
    hover,
    layout,
    legend_height,
    log_axis,
    plain,
    symbol,
    token_axis,
    wide_log_axis,
)
from archsim.render.figures.theme import series

HEIGHT = 400
NEAR = 0.09
"""Share of the height of a chart below which two names would overlap."""

DIRECT = 4
"""Curves that carry their names; more are told apart by the legend alone."""


# ------------------------------------------------------------------ throughput against latency
class Rate(NamedTuple):
    """Both rates at one batch, the factors from them to the slow and the fast end of the interval, the evidence, and
    what else is to be said of the point.
    """

    batch: int
    user: float
    device: float
    slow: float = 1.0
    fast: float = 1.0
    evidence: str = ""
    note: str = ""


class RateCurve(NamedTuple):
    """One case over batches. at: the batch that the rest of the page is about."""

    label: str
    rates: Sequence[Rate]
    at: int | None = None


def rate_of(e: Estimate) -> Rate | None:
    """The rates of one estimate; None where it does not fit or writes nothing."""
    if e.decode is None or not e.memory.fits:
        return None
    expected, m = float(e.decode.expected_s), e.metrics
    slow, fast = expected / float(e.decode.high_s), expected / float(e.decode.low_s)
    user, device = float(m["tokens_per_s_per_user"] or 0), float(m["tokens_per_s_per_device"] or 0)
    return Rate(e.workload.batch, user, device, slow, fast, e.decode.evidence)


def throughput_latency(curves: Sequence[RateCurve]) -> Chart:
    """Tokens per second of one device against those of one user, a mark for each batch with its size."""
    traces: list[JsonObject] = []
    labelled = _labels_apart(curves)
    for number, curve in enumerate(curves):
        if curve.rates:
            traces += [_band(number, curve), _rates(number, curve, labelled)]
    best = front((rate.user, rate.device) for curve in curves for rate in curve.rates)
    if len(curves) > 1 and len(best) > 1:
        traces.append(_best(best))
    at = [(curve.label, rate) for curve in curves for rate in curve.rates if rate.batch == curve.at]
    if at:
        traces.append(_rings([(rate.user, rate.device) for _, rate in at], f"batch {at[0][1].batch:,}"))
    named = [curve.label for curve in curves]
    return Chart(
        key="throughput", title="Throughput against speed per user", finding=_rate_finding(curves),
        traces=tuple(traces),
        layout=layout(HEIGHT + legend_height(named), wide_log_axis("tokens/s per user"),
                      log_axis("tokens/s per device"), showlegend=len(curves) > 1),
        table=_rate_table(curves),
    )  # fmt: skip


def _band(number: int, curve: RateCurve) -> JsonObject:
    """The area between the slow and the fast ends of the intervals."""
    slow = [(r.user * r.slow, r.device * r.slow) for r in curve.rates]
    fast = [(r.user * r.fast, r.device * r.fast) for r in reversed(curve.rates)]
    ends = [*slow, *fast]
    return {
        "type": "scatter", "mode": "lines", "x": [end[0] for end in ends], "y": [end[1] for end in ends],
        "fill": "toself", "fillcolor": series(number, 0.14), "line": {"width": 0, "color": series(number, 0.3)},
        "hoverinfo": "skip", "showlegend": False, "legendgroup": f"g{number}", "name": plain(curve.label),
    }  # fmt: skip


LABEL = (0.07, 0.045)
"""Of the plot on a phone that a batch beside its mark takes, across and upwards."""


def _labels_apart(curves: Sequence[RateCurve]) -> set[tuple[int, int]]:
    """(curve, point) of marks that carry their batch: all of few curves, the ends of many, and none where the batch of
    an earlier curve stands.
    """
    points = [(log(rate.user), log(rate.device)) for curve in curves for rate in curve.rates]
    sides = [max(max(side) - min(side), 1e-9) for side in zip(*points, strict=True)]
    kept: dict[tuple[int, int], tuple[float, float]] = {}
    for number, curve in enumerate(curves):
        last = len(curve.rates) - 1
        for i, rate in enumerate(curve.rates):
            place = (log(rate.user) / sides[0], log(rate.device) / sides[1])
            if (len(curves) <= DIRECT or i in (0, last)) and all(_apart(place, other) for other in kept.values()):
                kept[number, i] = place
    return set(kept)


def _apart(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return abs(a[0] - b[0]) > LABEL[0] or abs(a[1] - b[1]) > LABEL[1]


def _rates(number: int, curve: RateCurve, labelled: Collection[tuple[int, int]]) -> JsonObject:
    words = [
        hover(
            f"<b>{plain(curve.label)}</b>, batch {r.batch:,}", f"{format_number(r.user)} tokens/s per user",
            f"{format_number(r.device)} tokens/s per device", f"time per token {format_seconds(1 / r.user)}",
            "tokens/s per device = batch / time per token / devices",
            f"basis: {EVIDENCE[r.evidence]}" if r.evidence else "", plain(r.note, 120),
        ) for r in curve.rates
    ]  # fmt: skip
    texts = [f"{r.batch:,}" if (number, i) in labelled else "" for i, r in enumerate(curve.rates)]
    return _curve(number, curve.label, [r.user for r in curve.rates], [r.device for r in curve.rates], words) | {
        "mode": "lines+markers+text", "text": texts, "textposition": "top right",
        "textfont": {"color": series(number), "size": 11},
    }  # fmt: skip


def _best(points: Sequence[tuple[float, float]]) -> JsonObject:
    return {
        "type": "scatter", "mode": "lines", "name": "best of all", "x": [p[0] for p in points],
        "y": [p[1] for p in points], "line": {"color": "@ink", "width": 3, "dash": "dot"}, "opacity": 0.5,
        "hoverinfo": "skip",
    }  # fmt: skip


def _rings(points: Sequence[tuple[float, float]], name: str) -> JsonObject:
    """A ring around what the rest of the page is about."""
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": [p[0] for p in points], "y": [p[1] for p in points],
        "marker": {"symbol": "circle-open", "size": 16, "color": "@ink", "line": {"width": 2, "color": "@ink"}},
        "hoverinfo": "skip",
    }  # fmt: skip


def _rate_finding(curves: Sequence[RateCurve]) -> str:
    points = [(curve.label, rate) for curve in curves for rate in curve.rates]
    if not points:
        return "Nothing fits."
    fast, full = max(points, key=lambda p: p[1].user), max(points, key=lambda p: p[1].device)
    several = len(curves) > 1
    who = [f"{label}, batch {rate.batch:,}" if several else f"batch {rate.batch:,}" for label, rate in (fast, full)]
    return (
        f"One user gets at most {format_number(fast[1].user)} tokens/s ({who[0]}); a device gives at most "
        f"{format_number(full[1].device)} ({who[1]})."
    )


def _rate_table(curves: Sequence[RateCurve]) -> Table:
    batches = sorted({rate.batch for curve in curves for rate in curve.rates})
    rows = []
    for curve in curves:
        known = {rate.batch: rate for rate in curve.rates}
        cells = [
            f"{format_number(r.user)} / {format_number(r.device)}" if (r := known.get(b)) else "–" for b in batches
        ]
        rows.append([curve.label, *cells])
    return Table(["tokens/s per user / of one device", *(f"batch {b:,}" for b in batches)], rows)


P = TypeVar("P", bound=tuple[Any, ...])


def front(points: Iterable[P]) -> list[P]:
    """The points whose first two figures no other beats or equals at both, from the fastest for a user on; of equal
    ones the first.
    """
    kept: list[P] = []
    for point in sorted(points, key=lambda p: (-p[0], -p[1])):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


# ------------------------------------------------------------------ what grows with the context
class ContextCurve(NamedTuple):
    """One case over contexts: (tokens, value). room: what the value may reach, where there is such a thing."""

    label: str
    points: Sequence[tuple[int, float]]
    room: float | None = None


def cache_growth(curves: Sequence[ContextCurve], batch: int) -> Chart:
    """Bytes of the cache per device against the context, and what is left for it."""
    traces: list[JsonObject] = []
    named = _ends_apart(curves)
    for number, curve in enumerate(curves):
        words = [
            hover(f"<b>{plain(curve.label)}</b>, {c:,} tokens", f"cache per device: {format_bytes(v)}",
                  f"{batch:,} × bytes of a sequence of that length", "basis: exact") for c, v in curve.points
        ]  # fmt: skip
        xs = [c for c, _ in curve.points]
        traces.append(_curve(number, curve.label, xs, [v / 1e9 for _, v in curve.points], words, number in named))
        if curve.room and curve.room > 0 and xs:
            traces.append(_room(number, curve, xs))
    finding = _longest(curves, batch)
    table = _context_table(curves, "cache per device", format_bytes)
    return _context_chart(
        "cache", "KV cache against context length", finding, curves, traces, "cache per device (GB)", table
    )


def largest_batches(curves: Sequence[ContextCurve], at: tuple[int, int] | None = None) -> Chart:
    """The largest batch that fits at each context. at: context and batch that the rest of the page is about."""
    traces: list[JsonObject] = []
    named = _ends_apart(curves)
    for number, curve in enumerate(curves):
        held = [(c, v) for c, v in curve.points if v > 0]
        words = [
            hover(f"<b>{plain(curve.label)}</b>, {c:,} tokens", f"batch {v:,.0f} at most",
                  "room for the cache / bytes of a sequence", "basis: exact sizes, modelled activations")
            for c, v in held
        ]  # fmt: skip
        traces.append(_curve(number, curve.label, [c for c, _ in held], [v for _, v in held], words, number in named))
    if at is not None:
        traces.append(_rings([(float(at[0]), float(at[1]))], "the workload of this page"))
    best = max(curves, key=lambda curve: max((v for _, v in curve.points), default=0.0), default=None)
    most = max(best.points, key=lambda p: p[1]) if best and best.points else (0, 0.0)
    finding = (
        f"At {most[0]:,} tokens {best.label if best else ''} holds {most[1]:,.0f} sequences."
        if most[1]
        else "Nothing fits."
    )
    table = _context_table(curves, "largest batch", lambda v: f"{v:,.0f}")
    return _context_chart("batches", "Largest batch that fits", finding, curves, traces, "largest batch", table)


def time_growth(curves: Sequence[ContextCurve], batch: int, phase: str = "decode") -> Chart:
    """Seconds of one step against the context."""
    name = "time per token" if phase == "decode" else "time to the first token"
    named = _ends_apart(curves)
    why = f"batch {batch:,}" + ("; every cached token is read once a step" if phase == "decode" else "")
    traces = [
        _curve(number, curve.label, [c for c, _ in curve.points], [1e3 * v for _, v in curve.points], [
            hover(f"<b>{plain(curve.label)}</b>, {c:,} tokens", f"{name}: {format_seconds(v)}", why)
            for c, v in curve.points
        ], number in named) for number, curve in enumerate(curves)
    ]  # fmt: skip
    growth = [(curve.points[-1][1] / curve.points[0][1], curve) for curve in curves if len(curve.points) > 1]
    most = max(growth, key=lambda g: g[0], default=None)
    finding = (
        f"From {most[1].points[0][0]:,} to {most[1].points[-1][0]:,} tokens the {name} of {most[1].label} grows "
        f"by a factor of {most[0]:.3g}." if most else f"The {name} at one context length."
    )  # fmt: skip
    table = _context_table(curves, name, format_seconds)
    return _context_chart(
        f"{phase}-growth", f"{name.capitalize()} against context", finding, curves, traces, f"{name} (ms)", table
    )


def _context_chart(
    key: str, title: str, finding: str, curves: Sequence[ContextCurve], traces: Sequence[JsonObject], unit: str,
    table: Table,
) -> Chart:  # fmt: skip
    contexts = [c for curve in curves for c, _ in curve.points]
    heights = [y for trace in traces for y in trace["y"] if y > 0]
    named = [curve.label for curve in curves]
    return Chart(
        key=key, title=title, finding=finding, traces=tuple(traces), table=table,
        layout=layout(HEIGHT + legend_height(named), token_axis("context length (prompt tokens)", contexts),
                      log_axis(unit, heights, tickformat="~g"), showlegend=len(curves) > 1),
    )  # fmt: skip


def _context_table(curves: Sequence[ContextCurve], what: str, shown: Callable[[float], str]) -> Table:
    contexts = sorted({c for curve in curves for c, _ in curve.points})
    rows = []
    for curve in curves:
        known = dict(curve.points)
        rows.append([curve.label, *(shown(known[c]) if c in known else "–" for c in contexts)])
    return Table([what, *(f"{c:,} tokens" for c in contexts)], rows)


def _longest(curves: Sequence[ContextCurve], batch: int) -> str:
    """The longest prompts that fit, of who can take most."""
    fitting = [
        (max((c for c, v in curve.points if curve.room is None or v <= curve.room), default=0), curve.label)
        for curve in curves
    ]
    most = max(fitting, key=lambda f: f[0], default=(0, ""))
    if not most[0]:
        return f"At batch {batch:,} none of the prompt lengths shown fits."
    who = f" {most[1]}" if len(curves) > 1 else ""
    return f"At batch {batch:,} prompts of {most[0]:,} tokens fit{who}. Dashed lines: room for the KV cache."


def _room(number: int, curve: ContextCurve, xs: Sequence[int]) -> JsonObject:
    """A line across at what is left."""
    room = float(curve.room or 0.0)
    word = hover(f"<b>{plain(curve.label)}</b>", f"room for the cache: {format_bytes(room)}",
                 "usable memory − weights − activations − runtime")  # fmt: skip
    return {
        "type": "scatter", "mode": "lines", "x": [min(xs), max(xs)], "y": [room / 1e9] * 2, "hovertext": [word] * 2,
        "hoverinfo": "text", "showlegend": False, "legendgroup": f"g{number}", "name": plain(curve.label),
        "line": {"color": series(number), "width": 1.5, "dash": "dash"},
    }  # fmt: skip


def _ends_apart(curves: Sequence[ContextCurve]) -> set[int]:
    """Curves that carry their names: a few, whose ends lie so far apart that the names do not overlap."""
    ends = {i: curve.points[-1] for i, curve in enumerate(curves) if curve.points and curve.points[-1][1] > 0}
    values = [value for curve in curves for _, value in curve.points if value > 0]
    if not 1 < len(curves) <= DIRECT or not values:
        return set()
    room = NEAR * max(log(max(values) / min(values)), 0.1)
    return {
        i for i, (_, y) in ends.items() if all(j == i or abs(log(y / other)) > room for j, (_, other) in ends.items())
    }


def _curve(
    number: int, label: str, xs: Sequence[float], ys: Sequence[float], words: Sequence[str], own_name: bool = False
) -> JsonObject:
    """A line with a mark at each value. own_name: it carries its name at its end."""
    named = {}
    if own_name:
        texts = ["" for _ in xs]
        if texts:
            texts[-1] = plain(label, 34)
        named = {"text": texts, "textposition": "top left", "textfont": {"color": series(number), "size": 12}}
    return {
        "type": "scatter", "mode": "lines+markers+text" if named else "lines+markers", "name": plain(label),
        "x": list(xs), "y": list(ys), "hovertext": list(words), "hoverinfo": "text", "legendgroup": f"g{number}",
        "line": {"color": series(number), "width": 2, "dash": dash(number)},
        "marker": {"symbol": symbol(number), "size": 8, "color": series(number)}, **named,
    }  # fmt: skip
