"""`archsim validate` as a page: errors by group beside those of the roofline, and the worst rows; and, of a model that
runs on this machine, every predicted figure beside the measured one with a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonMapping
from archsim.base.units import format_bytes, format_seconds
from archsim.render.page import Cell, Page, Row, Section, Style, percent, plural, row

if TYPE_CHECKING:
    from archsim.accuracy.rows import Refused
    from archsim.accuracy.validation import Validation
    from archsim.measure.model_check import BlockTime, Line, ModelCheck

NOUNS = {
    "kernels": "kernel timing", "runs": "measured figure", "serving": "serving figure", "loaded": "figure",
    "training": "training figure", "requests": "request time", "energy": "power figure",
}  # fmt: skip
TITLES = {
    "kernels": "Time", "runs": "Runs", "serving": "Serving", "loaded": "Under load", "training": "Training",
    "requests": "Requests", "energy": "Power",
}  # fmt: skip

TABLES = {
    "kernels": ("op", "device", "engine", "regime", "bound", "evidence"),
    "runs": ("metric", "device", "engine", "regime", "evidence"),
    "serving": ("metric", "device", "engine", "model", "regime"),
    "loaded": ("metric", "device", "engine", "model", "regime"),
    "training": ("metric", "regime", "engine", "source", "device"),
    "requests": ("metric",),
    "energy": ("metric", "device", "engine", "model", "evidence"),
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
    """The report. by: dimensions to show in place of the usual ones, which are left out where all rows are of one
    group. verbose: every group.
    """
    wanted = by or tuple(name for name in TABLES[answer.kind] if name in answer.labels and len(answer.by(name)) > 1)
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
    below = (ranking_text(summary["pairs"]), ABOUT)
    return Section(
        title=TITLES[answer.kind], rows=tuple(rows), align="l" + "r" * 8, header=HEADER,
        below=tuple(filter(None, below)),
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
    inside = rows.low[i] <= measured <= rows.high[i]
    factor = Cell(f"{predicted / measured:.3g}×", "" if inside else "bad")
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


# ------------------------------------------------------------------ one model on this machine
STYLES: dict[str, Style] = {"equal": "good", "inside": "good", "differs": "bad", "outside": "note"}


def model_page(answer: ModelCheck) -> Page:
    """The report."""
    what = answer.model if not answer.reduced else f"{answer.asked} ({answer.reduced})"
    ran = f"{answer.device}, {answer.engine}, {answer.dtype}"
    times = f"times predicted for {answer.hardware}" if answer.hardware else "times not predicted"
    verdict = "every count is what was seen" if answer.exact else "a count is not what was seen"
    heads = ("predicted", "measured", "ratio", "80 % interval", "verdict")
    whole = Section(
        title="Figure", rows=tuple(_figure_row(line) for line in answer.lines), align="lrrrrl", header=heads, wrap=False
    )
    return Page(
        head=(f"{what} on this machine", f"{ran}; {times}; {verdict}"),
        sections=tuple(s for s in (whole, *_model_phases(answer), _model_notes(answer)) if s is not None),
    )


def _figure_row(line: Line) -> Row:
    """One figure with both values and how they agree."""
    ratio = ""
    if line.predicted and line.measured:
        ratio = f"{line.predicted / line.measured:.3g}"
    ends = "exact" if line.evidence == "exact" else ""
    if line.low is not None and line.high is not None:
        ends = f"{_figure_text(line.low, line.unit)} – {_figure_text(line.high, line.unit)}"
    verdict = Cell(line.verdict, STYLES.get(line.verdict, ""))
    return row(
        line.what, _figure_text(line.predicted, line.unit), _figure_text(line.measured, line.unit), ratio, ends, verdict
    )


def _figure_text(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "s":
        return format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    return f"{value:,.0f}" + (f" {unit}" if unit else "")


def _model_phases(answer: ModelCheck) -> list[Section]:
    """Where the time of each phase goes, predicted and measured, as shares."""
    found = []
    for name in dict.fromkeys(part.phase for part in answer.parts):
        parts = [part for part in answer.parts if part.phase == name]
        told, seen = (sum(getattr(part, side) for part in parts) for side in ("predicted", "measured"))
        rows = tuple(_block_row(part, told, seen) for part in parts)
        heads = ("predicted", "share", "measured", "share")
        found.append(Section(title=f"Where {name} time goes", rows=rows, align="lrrrr", header=heads))
    return found


def _block_row(part: BlockTime, told: float, seen: float) -> Row:
    shares = (percent(part.predicted / told) if told else "", percent(part.measured / seen) if seen else "")
    times = (format_seconds(part.predicted), format_seconds(part.measured))
    return row(part.block, times[0], shares[0], times[1], shares[1])


def _model_notes(answer: ModelCheck) -> Section:
    spread = f"spread of repeated timings: {answer.spread_pct:.1f} %; blocks are timed one call at a time"
    return Section(title="Notes", rows=tuple(row(text) for text in (*answer.notes, spread)))


def model_bare(answer: ModelCheck) -> str:
    """The answer in one line."""
    verdicts = [line.verdict for line in answer.lines]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    return f"{answer.asked} on {answer.device}: {counts}\n"
