"""How busy a device is: the sums over kernels that its power follows from.

Power is taken as linear in the shares of time in which the host is waited for, in which kernels are at what limits
them, and in which collectives run, and in the root of the share of arithmetic, so that a few sums over the kernels of a
step are enough, and the activity of a load is the sum of that of its steps.
"""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.number import Num, absent, maximum, total
from archsim.timing.step_time import StepTime


class Activity(NamedTuple):
    """Sums over the kernels of one device. seconds: from beginning to end. host_s: without a kernel. busy_s: in which
    kernels would do their work at the peaks. compute_s: in which arithmetic would at its peak. collective_s: in which
    collectives run, and devices wait for each other.
    """

    seconds: Num = 0.0
    host_s: Num = 0.0
    busy_s: Num = 0.0
    compute_s: Num = 0.0
    collective_s: Num = 0.0

    def times(self, count: Num) -> Activity:
        """So many of these, one after another; a share of one."""
        return Activity(*(value * count for value in self))

    def plus(self, other: Activity) -> Activity:
        """This, then another."""
        return Activity(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Activity) -> Activity:
        """What this has more than another."""
        return self.plus(other.times(-1))


def activity_of(step: StepTime) -> Activity:
    """The activity of one device in a step. Stages of a pipeline share the work, and each waits for the others."""
    ops, stages = step.rank.ops, step.stages
    kernels = total(op.expected_s for op in ops) / stages
    busy = total(maximum(op.memory_s, op.compute_s) for op in ops) / stages
    compute = total(op.compute_s for op in ops) / stages
    collective = total(op.expected_s for op in ops if not absent(op.comm_s)) / stages
    return Activity(step.expected_s, step.expected_s - kernels, busy, compute, collective)


def batch_activity(prefill: Activity, decode: Activity | None, output_len: Num) -> Activity:
    """What a device does for a single batch, from its prompt to its last token. decode: of one step."""
    return prefill if decode is None else prefill.plus(decode.times(maximum(output_len - 1, 0)))
