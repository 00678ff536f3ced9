"""Kernel costs and calls of a step of many layers that differ in width alone, made as columns, three layers of them,
and written out one layer after another.

A kernel follows from its own layer and those beside it. So three layers whose widths are columns, each a layer further
than the one before, give in the middle one all layers that have neighbours of their kind on both sides, in the first
one the first, in the last one the last. Some rows are also made without columns: where any of them differs, or a layer
reads what is farther away, there are no columns, and the step is made layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from archsim.base.number import Num
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.graph import ops
from archsim.graph.kernels import Kernel, Traffic, kernels_with_edges, traffics
from archsim.graph.step import Step
from archsim.spec.layer_columns import EXACT, FIRST, LAST, MIDDLE, LayerRun, place_of
from archsim.spec.parallelism import Plan
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.kernel_calls import CallRules, FusedCall, lower_to_calls
from archsim.timing.step_time import KernelCost

HEAD, TAIL = 0, 4
"""Places of kernels before the run and behind it; those of its three layers lie between."""

TIMES = 16
"""Factor by which no count of a kernel exceeds tokens x widths of both sides."""


class StepRows(NamedTuple):
    """All kernels of a step at the device's peaks, and the calls that they make."""

    costs: tuple[KernelCost, ...]
    calls: list[FusedCall]


class ThreeLayers(NamedTuple):
    """The same of a model with three layers in place of a run, and where each kernel stands."""

    costs: list[KernelCost]
    calls: list[FusedCall]
    places: list[int]

    @property
    def starts(self) -> list[int]:
        """The position of the first kernel of every place, and the number of kernels."""
        return [sum(place < at for place in self.places) for at in range(TAIL + 2)]


def step_rows(graphs: StepGraphs, step: Step, plan: Plan, rules: CallRules) -> StepRows | None:
    """The kernels and calls of a step, by columns; None where it has no layers that they stand for."""
    run = graphs.run
    if run is None or not _suits(run, graphs, step, plan):
        return None
    table = _three_layers(run, run.rows, graphs, step, plan, rules)
    samples = {row: _three_layers(run, [row], graphs, step, plan, rules) for row in run.outermost}
    if table is None or None in samples.values():
        return None
    layers = _written_out(table, samples[0], len(run.rows))  # type: ignore[arg-type]
    for row, sample in samples.items():
        if sample is None or not layers.agree(sample, row):
            return None
    return layers.rows(run.names)


def _suits(run: LayerRun, graphs: StepGraphs, step: Step, plan: Plan) -> bool:
    """Whether all numbers of a step are exact as floating-point ones, and its layers cut alike."""
    model = graphs.model
    if graphs.formats.tensors or graphs.lowered.parts or not run.serves(step) or not run.divides(plan.tp):
        return False
    return bool(TIMES * max(step.tokens, 1) * run.widest * model.d_model < EXACT)


def _three_layers(
    run: LayerRun, rows: Sequence[int], graphs: StepGraphs, step: Step, plan: Plan, rules: CallRules
) -> ThreeLayers | None:
    """The kernels of the model with three layers in place of the run; None where one of them reads what is farther away
    than the layer before, or joins a kernel of another with a width of its own.
    """
    model = run.with_three(rows)
    graph = StepGraphs(model, graphs.formats).rank(step, plan)
    if any(not _near(op.name, use.tensor.name) for op, _ in ops(graph) for use in op.reads
           if use.tensor.kind != "weight"):  # fmt: skip
        return None
    kernels = [kernel for kernel, _ in kernels_with_edges(graph)]
    places = _places(kernels)
    if places is None or any(map(_mixed, kernels)):
        return None
    moved = traffics(graph, rules.machine.cache_bytes)
    costs = [KernelCost.of(kernel, each, rules.machine) for kernel, each in zip(kernels, moved, strict=True)]
    calls = lower_to_calls(kernels, moved, rules)
    if any(len({places[i] for i in call.members}) > 1 for call in calls):
        return None
    return ThreeLayers(costs, calls, places)


def _near(reader: str, tensor: str) -> bool:
    """Whether an op reads a tensor of its own layer or the one before it; what is outside the run is read by the first
    layer alone, and what is behind it reads the last one.
    """
    own, of = place_of(reader), place_of(tensor)
    return own == of or own - of == 1 or (own == HEAD and of == TAIL - 1)


def _places(kernels: Sequence[Kernel]) -> list[int] | None:
    """Where every kernel stands; None where the layers do not follow one another."""
    found = [place_of(kernel.ops[0].name) for kernel in kernels]
    last = max((i for i, place in enumerate(found) if place), default=-1)
    found = [TAIL if i > last else place for i, place in enumerate(found)]
    return found if found == sorted(found) and {1, 2, 3} <= set(found) else None


def _mixed(kernel: Kernel) -> bool:
    """Whether a kernel has a column that is not of the layer it begins in."""
    own = place_of(kernel.ops[0].name)
    return any(
        hasattr(n, "dtype")
        for op in kernel.ops
        if not own or place_of(op.name) != own
        for use in (*op.reads, *op.writes)
        for n in use.axes.values()
    )


# ---------------------------------------------------------------------- rows
class WrittenOut(NamedTuple):
    """The kernels and calls of every place, row by row. costs, calls: by place, then by row; a place outside the run
    has one row.
    """

    costs: list[list[list[KernelCost]]]
    calls: list[list[list[FusedCall]]]

    def agree(self, sample: ThreeLayers, row: int) -> bool:
        """Whether the row is what it is without columns."""
        ends = [0, len(self.costs[2]) - 1]
        rows = [0, row if row == ends[0] else None, row, row if row == ends[1] else None, 0]
        starts = sample.starts
        for place, at in enumerate(rows):
            if at is None:
                continue
            at = at if len(self.costs[place]) > 1 else 0
            if _typed(self.costs[place][at]) != _typed(sample.costs[starts[place] : starts[place + 1]]):
                return False
            own = [_moved_to(call, -starts[place]) for call in sample.calls if sample.places[call.members[0]] == place]
            if self.calls[place][at] != own:
                return False
        return True

    def rows(self, names: Sequence[str]) -> StepRows:
        """All kernels and calls, in the names of the layers."""
        costs: list[KernelCost] = []
        calls: list[FusedCall] = []
        for place, prefix in enumerate(("", FIRST, MIDDLE, LAST, "")):
            own = {1: names[:1], 2: names[1:-1], 3: names[-1:]}.get(place, [""])
            for name, kernels, launched in zip(own, self.costs[place], self.calls[place], strict=True):
                calls += [_moved_to(call, len(costs)) for call in launched]
                costs += [each._replace(path=name + each.path.removeprefix(prefix)) for each in kernels]
        return StepRows(tuple(costs), calls)


def _typed(costs: Sequence[KernelCost]) -> list[tuple[object, ...]]:
    """Costs with the types of their numbers, all of which must agree."""
    return [(*cost, *map(type, cost), *map(type, cost.traffic)) for cost in costs]


def _moved_to(call: FusedCall, start: int) -> FusedCall:
    """The call of kernels that stand so many positions further on."""
    return FusedCall([start + i for i in call.members], call.main, call.passes)


def _written_out(table: ThreeLayers, sample: ThreeLayers, count: int) -> WrittenOut:
    """Every row of the columns. sample: one of the rows, whose whole numbers are whole in all."""
    starts = table.starts
    costs, calls = list[list[list[KernelCost]]](), list[list[list[FusedCall]]]()
    for place in range(TAIL + 1):
        which = {1: slice(0, 1), 2: slice(0, count), 3: slice(count - 1, count)}.get(place, slice(0, 1))
        n, here = which.stop - which.start, range(starts[place], starts[place + 1])
        columns = [list(_cost_rows(table.costs[i], sample.costs[i], which)) for i in here]
        costs.append([[column[row] for column in columns] for row in range(n)])
        own = [call for call in table.calls if table.places[call.members[0]] == place]
        rows = [_call_rows(call, table.costs, which) for call in own]
        members = [[i - starts[place] for i in call.members] for call in own]
        calls.append([[FusedCall(m, *each[row]) for m, each in zip(members, rows, strict=True)] for row in range(n)])
    return WrittenOut(costs, calls)


def _values(column: Num, which: slice, whole: bool = False) -> Iterator[Num]:
    """Some values of a column, or so many times the same number."""
    if not hasattr(column, "dtype"):
        return repeat(column, which.stop - which.start)
    values = column[which].tolist()
    return iter([int(value) for value in values] if whole else values)


def _cost_rows(cost: KernelCost, like: KernelCost, which: slice) -> Iterator[KernelCost]:
    """A kernel's costs, one for each row."""
    moved = [_values(a, which, isinstance(b, int)) for a, b in zip(cost.traffic, like.traffic, strict=True)]
    of = {
        name: _values(value, which, isinstance(getattr(like, name), int))
        for name, value in cost._asdict().items()
        if name != "traffic"
    } | {"traffic": iter([Traffic(*row) for row in zip(*moved, strict=True)])}
    return (KernelCost(*row) for row in zip(*(of[name] for name in KernelCost._fields), strict=True))


def _call_rows(
    call: FusedCall, costs: Sequence[KernelCost], which: slice
) -> list[tuple[list[KernelCall], list[KernelCall]]]:
    """The main calls and passes of a launch, one of each for every row."""
    acts = zip(*(_values(costs[i].traffic.act, which) for i in call.members), strict=True)
    still = [not any(row) for row in acts]
    main = [list(_kernel_call_rows(each, which, still)) for each in call.main]
    passes = [list(_kernel_call_rows(each, which, still)) for each in call.passes]
    return [([each[i] for each in main], [each[i] for each in passes]) for i in range(which.stop - which.start)]


def _kernel_call_rows(call: KernelCall, which: slice, still: Sequence[bool]) -> Iterator[KernelCall]:
    """A call, one for each row, stating what a call of numbers states. still: where no activation moves."""
    if not any(hasattr(value, "dtype") for value in call.dims.values()):
        yield from repeat(call, which.stop - which.start)
        return
    names, stored = list(call.dims), STORED.get(call.dtype)
    for nothing, row in zip(still, zip(*(_values(call.dims[name], which) for name in names), strict=True), strict=True):
        dims = dict(zip(names, row, strict=True))
        if stored is not None and dims.get("weight_bytes") == stored.weight:
            del dims["weight_bytes"]
        if nothing:
            dims.pop("epilogue_bytes", None)
        yield KernelCall(call.kernel_class, call.dtype, call.kv_dtype, call.kernel, dims, call.kinds)
