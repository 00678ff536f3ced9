"""Bytes of tensors that a program holds at once beside weights and caches, operator by operator.

A program on a processor runs each op of the graph as an operator with a result of its own, where kernels of a GPU fuse:
a gate's activation is a tensor, a mask or bias of attention too. Results die after the last operator that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from archsim.graph.graph import Block, Op, blocks
from archsim.graph.kernels import Kernel, kernels
from archsim.graph.tensor import Use, nbytes, numel
from archsim.timing.cpu_calls import VIEWS
from archsim.timing.kernel_calls import AttentionSpec, fused_members

GATES = frozenset({"swiglu", "geglu", "geglu_tanh"})
"""Functions that make a tensor as large as their result on the way, unless they are compiled."""


SCANNED = 4
"""Tensors of the size of all states that a recurrence holds at its end."""
TWO = 2


class _Piece(NamedTuple):
    """What runs as one: tensors by name that it reads, those that it makes in one storage, and bytes that it makes and
    drops.
    """

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    own: float
    loop: str


def live_peak_bytes(graph: Block, sequences: int, compiled: bool = False) -> float:
    """The most bytes of activations that are alive at once. sequences: that run together. compiled: whether norms,
    gates and rotations are one kernel each.
    """
    every = kernels(graph)
    sizes = {use.tensor.name: float(nbytes(use)) for k in every for op in k.ops for use in (*op.reads, *op.writes)
             if use.tensor.kind == "act"}  # fmt: skip
    pieces, views = list(_pieces(every, sequences, compiled)), _views(every)
    home = {name: piece.makes[0] for piece in pieces for name in piece.makes}
    home |= {name: home.get(_source(name, views), _source(name, views)) for name in views}
    last, live, peak = _last_readers(graph, pieces, home), dict[str, float](), 0.0
    for i, piece in enumerate(pieces):
        if piece.makes:
            live[piece.makes[0]] = sum(sizes.get(name, 0.0) for name in piece.makes)
        peak = max(peak, sum(live.values()) + piece.own)
        for name in [name for name in live if last.get(name, i) <= i]:
            del live[name]
    return peak


def _pieces(every: Sequence[Kernel], sequences: int, compiled: bool) -> Iterator[_Piece]:
    """Attention as one, products of one activation side by side, every other op by itself."""
    for members in fused_members(every):
        together = [every[i] for i in members]
        loop = together[0].loop
        if together[0].kind:
            ops = [op for kernel in together for op in kernel.ops]
            made = {use.tensor.name for op in ops for use in op.writes}
            reads = tuple(use.tensor.name for op in ops for use in op.reads if use.tensor.name not in made)
            own = sum(attention_bytes(kernel, sequences) for kernel in together if kernel.kind == "attention")
            own += sum(scan_bytes(op) for op in ops if op.kind == "scan")
            yield _Piece(reads, _acts(ops[-1].writes), own, loop)
            continue
        first = [kernel.ops[0] for kernel in together]
        yield _Piece(_names(first), tuple(name for op in first for name in _acts(op.writes)), 0.0, loop)
        for op in (op for kernel in together for op in kernel.ops[1:] if op.kind not in VIEWS):
            made_on_the_way = nbytes(op.writes[0]) if op.fn in GATES and not compiled else 0.0
            yield _Piece(_names([op]), _acts(op.writes), float(made_on_the_way), loop)


def attention_bytes(kernel: Kernel, sequences: int) -> float:
    """What attention makes or is given beside queries, keys and values: the pairs that it sees; a number for each head
    and pair, a second time with -inf where some pairs are not seen; and the log of the softmax's sum in fp32. While
    numbers are filled in, the pairs stand there twice and the result not yet.
    """
    spec = AttentionSpec.of(kernel)
    new, keys = (float(use.axes[axis]) / sequences for use, axis in ((spec.query, "T"), (spec.key, "C")))
    mask, biases = spec.mask, [op.writes[0] for op in kernel.ops if op.kind == "gather"]
    hidden = mask is not None and ((mask.causal and new > 1) or (bool(mask.window) and mask.window < keys))
    seen = new * keys if hidden and (biases or (mask is not None and mask.window)) else 0.0
    heads = sum(prod([float(n) for axis, n in use.axes.items() if axis != "P"]) * use.tensor.format.bytes
                for use in biases)  # fmt: skip
    sums = 4 * sequences * float(spec.heads) * new
    numbers = heads * new * keys * (2 if hidden else 1)
    result = float(nbytes(kernel.ops[-1].writes[0]))
    joined = joined_bytes(kernel, spec, new, sequences)
    return joined + max(seen + numbers + sums, 2 * seen + numbers - result if numbers else 0.0)


def joined_bytes(kernel: Kernel, spec: AttentionSpec, new: float, sequences: int) -> float:
    """Copies that attention is given where its scores have several parts: queries and keys side by side. Where values
    are narrower, of several tokens values and results as wide as these; of one token, which no fused kernel takes then,
    queries and keys times the root of the scale, and the scores.
    """
    if len([op for op in kernel.ops if op.kind == "contract"][:-1]) == 1:
        return 0.0
    rows, keys = float(spec.query.axes["T"]), float(spec.key.axes["C"])
    queries, held = rows * float(spec.heads), keys * float(spec.kv_heads)
    wide, narrow = float(spec.score_dim), float(spec.value_dim)
    copied = (queries + held) * wide
    if wide != narrow:
        copied += held * wide + queries * (wide - narrow if new > 1 else wide + keys / sequences)
    return copied * spec.query.tensor.format.bytes


def scan_bytes(op: Op) -> float:
    """Of a recurrence over all tokens: what each state keeps and takes in, the states one by one, and in one piece, in
    fp32.
    """
    return SCANNED * 4.0 * numel(op.writes[0]) if len(op.reads) > TWO else 0.0


def _names(ops: Sequence[Op]) -> tuple[str, ...]:
    return tuple(use.tensor.name for op in ops for use in op.reads)


def _acts(uses: Sequence[Use]) -> tuple[str, ...]:
    return tuple(use.tensor.name for use in uses if use.tensor.kind == "act" and numel(use))


def _views(every: Sequence[Kernel]) -> dict[str, str]:
    """Tensors that only rename another's numbers."""
    views = (op for kernel in every for op in kernel.ops[1:] if op.kind in VIEWS)
    return {use.tensor.name: op.reads[0].tensor.name for op in views for use in op.writes}


def _source(name: str, views: Mapping[str, str]) -> str:
    while name in views:
        name = views[name]
    return name


def _last_readers(graph: Block, pieces: Sequence[_Piece], home: Mapping[str, str]) -> dict[str, int]:
    """The last piece that reads each storage. What a loop reads from outside lives to its end, but for what each
    repetition hands on.
    """
    ends = {piece.loop: i for i, piece in enumerate(pieces)}
    carried = {before.name for block in blocks(graph) for before, _ in block.carry}
    handed = {after.name: block.name for block in blocks(graph) for _, after in block.carry}
    found: dict[str, int] = {}
    for i, piece in enumerate(pieces):
        for name in piece.reads:
            own = home.get(name, name)
            outside = piece.loop and not own.startswith(piece.loop + ".") and name not in carried
            found[own] = max(found.get(own, 0), ends[piece.loop] if outside else i)
    for name, loop in handed.items():
        own = home.get(name, name)
        found[own] = max(found.get(own, 0), ends.get(loop, 0))
    return found
