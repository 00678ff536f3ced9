"""The tensors of a graph that is written from a capture: which value is which, what they are called, who reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from archsim.graph.step import Mask
from archsim.tracing.capture import Record, Value
from archsim.tracing.fold import Aligned, Item, Loop
from archsim.tracing.sizes import Reader
from archsim.tracing.template import BlockTemplate, OpTemplate, Size, Sizes, TensorTemplate, UseTemplate
from archsim.tracing.untyped import Untyped

LOOKUPS = frozenset({"embedding", "index", "index_select"})
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "mv", "addmv", "dot"})
CONVOLUTIONS = frozenset({"convolution", "_convolution"})
Node = OpTemplate | BlockTemplate


class Kept(NamedTuple):
    """A tensor that is kept between steps. grows: with tokens. width: numbers of a token, else of a sequence."""

    grows: bool
    width: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the capture. params: shapes of all parameters. caches: root of what is kept between steps ->
    how. causal: what attention is that does not say so itself.
    """

    params: dict[str, tuple[int, ...]]
    caches: dict[int, list[Kept]]
    causal: bool


@dataclass(slots=True, eq=False)
class Place:
    """A loop that is being written. varies: parameters of its first repetition that others have others of."""

    name: str
    prefix: str
    varies: frozenset[str]


@dataclass(slots=True, eq=False)
class GraphWriter:
    """Names, tensors and weights of a graph that is being written from one capture."""

    aligned: Aligned
    sizes: Reader
    facts: Facts
    same: dict[int, Value] = field(default_factory=dict)
    tensors: dict[int, TensorTemplate] = field(default_factory=dict)
    weights: dict[str, TensorTemplate] = field(default_factory=dict)
    states: dict[int, list[TensorTemplate]] = field(default_factory=dict)
    pending: list[Value] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    read_by: dict[int, list[Record]] = field(default_factory=dict)
    derived: dict[int, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    dispatched: dict[int, TensorTemplate] = field(default_factory=dict)
    masks: dict[int, Mask] = field(default_factory=dict)
    head: bool = False

    def index(self, items: Sequence[Item]) -> None:
        """Who reads what, what is made of parameters alone, and what later repetitions have in place of the first."""
        for item in items:
            if isinstance(item, Loop):
                for other in item.rest:
                    self._match(item.body, other)
                self.index(item.body)
                continue
            for value in item.reads:
                self.read_by.setdefault(id(self.root(value)), []).append(item)
            param = next((p for v in item.reads if (p := self.param(v))), "")
            fixed = all(self.param(v) for v in item.reads if v.live)
            if param and fixed and item.name not in LOOKUPS and item.name not in PRODUCTS:
                self.derived |= {id(value): param for value in item.writes}

    def _match(self, body: Sequence[Item], other: Sequence[Item]) -> None:
        for a, b in zip(body, other, strict=True):
            if isinstance(a, Loop) and isinstance(b, Loop):
                self._match(a.body, b.body)
                for rest in b.rest:
                    self._match(a.body, rest)
            elif isinstance(a, Record) and isinstance(b, Record):
                self.same |= {id(y): x for x, y in zip(a.writes, b.writes, strict=False)}
                for x, y in zip(a.reads, b.reads, strict=False):
                    if x.root.param and y.root.param != x.root.param:
                        self.twins[y.root.param] = x.root.param
                    if self.root(y).made is None and not self.root(y).param and id(y.root) != id(x.root):
                        self.same.setdefault(id(y.root), x.root)

    def root(self, value: Value) -> Value:
        """The tensor whose numbers a value has, that of the first repetition."""
        found, seen = value.root, 0
        while id(found) in self.same and seen < 64:
            found, seen = self.same[id(found)].root, seen + 1
        return found

    def param(self, value: Value) -> str:
        """The parameter that a value is, or is made of alone; empty for others."""
        root = value.root
        return root.param or self.derived.get(id(root), "")

    def readers(self, value: Value) -> Sequence[Record]:
        """Operations that read a value."""
        return self.read_by.get(id(self.root(value)), ())

    def _first(self, param: str) -> str:
        """The parameter of the first repetition in whose place a parameter stands."""
        while param in self.twins:
            param = self.twins[param]
        return param

    def unique(self, name: str) -> str:
        """A name that nothing else has, inside the innermost loop."""
        path = self.places[-1].name + "." if self.places else ""
        full = name if name.startswith(path) else path + name
        self.names[full] = self.names.get(full, 0) + 1
        return full if self.names[full] == 1 else f"{full}_{self.names[full]}"

    def op_name(self, record: Record) -> str:
        """The name of an operation: that of its module."""
        call = self.local(record.call.name) or record.name
        return self.unique(call)

    def local(self, name: str) -> str:
        """A module's name under the innermost loop, without the number of its repetition."""
        if not self.places:
            return name
        place = self.places[-1]
        if name == place.prefix:
            return place.name + ".layer"
        return place.name + name[len(place.prefix) :] if name.startswith(place.prefix + ".") else f"{place.name}.{name}"

    def act(self, value: Value, axes: Sizes | None = None) -> UseTemplate:
        """A use of an activation, or of the parameter that a value is."""
        param = self.param(value)
        if param:
            return self.weight(param, "scalar").part()
        root = self.root(value)
        found = self.tensors.get(id(root))
        own = self.sizes.axes(self.aligned.shape(value)) if axes is None else axes
        if found is None:
            found = self.tensors[id(root)] = TensorTemplate(self.unique("value"), own)
        return UseTemplate(found, own)

    def rows(self, value: Value, axes: Sizes) -> UseTemplate:
        """A use of an activation, or of a parameter whose rows stand in for those of one (learned queries)."""
        found = self.act(value, axes)
        return UseTemplate(found.tensor, axes) if found.tensor.kind == "weight" else found

    def make(self, value: Value, name: str, axes: Sizes | None = None) -> UseTemplate:
        """The activation that an op writes."""
        own = self.sizes.axes(self.aligned.shape(value)) if axes is None else axes
        tensor = TensorTemplate(name, own)
        self.tensors[id(self.root(value))] = tensor
        return tensor.part()

    def weight(self, param: str, role: str, axes: Sizes | None = None, inner: tuple[str, ...] = ()) -> TensorTemplate:
        """The weight that a parameter is, with the axes of its first use where these are all of it."""
        if param not in self.weights:
            shape = self.facts.params[param] or (1,)
            total = 1
            for n in shape:
                total *= n
            if axes is None or _total(axes) != total:
                axes = {f"x{i}": Size.of(n) for i, n in enumerate(shape)}
                inner = tuple(list(axes)[1:]) if len(axes) > 1 else ()
            self.weights[param] = TensorTemplate(self._weight_name(param), axes, "weight", role, inner)
        return self.weights[param]

    def _weight_name(self, param: str) -> str:
        """A name inside the innermost loop whose repetitions have this parameter each of their own."""
        home = next((p for p in reversed(self.places) if param in p.varies), None)
        if home is None:
            return "weights/" + param if self.places else param
        return f"{home.name}.{param.removeprefix(home.prefix + '.')}"

    def op(
        self, kind: Untyped, name: str, reads: Sequence[UseTemplate], writes: Sequence[UseTemplate], **fields: Untyped
    ) -> OpTemplate:
        """An op."""
        return OpTemplate(kind=kind, name=name, reads=tuple(reads), writes=tuple(writes), head=self.head, **fields)


def _total(axes: Sizes) -> int:
    total = 1
    for size in axes.values():
        total *= int(size.parts[0][0])
    return total
