"""`--by`: the kernels of an estimate summed over ops, blocks, phases or kinds."""

from __future__ import annotations

from typing import Any

from archsim.base.units import format_bytes, format_flops, format_seconds
from archsim.report.estimate_page import head
from archsim.report.flat import flatten
from archsim.report.groups import Group, by
from archsim.report.page import Page, Row, Section, percent, row
from archsim.sim.estimate import Estimate
from archsim.sim.phases import Phase

HEADER = ("runs", "expected", "share", "speed of light", "limited by", "FLOP", "HBM", "link")


def breakdown_page(e: Estimate, what: str) -> Page:
    """One table a phase; with `phase`, one table in all."""
    phases = _phases(e)
    if what == "phase":
        rows = [r for phase in phases for r in _rows(phase, what)]
        sections = [Section(title="phase", rows=tuple(rows), align="lrrrrlrrr", header=HEADER)]
    else:
        sections = [
            Section(title=phase.name, rows=tuple(_rows(phase, what)), align="lrrrrlrrr", header=HEADER)
            for phase in phases
        ]
    return Page(head=head(e), sections=tuple(sections))


def with_breakdown(e: Estimate, what: str | None) -> dict[str, Any]:
    """The JSON object of an estimate, with a key `by` where one was asked for."""
    data = e.to_dict()
    if what is not None:
        data["by"] = {phase.name: [g.to_dict() for g in by(phase, what)] for phase in _phases(e)}
    return data


def as_rows(e: Estimate, what: str | None) -> list[dict[str, Any]]:
    """Rows for CSV: the whole estimate in one, or one a group."""
    if what is None:
        return [flatten(e.to_dict())]
    return [{"phase": phase.name, **g.to_dict()} for phase in _phases(e) for g in by(phase, what)]


def _phases(e: Estimate) -> list[Phase]:
    return [phase for phase in (e.prefill, e.decode) if phase is not None]


def _rows(phase: Phase, what: str) -> list[Row]:
    total = float(phase.expected_s) or 1.0
    return [_row(g, total) for g in by(phase, what)]


def _row(g: Group, total: float) -> Row:
    return row(
        g.name, f"{g.count:,}", format_seconds(g.expected_s), percent(g.expected_s / total),
        format_seconds(g.ideal_s), g.bound, format_flops(float(g.flops)), format_bytes(float(g.bytes)),
        format_bytes(float(g.comm_bytes)) if g.comm_bytes else "",
    )  # fmt: skip
