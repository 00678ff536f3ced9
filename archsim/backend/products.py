"""Products with whole weights, and what runs together with them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.matching import ALIGNED, Matching, stores
from archsim.backend.packed import Linear
from archsim.backend.program import Call, Values
from archsim.graph.graph import Op

QKV = ("q", "k", "v")


class Products(Matching):
    """The calls of products: groups of one input, with the bias, the norm, the gate or the caches beside them."""

    def _take(self, places: list[int], call: Call) -> None:
        self.taken.update(places)
        self.found.append((places, call))

    def _linear(self, place: int, op: Op) -> bool:
        """All products of one input with whole weights, their biases, as one product."""
        group, places, outputs = self.group(place, op)
        if not group:
            return False
        instruction, packed = self.code[place], self.program.packed
        bias = packed.bias(group, instruction.index)
        weight = packed.matrix(group, instruction.index)
        if bias is None and self._with_one_row(place, group, places, outputs, weight):
            return True
        (source,) = instruction.reads.values()
        inputs = len(group[0].inner)
        more, spread = self._spread(group, outputs, [part.sizes for part in group])

        def call(values: Values) -> None:
            spread(values, functional.linear(given(values, source).flatten(-inputs), weight, bias))

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
        q_rope, k_rope, v_append = (self.only_reader(number) for number in outputs)
        if q_rope is None or k_rope is None or v_append is None or not self.turns(q_rope, k_rope):
            return None
        (turned,), (rotated,) = (self.code[place].writes.values() for place in (q_rope, k_rope))
        k_append = self.only_reader(rotated)
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

    def _with_one_row(
        self, place: int, group: list[Linear], places: list[int], outputs: list[int], weight: Tensor
    ) -> bool:
        """A product with one row, and with it the norm before it, the gate or the residual behind it."""
        gemv = self.program.kernels.gemv
        if gemv is None or not self.one_row or group[0].inputs % ALIGNED:
            return False
        (source,) = self.code[place].reads.values()
        norm = self.lazy_norm_of(source)
        arguments: dict[str, Any] = {}
        if norm is not None:
            (source,) = self.code[norm].reads.values()
            scale, eps, offset = self.norm_arguments(self.code[norm])
            arguments |= {"norm": scale, "eps": eps, "offset": offset}
            places = [norm, *places]
        followed = self.followed(group, outputs)
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


def given(values: Values, number: int) -> Tensor:
    x = values[number]
    assert x is not None
    return x
