"""The answer first: one sentence that ranks the candidates with its confidence, and one table to decide on."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.notes import urgent
from archsim.base.units import format_bytes, format_seconds, format_span
from archsim.comparison.uncertainty import ratio, timing
from archsim.engines.names import DEFAULT_ENGINE
from archsim.memory.engine_memory import DeviceMemory
from archsim.render.cheapest import cheapest
from archsim.render.figures.bars import EVIDENCE
from archsim.render.html.candidates import Candidate, Study
from archsim.render.html.markup import Cell, list_names, paragraph, significant, table
from archsim.render.html.prices import cost_cells, cost_head, prices
from archsim.render.pages.compare import verdict as certainty
from archsim.render.signed import FACTOR
from archsim.timing.step_time import StepTime

HEAD = ("", "fits", "memory per device", "devices", "time to first token", "time per token", "tokens/s per device")

NAMED = 3
"""Candidates behind the first that the sentence names."""


def title(study: Study) -> str:
    """The report's title: what is compared on what."""
    models = ", ".join(dict.fromkeys(m.name for m in study.models))
    devices = ", ".join(dict.fromkeys(d.id for d in study.devices))
    return f"{models} on {devices}"


def workload(study: Study) -> str:
    """The workload in one line."""
    a = study.asked
    parts = [f"batch {a.batch:,}", f"{a.input_len:,} prompt tokens"]
    parts += [f"{a.output_len:,} output tokens"] if study.decodes else []
    names = dict.fromkeys(c.answer.formats.name for c in study.candidates)
    parts += [f"weights in {', '.join(names)}"]
    parts += [] if a.engine == DEFAULT_ENGINE else [f"engine {a.engine}"]
    parts += [f"changed: {', '.join(a.changes)}"] if a.changes else []
    return " · ".join(parts)


def answer(study: Study) -> str:
    """The section."""
    notes = dict.fromkeys(text for c in study.candidates for text in urgent(c.answer.assumptions))
    caption = "Expected figures, fastest first; in small print the 80 % interval"
    head = (*HEAD, *cost_head(study), "evidence")
    return "".join([
        paragraph(verdict(study), "verdict"), *(paragraph(text, "load") for text in notes),
        table(caption, head, [_row(c, study) for c in ranked(study)], "answer-table"), prices(study),
    ])  # fmt: skip


def verdict(study: Study) -> str:
    """The finding: the fastest, how far and how surely the next are behind, what does not fit; and the cheapest, where
    a price is stated.
    """
    order = ranked(study)
    able, out = [c for c in order if c.fits], [c for c in order if not c.fits]
    if not able:
        return _none(out)
    best = able[0]
    step, per = _waited(best, study)
    time = format_seconds(float(step.expected_s))
    if len(order) == 1:
        return (
            f"{best.label} fits ({memory_text(best.answer.memory)}) and takes {time} {per}, limited by {_bound(step)}."
            f"{_cost(study, able)}"
        )
    behind = [_behind(best, c, study) for c in able[1 : NAMED + 1]]
    more = len(able) - 1 - len(behind)
    behind += [f"{more:,} slower ones"] if more > 0 else []
    text = f"{best.label} is fastest, {time} {per}" if behind else f"Only {best.label} fits, {time} {per}"
    text += f", ahead of {_listed(behind)}" if behind else ""
    if out:
        text += f"; {list_names([c.label for c in out])} {'does' if len(out) == 1 else 'do'} not fit"
    return f"{text}.{_cost(study, able)}"


def _cost(study: Study, able: Sequence[Candidate]) -> str:
    """What follows on cost, behind a space."""
    text = cheapest([(c.label, c.answer) for c in able], study.decodes)
    return f" {text}" if text else ""


def ranked(study: Study) -> list[Candidate]:
    """The candidates that fit, the fastest first, then those that do not."""
    return sorted(study.candidates, key=lambda c: (not c.fits, float(_waited(c, study)[0].expected_s), c.number))


def _none(out: Sequence[Candidate]) -> str:
    """Nothing fits: the one that is closest."""
    near = min(out, key=lambda c: float(c.answer.memory.needed / max(c.answer.memory.usable, 1)))
    needs = f"it needs {memory_text(near.answer.memory)} usable" + _each(near)
    if len(out) == 1:
        return f"{near.label} does not fit: {needs}."
    return f"None of the {len(out):,} candidates fits; {near.label} is closest: {needs}."


def _behind(best: Candidate, other: Candidate, study: Study) -> str:
    """`B (6.7 % slower, 71 % sure)`: the other against the best."""
    a, b = _waited(best, study)[0], _waited(other, study)[0]
    speed = relative_speed(float(a.expected_s) / float(b.expected_s))
    return f"{other.label} ({speed}, {confidence(best, other, a, b)})"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def confidence(first: Candidate, other: Candidate, a: StepTime, b: StepTime) -> str:
    """How sure the order is, by the rule of `archsim compare`: errors that both sides share cancel."""
    same = first.answer.hardware.id == other.answer.hardware.id
    text = certainty(ratio(timing(b), timing(a), same))
    return "too close to call" if text.startswith("too close") else text.rpartition(", ")[2]


def _waited(c: Candidate, study: Study) -> tuple[StepTime, str]:
    """What candidates are ranked by: the time per token where all write, else the time of the prompt."""
    if c.answer.decode is not None and all(one.answer.decode is not None for one in study.candidates):
        return c.answer.decode, "per token"
    return c.answer.prefill, "for the prompt" if study.decodes else "a pass"


def relative_speed(ratio: float) -> str:
    """`6 % slower`, or `2.4x slower` from a factor of 1.5 on. ratio: the speed over that of the baseline."""
    word, factor = ("faster", ratio) if ratio >= 1 else ("slower", 1 / ratio)
    return f"{factor:.3g}x {word}" if factor >= FACTOR else f"{100 * (factor - 1):.2g} % {word}"


def _each(c: Candidate) -> str:
    return " on each device" if c.answer.plan.devices > 1 else ""


def memory_text(m: DeviceMemory) -> str:
    """`70.11 of 76.97 GB`."""
    needed, usable = format_bytes(m.needed), format_bytes(m.usable)
    number, _, unit = needed.partition(" ")
    return f"{number if usable.endswith(f' {unit}') else needed} of {usable}"


def _bound(phase: StepTime) -> str:
    return {"compute": "arithmetic", "memory": "memory traffic", "communication": "the links"}[phase.bound]


def _row(c: Candidate, study: Study) -> list[str | Cell]:
    e = c.answer
    rate = e.metrics["tokens_per_s_per_device"]
    return [
        c.label, "yes" if c.fits else Cell("no", True), memory_text(e.memory), f"{e.plan.devices:,}", _span(e.prefill),
        _span(e.decode) if e.decode else "–", significant(rate) if rate is not None else "–",
        *cost_cells(c, study), Cell(EVIDENCE[_waited(c, study)[0].evidence], left=True),
    ]  # fmt: skip


def _span(phase: StepTime) -> Cell:
    span = format_span(float(phase.low_s), float(phase.high_s), "to")
    return Cell(format_seconds(float(phase.expected_s)), note=span)
