"""The backward pass of a graph, as a graph.

Every op of the forward graph that a gradient reaches gives the ops that its rule states (`grad_rules.py`), in reverse
order; a block of R repetitions gives a mirrored block of R repetitions, whose gradients are carried the other way.
Beside each op its rule, or the dialect, says what the op keeps for its backward (`saved.py`). So there is no second
formula for any FLOP or byte of training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from archsim.base.data_class import dataclass
from archsim.base.number import Num
from archsim.graph.dialect import Dialect
from archsim.graph.graph import Block, Node, Op, map_tensors, ops
from archsim.graph.passes import grad_rules  # noqa: F401  (registers the rules)
from archsim.graph.passes.grad_plan import Planned, PlannedBlock, PlannedNode, recurrent_states
from archsim.graph.passes.grad_rule import OpGradient, rule_of
from archsim.graph.tensor import Tensor, Use

RECOMPUTED = "recomputed"
"""Attribute of forward ops that run once more before a backward: executed FLOP count them, model FLOP do not."""

ATTENTION = "attention"
SCANS = frozenset({"ssd", "lightning", "gated_delta", "selective_scan", "rg_lru", "compress", "mlstm",
                   "rwkv7"})  # fmt: skip
"""Kinds of blocks that run as one kernel, whose backward recomputes what is inside from their inputs."""


@dataclass(slots=True)
class Backward:
    """One walk over a planned graph, last op first.

    grads: name of a tensor -> its gradient, as far as it has arrived. reached: ops that a gradient reaches, by
    name and peeled repetition, for whoever asks what they keep. loops: names of the repeated blocks around.
    """

    dialect: Dialect
    grads: dict[str, Use] = field(default_factory=dict)
    reached: set[tuple[str, str]] = field(default_factory=set)
    suffix: str = ""
    loops: list[Block] = field(default_factory=list)

    def nodes(self, body: Iterable[PlannedNode]) -> list[Node]:
        """The backward of a sequence."""
        made: list[Node] = []
        for node in reversed(tuple(body)):
            made.extend(self.op(node) if isinstance(node, Planned) else self.block(node))
        return made

    # ------------------------------------------------------------------ ops
    def op(self, node: Planned) -> list[Node]:
        """The backward of one op; nothing where no gradient arrives or none is wanted."""
        op, found = node.op, [self.grads.pop(use.tensor.name, None) for use in node.op.writes]
        dy = next((use for use in found if use is not None), None)
        if dy is None or not any(node.needs):
            return []
        self.reached.add((op.name, self.suffix))
        work = OpGradient(op, node.needs, dy, self.suffix)
        made: list[Node] = list(rule_of(op)(work))
        for i, use in work.made.items():
            made.extend(self.add(op.reads[i], use, op))
        return made

    def add(self, use: Use, gradient: Use, op: Op) -> list[Op]:
        """One more gradient of a tensor: with what has arrived before it is added up."""
        name, before = use.tensor.name, self.grads.get(use.tensor.name)
        if before is None and not self._gathers(use.tensor):
            self.grads[name] = gradient
            return []
        if before is None:
            before = Tensor(f"{name}.grad", gradient.axes, "act", gradient.tensor.format).part()
            total = before
        else:
            total = Tensor(f"{op.name}.sum_{name}{self.suffix}", gradient.axes, "act", gradient.tensor.format).part()
        self.grads[name] = total
        label = f"{op.name}.add_gradients{self.suffix}"
        return [Op(kind="map", name=label, reads=(before, gradient), writes=(total,), fn="add", rate=1, part=op.part)]

    def _gathers(self, tensor: Tensor) -> bool:
        """Whether every repetition of the innermost loop adds to the gradient of a tensor from outside of it."""
        if tensor.kind != "act" or not self.loops:
            return False
        loop = self.loops[-1]
        entering = {x.name for x, _ in loop.carry} | {y.name for _, y in loop.carry}
        return tensor.name not in entering and not tensor.name.startswith(loop.name + ".")

    # ------------------------------------------------------------------ blocks
    def block(self, node: PlannedBlock) -> list[Node]:
        """The mirrored block; after it, the one of a first repetition that differs."""
        block = node.block
        outside = {x.name: self.grads.pop(x.name) for x, _ in block.carry if x.name in self.grads}
        made = self._repeat(node, node.body, node.times)
        if node.first is not None:
            for x, y in block.carry:
                if x.name in self.grads:
                    self.grads[y.name] = self.grads.pop(x.name)
            suffix, self.suffix = self.suffix, self.suffix + ".first"
            made += self._repeat(node, node.first, 1)
            self.suffix = suffix
        for x, _ in block.carry:
            if x.name in outside:
                own = self.grads.pop(x.name, None)
                self.grads[x.name] = outside[x.name]
                if own is not None:
                    made += self.add(x.part(), own, _named(block.name))
        return made

    def _repeat(self, node: PlannedBlock, body: tuple[PlannedNode, ...], times: Num) -> list[Node]:
        block = node.block
        entering = {y.name: self.grads.get(y.name) for _, y in block.carry}
        looped = bool(block.carry) and not (isinstance(times, int) and times == 1)
        if looped:
            self.loops.append(block)
        inner = self._kernel(block, body) if block.kernel else self.nodes(body)
        if looped:
            self.loops.pop()
        carry = []
        for x, y in block.carry:
            self.grads.pop(y.name, None)
            before, after = entering[y.name], self.grads.get(x.name)
            if before is not None and after is not None and looped:
                carry.append((before.tensor, after.tensor))
        for name in [name for name in self.grads if name.startswith(block.name + ".")]:
            del self.grads[name]  # of weights, of which every repetition has its own
        if not inner:
            return []
        return [
            Block(name=f"{block.name}.backward{self.suffix}", body=tuple(inner), times=times, shared=block.shared,
                  carry=tuple(carry), kernel=f"{block.kernel}_backward" if block.kernel else "", attrs=block.attrs)
        ]  # fmt: skip

    def _reaches(self, block: Block) -> bool:
        """Whether a gradient has arrived at anything that a block makes."""
        return any(use.tensor.name in self.grads for op, _ in ops(block) for use in op.writes)

    def _kernel(self, block: Block, body: tuple[PlannedNode, ...]) -> list[Node]:
        """The backward of a block that runs as one kernel: what it recomputes, then its gradients."""
        states = [state for state in recurrent_states(block) if self._reaches(block)]
        self.grads |= {state.name: _seed(state) for state in states}
        inner = self.nodes(body)
        for state in states:
            self.grads.pop(state.name, None)
        if not inner or not runs_as_one(block, self.dialect):
            return inner
        twice = recomputed_inside(block)
        return self._of_this_repetition(twice, [*twice, *inner])

    def _of_this_repetition(self, twice: list[Node], body: list[Node]) -> list[Node]:
        """The ops with what runs once more under names of their own, so that no other repetition reads it."""
        if not self.suffix:
            return body
        made = {use.tensor.name for op in twice if isinstance(op, Op) for use in op.writes}
        own = map_tensors(
            Block(name="", body=tuple(body)),
            lambda t: replace(t, name=t.name + self.suffix) if t.name in made else t,
        )  # fmt: skip
        return list(own.body)


def _seed(tensor: Tensor) -> Use:
    return Tensor(tensor.name + ".grad", tensor.axes, "act", tensor.format).part()


def runs_as_one(block: Block, dialect: Dialect) -> bool:
    """Whether a block's forward and backward are one kernel each, which keeps only what goes in and comes out."""
    if block.kernel in SCANS:
        return True
    return block.kernel == ATTENTION and (dialect.attention or is_plain_attention(block))


def is_plain_attention(block: Block) -> bool:
    """Whether nothing but a mask and a sum stands between the two products, so that torch has one kernel for it."""
    for op in block.body:
        if not isinstance(op, Op):
            return False
        if op.kind == "contract" or (op.fn == "add" and "term" not in op.attrs):
            continue
        mask = op.attrs.get("mask")
        if op.fn != "softmax" or len(op.reads) > 1 or (mask is not None and mask.top_k):
            return False
    return True


def recomputed_inside(block: Block) -> list[Node]:
    """The forward ops of a kernel but its last product, which its backward runs once more."""
    body = [op for op, _ in ops(block)]
    products = [op for op in body if op.kind == "contract"]
    kept = body.index(products[-1]) if products else len(body)
    return [again(op) for i, op in enumerate(body) if i != kept and op.kind in ("contract", "map", "gather", "scan")]


def again(op: Op) -> Op:
    """A forward op as it runs once more."""
    return replace(op, name=op.name + ".again", attrs={**op.attrs, RECOMPUTED: True})


def _named(name: str) -> Op:
    return Op(kind="view", name=name, reads=(), writes=())


def backward(plan: PlannedBlock, dialect: Dialect, seeds: Iterable[Tensor]) -> tuple[Block, Backward]:
    """The backward graph from the tensors that the loss is made of (`seeds`), and the walk that made it."""
    walk = Backward(dialect)
    for tensor in seeds:
        walk.grads[tensor.name] = _seed(tensor)
    body = walk.nodes(plan.body)
    return Block(name="", body=tuple(body)), walk
