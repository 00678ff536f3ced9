"""Counts of a step of many layers that differ in width alone, from three layers of columns."""

from __future__ import annotations

from collections.abc import Iterable

from archsim.base.number import Num
from archsim.counts import graph_counts as c
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.graph import Block, ops
from archsim.graph.step import Step
from archsim.spec.layer_columns import EXACT, LayerRun, place_of


def params(graphs: StepGraphs, one_token: Step) -> tuple[int, int]:
    """All parameters, and those that a token uses. one_token: a step of a single token."""
    run, few = _few_layers(graphs, one_token)
    if run is not None and few is not None:
        items = [item for item in c.inventory(few) if c.is_learned(item.tensor)]
        found = [_of_all(run, ((i.tensor.name, count(i)) for i in items)) for count in (c.all_of, c.active_of)]
        if max(found) < EXACT:
            return int(found[0]), int(found[1])
    graph = graphs.whole(one_token)
    return c.params(graph), c.active_params(graph)


def flops(graphs: StepGraphs, step: Step) -> Num:
    """FLOP of a step's contractions."""
    run, few = _few_layers(graphs, step)
    if run is not None and few is not None:
        found = _of_all(run, ((op.name, c.op_flops(op) * n) for op, n in ops(few) if op.kind == "contract"))
        if found < EXACT:
            return int(found)
    return c.flops(graphs.lowered.get(step))


def _few_layers(graphs: StepGraphs, step: Step) -> tuple[LayerRun | None, Block | None]:
    """The layers that columns stand for, and the graph with them; None where there are none."""
    run = graphs.run
    if run is None or not run.serves(step) or graphs.lowered.parts:
        return None, None
    return run, StepGraphs(run.with_three(run.rows), graphs.formats).whole(step)


def _of_all(run: LayerRun, amounts: Iterable[tuple[str, Num]]) -> Num:
    """The sum of amounts over all layers, each given with the name of what it belongs to."""
    total: Num = 0
    for name, amount in amounts:
        place, column = place_of(name), hasattr(amount, "dtype")
        if place == 2:
            total += float(amount.sum()) if column else amount * len(run.rows)
        else:
            total += float(amount[0 if place == 1 else -1]) if column else amount
    return total
