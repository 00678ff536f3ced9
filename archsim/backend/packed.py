"""Weights as a step reads them: (outputs, inputs), with those that read one input behind one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import Dims, dims_of
from archsim.backend.module import Net, empty_on_pages
from archsim.graph.graph import Op, ops
from archsim.graph.step import Seqs


class Linear(NamedTuple):
    """A product of an activation with a whole weight, by the weight's axes. bias: a weight's name, or ""."""

    op: Op
    weight: str
    inner: Dims
    outer: Dims
    sizes: tuple[int, ...]
    bias: str = ""
    bias_axes: Dims = ()

    @property
    def width(self) -> int:
        """Outputs."""
        return prod(self.sizes)

    @property
    def inputs(self) -> int:
        """What every output sums over."""
        return prod(int(self.op.reads[1].tensor.axes[a]) for a in self.inner)


def linear(op: Op) -> Linear | None:
    """`op` as a plain product over (S, T, ...), None where it is something else."""
    if op.kind != "contract" or op.fn or op.attrs.get("scale") not in (None, 1.0) or len(op.reads) != 2:
        return None
    x, w = op.reads[0].tensor, op.reads[1].tensor
    if x.kind != "act" or w.kind != "weight":
        return None
    given, made = dims_of(x.axes), dims_of(op.writes[0].tensor.axes)
    inner, outer = given[2:], made[2:]
    if given[:2] != ("S", "T") or made[:2] != ("S", "T"):
        return None
    if set(inner) & set(outer) or set(w.axes) != {*inner, *outer}:
        return None
    return Linear(op, w.name, inner, outer, tuple(int(w.axes[a]) for a in outer))


Product = Callable[[Tensor], Tensor]
"""A product with weights that it holds."""


class Packed:
    """Matrices of a module's weights, each made when first asked for.

    release: a weight that was copied is emptied in the module, which then cannot run on its own; so a model
    takes its own size and no more. saved_bytes: by which the weights are smaller than the module's.
    """

    def __init__(self, net: Net, release: bool = False) -> None:
        self.net, self.release, self.saved_bytes = net, release, 0
        self._whole: dict[tuple[str, ...], Tensor] = {}
        self._bias: dict[tuple[str, ...], Tensor] = {}
        self._needed = _read_otherwise(net) if release else frozenset()

    def loops(self, weight: str) -> tuple[str, ...]:
        """The blocks whose repetitions a weight has copies for."""
        return self.net.loops(weight)

    def matrix(self, group: Sequence[Linear], index: Mapping[str, int]) -> Tensor:
        """(outputs of all, inputs) of one repetition."""
        key = tuple(part.weight for part in group)
        if key not in self._whole:
            self._whole[key] = self._stacked(group)
        return self._one(self._whole[key], key[0], index)

    def bias(self, group: Sequence[Linear], index: Mapping[str, int]) -> Tensor | None:
        """(outputs of all,), zero where one has none; None where none has."""
        if not any(part.bias for part in group):
            return None
        key = tuple(part.bias or part.weight for part in group)
        if key not in self._bias:
            self._bias[key] = torch.cat([self._bias_of(part) for part in group], dim=-1)
        return self._one(self._bias[key], key[0], index)

    def product(self, group: Sequence[Linear], index: Mapping[str, int]) -> Product:
        """The product of (..., inputs) with one repetition: (..., outputs of all). Rows stand in one dimension: a token
        cut out of a sequence keeps that one's strides, and with these torch multiplies by a loop in 16 bits.
        """
        weight, bias = self.matrix(group, index), self.bias(group, index)
        return lambda x: functional.linear(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    def held(self) -> Iterator[Tensor]:
        """Every tensor that was made or kept."""
        yield from self._whole.values()
        yield from self._bias.values()

    def _one(self, x: Tensor, weight: str, index: Mapping[str, int]) -> Tensor:
        loops = self.loops(weight)
        return x[tuple(index[loop] for loop in loops)] if loops else x

    def _stacked(self, group: Sequence[Linear]) -> Tensor:
        if len(group) == 1:
            as_is = self._outputs_first(group[0])
            if as_is.is_contiguous():
                return as_is.flatten(as_is.ndim - len(group[0].inner)).flatten(self._depth(group[0]), -2)
        first = self.net.weight(group[0].weight)
        depth, rows = self._depth(group[0]), sum(part.width for part in group)
        inputs = group[0].inputs
        whole = empty_on_pages((*first.shape[:depth], rows, inputs), first.dtype, first.device)
        start = 0
        for part in group:
            x = self._outputs_first(part)
            whole.narrow(-2, start, part.width).copy_(x.reshape(*x.shape[:depth], part.width, inputs))
            start += part.width
            self._empty(part.weight)
        return whole

    def _outputs_first(self, part: Linear) -> Tensor:
        """The whole weight, permuted to (copies, outputs ..., inputs ...)."""
        x, depth = self.net.weight(part.weight).detach(), self._depth(part)
        axes = tuple(part.op.reads[1].tensor.axes)
        order = [depth + axes.index(a) for a in (*part.outer, *part.inner)]
        return x.permute(*range(depth), *order)

    def _depth(self, part: Linear) -> int:
        return len(self.loops(part.weight))

    def _bias_of(self, part: Linear) -> Tensor:
        like = self.net.weight(part.weight)
        depth = self._depth(part)
        if not part.bias:
            return torch.zeros(*like.shape[:depth], part.width, dtype=like.dtype, device=like.device)
        x = self.net.weight(part.bias).detach()
        order = [depth + part.bias_axes.index(a) for a in part.outer]
        return x.permute(*range(depth), *order).reshape(*x.shape[:depth], part.width)

    def _empty(self, weight: str) -> None:
        if self.release and weight not in self._needed:
            parameter = self.net.weight(weight)
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)


def _read_otherwise(net: Net) -> frozenset[str]:
    """Weights that some form of the model reads by other ops than plain products."""
    shapes = [(1, 2, 0)] if net.model.architecture == "encoder" else [(1, 1, 1), (1, 2, 0)]
    steps = [
        replace(net.step(*shape), seqs=(Seqs(*shape, absorbed),)) for shape in shapes for absorbed in (False, True)
    ]
    found: set[str] = set()
    for graph in map(net.graph, steps):
        for op, _ in ops(graph):
            if linear(op) is None:
                found |= {use.tensor.name for use in op.reads if use.tensor.kind == "weight"}
    return frozenset(found)
