"""How far off a fit is when it stands for what it was not fitted to: another engine, format or device, or no fit.

Every group of a table is predicted from a store that lacks what the group would otherwise use; what remains of the
nearest entry is then what users of an unmeasured device or engine get, and its errors are their interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.table import Group
from archsim.base.json_types import JsonObject
from archsim.calibration import fitting
from archsim.calibration.calibrate import FEW, prepare_rows
from archsim.spec.hardware import Hardware
from archsim.timing.calibration import Entry, FitQuery, Grade, KernelFit, Store
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import Fitted, KernelModel
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import (
    ANY_CLASS,
    HOST_TIMES,
    REGIMES,
    UNABLE,
    beyond_measured,
    code_of,
    fit_of,
    format_cost,
    implementation_entries,
    level_of,
    middle_constants,
    nearest,
    nearest_entry,
    serial_cost,
    split_engine,
    timer,
    with_implied,
)
from archsim.timing.kernel_timer import ELSEWHERE as OTHER_DEVICE

if TYPE_CHECKING:
    from archsim.base.arrays import Array, Bools, Floats, Ints

MOST = 400
"""Rows of one group that are looked at, so that no group outweighs the others."""

OUTSIDE = 2 * fitting.TAIL
"""Share of rows that lie outside an interval."""

WAITING = 3.0
"""Host time of a group's rows from which on it says more of the loop that timed it than of the device, in us."""

HELD = 0.72
"""Share of the rows of devices left out that the intervals of the others hold at the least, of the 80 % that are meant:
few devices say too little of how far a further one lies off.
"""

WIDEST = 2.0
"""Factor, in log, that intervals are widened by for it at the most; where more would be needed devices contradict each
other, which a wider interval does not mend, and they stay.
"""

DECIDES = 0.5
"""Share of a row's time that the device takes from which on the row says more of it than of the host."""

NOBODY = "nobody"
"""The vendor of fits that stand for no device, and still say what last-level caches give."""

LEAST = 1e-3
"""Microseconds of a host that takes no time."""

Keeps = Callable[[Entry, FitQuery], bool]

WITHOUT: Mapping[str, Keeps] = {
    "engine": lambda e, w: e.device == w.device.id and e.engine != w.engine and format_cost(e, w) == 0,
    "format": lambda e, w: e.device == w.device.id and format_cost(e, w) > 0,
    "device": lambda e, w: _elsewhere(e, w) and e.memory == w.device.memory and format_cost(e, w) == 0,
    "class": lambda e, w: _elsewhere(e, w) and e.memory != w.device.memory and format_cost(e, w) == 0,
    "far": lambda e, w: _elsewhere(e, w) and format_cost(e, w) > 0,
}
"""Entries that remain at each grade."""

BY_OWN_ENGINE: tuple[Grade, ...] = (*OTHER_DEVICE, "format")
"""Grades whose errors are those within one engine; what another engine adds is an error of its own."""

APART = 2.5
"""How many times as long an engine's kernels take as those of the engine that would stand for it, from which on theirs
is another algorithm: such an engine has fits of its own, and says nothing of engines that have none."""


def levels(groups: Iterable[Group], hardware: Mapping[str, Hardware], known: Store) -> dict[str, JsonObject]:
    """By class and grade: the interval, what is carried over, and the median error that was seen."""
    members: dict[str, list[Group]] = {}
    for group in groups:
        if group.key.op not in MODELS or group.key.device not in hardware:
            continue
        usable = prepare_rows(MODELS[group.key.op], group)
        if not group.key.kernel:
            usable = _quickest(_without_implied(usable))
        if len(usable.seconds) >= FEW // 2:
            members.setdefault(level_of(group.key.op, group.key.dtype), []).append(usable)
    every: dict[str, list[GradePredictions]] = {}
    found: dict[str, JsonObject] = {}
    for name, mine in members.items():
        by = _levels_of(mine, hardware, known, every)
        if by:
            found[name] = by
    return {ANY_CLASS: {grade: _level(parts) for grade, parts in every.items()}, **found}


def _levels_of(
    groups: list[Group], hardware: Mapping[str, Hardware], known: Store, every: dict[str, list[GradePredictions]]
) -> JsonObject:
    """The levels of one class by grade: first that without a fit, which says what constants are usual. every: what all
    classes say together, which is added to.
    """
    asked = [one for group in groups if (one := _question(group, hardware[group.key.device], known)) is not None]
    alone = _alike("datasheet", _without_fit(asked, known))
    if not alone:
        return {}
    last = _level(alone)
    parts: dict[str, list[GradePredictions]] = {}
    for one in asked:
        for grade, rows in _predict_by_grade(one, known, last["middle"]):
            parts.setdefault(grade, []).append(rows)
    found = {grade: alike for grade, each in parts.items() if (alike := _alike(grade, each))} | {"datasheet": alone}
    for grade, alike in found.items():
        every.setdefault(grade, []).extend(alike)
    return {grade: last if alike is alone else _level(alike) for grade, alike in found.items()}


def _alike(grade: str, parts: list[GradePredictions]) -> list[GradePredictions]:
    """The groups that say what a grade costs: of other devices and formats those that the same engine predicts, where
    there are any, by kernels that share their work among units as theirs do or do not; of other engines those whose
    kernels are of one kind; of none those as well, if there are any.
    """
    if grade in BY_OWN_ENGINE:
        parts = [part for part in parts if part.own] or parts
        return [part for part in parts if not part.serial] or parts
    of_one_kind = [part for part in parts if not part.apart]
    return of_one_kind if grade == "engine" else of_one_kind or parts


class Carried(NamedTuple):
    """What of an entry is carried over: its surfaces, and how far its constants; middle: whether the usual constants
    are the middle of all fits.
    """

    surfaces: bool
    trust: float
    middle: bool = False


HERE = (Carried(False, 1.0), Carried(True, 1.0))
"""On the device of the entry: its constants, with or without surfaces."""

ELSEWHERE = (*HERE, Carried(False, 0.5), Carried(False, 0.0))
"""On another: also constants halfway to the usual ones of the class, and these alone."""


class GradePredictions(NamedTuple):
    """Rows of one group at one grade: its device, predictions and their regimes by what is carried over, and the truth.
    own: whether they were predicted by fits of the same engine. serial: whether the rows' own kernel leaves units idle
    that others use. bound: the physical bound, where it is known.
    """

    device: str
    by_carried: Mapping[Carried, Floats]
    regime: Mapping[Carried, Ints]
    truth: Floats
    own: bool = False
    serial: bool = False
    bound: Floats | None = None

    @property
    def apart(self) -> bool:
        """Whether the rows are of another algorithm than what they were predicted by: as all of them show, or the half
        with more work, since launches take as long whatever they launch.
        """
        large = np.ones(len(self.truth), bool) if self.bound is None else self.bound >= np.median(self.bound)
        rest = [np.log(self.truth / times) for times in self.by_carried.values()]
        off = min(max(abs(float(np.median(x))), abs(float(np.median(x[large])))) for x in rest)
        return self.serial or off > float(np.log(APART))


def _elsewhere(entry: Entry, query: FitQuery) -> bool:
    return entry.device not in ("", query.device.id) and not entry.local


def _without_implied(group: Group) -> Group:
    """The rows without the extents that follow from their implementation: who names none asks for none of them."""
    implied = MODELS[group.key.op].implied
    return replace(group, dims={name: values for name, values in group.dims.items() if name not in implied})


def _quickest(group: Group) -> Group:
    """Of rows with the same extents, as several implementations have them, the quickest: engines pick it."""
    extents = np.nan_to_num(np.stack([np.asarray(group.dims[name], float) for name in sorted(group.dims)]), nan=-1.0)
    shape = np.unique(extents, axis=1, return_inverse=True)[1].ravel()
    order = np.lexsort((group.seconds, shape))
    first = np.r_[True, np.diff(shape[order]) > 0]
    return group.take(np.sort(order[first]))


def _thin(group: Group) -> Group:
    """Every so-manieth row."""
    step = max(1, len(group.seconds) // MOST)
    return group.take(np.arange(0, len(group.seconds), step))


class Question(NamedTuple):
    """A group as what a fit is wanted for. entries: all that is known of its class on other devices. serial: whether
    its own kernel leaves units idle that others use.
    """

    group: Group
    query: FitQuery
    machine: DeviceRates
    entries: tuple[Entry, ...]
    serial: bool

    @property
    def model(self) -> KernelModel:
        """The time model of its class."""
        return MODELS[self.group.key.op]

    def usual(self, middle: bool) -> Mapping[str, float]:
        """The middle of the fits on other devices; else nothing beyond what the formula states."""
        return middle_constants(self.entries, self.query) if middle else {}

    def predictions(
        self, by_carried: Mapping[Carried, Sequence[KernelFit]], own: bool, alike: bool = False
    ) -> GradePredictions:
        """The group's times by the quickest of some implementations. alike: whether these are the group's own code."""
        times = {carried: self._quickest(fits) for carried, fits in by_carried.items()}
        bound = fitting.roofline(self.model, self.group.call, self.machine)
        regime = {
            carried: np.broadcast_to(self.model.regime(self.group.call, bound / time), bound.shape)
            for carried, time in times.items()
        }
        whole = np.broadcast_to(np.asarray(bound, float), self.group.seconds.shape)
        return GradePredictions(
            self.group.key.device, times, regime, self.group.seconds, own, self.serial and not alike, whole
        )

    def _quickest(self, fits: Sequence[KernelFit]) -> Floats:
        """Seconds by the quickest of some implementations, of those that were measured at such extents."""
        call = self.group.call
        calls = [with_implied(self.model, call, fit) for fit in fits]
        each = [
            fitting.estimated_seconds(self.model, call, self.machine, fit.fitted)
            for call, fit in zip(calls, fits, strict=True)
        ]
        times = np.stack([np.broadcast_to(time, self.group.seconds.shape) for time in each])
        able = [time * UNABLE ** beyond_measured(fit, self.model, call) for time, fit in zip(each, fits, strict=True)]
        ranks = np.stack([np.broadcast_to(rank, self.group.seconds.shape) for rank in able])
        found: Floats = np.take_along_axis(times, ranks.argmin(axis=0)[None], axis=0)[0]
        return found


def _question(group: Group, hardware: Hardware, known: Store) -> Question | None:
    """A group as a question, without the rows that say more of the loop that timed them than of the device; None where
    hardly any is left.
    """
    model, key = MODELS[group.key.op], group.key
    clock = timer(hardware, key.engine)
    stack = split_engine(key.engine)
    query = FitQuery(clock.device, *stack, key.op, key.dtype, key.kv_dtype, model.variant(key.kernel))
    own = nearest(known, query).fitted
    if own.constants.get("host_us", 0.0) > WAITING:
        return None
    left = group.take(_of_device(model, group, clock.machine, own))
    if len(left.seconds) < FEW // 2:
        return None
    entries = tuple(entry for entry in known.by_op.get(query.op, ()) if entry.device != query.device.id)
    fit = nearest_entry(known, query)
    return Question(_thin(left), query, clock.machine, entries, fit is not None and serial_cost(fit) > 0)


def _of_device(model: KernelModel, group: Group, machine: DeviceRates, own: Fitted) -> Bools:
    """Rows that the device decides: without the host's launches their own fit is at least half as slow."""
    hostless = own._replace(constants={n: min(v, LEAST) if n in HOST_TIMES else v for n, v in own.constants.items()})
    whole, device = (fitting.estimated_seconds(model, group.call, machine, fit) for fit in (own, hostless))
    found: Bools = np.broadcast_to(np.asarray(device / whole) > DECIDES, group.seconds.shape)
    return found


def _without_fit(asked: Sequence[Question], known: Store) -> list[GradePredictions]:
    """Predictions without any fit of the class: of an engine's implementations those of all together, unless all of
    these are the host's.
    """
    whole = [one for one in asked if not one.query.kernel]
    return [_by_usual(one, known) for one in whole or asked]


def _by_usual(asked: Question, known: Store) -> GradePredictions:
    """By the usual constants of the formula and by the middle of the fits on other devices, if there are any."""
    others = (entry._replace(vendor=NOBODY) for entry in asked.entries if entry.device)
    none = replace(known, entries=tuple(others))
    middles = (False, True) if asked.usual(True) else (False,)
    fits = {Carried(False, 1.0, middle): [nearest(none, asked.query, usual=asked.usual(middle))] for middle in middles}
    return asked.predictions(fits, own=False)


def _predict_by_grade(asked: Question, known: Store, middle: bool) -> Iterator[tuple[str, GradePredictions]]:
    """Predictions at each grade that leaves an entry. An implementation that the entry is not of is another algorithm:
    what an engine's pick takes says how far a fit carries.
    """
    query, lone = asked.query, asked.model.local(asked.group.call, asked.machine)
    for grade, keeps in WITHOUT.items():
        left = _left(known, query, grade, keeps)
        stand = implementation_entries(left, query)
        if not stand or (lone and grade in OTHER_DEVICE) or (query.kernel and stand[0].kernel != query.kernel):
            continue
        if grade == "engine" and serial_cost(stand[0]) > 0:  # estimates take the engine's own fit on another device
            continue
        own = any(entry.engine == query.engine for entry in left.entries)
        usual = asked.usual(middle)
        fits = {
            carried: [fit_of(left, query, entry, carried.surfaces, carried.trust, usual) for entry in stand]
            for carried in (ELSEWHERE if grade in OTHER_DEVICE else HERE)
        }
        yield grade, asked.predictions(fits, own, bool(code_of(stand[0], query)))


def _left(known: Store, query: FitQuery, grade: str, keeps: Keeps) -> Store:
    """The store without what a grade leaves out; of another device or format what the same engine has there, if
    anything, since what another engine adds is an error of its own.
    """
    entries = tuple(entry for entry in known.by_op.get(query.op, ()) if keeps(entry, query))
    same = tuple(entry for entry in entries if entry.engine == query.engine)
    return replace(known, entries=(same or entries) if grade in BY_OWN_ENGINE else entries)


def _level(parts: list[GradePredictions]) -> JsonObject:
    """The interval by regime, what is best carried over, and the median error that it leaves."""
    usable = set.intersection(*(set(part.by_carried) for part in parts))
    carried = min((each for each in parts[0].by_carried if each in usable), key=lambda each: _spread(parts, each))
    rows = _together(parts, carried)
    form = _form(rows)
    ends = np.array(_intervals(rows, form))
    interval = {str(code): [round(float(end), 3) for end in both] for code, both in enumerate(ends)}
    median = float(np.median(np.abs(rows.predicted / rows.truth - 1)))
    level: JsonObject = {"interval": interval, **carried._asdict(), "median": round(median, 4)}
    return level | {"errors": _level_errors(rows, ends, form)}


def _spread(parts: list[GradePredictions], carried: Carried) -> float:
    """How far rows are off, in log, on average: the middle of all rows alone would not see what widens intervals."""
    return float(np.mean(np.concatenate([np.abs(np.log(part.truth / part.by_carried[carried])) for part in parts])))


class RowsOfGrade(NamedTuple):
    """Rows of all groups of a grade: device, prediction, regime and truth."""

    device: Array
    predicted: Floats
    regime: Ints
    truth: Floats

    def take(self, mask: Bools) -> RowsOfGrade:
        """Some of the rows."""
        return RowsOfGrade(self.device[mask], self.predicted[mask], self.regime[mask], self.truth[mask])

    @property
    def rest(self) -> Floats:
        """How far rows are off, in log."""
        found: Floats = np.log(self.truth / self.predicted)
        return found


class Form(NamedTuple):
    """What intervals are like. even: as far to either side: errors of one device are about the opposite of another's,
    and a further device may lie on either side. by_regime: of each regime by itself. wider: factor to their ends, in
    log.
    """

    even: bool
    by_regime: bool
    wider: float = 1.0


def _together(parts: list[GradePredictions], carried: Carried) -> RowsOfGrade:
    """The rows of all groups, by what is carried over."""
    return RowsOfGrade(
        np.concatenate([np.full(len(part.truth), part.device) for part in parts]),
        np.concatenate([part.by_carried[carried] for part in parts]),
        np.concatenate([part.regime[carried] for part in parts]),
        np.concatenate([part.truth for part in parts]),
    )


def _form(rows: RowsOfGrade) -> Form:
    """The form whose intervals cost least on devices left out, of those that hold enough of their rows, if any do."""
    evens = (True, False) if len(np.unique(rows.device)) > 1 else (False,)
    forms = [_widened(rows, Form(even, by_regime)) for even in evens for by_regime in (True, False)]
    return min([form for form in forms if _held(rows, form) >= HELD] or forms, key=lambda form: _cost(rows, form))


def _widened(rows: RowsOfGrade, form: Form) -> Form:
    """A form with the factor to ends with which the intervals of the other devices hold enough of each one's rows."""
    if len(np.unique(rows.device)) < 2:
        return form
    wider = (form._replace(wider=float(factor)) for factor in np.arange(1.0, WIDEST, 0.02))
    return next((each for each in wider if _held(rows, each) >= HELD), form)


def _intervals(rows: RowsOfGrade, form: Form) -> list[tuple[float, float]]:
    """The ends of the 80 % interval by regime, the prediction inside; a regime of few rows takes those of all."""
    found = []
    for code in range(REGIMES):
        here = rows.regime == code
        here = here if form.by_regime and here.sum() >= FEW else np.ones(len(here), bool)
        low, high = _ends(rows.take(here), form.even)
        found.append((form.wider * min(low, 0.0), form.wider * max(high, 0.0)))
    return found


def _ends(rows: RowsOfGrade, even: bool) -> tuple[float, float]:
    """Both ends of the interval. even: as wide on either side."""
    if not even:
        return fitting.quantiles(rows.predicted, rows.truth)
    half = float(np.quantile(np.abs(rows.rest), 1 - OUTSIDE))
    return -half, half


def _ends_left_out(rows: RowsOfGrade, form: Form) -> Floats:
    """The ends that the other devices show for each device's rows (of one device alone: its own)."""
    ends = np.zeros((len(rows.truth), 2))
    for name in np.unique(rows.device):
        here = rows.device == name
        others = rows.take(~here) if (~here).any() else rows
        ends[here] = np.array(_intervals(others, form))[rows.regime[here]]
    return ends


def _held(rows: RowsOfGrade, form: Form) -> float:
    """Share of each device's rows inside the intervals that the other devices show."""
    low, high = _ends_left_out(rows, form).T
    return float(np.mean((rows.rest >= low) & (rows.rest <= high)))


def _cost(rows: RowsOfGrade, form: Form) -> float:
    """The mean interval score of each device's rows by the intervals that the others show: the width, in log, and how
    far rows lie outside over half the share that should (Gneiting and Raftery 2007, section 6.2).
    """
    low, high = _ends_left_out(rows, form).T
    outside = np.maximum(low - rows.rest, 0) + np.maximum(rows.rest - high, 0)
    return float(np.mean(high - low + 2 / OUTSIDE * outside))


def _level_errors(rows: RowsOfGrade, ends: Floats, form: Form) -> dict[str, float]:
    """Error figures of a grade: rows, devices, median, p90, bias; the width of the interval that the middle row has, as
    a factor; and the share of each device's rows inside the intervals that the other devices show. ends: by regime.
    """
    found = fitting.errors(rows.predicted, rows.truth)
    return {
        "rows": found.rows, "devices": len(np.unique(rows.device)), "median": round(found.median, 4),
        "p90": round(found.p90, 4), "bias": round(found.bias, 4), "covered": round(_held(rows, form), 3),
        "width": round(float(np.exp(np.median(np.diff(ends, axis=1)[rows.regime, 0]))), 2),
    }  # fmt: skip
