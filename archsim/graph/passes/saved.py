"""What the forward pass keeps for the backward: every tensor once, with the repetitions that keep one each.

Views, slices and cache writes are other names of what they read. What a loop carries is kept once per repetition,
whether the next repetition keeps it as its input or this one as its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import Num, floor_div
from archsim.graph.dialect import Dialect, SaveRule
from archsim.graph.graph import Block, Op, blocks, ops
from archsim.graph.passes.checkpoint import NO_RECOMPUTATION, Recompute, is_layer, runs_again
from archsim.graph.passes.grad import ATTENTION, runs_as_one
from archsim.graph.passes.grad_plan import ALIASES, Planned, PlannedBlock, PlannedNode
from archsim.graph.tensor import FP32, Axes, Format, Tensor, nbytes

INT64 = Format(name="int64", bytes=8)
BOOL = Format(name="bool", bytes=1)
FORMATS = {"fp32": FP32, "int64": INT64, "bool": BOOL}


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that lives from the forward to the backward, and how many there are of it."""

    tensor: Tensor
    copies: Num

    @property
    def home(self) -> str:
        """Path of the block that makes it."""
        return self.tensor.name.rpartition(".")[0]

    @property
    def bytes(self) -> Num:
        """Bytes of all copies."""
        return nbytes(self.tensor, self.copies)


@dataclass(slots=True)
class Kept:
    """Tensors that one repetition of a block keeps. own: by name, once each; inner: those of repeated blocks inside."""

    own: dict[str, Tensor] = field(default_factory=dict)
    inner: list[Saved] = field(default_factory=list)

    def take(self, other: Kept) -> None:
        """Everything that another part of the same repetition keeps."""
        self.own.update(other.own)
        self.inner += other.inner


@dataclass(frozen=True, slots=True)
class Region:
    """What runs once more: a block with its repetitions, and the tensors that one repetition of it makes."""

    block: Block
    tensors: tuple[Tensor, ...]


@dataclass(slots=True)
class SavedTensors:
    """One walk over a planned graph.

    reached: the ops that a gradient reaches, as `Backward` found them. known: every tensor by name; roots: what views
    stand for; makers: the op that makes each. outer: repetitions of the blocks around each block. again: by region what
    runs once more; layers: how many have been seen. counted: tensors of repeated blocks, of which other blocks may read
    the last.
    """

    dialect: Dialect
    reached: set[tuple[str, str]]
    known: dict[str, Tensor]
    roots: dict[str, str]
    makers: dict[str, str]
    policy: Recompute = NO_RECOMPUTATION
    outer: dict[str, Num] = field(default_factory=dict)
    suffix: str = ""
    again: dict[str, Region] = field(default_factory=dict)
    layers: Num = 0
    counted: set[str] = field(default_factory=set)

    def nodes(self, body: Iterable[PlannedNode]) -> Kept:
        """What a sequence keeps."""
        kept = Kept()
        for node in body:
            if isinstance(node, Planned):
                kept.own.update({t.name: t for t in self.of_op(node)})
            else:
                kept.take(self.block(node))
        return kept

    # ------------------------------------------------------------------ blocks
    def block(self, node: PlannedBlock) -> Kept:
        """What all repetitions of a block keep."""
        block = node.block
        if block.kernel and runs_as_one(block, self.dialect):
            return Kept({t.name: t for t in self.kernel(node)})
        if self.policy.attention and block.kernel == ATTENTION:
            return self._attention_op_by_op(node)
        if self.policy.by_layer and is_layer(block):
            return self._layer(node)
        rest = self.nodes(node.body)
        if isinstance(node.times, int) and node.times == 1 and node.first is None:
            return rest
        return self._repeated(node, [(rest, node.times)], self._first(node))

    def _attention_op_by_op(self, node: PlannedBlock) -> Kept:
        """What goes into attention that is no kernel, and runs once more."""
        rest = self.nodes(node.body)
        less = self._thinned(rest, node.block, frozenset())
        self._note_region(node.block, rest, less, 1)
        return less

    def _first(self, node: PlannedBlock) -> Kept | None:
        """What a first repetition that differs keeps."""
        if node.first is None:
            return None
        suffix, self.suffix = self.suffix, self.suffix + ".first"
        first = self.nodes(node.first)
        self.suffix = suffix
        return first

    def _layer(self, node: PlannedBlock) -> Kept:
        """What a layer keeps of which some results are made once more, in one of `every` of its repetitions."""
        block, rest, first = node.block, self.nodes(node.body), self._first(node)
        before, self.layers = self.layers, self.layers + block.times
        every = self.policy.every
        chosen = floor_div(self.layers, every) - floor_div(before, every) if every > 1 else block.times
        kept = self.policy.kept(block)
        less = self._thinned(rest, block, kept)
        if first is not None:
            chosen = chosen - 1
            first = self._thinned(first, block, kept) if self._is_reached(node.first) else first
        parts = [(less, chosen), *([(rest, node.times - chosen)] if every > 1 else [])]
        self._note_region(block, rest, less, chosen + (first is not None and self._is_reached(node.first)))
        return self._repeated(node, parts, first)

    def _is_reached(self, body: Iterable[PlannedNode] | None) -> bool:
        """Whether anything of a first repetition needs a gradient."""
        found = [node for node in body or () if isinstance(node, PlannedBlock)]
        own = [node for node in body or () if isinstance(node, Planned)]
        return any((n.op.name, self.suffix + ".first") in self.reached for n in own) or any(
            self._is_reached(n.body) for n in found
        )

    def _thinned(self, kept: Kept, block: Block, kept_ops: frozenset[str]) -> Kept:
        """What is left of a region's tensors: what comes from outside, its input, and the results of ops to be kept."""
        own = {
            name: t for name, t in kept.own.items() if not self._inside(name, block) or self._made_by(name, kept_ops)
        }
        inner = [item for item in kept.inner if self._made_by(item.tensor.name, kept_ops)]
        results = [use.tensor for op, _ in ops(block) if op.name in kept_ops and self.policy.kind == "op"
                   for use in op.writes if not _is_inside_kernel(op, block)]  # fmt: skip
        own |= {self.root(t): self.stands_for(t) for t in results}
        own |= {self.root(x): self.stands_for(x) for x, _ in block.carry}
        return Kept(own, inner)

    def _made_by(self, name: str, kept_ops: frozenset[str]) -> bool:
        return self.makers.get(name, "") in kept_ops

    def _note_region(self, block: Block, full: Kept, less: Kept, times: Num) -> None:
        """Remember what one repetition of a region makes once more, and how."""
        tensors = [t for name, t in full.own.items() if name not in less.own]
        tensors += [item.tensor for item in full.inner if item not in less.inner]
        needed = {self.makers[t.name] for t in tensors if t.name in self.makers}
        body = runs_again(block, self.policy.kept(block), needed if self.policy.early_stop else None)
        if body and tensors:
            again = replace(
                block, name=block.name + ".recompute", body=body, times=times * self.outer[block.name], carry=()
            )
            self.again[block.name] = Region(again, tuple(tensors))

    def _repeated(self, node: PlannedBlock, parts: list[tuple[Kept, Num]], first: Kept | None) -> Kept:
        """Repetitions side by side: what is the block's own is kept once by each, what they carry once between them."""
        block, out, inside = node.block, Kept(), set[str]()
        carried = {self.root(y): self.root(x) for x, y in block.carry}
        entering = set(carried.values())
        for kept, times in (*parts, *([(first, 1)] if first is not None else [])):
            out.inner += [Saved(item.tensor, item.copies * times) for item in kept.inner]
            for name, tensor in kept.own.items():
                if name in carried or name in entering or name in self.counted:
                    continue
                if self._inside(name, block):
                    out.inner.append(Saved(tensor, times))
                    inside.add(name)
                else:
                    out.own[name] = tensor
        self.counted |= inside
        rest = {name: tensor for kept, _ in parts for name, tensor in kept.own.items()}
        for y, x in carried.items():
            out.take(self._carried(x, y, node.times, rest, None if first is None else first.own))
        return out

    def _carried(self, x: str, y: str, times: Num, rest: dict[str, Tensor], first: dict[str, Tensor] | None) -> Kept:
        """What enters (`x`) and what is handed on (`y`): the last one belongs to whoever reads it after the loop."""
        kept, out = x in rest or y in rest, Kept()
        if x != y and kept:
            out.inner.append(Saved(self.known[y], times - 1))
        if first is not None and (x in rest or y in first):
            out.inner.append(Saved(self.known[y], 1))
        if x in (rest if first is None else first):
            out.own[x] = self.known[x]
        if y in rest:
            out.own[y] = self.known[y]
        return out

    def _inside(self, name: str, block: Block) -> bool:
        return name.startswith(block.name + ".")

    def kernel(self, node: PlannedBlock) -> list[Tensor]:
        """What a block that runs as one kernel keeps: what goes in; of attention, also what comes out."""
        body = [op for op, _ in ops(node.block)]
        if not any((op.name, self.suffix) in self.reached for op in body):
            return []
        made = {use.tensor.name for op in body for use in op.writes if use.tensor.kind == "act"}
        read = {use.tensor.name: use.tensor for op in body for use in op.reads if use.tensor.kind != "weight"}
        inputs = [t for name, t in read.items() if name not in made and t.role != "recurrent"]
        roots = [self.known[self.root(t)] for t in inputs if self.root(t) in self.known]
        if node.block.kernel != ATTENTION:
            return roots
        inputs, results = self._attention_inputs(body, roots), _attention_results(body)
        for tensor in (*inputs, *results):
            self.makers.setdefault(tensor.name, body[-1].name)
        if not self.policy.attention:
            return [*inputs, *results]
        self._again_attention(node.block, results)
        return inputs

    def _attention_inputs(self, body: list[Op], roots: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values; where scores are a sum of products, queries and keys of all of them side by side,
        with as many heads as the product that has most.
        """
        products = [op for op in body if op.kind == "contract" and "P" in op.writes[0].axes]
        if len(products) < 2:
            return roots
        apart = {self.root(use.tensor) for op in products for use in op.reads}
        heads = {a: n for a, n in products[0].writes[0].axes.items() if a != "P"}
        rows, name = products[0].reads[0].axes["T"], products[0].name
        return [t for t in roots if t.name not in apart] + [
            Tensor(f"{name}.{side}", {"T": rows, **heads, "H": sum(_width(op, heads) for op in products)}, "act",
                   products[0].writes[0].tensor.format)
            for side in ("queries", "keys")
        ]  # fmt: skip

    def _again_attention(self, block: Block, results: list[Tensor]) -> None:
        again = replace(block, name=block.name + ".recompute", times=self.outer[block.name])
        self.again[block.name] = Region(again, tuple(results))

    # ------------------------------------------------------------------ ops
    def of_op(self, node: Planned) -> list[Tensor]:
        """What one op keeps, under the names of what it stands for."""
        op = node.op
        if op.kind in ALIASES or (op.name, self.suffix) not in self.reached:
            return []
        if op.kind == "contract" and not is_expert_product(op):
            kept = [op.reads[i].tensor for i in (0, 1) if node.needs[1 - i] and self._counts(op, i)]
            return [self.stands_for(tensor) for tensor in kept]
        found = (self._saved(rule, node) for rule in self.dialect.of(saving_name(op)))
        return [tensor for tensor in found if tensor is not None]

    def _counts(self, op: Op, i: int) -> bool:
        """Whether an operand is an activation, and no weight or empty state."""
        tensor = op.reads[i].tensor
        return tensor.kind == "act" or (tensor.kind == "state" and self.root(tensor) != tensor.name)

    def _saved(self, rule: SaveRule, node: Planned) -> Tensor | None:
        op = node.op
        if rule.needs and not any(i < len(node.needs) and node.needs[i] for i in rule.needs):
            return None
        if rule.when and not has_attribute(op, rule.when):
            return None
        form = FORMATS.get(rule.format, op.writes[0].tensor.format)
        if rule.shape is not None:
            owner = op.name if rule.owner is None else self.root(op.reads[rule.owner].tensor)
            self.makers[f"{owner}.{rule.what}"] = owner
            return Tensor(f"{owner}.{rule.what}", shape_of(op, rule.shape), "act", form)
        return self._operand(rule, op, form)

    def _operand(self, rule: SaveRule, op: Op, form: Format) -> Tensor | None:
        """An operand or the result, or its copy in another format; weights themselves are no activations."""
        if rule.what != "out" and int(rule.what[2:]) >= len(op.reads):
            return None
        use = op.writes[0] if rule.what == "out" else op.reads[int(rule.what[2:])]
        tensor = use.tensor
        used_in = op.writes[0].tensor.format if tensor.kind == "weight" else tensor.format
        if rule.format == "fp32" and used_in != FP32:
            self.makers[f"{op.name}.{rule.what}.fp32"] = op.name
            return Tensor(f"{op.name}.{rule.what}.fp32", use.axes, "act", form)
        return None if tensor.kind == "weight" else self.stands_for(tensor)

    def root(self, tensor: Tensor) -> str:
        """The name of the tensor that this one is another name of."""
        name = tensor.name
        while name in self.roots:
            name = self.roots[name]
        return name

    def stands_for(self, tensor: Tensor) -> Tensor:
        """The tensor that this one is another name of."""
        return self.known[self.root(tensor)]


class Keeping(NamedTuple):
    """What lives from the forward to the backward, and what runs once more before it."""

    saved: tuple[Saved, ...]
    regions: tuple[Region, ...]


def saved_tensors(
    plan: PlannedBlock, dialect: Dialect, reached: set[tuple[str, str]], policy: Recompute = NO_RECOMPUTATION
) -> Keeping:
    """Every tensor that is kept, with its copies, and the regions that are recomputed."""
    known: dict[str, Tensor] = {}
    roots: dict[str, str] = {}
    makers: dict[str, str] = {}
    for op, _ in ops(plan.block):
        for use in op.writes:
            known.setdefault(use.tensor.name, use.tensor)
            makers.setdefault(use.tensor.name, op.name)
        if op.kind in ALIASES and op.writes:
            roots[op.writes[0].tensor.name] = op.reads[0].tensor.name
    for op, _ in ops(plan.block):
        for use in op.reads:
            known.setdefault(use.tensor.name, use.tensor)  # what the step is given: a spectrum
            makers.setdefault(use.tensor.name, op.name)
    walk = SavedTensors(dialect, reached, known, roots, makers, policy, _outer_times(plan.block))
    kept = walk.nodes(plan.body)
    merged: dict[str, Saved] = {}
    for item in (*kept.inner, *(Saved(t, 1) for name, t in kept.own.items() if name not in walk.counted)):
        before = merged.get(item.tensor.name)
        merged[item.tensor.name] = item if before is None else Saved(item.tensor, before.copies + item.copies)
    return Keeping(tuple(merged.values()), tuple(walk.again.values()))


def _outer_times(block: Block, around: Num = 1) -> dict[str, Num]:
    """How often the blocks around each block repeat it."""
    found = {block.name: around}
    for child in block.body:
        if isinstance(child, Block):
            found |= _outer_times(child, around * block.times)
    return found


def _is_inside_kernel(op: Op, block: Block) -> bool:
    """Whether an op's result never leaves the kernel that it is in."""
    inner = [b for b in blocks(block) if b.kernel]
    return any(op in b.body and op is not b.body[-1] for b in inner)


def is_expert_product(op: Op) -> bool:
    """Whether every row is multiplied with the matrix of its own expert."""
    return op.kind == "contract" and "M" in op.reads[0].axes and "E" in op.reads[1].tensor.axes


def has_attribute(op: Op, condition: str) -> bool:
    """Whether an op has the attribute `a.b`, or `a.b=value`."""
    path, _, wanted = condition.partition("=")
    name, *inner = path.split(".")
    value = op.attrs.get(name)
    for part in inner:
        value = getattr(value, part, None)
    return str(value) == wanted if wanted else bool(value)


def saving_name(op: Op) -> str:
    """The name under which dialects know an op: its function, else its kind; a loss with its implementation."""
    if is_expert_product(op):
        return "expert_product"
    name = op.fn or op.kind
    return f"{name}.{op.attrs['implementation']}" if "implementation" in op.attrs else name


def shape_of(op: Op, shape: str) -> Axes:
    """The axes that a dialect's entry names."""
    if shape == "rows":
        return {a: n for a, n in op.reads[0].axes.items() if a not in op.attrs["over"]}
    if shape == "out":
        return op.writes[0].axes
    if shape.startswith("in"):
        return op.reads[int(shape[2:])].axes if int(shape[2:]) < len(op.reads) else {"none": 0}
    axes = {a: n for use in (*op.writes, *op.reads) for a, n in use.axes.items()}
    return {a: axes[a] for a in shape.split()}


def _width(op: Op, heads: Axes) -> Num:
    """What one product of scores sums over."""
    total: Num = 1
    for axis, n in op.reads[0].axes.items():
        if axis != "T" and axis not in heads:
            total = total * n
    return total


def _attention_results(body: list[Op]) -> list[Tensor]:
    """The output, and one log-sum-exp for each of its heads and tokens."""
    out = next(op for op in reversed(body) if op.kind == "contract").writes[0].tensor
    rows = dict(list(out.axes.items())[:-1])
    return [out, Tensor(out.name + ".logsumexp", rows, "act", FP32)]
