"""Tensor, expert and attention data parallelism, derived from axis names.

An axis is cut by a set of mesh dimensions, a pair axis by the union of its parents'. Where a contraction sums
over a cut axis its result is a partial sum, which travels through linear ops and is resolved by an all-reduce
before anything nonlinear, a residual, a bias or the end of a block reads it. That alone gives Megatron's two
all-reduces a layer, one for parallel blocks, replicated key/value heads, and MLA's latent whole on each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import takewhile
from math import prod
from operator import is_
from typing import Any

from archsim.base.data_class import dataclass
from archsim.base.json_types import JsonObject
from archsim.base.number import Num, ceil_div, divide
from archsim.base.poly import Poly
from archsim.graph.graph import Block, Node, Op, ops, rewrite
from archsim.graph.tensor import PAIRS, Axes, Tensor, Use

Dims = tuple[str, ...]
"""Mesh dimensions, in order."""

Split = tuple[dict[str, Num], frozenset[str]]
"""Extents on one rank, and the mesh dimensions that cut them."""

CutUse = tuple[Use, frozenset[str]]
"""A rank's part of a use, and the mesh dimensions that cut what is used."""

UNCUT = frozenset[str]()
"""The dimensions that cut what every rank has whole."""

HEAD_PAIRS: Mapping[str, str] = {"K": "G", "N": "J", "Gr": "J"}
"""Axis of head groups -> axis of heads within a group: the first is cut as far as it divides, the second takes
what remains of the ranks, on which the first is then replicated."""

CUT = frozenset({"F", "I", "Nb", "V", "Vp"})
"""Other axes that tensor parallelism cuts."""

CUT_AS_FAR = frozenset({"Ni"})
"""Axes that are cut as far as they divide, and replicated on the ranks that remain."""

PADDED = frozenset({"V", "Vp"})
"""Axes whose last rank is filled up: tables of token embeddings."""

DEALT = frozenset({"E", "M"})
"""Experts, and rows that are dealt out to them."""

TOKENS = frozenset({"T", "C", "S", "P"})
"""Axes that follow sequences, which attention data parallelism deals out whole."""

EVER_CUT = frozenset({*HEAD_PAIRS, *HEAD_PAIRS.values(), *CUT, *CUT_AS_FAR, *DEALT, *TOKENS, *PAIRS})
"""All axes that some plan cuts."""

EXCHANGES = frozenset({"dispatch", "combine"})
"""Maps between tokens and the rows that experts work on."""

NORMS = frozenset({"rmsnorm", "layernorm", "l2norm"})


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks of one pipeline stage: `tp` as prime factors t0, t1, ..., and `dp`. ep takes dp first, then tp.

    fullest: experts of the rank that holds most, over the mean; the rows that are dealt out follow the experts.
    """

    sizes: Mapping[str, int]
    experts: Dims = ()
    tensor: Dims = ()
    data: Dims = ()
    fullest: Fraction = Fraction(1)
    memo: dict[Any, Split] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, tp: int = 1, dp: int = 1, ep: int = 1, fullest: Fraction = Fraction(1)) -> Mesh:
        """The mesh of a plan; ep must divide tp x dp."""
        sizes = {f"d{i}": p for i, p in enumerate(_primes(dp))} | {f"t{i}": p for i, p in enumerate(_primes(tp))}
        experts: list[str] = []
        for name, size in sizes.items():
            if ep % size == 0:
                experts.append(name)
                ep //= size
        tensor, data = (tuple(d for d in sizes if d[0] == letter) for letter in "td")
        return cls(sizes, tuple(experts), tensor, data, fullest)

    def size(self, dims: Iterable[str]) -> int:
        """Ranks along some dimensions."""
        return prod([self.sizes[d] for d in dims])

    def prefix(self, extent: Num) -> Dims:
        """As many tensor dimensions, in order, as divide `extent`."""
        taken: list[str] = []
        for d in self.tensor:
            if isinstance(extent, int) and extent % (self.size(taken) * self.sizes[d]) == 0:
                taken.append(d)
        return tuple(taken)

    def dims(self, axis: str, axes: Axes) -> frozenset[str]:
        """The dimensions that cut `axis` where it stands among `axes`."""
        if axis in PAIRS:
            first, second = PAIRS[axis]
            return self.dims(first, axes) | self.dims(second, axes)
        if axis in ("T", "C", "S"):
            return frozenset(self.data)
        if axis == "E":
            return frozenset(self.experts)
        if axis in HEAD_PAIRS or axis in CUT_AS_FAR:
            return frozenset(self.prefix(axes[axis]))
        if axis in HEAD_PAIRS.values():
            groups = next(a for a, heads in HEAD_PAIRS.items() if heads == axis and a in axes)
            return frozenset(self.tensor) - frozenset(self.prefix(axes[groups]))
        if axis in CUT:
            own = frozenset(self.tensor)
            return own - frozenset(self.experts) if axis == "F" and ("E" in axes or "M" in axes) else own
        return frozenset()

    def split(self, axes: Axes) -> Split:
        """Extents per rank, and the dimensions that cut any axis; each set of whole-number extents once.

        The vocabulary is padded up; all else must divide (see `archsim.spec.parallelism`).
        """
        key = tuple(axes.items()), tuple(map(type, axes.values()))  # 4 == 4.0, and each keeps its own kind of number
        try:
            found = self.memo.get(key)
        except TypeError:  # arrays have no hash
            return self._split(axes)
        if found is None:
            found = self.memo[key] = self._split(axes)
        return found

    def follows_sequences(self, axis: str, axes: Axes) -> bool:
        """Whether an axis belongs to sequences of one data rank; experts over data ranks share all tokens evenly."""
        return axis in TOKENS or (axis == "M" and not self.dims(axis, axes) <= frozenset(self.experts))

    def _split(self, axes: Axes) -> Split:
        extents: dict[str, Num] = {}
        everything = UNCUT
        for axis, n in axes.items():
            dims = self.dims(axis, axes) if axis in EVER_CUT else UNCUT
            extents[axis] = self._share(axis, n, dims) if dims else n
            everything |= dims
        return extents, everything

    def _share(self, axis: str, n: Num, dims: frozenset[str]) -> Num:
        """The extent on one rank."""
        ranks = self.size(dims)
        if axis in DEALT and self.fullest != 1:
            n, ranks = n * self.fullest.numerator, ranks * self.fullest.denominator
        return ceil_div(n, ranks) if axis in PADDED and type(n) is not Poly else divide(n, ranks)


@dataclass(slots=True)
class Sharder:
    """One walk over a graph: cuts every tensor, tracks partial sums, inserts the collectives that follow."""

    mesh: Mesh
    wholes: dict[str, CutUse] = field(default_factory=dict)
    partial: dict[str, frozenset[str]] = field(default_factory=dict)

    def block(self, block: Block) -> Block:
        """The block on one rank; what it hands on is whole."""
        body: list[Node] = []
        for child in block.body:
            made: Sequence[Node] = self._enter(child) if isinstance(child, Block) else self.op(child)
            if len(made) == 1 and not _is_sum(made[0]):
                body.append(made[0])
            else:
                _append_with_sums(body, made)
        carry = tuple((self.tensor(x), self.tensor(y)) for x, y in block.carry)
        for _, y in block.carry:
            body.extend(self.resolve(y.name))
        return Block(
            name=block.name, body=tuple(body), times=block.times, shared=block.shared, carry=carry,
            kernel=block.kernel, attrs=block.attrs,
        )  # fmt: skip

    def _enter(self, block: Block) -> list[Node]:
        """A nested block; a loop is entered with whole tensors, lest each repetition resolve them again."""
        before = [op for entering, _ in block.carry for op in self.resolve(entering.name)]
        return [*before, self.block(block)]

    def op(self, op: Op) -> list[Op]:
        """The op on one rank, with the collectives before and after it."""
        held, before = self._held(op) if self.partial else ({}, [])
        reads, writes = [self.cut(use) for use in op.reads], [self.cut(use) for use in op.writes]
        new = _with_uses(op, tuple([use for use, _ in reads]), tuple([use for use, _ in writes]))
        lost = self._lost(op, reads, writes)
        if held:
            lost = lost.union(*held.values())
        if lost and new.writes:
            self.partial[new.writes[0].tensor.name] = lost
        if op.kind == "map" and (op.fn in NORMS or op.fn in EXCHANGES):
            return [*before, *self._moved(op, new), *self._statistics(op, new)]
        return [*before, new] if before else [new]

    def _held(self, op: Op) -> tuple[dict[str, frozenset[str]], list[Op]]:
        """The op's inputs that may stay partial sums, and the all-reduces for those that may not."""
        held = {u.tensor.name: self.partial[u.tensor.name] for u in op.reads if u.tensor.name in self.partial}
        if not held or self._passes(op, held):
            return held, []
        return {}, [reduce for name in held for reduce in self.resolve(name)]

    def _passes(self, op: Op, held: Mapping[str, frozenset[str]]) -> bool:
        """Whether the op is linear in its partial inputs, so that the sum can wait."""
        if op.kind in ("view", "select"):
            return True
        if op.kind == "contract":
            return len(held) == 1 and op.cls == "matmul"
        if op.kind == "map" and op.fn == "combine":
            return op.writes[0].tensor.name not in self.partial and op.reads[1].tensor.name not in held
        same = len(set(held.values())) == 1 and len(held) == len(op.reads)
        return op.kind == "map" and op.fn == "add" and same and not op.attrs

    def _lost(self, op: Op, reads: Sequence[CutUse], writes: Sequence[CutUse]) -> frozenset[str]:
        """Dimensions that the op sums over: the result is then a partial sum along them."""
        if op.kind not in ("contract", "gather") and op.fn != "combine":
            return UNCUT
        lost = UNCUT.union(*[dims for _, dims in reads]) - writes[0][1]
        return lost - frozenset(self.mesh.data) if op.fn == "combine" else lost

    def resolve(self, name: str) -> list[Op]:
        """The all-reduce that makes a partial sum whole; nothing if it is."""
        dims = self.partial.pop(name, frozenset())
        if not dims:
            return []
        use = self.wholes[name][0].tensor.part()
        return [_collective("all_reduce", name, use, self.mesh, dims)]

    def _moved(self, op: Op, new: Op) -> list[Op]:
        """Tokens change owner where experts are spread over ranks that hold different tokens. picks: experts of a token
        that the ranks of one exchange hold, where others hold the rest.
        """
        both = frozenset(self.mesh.data) & frozenset(self.mesh.experts)
        if not both or op.fn not in EXCHANGES:
            return [new]
        use = new.writes[0] if op.fn == "dispatch" else new.reads[0]
        move = _collective("all_to_all", op.name, use, self.mesh, both)
        if "top_k" in op.attrs:
            picks = divide(op.attrs["top_k"] * self.mesh.size(both), self.mesh.size(self.mesh.experts))
            move = replace(move, attrs={**move.attrs, "exchange": op.fn, "picks": picks})
        return [new, move] if op.fn == "dispatch" else [move, new]

    def _statistics(self, op: Op, new: Op) -> list[Op]:
        """A norm over a cut axis sums one number per row over the ranks."""
        if op.fn not in NORMS:
            return []
        dims = frozenset().union(*(self.mesh.dims(a, op.reads[0].axes) for a in op.attrs["over"]))
        if not dims:
            return []
        rows = {a: n for a, n in new.writes[0].axes.items() if a not in op.attrs["over"]}
        use = Tensor(op.name + ".sums", rows).part()
        return [_collective("all_reduce", op.name + ".sums", use, self.mesh, dims)]

    def tensor(self, tensor: Tensor) -> Tensor:
        """The rank's part of a tensor, each name once."""
        return self._whole(tensor)[0].tensor

    def _whole(self, tensor: Tensor) -> CutUse:
        """The use of all that a rank has of a tensor, and the dimensions that cut the tensor."""
        found = self.wholes.get(tensor.name)
        if found is None:
            axes, dims = self.mesh.split(tensor.axes)
            if dims:
                own = Tensor(tensor.name, axes, tensor.kind, tensor.format, tensor.role, tensor.inner)
                found = Use(own, axes), dims
            else:
                found = Use(tensor, tensor.axes), UNCUT
            self.wholes[tensor.name] = found
        return found

    def cut(self, use: Use) -> CutUse:
        """The rank's part of a use, and the dimensions that cut what is used."""
        tensor = use.tensor
        whole, of_whole = self.wholes.get(tensor.name) or self._whole(tensor)
        axes, dims = (whole.axes, of_whole) if use.axes is tensor.axes else self.mesh.split(use.axes)
        if whole.tensor is tensor and not dims:
            return use, UNCUT
        if axes is whole.axes and use.copy is None:
            return whole, dims
        return Use(whole.tensor, axes, use.copy), dims


def _with_uses(op: Op, reads: tuple[Use, ...], writes: tuple[Use, ...]) -> Op:
    """The op with other uses; itself where they are its own."""
    if all(map(is_, reads, op.reads)) and all(map(is_, writes, op.writes)):
        return op
    return Op(
        kind=op.kind, name=op.name, reads=reads, writes=writes, cls=op.cls, fn=op.fn, rate=op.rate, attrs=op.attrs,
        part=op.part,
    )  # fmt: skip


def cut_extents(graph: Block) -> tuple[int, ...]:
    """Extents that the tensor-parallel degree must divide: of the axes that it cuts in the graph's weights, heads of
    all groups together. Padded axes divide always.
    """
    found: set[int] = set()
    groups: dict[tuple[str, int], int] = {}
    for axes in (use.tensor.axes for op, _ in ops(graph) for use in op.reads if use.tensor.kind == "weight"):
        found |= {axes[axis] for axis in CUT - PADDED if axis in axes}
        for outer, inner in HEAD_PAIRS.items():
            if outer in axes:
                key = outer, axes[outer]
                groups[key] = max(groups.get(key, 1), axes.get(inner, 1))
    return tuple(sorted(found | {n * inner for (_, n), inner in groups.items()}))


def with_full_ranks(graph: Block, filled: Block, mesh: Mesh) -> Block:
    """The graph with the extents of sequences of `filled`, the graph of the step in which every data rank has as many
    sequences of each kind as the fullest one; what all ranks share stays that of the step itself.
    """
    twins, tensors = (op for op, _ in ops(filled)), dict[str, Tensor]()

    def axes(own: Axes, full: Axes) -> Axes:
        return {axis: full[axis] if mesh.follows_sequences(axis, own) else n for axis, n in own.items()}

    def use(own: Use, full: Use) -> Use:
        old = own.tensor
        if old.name not in tensors:
            tensors[old.name] = replace(old, axes=axes(old.axes, full.tensor.axes))
        tensor = tensors[old.name]
        return Use(tensor, tensor.axes if own.axes is old.axes else axes(own.axes, full.axes), own.copy)

    def on_op(op: Op) -> tuple[Op]:
        twin = next(twins)
        reads = tuple(map(use, op.reads, twin.reads))
        return (replace(op, reads=reads, writes=tuple(map(use, op.writes, twin.writes))),)

    def on_block(block: Block) -> Block:
        return replace(block, carry=tuple((tensors[x.name], tensors[y.name]) for x, y in block.carry))

    (result,) = rewrite(graph, on_op, on_block)
    assert isinstance(result, Block)
    return result


def shard(graph: Block, mesh: Mesh) -> Block:
    """What one rank of `mesh` computes and stores, with the collectives between ranks."""
    if not mesh.sizes:
        return graph
    sharder = Sharder(mesh)
    result = sharder.block(graph)
    return replace(result, body=(*result.body, *_gather_logits(result, mesh)))


def _gather_logits(graph: Block, mesh: Mesh) -> list[Op]:
    """Sampling needs every logit: the vocabulary shards are gathered at the end."""
    if mesh.size(mesh.tensor) == 1:
        return []
    found = [op for block in graph.body if isinstance(block, Block) for op in block.body if isinstance(op, Op)]
    logits = [op.writes[0] for op in found if op.writes and "V" in op.writes[0].axes and op.kind != "gather"]
    if not logits:
        return []
    return [_collective("all_gather", "head.gather", logits[-1], mesh, frozenset(mesh.tensor))]


def _append_with_sums(body: list[Node], made: Sequence[Node]) -> None:
    """Append what became of a node. A sum over ranks goes before products that have no part in it, lest it come between
    them and what takes up their results.
    """
    sums = list(takewhile(_is_sum, made))
    names = {op.reads[0].tensor.name for op in sums if isinstance(op, Op)}
    place = len(body)
    while sums and place and _apart(body[place - 1], names):
        place -= 1
    body[place:place] = sums
    body.extend(made[len(sums) :])


def _is_sum(node: Node) -> bool:
    return isinstance(node, Op) and node.fn == "all_reduce"


def _apart(node: Node, names: set[str]) -> bool:
    """Whether a node is a product that neither reads nor writes any of these tensors."""
    if not isinstance(node, Op) or node.kind != "contract":
        return False
    return not names.intersection(use.tensor.name for use in (*node.reads, *node.writes))


def _collective(fn: str, name: str, use: Use, mesh: Mesh, dims: frozenset[str]) -> Op:
    """A collective; reads say what one rank holds before it. Data ranks stand `stride` = tp devices apart."""
    out = Tensor(f"{name}.{fn}", use.axes, "act", use.tensor.format)
    stride = mesh.size(mesh.tensor) if dims <= frozenset(mesh.data) else 1
    attrs: JsonObject = {"group": mesh.size(dims), "stride": stride, "dims": tuple(sorted(dims))}
    return Op(
        kind="collective", name=f"{name}.{fn}", reads=(use,), writes=(Use(out, use.axes),), fn=fn, attrs=attrs
    )  # fmt: skip


def _primes(n: int) -> list[int]:
    """Prime factors in ascending order."""
    factors: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return factors + ([n] if n > 1 else [])
