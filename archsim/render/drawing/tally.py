"""Parameters and FLOP of every operation of a graph, so that the boxes of a picture add up to the model.

A weight belongs to the first operation that reads it: a tied table to the embedding, a table of relative positions that
all layers share to the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from archsim.counts import graph_counts as c
from archsim.graph.graph import Block, Op, ops
from archsim.graph.tensor import numel


class Amount(NamedTuple):
    """Parameters of a part in all its repetitions, those of one repetition without what all share, and FLOP of all."""

    params: int = 0
    single: int = 0
    flops: float = 0

    def __add__(self, other: object) -> Amount:
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(self.params + other.params, self.single + other.single, self.flops + other.flops)


class Tally:
    """What each operation of a graph holds and does."""

    def __init__(self, graph: Block) -> None:
        owners: dict[str, int] = {}
        runs: dict[int, tuple[Op, int]] = {}
        for op, times in ops(graph):
            runs[id(op)] = op, int(times)
            for use in op.reads:
                if use.tensor.kind == "weight":
                    owners.setdefault(use.tensor.name, id(op))
        self.known: dict[int, Amount] = {
            key: Amount(flops=c.op_flops(op) * times) for key, (op, times) in runs.items() if op.kind == "contract"
        }
        for item in c.inventory(graph):
            if c.is_learned(item.tensor):
                size = int(numel(item.tensor))
                key = owners[item.tensor.name]
                own = size if item.copies > 1 or runs[key][1] == 1 else 0  # one for all repetitions
                self.known[key] = self.known.get(key, Amount()) + Amount(size * int(item.copies), own)
        self.owners = owners

    def of(self, *parts: Iterable[Op]) -> Amount:
        """The sum over operations."""
        return sum((self.known.get(id(op), Amount()) for part in parts for op in part), Amount())

    def whole(self) -> Amount:
        """The sum over the graph."""
        return sum(self.known.values(), Amount())


class Twins:
    """Blocks of one shape, of which one picture stands for all: an operation's amount is that of its twins too."""

    def __init__(self, tally: Tally, blocks: Sequence[Block]) -> None:
        rows = [[op for op, _ in ops(block)] for block in blocks]
        self.tally = tally
        self.first = blocks[0]
        self._twins = {id(row[0]): row for row in zip(*rows, strict=True)}

    def of(self, part: Iterable[Op]) -> Amount:
        """Of operations of the first block, and of their twins; `single` is one block's."""
        chosen = list(part)
        total = self.tally.of(*(self._twins[id(op)] for op in chosen))
        return Amount(total.params, self.tally.of(chosen).single, total.flops)


def same_shape(a: Block, b: Block) -> bool:
    """Whether two blocks have the same operations in the same order."""
    first, second = ([(op.kind, op.fn) for op, _ in ops(block)] for block in (a, b))
    return first == second
