"""Which part of a model each op of a template belongs to, by what it works on and what is next to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from archsim.blocks.layer import PARTS, SCORES
from archsim.tracing.passes import ACTIVATIONS, GATED
from archsim.tracing.template import BlockTemplate, OpTemplate

ROLES = {
    "embedding": "embedding", "position": "embedding", "embedding_other": "embedding", "head": "output head",
    "router": "router", "expert": "experts", "expert_bias": "experts", "conv": "convolutions",
}  # fmt: skip
"""Roles of weights that say which part reads them."""

FUNCTIONS = {"topk": "router", "dispatch": "experts", "combine": "experts"}
ACTIVE = frozenset({*ACTIVATIONS.values(), *GATED.values(), "relu2", "gelu_tanh"})
MLP, PROJECTIONS, SCAN = PARTS["ffn"], PARTS["attention"], PARTS["mixer"]
PRODUCTS = "linear layers"


def with_parts(template: BlockTemplate) -> BlockTemplate:
    """The template with the parts of its ops.

    Products next to attention are its projections, those next to an activation an MLP; others are linear layers.
    Norms, sums and what else joins them have no part.
    """
    near = _Neighbours(list(_ops(template)))
    return _marked(template, {id(op): _part(op, near) for op in _ops(template)})


def _marked(block: BlockTemplate, parts: Mapping[int, str]) -> BlockTemplate:
    def mark(node: OpTemplate | BlockTemplate) -> OpTemplate | BlockTemplate:
        if isinstance(node, OpTemplate):
            return replace(node, part=SCAN if block.kernel == "scan" else parts[id(node)])
        return _marked(node, parts)

    return replace(block, body=tuple(mark(node) for node in block.body))


def _ops(block: BlockTemplate) -> Iterator[OpTemplate]:
    for node in block.body:
        if isinstance(node, OpTemplate):
            yield node
        else:
            yield from _ops(node)


def _sums(op: OpTemplate) -> bool:
    """Whether an op adds activations, as residuals do; biases are no activations."""
    return op.fn == "add" and sum(use.tensor.kind == "act" for use in op.reads) > 1


def _over_pairs(op: OpTemplate) -> bool:
    """Whether an op works on pairs of tokens, as attention does."""
    return any("P" in use.axes for use in (*op.reads, *op.writes))


class _Neighbours:
    """Ops that pass tensors to each other, those of every op and of those behind its elementwise ones."""

    def __init__(self, ops: Sequence[OpTemplate]) -> None:
        self.makers = {use.tensor.name: op for op in ops for use in op.writes}
        self.readers: dict[str, list[OpTemplate]] = defaultdict(list)
        for op in ops:
            for use in op.reads:
                self.readers[use.tensor.name].append(op)

    def of(self, op: OpTemplate) -> Iterator[OpTemplate]:
        """Ops before and behind, as far as the next product each way."""
        yield from self._reached(op, forward=True)
        yield from self._reached(op, forward=False)

    def _reached(self, op: OpTemplate, forward: bool) -> Iterator[OpTemplate]:
        seen, front = {id(op)}, [op]
        while front:
            following = [each for one in front for each in self._next(one, forward) if id(each) not in seen]
            seen |= {id(each) for each in following}
            yield from following
            front = [each for each in following if each.kind == "map" and not _sums(each)]

    def _next(self, op: OpTemplate, forward: bool) -> list[OpTemplate]:
        if forward:
            return [reader for use in op.writes for reader in self.readers[use.tensor.name]]
        return [self.makers[use.tensor.name] for use in op.reads if use.tensor.name in self.makers]


def _part(op: OpTemplate, near: _Neighbours) -> str:
    roles = [ROLES[use.tensor.role] for use in op.reads if use.tensor.role in ROLES]
    if roles and op.kind == "contract" and roles[0] == "embedding":
        return "output head"  # a tied table
    if roles or op.fn in FUNCTIONS:
        return roles[0] if roles else FUNCTIONS[op.fn]
    if _over_pairs(op):
        return SCORES
    if op.kind == "contract":
        around = list(near.of(op))
        if any(_over_pairs(other) for other in around):
            return PROJECTIONS
        return MLP if any(other.fn in ACTIVE for other in around) else PRODUCTS
    return MLP if op.fn in ACTIVE else PROJECTIONS if op.fn == "rope" else ""
