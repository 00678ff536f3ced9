"""`archsim estimate` as a page: what it is, whether it fits, how fast, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from archsim.base.notes import urgent
from archsim.base.units import format_bytes, format_count, format_flops, format_rate, format_seconds, format_span
from archsim.counts.count import windows_note
from archsim.engines.names import DEFAULT_ENGINE
from archsim.predict.assumptions import EVIDENCE
from archsim.predict.context_curve import contexts_of, decode_seconds
from archsim.predict.estimate import Estimate
from archsim.predict.what_fits import Facts, Suggestion, degrees_text, narrower_formats
from archsim.render.command_line import command_line, try_section
from archsim.render.groups import Group, by_part
from archsim.render.page import Cell, Page, Row, Section, Style, bar, facts, percent, plural, row, spark
from archsim.render.pages.memory_rows import runtime_parts, step_text, towers_remark
from archsim.render.provenance import basis
from archsim.timing.duration import Duration
from archsim.timing.step_time import StepTime

if TYPE_CHECKING:
    from archsim.serving.steady_state import SteadyState

SMALLEST_SHARE = 0.0005
"""Of a step's time, below which a part of the model is not listed."""

BOUND: Mapping[str, Style] = {"compute": "compute", "memory": "memory", "communication": "communication"}
"""What limits a time -> the style that says so."""


def page(
    e: Estimate,
    whole: Facts,
    *,
    inputs: Sequence[str] = (),
    asked: tuple[str, str] | None = None,
    options: Mapping[str, object] = {},
    changes: Sequence[str] = (),
    verbose: bool = False,
) -> Page:
    """The report. inputs: files behind it. asked: model and device as spelt, None where no command
    asked: then there is none to go on with. options: the others, by name. changes: `--set` assignments.
    """
    speed = _speed(e, whole) if e.serving is None else _served_speed(e, e.serving, whole)
    sections = [_size(e, whole), _memory(e, whole), speed, *_cost(e), _where(e), _headroom(e, whole), *_plans(e)]
    changed = [f"changed: {', '.join(changes)}"] if changes else []
    text = "exact = counted from the spec · modelled and expected = assumptions"
    end = basis(text, e.assumptions, inputs, verbose)
    end += [_next(e, asked, {**options, "set": tuple(changes)})] if asked else []
    return Page(head=(*head(e), *changed), notes=_notes(e, whole), sections=(*sections, *end))


def head(e: Estimate) -> tuple[str, str]:
    """What was asked, in two lines."""
    devices = plan_text(e) if e.plan.devices > 1 else e.hardware.name
    load = e.workload
    parts = [f"{e.formats.name} weights"]
    grows = e.decode is not None and e.kv_bytes_per_token > 0
    parts += [f"{e.formats.kv.name} KV cache"] if grows else []
    batch = f"batch {load.batch:,}" if e.serving is None else plural(e.serving.concurrency, "request") + " in flight"
    told = [f"{load.input_len:,} tokens in"] + ([] if load.source_len is None else [f"{load.source_len:,} of source"])
    parts += [batch, *told[:-1], told[-1] + _seen_or_heard(e)]
    parts += [] if e.decode is None else [f"{load.output_len:,} out"]
    parts += [] if e.plan.engine == DEFAULT_ENGINE else [e.plan.engine]
    return f"{e.model.name} on {devices}", " · ".join(parts)


def _seen_or_heard(e: Estimate) -> str:
    """How many tokens of the prompt, or of the source, are those of images or sounds; nothing where there are none."""
    works = [encoder.work for encoder in e.encoders]
    told = [f"{w.prompt_tokens:,} of them of {plural(w.prompt_tokens // max(w.tokens, 1), w.noun)}" for w in works]
    return "".join(f", {text}" for text in told)


def plan_text(e: Estimate) -> str:
    """`2 × H100, tensor parallel`, with every degree above one."""
    names = {"tp": "tensor", "pp": "pipeline", "dp": "attention-data", "ep": "expert"}
    degrees = {name: getattr(e.plan, key) for key, name in names.items() if getattr(e.plan, key) > 1}
    if len(degrees) == 1:
        spread = f"{next(iter(degrees))} parallel"
    else:
        spread = ", ".join(f"{name} parallel {n}" for name, n in degrees.items())
    return f"{e.plan.devices:,} × {e.hardware.name}, {spread}"


def bare(e: Estimate) -> str:
    """The answer in one line."""
    if e.serving is not None:
        parts = _served_words(e.serving)
    else:
        m = e.metrics
        parts = [f"TTFT {format_seconds(m['ttft_s'] or 0)}"]
        if m["tpot_s"]:
            parts += [f"TPOT {format_seconds(m['tpot_s'])}", format_rate(m["tokens_per_s"] or 0, "tokens/s")]
    fit = "" if e.memory.fits else ", does not fit"
    return f"{e.model.name} on {e.plan.devices} × {e.hardware.id}: {', '.join(parts)}{fit}\n"


def _served_words(state: SteadyState) -> list[str]:
    """The steady state in a few words: the pair of times, the output, and how many requests wait."""
    first = format_seconds(state.ttft.expected) if state.ttft else "not given (queueing)"
    words = [
        f"TTFT {first}",
        f"TPOT {format_seconds(state.tpot.expected)}",
        format_rate(state.tokens_per_s, "tokens/s"),
    ]
    waiting = round(state.concurrency - state.running)
    return [*words, f"{waiting:,} of {plural(state.concurrency, 'request')} waiting"] if waiting else words


def _notes(e: Estimate, whole: Facts) -> tuple[str, ...]:
    """Why so many devices, and why this engine."""
    return tuple(filter(None, (_many_devices(e, whole), *urgent(e.assumptions))))


def _many_devices(e: Estimate, whole: Facts) -> str:
    if whole.alone is None or whole.alone.fits:
        return ""
    need, usable = format_bytes(whole.alone.needed), format_bytes(whole.alone.usable)
    return (
        f"1 device is too small ({need} needed, {usable} usable), so {e.plan.devices:,} are used; `--devices` to choose"
    )


def _size(e: Estimate, whole: Facts) -> Section:
    kv, average = whole.kv_per_token, whole.weight_bytes / e.params_total
    work = f"{format_flops(whole.flops_per_token)} per token"
    at = f"at context {e.workload.context:,}; " if e.decode else ""
    rows = [
        ("parameters", format_count(e.params_total), _published(e)),
        ("weights", format_bytes(whole.weight_bytes), f"{e.formats.name}, {average:.4g} bytes/parameter"),
        ("FLOPs", work, f"{at}1 MAC = 2 FLOP"),
    ]
    if whole.state_bytes:
        state = f"{format_bytes(whole.state_bytes)} per sequence"
        rows.insert(2, ("recurrent state", state, "independent of length"))
    if kv:
        rows.insert(2, ("KV cache", f"{kv:,} B per token", e.formats.kv.name + windows_note(e.model, e.formats)))
    if e.params_active != e.params_total:
        active = format_count(e.params_active)
        rows.insert(1, ("  active per token", active, "excludes unused routed experts"))
    whole_model = not e.model.towers
    exact = tuple(row(name, value, _known(name, whole_model), remark) for name, value, remark in rows)
    return Section(title="Size", rows=exact, align="lr")


def _known(name: str, whole_model: bool) -> str:
    """How a figure is known: of a checkpoint with towers the parameters and weights are those of its text part."""
    return "exact" if whole_model or name not in ("parameters", "weights") else "text part"


def _published(e: Estimate) -> str:
    """How the count compares with what the authors state."""
    exact = e.model.published.exact if e.model.published else None
    if exact is None:
        return ""
    return "matches the published count" if exact == e.params_total else f"published: {exact:,}"


def _memory(e: Estimate, whole: Facts) -> Section:
    m, step = e.memory, step_text(e.tensors.rules, e.tensors.tokens, e.tensors.seqs)
    kept = "KV cache" if whole.kv_per_token else "recurrent state" if whole.state_bytes else "caches"
    parts = [
        ("weights", m.weights, towers_remark(e.model, e.tensors.towers)),
        (kept, m.kv_cache, ""),
        ("activations", m.activations, f"modelled: {step}"),
        ("runtime", m.runtime, f"modelled: {runtime_parts(m.division, e.hardware.vendor)}"),
    ]
    rows = [_memory_row(name, size, m.capacity, note) for name, size, note in parts if size or name == "weights"]
    free = Cell(format_bytes(abs(m.free)), "good" if m.fits else "bad")
    grown = whole.device_kv_per_token
    room = f"room for {m.free // grown:,} more tokens" if m.fits and grown else ""
    if m.fits:
        rows.append(row("free", free, bar(m.free / m.capacity), percent(m.free / m.capacity), room))
    else:
        rows.append(row("short by", free, bar(0), percent(-m.free / m.capacity), Cell("does not fit", "bad")))
    aside = f"{format_bytes(m.capacity)}, {format_bytes(m.usable)} usable ({m.usable / m.capacity:.0%})"
    title = "Memory per device" if e.plan.devices > 1 else "Memory"
    return Section(title=title, rows=tuple(rows), align="lrlr", aside=aside)


def _memory_row(name: str, size: int, capacity: int, note: str) -> Row:
    return row(name, format_bytes(size), bar(size / capacity), percent(size / capacity), note)


def _speed(e: Estimate, whole: Facts) -> Section:
    m, load = e.metrics, e.workload
    if not e.encoders:
        rows = [_phase_row("forward pass" if e.model.architecture == "encoder" else "prefill  (TTFT)", e.prefill)]
    else:
        rows = [_phase_row(f"{encoder.work.noun} encoder", encoder.time) for encoder in e.encoders]
        rows += [_phase_row("prefill", e.prefill), _first_token_row(e)]
    if e.decode is not None:
        ideal = (
            float(e.prefill.ideal_s)
            + sum(float(encoder.time.ideal_s) for encoder in e.encoders)
            + float(e.decode.ideal_s) * (load.output_len - 1)
        )
        rows += [_phase_row("decode   (TPOT)", e.decode), _step_rate_row("per user", 1.0, e.decode)]
        if load.batch > 1:
            rows.append(_step_rate_row("all users", load.batch, e.decode))
        rows.append(
            row("end to end", format_seconds(ideal), format_seconds(m["e2e_s"] or 0), "", f"{load.output_len:,} tokens")
        )
    evidence = (e.decode or e.prefill).evidence
    return Section(
        title="Speed",
        rows=tuple(rows),
        align="lrrrl",
        header=("speed of light", "expected", "80 % interval", "limited by"),
        below=(f"ridge {whole.ridge:,.4g} FLOP/B; expected: {evidence}, {EVIDENCE[evidence]}",),
    )


def _first_token_row(e: Estimate) -> Row:
    """Encoders and prefill together, and the encoders' share."""
    before, first = sum(float(encoder.time.expected_s) for encoder in e.encoders), e.metrics["ttft_s"] or 0.0
    ideal = sum(float(encoder.time.ideal_s) for encoder in e.encoders) + float(e.prefill.ideal_s)
    share = percent(before / first) if first else ""
    who = "the encoder is" if len(e.encoders) == 1 else "the encoders are"
    return row("TTFT", format_seconds(ideal), format_seconds(first), "", f"{who} {share} of it")


def _served_speed(e: Estimate, state: SteadyState, whole: Facts) -> Section:
    """The steady state of continuous batching: the only TTFT and TPOT of the page."""
    ttft, tpot, running = state.ttft, state.tpot, e.workload.batch
    front = f"front end {format_seconds(state.front_s)}"
    rows = [_duration_row("TTFT", ttft, front)] if ttft else [row("TTFT", "", "not given", "", "queueing")]
    rows += [_duration_row("TPOT", tpot), _rate_row("per user", 1.0, tpot.ideal, tpot.expected, tpot.low, tpot.high)]
    rows.append(row("all users", "", format_rate(state.tokens_per_s, "tok/s"), "", _running(state)))
    if state.encoder is not None:
        nouns = " and ".join(f"{encoder.work.noun}s" for encoder in e.encoders)
        rows.append(_duration_row("encoder", state.encoder, f"of each request's {nouns}, with its prompt"))
    rows.append(row("prefill", "", percent(state.utilisation), "", "of engine time"))
    below = [
        f"steady state of continuous batching; a decode step of {plural(running, 'request')} is broken down below",
        f"expected: {tpot.evidence}, {EVIDENCE[tpot.evidence]}",
    ]
    if state.refusal:
        below.append(f"no TTFT: {state.refusal}")
    if whole.enough:
        below.append(f"with `--devices {whole.enough}` all {state.concurrency:,} run at once")
    header = ("speed of light", "expected", "80 % interval", "")
    return Section(title="Speed", rows=tuple(rows), align="lrrrl", header=header, below=tuple(below))


def _duration_row(name: str, time: Duration, note: str = "") -> Row:
    span = format_span(time.low, time.high)
    return row(name, format_seconds(time.ideal), format_seconds(time.expected), span, note)


def _running(state: SteadyState) -> str:
    """How many of the requests in flight run at a time, and how many wait."""
    waiting = round(state.concurrency - state.running)
    running = f"{round(state.running):,} run at once"
    return f"{running}, {waiting:,} wait" if waiting else running


def _phase_row(name: str, phase: StepTime) -> Row:
    intensity = f", {float(phase.flops) / float(phase.bytes):,.4g} FLOP/B" if phase.bytes else ""
    return row(
        name,
        format_seconds(float(phase.ideal_s)),
        format_seconds(float(phase.expected_s)),
        format_span(float(phase.low_s), float(phase.high_s)),
        Cell(phase.bound + intensity, phase.bound),
    )


def _rate_row(name: str, batch: float, ideal: float, expected: float, low: float, high: float) -> Row:
    """Tokens per second of a batch, from the seconds of a step."""

    def rate(seconds: float) -> str:
        return format_rate(batch / float(seconds), "tok/s")

    span = f"{rate(high).rsplit(' ', 1)[0]} – {rate(low)}"
    return row(name, rate(ideal), rate(expected), span, "")


def _step_rate_row(name: str, batch: float, step: StepTime) -> Row:
    return _rate_row(name, batch, *(float(t) for t in (step.ideal_s, step.expected_s, step.low_s, step.high_s)))


def _cost(e: Estimate) -> Iterator[Section]:
    """What it costs and draws, where that is asked for."""
    if e.cost is not None:
        from archsim.render.pages.cost import cost_sections

        yield from cost_sections(e.cost)
    if e.energy is not None:
        from archsim.render.pages.energy import energy_sections

        yield from energy_sections(e.energy, "per output token" if e.decode is not None else "per input token")


def _where(e: Estimate) -> Section:
    phase = e.decode or e.prefill
    groups = by_part(phase)
    total = sum(g.expected_s for g in groups) or 1.0
    rows = tuple(_share_row(g, total) for g in groups if g.expected_s / total >= SMALLEST_SHARE)
    if e.model.architecture == "encoder":
        return Section(title="Where the time goes", rows=rows, align="lrlr", aside="expected time of a forward pass")
    of = "one step" if e.decode else "the prefill"
    return Section(title=f"Where {phase.name} time goes", rows=rows, align="lrlr", aside=f"expected time of {of}")


def _share_row(g: Group, total: float) -> Row:
    share = g.expected_s / total
    return row(g.name, format_seconds(g.expected_s), bar(share), percent(share), Cell(g.bound, BOUND.get(g.bound, "")))


def _headroom(e: Estimate, whole: Facts) -> Section:
    """What more would cost: sequences, a larger batch, a longer context."""
    pairs: list[tuple[str, str | None]] = []
    per_sequence = e.memory.kv_cache // e.workload.batch
    if e.memory.fits and per_sequence:
        more = e.memory.free // per_sequence
        pairs.append(("memory", f"holds {plural(more, 'more sequence')} of this length"))
    if e.decode is not None:
        pairs.append(("ceiling", _ceiling(e, e.decode, whole)))
        pairs.append(("context", _over_context(e)))
    phase = e.decode or e.prefill
    share = float(phase.ideal_s) / float(phase.expected_s)
    pairs.append(("efficiency", f"{share:.0%} of the speed of light is expected in {phase.name}"))
    return facts("Headroom", pairs)


MOST_PLANS = 3
"""Plans that a page lists beside the one that is taken."""


def _plans(e: Estimate) -> Iterator[Section]:
    """Other plans on the same devices that an estimate can hardly tell from the one that is taken."""
    if e.near:
        rows = [(degrees_text(ranked.plan), f"{ranked.slower:.1%} slower") for ranked in e.near[:MOST_PLANS]]
        yield facts("Plans within 10 %", rows)


def _over_context(e: Estimate) -> str:
    """The decode step as the context grows: a picture and its two ends."""
    contexts = contexts_of(e)
    times = decode_seconds(e, contexts)
    first, last = (f"{format_seconds(times[i])} @ {contexts[i]:,}" for i in (0, -1))
    name = "TPOT" if e.serving is None else "decode step"
    if times[0] == times[-1]:
        return f"{name} {spark(times)}  the same at any length"
    return f"{name} {spark(times)}  {first} to {last}"


def _ceiling(e: Estimate, decode: StepTime, whole: Facts) -> str:
    """When more sequences stop being free: where arithmetic takes as long as memory."""
    batch = e.workload.batch
    flops, state = float(decode.flops) / batch, float(decode.total("state_bytes")) / decode.stages / batch
    weights = float(decode.total("weight_bytes")) / decode.stages
    if e.params_active != e.params_total:
        return "a larger batch reads more experts per step, until all of them are in use"
    if state and flops / state <= whole.ridge:
        limit = f"{flops / state:,.4g} < {whole.ridge:,.4g} FLOP/B"
        return f"decode stays memory-bound at any batch size, at this context ({limit})"
    crossing = weights / (flops / whole.ridge - state)
    return f"decode becomes compute-bound at a batch of about {crossing:,.3g}"


def _next(e: Estimate, asked: tuple[str, str], options: Mapping[str, object]) -> Section:
    """Commands that go on from here, with everything that was asked."""
    model, hw = asked
    changes = {"set": options["set"]}
    lines = [(command_line("estimate", model, hw=hw, **options, by="op"), "every kernel")]
    if e.decode is None:
        counted = {name: options[name] for name in ("batch", "input_len", "weights")}
        lines += [(command_line("count", model, **counted, **changes), "exact counts, block by block")]
    else:
        for name in narrower_formats(e)[:1]:
            lines += [(command_line("estimate", model, hw=hw, **{**options, "weights": name}), "narrower weights")]
        at = {"context_len": e.workload.context, "weights": options["weights"], **changes}
        lines += [(command_line("explain", model, "decode", hw=hw, **at), "the formula with numbers in it")]
    return try_section(lines)


# ------------------------------------------------------------------ the device is too small
def too_small(e: Estimate) -> tuple[str, str]:
    """Headline and table of a device count that does not hold the model."""
    m, load = e.memory, e.workload
    tokens = f"{load.input_len + load.output_len:,} tokens × batch {load.batch:,}" if e.decode else ""
    short = f"{format_bytes(m.usable)} usable, short by {format_bytes(-m.free)}"
    rows = [
        ("weights", m.weights, ""), ("caches", m.kv_cache, tokens), ("activations", m.activations, ""),
        ("runtime", m.runtime, ""), ("each needs" if e.plan.devices > 1 else "needed", m.needed, short),
    ]  # fmt: skip
    lines = [f"  {name:<11}{format_bytes(need):>10}  {note}".rstrip() for name, need, note in rows]
    where = f"{e.plan.devices:,} × {e.hardware.id}"
    return f"{e.model.name} in {e.formats.name} does not fit on {where}", "\n".join(lines)


def suggestions_text(found: Sequence[Suggestion]) -> str:
    """The hint that lists what would fit."""
    if not found:
        return "a smaller batch, a shorter context or a larger device"
    lines = ["what would fit, cheapest change first"]
    for s in found:
        each = "/device" if s.devices > 1 else ""
        room = f"{s.room:,} more tokens" if s.room is not None else ""
        lines.append(f"  {s.change:<17} {format_bytes(s.memory.needed) + each:>15}  {room}".rstrip())
    return "\n".join(lines)
