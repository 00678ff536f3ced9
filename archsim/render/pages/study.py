"""Many simulated loads as one table."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.base.units import format_rate, format_seconds
from archsim.render.page import Page, Row, Section, plural, row

AXES = ("model", "hw", "devices", "tp", "pp", "ep", "dp", "engine", "weights", "kv_cache")
LOADS = ("offered_rate_per_s", "offered_concurrency")
FOUND = ("largest_rate_per_s", "largest_concurrency")
TITLES = {
    "offered_rate_per_s": "requests/s",
    "offered_concurrency": "in flight",
    "kv_cache": "KV cache",
    "hw": "device",
    "largest_rate_per_s": "most requests/s",
    "largest_concurrency": "most in flight",
}
SHOWN = 200
"""Rows of the page; `--out` has all."""


def page(rows: Sequence[JsonObject], count: int | None = None) -> Page:
    """One line a scenario: what differs between them, then latencies, throughput, and what limits. count: of scenarios,
    where only some rows are shown.
    """
    found = [name for name in FOUND if any(one[name] is not None for one in rows)]
    different = [name for name in (*AXES, *LOADS) if len({str(one[name]) for one in rows}) > 1]
    axes = [name for name in different if not (found and name in LOADS)] or list(LOADS[:1] if not found else AXES[:1])
    columns = axes + found
    first, *others = columns
    met = ["SLO met by"] if any(one["slo_attained"] is not None for one in rows) else []
    header = (
        *(TITLES.get(name, name) for name in others), "TTFT p50", "p99", "TPOT p50", "p99", "output", *met,
        "bound by" if found else "limited by",
    )  # fmt: skip
    below = [f"{len(rows) - SHOWN:,} more rows: `--out FILE.csv`"] if len(rows) > SHOWN else []
    failed = [one["error"] for one in rows if one["error"]]
    below += [f"{plural(len(failed), 'scenario')} without an answer: {failed[0]}"] if failed else []
    title = TITLES.get(first, first)
    section = Section(
        title=title[:1].upper() + title[1:], rows=tuple(_row(one, columns, bool(met)) for one in rows[:SHOWN]),
        below=tuple(below), align="l" + "r" * (len(columns) + 4 + len(met)) + "l", header=header, wrap=False,
    )  # fmt: skip
    same = {name: rows[0][name] for name in ("model", "hw", "engine") if name not in axes} if rows else {}
    head = " · ".join(str(value) for value in same.values() if value is not None)
    loads = plural(len(rows), "simulated load")
    if count is not None and count != len(rows):
        loads = f"{len(rows):,} of {plural(count, 'simulated load')}"
    return Page(head=(loads, head), sections=(section,) if rows else ())


def _row(one: JsonObject, columns: Sequence[str], met: bool) -> Row:
    cells = [_word(one[name]) for name in columns]
    if one["error"]:
        return row(*cells, *[""] * (5 + met), "no answer")
    times = [one[name] for name in ("ttft_s_p50", "ttft_s_p99", "tpot_s_p50", "tpot_s_p99")]
    attained = [] if not met else ["" if one["slo_attained"] is None else f"{100 * one['slo_attained']:.1f} %"]
    return row(
        *cells, *("" if time is None else format_seconds(time) for time in times),
        format_rate(one["output_tokens_per_s"], "tok/s"), *attained, str(one["binding"] or one["limited_by"]),
    )  # fmt: skip


def _word(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
