"""`archsim validate MODEL` as a page: every figure predicted beside every figure seen, with a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archsim.base.units import format_bytes, format_seconds
from archsim.render.page import Cell, Page, Row, Section, Style, percent, row

if TYPE_CHECKING:
    from archsim.measure.model_check import BlockTime, Line, ModelCheck

STYLES: dict[str, Style] = {"equal": "good", "inside": "good", "differs": "bad", "outside": "note"}


def page(answer: ModelCheck) -> Page:
    """The report."""
    what = answer.model if not answer.reduced else f"{answer.asked} ({answer.reduced})"
    ran = f"{answer.device}, {answer.engine}, {answer.dtype}"
    times = f"times predicted for {answer.hardware}" if answer.hardware else "times not predicted"
    verdict = "every count is what was seen" if answer.exact else "a count is not what was seen"
    heads = ("predicted", "measured", "ratio", "80 % interval", "verdict")
    whole = Section(
        title="Figure", rows=tuple(_line(line) for line in answer.lines), align="lrrrrl", header=heads, wrap=False
    )
    return Page(
        head=(f"{what} on this machine", f"{ran}; {times}; {verdict}"),
        sections=tuple(s for s in (whole, *_phases(answer), _notes(answer)) if s is not None),
    )


def _line(line: Line) -> Row:
    """One figure with both values and how they agree."""
    ratio = ""
    if line.predicted and line.measured:
        ratio = f"{line.predicted / line.measured:.3g}"
    ends = "exact" if line.evidence == "exact" else ""
    if line.low is not None and line.high is not None:
        ends = f"{_show(line.low, line.unit)} – {_show(line.high, line.unit)}"
    verdict = Cell(line.verdict, STYLES.get(line.verdict, ""))
    return row(line.what, _show(line.predicted, line.unit), _show(line.measured, line.unit), ratio, ends, verdict)


def _show(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "s":
        return format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    return f"{value:,.0f}" + (f" {unit}" if unit else "")


def _phases(answer: ModelCheck) -> list[Section]:
    """Where the time of each phase goes, predicted and measured, as shares."""
    found = []
    for name in dict.fromkeys(part.phase for part in answer.parts):
        parts = [part for part in answer.parts if part.phase == name]
        told, seen = (sum(getattr(part, side) for part in parts) for side in ("predicted", "measured"))
        rows = tuple(_part(part, told, seen) for part in parts)
        heads = ("predicted", "share", "measured", "share")
        found.append(Section(title=f"Where {name} time goes", rows=rows, align="lrrrr", header=heads))
    return found


def _part(part: BlockTime, told: float, seen: float) -> Row:
    shares = (percent(part.predicted / told) if told else "", percent(part.measured / seen) if seen else "")
    times = (format_seconds(part.predicted), format_seconds(part.measured))
    return row(part.block, times[0], shares[0], times[1], shares[1])


def _notes(answer: ModelCheck) -> Section:
    spread = f"spread of repeated timings: {answer.spread_pct:.1f} %; blocks are timed one call at a time"
    return Section(title="Notes", rows=tuple(row(text) for text in (*answer.notes, spread)))


def bare(answer: ModelCheck) -> str:
    """The answer in one line."""
    verdicts = [line.verdict for line in answer.lines]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    return f"{answer.asked} on {answer.device}: {counts}\n"
