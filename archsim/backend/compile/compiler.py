"""Which neighbours of an unrolled graph run as one call, and the calls."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from archsim.backend.axes import dims_of
from archsim.backend.compile.neighbours import ALIGNED, TWO, Neighbours, plain_add, stores
from archsim.backend.compile.parts import Call, Part, Target, Values, given, names_kernel, paths_of
from archsim.backend.fused import can_gate
from archsim.backend.liveness import names_read
from archsim.backend.moe import expert_product
from archsim.backend.packed import Linear
from archsim.backend.run import KERNELS, RULES, Routing
from archsim.backend.unroll import Unrolled
from archsim.graph.graph import Op

QKV = ("q", "k", "v")


class Compiler:
    """Turns instructions into parts, in order; an instruction that another took with it is left out."""

    def __init__(self, program: Target, unrolled: Unrolled) -> None:
        self.program, self.code = program, unrolled.code
        self.near = Neighbours(program, unrolled)
        self.found: list[tuple[list[int], Call]] = []

    def compiled(self) -> tuple[list[Part], int]:
        """All parts, and the number of the result."""
        for place in range(len(self.code)):
            if place not in self.near.taken:
                self._emit(place)
        return self._with_deaths(), self.near.result

    def _emit(self, place: int) -> None:
        """The first rule that knows the instruction; otherwise the interpreter's."""
        node = self.code[place].node
        rules = (
            self._append, self._linear, self._add_norm, self._norm, self._gate, self._rope, self._top_k,
            self._experts,
        )  # fmt: skip
        if isinstance(node, Op):
            for rule in rules:
                if rule(place, node):
                    return
        self._take([place], self._generic(place))

    def _generic(self, place: int) -> Call:
        """The interpreter's own rule, with its values handed over by name."""
        instruction, run = self.code[place], self.program.run
        node, reads, writes = instruction.node, instruction.reads, instruction.writes
        kernel, program = KERNELS.get(names_kernel(instruction)), self.program
        encodes = "encoder" in instruction.index
        entering = {name: x for name, x in program.inputs.items() if name in names_read(node)}

        def call(values: Values) -> None:
            run.index = instruction.index
            run.tokens = program.encoded if encodes and program.encoded is not None else program.tokens
            run.values.update(entering)
            for name, number in reads.items():
                run.values[name] = given(values, number)
            if isinstance(node, Op):
                RULES[node.kind](run, node)
            elif kernel is None or not kernel(run, node):
                for child in node.body:
                    run.node(child)
            for name, number in writes.items():
                values[number] = run.values.get(name)
            run.values.clear()

        return call

    def _take(self, places: list[int], call: Call) -> None:
        self.near.taken.update(places)
        self.found.append((places, call))

    def _append(self, place: int, op: Op) -> bool:
        """New keys and values into their buffers."""
        if op.kind != "append" or "C" not in op.writes[0].tensor.axes:
            return False
        instruction, run = self.code[place], self.program.run
        (number,) = instruction.reads.values()
        use = op.writes[0]
        run.index = instruction.index
        run.buffer(use.tensor, run.slot(use.tensor, use.copy))

        def call(values: Values) -> None:
            run.index = instruction.index
            run.append(use.tensor, use.copy, given(values, number))

        self._take([place], call)
        return True

    def _add_norm(self, place: int, op: Op) -> bool:
        """A residual and the norm of the sum."""
        if not plain_add(op) or any(use.tensor.kind != "act" for use in op.reads):
            return False
        x, y = op.reads
        if dims_of(x.tensor.axes) != dims_of(y.tensor.axes):
            return False
        (total,) = self.code[place].writes.values()
        norms = [p for p in self.near.readers.get(total, ()) if self.near.is_norm(self.code[p].node)]
        if len(norms) != 1 or self.near.norm_is_lazy(norms[0]):
            return False
        a, b = (self.code[place].reads[u.tensor.name] for u in op.reads)
        norm = self.code[norms[0]]
        assert isinstance(norm.node, Op)
        weight, eps, offset = self.near.norm_arguments(norm)
        (normed,) = norm.writes.values()
        function = self.program.kernels.add_norm

        def call(values: Values) -> None:
            left, right = given(values, a), given(values, b)
            values[total], values[normed] = function(left, right, weight, eps, offset)

        self._take([place, norms[0]], call)
        return True

    def _norm(self, place: int, op: Op) -> bool:
        """A norm over the last dimension."""
        if not self.near.is_norm(op):
            return False
        instruction = self.code[place]
        if self.near.norm_is_lazy(place):
            self.near.taken.add(place)
            return True
        weight, eps, offset = self.near.norm_arguments(instruction)
        (source,), (target,) = instruction.reads.values(), instruction.writes.values()
        function = self.program.kernels.norm

        def call(values: Values) -> None:
            values[target] = function(given(values, source), weight, eps, offset)

        self._take([place], call)
        return True

    def _gate(self, place: int, op: Op) -> bool:
        """act(gate) · up."""
        if op.kind != "map" or not can_gate(op.fn, op.attrs) or len(op.reads) != TWO:
            return False
        instruction = self.code[place]
        gate, up = (instruction.reads[use.tensor.name] for use in op.reads)
        (target,) = instruction.writes.values()
        function, fn, attrs = self.program.kernels.gated, op.fn, op.attrs

        def call(values: Values) -> None:
            values[target] = function(fn, attrs, given(values, gate), given(values, up))

        self._take([place], call)
        return True

    def _rope(self, place: int, op: Op) -> bool:
        """A rotation by tables made beforehand."""
        if op.kind != "map" or op.fn != "rope" or op.attrs.get("inverse"):
            return False
        instruction, rope = self.code[place], op.attrs["rope"]
        dims = dims_of(op.reads[0].tensor.axes)
        width = int(op.reads[0].tensor.axes[dims[-1]])
        tables = self.program.rotation(rope, width)
        shape = (tables[0].shape[0], *(1 for _ in dims[2:-1]), -1)
        cos, sin = (t.view(shape) for t in tables)
        (source,), (target,) = instruction.reads.values(), instruction.writes.values()
        function = self.program.kernels.rope

        def call(values: Values) -> None:
            values[target] = function(given(values, source), cos, sin, rope.interleaved)

        self._take([place], call)
        return True

    def _top_k(self, place: int, op: Op) -> bool:
        """The router's choice, sorted by expert, so that each expert's rows lie together."""
        if op.kind != "map" or op.fn != "topk":
            return False
        plain, run = self._generic(place), self.program.run
        (target,) = self.code[place].writes.values()
        experts = torch.arange(_experts(op), device=self.program.tokens.device)

        def call(values: Values) -> None:
            plain(values)
            assert run.routing is not None
            expert, order = run.routing.expert.sort(stable=True)
            run.routing = Routing(run.routing.token[order], expert)
            values[target] = given(values, target)[order]
            run.offsets = torch.searchsorted(expert, experts, right=True).to(torch.int32)

        self._take([place], call)
        return True

    def _experts(self, place: int, op: Op) -> bool:
        """Every expert's rows times its matrix, as one grouped product."""
        if op.kind != "contract" or "E" not in op.reads[1].tensor.axes or "M" not in op.reads[0].tensor.axes:
            return False
        instruction, run, name = self.code[place], self.program.run, op.reads[1].tensor.name
        (source,), (target,) = instruction.reads.values(), instruction.writes.values()
        weight = self.program.net.copy_of(name, instruction.index).detach()

        def call(values: Values) -> None:
            x = given(values, source)
            if weight.dtype is torch.bfloat16:
                values[target] = torch._grouped_mm(x, weight, offs=run.offsets)
            else:
                values[target] = expert_product(run, x, weight)

        self._take([place], call)
        return True

    def _linear(self, place: int, op: Op) -> bool:
        """All products of one input with whole weights, their biases, as one product."""
        group, places, outputs = self.near.group(place, op)
        if not group:
            return False
        instruction = self.code[place]
        if self._with_one_row(place, group, places, outputs):
            return True
        product = self.program.packed.product(group, instruction.index)
        (source,) = instruction.reads.values()
        inputs = len(group[0].inner)
        more, spread = self._spread(group, outputs, [part.sizes for part in group])

        def call(values: Values) -> None:
            spread(values, product(given(values, source).flatten(-inputs)))

        self._take([*places, *more], call)
        return True

    def _spread(
        self, group: list[Linear], outputs: list[int], sizes: list[tuple[int, ...]]
    ) -> tuple[list[int], Callable[[Values, Tensor], None]]:
        """How a product of a group becomes its results: by slices, or straight into the caches."""
        found = self._stored(group, outputs) if len(outputs) == len(QKV) else None
        if found is not None:
            return found
        widths = [prod(size) for size in sizes]

        def spread(values: Values, y: Tensor) -> None:
            for number, size, piece in zip(outputs, sizes, torch.split(y, widths, -1), strict=True):
                values[number] = torch.unflatten(piece, -1, size) if len(size) > 1 else piece

        return [], spread

    def _stored(
        self, group: list[Linear], outputs: list[int]
    ) -> tuple[list[int], Callable[[Values, Tensor], None]] | None:
        """Queries and keys turned, keys and values put into the caches, by one kernel behind their product."""
        store, shape = self.program.kernels.store, self.program.shape
        if store is None or shape.new != 1 or shape.past == 0:
            return None
        q_rope, k_rope, v_append = (self.near.only_reader(number) for number in outputs)
        if q_rope is None or k_rope is None or v_append is None or not self.near.turns(q_rope, k_rope):
            return None
        (turned,), (rotated,) = (self.code[place].writes.values() for place in (q_rope, k_rope))
        k_append = self.near.only_reader(rotated)
        places = [q_rope, k_rope, k_append, v_append]
        nodes = [self.code[p].node for p in places if p is not None]
        if not stores(nodes, group):
            return None
        run, index, sizes = self.program.run, self.code[v_append].index, group[0].sizes
        run.index = index
        uses = [node.writes[0] for node in nodes[2:] if isinstance(node, Op)]
        keys, cached = (run.buffer(use.tensor, run.slot(use.tensor, use.copy)) for use in uses)
        place = shape.past if shape.past < keys.shape[1] else shape.past % keys.shape[1]
        assert isinstance(nodes[0], Op)
        cos, sin = self.program.rotation(nodes[0].attrs["rope"], sizes[-1])

        def spread(values: Values, y: Tensor) -> None:
            q = store(y, cos, sin, keys, cached, place, prod(sizes[:-1]))
            values[turned] = torch.unflatten(q, 2, sizes[:-1])

        return [p for p in places if p is not None], spread

    def _with_one_row(self, place: int, group: list[Linear], places: list[int], outputs: list[int]) -> bool:
        """A product with one row and no bias, and with it the norm before it, the gate or the residual behind it."""
        gemv, index = self.program.kernels.gemv, self.code[place].index
        if gemv is None or not self.near.one_row or group[0].inputs % ALIGNED:
            return False
        if self.program.packed.bias(group, index) is not None:
            return False
        weight = self.program.packed.matrix(group, index)
        (source,) = self.code[place].reads.values()
        norm = self.near.lazy_norm_of(source)
        arguments: dict[str, Any] = {}
        if norm is not None:
            (source,) = self.code[norm].reads.values()
            scale, eps, offset = self.near.norm_arguments(self.code[norm])
            arguments |= {"norm": scale, "eps": eps, "offset": offset}
            places = [norm, *places]
        followed = self.near.followed(group, outputs)
        residual, targets, sizes = None, outputs, [part.sizes for part in group]
        if followed is not None:
            node, reads = self.code[followed].node, self.code[followed].reads
            assert isinstance(node, Op)
            targets = list(self.code[followed].writes.values())
            places = [*places, followed]
            if node.fn == "add":
                residual = next(n for n in reads.values() if n != outputs[0])
            else:
                sizes = sizes[:1]
                arguments["gated"] = "first" if reads[node.reads[0].tensor.name] == outputs[0] else "second"
        inputs = len(group[0].inner) if norm is None else 1
        more, spread = self._spread(group, targets, sizes)

        def call(values: Values) -> None:
            x = given(values, source).flatten(-inputs)
            other = None if residual is None else given(values, residual)
            spread(values, gemv(x, weight, residual=other, **arguments))

        self._take([*places, *more], call)
        return True

    def _with_deaths(self) -> list[Part]:
        """Parts with the values that die behind each."""
        last: dict[int, int] = {}
        for i, (places, _) in enumerate(self.found):
            for place in places:
                for number in (*self.code[place].reads.values(), *self.code[place].writes.values()):
                    last[number] = i
        dead: dict[int, list[int]] = {}
        for number, i in last.items():
            if number != self.near.result:
                dead.setdefault(i, []).append(number)
        return [
            Part(tuple(p for place in places for p in paths_of(self.code[place])), call, tuple(dead.get(i, ())))
            for i, (places, call) in enumerate(self.found)
        ]


def _experts(op: Op) -> int:
    """How many experts a router chooses from."""
    return int(op.reads[0].tensor.axes["Er"])
