"""Builds a graph with lexical scopes and an einsum-like spelling.

A tensor belongs to the block that declares it; that alone gives tied embeddings, one relative bias for a whole
stack, and caches shared between layers. Every op returns the tensor it wrote, for the next op to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from archsim.base.number import Num
from archsim.graph.graph import NOTHING, Block, Node, Op, OpClass, OpKind
from archsim.graph.tensor import BF16, FP32, Kind, Tensor, Use, split_axes

Operand = Tensor | Use

ELEMENTWISE_RATE = {
    "add": 1, "mul": 1, "scale": 1, "softmax": 5, "softcap": 3, "rmsnorm": 4, "layernorm": 5, "l2norm": 4,
    "relu": 1, "relu2": 2, "gelu": 8, "gelu_tanh": 8, "silu": 4, "sigmoid": 4, "tanh": 4, "softplus": 4,
    "xielu": 8, "swiglu": 5, "geglu": 9, "geglu_tanh": 9, "reglu": 2, "clamped_swiglu": 8, "clamped_geglu": 9,
    "rope": 3, "topk": 5, "gate": 5, "dispatch": 0, "combine": 2, "concat": 0, "clip": 1, "altup_correct": 3,
    "altup_split": 4, "altup_merge": 4, "sinusoid": 2, "join": 0, "head_sum": 2,
    "repeat_streams": 0, "hyper_mixing": 6, "hyper_collapse": 8, "hyper_expand": 3, "hyper_head": 8,
    "stream_mean": 4, "bounded_decay": 6, "learned_rope": 3, "grown": 1,
    "stack_streams": 0, "passed_share": 1, "shared_weights": 1, "mul_groups": 1, "residual_mix": 8, "situglu": 12,
    "difference": 2, "difference_scale": 1, "rated": 3, "dot": 2,
}  # fmt: skip
"""Vector FLOP per output element, by the operations written out: a convention, reported apart from FLOPs."""


class Builder:
    """Collects ops under a path of nested blocks.

    `sizes` maps axis names to extents in the present scope; `block(name, F=1024)` overrides them inside.
    """

    def __init__(self, **sizes: Num) -> None:
        self.sizes: dict[str, Num] = dict(sizes)
        self._prefix = ""
        self._part = ""
        self._bodies: list[list[Node]] = [[]]
        self._carries: list[list[tuple[Tensor, Tensor]]] = [[]]

    def name(self, name: str) -> str:
        """The full, dotted name of something declared here."""
        return self._prefix + name

    # ------------------------------------------------------------------ declarations
    def tensor(self, name: str, axes: str, kind: Kind = "act", **fields: Any) -> Tensor:
        """A tensor of this scope, extents taken from `sizes`."""
        return Tensor(self.name(name), {a: self.sizes[a] for a in split_axes(axes)}, kind, **fields)

    def weight(self, name: str, axes: str, role: str = "linear", inner: tuple[str, ...] = ()) -> Tensor:
        """A parameter. `role` is the class that weight formats are chosen by."""
        return self.tensor(name, axes, "weight", role=role, inner=inner)

    def state(self, name: str, axes: str, role: str = "kv", fp32: bool = False) -> Tensor:
        """A cache that lives between steps: role "kv" grows with tokens, "recurrent" is constant."""
        return self.tensor(name, axes, "state", role=role, format=FP32 if fp32 else BF16)

    # ------------------------------------------------------------------ ops
    def add(self, op: Op) -> None:
        """Append an op made by hand."""
        self._bodies[-1].append(replace(op, part=self._part))

    def emit(
        self, kind: OpKind, name: str, reads: tuple[Operand, ...], out: Operand, *extra: Operand, **fields: Any
    ) -> Tensor:
        """Append an op; returns the first tensor written."""
        writes = (_use(out), *map(_use, extra)) if extra else (_use(out),)
        op = Op(
            kind=kind, name=self.name(name), reads=tuple([_use(r) for r in reads]), writes=writes,
            part=self._part, **fields,
        )  # fmt: skip
        self._bodies[-1].append(op)
        return writes[0].tensor

    def contract(self, name: str, x: Operand, w: Operand, out: str, cls: OpClass = "matmul", **attrs: object) -> Tensor:
        """Sum over every axis of `x` and `w` that `out` lacks. 2 FLOP per multiply-add."""
        return self.emit("contract", name, (x, w), self.tensor(name, out), cls=cls, attrs=attrs or NOTHING)

    def linear(
        self, name: str, x: Operand, axes: str, out: str, bias: bool | str = False, role: str = "linear"
    ) -> Tensor:
        """x times a weight over `axes`, plus a bias over the weight's output axes (or those given)."""
        kept = set(split_axes(out))
        inner = tuple(a for a in split_axes(axes) if a not in kept)
        y = self.contract(name, x, self.weight("w_" + name, axes, role, inner), out)
        if not bias:
            return y
        over = bias if isinstance(bias, str) else " ".join(a for a in split_axes(axes) if a in kept)
        return self.map(name + "+b", "add", y, self.weight("b_" + name, over, "bias"))

    def map(self, name: str, fn: str, *xs: Operand, axes: str | None = None, **attrs: object) -> Tensor:
        """Elementwise (or row-wise) `fn` of `xs`; the result has the axes of the first unless told."""
        first = xs[0]
        if axes is not None:
            out = self.tensor(name, axes)
        else:
            out = Tensor(self.name(name), first.axes)
        return self.emit("map", name, xs, out, fn=fn, rate=ELEMENTWISE_RATE[fn], attrs=attrs or NOTHING)

    def constant(self, name: str, fn: str, axes: str, **attrs: object) -> Tensor:
        """A table computed from positions alone (sinusoids), neither read nor learned."""
        return self.emit("map", name, (), self.tensor(name, axes), fn=fn, attrs=attrs)

    def gather(self, name: str, table: Use, out: str, *beside: Use, **attrs: object) -> Tensor:
        """Look up rows of `table`; the Use says how many rows are touched. beside: vectors that stand for rows."""
        return self.emit("gather", name, (table, *beside), self.tensor(name, out), attrs=attrs)

    def append(self, cache: Tensor, x: Operand, kept: Num | None = None, **attrs: object) -> None:
        """Write `x` behind what `cache` holds; only `kept` of the new tokens stay (default: all)."""
        rows = x.axes.get("T")
        rows = kept if kept is not None else rows
        touched = {} if rows is None or "C" not in cache.axes else {"C": rows}
        self.emit("append", cache.name.rsplit(".", 1)[-1] + "+", (x,), cache.part(**touched), attrs=attrs)

    def view(self, name: str, x: Operand, out: str, **attrs: object) -> Tensor:
        """The same numbers under other axis names: costs nothing."""
        return self.emit("view", name, (x,), self.tensor(name, out), attrs=attrs)

    def select(
        self, name: str, x: Tensor, out: str, how: Literal["last", "first", "rest", "next"], **sizes: Num
    ) -> Tensor:
        """A slice of `x`, free: the last token of every sequence, the first entry or all but the first of an axis,
        or `next`: one entry more at every execution."""
        result = Tensor(self.name(name), {a: sizes.get(a, self.sizes[a]) for a in split_axes(out)})
        return self.emit("select", name, (x.part(**sizes),), result, attrs={"how": how})

    def idle(self, *weights: Tensor) -> None:
        """Weights that this step does not touch, but that belong to the model."""
        for w in weights:
            use = Use(w, {**w.axes, first_axis(w): 0})
            op = Op(kind="view", name=w.name + ".idle", reads=(use,), writes=())
            self._bodies[-1].append(op)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is built inside belongs to the model, and this step does not run it: its weights lie idle."""
        self._bodies.append([])
        try:
            yield
        finally:
            self._hold(tuple(self._bodies.pop()))

    def _hold(self, body: tuple[Node, ...]) -> None:
        """The weights of a body as idle ones, those of a repeated block as often as it repeats."""
        held: dict[str, Tensor] = {}
        for op in _flat(body):
            if isinstance(op, Op):
                held |= {use.tensor.name: use.tensor for use in op.reads if use.tensor.kind == "weight"}
                continue
            self._bodies.append([])
            self._hold(op.body)
            self._bodies[-2].append(replace(op, body=tuple(self._bodies.pop()), carry=(), kernel=""))
        self.idle(*held.values())

    # ------------------------------------------------------------------ structure
    @contextmanager
    def block(
        self, name: str, times: Num = 1, *, shared: bool = False, kernel: str = "", attrs: Any = None, **sizes: Num
    ) -> Iterator[None]:
        """A nested scope: a group, a repetition, or the body of a `kernel`."""
        outer, self.sizes = self.sizes, {**self.sizes, **sizes}
        around, path = self._prefix, self._prefix + name
        self._prefix = path + "."
        self._bodies.append([])
        self._carries.append([])
        try:
            yield
        finally:
            body, carry = tuple(self._bodies.pop()), tuple(self._carries.pop())
            node = Block(
                name=path, body=body, times=times, shared=shared, carry=carry, kernel=kernel, attrs=attrs or NOTHING
            )
            if body:
                self._bodies[-1].append(node)
            self._prefix, self.sizes = around, outer

    @contextmanager
    def scope(self, **sizes: Num) -> Iterator[None]:
        """Other extents for some axes, without a new block."""
        outer, self.sizes = self.sizes, {**self.sizes, **sizes}
        try:
            yield
        finally:
            self.sizes = outer

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The part of the model that ops made inside belong to; of nested ones the innermost."""
        outer, self._part = self._part, name
        try:
            yield
        finally:
            self._part = outer

    def carry(self, x: Tensor, y: Tensor) -> None:
        """The next repetition of this block reads `y` where this one read `x`."""
        self._carries[-1].append((x, y))

    def graph(self) -> Block:
        """Everything built so far, as one block without a name."""
        return Block(name="", body=tuple(self._bodies[0]))


def _flat(body: Iterable[Node]) -> Iterator[Node]:
    """Ops, and blocks that repeat, out of all blocks that do not."""
    for node in body:
        if isinstance(node, Op) or not (isinstance(node.times, int) and node.times == 1):
            yield node
        else:
            yield from _flat(node.body)


def first_axis(x: Tensor) -> str:
    """The name of a tensor's first axis."""
    return next(iter(x.axes))


def _use(x: Operand) -> Use:
    return x if isinstance(x, Use) else Use(x, x.axes)
