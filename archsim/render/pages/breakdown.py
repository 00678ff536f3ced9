"""`--by`: the kernels of an estimate summed over ops, blocks, phases or kinds; or the whole at several contexts."""

from __future__ import annotations

from dataclasses import fields

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_flops, format_seconds, format_span
from archsim.predict.context_curve import AtContext, at, contexts_of
from archsim.predict.estimate import Estimate
from archsim.render.flat import flatten
from archsim.render.groups import Group, by
from archsim.render.page import Cell, Page, Row, Section, bar, percent, row
from archsim.render.pages.estimate import head
from archsim.timing.step_time import StepTime

HEADER = ("runs", "expected", "share", "speed of light", "limited by", "FLOP", "HBM", "link")


def breakdown_page(e: Estimate, what: str) -> Page:
    """One table a phase; with `phase`, one table in all."""
    if what == "context":
        return Page(head=head(e), sections=(_over_context(e),))
    tables = {phase.name: _rows(phase, what) for phase in _phases(e)}
    if what == "phase":
        tables = {"phase": [line for lines in tables.values() for line in lines]}
    sections = (Section(title, tuple(lines), "lrrrrlrrr", HEADER) for title, lines in tables.items())
    return Page(head=head(e), sections=tuple(sections))


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateBy(Estimate):
    """An estimate whose `to_dict` breaks its phases down by parts, ops, blocks, kinds, phases or contexts."""

    __repr__ = Tabular.__repr__

    by: str

    def to_dict(self) -> JsonObject:
        """The `archsim.estimate/1` object with the breakdown."""
        return _with_breakdown(self, Estimate.to_dict(self), self.by)


def estimate_by(e: Estimate, what: str) -> EstimateBy:
    """The estimate, broken down. Raises UsageError for what no estimate is broken down by."""
    if what not in BY:
        raise UsageError(f"an estimate is broken down by {', '.join(BY)}, not by {quote(what)}")
    return EstimateBy(**{field.name: getattr(e, field.name) for field in fields(Estimate)}, by=what)


def with_breakdown(e: Estimate, what: str | None) -> JsonObject:
    """The JSON object of an estimate, with a key `by` where one was asked for."""
    return e.to_dict() if what is None else _with_breakdown(e, e.to_dict(), what)


def _with_breakdown(e: Estimate, data: JsonObject, what: str) -> JsonObject:
    if what == "context":
        data["by"] = {what: [found.to_dict() for found in _contexts(e)]}
    else:
        data["by"] = {phase.name: [g.to_dict() for g in by(phase, what)] for phase in _phases(e)}
        if what in SHARES:
            for phase in _phases(e):
                data["phases"][phase.name][SHARES[what]] = shares(phase, what)
    return data


BY = ("part", "op", "block", "kind", "phase", "context")
SHARES = {"part": "parts", "op": "ops"}
"""What a phase is broken down by -> the key of the phase that holds the shares."""


def shares(phase: StepTime, what: str) -> list[JsonObject]:
    """Seconds of each part or op, which add up to the phase: of a pipeline, to its time and not to that of its stages
    one after another.
    """
    groups = by(phase, what)
    ideal = float(phase.ideal_s) / (sum(g.ideal_s for g in groups) or 1.0)
    return [
        {what: g.name, "ideal_s": g.ideal_s * ideal, "expected_s": g.expected_s * float(phase.busy)} for g in groups
    ]


def as_rows(e: Estimate, what: str | None) -> list[JsonObject]:
    """Rows for CSV: the whole estimate in one, or one a group."""
    if what is None:
        return [flatten(e.to_dict())]
    if what == "context":
        return [found.to_dict() for found in _contexts(e)]
    return [{"phase": phase.name, **g.to_dict()} for phase in _phases(e) for g in by(phase, what)]


def _contexts(e: Estimate) -> list[AtContext]:
    return [at(e, context) for context in contexts_of(e)]


def _over_context(e: Estimate) -> Section:
    """The same batch at several contexts; the bar is the decode step, or the prefill where nothing is decoded."""
    found = _contexts(e)
    steps = [float((point.decode or point.prefill).expected_s) for point in found]
    rows = [_context_row(point, step / max(steps)) for point, step in zip(found, steps, strict=True)]
    decoded = ("TPOT", "80 % interval") if e.decode else ()
    caches = ("caches",) if found[-1].memory.kv_cache else ()
    align = "lr" + "rr" * bool(decoded) + "l" + "r" * bool(caches) + "rl"
    return Section("context", tuple(rows), align, ("TTFT", *decoded, "", *caches, "memory each", ""))


def _context_row(point: AtContext, length: float) -> Row:
    step, used = point.decode, point.memory
    times = [format_seconds(float(point.prefill.expected_s))]
    if step is not None:
        times += [format_seconds(float(step.expected_s)), format_span(float(step.low_s), float(step.high_s))]
    caches = [format_bytes(used.kv_cache)] * bool(used.kv_cache)
    fits = Cell("") if used.fits else Cell("does not fit", "bad")
    return row(f"{point.context:,}", *times, bar(length), *caches, format_bytes(used.needed), fits)


def _phases(e: Estimate) -> list[StepTime]:
    return [phase for phase in (e.prefill, e.decode) if phase is not None]


def _rows(phase: StepTime, what: str) -> list[Row]:
    total = float(phase.expected_s) or 1.0
    return [_row(g, total) for g in by(phase, what)]


def _row(g: Group, total: float) -> Row:
    return row(
        g.name, f"{g.count:,}", format_seconds(g.expected_s), percent(g.expected_s / total),
        format_seconds(g.ideal_s), g.bound, format_flops(float(g.flops)), format_bytes(float(g.bytes)),
        format_bytes(float(g.comm_bytes)) if g.comm_bytes else "",
    )  # fmt: skip
