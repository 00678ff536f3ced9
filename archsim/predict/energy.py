"""What an estimate draws: watts from how busy its devices are, joules per token, kilowatt-hours and grams."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import exp, hypot, log
from typing import Unpack

from archsim.base.errors import UsageError
from archsim.base.notes import Note
from archsim.base.options import EnergyArguments
from archsim.cost.served_cost import ServedWork
from archsim.energy.activity import Activity, activity_of, batch_activity
from archsim.energy.energy_use import JOULES_PER_KWH, USUAL_PUE, EnergyUse, Span, checked_factors, joules_per_token
from archsim.energy.limit import LimitedTimer, PowerLimit
from archsim.energy.power import DevicePowerModel, power_model
from archsim.predict.estimate import Estimate, pricer_for
from archsim.predict.served_work import served_work
from archsim.serving.steady_state import ServedLoad, served_load, steady_state
from archsim.timing.step_pricer import StepTimer


def power_of(e: Estimate) -> DevicePowerModel:
    """The power model of an estimate's device and engine. Raises UsageError where its power limit is not known."""
    return power_model(e.hardware, e.overheads.name, e.overheads.version)


def load_of(e: Estimate) -> ServedLoad | None:
    """The load of the steady state, where there is one."""
    if e.serving is None:
        return None
    load = served_load(
        pricer_for(e), e.serving.concurrency, e.workload.input_len, e.workload.output_len, e.serving.running
    )
    return replace(
        load, cached_len=e.cached_input, source_len=e.workload.source_len, before=e.serving.encoder
    )  # fmt: skip


def request_activity(timer: StepTimer, load: ServedLoad) -> Activity:
    """What the devices do in a steady state while every running request makes its answer."""
    decode = timer.price(load.decode)
    mixed = timer.price(load.with_prompt)
    prompt = activity_of(mixed).minus(activity_of(decode)) if load.is_mixed else activity_of(mixed)
    return activity_of(decode).times(max(load.output_len, 1)).plus(prompt.times(load.per_replica))


def energy_use(
    work: ServedWork, active: Activity, model: DevicePowerModel, *, limit: PowerLimit | None = None,
    pue: float | None = None, grid: float | None = None,
) -> EnergyUse:  # fmt: skip
    """Watts and joules of a load. Errors of power and of time are independent: their logs add in squares."""
    checked_factors(pue, grid)
    watts = float(model.watts(active))
    low, high = (float(end) for end in model.interval(watts))
    if limit is not None:
        watts, low, high = (float(limit.limited_watts(value)) for value in (watts, low, high))
    tokens = float(work.output_len or work.input_len)
    joules = joules_per_token(watts, work.devices, float(work.request_s), tokens)
    wide = [
        hypot(log(w / watts), log(float(t) / float(work.request_s)))
        for w, t in ((low, work.low_s), (high, work.high_s))
    ]
    per_token = Span(joules, joules * exp(-wide[0]), joules * exp(wide[1]))
    return EnergyUse(
        devices=int(work.devices), watts=Span(watts, low, high), joules=per_token,
        kwh=per_token.times(1e6 / JOULES_PER_KWH), pue=USUAL_PUE if pue is None else pue, grid=grid,
        evidence=model.evidence,
    )  # fmt: skip


def with_energy(e: Estimate, **asked: Unpack[EnergyArguments]) -> Estimate:
    """The estimate with what its load draws, under a power limit where one is asked for.

    Raises UsageError for a device whose power is not known, or a limit that it exceeds with nothing to do.
    """
    model, watts = power_of(e), asked.get("power_limit")
    limit = None if watts is None else PowerLimit(model, float(watts))
    active = activity_of_estimate(e)
    if limit is not None:
        e = limited(e, limit)
    use = energy_use(served_work(e), active, model, limit=limit, pue=asked.get("pue"), grid=asked.get("grid"))
    return replace(e, energy=use, assumptions=(*e.assumptions, Note("A50", NOTE)))


NOTE = (
    "power follows from how busy the devices are (fitted on measured runs); nodes draw 1.25 to 1.6 times their "
    "devices; idle hours and manufacturing are not counted"
)


def activity_of_estimate(e: Estimate) -> Activity:
    """What a device does under the load of an estimate."""
    load, encoders = load_of(e), [activity_of(encoder.time) for encoder in e.encoders]
    if load is None:
        step = None if e.decode is None else activity_of(e.decode)
        first = reduce(Activity.plus, encoders, activity_of(e.prefill))
        return batch_activity(first, step, e.workload.output_len)
    return reduce(Activity.plus, encoders, request_activity(pricer_for(e), load))  # of all that run, as the rest


def limited(e: Estimate, limit: PowerLimit) -> Estimate:
    """The estimate on devices with a power limit: times rise where they would draw more."""
    load, serving = load_of(e), e.serving
    encoders = tuple(replace(encoder, time=limit.limited_step(encoder.time)) for encoder in e.encoders)
    if load is not None:
        if load.before is not None:
            seconds, full = (sum(float(one.time.expected_s) for one in some) for some in (encoders, e.encoders))
            load = replace(load, before=load.before.scaled(seconds / full))
        serving = steady_state(LimitedTimer(pricer_for(e), limit), load)
    prefill = limit.limited_step(e.prefill)
    decode = None if e.decode is None else limit.limited_step(e.decode)
    return replace(e, prefill=prefill, decode=decode, serving=serving, encoders=encoders)


def owned_watts(e: Estimate, utilization: float = 1.0) -> float | None:
    """Watts of one device and its share of the node, on average over hours with the load of an estimate and hours
    without; None where unknown.
    """
    try:
        model = power_of(e)
    except UsageError:
        return None
    if e.energy is not None:
        use = e.energy
    else:
        use = energy_use(served_work(e), activity_of_estimate(e), model)
    mean = use.watts.expected * utilization + model.idle_w * (1 - utilization)
    return use.in_scope(use.watts._replace(expected=mean), "node").expected
