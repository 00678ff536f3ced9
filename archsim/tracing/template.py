"""A graph whose extents are sizes of a step: what a capture becomes, and what every step is lowered from."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from archsim.base.json_types import JsonMapping
from archsim.base.number import Num, divide
from archsim.blocks.moe import expected_experts
from archsim.graph.graph import NOTHING, Block, Node, Op, OpClass, OpKind
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import BF16, FP32, Kind, Tensor, Use

EVERY_PAIR = Mask(causal=False)


@dataclass(frozen=True, slots=True)
class Size:
    """The sum of multiples of units. Units: `1`; `T` new tokens; `S` sequences; `N` new tokens of one sequence of each
    kind; `P` pairs of a query and a key; `Q` those of one sequence of each kind; `C` tokens whose keys are read,
    `C+` that stay in the cache of the new ones, `C=` that the cache holds; `hit` experts that tokens are sent to.
    """

    parts: tuple[tuple[Fraction, str], ...]
    experts: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, number: int | Fraction, unit: str = "1") -> Size:
        """So many of one unit."""
        return cls(((Fraction(number), unit),))

    @property
    def fixed(self) -> bool:
        """Whether it is a number."""
        return all(unit == "1" for _, unit in self.parts)

    def at(self, step: Step, mask: Mask) -> Num:
        """Its value in a step."""
        if self.experts[0]:
            return expected_experts(*self.experts, step.tokens)
        total: Num = 0
        for number, unit in self.parts:
            value = _unit(unit, step, mask) * number.numerator
            total = total + (value if number.denominator == 1 else divide(value, number.denominator))
        return total


def _unit(unit: str, step: Step, mask: Mask) -> Num:
    """The value of a unit in a step."""
    if unit == "1":
        return 1
    if unit in ("T", "S"):
        return step.tokens if unit == "T" else step.n_seqs
    if unit == "P":
        return step.pairs(mask)
    if unit in ("C", "C+", "C="):
        return {"C": step.read, "C+": step.appended, "C=": step.stored}[unit](mask)
    found: Num = 0
    for seqs in step.seqs:
        found = found + (seqs.new if unit == "N" else seqs.new * (seqs.past + seqs.new))
    return found


Sizes = dict[str, Size]


@dataclass(frozen=True, slots=True, eq=False)
class TensorTemplate:
    """A tensor: as `Tensor`, with sizes."""

    name: str
    axes: Sizes
    kind: Kind = "act"
    role: str = ""
    inner: tuple[str, ...] = ()
    fp32: bool = False

    @property
    def width(self) -> int:
        """Extent of its last axis."""
        return int(list(self.axes.values())[-1].parts[0][0])

    def part(self, axes: Sizes | None = None) -> UseTemplate:
        """What an op touches of it."""
        return UseTemplate(self, self.axes if axes is None else axes)


@dataclass(frozen=True, slots=True, eq=False)
class UseTemplate:
    """What an op touches of a tensor."""

    tensor: TensorTemplate
    axes: Sizes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpTemplate:
    """An op. mask: which pairs of tokens it works on; all of them where an op does not skip any. part: as in a graph.
    head: whether it runs at the last position alone where no other logits are wanted.
    """

    kind: OpKind
    name: str
    reads: tuple[UseTemplate, ...]
    writes: tuple[UseTemplate, ...]
    cls: OpClass = "vector"
    fn: str = ""
    rate: int = 0
    attrs: JsonMapping = field(default_factory=lambda: NOTHING)
    mask: Mask = field(default_factory=lambda: EVERY_PAIR)
    part: str = ""
    head: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlockTemplate:
    """A block. times: of a loop over tokens a size."""

    name: str
    body: tuple[OpTemplate | BlockTemplate, ...]
    times: Size = field(default_factory=lambda: Size.of(1))
    kernel: str = ""
    carry: tuple[tuple[TensorTemplate, TensorTemplate], ...] = ()


class Instance:
    """The graph of one step of a template."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.last = Step(seqs=tuple(s._replace(new=1) for s in step.seqs)) if step.last else step
        self.tensors: dict[tuple[str, bool], Tensor] = {}

    def block(self, block: BlockTemplate) -> Block:
        """The block with its extents."""
        body: tuple[Node, ...] = tuple(self._node(node) for node in block.body)
        carry = tuple((self._tensor(x, False, EVERY_PAIR), self._tensor(y, False, EVERY_PAIR)) for x, y in block.carry)
        times = block.times.at(self.step, EVERY_PAIR)
        return Block(name=block.name, body=body, times=times, carry=carry, kernel=block.kernel)

    def _node(self, node: OpTemplate | BlockTemplate) -> Node:
        if isinstance(node, BlockTemplate):
            return self.block(node)
        uses = (tuple(self._use(u, node) for u in side) for side in (node.reads, node.writes))
        reads, writes = uses
        return Op(
            kind=node.kind, name=node.name, reads=reads, writes=writes, cls=node.cls, fn=node.fn, rate=node.rate,
            attrs=node.attrs, part=node.part,
        )  # fmt: skip

    def _use(self, use: UseTemplate, op: OpTemplate) -> Use:
        tensor = self._tensor(use.tensor, op.head, op.mask)
        if use.axes is use.tensor.axes:
            return Use(tensor, tensor.axes)
        return Use(tensor, self._axes(use.axes, op.head, op.mask))

    def _tensor(self, tensor: TensorTemplate, head: bool, mask: Mask) -> Tensor:
        key = tensor.name, head and tensor.kind == "act"
        if key not in self.tensors:
            self.tensors[key] = Tensor(
                tensor.name, self._axes(tensor.axes, key[1], mask), tensor.kind, FP32 if tensor.fp32 else BF16,
                tensor.role, tensor.inner,
            )  # fmt: skip
        return self.tensors[key]

    def _axes(self, axes: Sizes, head: bool, mask: Mask) -> dict[str, Num]:
        step = self.last if head else self.step
        return {axis: size.at(step, mask) for axis, size in axes.items()}


def graph_of(template: BlockTemplate, step: Step) -> Block:
    """The graph of a step."""
    return Instance(step).block(template)
