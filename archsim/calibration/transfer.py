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
from archsim.timing.kernel_timer import ELSEWHERE as OTHER_DEVICE
from archsim.timing.kernel_timer import format_cost, level_of, nearest, split_engine, timer

if TYPE_CHECKING:
    from archsim.base.arrays import Floats, Ints

MOST = 400
"""Rows of one group that are looked at, so that no group outweighs the others."""

ENOUGH = 4
"""Devices from which on both ends of an interval are told apart."""

WAITING = 3.0
"""Host time of a group's rows from which on it says more of the loop that timed it than of the device, in us."""

Keeps = Callable[[Entry, FitQuery], bool]

WITHOUT: Mapping[str, Keeps] = {
    "engine": lambda e, w: e.device == w.device.id and e.engine != w.engine and format_cost(e, w) == 0,
    "format": lambda e, w: e.device == w.device.id and format_cost(e, w) > 0,
    "device": lambda e, w: _elsewhere(e, w) and e.memory == w.device.memory and format_cost(e, w) == 0,
    "class": lambda e, w: _elsewhere(e, w) and e.memory != w.device.memory and format_cost(e, w) == 0,
    "far": lambda e, w: _elsewhere(e, w) and format_cost(e, w) > 0,
    "datasheet": lambda e, w: False,
}
"""Entries that remain at each grade."""

APART = 2.5
"""How many times as long an engine's kernels take as those of the engine that would stand for it, from which on theirs
is another algorithm: such an engine has fits of its own, and says nothing of engines that have none."""


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
    return {
        name: {grade: _level(alike) for grade, parts in by.items() if (alike := _alike(grade, parts))}
        for name, by in found.items()
    }


def _alike(grade: str, parts: list[GradePredictions]) -> list[GradePredictions]:
    """The groups that say what a grade costs: of other devices those that the same engine predicts, where there are
    any; of other engines those whose kernels are of one kind.
    """
    if grade in OTHER_DEVICE:
        return [part for part in parts if part.own] or parts
    return [part for part in parts if not part.apart] if grade == "engine" else parts


class Carried(NamedTuple):
    """What of an entry is carried over: its surfaces, and how far its constants."""

    surfaces: bool
    trust: float


HERE = (Carried(False, 1.0), Carried(True, 1.0))
"""On the device of the entry: its constants, with or without surfaces."""

ELSEWHERE = (*HERE, Carried(False, 0.5), Carried(False, 0.0))
"""On another: also constants halfway to the usual ones of the class, and these alone."""


class GradePredictions(NamedTuple):
    """Rows of one group at one grade: its device, predictions by what is carried over, their regimes, and the truth.
    own: whether they were predicted by fits of the same engine.
    """

    device: str
    by_carried: Mapping[Carried, Floats]
    regime: Ints
    truth: Floats
    own: bool = False

    @property
    def apart(self) -> bool:
        """Whether the rows are of another algorithm than what they were predicted by."""
        best = min(abs(float(np.median(np.log(self.truth / times)))) for times in self.by_carried.values())
        return best > float(np.log(APART))


def _elsewhere(entry: Entry, query: FitQuery) -> bool:
    return entry.device not in ("", query.device.id) and not entry.local


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
    if nearest(known, query).fitted.constants.get("host_us", 0.0) > WAITING:
        return {}
    bound = fitting.roofline(model, group.call, clock.machine)
    found = {}
    lone = model.local(group.call, clock.machine)
    for grade, keeps in WITHOUT.items():
        left = _left(known, query, grade, keeps)
        if grade != "datasheet" and (not left.entries or (lone and grade in OTHER_DEVICE)):
            continue
        own = any(entry.engine == query.engine for entry in left.entries)
        by_carried = {}
        for carried in ELSEWHERE if grade in OTHER_DEVICE else HERE:
            fit = nearest(left, query, carried.surfaces, carried.trust).fitted
            by_carried[carried] = bounded_kernel_seconds(model, group.call, clock.machine, fit)
        regime = model.regime(group.call, bound / by_carried[HERE[0]])
        found[grade] = GradePredictions(key.device, by_carried, regime, group.seconds, own)
    return found


def _left(known: Store, query: FitQuery, grade: str, keeps: Keeps) -> Store:
    """The store without what a grade leaves out; of another device what the same engine has there, if anything, since
    what another engine adds is an error of its own.
    """
    entries = tuple(entry for entry in known.by_op.get(query.op, ()) if keeps(entry, query))
    same = tuple(entry for entry in entries if entry.engine == query.engine)
    return replace(known, entries=(same or entries) if grade in OTHER_DEVICE else entries)


def _level(parts: list[GradePredictions]) -> JsonObject:
    """The interval by regime, what is best carried over, and the median error that it leaves."""
    truth, regime = np.concatenate([p.truth for p in parts]), np.concatenate([p.regime for p in parts])
    predicted = {each: np.concatenate([p.by_carried[each] for p in parts]) for each in parts[0].by_carried}
    errors = {each: float(np.median(np.abs(values / truth - 1))) for each, values in predicted.items()}
    carried = min(errors, key=lambda each: errors[each])
    best = predicted[carried]
    even = _few(parts)
    interval = {}
    for code in range(4):
        here = regime == code
        here = here if here.sum() >= FEW else np.ones(len(truth), bool)
        low, high = _ends(best[here], truth[here], even)
        interval[str(code)] = [round(min(low, 0.0), 3), round(max(high, 0.0), 3)]
    level: JsonObject = {"interval": interval, **carried._asdict(), "median": round(errors[carried], 4)}
    return level | {"errors": _level_errors(parts, carried)}


def _few(parts: list[GradePredictions]) -> bool:
    """Whether errors are of few devices: those of one are about the opposite of another's, and a further device may lie
    on either side.
    """
    return 1 < len({part.device for part in parts}) < ENOUGH


def _ends(predicted: Floats, truth: Floats, even: bool) -> tuple[float, float]:
    """Both ends of the interval. even: as wide on either side."""
    if not even:
        return fitting.quantiles(predicted, truth)
    rest = np.abs(np.log(truth / predicted))
    half = float(np.quantile(rest, 1 - 2 * fitting.TAIL))
    return -half, half


def _level_errors(parts: list[GradePredictions], carried: Carried) -> dict[str, float]:
    """Error figures of a grade: rows, devices, median, p90, bias; the width of its interval, as a factor; and the share
    of each device's rows inside the interval that the other devices show (of one device alone: its own).
    """
    predicted, truth = (np.concatenate(column) for column in ([p.by_carried[carried] for p in parts],
                                                              [p.truth for p in parts]))  # fmt: skip
    device = np.concatenate([np.full(len(p.truth), p.device) for p in parts])
    inside, even = np.zeros(len(truth), bool), _few(parts)
    for name in np.unique(device):
        here = device == name
        others = ~here if (~here).any() else here
        low, high = _ends(predicted[others], truth[others], even)
        rest = np.log(truth[here] / predicted[here])
        inside[here] = (rest >= low) & (rest <= high)
    low, high = _ends(predicted, truth, even)
    found = fitting.errors(predicted, truth)
    return {
        "rows": found.rows, "devices": len(np.unique(device)), "median": round(found.median, 4),
        "p90": round(found.p90, 4), "bias": round(found.bias, 4), "covered": round(float(inside.mean()), 3),
        "width": round(float(np.exp(high - low)), 2),
    }  # fmt: skip
