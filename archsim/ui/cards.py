"""The answers in words: a verdict for each candidate with its main figures, and how candidates compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dash import html
from dash.development.base_component import Component

from archsim.base.errors import ArchsimError
from archsim.base.notes import urgent
from archsim.base.units import format_bytes, format_count, format_rate, format_seconds, format_span
from archsim.comparison.uncertainty import ratio, timing
from archsim.predict.estimate import Estimate
from archsim.render.cheapest import bill, cheapest
from archsim.render.page import plural
from archsim.render.pages.compare import verdict
from archsim.render.pages.cost import usd
from archsim.render.pages.estimate import plan_text
from archsim.timing.step_time import StepTime
from archsim.ui.answers import Answer

LETTERS = "ABCD"
"""What candidates are called beside their colour."""

VERDICTS = {"FITS": "fits", "TIGHT": "tight", "NO": "does not fit"}

LIMITS = {"compute": "arithmetic", "memory": "memory traffic", "communication": "the links between devices"}
"""What limits a time, in words."""

EVIDENCE = {
    "measured": "times measured here", "calibrated": "times fitted on this device",
    "transferred": "times fitted on other devices", "datasheet": "times from the datasheet, not fitted",
}  # fmt: skip
"""What stands behind an expected time."""


def cards(answers: Sequence[Answer]) -> list[Component]:
    """A card for each candidate."""
    return [_card(i, answer, len(answers) > 1) for i, answer in enumerate(answers)]


def _card(number: int, answer: Answer, several: bool) -> Component:
    letter = [html.Span(LETTERS[number], className="letter")] if several else []
    body = _error(answer.error) if answer.estimate is None else _figures(answer.estimate)
    shown = answer.estimate
    where = plan_text(shown) if shown and shown.plan.devices > 1 else shown.hardware.name if shown else ""
    title = html.H3([*letter, html.Span(answer.name, className="model")])
    where += f" · {', '.join(answer.candidate.changes)}" if answer.candidate.changes else ""
    return html.Article([title, html.P(where, className="where"), *body], className=f"card side-{number}")


def _error(error: ArchsimError | None) -> list[Component]:
    if error is None:
        return []
    hints = [html.Li(hint) for hint in error.hints[:3]]
    parts: list[Component] = [html.P([html.Span("no answer", className="badge bad"), error.message], className="fit")]
    return [*parts, html.Ul(hints, className="hints")] if hints else parts


def _figures(e: Estimate) -> list[Component]:
    notes = [*urgent(e.assumptions), *(note.text for note in e.warnings)]
    rows = [*figures_of(e), *_dollars(e)]
    parts: list[Component] = [_fit(e), html.Dl([_figure(*row) for row in rows], className="figures")]
    parts += [html.P(note, className="note") for note in notes[:3]]
    return [*parts, html.P(basis_of(e), className="basis")]


def _fit(e: Estimate) -> Component:
    m = e.memory
    kind = {"FITS": "good", "TIGHT": "tight", "NO": "bad"}[m.verdict]
    each = " on each device" if e.plan.devices > 1 else ""
    used = f"{format_bytes(m.needed)} of {format_bytes(m.usable)} usable{each}"
    return html.P([html.Span(VERDICTS[m.verdict], className=f"badge {kind}"), used + _room(e)], className="fit")


def _room(e: Estimate) -> str:
    """What is left over, in tokens of the cache, or what is missing."""
    free = int(e.memory.free)
    if free < 0:
        return f": short by {format_bytes(-free)}"
    grown = e.kv_bytes_per_token
    return f", room for {format_count(free // grown)} more tokens" if grown else ""


def figures_of(e: Estimate) -> Iterator[tuple[str, str, str]]:
    """Words, figure and what stands behind it, of the figures that one decides by."""
    m, served = e.metrics, e.serving
    if served is not None:
        first = served.ttft
        yield (
            "Time to first token",
            format_seconds(first.expected) if first else "queueing",
            (format_span(first.low, first.high) if first else "requests wait longer and longer"),
        )
        yield "Time per token", format_seconds(served.tpot.expected), format_span(served.tpot.low, served.tpot.high)
        yield (
            "Tokens/s of all users",
            format_rate(served.tokens_per_s, ""),
            f"{served.running:,.0f} of {served.concurrency:,} run",
        )
    else:
        yield "Time to first token", format_seconds(m["ttft_s"] or 0.0), _span(e.prefill)
        if e.decode is not None:
            yield "Time per token", format_seconds(m["tpot_s"] or 0.0), _span(e.decode)
            yield "Tokens/s for one user", format_rate(m["tokens_per_s_per_user"] or 0.0, ""), _limit(e.decode)
            if e.workload.batch > 1:
                yield "Tokens/s of all users", format_rate(m["tokens_per_s"] or 0.0, ""), f"batch {e.workload.batch:,}"


def _dollars(e: Estimate) -> Iterator[tuple[str, str, str]]:
    """What tokens cost, where a price is stated: the whole bill, and the price behind it."""
    value = bill(e, e.decode is not None)
    if value is None or e.cost is None or e.cost.cost.price is None:
        return
    price = e.cost.cost.price
    tokens = "output" if e.decode is not None else "prompt"
    asked = f"${price.usd_per_device_hour:,.4g} per device and hour"
    yield f"$ per million {tokens} tokens", usd(value), ", ".join(filter(None, (asked, price.provider, price.as_of)))


def basis_of(e: Estimate) -> str:
    """What the figures rest on: parameters, formats, and how near the measurements are."""
    active = "" if e.params_active == e.params_total else f", {e.params_active / 1e9:.4g} B active"
    size = f"{e.params_total / 1e9:.4g} B parameters{active}"
    return (
        f"{size} · weights {e.formats.name}, cache {e.formats.kv.name} · {EVIDENCE[(e.decode or e.prefill).evidence]}"
    )


def _span(step: StepTime) -> str:
    return format_span(float(step.low_s), float(step.high_s))


def _limit(step: StepTime) -> str:
    return f"limited by {LIMITS[step.bound]}"


def _figure(words: str, figure: str, small: str) -> Component:
    return html.Div([html.Dt(words), html.Dd([html.Strong(figure), html.Small(small)])])


def sentence(answers: Sequence[Answer]) -> str:
    """The verdict in a sentence: alone, or which candidate is fastest, with the confidence."""
    said = _sentence(answers)
    return f"For a single request: {said}" if answers[0].load.mode == "rate" else said


def _sentence(answers: Sequence[Answer]) -> str:
    made = [(i, answer.estimate) for i, answer in enumerate(answers) if answer.estimate is not None]
    fits = [(i, e) for i, e in made if e.memory.fits]
    if not made:
        return "No candidate has an answer."
    if not fits:
        return "None of the candidates fits." if len(answers) > 1 else _alone(made[0][1])
    if len(answers) == 1:
        return _with_cost(_alone(fits[0][1]), fits)
    if len(fits) == 1:
        return _with_cost(f"Only {LETTERS[fits[0][0]]} fits.", fits)
    return _with_cost(_ranking(fits), fits)


def _with_cost(text: str, fits: Sequence[tuple[int, Estimate]]) -> str:
    """A sentence, and what is said of cost where a price is stated."""
    decodes = all(e.decode is not None for _, e in fits)
    ranked = [(LETTERS[i], e) for i, e in sorted(fits, key=lambda pair: _seconds(pair[1]))]
    return " ".join(filter(None, (text, cheapest(ranked, decodes))))


def _alone(e: Estimate) -> str:
    devices = plural(e.plan.devices, "device")
    if not e.memory.fits:
        missing = format_bytes(-int(e.memory.free))
        return f"It does not fit on {devices}: {missing} short{' on each' if e.plan.devices > 1 else ''}."
    what = "a token" if e.decode is not None else "a pass"
    return f"It fits on {devices} and takes {format_seconds(_seconds(e))} for {what}."


def _seconds(e: Estimate) -> float:
    """What is waited for most often: a token, or a pass where nothing is written; under a load that of its batch."""
    return e.serving.tpot.expected if e.serving is not None else float((e.decode or e.prefill).expected_s)


def _ranking(fits: Sequence[tuple[int, Estimate]]) -> str:
    """The fastest against the next, by the rule of `archsim compare`: errors that both sides share cancel."""
    (a, one), (b, other) = sorted(fits, key=lambda pair: _seconds(pair[1]))[:2]
    if (one.decode is None) != (other.decode is None):
        return f"{LETTERS[a]} and {LETTERS[b]} cannot be compared: one of them generates no tokens."
    per = "a token" if one.decode is not None else "the prompt"
    fast, slow = format_seconds(_seconds(one)), format_seconds(_seconds(other))
    sure = _confidence(one, other)
    if sure.startswith("too close"):
        return f"Too close to call: {LETTERS[a]} takes {fast} for {per}, {LETTERS[b]} {slow}."
    return f"{LETTERS[a]} is fastest: {fast} for {per}; {LETTERS[b]} takes {slow}{sure and f' ({sure})'}."


def _confidence(one: Estimate, other: Estimate) -> str:
    """The confidence that the first is faster; empty where single steps have the other order."""
    steps = one.decode or one.prefill, other.decode or other.prefill
    if float(steps[0].expected_s) > float(steps[1].expected_s):
        return ""
    found = verdict(ratio(timing(steps[0]), timing(steps[1]), one.hardware.id == other.hardware.id))
    return found if found.startswith("too close") else found.rpartition(", ")[2]
