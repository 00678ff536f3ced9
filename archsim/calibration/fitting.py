"""Fits of a time model to measured kernels: constants first, then a smooth correction of what they leave.

Least squares in log time with soft-L1 weights (scale 0.1) and a weak prior at the usual constants, so that twenty
points suffice; surfaces by ridge regression on hat functions with a penalty on bends. Only NumPy is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.table import Group
from archsim.base.number import maximum
from archsim.calibration.least_squares import SOFT, loss, minimise
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import HOST, Fitted, KernelModel, kernel_seconds
from archsim.timing.classes.rising import rising_seconds
from archsim.timing.classes.surface import Axis, Surface
from archsim.timing.device import DeviceRates

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats, Ints

PRIOR = 0.2
"""Standard deviation, in log, of the prior on each constant; it weighs as much as one row."""

QUICK = 0.02
"""Share of rows that are quicker than where the search for the host's time starts."""

WORTH = 0.97
"""What must be left of the loss for the host's time to stand."""

LEAST_HOST_US = 12.0
"""Microseconds that a loop takes to launch from the host, at the least: two launches and the framework's dispatch."""

RISES = 10.0
"""Weight of one fall, in rows: a class whose calls do not get shorter as they grow has a surface that does not either.
"""

NODES = 30_000
"""Nodes of all kinds of calls whose steps are held up; kinds with many rows come first."""

COSTS = 1.05
"""Factor on the rows' mean distance, in log, from which on reading a surface without its falls costs something."""

ROUNDS = 4
"""How often outliers are weighted anew."""

FALLING = 12
"""The same at the most where falls are held up: which of them there are changes as they go."""

STILL = 1e-3
"""Change of a surface's values, in log, below which nothing changes any more."""

FOLDS = 5
TAIL = 0.1
"""Share of rows outside each end of the interval."""


class Options(NamedTuple):
    """How hard surfaces are held. ridge: towards zero. bend: against second differences. surfaces: fit any. free:
    coordinates along which bends cost nothing. fixed: constants that are known from elsewhere.
    """

    ridge: float = 0.5
    bend: float = 2.0
    surfaces: bool = True
    free: tuple[str, ...] = ()
    fixed: Mapping[str, float] = MappingProxyType({})


USUAL = Options()


def fit(model: KernelModel, group: Group, machine: DeviceRates, options: Options = USUAL) -> Fitted:
    """Constants and surfaces from all rows of a group."""
    constants = fit_constants(model, group, machine, options.fixed)
    fitted = Fitted(constants=constants)
    if not (options.surfaces and model.grids):
        return fitted
    rest = np.log(group.seconds) - np.log(model.formula(group.call, machine, constants))
    at = model.coordinates(group.call, machine)
    surfaces = fit_surfaces(model, at, rest, options)
    if model.rising:
        surfaces = (monotone_surface(model, group, machine, constants, surfaces[0]), *surfaces[1:])
        return Fitted(constants=constants, surfaces=surfaces)
    plain = Fitted(constants=constants, surfaces=surfaces)
    return held_up(model, group, machine, plain, options) if model.growths else plain


def held_up(model: KernelModel, group: Group, machine: DeviceRates, plain: Fitted, options: Options) -> Fitted:
    """A fit whose surfaces do not fall as calls grow, where reading `plain` without its falls costs something: there a
    few rows that are slower than larger calls would count as much as all of these.
    """
    truth, call = np.log(group.seconds), group.call

    def off(seconds: Floats) -> float:
        return float(np.mean(np.abs(np.log(seconds) - truth)))

    as_read = off(estimated_seconds(model, call, machine, plain))
    if as_read <= COSTS * off(kernel_seconds(model, call, machine, plain)):
        return plain
    rest = truth - np.log(model.formula(call, machine, plain.constants))
    steps = steps_of_growth(model, group, machine, plain.constants)
    held = plain._replace(surfaces=fit_surfaces(model, model.coordinates(call, machine), rest, options, steps))
    return held if off(estimated_seconds(model, call, machine, held)) < as_read else plain


def fit_constants(
    model: KernelModel, group: Group, machine: DeviceRates, fixed: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """Least squares in the logarithms of the constants, kept inside their physical ranges.

    Where a class's rows may have been launched from the host, its time is sought too, from the quickest rows on; it
    stands where rows are told clearly better with it.
    """
    found, left = _search(model, group, machine, fixed, HOST.usual)
    if "host_us" not in model.constants or "host_us" in fixed:
        return found
    other, rest = _search(model, group, machine, fixed, 1e6 * float(np.quantile(group.seconds, QUICK)))
    return other if rest < WORTH * left and other["host_us"] > LEAST_HOST_US else found


def _search(
    model: KernelModel, group: Group, machine: DeviceRates, fixed: Mapping[str, float], host_us: float
) -> tuple[dict[str, float], float]:
    """The constants that fit best, from the host's time given on, and the loss of the rows that remains."""
    every = model.constants_of(group.key.dtype)
    names = [name for name in every if name not in fixed and (name != "host_us" or host_us > HOST.usual)]
    low, high = (np.log([getattr(every[n], end) for n in names]) for end in ("low", "high"))
    centre = np.log([every[n].usual for n in names])
    truth = np.log(group.seconds)
    known = {"host_us": HOST.usual, **fixed} if "host_us" in every else dict(fixed)

    def rows(x: Floats) -> Floats:
        values = {**known, **dict(zip(names, np.exp(x).tolist(), strict=True))}
        rest: Floats = np.log(model.formula(group.call, machine, values)) - truth
        return rest

    def residuals(x: Floats) -> Floats:
        held = [name != "host_us" for name in names]
        return np.concatenate([rows(x), ((x - centre) / PRIOR * SOFT)[held]])

    start = np.log([host_us if n == "host_us" else every[n].start or every[n].usual for n in names])
    x = minimise(residuals, np.clip(start, low, high), low, high)
    values = {**known, **dict(zip(names, np.exp(x).tolist(), strict=True))}
    return {name: float(f"{values[name]:.5g}") for name in every}, loss(rows(x))


class Steps(NamedTuple):
    """Calls and the same ones grown by one node. formula: what the formula's logarithm rises by; before, after: where
    both lie on the grids.
    """

    formula: Floats
    before: Mapping[str, Floats]
    after: Mapping[str, Floats]


def steps_of_growth(model: KernelModel, group: Group, machine: DeviceRates, constants: Mapping[str, float]) -> Steps:
    """Every step along every growth, from the smallest call to the largest of the rows, of the kinds of calls that most
    rows are of.
    """
    call, shape = group.call, group.seconds.shape
    at, smallest = model.growth(call), model.smallest(call)
    extents = {n: np.broadcast_to(np.asarray(v, float), shape) for n, v in smallest.dims.items()}
    places = [np.broadcast_to((at[a.name] - a.start) / a.step, shape) for a in model.growths]
    nodes = [np.arange(min(int(np.ceil(x.max())) + 1, a.nodes)) for x, a in zip(places, model.growths, strict=True)]
    lattice = [x.ravel() for x in np.meshgrid(_rows_of_kinds(extents, nodes), *nodes, indexing="ij")]
    sides: list[list[tuple[Floats, Mapping[str, Floats]]]] = [[], []]
    for along, line in enumerate(nodes):
        here = lattice[1 + along] < line[-1]
        for side in (0, 1):
            row, *places = (x[here] + (side if i == 1 + along else 0) for i, x in enumerate(lattice))
            growth = {a.name: a.start + a.step * x for a, x in zip(model.growths, places, strict=True)}
            grown = model.grown(smallest._replace(dims={n: x[row] for n, x in extents.items()}), growth)
            where = {n: np.broadcast_to(x, row.shape) for n, x in model.coordinates(grown, machine).items()}
            sides[side].append((np.broadcast_to(np.log(model.formula(grown, machine, constants)), row.shape), where))
    before, after = (np.concatenate([formula for formula, _ in side]) for side in sides)
    ends = ({n: np.concatenate([w[n] for _, w in side]) for n in side[0][1]} for side in sides)
    return Steps(after - before, *ends)


def _rows_of_kinds(smallest: Mapping[str, Floats], nodes: Sequence[Ints]) -> Ints:
    """A row of each kind of calls, those with the most rows first, as far as their nodes may be. smallest: extents of
    the smallest call of every row's kind.
    """
    kinds = np.stack(list(smallest.values()), 1).round(6)
    _, first, counts = np.unique(kinds, axis=0, return_index=True, return_counts=True)
    many = max(NODES // int(np.prod([len(line) for line in nodes])), 1)
    found: Ints = first[np.argsort(-counts, kind="stable")[:many]]
    return found


def fit_surfaces(
    model: KernelModel, at: Mapping[str, Floats], rest: Floats, options: Options, falls: Steps | None = None
) -> tuple[Surface, ...]:
    """The model's surfaces together, by reweighted ridge regression on the log-residuals. falls: steps along which the
    time is not to fall, which weigh as much as `RISES` rows where it does.
    """
    empty = [Surface(axes, ()) for axes in model.grids]
    sizes = [int(np.prod([axis.nodes for axis in s.axes])) for s in empty]
    penalty = np.zeros((sum(sizes), sum(sizes)))
    offset = 0
    for surface, size in zip(empty, sizes, strict=True):
        penalty[offset : offset + size, offset : offset + size] = _bending(surface, options)
        offset += size
    rows = Linear(*_corners(empty, at), rest)
    steps = None
    if falls is not None:
        (one, low), (other, high) = _corners(empty, falls.before), _corners(empty, falls.after)
        steps = Linear(np.concatenate([one, other], 1), np.concatenate([-low, high], 1), -falls.formula)
    values = _ridge(rows, penalty, steps)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    return tuple(Surface(s.axes, part.tolist()) for s, part in zip(empty, parts, strict=True))


class Linear(NamedTuple):
    """Sums of a few values of surfaces, times `heights`, and what they should be."""

    columns: Ints
    heights: Floats
    target: Floats

    def left(self, values: Floats) -> Floats:
        """What is missing to the targets."""
        found: Floats = self.target - np.sum(values[self.columns] * self.heights, axis=1)
        return found

    def normal(self, weights: Floats, size: int) -> tuple[Floats, Floats]:
        """Both sides of the normal equations of weighted rows."""
        some = weights > 0
        columns, heights, weights = self.columns[some], self.heights[some], weights[some]
        pairs = (columns[:, :, None] * size + columns[:, None, :]).ravel()
        products = heights[:, :, None] * heights[:, None, :] * weights[:, None, None]
        flat = np.asarray(np.bincount(pairs, products.ravel(), size * size), float)
        right = np.asarray(
            np.bincount(columns.ravel(), (heights * (weights * self.target[some])[:, None]).ravel(), size), float
        )
        return flat.reshape(size, size), right


def _corners(surfaces: Sequence[Surface], at: Mapping[str, Floats]) -> tuple[Ints, Floats]:
    """The values of all surfaces that points are made of, as columns of one list, and their heights."""
    offset, columns, heights = 0, [], []
    for surface in surfaces:
        for index, height in surface.corners(at):
            columns.append(np.asarray(index + offset, int))
            heights.append(np.asarray(height, float))
        offset += int(np.prod([axis.nodes for axis in surface.axes]))
    shape = np.broadcast_shapes(*(x.shape for x in columns))
    spread = [[np.broadcast_to(x, shape) for x in each] for each in (columns, heights)]
    return np.stack(spread[0], 1), np.stack(spread[1], 1)


def _ridge(rows: Linear, penalty: Floats, steps: Linear | None = None) -> Floats:
    """Solves the penalised normal equations, reweighting outliers as soft-L1 does, and steps that fall."""
    size = len(penalty)
    values: Floats = np.zeros(size)
    for _ in range(ROUNDS if steps is None else FALLING):
        weights: Floats = 1 / np.sqrt(1 + (rows.left(values) / SOFT) ** 2)
        left, right = rows.normal(weights, size)
        if steps is not None:
            falls: Floats = np.where(steps.left(values) > 0, RISES, 0.0)
            held, to = steps.normal(falls, size)
            left, right = left + held, right + to
        before, values = values, np.linalg.solve(left + penalty, right).astype(np.float64)
        if steps is not None and float(np.abs(values - before).max()) < STILL:
            break
    return values


def _bending(surface: Surface, options: Options) -> Floats:
    """ridge·I + bend·Σ D₂ᵀD₂ along each axis of more than two nodes."""
    nodes = [axis.nodes for axis in surface.axes]
    total = options.ridge * np.eye(int(np.prod(nodes))) * 0.1
    for position, count in enumerate(nodes):
        if count < 3 or surface.axes[position].name in options.free:
            continue
        second = np.diff(np.eye(count), 2, axis=0)
        before, after = int(np.prod(nodes[:position])), int(np.prod(nodes[position + 1 :]))
        total += options.bend * 0.1 * np.kron(np.kron(np.eye(before), second.T @ second), np.eye(after))
    return total


# ---------------------------------------------------------------------- more work never takes less time
def monotone_surface(
    model: KernelModel, group: Group, machine: DeviceRates, constants: Mapping[str, float], surface: Surface
) -> Surface:
    """The surface nearest to `surface` with which the model's time does not fall along `model.rising`.

    Only lines of nodes that the group has rows near are changed; elsewhere the surface is nothing or an extension.
    """
    names = [axis.name for axis in surface.axes]
    shape = [axis.nodes for axis in surface.axes]
    along = names.index(model.rising)
    values = np.moveaxis(np.array(surface.values).reshape(shape), along, -1)
    weights = np.moveaxis(_weights(model, group, machine, surface).reshape(shape), along, -1)
    others = [axis for axis in surface.axes if axis.name != model.rising]
    line = _nodes(surface.axes[along])
    for place in np.ndindex(*values.shape[:-1]):
        if not weights[place].any():
            continue
        at = {axis.name: np.full(len(line), _nodes(axis)[i]) for axis, i in zip(others, place, strict=True)}
        call = model.probe(group.call, {**at, model.rising: line})
        plain = np.log(model.formula(call, machine, constants))
        values[place] = isotonic(plain + values[place], weights[place] + 1e-3) - plain
    return Surface(surface.axes, np.moveaxis(values, -1, along).ravel().tolist())


def _nodes(axis: Axis) -> Floats:
    return axis.start + axis.step * np.arange(axis.nodes, dtype=np.float64)


def _weights(model: KernelModel, group: Group, machine: DeviceRates, surface: Surface) -> Floats:
    """How many rows lie near each node."""
    found = np.zeros(int(np.prod([axis.nodes for axis in surface.axes])))
    for index, height in surface.corners(model.coordinates(group.call, machine)):
        np.add.at(found, index, height)
    return found


def isotonic(values: Floats, weights: Floats) -> Floats:
    """The non-decreasing sequence nearest to `values` in weighted squares: neighbours that fall are pooled."""
    pools: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, weight, count = pools.pop()
            mean = (pools[-1][0] * pools[-1][1] + value * weight) / (pools[-1][1] + weight)
            pools[-1] = [mean, pools[-1][1] + weight, pools[-1][2] + count]
    return np.concatenate([np.full(int(count), value) for value, _, count in pools])


# ---------------------------------------------------------------------- errors on unseen shapes
def roofline(model: KernelModel, call: KernelCall, machine: DeviceRates) -> Floats:
    """Seconds of the class's own bound: of arithmetic, memory and link the longest, at datasheet peaks."""
    compute, memory, link = model.bound(call, machine)
    longest: Floats = np.maximum(np.maximum(compute, memory), link)
    return longest


def _families(group: Group, names: Sequence[str]) -> Ints:
    """The number of each row's family."""
    keys = np.stack([group.dims[name] for name in names], axis=1)
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def folds(model: KernelModel, group: Group, count: int = FOLDS, seed: int = 0) -> Iterator[tuple[Bools, Bools]]:
    """Masks of training and held-out rows, whole shape families together."""
    family = _families(group, model.families)
    if family.max() == 0:  # one family is all there is: single shapes are held out
        family = _families(group, model.dims)
    order = np.random.default_rng(seed).permutation(family.max() + 1)
    part = order[family] % count
    for fold in range(count):
        if (part == fold).any() and (part != fold).any():
            yield part != fold, part == fold


def out_of_fold(model: KernelModel, group: Group, machine: DeviceRates, options: Options = USUAL) -> Floats:
    """Predictions of every row by a fit that has not seen its family; NaN where one family is all there is."""
    found = np.full(len(group.seconds), np.nan)
    for seen, unseen in folds(model, group):
        fitted = fit(model, group.take(seen), machine, options)
        found[unseen] = estimated_seconds(model, group.take(unseen).call, machine, fitted)
    return found


def estimated_seconds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted) -> Floats:
    """What a fit estimates: never less than of a smaller call of the same kind, nor than the physical bound."""
    found: Floats = maximum(rising_seconds(model, call, machine, fitted, {}), roofline(model, call, machine))
    return found


def unidentified_constants(
    model: KernelModel, group: Group, machine: DeviceRates, constants: Mapping[str, float], least: float = 0.5
) -> tuple[str, ...]:
    """Constants that the rows say little about: their slopes, with the others' share taken out, are near zero.

    `least` is the length of what remains, in units of log time summed over rows as a root of squares.
    """
    names = [name for name in model.constants_of(group.key.dtype) if name != "host_us"]
    here = np.log(model.formula(group.call, machine, constants))
    slopes = []
    for name in names:
        moved = {**constants, name: constants[name] * 1.01}
        slopes.append((np.log(model.formula(group.call, machine, moved)) - here) / np.log(1.01))
    matrix = np.stack(slopes, axis=1)
    weak = []
    for position, name in enumerate(names):
        others = np.delete(matrix, position, axis=1)
        share, *_ = np.linalg.lstsq(others, matrix[:, position], rcond=None)
        if float(np.linalg.norm(matrix[:, position] - others @ share)) < least:
            weak.append(f"{name} is not identifiable from these {len(matrix)} rows: its prior decides")
    return tuple(weak)


def unused_constants(
    model: KernelModel, group: Group, machine: DeviceRates, constants: Mapping[str, float]
) -> tuple[str, ...]:
    """Constants that no row depends on, at the usual ones or at those found, such as the network's share where no group
    of ranks leaves a node.
    """
    every = model.constants_of(group.key.dtype)
    places = ({name: one.usual for name, one in every.items()}, constants)

    def moves(name: str, at: Mapping[str, float]) -> bool:
        here, there = (model.formula(group.call, machine, {**at, name: at[name] * by}) for by in (1.0, 1.01))
        return bool(np.any(here != there))

    return tuple(name for name in every if not any(moves(name, at) for at in places))


class Errors(NamedTuple):
    """Of predictions against measurements: shares, not per cent. bias: median signed error, + is too slow."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    time_weighted: float


def errors(predicted: Floats, measured: Floats) -> Errors:
    """Error figures of rows that have both."""
    known = np.isfinite(predicted) & np.isfinite(measured)
    predicted, measured = predicted[known], measured[known]
    signed = predicted / measured - 1
    size = np.abs(signed)
    weighted = float(np.abs(predicted - measured).sum() / measured.sum())
    return Errors(
        rows=len(size), median=float(np.median(size)), mean=float(np.mean(size)), p90=float(np.quantile(size, 0.9)),
        bias=float(np.median(signed)), time_weighted=weighted,
    )  # fmt: skip


def quantiles(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Log-residuals measured/predicted at both ends of the 80 % interval, by split-conformal ranks."""
    rest = np.sort(np.log(measured / predicted)[np.isfinite(predicted)])
    count = len(rest)
    rank = min(count - 1, int(np.ceil((1 - TAIL) * (count + 1))) - 1)
    return float(rest[count - 1 - rank]), float(rest[rank])
