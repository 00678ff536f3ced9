"""What an assumption is worth: how far the figures move if it is wrong, computed anew where archsim can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from archsim.base.errors import ArchsimError
from archsim.base.notes import Note
from archsim.base.units import format_bytes, format_seconds
from archsim.base.version import version_of
from archsim.blocks.layer import walk_layers
from archsim.blocks.moe import expected_experts
from archsim.counts.count import count
from archsim.counts.formats import FAMILIES
from archsim.counts.workload import PREFILL_TOKENS
from archsim.engines.names import DEFAULT_ENGINE
from archsim.predict.estimate import Estimate
from archsim.predict.model_parts import seconds_by_part
from archsim.render.figures.roofline import compute_bound_share
from archsim.render.html.candidates import Candidate, ReportRequest, at
from archsim.render.html.markup import figures, significant
from archsim.render.pages.cost import usd
from archsim.spec.format import load_format
from archsim.timing.step_time import KernelTime, StepTime

UNKNOWN = "not quantified: nothing on this page could be computed without it"
EARLY = "steps early in the answer are shorter, late ones longer"
NARROW_CACHE, WIDE_CACHE = "fp8", "bf16"
SLOWER = 0.9
"""Share of the listed bandwidth that a device might reach."""

GIB = 1 << 30

TRIED = 3
"""Candidates that an effect is sought for."""


def effect_text(note: Note, made: Sequence[Candidate], asked: ReportRequest) -> str:
    """The effect on the first candidate that it can be computed for, and which that is where there are several."""
    for c in sorted(made, key=lambda c: not c.fits)[:TRIED]:
        found = effect(note, c, asked)
        if found not in (UNKNOWN, EARLY):
            return f"{found} ({c.label})" if len(made) > 1 else found
    return found


def effect(note: Note, c: Candidate, asked: ReportRequest) -> str:
    """How far the figures of a candidate move if an assumption of its estimate is wrong."""
    found = EFFECTS.get(note.code)
    return found(c.answer, c, asked) if found is not None else UNKNOWN


def again(c: Candidate, asked: ReportRequest, **changed: object) -> Estimate:
    """The candidate's estimate with other options, on the same devices."""
    return at(c.answer, asked, c.asked, **changed)


def change(after: float, before: float) -> str:
    """A change in per cent with its sign."""
    share = 100 * (after / before - 1) if before else 0.0
    if abs(share) < 0.05:
        return "no change"
    return f"{'+' if share > 0 else '−'}{figures(abs(share), 2)} %"


def _step(e: Estimate) -> tuple[str, StepTime]:
    """The phase that is waited for most often, and what one of it is called."""
    return ("a token", e.decode) if e.decode is not None else ("a pass", e.prefill)


# ------------------------------------------------------------------ one for each kind of assumption
def _paid(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    if e.cost is None:
        return UNKNOWN
    cost = e.cost.cost
    value = cost.usd_per_m_output_all_in or cost.usd_per_m_total
    return f"at half that share, ${usd(2 * value)} per million tokens instead of ${usd(value)}"


def _cache(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    if not e.memory.kv_cache:
        return "nothing: there is no cache"
    try:
        name = WIDE_CACHE if e.formats.kv.name == NARROW_CACHE else NARROW_CACHE
        other = again(c, asked, kv_cache_dtype=name)
    except ArchsimError:
        return UNKNOWN
    sizes = f"{format_bytes(other.memory.kv_cache)} instead of {format_bytes(e.memory.kv_cache)} of cache"
    (what, ours), (_, theirs) = _step(e), _step(other)
    return f"in {name} {sizes}; time for {what}: {change(float(theirs.expected_s), float(ours.expected_s))}"


def _scales(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    """Of a word for a format, the other scales that it can mean."""
    (name, *_) = sorted(FAMILIES[load_format(str(c.asked)).name])
    try:
        other = at(e, asked, name)
    except ArchsimError:
        return UNKNOWN
    sizes = f"{format_bytes(other.memory.weights)} instead of {format_bytes(e.memory.weights)} of weights on a device"
    (what, ours), (_, theirs) = _step(e), _step(other)
    return f"in {name} {sizes}; time for {what}: {change(float(theirs.expected_s), float(ours.expected_s))}"


def _light(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    found = [
        f"{phase.name} {change(_slow_memory(phase), float(phase.ideal_s))}" for phase in (e.prefill, e.decode) if phase
    ]
    lost = round(100 * (1 - SLOWER))
    return f"with {lost} % less bandwidth than listed, the times at the speed of light change: {', '.join(found)}"


def _slow_memory(phase: StepTime) -> float:
    """The phase's speed of light on a slower memory."""

    def ratio(op: KernelTime) -> float:
        now = max(float(op.compute_s), float(op.memory_s), float(op.comm_s))
        then = max(float(op.compute_s), float(op.memory_s) / SLOWER, float(op.comm_s))
        return then / now if now else 1.0

    total = float(phase.total("ideal_s"))
    return float(phase.ideal_s) * sum(float(op.ideal_s) * ratio(op) for op in phase.ops) / (total or 1.0)


def _logits(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    batch, length = asked.batch, asked.input_len
    try:
        last = count(e.model, batch=batch, input_len=length)
        every = count(e.model, batch=batch, input_len=length, logits="all")
    except ArchsimError:
        return UNKNOWN
    base = float(last.masked.total)
    return (
        f"FLOPs of prefill: {change(float(every.masked.total), base)} with logits at every position, "
        f"{change(float(last.full.total), base)} if all pairs of tokens are computed"
    )


def _usable(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    m = e.memory
    tenth = m.usable / m.division.share / 10
    fits = "it still fits" if m.free >= tenth else "it no longer fits" if m.fits else "it does not fit anyway"
    lost = f"ten percentage points less are {format_bytes(tenth)} of a device: {fits}"
    each = e.kv_bytes_per_token
    return lost + (f"; one more GiB for the runtime takes the room of {GIB // each:,} tokens" if each else "")


def _at_once(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    tokens, size = asked.batch * asked.input_len, e.memory.activations
    if tokens <= PREFILL_TOKENS:
        return f"nothing here: the prompts have {tokens:,} tokens in total"
    fits = "" if e.memory.free >= size or not e.memory.fits else ", too much for the device"
    return f"activations take {format_bytes(size)}; twice the tokens at once take about twice that{fits}"


def _mean(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    if e.decode is None:
        return "nothing: no token is generated"
    first = again(c, asked, output_len=1).decode
    if first is None or e.model.encoder is not None:
        return EARLY
    last = again(c, asked, input_len=asked.input_len + asked.output_len, output_len=1).decode
    ends = [format_seconds(float(phase.expected_s)) for phase in (first, last) if phase is not None]
    return f"the first token takes {ends[0]}, the last {ends[-1]}"


def _times(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    found = [
        f"{phase.name} {change(float(phase.low_s), at)} to {change(float(phase.high_s), at)}"
        for phase in (e.prefill, e.decode)
        if phase is not None and (at := float(phase.expected_s))
    ]
    what, phase = _step(e)
    launches = sum(float(op.count) for op in phase.ops)
    captured = f"without CUDA graphs, {what} waits for {launches:,.0f} kernel launches"
    return f"in four of five cases within {', '.join(found)}; {captured}"


def _experts(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    ffns = (layer.ffn for layer in walk_layers(e.model.layers))
    experts = next((ffn.experts for ffn in ffns if ffn is not None and ffn.experts), None)
    if experts is None or e.decode is None:
        return UNKNOWN
    whole, each, tokens = experts.total, experts.per_token, asked.batch
    if tokens == 1:
        return f"nothing in decode of one sequence, which reads its own {each:,} experts; prefill reads most experts"
    read = float(expected_experts(whole, each, tokens))
    spent, total = seconds_by_part(e.decode).get("experts", 0.0), float(e.decode.expected_s)
    ends = [format_seconds(total + spent * (n / read - 1)) for n in (each, min(whole, each * tokens))]
    return (
        f"a decode step reads {read:.0f} of {whole:,} experts: it takes about {ends[0]} if all tokens pick the "
        f"same {each:,}, and {ends[1]} if no two pick the same"
    )


def _stages(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    rate = e.metrics["tokens_per_s_per_device"]
    if rate is None:
        return f"with every stage busy, up to {e.plan.pp} times the throughput"
    full = significant(rate * e.plan.pp)
    return f"with every stage busy, at most {full} tokens/s per device instead of {significant(rate)}"


def _engine(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    (what, ours), (_, plain) = _step(e), _step(again(c, asked, engine=DEFAULT_ENGINE))
    times = format_seconds(float(plain.expected_s)), format_seconds(float(ours.expected_s))
    return f"with the generic rules instead of the engine's, {times[0]} instead of {times[1]} for {what}"


def _version(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    """By the oldest rules that the engine's document knows."""
    first = min(e.tensors.rules.before, key=lambda text: version_of(text) or ())
    old = again(c, asked, engine=f"{e.plan.engine}@0")
    (what, ours), (_, then) = _step(e), _step(old)
    times = format_seconds(float(then.expected_s)), format_seconds(float(ours.expected_s))
    usable = f"{format_bytes(old.memory.needed)} of {format_bytes(old.memory.usable)} usable"
    now = f"{format_bytes(e.memory.needed)} of {format_bytes(e.memory.usable)}"
    slower = "as long" if times[0] == times[1] else f"{times[0]} instead of {times[1]}"
    return f"with the rules before {first} it needs {usable} instead of {now}, and takes {slower} for {what}"


def _not_there(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    return f"in the requested format no weight would change: {e.formats.name} is the format of such checkpoints"


def _units(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    shares = []
    for phase in (e.prefill, e.decode):
        if phase is not None:
            bound = compute_bound_share(phase)
            shares.append(f"{figures(100 * bound, 2) if bound >= 0.001 else 'nearly 0'} % of {phase.name}")
    return f"a faster unit would help where arithmetic is the limit: {', '.join(shares)}"


def _lifted(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    found = [
        f"{phase.name} {change(float(phase.expected_s - phase.busy * phase.rank.lifted_s), float(phase.expected_s))}"
        for phase in (e.prefill, e.decode)
        if phase is not None and phase.rank.lifted
    ]
    return f"with the fitted times {', '.join(found)}, faster than the device can be"


def _implied(e: Estimate, c: Candidate, asked: ReportRequest) -> str:
    return "another engine has other kernels for such weights, and divides memory differently"


EFFECTS: Mapping[str, Callable[[Estimate, Candidate, ReportRequest], str]] = {
    "A01": _light, "A02": _logits, "A03": _usable, "A04": _at_once, "A05": _mean, "A06": _experts, "A07": _stages,
    "A08": _times, "A09": _engine, "A10": _cache, "A11": _not_there, "A12": _units, "A13": _units, "A14": _units,
    "A16": _lifted, "A19": _version, "A20": _engine, "A21": _version, "A28": _implied, "A49": _paid,
    "A53": _scales,
}  # fmt: skip
"""How the effect of an assumption is found, by its code."""
