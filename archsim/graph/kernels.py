"""A graph as the sequence of kernels that a perfectly fusing implementation launches, and their HBM edges.

The rule, in one place: a contraction, lookup, scan or collective starts a kernel; the elementwise ops, appends
and views that follow join it as its epilogue; the body of a block that names its kernel (attention, a scan) is
one kernel. What crosses a kernel's boundary goes through HBM, each tensor once, unless it stays in the
last-level cache. Products of one activation (Q, K and V; gate and up) can run as one: they read it once between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import Num, above, absent
from archsim.graph.graph import Block, Node, Op, blocks, kept_with_graph
from archsim.graph.tensor import Use, nbytes, numel

EPILOGUE = frozenset({"map", "append", "view", "select"})
"""Op kinds that join the kernel before them."""


@dataclass(slots=True, eq=False)
class Kernel:
    """Ops that run as one. `times`: executions per step. `loop`: the block they repeat in, which fusion never
    crosses. `kind`: "attention", "selective_scan" ... of a block that names its kernel.
    """

    loop: str
    times: Num
    kind: str = ""
    ops: list[Op] = field(default_factory=list)
    _found: tuple[int, Op, Op | None] | None = field(default=None, repr=False)
    """How many ops there were when main op and product were looked up, and these."""

    @property
    def main(self) -> Op:
        """The op that gives the kernel its name and part: its contraction, else its first op."""
        return self._looked_up()[1]

    @property
    def product(self) -> Op | None:
        """The contraction that the kernel is built around."""
        return self._looked_up()[2]

    def _looked_up(self) -> tuple[int, Op, Op | None]:
        """Looked up once, as long as no op joins."""
        found = self._found
        if found is None or found[0] != len(self.ops):
            main = next((op for op in self.ops if op.kind not in EPILOGUE), self.ops[0])
            product = next((op for op in self.ops if op.kind == "contract"), None)
            found = self._found = (len(self.ops), main, product)
        return found

    @property
    def name(self) -> str:
        """Path of the main op."""
        return self.main.name

    def joins(self, op: Op, loop: str) -> bool:
        """Whether `op` runs as this kernel's epilogue."""
        return op.kind in EPILOGUE and loop == self.loop and self.ops[-1].kind != "collective"


class Traffic(NamedTuple):
    """HBM bytes of one execution of a kernel, by what they belong to."""

    weight: Num = 0
    state: Num = 0
    act: Num = 0

    @property
    def total(self) -> Num:
        """All bytes."""
        return self.weight + self.state + self.act


def kernels(graph: Block) -> list[Kernel]:
    """The graph's kernels in order of execution, repetitions as a multiplicity."""
    found: list[Kernel] = []

    def visit(node: Node, times: Num, loop: str) -> None:
        if isinstance(node, Op):
            if not (found and found[-1].joins(node, loop)):
                found.append(Kernel(loop, times))
            found[-1].ops.append(node)
            return
        if not (isinstance(node.times, int) and node.times == 1):
            times, loop = times * node.times, node.name
        if node.kernel:
            kernel = Kernel(loop, times, node.kernel)
            _collect(node, kernel.ops)
            found.append(kernel)
            return
        for child in node.body:
            visit(child, times, loop)

    visit(graph, 1, "")
    return found


@kept_with_graph
def kernels_with_edges(graph: Block) -> tuple[tuple[Kernel, list[Use]], ...]:
    """Every kernel with what crosses its boundary, once per graph: both time and memory ask for it."""
    sequence = kernels(graph)
    read_by = readers(graph, sequence)
    return tuple((kernel, edges(kernel, i, read_by)) for i, kernel in enumerate(sequence))


@kept_with_graph
def read_shares(graph: Block) -> tuple[dict[str, Num], ...]:
    """For every kernel, the activation that its product with weights reads, and the kernel's share of that read.

    Products of one activation within a loop share it by the sizes of their results, so that each is bound by what one
    product as wide as all of them is. Activations that are not in it are read in full.
    """
    sequence = [kernel for kernel, _ in kernels_with_edges(graph)]
    groups: dict[tuple[str, str], list[int]] = {}
    for i, kernel in enumerate(sequence):
        if name := _multiplied(kernel):
            groups.setdefault((kernel.loop, name), []).append(i)
    found: list[dict[str, Num]] = [{} for _ in sequence]
    for (_, name), members in groups.items():
        sizes = [_result_size(sequence[i]) for i in members]
        for i, size in zip(members, sizes, strict=True):
            found[i] = {name: size / sum(sizes)} if len(members) > 1 else {}
    return tuple(found)


def traffics(graph: Block, cache_bytes: Num) -> list[Traffic]:
    """HBM bytes of one execution of every kernel; `cache_bytes` as of `traffic`."""
    found = zip(kernels_with_edges(graph), read_shares(graph), strict=True)
    sizes: dict[tuple[str, int], Num] = {}
    return [traffic(crossing, cache_bytes, shares, sizes) for (_, crossing), shares in found]


def product_of(kernel: Kernel) -> Op | None:
    """The contraction that a kernel is built around."""
    return kernel.product


def weight_of(op: Op) -> Use | None:
    """The weight that a contraction reads."""
    for use in op.reads:
        if use.tensor.kind == "weight":
            return use
    return None


def operand_of(op: Op) -> Use:
    """What a contraction with a weight multiplies it with."""
    first = op.reads[0]
    if first.tensor.kind != "weight":
        return first
    return next(use for use in op.reads if use is not first)


def _multiplied(kernel: Kernel) -> str:
    """Name of the activation that the kernel's product multiplies with weights; empty where there is none."""
    found = None if kernel.kind else product_of(kernel)
    if found is None or weight_of(found) is None or operand_of(found).tensor.kind != "act":
        return ""
    return operand_of(found).tensor.name


def _result_size(kernel: Kernel) -> Num:
    return sum([numel(op.writes[0]) for op in kernel.ops if op.kind == "contract"])


def _collect(node: Node, ops: list[Op]) -> None:
    if isinstance(node, Op):
        ops.append(node)
        return
    for child in node.body:
        _collect(child, ops)


def readers(graph: Block, sequence: list[Kernel]) -> Mapping[str, set[int]]:
    """Which kernels read each tensor, by position; -1 stands for the next repetition of a loop."""
    found: dict[str, set[int]] = {}
    for i, kernel in enumerate(sequence):
        for op in kernel.ops:
            for use in op.reads:
                name = use.tensor.name
                if name in found:
                    found[name].add(i)
                else:
                    found[name] = {i}
    for block in blocks(graph):
        for _, made in block.carry:
            found.setdefault(made.name, set()).add(-1)
    return found


def edges(kernel: Kernel, index: int, read_by: Mapping[str, set[int]]) -> list[Use]:
    """Everything that crosses the kernel's boundary: what it reads from outside, and what others read of it.

    A tensor that no one reads (the logits) is a result and leaves too. A state that the kernel itself has just
    appended to is still read in full: the new rows are counted by the append.
    """
    made = {u.tensor.name for op in kernel.ops for u in op.writes if u.tensor.kind == "act"}
    crossing: dict[str, Use] = {}
    for op in kernel.ops:
        for use in op.reads:
            name = use.tensor.name
            if name not in made and name not in crossing:
                crossing[name] = use
    for op in kernel.ops:
        for use in op.writes:
            name = use.tensor.name
            if use.tensor.kind == "state" or (by := read_by.get(name)) is None or len(by) > 1 or index not in by:
                crossing["=" + name] = use
    return list(crossing.values())


def traffic(
    crossing: list[Use],
    cache_bytes: Num,
    shares: Mapping[str, Num] = MappingProxyType({}),
    sizes: dict[tuple[str, int], Num] | None = None,
) -> Traffic:
    """HBM bytes of one execution.

    Weights and caches always come from HBM; an activation does only when it is larger than the last-level cache
    (`cache_bytes`, 0: none), since its producer or reader runs right beside. shares: of reads that other kernels have a
    part in. sizes: what other kernels of the graph move of the same tensors, kept for the next.
    """
    totals: dict[str, Num] = {"weight": 0, "state": 0, "act": 0}
    sizes = {} if sizes is None else sizes
    for use in crossing:
        tensor = use.tensor
        kind, key = tensor.kind, (tensor.name, id(use.axes))
        size = sizes.get(key)
        if size is None:
            size = nbytes(use)
            size = sizes[key] = above(size, cache_bytes) if kind == "act" and not absent(cache_bytes) else size
        if kind == "act" and tensor.name in shares:
            size = size * shares[tensor.name]
        totals[kind] = totals[kind] + size
    return Traffic(totals["weight"], totals["state"], totals["act"])
