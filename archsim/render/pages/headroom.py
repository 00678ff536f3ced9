"""The end of `archsim estimate`'s page: what room is left, and what limits the use of it."""

from __future__ import annotations

from archsim.base.units import format_seconds
from archsim.predict.context_curve import decode_times, lengths
from archsim.predict.estimate import Estimate
from archsim.predict.what_fits import Facts
from archsim.render.page import Section, facts, plural, spark
from archsim.timing.step_time import StepTime


def headroom(e: Estimate, whole: Facts) -> Section:
    """What more would cost: sequences, a larger batch, a longer context."""
    pairs: list[tuple[str, str | None]] = []
    per_sequence = e.memory.kv_cache // e.workload.batch
    if e.memory.fits and per_sequence:
        more = e.memory.free // per_sequence
        pairs.append(("memory", f"holds {plural(more, 'more sequence')} of this length"))
    if e.decode is not None:
        pairs.append(("ceiling", _ceiling(e, e.decode, whole)))
        pairs.append(("context", _over_context(e)))
    ideal = float((e.decode or e.prefill).ideal_s) / float((e.decode or e.prefill).expected_s)
    pairs.append(
        ("efficiency", f"{ideal:.0%} of the speed of light is expected in {'decode' if e.decode else 'prefill'}")
    )
    return facts("Headroom", pairs)


def _over_context(e: Estimate) -> str:
    """The decode step as the context grows: a picture and its two ends."""
    contexts = lengths(e.model.max_context)
    times = [float(phase.expected_s) for phase in decode_times(e, contexts)]
    first, last = (f"{format_seconds(times[i])} @ {contexts[i]:,}" for i in (0, -1))
    if times[0] == times[-1]:
        return f"TPOT {spark(times)}  the same at any length"
    return f"TPOT {spark(times)}  {first} to {last}"


def _ceiling(e: Estimate, decode: StepTime, whole: Facts) -> str:
    """When more sequences stop being free: where arithmetic takes as long as memory."""
    batch = e.workload.batch
    flops, state = float(decode.flops) / batch, float(decode.total("state_bytes")) / decode.stages / batch
    weights = float(decode.total("weight_bytes")) / decode.stages
    if e.params_active != e.params_total:
        return "a larger batch reads more experts per step, until all of them are in use"
    if state and flops / state <= whole.ridge:
        limit = f"{flops / state:,.4g} < {whole.ridge:,.4g} FLOP/B"
        return f"decode stays memory-bound at any batch of this context ({limit})"
    crossing = weights / (flops / whole.ridge - state)
    return f"decode becomes compute-bound at a batch of about {crossing:,.3g}"
