"""The answer first: a verdict for each candidate against the first, the best figures, and a short table."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.base.notes import urgent
from archsim.base.units import format_bytes, format_seconds
from archsim.comparison.uncertainty import ratio, timing
from archsim.engines.names import DEFAULT_ENGINE
from archsim.memory.engine_memory import DeviceMemory
from archsim.render.html.bars import interval_text
from archsim.render.html.candidates import Candidate, Study
from archsim.render.html.markup import Cell, paragraph, safe, significant, table
from archsim.render.pages.compare import verdict
from archsim.timing.step_time import StepTime

HEAD = ("", "devices", "memory per device", "time to first token", "time per token", "tokens/s per user",
        "tokens/s per device", "evidence")  # fmt: skip

EVIDENCE = {
    "measured": "measured here", "calibrated": "fitted on the device", "transferred": "fitted on its family",
    "datasheet": "not fitted",
}  # fmt: skip
"""What stands behind an expected time, in few words."""


def title(study: Study) -> str:
    """The report's title: what is compared on what."""
    models = ", ".join(dict.fromkeys(m.name for m in study.models))
    devices = ", ".join(dict.fromkeys(d.id for d in study.devices))
    return f"{models} on {devices}"


def workload(study: Study) -> str:
    """The workload in one line."""
    a = study.asked
    parts = [f"batch {a.batch:,}", f"{a.input_len:,} prompt tokens"]
    parts += [f"{a.output_len:,} to generate"] if study.decodes else []
    names = dict.fromkeys(c.answer.formats.name for c in study.candidates)
    parts += [f"weights in {', '.join(names)}"]
    parts += [] if a.engine == DEFAULT_ENGINE else [f"engine {a.engine}"]
    parts += [f"changed: {', '.join(a.changes)}"] if a.changes else []
    return " · ".join(parts)


def answer(study: Study) -> str:
    """The section."""
    lines = "".join(f"<li>{safe(text)}</li>" for text in verdicts(study))
    notes = dict.fromkeys(text for c in study.candidates for text in urgent(c.answer.assumptions))
    told = "".join(paragraph(text, "load") for text in notes)
    parts = [paragraph(workload(study), "load"), told, f'<ul class="verdict">{lines}</ul>', _tiles(study)]
    caption = "Expected figures; small: 80 % interval"
    parts.append(table(caption, HEAD, [_row(c) for c in study.candidates], "answer-table"))
    return "".join(parts)


def verdicts(study: Study) -> Iterator[str]:
    """One sentence for each candidate: alone, or against the first."""
    first = next((c for c in study.candidates if c.fits), study.first)
    if len(study.candidates) == 1 or not first.fits:
        yield from (_alone(c) for c in study.candidates)
        return
    for other in study.candidates:
        if not other.fits:
            yield _alone(other)
        elif other is not first:
            yield _pair(first, other)
    if sum(c.fits for c in study.candidates) == 1:
        yield _alone(first)


def slowest_wait(c: Candidate) -> StepTime:
    """The phase that is waited for most often: decode, or prefill where nothing is written."""
    return c.answer.decode or c.answer.prefill


def _alone(c: Candidate) -> str:
    phase = slowest_wait(c)
    time = format_seconds(float(phase.expected_s))
    what = "a token" if c.answer.decode is not None else "a pass"
    if not c.fits:
        return f"{c.label} does not fit: it needs {_needs(c)}."
    return f"{c.label} fits ({_needs(c)}) and takes {time} for {what}, limited by {_bound(phase)}."


def _pair(first: Candidate, other: Candidate) -> str:
    """The second against the first: memory, speed, and the confidence."""
    a, b = slowest_wait(first), slowest_wait(other)
    if a.name != b.name:  # one of them writes nothing: what both do is to read the prompt
        a, b = first.answer.prefill, other.answer.prefill
    speed = float(a.expected_s) / float(b.expected_s)
    per = "a token" if b.name == "decode" else "the prompt" if other.answer.decode is not None else "a pass"
    words = f"{relative_speed(speed)} than"
    times = f"{format_seconds(float(b.expected_s))} against {format_seconds(float(a.expected_s))} for {per}"
    counts = other.answer.plan.devices, first.answer.plan.devices
    spread = f" on {counts[0]} instead of {counts[1]} devices" if counts[0] != counts[1] else ""
    sure = _confidence(first, other, a, b)
    return f"{other.label} is {words} {first.label}{spread}: {times}; {sure}. It needs {_needs(other)}."


def relative_speed(ratio: float) -> str:
    """`6 % slower`, or `2.4x slower` from a factor of 1.5 on. ratio: the speed over that of the baseline."""
    word, factor = ("faster", ratio) if ratio >= 1 else ("slower", 1 / ratio)
    return f"{factor:.3g}x {word}" if factor >= 1.5 else f"{100 * (factor - 1):.2g} % {word}"


def _confidence(first: Candidate, other: Candidate, a: StepTime, b: StepTime) -> str:
    """How sure the order is, by the rule of `archsim compare`: errors that both sides share cancel."""
    same = first.answer.hardware.id == other.answer.hardware.id
    text = verdict(ratio(timing(b), timing(a), same))
    return text if text.startswith("too close") else text.rpartition(", ")[2]


def _needs(c: Candidate) -> str:
    m = c.answer.memory
    each = " on each device" if c.answer.plan.devices > 1 else ""
    return f"{memory_text(m)} usable{each}"


def memory_text(m: DeviceMemory) -> str:
    """`70.11 of 76.97 GB`."""
    needed, usable = format_bytes(m.needed), format_bytes(m.usable)
    number, _, unit = needed.partition(" ")
    return f"{number if usable.endswith(f' {unit}') else needed} of {usable}"


def _bound(phase: StepTime) -> str:
    return {"compute": "arithmetic", "memory": "memory traffic", "communication": "the links"}[phase.bound]


def _tiles(study: Study) -> str:
    """Three figures, each of the candidate that is best at it."""
    usable = [c for c in study.candidates if c.fits]
    if not usable:
        return ""
    tiles = [_best(usable, "shortest time to the first token", "ttft_s")]
    if study.decodes:
        tiles += [
            _best(usable, "shortest time per token", "tpot_s"),
            _best(usable, "most tokens/s per device", "tokens_per_s_per_device"),
        ]
    return f'<dl class="tiles">{"".join(tiles)}</dl>\n'


def _best(usable: list[Candidate], words: str, metric: str) -> str:
    known = [(c, v) for c in usable if (v := c.answer.metrics[metric]) is not None]
    if not known:
        return ""
    is_time = metric.endswith("_s")
    best, value = (min if is_time else max)(known, key=lambda pair: pair[1])
    shown = format_seconds(value) if is_time else f"{significant(value)} tokens/s"
    phase = best.answer.prefill if metric == "ttft_s" else slowest_wait(best)
    words = words if len(known) > 1 else words.split(" ", 1)[1]
    return (
        f"<div><dt>{safe(words)}</dt><dd><strong>{safe(shown)}</strong> "
        f"<span>{safe(best.label)} · {safe(EVIDENCE[phase.evidence])}</span></dd></div>"
    )


def _row(c: Candidate) -> list[str | Cell]:
    e, m = c.answer, c.answer.metrics
    used = memory_text(e.memory)
    rates = [significant(value) if (value := m[key]) is not None else "–"
             for key in ("tokens_per_s_per_user", "tokens_per_s_per_device")]  # fmt: skip
    memory: str | Cell = used if c.fits else Cell(f"{used}: does not fit", True)
    return [
        c.label, f"{e.plan.devices}", memory, _span(e.prefill), _span(e.decode) if e.decode else "–", *rates,
        Cell(EVIDENCE[slowest_wait(c).evidence], left=True),
    ]  # fmt: skip


def _span(phase: StepTime) -> Cell:
    return Cell(format_seconds(float(phase.expected_s)), note=interval_text(phase))
