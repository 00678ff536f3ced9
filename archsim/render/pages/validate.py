"""`archsim validate` as a page: error figures by what matters, the roofline beside them, and the worst rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonMapping
from archsim.render.page import Cell, Page, Row, Section, percent, plural, row

if TYPE_CHECKING:
    from archsim.accuracy.rows import Refused
    from archsim.accuracy.validation import Validation

NOUNS = {"kernels": "kernel timing", "runs": "measured figure", "serving": "serving figure"}

TABLES = {
    "kernels": ("op", "device", "engine", "regime", "bound", "evidence"),
    "runs": ("metric", "device", "engine", "regime", "evidence"),
    "serving": ("metric", "device", "engine", "model", "regime"),
}
"""Dimensions of the tables that are shown unless told."""

HEADER = ("n", "median", "mean", "p90", "by time", "bias", "in 80 %", "roofline")

ABOUT = (
    "median, mean and p90 of |predicted - measured| / measured; by time: Σ|Δt| / Σt; bias: median signed error, "
    "+ where the prediction is larger; in 80 %: measurements inside the 80 % interval; roofline: median error of "
    "the datasheet roofline"
)
MANY = 12
"""Groups of one table that are shown; the others are in --json."""


def share(value: float | None, signed: bool = False) -> str:
    """A share as per cent; nothing for none."""
    if value is None:
        return ""
    return f"{100 * value:+.1f} %" if signed else percent(value)


def cells(found: JsonMapping) -> tuple[str, ...]:
    """The figures of one group in the order of HEADER."""
    return (
        f"{found.get('scored', found.get('rows', 0)):,}", share(found["median_ape"]), share(found["mape"]),
        share(found["p90_ape"]), share(found["time_weighted_error"]), share(found["bias"], signed=True),
        share(found["coverage_80"]), share(found["naive"]["median_ape"]),
    )  # fmt: skip


def page(answer: Validation, by: Sequence[str] = (), verbose: bool = False) -> Page:
    """The report. by: dimensions to show in place of the usual ones. verbose: every group."""
    wanted = by or tuple(name for name in TABLES[answer.kind] if name in answer.labels)
    tables = [table(answer, name, MANY if not verbose else None) for name in wanted]
    sections = [overall(answer), *tables, worst(answer), refused_section(answer), notes(answer)]
    return Page(head=head(answer), sections=tuple(s for s in sections if s is not None))


def head(answer: Validation) -> tuple[str, ...]:
    """What was compared."""
    files = ", ".join(answer.files[:3]) + (f" and {len(answer.files) - 3} more" if len(answer.files) > 3 else "")
    grades = answer.by("evidence")
    basis = ", ".join(f"{found['rows']:,} {name}" for name, found in grades.items())
    count = plural(len(answer.rows), NOUNS[answer.kind])
    return f"{count} of {files}", f"evidence: {basis or 'none'}; {len(answer.refused):,} refused"


def overall(answer: Validation) -> Section:
    """The figures of all rows."""
    summary = answer.summary
    rows = [row("all", *cells({**summary, "scored": int(answer.rows.scored.sum())}))]
    title = {"kernels": "Time", "runs": "Runs", "serving": "Serving"}[answer.kind]
    below = (ranking_text(summary["pairs"]), ABOUT)
    return Section(
        title=title, rows=tuple(rows), align="l" + "r" * 8, header=HEADER, below=tuple(filter(None, below)),
        wrap=False,
    )  # fmt: skip


def ranking_text(pairs: JsonMapping) -> str:
    """How often the faster of two is named."""
    if not pairs["count"]:
        return ""
    right = share(pairs["ranked_right"])
    return f"of {pairs['count']:,} pairs that do the same work and differ by over 5 %, {right} are ranked right"


def table(answer: Validation, name: str, most: int | None = MANY) -> Section | None:
    """The figures by one dimension."""
    groups = answer.by(name) if name in answer.labels else {}
    rows = [
        row(group if most is None else _short(group), *cells(found))
        for group, found in groups.items()
        if found["scored"]
    ]
    if not rows:
        return None
    hidden = len(rows) - most if most is not None else 0
    below = (f"{plural(hidden, 'smaller group')} not shown; -v shows all",) if hidden > 0 else ()
    return Section(
        title=f"By {name}", rows=tuple(rows[:most]), align="l" + "r" * 8, header=HEADER, below=below, wrap=False
    )


def _short(name: str, width: int = 26) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def worst(answer: Validation, count: int = 5) -> Section | None:
    """The rows with the largest errors, as factors."""
    lines = [_bad(answer, i) for i in answer.worst(count)]
    if not lines:
        return None
    heads = ("measured", "predicted", "factor", "row")
    return Section(title="Worst", rows=tuple(lines), align="lrrrl", header=heads)


def _bad(answer: Validation, i: int) -> Row:
    rows = answer.rows
    measured, predicted = float(rows.measured[i]), float(rows.predicted[i])
    words = f"{rows.metrics[i]} {rows.titles[i]}"
    factor = Cell(f"{predicted / measured:.3g}×", "bad")
    return row(rows.ids[i], f"{measured:,.4g}", f"{predicted:,.4g}", factor, words)


def refused_section(answer: Validation) -> Section | None:
    """Why rows have no prediction, most frequent first."""
    alike: dict[str, list[Refused]] = {}
    for one in answer.refused:
        alike.setdefault(re.sub(r"[0-9][0-9,.]*", "0", one.reason), []).append(one)
    order = sorted(alike, key=lambda reason: (-len(alike[reason]), reason))
    rows = [row(f"{len(alike[why]):,}", f"{alike[why][0].reason} ({alike[why][0].id})") for why in order[:5]]
    below = ("reasons that differ in numbers alone are counted together",) if rows else ()
    return Section(title="Refused", rows=tuple(rows), align="r", below=below) if rows else None


def notes(answer: Validation) -> Section | None:
    """What predictions rest on beyond the row."""
    rows = tuple(row(text) for text in answer.notes[:5])
    return Section(title="Notes", rows=rows) if rows else None


def bare(answer: Validation) -> str:
    """The answer in one line."""
    summary = answer.summary
    figures = f"median {share(summary['median_ape'])}, mean {share(summary['mape'])}"
    covered = f"{share(summary['coverage_80'])} inside the 80 % interval"
    return f"{answer.kind}: {summary['rows']:,} rows, {figures}, {covered}, {summary['refused']:,} refused\n"
