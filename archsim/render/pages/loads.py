"""Servers under load beside each other: which holds more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archsim.base.json_types import JsonObject
from archsim.base.units import format_rate, format_seconds
from archsim.comparison.loaded import LoadComparison
from archsim.render.page import Page, Row, Section, plural, row
from archsim.render.signed import above

if TYPE_CHECKING:
    from archsim.render.figures.chart import Chart

NOUNS = {
    "largest_concurrency": "requests in flight",
    "largest_rate_per_s": "requests/s",
    "goodput_requests_per_s": "requests/s that meet the service level",
}
SHORT = {"largest_concurrency": "in flight", "largest_rate_per_s": "requests/s", "goodput_requests_per_s": "goodput"}
TIMES = {"tpot_s_p99": "p99 of TPOT", "tpot_s_mean": "TPOT"}


def page(answer: LoadComparison) -> Page:
    """The verdict, then a line for each candidate."""
    name = answer.measure
    title = NOUNS.get(name or "", TIMES.get(name or "", "no answer"))
    header = (SHORT.get(name or "", title), "interval", "vs first", "TTFT p99", "TPOT p99", "output", "bound by")
    names = labels(answer)
    failed = [f"{name}: {one['error']}" for name, one in zip(names, answer.rows, strict=True) if one["error"]]
    section = Section(
        title="Candidate", rows=tuple(_row(answer, i, names[i]) for i in range(len(answer.rows))), below=tuple(failed),
        align="lrrrrrrl", header=header, wrap=False,
    )  # fmt: skip
    return Page(head=(verdict(answer), _load(answer)), sections=(section,))


def labels(answer: LoadComparison) -> list[str]:
    """Each candidate in a few words: its model, and what else differs."""
    different = [name for name in PARTS if len({str(one[name]) for one in answer.rows}) > 1]
    return [
        " · ".join([str(one["model"]), *(_part(one, name) for name in different if one[name] is not None)])
        for one in answer.rows
    ]


def charts(answer: LoadComparison) -> list[Chart]:
    """What each candidate holds, or how fast it is."""
    from archsim.render.figures.load_bars import load_bars

    name = answer.measure
    if name is None:
        return []
    unit = NOUNS.get(name) or f"{TIMES[name]}, s"
    return [load_bars(answer.rows, labels(answer), name, unit, verdict(answer))]


PARTS = ("hw", "devices", "tp", "pp", "ep", "dp", "engine", "weights", "kv_cache")
"""What may differ beside the model."""


def _part(one: JsonObject, name: str) -> str:
    if name == "devices":
        return f"{one[name]} devices" if one[name] != 1 else "1 device"
    return f"{name}={one[name]}" if name in ("tp", "pp", "ep", "dp") else str(one[name])


def verdict(answer: LoadComparison) -> str:
    """Which holds more, and whether the intervals tell them apart."""
    if not answer.order:
        return "no candidate has an answer"
    names = labels(answer)
    one, name, best = names[answer.order[0]], answer.measure or "", answer.rows[answer.order[0]]
    if len(answer.order) == 1:
        return f"{one} alone has an answer"
    second, other = names[answer.order[1]], answer.rows[answer.order[1]]
    if not other[name]:  # no request meets the service level
        held = f"only {one} meets" if best[name] else "no candidate meets"
        return f"{held} the service level at this load"
    factor = best[name] / other[name] if name in NOUNS else other[name] / best[name]
    sure = "; their intervals overlap" if answer.overlap else ""
    if name in NOUNS:
        return f"{one} holds {above(factor, f'more {NOUNS[name]}', f'many {NOUNS[name]}')} {second}{sure}"
    return f"{one} is {above(factor, 'faster', 'fast')} {second} by {TIMES[name]}{sure}"


def _load(answer: LoadComparison) -> str:
    one = answer.rows[0]
    rate, flying = one["offered_rate_per_s"], one["offered_concurrency"]
    if answer.measure in ("largest_concurrency", "largest_rate_per_s"):
        return f"each at the largest load that meets the service level · {one['engine'] or ''}".rstrip(" ·")
    return f"{rate:g} requests/s" if rate is not None else f"{plural(flying, 'request')} in flight" if flying else ""


def _row(answer: LoadComparison, index: int, label: str) -> Row:
    one, name, ratio = answer.rows[index], answer.measure or "", answer.ratio(index)
    value = one.get(name)
    if one["error"] or value is None:
        return row(label, *[""] * 6, "no answer")
    low, high = one.get(f"{name}_low"), one.get(f"{name}_high")
    span = f"{low:.4g} – {high:.4g}" if low is not None and high is not None else ""
    times = ["" if one[t] is None else format_seconds(one[t]) for t in ("ttft_s_p99", "tpot_s_p99")]
    return row(
        label, f"{value:.4g}" if name in NOUNS else format_seconds(value), span,
        "" if ratio is None else f"{ratio:.2f} ×", *times, format_rate(one["output_tokens_per_s"], "tok/s"),
        str(one["binding"] or one["limited_by"]),
    )  # fmt: skip
