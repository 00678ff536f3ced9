"""Times that never fall as a call grows, whatever device a fit is read on.

A correction surface was fitted beside its formula on one device. On another one, or beyond the measured shapes, the
formula may rise more slowly than the surface falls. So a call is taken to last at least as long as every smaller one of
its kind: on a lattice over the extents along which a class grows (`KernelModel.growths`) each node's time is raised to
the largest at or below it. Between two nodes the correction goes from one to the other in step with the extent where it
rises, and in step with the formula's own time where it falls: then time, which is both together, cannot fall. Where
nothing had to be raised the nodes' corrections are the surfaces' own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import Num, exp, floor, log, maximum, minimum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Fitted, KernelModel, kernel_seconds
from archsim.timing.device import DeviceRates

LEAST = 1e-12
"""Rise of a formula's logarithm below which it stands still."""

FEW = 4
"""Kinds in a table of calls that are gone through one by one."""

MOST = 500_000
"""Nodes of the lattices of several kinds that are worked out at once."""

SHORTEST = 1e-30
"""Seconds below which no logarithm is taken."""

DIGITS = 2**20
"""Steps of a mantissa within which extents of two calls of one kind are alike: they may come from other sums."""

REMEMBERED = 5_000
"""Kinds of calls of one device whose lattices are kept."""

TABLES = 4
"""Tables of heights that a lattice keeps: of numbers of sequences, whose neighbours ask for the same ones."""

LARGEST = 100_000
"""Points of a table that is kept."""

Point = Sequence[Num]
"""A place on a lattice in units of its nodes, one number or array for each growth."""


def rising_seconds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, known: Lattices) -> Num:
    """The estimate of a call that takes at least as long as every smaller one of its kind.

    known: what is kept of the lattices of one machine.
    """
    if not (fitted.surfaces and model.growths):
        return kernel_seconds(model, call, machine, fitted)
    smallest = model.smallest(call)
    kind = {name: _rounded(value) for name, value in smallest.dims.items()}
    if any(hasattr(value, "shape") for value in kind.values()):
        return _over_kinds(model, call, machine, fitted, known)
    return _raised(model, call, machine, fitted, _lattice(model, smallest._replace(dims=kind), machine, fitted, known))


def _raised(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, lattice: Lattice) -> Num:
    """The estimate of a call on the lattice of its kind."""
    at = model.growth(call)
    place = [_single_value((at[axis.name] - axis.start) / axis.step) for axis in model.growths]
    own = model.formula(call, machine, fitted.constants)
    grown = own if model.is_grown(call) else model.formula(model.grown(lattice.smallest, at), machine, fitted.constants)
    like = _logarithm(grown)
    return own * exp(lattice.raised(place, like) - like)


def _single_value(x: Num) -> Num:
    """An array of equal numbers as a number."""
    return _constant(x.ravel(), x) if getattr(x, "size", 0) else x


def _logarithm(seconds: Num) -> Num:
    """Of a time, which is 0 where a table's row has nothing to do."""
    return log(maximum(seconds, SHORTEST))


def _lattice(
    model: KernelModel, smallest: KernelCall, machine: DeviceRates, fitted: Fitted, known: Lattices
) -> Lattice:
    """The lattice of a kind of calls, made once."""
    key = (
        id(fitted), machine.accumulate, smallest.kernel_class, smallest.dtype, smallest.kv_dtype, smallest.kernel,
        *smallest.dims.items(),
    )  # fmt: skip
    found = known.get(key)
    if found is None or found.fitted is not fitted:
        if len(known) >= REMEMBERED:
            known.clear()
        found = known[key] = Lattice(model, smallest, machine, fitted)
    return found


def _over_kinds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, known: Lattices) -> Num:
    """The times of a table of calls of several kinds, one kind after another."""
    import numpy

    names = list(call.dims)
    columns = dict(zip(names, numpy.broadcast_arrays(*(call.dims[name] for name in names)), strict=True))
    shape = columns[names[0]].shape
    smallest = model.smallest(call).dims
    kinds = numpy.stack([numpy.broadcast_to(_rounded(value), shape).ravel() for value in smallest.values()], 1)
    _, first, of = numpy.unique(kinds, axis=0, return_index=True, return_inverse=True)
    if len(first) > FEW:
        dims = {name: _constant(column.ravel()) for name, column in columns.items()}
        return _over_many(model, call._replace(dims=dims), machine, fitted, kinds[first], of.ravel()).reshape(shape)
    times = numpy.empty(len(kinds))
    for kind in range(len(first)):
        own = numpy.flatnonzero(of.ravel() == kind)
        dims = {name: _constant(columns[name].ravel()[own]) for name in names}
        times[own] = rising_seconds(model, call._replace(dims=dims), machine, fitted, known)
    return times.reshape(shape)


def _over_many(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, kinds: Num, of: Num) -> Num:
    """The times of rows of many kinds, with the lattices of as many kinds at once as `MOST` nodes hold. kinds: extents
    of the smallest call of each; of: the kind of each row.
    """
    import numpy

    names, times = list(model.smallest(call).dims), numpy.empty(len(of))
    at_once = max(MOST // math.prod(axis.nodes for axis in model.growths), 1)
    for start in range(0, len(kinds), at_once):
        rows = numpy.flatnonzero((of >= start) & (of < start + at_once))
        part = {name: x if isinstance(x, float) else x[rows] for name, x in call.dims.items()}
        each = dict(zip(names, map(_constant, kinds[of[rows]].T), strict=True))
        every = kinds[start : start + at_once]
        lattice = Lattice(
            model, call._replace(dims=each), machine, fitted,
            kinds=dict(zip(names, map(_constant, every.T), strict=True)), count=len(every), of=of[rows] - start,
        )  # fmt: skip
        times[rows] = _raised(model, call._replace(dims=part), machine, fitted, lattice)
    return times


def _constant(values: Num, otherwise: Num = None) -> Num:
    """An array as a number where all its values are equal. otherwise: what stands where they are not; None: itself."""
    return float(values[0]) if (values == values[0]).all() else values if otherwise is None else otherwise


def _rounded(value: Num) -> Num:
    """An extent without what sums of other terms change in it; an array of equal ones as a number."""
    if isinstance(value, (int, float)):
        share, power = math.frexp(value)
        return math.ldexp(round(share * DIGITS), power) / DIGITS
    import numpy

    share, power = numpy.frexp(value)
    found = numpy.ldexp(numpy.rint(share * DIGITS), power) / DIGITS
    return float(found.flat[0]) if found.size and (found == found.flat[0]).all() else found


class Heights(NamedTuple):
    """Logarithms of seconds at a place: by the formula alone, and of the raised estimate."""

    formula: Num
    time: Num


@dataclass(slots=True, eq=False)
class Lattice:
    """Raised times of one kind of calls. Of numbers only the nodes that they need are worked out, of arrays all.

    nodes: what has been worked out of single nodes. whole: arrays over all nodes of some growths. tables: heights over
    grids of the other growths at single nodes of the first. kinds, count, of: where rows of a table are of many kinds,
    extents of the smallest calls of all, how many these are, and the kind of each row; `smallest` is by row then.
    """

    model: KernelModel
    smallest: KernelCall
    machine: DeviceRates
    fitted: Fitted
    kinds: Mapping[str, Num] | None = None
    count: int = 1
    of: Num = None
    nodes: dict[tuple[int, ...], Heights] = field(default_factory=dict)
    whole: dict[tuple[int, ...], Heights] = field(default_factory=dict)
    tables: dict[Hashable, Heights] = field(default_factory=dict)
    highest: float = field(init=False)

    def __post_init__(self) -> None:
        self.highest = sum(max(surface.values) for surface in self.fitted.surfaces)

    def raised(self, place: Point, formula: Num) -> Num:
        """The logarithm of a call's raised time. formula: the logarithm of its own by the formula."""
        return self._between(place, 0, formula).time

    def _between(self, place: Point, first: int, formula: Num | None = None) -> Heights:
        """Heights at a place that lies on nodes of all growths before the `first`."""
        if first == len(place):
            return self._node(place)
        here = self._formula(place) if formula is None else formula
        x, last = place[first], self.model.growths[first].nodes - 1
        below = floor(minimum(maximum(x, 0), last))
        share = x - below
        above = below + ((share > 0) & (below < last) & (x > 0)) * 1
        low, *more = self._at_nodes(
            place, first, [below, above] if not isinstance(above, int) or above != below else [below]
        )
        if not more:
            return Heights(here, low.time + (here - low.formula))
        rise, by_formula = maximum(more[0].time - low.time, 0), more[0].formula - low.formula
        with_formula = where(rise < by_formula, rise / maximum(by_formula, LEAST), 1.0)
        time = low.time + (rise - with_formula * by_formula) * share + with_formula * (here - low.formula)
        return Heights(here, time)

    def _at_nodes(self, place: Point, first: int, nodes: Sequence[Num]) -> list[Heights]:
        """Heights at a place whose growth `first` is moved to nodes. Of an array that the other growths do not share,
        every node is gone through once.
        """
        rest = [*place[:first], *place[first + 1 :]]
        if isinstance(nodes[0], int) and not first and self.kinds is None:
            return [self._table(at, place[1:]) for at in nodes]
        if isinstance(nodes[0], int) or first == len(place) - 1:
            return [self._between([*place[:first], at, *place[first + 1 :]], first + 1) for at in nodes]
        import numpy

        shape = numpy.broadcast_shapes(*(numpy.shape(x) for x in place))
        few = numpy.arange(int(nodes[0].min()), int(nodes[-1].max()) + 1)
        if len(few) * math.prod(numpy.broadcast_shapes(*(numpy.shape(x) for x in rest))) > math.prod(shape):
            return [self._between([*place[:first], at, *place[first + 1 :]], first + 1) for at in nodes]
        moved = [*place[:first], few.reshape(-1, *[1] * len(shape)), *place[first + 1 :]]
        tables = [numpy.broadcast_to(table, (len(few), *shape)) for table in self._between(moved, first + 1)]
        indices = [(numpy.broadcast_to(at, shape) - few[0], *numpy.ogrid[tuple(map(slice, shape))]) for at in nodes]
        return [Heights(*(table[index] for table in tables)) for index in indices]

    def _table(self, node: int, rest: Point) -> Heights:
        """Heights at a node of the first growth. Those over a grid of others are kept for calls beside this one."""
        arrays = [x for x in rest if not isinstance(x, (int, float))]
        if len({x.shape for x in arrays}) < 2 or max(x.size for x in arrays) > LARGEST:
            return self._between([node, *rest], 1)
        key = node, *(x if isinstance(x, (int, float)) else (x.shape, blake2b(x.tobytes()).digest()) for x in rest)
        if key not in self.tables:
            found = self._between([node, *rest], 1)
            while len(self.tables) >= TABLES:
                del self.tables[next(iter(self.tables))]
            self.tables[key] = found
        return self.tables[key]

    def _call(self, place: Point, smallest: KernelCall | None = None) -> KernelCall:
        """The call at a place. smallest: what it grows from, where that is not the lattice's own."""
        axes = self.model.growths
        return self.model.grown(
            smallest or self.smallest,
            {axis.name: axis.start + axis.step * x for axis, x in zip(axes, place, strict=True)},
        )

    def _formula(self, place: Point) -> Num:
        """The formula's logarithm at a place."""
        return _logarithm(self.model.formula(self._call(place), self.machine, self.fitted.constants))

    def _node(self, node: Point) -> Heights:
        """Heights at a node, or at arrays of nodes."""
        if self.kinds is None and all(isinstance(at, int) for at in node):
            return self._single(tuple(node))
        sizes = tuple(
            1 if isinstance(at, int) and at == 0 else axis.nodes
            for at, axis in zip(node, self.model.growths, strict=True)
        )
        if sizes not in self.whole:
            self.whole[sizes] = self._all(sizes)
        index = tuple(node) if self.kinds is None else (self.of, *node)
        return Heights(*(table[index] for table in self.whole[sizes]))

    def _all(self, sizes: tuple[int, ...]) -> Heights:
        """Heights at the first nodes of each growth."""
        import numpy

        place, smallest, shape = numpy.ogrid[tuple(slice(size) for size in sizes)], self.smallest, sizes
        if self.kinds is not None:
            ones = [1] * len(sizes)
            columns = {n: x if isinstance(x, float) else x.reshape(-1, *ones) for n, x in self.kinds.items()}
            smallest, shape = self.smallest._replace(dims=columns), (self.count, *sizes)
        call = self._call(list(place), smallest)
        formula = _logarithm(self.model.formula(call, self.machine, self.fitted.constants)) + numpy.zeros(shape)
        time = formula + self._correction(call)
        for growth in range(len(sizes)):
            time = numpy.maximum.accumulate(time, axis=growth - len(sizes))
        return Heights(formula, time)

    def _correction(self, call: KernelCall) -> Num:
        """What the surfaces add to the formula's logarithm."""
        at = self.model.coordinates(call, self.machine)
        return sum(surface(at) for surface in self.fitted.surfaces)

    def _single(self, node: tuple[int, ...]) -> Heights:
        """Heights at one node. Of the nodes below it only those are gone through whose formula, with the largest
        correction there can be, reaches its time.
        """
        found = self.nodes.get(node)
        if found is None:
            formula, call = self._formula(node), self._call(node)
            time = formula + self._correction(call)
            for below in _neighbours(node):
                known = self.nodes.get(below)
                if known is not None or self._formula(below) + self.highest > time:
                    time = max(time, (known or self._single(below)).time)
            found = self.nodes[node] = Heights(formula, time)
        return found


def _neighbours(node: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The nodes one step below."""
    for growth, at in enumerate(node):
        if at:
            yield *node[:growth], at - 1, *node[growth + 1 :]


Lattices = dict[Hashable, Lattice]
"""The lattices of one device, by fit and kind of calls."""
