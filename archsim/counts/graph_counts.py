"""Exact counts: parameters, bytes and FLOPs are sums over the tensors and ops of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from archsim.base.number import Num, product
from archsim.graph.graph import Block, Op, OpClass, blocks, kept_with_graph, ops
from archsim.graph.tensor import REFINES, Tensor, nbytes, numel

MAC = 2
"""FLOP per multiply-add, the convention of every FLOP figure here and of torch's FlopCounterMode."""


class Item(NamedTuple):
    """A declared tensor, how many copies its home block makes, the most of it that any op touches, and how often an op
    works with it, at most 1: less for the weight of an expert to which, on average, less than one row goes.
    """

    tensor: Tensor
    copies: Num
    touched: Num
    share: Num = 1


def inventory(*graphs: Block, kind: str = "weight") -> list[Item]:
    """Every tensor of one kind that the graphs declare, once. The union of a model's steps is the model."""
    declared = declared_once(graphs[0]) if len(graphs) == 1 else declared_by(graphs)
    return [item for item in declared if item.tensor.kind == kind]


@kept_with_graph
def declared_once(graph: Block) -> tuple[Item, ...]:
    """All weights and states of one graph, found once."""
    return declared_by((graph,))


def declared_by(graphs: tuple[Block, ...]) -> tuple[Item, ...]:
    """All weights and states of the graphs."""
    copies: dict[str, Num] = {}
    shared: set[str] = set()
    for graph in graphs:
        for block in blocks(graph):
            copies[block.name] = block.times
            if block.shared:
                shared.add(block.name)
    single = {name: 1 if name in shared else times for name, times in copies.items()}
    found: dict[str, Item] = {}

    def visit(block: Block) -> None:
        for child in block.body:
            if isinstance(child, Block):
                visit(child)
                continue
            for use in (*child.reads, *child.writes):
                tensor = use.tensor
                if tensor.kind != "act" and tensor.name not in found:
                    touched = numel(use) if child.kind != "gather" else numel(tensor)
                    times = _home_copies(tensor.name, single if tensor.kind == "weight" else copies)
                    found[tensor.name] = Item(tensor, times, touched, _share(child))

    for graph in graphs:
        visit(graph)
    return tuple(found.values())


def _share(op: Op) -> Num:
    """Which share of a row an op works out, on average; 1 for whole rows."""
    if op.kind == "gather" or not op.writes:
        return 1
    return product(extent for extent in op.writes[0].axes.values() if isinstance(extent, float) and 0 < extent < 1)


def _home_copies(name: str, copies: dict[str, Num]) -> Num:
    """Product of the repetitions of every block around a tensor."""
    total: Num = 1
    end = name.find(".")
    while end > 0:
        total = total * copies.get(name[:end], 1)
        end = name.find(".", end + 1)
    return total


def is_learned(tensor: Tensor) -> bool:
    """Whether a weight is a parameter: a router's selection bias is set by rule, a buffer."""
    return tensor.role != "buffer"


def params(*graphs: Block, where: Callable[[Tensor], bool] = is_learned) -> Num:
    """Unique parameters: tied weights once, buffers never."""
    return sum(all_of(i) for i in inventory(*graphs) if where(i.tensor))


def all_of(item: Item) -> Num:
    """Elements of all copies of a tensor."""
    return numel(item.tensor) * item.copies


def active_params(*one_token: Block) -> Num:
    """Parameters that one token uses: all but the routed experts it is not sent to.

    The graphs must be lowered for a single token, where the experts touched are exactly the router's top-k, and an op
    of one expert in a loop works on that share of a row which is sent to it.
    """
    total = sum(active_of(i) for i in inventory(*one_token) if is_learned(i.tensor))
    return round(total) if isinstance(total, float) else total  # shares of experts need not be whole


def active_of(item: Item) -> Num:
    """Elements of all copies of a weight that a single token uses."""
    return item.touched * item.copies if "E" in item.tensor.axes else all_of(item) * item.share


def weight_bytes(*graphs: Block, where: Callable[[Tensor], bool] = lambda _: True) -> Num:
    """Bytes of all weights as stored, block scales included."""
    total = sum(nbytes(i.tensor, i.copies) for i in inventory(*graphs) if where(i.tensor))
    return round(total) if isinstance(total, float) else total  # shares of a mixed format need not be whole


def state_bytes(*graphs: Block, role: str | None = None) -> Num:
    """Bytes of caches after the step: role "kv" grows with tokens, "recurrent" is constant."""
    items = inventory(*graphs, kind="state")
    return sum(nbytes(i.tensor) * i.copies for i in items if role in (None, i.tensor.role))


def op_flops(op: Op) -> Num:
    """FLOP of one op.

    A contraction costs 2 x the product of every axis in sight, a finer axis replacing those it refines; a map or
    scan its rate per output element.
    """
    if op.kind == "contract":
        axes: dict[str, Num] = {}
        for use in (*op.reads, *op.writes):
            axes.update(use.axes)
        replaced = {coarse for axis, replaces in REFINES.items() if axis in axes for coarse in replaces}
        return MAC * product([n for a, n in reversed(axes.items()) if a not in replaced])
    if op.kind in ("map", "scan"):
        return op.rate * numel(op.writes[0])
    return 0


def flops(graph: Block, cls: OpClass | None = None) -> Num:
    """FLOP of contractions (matmul, attention, conv), of one class or all."""
    return sum(op_flops(op) * n for op, n in ops(graph) if op.kind == "contract" and cls in (None, op.cls))


def elementwise_flops(graph: Block) -> Num:
    """FLOP of everything that is not a contraction, by the rates of `graph.builder`."""
    return sum(op_flops(op) * n for op, n in ops(graph) if op.kind != "contract")


def by_block(graph: Block) -> Iterator[tuple[Block, Num]]:
    """Every named block with the number of times it runs, outermost first."""

    def visit(block: Block, times: Num) -> Iterator[tuple[Block, Num]]:
        for child in block.body:
            if isinstance(child, Block):
                yield child, times * child.times
                yield from visit(child, times * child.times)

    yield from visit(graph, 1)
