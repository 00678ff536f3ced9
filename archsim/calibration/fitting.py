"""Fits of a time model to measured kernels: constants first, then a smooth correction of what they leave.

Least squares in log time with soft-L1 weights (scale 0.1) and a weak prior at the usual constants, so that twenty
points suffice; surfaces by ridge regression on hat functions with a penalty on bends. Only NumPy is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from archsim.accuracy.table import Group
from archsim.calibration.isotonic import risen
from archsim.timing.classes.model import Fitted, KernelModel, bounded_kernel_seconds
from archsim.timing.classes.surface import Surface
from archsim.timing.roofline import Machine

SOFT = 0.1
"""Log-residual from which on a row counts less than quadratically."""

PRIOR = 0.2
"""Standard deviation, in log, of the prior on each constant; it weighs as much as one row."""

FOLDS = 5
TAIL = 0.1
"""Share of rows outside each end of the interval."""


class Options(NamedTuple):
    """How hard surfaces are held. ridge: towards zero. bend: against second differences. surfaces: fit any. free:
    coordinates along which bends cost nothing.
    """

    ridge: float = 0.5
    bend: float = 2.0
    surfaces: bool = True
    free: tuple[str, ...] = ()


USUAL = Options()


def fit(model: KernelModel, group: Group, machine: Machine, options: Options = USUAL) -> Fitted:
    """Constants and surfaces from all rows of a group."""
    constants = fit_constants(model, group, machine)
    fitted = Fitted(constants=constants)
    if not (options.surfaces and model.grids):
        return fitted
    rest = np.log(group.seconds) - np.log(model.formula(group.call, machine, constants))
    surfaces = fit_surfaces(model, model.coordinates(group.call, machine), rest, options)
    if model.rising:
        surfaces = (risen(model, group, machine, constants, surfaces[0]), *surfaces[1:])
    return Fitted(constants=constants, surfaces=surfaces)


def fit_constants(model: KernelModel, group: Group, machine: Machine, rounds: int = 40) -> dict[str, float]:
    """Levenberg-Marquardt in the logarithms of the constants, kept inside their physical ranges."""
    names = list(model.constants)
    low, high = (np.log([getattr(model.constants[n], end) for n in names]) for end in ("low", "high"))
    centre = np.log([model.constants[n].usual for n in names])
    truth = np.log(group.seconds)

    def residuals(x: Any) -> Any:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        rest = np.log(model.formula(group.call, machine, values)) - truth
        return np.concatenate([rest, (x - centre) / PRIOR * SOFT])

    x, damping = np.log([model.constants[n].start or model.constants[n].usual for n in names]), 1e-2
    r = residuals(x)
    for _ in range(rounds):
        weights = 1 / np.sqrt(1 + (r / SOFT) ** 2)
        slopes = np.stack([(residuals(x + step) - r) / 1e-4 for step in 1e-4 * np.eye(len(x))], axis=1)
        normal, gradient = slopes.T @ (slopes * weights[:, None]), slopes.T @ (r * weights)
        moved = False
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), gradient)
            tried = np.clip(x - step, low, high)
            new = residuals(tried)
            if loss(new) < loss(r) - 1e-12:
                moved, damping = True, max(damping / 5, 1e-9)
                break
            damping *= 5
        if not moved:
            break
        change = float(np.abs(tried - x).max())
        x, r = tried, new
        if change < 1e-5:
            break
    return {name: float(f"{value:.5g}") for name, value in zip(names, np.exp(x).tolist(), strict=True)}


def loss(residuals: Any) -> float:
    return float(np.sum(np.sqrt(1 + (residuals / SOFT) ** 2) - 1))


def fit_surfaces(
    model: KernelModel, at: Mapping[str, Any], rest: Any, options: Options
) -> tuple[Surface, ...]:
    """The model's surfaces together, by reweighted ridge regression on the log-residuals."""
    empty = [Surface(axes, ()) for axes in model.grids]
    sizes = [int(np.prod([axis.nodes for axis in s.axes])) for s in empty]
    penalty = np.zeros((sum(sizes), sum(sizes)))
    offset = 0
    columns, heights = [], []
    for surface, size in zip(empty, sizes, strict=True):
        for index, height in surface.corners(at):
            columns.append(index + offset)
            heights.append(height)
        penalty[offset : offset + size, offset : offset + size] = _bending(surface, options)
        offset += size
    values = _ridge(np.stack(columns, 1), np.stack(heights, 1), rest, penalty)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    return tuple(Surface(s.axes, part.tolist()) for s, part in zip(empty, parts, strict=True))


def _ridge(columns: Any, heights: Any, rest: Any, penalty: Any, rounds: int = 4) -> Any:
    """Solves the penalised normal equations, reweighting outliers as soft-L1 does."""
    size = len(penalty)
    values = np.zeros(size)
    pairs = (columns[:, :, None] * size + columns[:, None, :]).reshape(len(rest), -1)
    products = (heights[:, :, None] * heights[:, None, :]).reshape(len(rest), -1)
    for _ in range(rounds):
        left = rest - np.sum(values[columns] * heights, axis=1)
        weights = 1 / np.sqrt(1 + (left / SOFT) ** 2)
        flat = np.bincount(pairs.ravel(), (products * weights[:, None]).ravel(), size * size)
        right = np.bincount(columns.ravel(), (heights * (weights * rest)[:, None]).ravel(), size)
        values = np.linalg.solve(flat.reshape(size, size) + penalty, right)
    return values


def _bending(surface: Surface, options: Options) -> Any:
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


def _families(group: Group, names: Sequence[str]) -> Any:
    """The number of each row's family."""
    keys = np.stack([group.dims[name] for name in names], axis=1)
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def folds(model: KernelModel, group: Group, count: int = FOLDS, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    """Masks of training and held-out rows, whole shape families together."""
    family = _families(group, model.families)
    if family.max() == 0:  # one family is all there is: single shapes are held out
        family = _families(group, model.dims)
    order = np.random.default_rng(seed).permutation(family.max() + 1)
    part = order[family] % count
    for fold in range(count):
        if (part == fold).any() and (part != fold).any():
            yield part != fold, part == fold


def out_of_fold(model: KernelModel, group: Group, machine: Machine, options: Options = USUAL) -> Any:
    """Predictions of every row by a fit that has not seen its family; NaN where one family is all there is."""
    found = np.full(len(group.seconds), np.nan)
    for seen, unseen in folds(model, group):
        fitted = fit(model, group.take(seen), machine, options)
        found[unseen] = bounded_kernel_seconds(model, group.take(unseen).call, machine, fitted)
    return found


def unidentified(
    model: KernelModel, group: Group, machine: Machine, constants: Mapping[str, float], least: float = 0.5
) -> tuple[str, ...]:
    """Constants that the rows say little about: their slopes, with the others' share taken out, are near zero.

    `least` is the length of what remains, in units of log time summed over rows as a root of squares.
    """
    names = list(model.constants)
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


class Errors(NamedTuple):
    """Of predictions against measurements: shares, not per cent. bias: median signed error, + is too slow."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    time_weighted: float


def errors(predicted: Any, measured: Any) -> Errors:
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


def quantiles(predicted: Any, measured: Any) -> tuple[float, float]:
    """Log-residuals measured/predicted at both ends of the 80 % interval, by split-conformal ranks."""
    rest = np.sort(np.log(measured / predicted)[np.isfinite(predicted)])
    count = len(rest)
    rank = min(count - 1, int(np.ceil((1 - TAIL) * (count + 1))) - 1)
    return float(rest[count - 1 - rank]), float(rest[rank])
