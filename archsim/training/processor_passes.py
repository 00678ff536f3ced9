"""Times of the passes of a training step on a processor: the operators of the forward, and the backward of each.

PyTorch's autograd runs one backward for every operator, which is timed as a kernel of its own: that of a linear layer
has two products, that of attention five, that of a row-wise function its own sequence of operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from archsim.graph.graph import Block
from archsim.graph.kernels import kernels_with_edges, traffics
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.cpu_calls import calls_by_members, gradients_of
from archsim.timing.duration import weakest
from archsim.timing.kernel_calls import CallRules
from archsim.timing.kernel_timer import Timer
from archsim.timing.step_pricer import step_bytes
from archsim.timing.step_time import KernelCost
from archsim.training.pass_times import PassKernel, PassRules


def processor_passes(graph: Block, rules: PassRules) -> tuple[list[PassKernel], list[PassKernel]]:
    """The kernels of a forward, and those of its backward, by the operators of the forward."""
    kernels = [kernel for kernel, _ in kernels_with_edges(graph)]
    if not kernels:
        return [], []
    machine = rules.timer.machine
    rates = machine.holding(step_bytes(graph)) if machine.has_cache_rates else machine
    costs = [KernelCost.of(k, moved, rates) for k, moved in
             zip(kernels, traffics(graph, rates.cache_bytes), strict=True)]  # fmt: skip
    ops = {op.name: op for kernel in kernels for op in kernel.ops}
    forward, backward = list[PassKernel](), list[PassKernel]()
    for members, calls in calls_by_members(kernels, CallRules(rules.step, machine), rules.form, step_bytes(graph)):
        name, times = kernels[members[0]].name, float(kernels[members[0]].times)
        if not calls:
            continue
        ahead = _kernel(name, [one.call for one in calls], times, rules.timer)
        flops = times * sum(float(costs[i].flops) for i in members)
        forward.append(ahead._replace(ideal_s=times * sum(float(costs[i].ideal_s) for i in members), flops=flops))
        if gradients := [one.call for one in gradients_of(calls, ops)]:
            backward.append(_kernel(name, gradients, times, rules.timer))
    return forward, backward


def _kernel(name: str, calls: Sequence[KernelCall], times: float, timer: Timer) -> PassKernel:
    """Some calls that follow each other, all their executions together."""
    found = [timer.once(call) for call in calls]
    bounds = [MODELS[call.kernel_class].bound(call, timer.machine) for call in calls]
    ideal = sum(max(float(compute), float(memory)) for compute, memory, _ in bounds)
    seconds = sum(float(time.expected) for time in found)
    return PassKernel(
        name, max(seconds, ideal) * times, ideal * times, weakest([time.evidence for time in found]),
        calls[0].kernel_class,
    )  # fmt: skip
