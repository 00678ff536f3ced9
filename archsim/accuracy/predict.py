"""The predictors behind `archsim validate`: the same ones that answer `archsim estimate`, asked about table rows."""

from __future__ import annotations

from archsim.accuracy.naive_roofline import bounds
from archsim.base.number import exp
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.defaults import DATASHEET
from archsim.timing.duration import Duration
from archsim.timing.kernel_timer import UNKNOWN, Timer
from archsim.timing.roofline import seconds


def kernel_time(timer: Timer, call: KernelCall) -> Duration:
    """A kernel's time, or those of a table of calls; a class without a time model at the usual efficiencies."""
    if call.kernel_class in MODELS:
        return timer.time(call)
    compute, memory, link = bounds(call, timer.machine)
    time = seconds(compute, memory, link, DATASHEET)
    low, high = UNKNOWN.interval["0"]
    return Duration(time, time * exp(low), time * exp(high))
