"""What stands next to what in an unrolled graph: the neighbours that can run as one call."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from archsim.backend.axes import dims_of
from archsim.backend.compile.parts import Target
from archsim.backend.fused import can_gate
from archsim.backend.packed import Linear, linear
from archsim.backend.unroll import Instruction, Unrolled
from archsim.graph.graph import Block, Op

TWO = 2
ALIGNED = 16
"""Inputs of a one-row product come in multiples of this."""


class Neighbours:
    """Instructions by place, values by number, and who reads what. taken: places that a call has already."""

    def __init__(self, program: Target, unrolled: Unrolled) -> None:
        self.program, self.code = program, unrolled.code
        self.result = self._result(unrolled)
        self.readers: dict[int, list[int]] = {}
        for place, instruction in enumerate(self.code):
            for number in instruction.reads.values():
                self.readers.setdefault(number, []).append(place)
        self.taken: set[int] = set()
        self.one_row = program.shape.batch * program.shape.new == 1

    def group(self, place: int, op: Op) -> tuple[list[Linear], list[int], list[int]]:
        """Products that read what `op` reads and whose weights have as many copies; their places and results."""
        first = linear(op)
        if first is None:
            return [], [], []
        (source,) = self.code[place].reads.values()
        loops = self.program.packed.loops(first.weight)
        group, places, outputs = [], [], []
        for other in self.readers[source]:
            node = self.code[other].node
            part = linear(node) if isinstance(node, Op) and other not in self.taken else None
            if part is None or self.program.packed.loops(part.weight) != loops:
                continue
            if any(self.code[other].index[loop] != self.code[place].index[loop] for loop in loops):
                continue
            part, covered, number = self.biased(other, part)
            group.append(part)
            places += covered
            outputs.append(number)
        return group, places, outputs

    def biased(self, place: int, part: Linear) -> tuple[Linear, list[int], int]:
        """A product with the bias that is added to it and to nothing else."""
        (number,) = self.code[place].writes.values()
        follower = self.only_reader(number)
        if follower is None:
            return part, [place], number
        node = self.code[follower].node
        if not (isinstance(node, Op) and plain_add(node) and node.reads[1].tensor.kind == "weight"):
            return part, [place], number
        axes = dims_of(node.reads[1].tensor.axes)
        if set(axes) != set(part.outer):
            return part, [place], number
        (number,) = self.code[follower].writes.values()
        return part._replace(bias=node.reads[1].tensor.name, bias_axes=axes), [place, follower], number

    def followed(self, group: list[Linear], outputs: list[int]) -> int | None:
        """The residual that alone reads a single product, or the SwiGLU that alone reads two."""
        readers = {self.only_reader(number) for number in outputs}
        (reader,) = readers if len(readers) == 1 else (None,)
        if reader is None:
            return None
        node = self.code[reader].node
        if not isinstance(node, Op) or any(use.tensor.kind != "act" for use in node.reads):
            return None
        if len(group) == 1 and plain_add(node) and len(self.code[reader].reads) == TWO:
            ready = all(n in outputs or self.ready(n) for n in self.code[reader].reads.values())
            same = len({dims_of(use.tensor.axes) for use in node.reads}) == 1
            return reader if ready and same else None
        swiglu = node.fn == "swiglu" and can_gate(node.fn, node.attrs)
        return reader if len(group) == TWO and swiglu else None

    def ready(self, number: int) -> bool:
        """Whether a value is computed by what was emitted so far."""
        return any(number in self.code[p].writes.values() for p in self.taken)

    def norm_is_lazy(self, place: int) -> bool:
        """Whether the product that reads a norm computes it on the way."""
        if self.program.kernels.gemv is None or not self.one_row:
            return False
        (target,) = self.code[place].writes.values()
        nodes = [self.code[p].node for p in self.readers.get(target, ())]
        parts = [linear(node) if isinstance(node, Op) else None for node in nodes]
        if not parts or any(part is None for part in parts):
            return False
        group, _, _ = self.group(self.readers[target][0], nodes[0])  # type: ignore[arg-type]
        return len(group) == len(nodes) and not any(part.bias or part.inputs % ALIGNED for part in group)

    def lazy_norm_of(self, number: int) -> int | None:
        """The norm that wrote a value, if the product that reads it is to compute it."""
        for place, instruction in enumerate(self.code):
            if number in instruction.writes.values():
                return place if self.is_norm(instruction.node) and self.norm_is_lazy(place) else None
        return None

    def only_reader(self, number: int) -> int | None:
        """The one instruction that reads a value, None where there are more or it is the result."""
        readers = self.readers.get(number, [])
        return readers[0] if len(readers) == 1 and number != self.result else None

    def is_norm(self, node: Op | Block) -> bool:
        """An RMS norm over the last dimension with one weight for it."""
        if not isinstance(node, Op) or node.fn != "rmsnorm" or len(node.reads) != TWO:
            return False
        dims = dims_of(node.reads[0].tensor.axes)
        weight = node.reads[1].tensor
        return weight.kind == "weight" and node.attrs["over"] == dims[-1:] == dims_of(weight.axes)

    def norm_arguments(self, instruction: Instruction) -> tuple[Tensor, float, bool]:
        """A norm's weight and eps, and whether one is added to the weight."""
        op = instruction.node
        assert isinstance(op, Op)
        weight = self.program.net.copy_of(op.reads[1].tensor.name, instruction.index).detach()
        return weight, float(op.attrs["eps"]), bool(op.attrs.get("offset"))

    def _result(self, unrolled: Unrolled) -> int:
        """The logits: what the last instruction wrote."""
        return list(unrolled.code[-1].writes.values())[-1]

    def turns(self, *places: int) -> bool:
        """Whether all of these are rotations."""
        nodes = [self.code[place].node for place in places]
        return all(isinstance(node, Op) and node.fn == "rope" for node in nodes)


def plain_add(op: Op) -> bool:
    """x + y without a term or factor."""
    return op.kind == "map" and op.fn == "add" and len(op.reads) == TWO and not op.attrs


def stores(nodes: Sequence[Op | Block], group: Sequence[Linear]) -> bool:
    """Whether two rotations and two appends are what `triton_kernels.store` does for q, k and v."""
    found = [node for node in nodes if isinstance(node, Op)]
    if [node.fn or node.kind for node in found] != ["rope", "rope", "append", "append"]:
        return False
    q, k, v = (part.sizes for part in group)
    rope, width = found[0].attrs["rope"], q[-1]
    same = rope == found[1].attrs["rope"] and k == v and k[-1] == width and len(k) == len("KH")
    whole = not rope.interleaved and (rope.dim or width) >= width and width & (width - 1) == 0
    own = all("C" in node.writes[0].tensor.axes and not node.attrs.get("source") for node in found[2:])
    return same and whole and own
