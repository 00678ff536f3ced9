"""A lower power limit: steps that would draw more take longer, at the clock that the limit sustains.

What a device draws beyond its idle power goes with the cube of its clock (the voltage follows the frequency), so that
a limit L turns a step of P watts at full clock into one at the clock ((L - idle) / (P - idle))^(1/3). All kernels are
taken to slow down with the clock, which is an upper bound: those that wait for memory slow down less. Time in which the
device waits for its host does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.errors import UsageError
from archsim.base.number import Num, maximum, minimum
from archsim.energy.activity import Activity, activity_of
from archsim.energy.power import DevicePowerModel
from archsim.graph.step import Step
from archsim.timing.duration import Duration
from archsim.timing.step_pricer import StepTimer
from archsim.timing.step_time import KernelTime, StepTime

LEAST = 1e-9
"""Watts that are nothing, where one must not divide by nothing."""

SLOWED = KernelTime("power limit", "gaps", part="power limit")
"""The row of the time that a power limit adds."""


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """A limit in watts of one device. Raises UsageError where the device draws as much with nothing to do."""

    model: DevicePowerModel
    watts: float

    def __post_init__(self) -> None:
        if not self.model.idle_w < self.watts:
            idle = f"with an engine loaded, the device draws about {self.model.idle_w:,.0f} W at rest"
            raise UsageError(f"a power limit of {self.watts:g} W is too low: {idle}")

    def clock(self, active: Activity) -> Num:
        """The sustained clock over the full one: 1 where the limit does not bind."""
        idle = self.model.idle_w
        drawn = self.model.watts(active)
        return minimum(1.0, ((self.watts - idle) / maximum(drawn - idle, LEAST)) ** (1 / 3))

    def limited_step(self, step: StepTime) -> StepTime:
        """The step under the limit."""
        active = activity_of(step)
        clock = self.clock(active)
        if isinstance(clock, float) and clock >= 1:
            return step
        added = (active.seconds - active.host_s) * (1 / clock - 1)
        off = ((step.low_s / step.expected_s), (step.high_s / step.expected_s))
        return step.plus(
            Duration(added, added * off[0], added * off[1], 0.0, self.model.evidence), "power limit", SLOWED
        )

    def limited_watts(self, watts: Num) -> Num:
        """Watts under the limit, of an activity that would draw more."""
        return minimum(watts, self.watts)


@dataclass(frozen=True, slots=True)
class LimitedTimer:
    """A timer of steps on devices with a power limit."""

    timer: StepTimer
    limit: PowerLimit

    def price(self, step: Step) -> StepTime:
        """The time of one forward pass under the limit."""
        return self.limit.limited_step(self.timer.price(step))
