"""Products with weights, of chosen experts, between activations, and convolutions, as contractions with named axes."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import NamedTuple

from archsim.graph.tensor import REFINES
from archsim.tracing.capture import Record, Value
from archsim.tracing.fold import Aligned, Extent, Term
from archsim.tracing.passes import CHOICES
from archsim.tracing.sizes import AXES, Split
from archsim.tracing.template import Size, Sizes, TensorTemplate, UseTemplate
from archsim.tracing.writer import CONVOLUTIONS, PRODUCTS, GraphWriter, Node

ONE: Extent = (Term(Fraction(1), (0, 0, 0)),)


class Operands(NamedTuple):
    """A product of `left` [batch, rows, inner] and `right` [batch, inner, columns], plus `bias`."""

    left: Value
    right: Value
    out: Value
    bias: Value | None
    batch: Extent
    rows: Extent
    inner: Extent
    columns: Extent


def operands_of(record: Record, aligned: Aligned) -> Operands:
    """The operands of a product by the order of ATen's arguments."""
    name, reads = record.name, list(record.reads)
    bias = reads.pop(0) if name in ("addmm", "baddbmm", "addmv") else None
    left, right, *more = reads
    if name in ("linear", *CONVOLUTIONS) and more:
        bias = more[0]
    a, b = aligned.shape(left), aligned.shape(right)
    out = record.writes[0]
    if name in CONVOLUTIONS:
        return Operands(left, right, out, bias, ONE, ONE, ONE, ONE)
    if name in ("bmm", "baddbmm"):
        return Operands(left, right, out, bias, a[0], a[1], a[2], b[2])
    if name == "linear":
        rows = tuple(a[:-1])
        return Operands(left, right, out, bias, ONE, _times(rows), a[-1], b[0])
    if name in ("mv", "addmv"):
        return Operands(left, right, out, bias, ONE, a[0], a[1], ONE)
    if name == "dot":
        return Operands(left, right, out, bias, ONE, ONE, a[0], ONE)
    return Operands(left, right, out, bias, ONE, a[0], a[1], b[1])


def _times(extents: tuple[Extent, ...]) -> Extent:
    """Several plain extents as one."""
    total = ONE
    for extent in extents:
        (x,), (y,) = total, extent
        powers = tuple(map(sum, zip(x.powers, y.powers, strict=True)))
        total = (Term(x.coefficient * y.coefficient, powers),)  # type: ignore[arg-type]
    return total


def lower_product(e: GraphWriter, record: Record, o: Operands) -> list[Node]:
    """The ops of one product."""
    if record.name in CONVOLUTIONS:
        return _convolution(e, record, o)
    if e.param(o.left) and not e.param(o.right):
        o = o._replace(left=o.right, right=o.left, rows=o.columns, columns=o.rows)
    if e.param(o.right):
        return _linear(e, record, o)
    for x, w in ((o.left, o.right), (o.right, o.left)):
        if param := _chosen(e, w):
            o = o if w is o.right else o._replace(left=o.right, right=o.left, rows=o.columns, columns=o.rows)
            assert x is o.left
            return _experts(e, record, o, param)
    return _between(e, record, o)


def _chosen(e: GraphWriter, value: Value) -> str:
    """The parameter of which a value holds the matrices of chosen experts."""
    made = value.root.made
    if made is None or made.name not in ("index", "index_select", "embedding"):
        return ""
    param = e.param(made.reads[0])
    return param if param and len(e.facts.params[param]) >= 3 else ""


def _fixed(extent: Extent) -> int:
    """A plain extent's number; 1 for one that follows the step."""
    return int(extent[0].coefficient) if len(extent) == 1 and extent[0].powers == (0, 0, 0) else 1


def _linear(e: GraphWriter, record: Record, o: Operands) -> list[Node]:
    """A product with a weight."""
    param, name = e.param(o.right), e.op_name(record)
    k, n, batch = _fixed(o.inner), _fixed(o.columns), _fixed(o.batch)
    total = 1
    for size in e.facts.params[param]:
        total *= size
    own_batch = batch > 1 and total >= batch * k * n
    rows = e.sizes.split([o.rows] if own_batch else [o.rows, o.batch])
    inner = "D" if k == e.sizes.d_model else "F"
    outer = "V" if n == e.sizes.vocabulary else "D" if inner == "F" else "D2" if n == k else "F"
    side: Sizes = {"Bh": Size.of(batch)} if own_batch else {}
    axes = {**rows.axes(row="R"), **side}
    if outer == "V" and not e.places:
        e.head = e.facts.causal
    role = "router" if _routes(e, o.out) else "head" if outer == "V" and not e.places else "linear"
    weight = e.weight(param, role, {**side, inner: Size.of(k), outer: Size.of(n)}, (inner,))
    touched = {**side, inner: Size.of(k), outer: Size.of(n)}
    x = e.rows(o.left, {**axes, inner: Size.of(k)})
    out = e.make(o.out, name, {**axes, outer: Size.of(n)})
    use = weight.part() if set(weight.axes) == set(touched) else UseTemplate(weight, touched)
    found: list[Node] = [e.op("contract", name, [x, use], [out], cls="matmul")]
    return found + _bias(e, o, name, out)


def _bias(e: GraphWriter, o: Operands, name: str, out: UseTemplate) -> list[Node]:
    param = e.param(o.bias) if o.bias is not None else ""
    if not param:
        return []
    summed = e.make(o.out, name + "+b", out.axes)
    return [e.op("map", name + "+b", [out, e.weight(param, "bias").part()], [summed], fn="add", rate=1)]


def _routes(e: GraphWriter, value: Value, depth: int = 12) -> bool:
    """Whether what a product gives decides, a few elementwise operations later, which experts tokens go to."""
    seen, front = set[int](), [value]
    for _ in range(depth):
        following = []
        for each in front:
            for reader in e.readers(each):
                if reader.name in CHOICES:
                    return True
                if id(reader) not in seen and reader.name not in PRODUCTS and reader.name != "attention":
                    seen.add(id(reader))
                    following += reader.writes[:1]
        front = following[:16]
    return False


def _experts(e: GraphWriter, record: Record, o: Operands, param: str) -> list[Node]:
    """A product of dealt-out rows with the matrices of the experts that they go to."""
    name, shape = e.op_name(record), e.facts.params[param]
    rows = e.sizes.split([o.batch, o.rows])
    k, n, top_k = _fixed(o.inner), _fixed(o.columns), max(rows.whole, 1)
    inner = "D" if k == e.sizes.d_model else "F"
    outer = "F" if inner == "D" else "D"
    halves = 2 if inner == "D" and _is_halved(e, o.out) else 1
    family = param.rpartition(".")[0]
    hit = Size(((Fraction(1), "hit"),), (shape[0], min(top_k, shape[0])))
    m = {"M": Size(((rows.number, rows.unit),))}
    x, found = _dealt(e, o.left, family, {**m, inner: Size.of(k)})
    attrs = {"n_experts": shape[0], "top_k": top_k}
    weight = e.weight(param, "expert", {"E": Size.of(shape[0]), inner: Size.of(k), outer: Size.of(n)}, (inner,))
    base = weight.name.rpartition(".")[0] or weight.name
    for half in range(halves):
        part = weight if halves == 1 else _half(weight, half, outer)
        touched = {"E": hit, inner: Size.of(k), outer: Size.of(n // halves)}
        label = name if halves == 1 else f"{name}.{half}"
        axes = {**m, outer: Size.of(n // halves)}
        out = TensorTemplate(label, axes).part() if half else e.make(o.out, label, axes)
        found.append(e.op("contract", label, [x, UseTemplate(part, touched)], [out], cls="matmul", attrs=attrs))
    assert base
    return found


def _half(weight: TensorTemplate, half: int, outer: str) -> TensorTemplate:
    """One of two matrices that are stored side by side."""
    axes = {**weight.axes, outer: Size.of(weight.axes[outer].parts[0][0] / 2)}
    return TensorTemplate(f"{weight.name}[{half}]", axes, "weight", weight.role, weight.inner)


def _dealt(e: GraphWriter, value: Value, family: str, axes: Sizes) -> tuple[UseTemplate, list[Node]]:
    """The rows of the first product of experts, dealt out to them; later products read what earlier ones wrote."""
    use = e.act(value, axes)
    if "M" in use.tensor.axes:
        return use, []
    key = id(e.root(value))
    if key not in e.dispatched:
        local = e.local(family) + ".dispatch" if e.places else family + ".dispatch"
        e.dispatched[key] = TensorTemplate(e.unique(local), axes)
        dispatch = e.op(
            "map", e.dispatched[key].name, [e.act(value, use.tensor.axes)], [e.dispatched[key].part()], fn="dispatch"
        )
        return e.dispatched[key].part(), [dispatch]
    return e.dispatched[key].part(), []


def _is_halved(e: GraphWriter, value: Value, depth: int = 3) -> bool:
    """Whether a result is read in two halves, a gate and what it gates, perhaps behind a bias."""
    width = _fixed(e.aligned.shape(value)[-1]) * max(_fixed(e.aligned.shape(value)[-2]), 1)
    for reader in e.readers(value):
        for read in reader.reads:
            if e.root(read) is e.root(value) and _fixed(e.aligned.shape(read)[-1]) * 2 == width:
                return True
        if depth and reader.name == "add" and _is_halved(e, reader.writes[0], depth - 1):
            return True
    return False


SIDES = {"b": ("left", "right", "out"), "m": ("left", "out"), "k": ("left", "right"), "n": ("right", "out")}
"""Which operands of a batched product have each of its four axes."""


def _between(e: GraphWriter, record: Record, o: Operands) -> list[Node]:
    """A product of two activations outside of attention."""
    name, extents = e.op_name(record), {"b": o.batch, "m": o.rows, "k": o.inner, "n": o.columns}
    work = e.sizes.split(extents.values())
    plain = {letter: e.sizes.split([extent]).number for letter, extent in extents.items()}

    def axes(side: str, value: Value) -> Sizes:
        own = e.sizes.split(e.aligned.shape(value))
        numbers = {letter: plain[letter] for letter, sides in SIDES.items() if side in sides}
        found = {letter: Size.of(n) for letter, n in numbers.items() if n != 1 and n.denominator == 1}
        if work.unit == "1" or (side != "out" and own.unit == "1"):
            return found
        unit = own.unit if own.unit in REFINES.get(work.unit, ()) else work.unit
        shared = numbers if unit != work.unit else plain
        rest = prod((n for n in shared.values() if n.denominator != 1), start=Fraction(1))
        keys = unit == "T" and work.unit == "P" and side == "right"
        return {"C" if keys else AXES.get(unit, unit): Size.of(rest, unit), **found}

    reads = [e.act(o.left, axes("left", o.left)), e.act(o.right, axes("right", o.right))]
    lines = {f"X{i}": size for i, size in enumerate(work.lines)}
    out = e.make(o.out, name, axes("out", o.out) | lines)
    return [e.op("contract", name, reads, [out], cls="attention")]


def _convolution(e: GraphWriter, record: Record, o: Operands) -> list[Node]:
    """A convolution; one of single channels along time is what recurrent mixers begin with."""
    name, param = e.op_name(record), e.param(o.right)
    shape = e.aligned.shape(o.right)
    filters, channels, *taps = (_fixed(extent) for extent in shape)
    width = 1
    for n in taps:
        width *= n
    (sequences, _, *places) = e.aligned.shape(o.out)
    split: Split = e.sizes.split([sequences, *places])
    rows = split.axes(row="R")
    if split.lines:
        rows = {"T": _line(e, sequences, places)}
    depthwise = channels == 1 and len(taps) == 1
    one: Sizes = {"Ch": Size.of(filters)}
    (batch, _, *lengths) = e.aligned.shape(o.left)
    entering = e.sizes.split([batch, *lengths])
    x_rows = rows if entering.lines or entering.number != split.number else entering.axes(row="R")
    x = e.act(o.left, {**x_rows, **(one if depthwise else {"D": Size.of(channels)})})
    out = e.make(o.out, name, {**rows, **(one if depthwise else {"F": Size.of(filters)})})
    axes = {**(one if depthwise else {"F": Size.of(filters), "D": Size.of(channels)}), "W": Size.of(width)}
    use = e.weight(param, "conv", axes).part() if param else e.act(o.right)
    fn = "causal_conv" if depthwise else ""
    found: list[Node] = [e.op("contract", name, [x, use], [out], cls="conv", fn=fn)]
    return found + _bias(e, o, name, out)


def _line(e: GraphWriter, sequences: Extent, places: list[Extent]) -> Size:
    """Rows of all sequences where each has a number that is a straight line in its tokens."""
    (batch,) = sequences
    (place,) = places
    units = {(0, 0, 0): "S", (0, 1, 0): "T"}
    assert batch.powers == (1, 0, 0)
    return Size(tuple((batch.coefficient * term.coefficient, units[term.powers]) for term in place))
