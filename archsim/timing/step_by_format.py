"""One step of a model on one rank, timed in one weight format after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from archsim.counts.formats import Formats
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, Traffic, kernels_with_edges, traffics
from archsim.graph.step import Step
from archsim.graph.tensor import Format, Tensor, Use, nbytes
from archsim.timing.kernel_calls import Roles, fused_call, fused_members, roles_of
from archsim.timing.step_pricer import LaunchTime, StepPricer, TimeByKernelClass, launch_time
from archsim.timing.step_time import KernelCost, RankTime, StepTime

Stored = tuple[Format, ...]
"""The formats of the weights that a kernel reads, in the order in which it reads them."""


class _InFormats(NamedTuple):
    """A kernel with its weights in some formats, what it moves, and its speed of light."""

    kernel: Kernel
    traffic: Traffic
    cost: KernelCost


class StepByFormat:
    """A step as `pricer` runs it, in other weight formats. Caches and activations stay as they are.

    The graph is lowered and cut once. A kernel that reads no weights takes the same time in every format; one that
    does is timed once for each of the formats that its weights take.
    """

    def __init__(self, pricer: StepPricer, step: Step) -> None:
        graph = pricer.graphs.rank(step, pricer.plan)
        found = kernels_with_edges(graph)
        self.pricer, self.step = pricer, step
        self._rules = pricer.call_rules(step)
        self._kernels = [kernel for kernel, _ in found]
        self._weights = [[use for use in crossing if use.tensor.kind == "weight"] for _, crossing in found]
        self._traffics = traffics(graph, pricer.timer.machine.cache_bytes)
        self._roles = roles_of(self._kernels)
        self._members: list[list[int]] | None = None
        self._priced: dict[tuple[int, Stored], _InFormats] = {}
        self._costs: dict[tuple[int, tuple[str, ...]], KernelCost] = {}
        self._launches: dict[tuple[tuple[int, ...], tuple[Stored, ...]], LaunchTime] = {}

    @staticmethod
    def serves(pricer: StepPricer) -> bool:
        """Whether kernels are timed apart from one another: not on processors, nor where what a step reads of its
        weights decides what stays in a cache."""
        return not (pricer.timer.machine.has_cache_rates or pricer.timer.machine.is_processor)

    def price(self, formats: Formats) -> StepTime:
        """The time of the step with weights in these formats, as `StepPricer.price` says it."""
        return self.pricer.with_kernels(self.step, self._rank_time(formats))

    def _rank_time(self, formats: Formats) -> RankTime:
        """The kernels of the rank with weights in these formats."""
        stored = [tuple(formats.format_of(use.tensor) for use in own) for own in self._weights]
        priced = [self._in_formats(i, own) for i, own in enumerate(stored)]
        experts = {rows: t.stored_as(formats.format_of(t)) for rows, t in self._roles.experts.items()}
        roles = self._roles._replace(experts=experts)
        sums, fused = TimeByKernelClass(), []
        for members in self._fused(priced, formats):
            first = self._kernels[members[0]].ops[0]
            sent = [experts[u.tensor.name].format for u in first.reads if u.tensor.name in experts]
            key = tuple(members), (*(stored[i] for i in members), tuple(sent))
            launch = self._launches.get(key)
            if launch is None:
                launch = self._launches[key] = self._launch(members, [priced[i] for i in members], roles)
            sums.add(launch)
            fused.append(launch.fused)
        costs = tuple(each.cost for each in priced)
        return RankTime(costs=costs, fused=tuple(fused), by_class=sums.by_class, launches=sums.launches)

    def _fused(self, priced: list[_InFormats], formats: Formats) -> list[list[int]]:
        """Positions of the kernels that run together: those of other formats, unless formats differ by weight."""
        if formats.tensors or self.pricer.graphs.formats.tensors:
            return fused_members([each.kernel for each in priced], self._rules.fused_qkv)
        if self._members is None:
            self._members = fused_members(self._kernels, self._rules.fused_qkv)
        return self._members

    def _launch(self, members: list[int], priced: list[_InFormats], roles: Roles) -> LaunchTime:
        kernels, moved = [each.kernel for each in priced], [each.traffic for each in priced]
        call = fused_call(members, kernels, moved, self._rules, roles)
        return launch_time(call, [each.cost for each in priced], self.pricer.timer.each(call.calls))

    def _in_formats(self, i: int, stored: Stored) -> _InFormats:
        """The i-th kernel with its weights in these formats."""
        found = self._priced.get((i, stored))
        if found is None:
            kernel, traffic, own = self._kernels[i], self._traffics[i], self._weights[i]
            changed = {use.tensor.name: use.tensor.stored_as(fmt) for use, fmt in zip(own, stored, strict=True)}
            if any(changed[use.tensor.name] is not use.tensor for use in own):
                ops = [_with_weights(op, changed) for op in kernel.ops]
                kernel = Kernel(kernel.loop, kernel.times, kernel.kind, ops)
                read = (nbytes(Use(changed[use.tensor.name], use.axes, use.copy)) for use in own)
                traffic = traffic._replace(weight=sum(read))
            found = self._priced[i, stored] = _InFormats(kernel, traffic, self._cost(i, stored, kernel, traffic))
        return found

    def _cost(self, i: int, stored: Stored, kernel: Kernel, traffic: Traffic) -> KernelCost:
        """The speed of light of the i-th kernel, whose arithmetic hangs on what its weights are multiplied in."""
        machine, key = self.pricer.timer.machine, (i, tuple(fmt.compute for fmt in stored))
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = KernelCost.of(kernel, traffic, machine)
            return known
        return known.moving(traffic, machine)


def _with_weights(op: Op, weights: Mapping[str, Tensor]) -> Op:
    """An op that reads these weights in place of its own."""
    if not any(use.tensor.kind == "weight" for use in op.reads):
        return op
    reads = tuple(
        Use(weights[use.tensor.name], use.axes, use.copy) if use.tensor.kind == "weight" else use for use in op.reads
    )
    return Op(
        kind=op.kind, name=op.name, reads=reads, writes=op.writes, cls=op.cls, fn=op.fn, rate=op.rate, attrs=op.attrs,
        part=op.part,
    )  # fmt: skip
