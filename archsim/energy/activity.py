"""How busy a device is: the sums over kernels that its power follows from.

A kernel that takes t seconds, of which its bytes need m at the full bandwidth and its arithmetic c at the peak, has the
memory share m/t and the compute share c/t. Power is linear in the memory share, in the root of the compute share and in
their product, so energy is linear in four sums over all kernels of a step: t, m, sqrt(c t) and m sqrt(c/t). Time in
which no kernel runs (the host, gaps, waiting for another stage) adds to t alone.
"""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.number import Num, maximum, total
from archsim.timing.step_time import StepTime

NO_TIME = 1e-30
"""Seconds that stand for none where one divides."""


class Activity(NamedTuple):
    """Sums over the kernels of one device. seconds: from beginning to end. memory_s: in which the memory is busy at its
    bandwidth. root_s, product_s: seconds weighted with the root of the compute share, and with that and the memory
    share. link_s: in which the links are busy at their rate.
    """

    seconds: Num = 0.0
    memory_s: Num = 0.0
    root_s: Num = 0.0
    product_s: Num = 0.0
    link_s: Num = 0.0

    def times(self, count: Num) -> Activity:
        """So many of these, one after another; a share of one."""
        return Activity(*(value * count for value in self))

    def plus(self, other: Activity) -> Activity:
        """This, then another."""
        return Activity(*(a + b for a, b in zip(self, other, strict=True)))

    def with_idle(self, seconds: Num) -> Activity:
        """This, then seconds without work."""
        return self._replace(seconds=self.seconds + seconds)


def activity_of(step: StepTime) -> Activity:
    """The activity of one device in a step. Stages of a pipeline share the work and all take the step's time."""
    ops = step.rank.ops
    memory = total(op.memory_s for op in ops)
    root = total((op.compute_s * op.expected_s) ** 0.5 for op in ops)
    product = total(op.memory_s * (op.compute_s / maximum(op.expected_s, NO_TIME)) ** 0.5 for op in ops)
    link = total(op.comm_s for op in (*ops, *step.beside))
    return Activity(step.expected_s, *(value / step.stages for value in (memory, root, product, link)))
