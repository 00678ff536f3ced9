"""Ops, the one composite `Block`, and walks over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from functools import wraps
from types import MappingProxyType
from typing import Literal, TypeVar
from weakref import WeakKeyDictionary

from archsim.base.data_class import light_dataclass
from archsim.base.json_types import JsonMapping
from archsim.base.number import Num
from archsim.graph.tensor import Tensor, Use

T = TypeVar("T")

NOTHING: JsonMapping = MappingProxyType({})
"""The attributes of an op that has none, one object for all."""

OpKind = Literal["contract", "map", "gather", "append", "view", "select", "scan", "collective"]
OpClass = Literal["matmul", "attention", "conv", "vector"]


@light_dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Op:
    """One operation: what it reads and writes, and what kind of work it is.

    `fn` names the function of a map, gather, scan or collective; `attrs` holds what executing it needs (eps,
    theta, mask ...); `rate` is vector FLOP per output element of a map or scan. `part` is the part of the model that it
    belongs to ("MLP", "experts"), empty for what joins the parts: norms and residuals.
    """

    kind: OpKind
    name: str
    reads: tuple[Use, ...]
    writes: tuple[Use, ...]
    cls: OpClass = "vector"
    fn: str = ""
    rate: Num = 0
    attrs: JsonMapping = field(default_factory=lambda: NOTHING)
    part: str = ""


@light_dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, kw_only=True)
class Block:
    """A named group, a repetition and a kernel, all in one.

    `times` repeats the body; `carry` pairs (tensor read by one repetition, tensor that the repetition before
    wrote in its place); `shared` repetitions use one set of weights.
    `kernel` names what the body computes as a whole, for an interpreter that has a better way to run it (a
    chunked scan); the body then states the work, and `attrs` what running it needs.
    """

    name: str
    body: tuple[Op | Block, ...]
    times: Num = 1
    shared: bool = False
    carry: tuple[tuple[Tensor, Tensor], ...] = ()
    kernel: str = ""
    attrs: JsonMapping = field(default_factory=lambda: NOTHING)


Node = Op | Block


def kept_with_graph(function: Callable[[Block], T]) -> Callable[[Block], T]:
    """Remembers what a function says of each graph for as long as the graph lives, and no longer."""
    known: WeakKeyDictionary[Block, T] = WeakKeyDictionary()

    @wraps(function)
    def remembered(graph: Block) -> T:
        found = known.get(graph)
        if found is None:
            found = known[graph] = function(graph)
        return found

    return remembered


def ops(node: Node, times: Num = 1) -> Iterator[tuple[Op, Num]]:
    """Every op with the number of times it runs."""
    if isinstance(node, Op):
        yield node, times
        return
    inside = times * node.times
    for child in node.body:
        if isinstance(child, Op):
            yield child, inside
        else:
            yield from ops(child, inside)


def blocks(node: Node) -> Iterator[Block]:
    """Every block, outermost first."""
    if isinstance(node, Block):
        yield node
        for child in node.body:
            if isinstance(child, Block):
                yield from blocks(child)


def rewrite(
    node: Node,
    on_op: Callable[[Op], Iterable[Op]] = lambda op: (op,),
    on_block: Callable[[Block], Block] = lambda block: block,
) -> tuple[Node, ...]:
    """The one way a pass changes a graph: every op becomes any number of ops, every block another block."""
    if isinstance(node, Op):
        return tuple(on_op(node))
    body = tuple(new for child in node.body for new in rewrite(child, on_op, on_block))
    return (on_block(replace(node, body=body)),)


def map_tensors(graph: Block, change: Callable[[Tensor], Tensor]) -> Block:
    """The graph with every tensor replaced, each name once."""
    memo: dict[str, Tensor] = {}

    def new(tensor: Tensor) -> Tensor:
        if tensor.name not in memo:
            memo[tensor.name] = change(tensor)
        return memo[tensor.name]

    def use(u: Use) -> Use:
        tensor = new(u.tensor)
        return u if tensor is u.tensor else Use(tensor, u.axes, u.copy)

    def op(o: Op) -> tuple[Op]:
        reads, writes = tuple(map(use, o.reads)), tuple(map(use, o.writes))
        if all(a is b for a, b in zip((*reads, *writes), (*o.reads, *o.writes), strict=True)):
            return (o,)
        made = Op(
            kind=o.kind, name=o.name, reads=reads, writes=writes, cls=o.cls, fn=o.fn, rate=o.rate, attrs=o.attrs,
            part=o.part,
        )  # fmt: skip
        return (made,)

    def block(b: Block) -> Block:
        return replace(b, carry=tuple((new(x), new(y)) for x, y in b.carry)) if b.carry else b

    (result,) = rewrite(graph, op, block)
    assert isinstance(result, Block)
    return result
