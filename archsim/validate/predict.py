"""The predictors behind `archsim validate`: the same ones that answer `archsim estimate`, asked about table rows."""

from __future__ import annotations

from archsim.base.number import exp
from archsim.cost.efficiency import DATASHEET
from archsim.cost.roofline import seconds
from archsim.cost.timing.call import Call
from archsim.cost.timing.catalog import MODELS
from archsim.sim.timing import UNKNOWN, Timed, Timer
from archsim.validate.roofline import bounds


def kernel_time(timer: Timer, call: Call) -> Timed:
    """A kernel's time, or those of a table of calls; a class without a time model at the usual efficiencies."""
    if call.op in MODELS:
        return timer.time(call)
    compute, memory, link = bounds(call, timer.machine)
    time = seconds(compute, memory, link, DATASHEET)
    low, high = UNKNOWN.interval["0"]
    return Timed(time, time * exp(low), time * exp(high), "datasheet")
