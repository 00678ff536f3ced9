"""How far off a fit is when it stands for what it was not fitted to: another engine, format or device, or no fit.

Every group of a table is predicted from a store that lacks what the group would otherwise use; what remains of the
nearest entry is then what users of an unmeasured device or engine get, and its errors are their interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.table import Group
from archsim.base.json_types import JsonObject
from archsim.calibration import fitting
from archsim.calibration.calibrate import FEW, prepare_rows
from archsim.spec.hardware import Hardware
from archsim.timing.calibration import Entry, FitQuery, Store
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import bounded_kernel_seconds
from archsim.timing.kernel_timer import format_cost, level_of, nearest, split_engine, timer

if TYPE_CHECKING:
    from archsim.base.arrays import Floats, Ints

MOST = 400
"""Rows of one group that are looked at, so that no group outweighs the others."""

WAITING = 3e-6
"""Host time in a group's kernels from which on it says more of the loop that timed it than of the device, in s."""

Keeps = Callable[[Entry, FitQuery], bool]

WITHOUT: Mapping[str, Keeps] = {
    "engine": lambda e, w: e.device == w.device.id and e.engine != w.engine and format_cost(e, w) == 0,
    "format": lambda e, w: e.device == w.device.id and format_cost(e, w) > 0,
    "device": lambda e, w: e.device != w.device.id and format_cost(e, w) == 0,
    "far": lambda e, w: e.device != w.device.id and format_cost(e, w) > 0,
    "datasheet": lambda e, w: False,
}
"""Entries that remain at each grade."""


def levels(groups: Iterable[Group], hardware: Mapping[str, Hardware], known: Store) -> dict[str, JsonObject]:
    """By class and grade: the interval, whether surfaces help, and the median error that was seen."""
    found: dict[str, dict[str, list[GradePredictions]]] = {}
    for group in groups:
        if group.key.op not in MODELS or group.key.device not in hardware:
            continue
        usable = prepare_rows(MODELS[group.key.op], group)
        if len(usable.seconds) >= FEW // 2:
            usable = _thin(usable)
            for grade, rows in _predict_by_grade(usable, hardware[group.key.device], known).items():
                name = level_of(group.key.op, group.key.dtype)
                found.setdefault(name, {}).setdefault(grade, []).append(rows)
    return {name: {grade: _level(parts) for grade, parts in by.items()} for name, by in found.items()}


class GradePredictions(NamedTuple):
    """Rows of one group at one grade: predicted by constants alone and with surfaces, their regimes, and the truth."""

    plain: Floats
    full: Floats
    regime: Ints
    truth: Floats


def _thin(group: Group) -> Group:
    """Every so-manieth row."""
    step = max(1, len(group.seconds) // MOST)
    return group.take(np.arange(0, len(group.seconds), step))


def _predict_by_grade(group: Group, hardware: Hardware, known: Store) -> dict[str, GradePredictions]:
    """Predictions at each grade that leaves an entry."""
    model, key = MODELS[group.key.op], group.key
    clock = timer(hardware, key.engine)
    stack = split_engine(key.engine)
    query = FitQuery(clock.device, *stack, key.op, key.dtype, key.kv_dtype, model.variant(key.kernel))
    if nearest(known, query).host_s > WAITING:
        return {}
    bound = fitting.roofline(model, group.call, clock.machine)
    found = {}
    for grade, keeps in WITHOUT.items():
        left = replace(known, entries=tuple(e for e in known.entries if e.op == key.op and keeps(e, query)))
        if not left.entries and grade != "datasheet":
            continue
        plain, full = (
            bounded_kernel_seconds(model, group.call, clock.machine, nearest(left, query, surfaces=carried).fitted)
            for carried in (False, True)
        )
        found[grade] = GradePredictions(plain, full, model.regime(group.call, bound / full), group.seconds)
    return found


def _level(parts: list[GradePredictions]) -> JsonObject:
    """The interval by regime, whether surfaces help, and the median error."""
    plain, full, regime, truth = (np.concatenate(column) for column in zip(*parts, strict=True))
    errors = [float(np.median(np.abs(predicted / truth - 1))) for predicted in (plain, full)]
    carried = errors[1] <= errors[0]
    best = full if carried else plain
    interval = {}
    for code in range(4):
        here = regime == code
        here = here if here.sum() >= FEW else np.ones(len(truth), bool)
        low, high = fitting.quantiles(best[here], truth[here])
        interval[str(code)] = [round(min(low, 0.0), 3), round(max(high, 0.0), 3)]
    return {"interval": interval, "surfaces": carried, "median": round(min(errors), 4)}
