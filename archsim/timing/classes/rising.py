"""Times that never fall as a call grows, whatever device a fit is read on.

A correction surface was fitted beside its formula on one device. On another one, or beyond the measured shapes, the
formula may rise more slowly than the surface falls. So a call is taken to last no less than every smaller one of its
kind: on a lattice over the extents along which a class grows (`KernelModel.growths`) each node's time lies halfway, as
its logarithm, between the largest at or below it and the smallest at or above it. Neither of these falls as a call
grows, and where a surface is rough one is too long by as much as the other is too short. Along growths at whose start
nearly all calls stand (`KernelModel.only_raised`) both are the largest. Two calls of half the sequences do the work of
one (`KernelModel.halved`). Where one takes longer than both, tables that find less in the cache show, and on a device
with another cache a fit says nothing of where: there a node lies, in the same way, halfway between the shortest that
smaller ones allow, each repeated, and the longest of larger ones, each a part. Between two nodes the correction goes
from one to the other in step with the extent where it rises, and in step with the formula's own time where it falls:
then time, which is both together, cannot fall. Where nothing fell the nodes' corrections are the surfaces' own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.last_used import LastUsed
from archsim.base.number import Num, exp, floor, log, maximum, minimum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Fitted, KernelModel, correction, kernel_seconds
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

ROUNDING = 1e-9
"""By how much a correction may pass the ends of what its surfaces hold."""

REMEMBERED = 5_000
"""Kinds of calls of one device whose lattices are kept."""

TABLES = 64
"""Tables of heights that are kept, of all lattices: of numbers of sequences, whose neighbours ask for the same ones."""

LARGEST = 100_000
"""Points of a table that is kept."""

Point = Sequence[Num]
"""A place on a lattice in units of its nodes, one number or array for each growth."""


def rising_seconds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, known: Lattices) -> Num:
    """The estimate of a call, which never takes less time than a smaller one of its kind.

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
    return own * exp(lattice.time(place, like) - like)


def _single_value(x: Num) -> Num:
    """An array of equal numbers as a number."""
    return _constant(x.ravel(), x) if getattr(x, "size", 0) else x


def _grid_of(place: Point) -> Hashable:
    """What tells a grid of places from others; None where it is no grid, or too large to be kept."""
    arrays = [x for x in place if not isinstance(x, (int, float))]
    if len({x.shape for x in arrays}) < 2 or max(x.size for x in arrays) > LARGEST:
        return None
    return tuple(x if isinstance(x, (int, float)) else (x.shape, blake2b(x.tobytes()).digest()) for x in place)


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
    """Logarithms of seconds at a place: by the formula alone, and of the estimate that never falls."""

    formula: Num
    time: Num


@dataclass(slots=True, eq=False)
class Lattice:
    """Times of one kind of calls that never fall. Of numbers only the nodes that they need are worked out, of arrays
    all.

    formulas: the formula's logarithm at single nodes, and seconds: its time at those whose own is not known; known:
    logarithms of nodes' own times, and of the largest below and the smallest above them. whole: arrays over all nodes
    of some growths. kinds, count, of: where rows of a table are of many kinds, extents of the smallest calls of all,
    how many these are, and the kind of each row; `smallest` is by row then. lowest, highest: corrections that none
    passes. raised, both: growths along which times are only raised, and the others; halved: the one along which twice
    as much takes at most twice as long.
    """

    model: KernelModel
    smallest: KernelCall
    machine: DeviceRates
    fitted: Fitted
    kinds: Mapping[str, Num] | None = None
    count: int = 1
    of: Num = None
    formulas: dict[tuple[int, ...], float] = field(default_factory=dict)
    seconds: dict[tuple[int, ...], float] = field(default_factory=dict)
    known: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)
    whole: dict[tuple[int, ...], Heights] = field(default_factory=dict)
    lowest: float = field(init=False)
    highest: float = field(init=False)
    raised: tuple[int, ...] = field(init=False)
    halved: tuple[int, ...] = field(init=False)
    both: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        ends = self._corrections()
        self.lowest, self.highest = sum([low for low, _ in ends]) - ROUNDING, sum([high for _, high in ends]) + ROUNDING
        if self.fitted.faster:  # a surface's part may be left out
            self.lowest, self.highest = min(self.lowest, 0.0), max(self.highest, 0.0)
        names = [axis.name for axis in self.model.growths]
        self.raised = tuple(i for i, name in enumerate(names) if name in self.model.only_raised)
        self.halved = tuple(i for i, name in enumerate(names) if name == self.model.halved and self.fitted.borrowed)
        self.both = tuple(i for i, name in enumerate(names) if name not in self.model.only_raised)

    def _corrections(self) -> list[tuple[float, float]]:
        """The least and the largest value of each surface that calls of the kind find: coordinates lie between those of
        the smallest and of the largest call. Where nodes are few, or kinds many, of all values.
        """
        if len(self.model.growths) < 2 or self.kinds is not None:
            return [(min(surface.values), max(surface.values)) for surface in self.fitted.surfaces]
        largest = self._call([axis.nodes - 1 for axis in self.model.growths])
        ends = [self.model.coordinates(call, self.machine) for call in (self.smallest, largest)]
        return [surface.ends_between(*ends) for surface in self.fitted.surfaces]

    def time(self, place: Point, formula: Num) -> Num:
        """The logarithm of a call's time that never falls. formula: the logarithm of its own by the formula."""
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
            grid = _grid_of(rest)
            return [self._table(at, rest, grid) for at in nodes]
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

    def _table(self, node: int, rest: Point, grid: Hashable) -> Heights:
        """Heights at a node of the first growth. Those over a grid of others are kept for calls beside this one."""
        if grid is None:
            return self._between([node, *rest], 1)
        return _TABLES.get((id(self), node, grid), lambda: (self, self._between([node, *rest], 1)))[1]

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
            at = tuple(node)
            return Heights(self._height(at), self._shared(at))
        sizes = tuple(
            1 if i in self.raised and isinstance(at, int) and at == 0 else axis.nodes
            for i, (at, axis) in enumerate(zip(node, self.model.growths, strict=True))
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
        least = formula + self._correction(call)
        for growth in self.raised:
            least = numpy.maximum.accumulate(least, axis=growth - len(sizes))
        most = least
        for growth in self.both:
            axis = growth - len(sizes)
            most = numpy.maximum.accumulate(most, axis=axis)
            least = numpy.flip(numpy.minimum.accumulate(numpy.flip(least, axis), axis=axis), axis)
        time = (most + least) / 2
        for growth in self.halved:
            axis, by = growth - len(sizes), numpy.arange(sizes[growth]) * self._twice(growth)
            each = time - by.reshape(-1, *[1] * (-axis - 1))
            fewer = numpy.minimum.accumulate(each, axis=axis)
            more = numpy.flip(numpy.maximum.accumulate(numpy.flip(each, axis), axis=axis), axis)
            time = time - each + (fewer + more) / 2
        return Heights(formula, time)

    def _correction(self, call: KernelCall) -> Num:
        """What the surfaces add to the formula's logarithm."""
        time = self.model.formula(call, self.machine, self.fitted.constants)
        return correction(self.model, call, self.machine, self.fitted, time)

    def _height(self, node: tuple[int, ...]) -> float:
        """The formula's logarithm at one node."""
        found = self.formulas.get(node)
        if found is None:
            time = self.model.formula(self._call(node), self.machine, self.fitted.constants)
            found = self.formulas[node] = _logarithm(time)
            self.seconds[node] = time
        return found

    def _own(self, node: tuple[int, ...]) -> float:
        """The time of one node by its own correction, whatever its neighbours take."""
        found = self.known.get(("own", node))
        if found is None:
            height = self._height(node)
            added = correction(self.model, self._call(node), self.machine, self.fitted, self.seconds.pop(node))
            found = self.known["own", node] = height + added
        return found

    def _most(self, node: tuple[int, ...], along: str = "all") -> float:
        """The largest time at or below a node, along all growths or those that are only raised. Only nodes are gone
        through whose formula, with the largest correction there can be, reaches it.
        """
        found = self.known.get((along, node))
        if found is None:
            found = self._own(node)
            for below in self._neighbours(self.raised if along == "raised" else range(len(node)), node, -1):
                if (along, below) in self.known or self._height(below) + self.highest > found:
                    found = max(found, self._most(below, along))
            self.known[along, node] = found
        return found

    def _least(self, node: tuple[int, ...]) -> float:
        """The smallest time at or above a node along all growths but those that are only raised, along which it is the
        largest at or below. Nodes are gone through whose formula with the smallest correction is no more.
        """
        found = self.known.get(("least", node))
        if found is None:
            found = self._most(node, "raised") if self.raised else self._own(node)
            for above in self._neighbours(self.both, node, 1):
                if ("least", above) in self.known or self._height(above) + self.lowest < found:
                    found = min(found, self._least(above))
            self.known["least", node] = found
        return found

    def _rising(self, node: tuple[int, ...]) -> float:
        """The time of one node that no smaller call passes."""
        return (self._most(node) + self._least(node)) / 2

    def _shared(self, node: tuple[int, ...]) -> float:
        """The same where twice as much along `halved` takes at most twice as long."""
        return (self._repeated(node) + self._part(node)) / 2 if self.halved else self._rising(node)

    def _repeated(self, node: tuple[int, ...]) -> float:
        """The shortest time of smaller calls, each repeated until it does the work of a node. Only nodes are gone
        through whose formula, with the smallest correction there can be, is short enough.
        """
        found = self.known.get(("repeated", node))
        if found is None:
            found, by = self._rising(node), self._twice(self.halved[0])
            for below in self._neighbours(self.halved, node, -1):
                if ("repeated", below) in self.known or self._height(below) + self.lowest + by < found:
                    found = min(found, self._repeated(below) + by)
            self.known["repeated", node] = found
        return found

    def _part(self, node: tuple[int, ...]) -> float:
        """The longest of the shares in larger calls that a node's work is of theirs."""
        found = self.known.get(("part", node))
        if found is None:
            found, by = self._rising(node), self._twice(self.halved[0])
            for above in self._neighbours(self.halved, node, 1):
                if ("part", above) in self.known or self._height(above) + self.highest - by > found:
                    found = max(found, self._part(above) - by)
            self.known["part", node] = found
        return found

    def _twice(self, growth: int) -> float:
        """The logarithm of how much more work one node of a growth is than the one before."""
        return self.model.growths[growth].step * math.log(2)

    def _neighbours(self, growths: Iterable[int], node: tuple[int, ...], way: int) -> Iterator[tuple[int, ...]]:
        """The nodes one step below (way -1) or above (1) along some growths."""
        for growth in growths:
            if 0 <= node[growth] + way < self.model.growths[growth].nodes:
                yield *node[:growth], node[growth] + way, *node[growth + 1 :]


Lattices = dict[Hashable, Lattice]
"""The lattices of one device, by fit and kind of calls."""

_TABLES = LastUsed[Hashable, tuple[Lattice, Heights]](TABLES)
"""Tables of heights by lattice (which is kept with its table, so that no other has its id), node and grid."""
