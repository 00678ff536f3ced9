"""`archsim fit --hw HW` without a model, as a page: what the device holds."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.units import format_count, format_rate
from archsim.predict.fits import FitRow, Fits, widest
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Page, Row, Section, plural, row

HEADER = ("parameters", "weights", "longest request", "decode, batch 1")


def page(found: Fits, *, hw: str = "", verbose: bool = False) -> Page:
    """The models that fit, largest first: in the widest weights that do, or in all with `verbose`. hw: as typed,
    empty where no command asked.
    """
    fitting = [line for line in found.rows if line.fits]
    shown = fitting if verbose else list(widest(found))
    models, held = {line.model for line in found.rows}, {line.model for line in fitting if not line.beyond_context}
    within, beyond = ([line for line in shown if line.beyond_context is far] for far in (False, True))
    length = "the engine's default length" if found.context is None else f"{found.context:,} tokens"
    place = f"{found.devices} ×" if found.devices > 1 else "one"
    head = (f"What fits on {place} {found.hardware.name}", f"{found.engine} · one request of {length}")
    below = [f"{len(held):,} of {plural(len(models), 'model')} fit"]
    if len(shown) < len(fitting):
        where = "-v lists" if hw else "`.rows` has"
        below.append(f"in the widest weights that fit; {where} all {len(fitting):,} formats")
    if found.refused:
        where = "`--json`" if hw else "`.refused`"
        below.append(f"{plural(len(found.refused), 'name')} without an answer, with reasons in {where}")
    section = Section(
        title="Model", rows=tuple(map(_row, within)), align="lrlrr", header=HEADER, below=tuple(below), wrap=False
    )
    return Page(head=head, sections=(section, *_beyond(beyond), *(_next(within, hw, found.devices) if hw else ())))


def side_by_side(found: Sequence[Fits]) -> Page:
    """The models that any of several devices holds, largest first, each in the widest weights that fit."""
    held = [{line.model: line for line in widest(answer) if not line.beyond_context} for answer in found]
    every = {line.model: line for lines in held for line in lines.values()}
    length = "the engine's default length" if found[0].context is None else f"{found[0].context:,} tokens"
    header = ("parameters", *(title for answer in found for title in (answer.hardware.id, "decode")))
    rows = tuple(
        row(line.model, format_count(line.params), *(cell for lines in held for cell in _cells(lines.get(line.model))))
        for line in sorted(every.values(), key=lambda line: (-line.params, line.model))
    )
    below = tuple(
        f"{answer.hardware.id}: {len(lines):,} of {plural(len({line.model for line in answer.rows}), 'model')} fit"
        for answer, lines in zip(found, held, strict=True)
    )
    count = f"{found[0].devices} of " if found[0].devices > 1 else ""
    head = (f"What fits on {count}each device", f"{found[0].engine} · one request of {length} · decode at batch 1")
    section = Section(title="Model", rows=rows, align="lr" + "lr" * len(found), header=header, below=below, wrap=False)
    return Page(head=head, sections=(section,))


def _cells(line: FitRow | None) -> tuple[str, str]:
    """Weights and speed of one model on one device; dashes where nothing fits."""
    return ("–", "–") if line is None else (line.weights, _speed(line))


def _speed(line: FitRow) -> str:
    return "" if line.tpot_s is None else format_rate(1 / line.tpot_s, "tok/s")


def _beyond(lines: list[FitRow]) -> list[Section]:
    """The models that memory would hold at that length and whose context length is shorter."""
    if not lines:
        return []
    text = "memory would hold the request, but it exceeds the context length of these models"
    rows = tuple(row(line.model, format_count(line.params), line.weights, f"{line.max_context:,}") for line in lines)
    header = (*HEADER[:2], "context")
    return [Section(title="Too short a context", rows=rows, align="lrlr", header=header, below=(text,), wrap=False)]


def _row(line: FitRow) -> Row:
    longest = "no limit" if line.max_model_len is None else f"{line.max_model_len:,}"
    return row(line.model, format_count(line.params), line.weights, longest, _speed(line))


def _next(shown: list[FitRow], hw: str, devices: int) -> list[Section]:
    """Commands about the largest that fits."""
    if not shown:
        return []
    first, count = shown[0], devices if devices > 1 else None
    asked = {"hw": hw, "devices": count, "weights": first.weights}
    return [
        try_section([
            (command_line("fit", first.model, **asked), "what is left, and what holds more"),
            (command_line("estimate", first.model, **asked), "how fast it is"),
        ])
    ]  # fmt: skip
