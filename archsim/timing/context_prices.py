"""Decode steps that differ only in how long their sequences are: what does not depend on that is timed once.

The graph is lowered once, with a letter for the cached tokens. Products with weights, norms and collectives do not
contain it; only attention, and what else goes over the cache, is put in numbers and timed for each context.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from archsim.base.number import Num
from archsim.base.poly import Poly
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, Traffic, kernels_with_edges, read_shares, traffic
from archsim.graph.step import Step
from archsim.graph.tensor import Use
from archsim.timing.kernel_calls import Roles, fused_call, fused_members, roles_of
from archsim.timing.step_pricer import LaunchTime, StepPricer, TimeByKernelClass, launch_time
from archsim.timing.step_time import KernelCost, RankTime, StepTime

PAST = "past"
"""The letter of the cached tokens."""


def prices_over_context(pricer: StepPricer, steps: Sequence[Step]) -> tuple[StepTime, ...]:
    """`pricer.price` of each step. Steps of one kind of sequences that differ only in their cached tokens cost little
    more than one of them; any others are priced one by one.
    """
    lengthened = [_with_past(step, 0) for step in steps]
    if len(steps) < 2 or not all(map(_depends_on_past_alone, steps)) or any(s != lengthened[0] for s in lengthened):
        return tuple(map(pricer.price, steps))
    over = _StepOverContext(pricer, _with_past(steps[0], Poly.symbol(PAST)))
    return tuple(pricer.with_kernels(step, over.rank_time(step)) for step in steps)


def _depends_on_past_alone(step: Step) -> bool:
    """Whether a step is of one kind of sequences, under way and without sources of their own."""
    return step.plain and len(step.seqs) == 1 and not step.source and step.seqs[0].past > 0


def _with_past(step: Step, past: Num) -> Step:
    return replace(step, seqs=tuple(seqs._replace(past=past) for seqs in step.seqs))


class _Moved(NamedTuple):
    """A kernel with what crosses its boundary, and its shares of reads."""

    kernel: Kernel
    crossing: list[Use]
    shares: dict[str, Num]


class _Timed(NamedTuple):
    """Kernels that run together: at the device's peaks, and their time."""

    costs: list[KernelCost]
    launch: LaunchTime


class _StepOverContext:
    """A rank's step with a letter for its cached tokens. A launch is timed anew only where the numbers in it change."""

    def __init__(self, pricer: StepPricer, step: Step) -> None:
        graph = pricer.graphs.rank(step, pricer.plan)
        self.pricer = pricer
        self.kernels = [
            _Moved(*found, shares) for found, shares in zip(kernels_with_edges(graph), read_shares(graph), strict=True)
        ]
        sequence = [moved.kernel for moved in self.kernels]
        self.roles = roles_of(sequence)
        self.members = fused_members(sequence, pricer.overheads.fused_qkv)
        self.formulas = [_formulas([self.kernels[i] for i in members]) for members in self.members]
        shapes = [self._shape(place) for place in range(len(self.members))]
        first: dict[Hashable, int] = {}
        self.alike = [first.setdefault(shape, place) for place, shape in enumerate(shapes)]
        self.known: dict[int, tuple[list[Num], _Timed]] = {}

    def _shape(self, place: int) -> Hashable:
        """What a launch's time follows from: equal for launches that differ in the names of their tensors alone. Those
        that do not change with the context are timed once and need none.
        """
        return _shape([self.kernels[i] for i in self.members[place]], self.roles) if self.formulas[place] else place

    def rank_time(self, step: Step) -> RankTime:
        """The kernels of a step with so many cached tokens."""
        numbers, sums, fused = _Numbers(step.seqs[0].past), TimeByKernelClass(), []
        costs: dict[int, KernelCost] = {}
        for place, members in enumerate(self.members):
            first = self.alike[place]
            if first == place:
                values = [numbers.of(formula) for formula in self.formulas[place]]
                if place not in self.known or self.known[place][0] != values:
                    self.known[place] = values, self._launch(step, members, numbers, bool(values))
            timed = self.known[first][1]
            for member, cost in zip(members, timed.costs, strict=True):
                costs[member] = cost if first == place else cost._replace(path=self.kernels[member].kernel.name)
            sums.add(timed.launch)
            fused.append(timed.launch.fused._replace(members=members))
        every = tuple(costs[i] for i in range(len(self.kernels)))
        return RankTime(costs=every, fused=tuple(fused), by_class=sums.by_class, launches=sums.launches)

    def _launch(self, step: Step, members: list[int], numbers: _Numbers, lengthened: bool) -> _Timed:
        """Kernels that run together, and their time, with numbers for the letter where it is in them."""
        pricer, machine = self.pricer, self.pricer.timer.machine
        together = [self.kernels[i] for i in members]
        if lengthened:
            together = [numbers.moved(moved) for moved in together]
        traffics: list[Traffic] = [traffic(m.crossing, machine.cache_bytes, m.shares) for m in together]
        costs = [KernelCost.of(m.kernel, moved, machine) for m, moved in zip(together, traffics, strict=True)]
        call = fused_call(members, [m.kernel for m in together], traffics, pricer.call_rules(step), self.roles)
        return _Timed(costs, launch_time(call, costs, pricer.timer.each(call.calls)))


def _formulas(members: list[_Moved]) -> list[Poly]:
    """What the work and the calls of kernels that run together say of the cached tokens."""
    found: list[Num] = [Poly.symbol(PAST)] if any(m.kernel.kind for m in members) else []  # calls tell lengths apart
    for moved in members:
        uses = [*moved.crossing, *(use for op in moved.kernel.ops for use in (*op.reads, *op.writes))]
        found += [n for use in uses for n in use.axes.values()]
        found += [*moved.shares.values(), *(op.rate for op in moved.kernel.ops)]
    return list({n: n for n in found if type(n) is Poly})


def _shape(members: Sequence[_Moved], roles: Roles) -> Hashable:
    """Kernels that run together, with tensors numbered as they come instead of named."""
    order: dict[str, int] = {}

    def touched(use: Use) -> Hashable:
        tensor, name = use.tensor, use.tensor.name
        return (
            order.setdefault(name, len(order)), name.rpartition(".")[2], tuple(use.axes.items()), use.copy,
            tuple(tensor.axes.items()), tensor.kind, tensor.format, tensor.role, tensor.inner,
            name in roles.attended, name in roles.normed,
        )  # fmt: skip

    def operation(op: Op) -> Hashable:
        return (
            op.kind, op.name.rpartition(".")[2], op.cls, op.fn, op.rate, op.part, repr(op.attrs),
            tuple(map(touched, op.reads)), tuple(map(touched, op.writes)),
        )  # fmt: skip

    return tuple(
        (
            m.kernel.times, m.kernel.kind, tuple(map(operation, m.kernel.ops)), tuple(map(touched, m.crossing)),
            tuple((order.get(name), share) for name, share in m.shares.items()),
        )
        for m in members
    )  # fmt: skip


class _Numbers:
    """Puts a number in for the cached tokens; each formula is worked out once."""

    def __init__(self, past: int) -> None:
        self.past = past
        self.known: dict[Poly, Num] = {}

    def of(self, quantity: Num) -> Num:
        """A quantity's value."""
        if type(quantity) is not Poly:
            return quantity
        if quantity not in self.known:
            self.known[quantity] = quantity(**{PAST: self.past})
        return self.known[quantity]

    def moved(self, moved: _Moved) -> _Moved:
        """A kernel in numbers."""
        kernel = moved.kernel
        ops = [self._op(op) for op in kernel.ops]
        shares = {name: self.of(share) for name, share in moved.shares.items()}
        return _Moved(
            Kernel(kernel.loop, kernel.times, kernel.kind, ops), [self._use(use) for use in moved.crossing], shares
        )

    def _op(self, op: Op) -> Op:
        return replace(
            op, reads=tuple(map(self._use, op.reads)), writes=tuple(map(self._use, op.writes)), rate=self.of(op.rate)
        )

    def _use(self, use: Use) -> Use:
        if not any(type(n) is Poly for n in use.axes.values()):
            return use
        return Use(use.tensor, {axis: self.of(n) for axis, n in use.axes.items()}, use.copy)
