"""What a block of the op graph computes, as boxes and the lines between them.

Operations that say nothing in a picture are joined to what they follow: views, biases, scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from archsim.graph.graph import Block, Node, Op, ops
from archsim.graph.tensor import Tensor

Kind = Literal[
    "input", "linear", "conv", "norm", "rotate", "core", "block", "cache", "table", "plus", "times", "act", "idle",
    "part",
]  # fmt: skip
NORMS = ("rmsnorm", "layernorm", "l2norm")
SILENT = ("scale", "concat", "clip", "dispatch")
"""Maps of one tensor that no picture needs."""

BINARY: dict[str, Kind] = {"add": "plus", "mul": "times", "gate": "times"}


@dataclass(slots=True)
class Step:
    """One box: the operations in it, and the block where it is a whole one."""

    key: str
    kind: Kind
    ops: list[Op] = field(default_factory=list)
    block: Block | None = None
    outside: bool = False
    """Of an input: whether it is not the stream that a layer hands on."""
    chain: tuple[str, ...] = ()
    """Names of the small operations that were joined to this box."""

    @property
    def name(self) -> str:
        """The last word of its full name."""
        return self.key.rpartition(".")[2].removesuffix("()")


@dataclass(slots=True)
class Flow:
    """Boxes in the order of the computation, and (from, to) lines between them."""

    steps: dict[str, Step] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    stream: frozenset[str] = frozenset()

    def lines(self) -> list[tuple[str, str]]:
        """The lines."""
        return list(self.edges)


def flow_of(block: Block, by_part: bool = False) -> Flow:
    """The boxes of a block. by_part: one for each part of the model in it (router, experts), with sums apart."""
    flow = Flow(stream=frozenset(before.name for before, _ in block.carry))
    _walk(flow, block, by_part)
    return flow


def _walk(flow: Flow, block: Block, by_part: bool) -> None:
    for child in block.body:
        if isinstance(child, Op):
            _add_op(flow, child, by_part)
        elif by_part:
            _walk(flow, child, by_part)
        elif child.kernel or _results(child, block) < 2:
            step = Step(child.name, "core" if child.kernel else "block", [op for op, _ in ops(child)], child)
            _join(flow, step)
        else:
            _walk(flow, child, by_part)


def _results(child: Block, block: Block) -> int:
    """Tensors made in a block that others in the block around it read."""
    made = {use.tensor.name for op, _ in ops(child) for use in op.writes}
    read = {use.tensor.name for other in block.body if other is not child for op, _ in ops(other) for use in op.reads}
    return len(made & read)


def _add_op(flow: Flow, op: Op, by_part: bool) -> None:
    acts = _inputs(op)
    weights = [use for use in op.reads if use.tensor.kind == "weight"]
    if not op.writes:
        key = "idle"
        step = flow.steps.setdefault(key, Step(key, "idle"))
        step.ops.append(op)
        return
    if len(acts) == 1 and _is_silent(op, bool(weights)):
        maker = flow.makers.get(acts[0].name)
        if maker is not None and flow.steps[maker].kind != "input":
            flow.steps[maker].ops.append(op)
            flow.makers[op.writes[0].tensor.name] = maker
            return
        if op.kind in ("view", "select"):
            flow.makers[op.writes[0].tensor.name] = _maker(flow, acts[0])
            return
    kind = _kind(op, len(acts), bool(weights))
    if by_part and op.part and kind != "plus":
        _join(flow, Step(op.part, "part", [op]))
        return
    _join(flow, Step(op.name, kind, [op]))


def _is_silent(op: Op, weights: bool) -> bool:
    if op.kind in ("view", "select"):
        return True
    return op.kind == "map" and (op.fn == "add" if weights else op.fn in SILENT)


def _kind(op: Op, acts: int, weights: bool) -> Kind:
    if op.kind == "append":
        return "cache"
    if op.kind == "gather":
        return "table"
    if op.kind == "contract":
        return "conv" if op.cls == "conv" else "linear" if weights else "core"
    if op.fn in NORMS:
        return "norm"
    if op.fn == "rope":
        return "rotate"
    if acts > 1 and op.fn in BINARY:
        return BINARY[op.fn]
    return "act"


def _join(flow: Flow, step: Step) -> None:
    """The box added, or its operations to the box of its name, with lines from what it reads."""
    sources = []
    made: set[str] = set()
    for op in step.ops:
        sources += [tensor for tensor in _inputs(op) if tensor.name not in made]
        made |= {use.tensor.name for use in op.writes}
    found = dict.fromkeys(_maker(flow, tensor) for tensor in sources)
    chosen = [str(op.attrs["index"]) for op in step.ops if op.kind == "map" and "index" in op.attrs]
    found |= dict.fromkeys(flow.makers[name] for name in chosen if name in flow.makers)  # an indexer's choice of keys
    known = flow.steps.setdefault(step.key, step)
    if known is not step:
        known.ops += step.ops
    flow.edges.update({(source, step.key): None for source in found if source != step.key})
    flow.makers.update(dict.fromkeys(made, step.key))


def _maker(flow: Flow, tensor: Tensor) -> str:
    """The box that makes a tensor; of one from outside, a box for it."""
    if tensor.name not in flow.makers:
        key = f"in {tensor.name}"
        flow.makers[tensor.name] = key
        outside = bool(flow.stream) and tensor.name not in flow.stream
        flow.steps[key] = Step(key, "input", outside=outside)
    return flow.makers[tensor.name]


def _inputs(op: Op) -> list[Tensor]:
    """What an operation reads of others: activations and caches, but no constant state of its own."""
    return [
        use.tensor for use in op.reads
        if use.tensor.kind == "act" or (use.tensor.kind == "state" and use.tensor.role == "kv")
        or (use.tensor.kind == "state" and use.tensor.role == "cross")
    ]  # fmt: skip


SMALL = ("linear", "act", "core", "norm", "table")


def joined(flow: Flow) -> Flow:
    """With chains of small operations as one box: what a layer does beside its blocks (AltUp's predictions). A chain is
    at least two boxes, of which one has a matrix, that follow each other in the computation without a block between.
    """
    groups: list[list[Step]] = []
    for step in flow.steps.values():
        free = step.kind in SMALL and not any(op.part for op in step.ops)
        if free and groups and groups[-1][-1].kind in SMALL and (groups[-1][-1].key, step.key) in flow.edges:
            groups[-1].append(step)
        else:
            groups.append([step])
    new: dict[str, Step] = {}
    names: dict[str, str] = {}
    for group in groups:
        merge = len(group) > 1 and any(step.kind == "linear" for step in group)
        for part in [group] if merge else [[step] for step in group]:
            first = part[-1] if merge else part[0]
            kind: Kind = "linear" if merge else first.kind
            new[first.key] = Step(first.key, kind, [op for step in part for op in step.ops], first.block, first.outside)
            if merge:
                new[first.key].chain = tuple(step.name for step in part if step.kind != "norm")
            names |= {step.key: first.key for step in part}
    edges = {(names[a], names[b]): None for a, b in flow.edges if names[a] != names[b]}
    return Flow(new, edges, flow.makers, flow.stream)


def nodes_by_name(graph: Block) -> dict[str, Block]:
    """Every block of a graph by its full name."""
    found: dict[str, Block] = {}

    def visit(node: Node) -> Iterator[Block]:
        if isinstance(node, Block):
            yield node
            for child in node.body:
                yield from visit(child)

    for block in visit(graph):
        found[block.name] = block
    return found
