"""Kernel times with their interval and evidence: which fit stands for a call, and how far it can be trusted."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from statistics import median
from typing import Any

from archsim.base.data_class import dataclass
from archsim.base.number import Num, as_list, column, exp, maximum, minimum, pick
from archsim.engines.overhead import NO_FUSED_ALL_REDUCE, FusedAllReduce, FusedSums
from archsim.spec.catalog import is_known
from archsim.spec.hardware import Hardware
from archsim.timing.architecture import ArchitectureFit, architecture_fit
from archsim.timing.calibration import (
    DeviceTraits,
    Entry,
    FitQuery,
    Grade,
    KernelFit,
    Store,
    TransferError,
    default_store,
)
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import Fitted, KernelModel, default_constants
from archsim.timing.classes.rising import Lattices, rising_seconds
from archsim.timing.device import DeviceRates, rates_per_cycle
from archsim.timing.duration import Duration, Evidence, weakest
from archsim.timing.relatives import (
    STACKED,
    at_cache_rate,
    at_own_balance,
    balance_kept,
    on_relative,
    products_faster,
    related,
)
from archsim.timing.surface_file import read_surfaces

WIDER = 2.0
"""Factor on a fit's own interval, in log, for shapes unlike all that were measured (another latent rank), and on
another device of its architecture: engine, format and kernels are the same, only rates differ. No public table that
may be fitted holds such a pair, so this is a judgement."""

UNKNOWN = TransferError(interval={str(code): (-0.4, 0.9) for code in range(4)})
"""The interval of a class and grade that nothing is known about."""

ANY_CLASS = "any class"
"""What all classes together are off at a grade, which stands for a class that says nothing of it."""

ALIKE = (
    {"bf16", "fp16"},
    {"int8_wo", "int4_wo", "w4a16_mxfp4", "nvfp4_wo"},
    {"fp8", "fp8_block", "mxfp4", "nvfp4", "w4a8_mxfp4_mxfp8"},
)
"""Formats whose kernels behave alike, up to the bytes and the peak that the formula knows."""


WEIGHTS, NARROW = "weight-only", "narrow"
"""What classes of kernels are called in formats of weights alone, and in other formats below 16 bits."""

WIDE = ("bf16", "fp32")
"""Formats of operands of 16 bits and more."""

MULTIPLIED_AS = {"mxfp4": ("mxfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8")}
"""Formats of kernel tables that weights of one stored format are multiplied in, as the implementation goes."""

ALL_REDUCE = "engine_all_reduce"
"""The class of kernels that `all_reduce` is about."""

MIB = 2**20

EXPERTS = "moe"
"""The class of kernels that `experts_also` is about."""

UNABLE = 1e6
"""Factor by which an implementation loses against others for every extent of a call that it was not measured at."""

QUANTISE = "quantise"
"""The extent that says whether a product's own launch comes after one that quantises its activations."""

HOST_TIMES = ("host_us", "launch_us")
"""Constants that are times of the host: what a loop, or a whole block launched from it, takes at the least."""

WIDENS = "widen_rows"
"""The constant that says from how many rows on quantised weights are widened to 16 bits."""

FEWEST = "0"
"""The regime of calls with the fewest rows."""

Intervals = Mapping[str, tuple[float, float]]
"""Ends of intervals in log, by regime."""

SAME = 1e-9
"""Distances of fits that differ by less are equal."""

LEAST = 1e-30
"""Seconds that are nothing, where one must not divide by nothing."""

GENERATION = 0.1
"""Distance of devices for each year between their releases, which tells architectures apart that have no fits."""

OLDEST = 9
"""Years from which on two devices are no farther apart; also where a release is not known."""

RELATED: tuple[Grade, ...] = ("family", "relative")
"""Grades at which a fit was made on another device of the same architecture."""

ELSEWHERE: tuple[Grade, ...] = ("device", "class", "far")
"""Grades at which a fit was made on another architecture."""

REGIMES = 4
"""Regimes that intervals are told apart by."""

REMEMBERED = 20_000
"""Calls of one device whose times are kept."""

MANY = 16
"""Calls that differ in extents alone from which on a table of them takes less long than one after another."""


@dataclass(slots=True)
class Timer:
    """Times kernels of one engine on one device. engine, version: empty where any will do. store: the calibrations.
    own: the engine itself, where the tables of `engine` stand for it and its own runs for some of its kernels. ported:
    by format, the engine whose runs stand for its kernels instead. experts_also: as in the engine's document.
    int8_alone: whether the engine multiplies quantised weights in int8 here for any number of rows. all_reduce: as in
    the engine's document. memo, lattices:
    what is kept of the device: times of calls, and what kinds of calls cannot fall below.
    """

    device: DeviceTraits
    machine: DeviceRates
    engine: str = ""
    version: str = ""
    store: Store = field(default_factory=default_store)
    memo: dict[Any, Duration] = field(default_factory=dict)
    own: str = ""
    lattices: Lattices = field(default_factory=dict)
    ported: Mapping[str, str] = field(default_factory=dict)
    experts_also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    int8_alone: bool = False
    all_reduce: FusedSums = ("", ())

    def once(self, call: KernelCall) -> Duration:
        """`time`; of a call of plain numbers it is remembered for as long as the device's document lives."""
        if call.kinds:
            return self.time(call)
        key = self._key(call)
        try:
            found = self.memo.get(key)
        except TypeError:  # arrays have no hash
            return self.time(call)
        if found is None:
            found = self.time(call)
            self._remember({key: found})
        return found

    def each(self, calls: Sequence[KernelCall]) -> list[Duration]:
        """`once` of every call. Where many are new and differ in extents alone, as in a model whose layers all have
        another width, they are timed as one table.
        """
        groups: dict[Hashable, dict[Hashable, KernelCall]] = {}
        if len(calls) >= MANY:
            for call in calls:
                if not call.kinds and all(isinstance(value, (int, float)) for value in call.dims.values()):
                    groups.setdefault(_form(call), {})[self._key(call)] = call
        found: dict[Hashable, Duration] = {}
        for group in groups.values():
            new = {key: call for key, call in group.items() if key not in self.memo}
            if len(new) >= MANY:
                found |= {key: self.memo[key] for key in group.keys() - new.keys()}
                found |= dict(zip(new, self._time_table(list(new.values())), strict=True))
        if not found:
            return [self.once(call) for call in calls]
        self._remember(found)
        keys = (None if call.kinds else self._key(call) for call in calls)
        return [found.get(key) or self.once(call) for call, key in zip(calls, keys, strict=True)]

    def _key(self, call: KernelCall) -> tuple[object, ...]:
        """All that a call's time follows from on one device."""
        return (
            self.engine, self.ported.get(call.dtype, self.own), self.version, self.machine.accumulate,
            self.int8_alone, self.all_reduce, call.kernel_class, call.dtype, call.kv_dtype, call.kernel,
            *call.dims.items(),
        )  # fmt: skip

    def _remember(self, times: Mapping[Any, Duration]) -> None:
        """Keep times of calls, by their keys."""
        if len(self.memo) + len(times) > REMEMBERED:
            self.memo.clear()
        self.memo.update(times)

    def _time_table(self, calls: Sequence[KernelCall]) -> list[Duration]:
        """The times of calls of plain numbers that differ in extents alone."""
        model = MODELS[calls[0].kernel_class]
        if model.general and not self.knows(model, calls[0]):
            return self.each([model.as_general(call) for call in calls])
        prepared = [model.prepare(as_timed(model, call, self.engine)) for call in calls]
        forms = [(_form(call), model.covers(call)) for call in prepared]
        times: dict[int, Duration] = {}
        for form in set(forms):
            rows = [i for i, each in enumerate(forms) if each == form]
            times |= dict(zip(rows, self._time_rows(model, [prepared[i] for i in rows]), strict=True))
        return [times[i] for i in range(len(calls))]

    def _time_rows(self, model: KernelModel, calls: Sequence[KernelCall]) -> Iterator[Duration]:
        """The same of calls as their class prepares them, all of which its tables cover, or none."""
        table = calls[0]._replace(dims={name: column([call.dims[name] for call in calls]) for name in calls[0].dims})
        fits, n = self.choose(model, table), len(calls)
        times = [self._time_by(fit, model, table) for fit in fits]
        keys = [t.expected * UNABLE ** beyond_measured(fit, model, table) for fit, t in zip(fits, times, strict=True)]
        best = [row.index(min(row)) for row in zip(*(as_list(key, n) for key in keys), strict=True)]
        rows = [list(zip(*(as_list(x, n) for x in time[:4]), strict=True)) for time in times]
        for i, which in enumerate(best):
            expected, low, high, ideal = rows[which][i]
            own = Duration(expected, low, high, ideal, times[which].evidence)
            yield self._or_other(model, calls[i], fits, own)

    def time(self, call: KernelCall) -> Duration:
        """The call's time, or times, with the interval; never below the physical bound.

        Where no implementation is named, the fastest of the engine's that can run the call: engines choose by shape, by
        autotuning or by rules that were tuned.
        """
        model = MODELS[call.kernel_class]
        if call.kinds:
            return self._time_of_kinds(model, call)
        if model.general and not self.knows(model, call):
            return self.time(model.as_general(call))
        call = model.prepare(as_timed(model, call, self.engine))
        fits = self.choose(model, call)
        return self._or_other(model, call, fits, self._fastest(model, call, fits))

    def _or_other(self, model: KernelModel, call: KernelCall, fits: Sequence[KernelFit], own: Duration) -> Duration:
        """The time by the engine's own fits, or by what else it runs: kernels over a wide cache where those over a
        narrow one are carried over, and all-reduces that also do the norm, up to a size. These pay off up to there with
        the norm, which tables leave out: where they take longer than the engine's own by itself, that one counts.
        """
        if self._carries_cache_over(call, fits):
            wide = self._fastest(model, with_wide_cache(call), self.choose(model, with_wide_cache(call)))
            return own.or_else(wide._replace(ideal=own.ideal), wide.expected < own.expected)
        kernels, limits = self.all_reduce
        if not limits or call.kernel_class != ALL_REDUCE or call.kernel:
            return own
        most = sum([(call.dims["n_gpus"] == ranks) * mib * MIB for ranks, mib in limits])
        fused = self._of_other(kernels).time(call)
        return own.or_else(fused, (call.dims["bytes"] <= most) & (fused.expected < own.expected))

    def _carries_cache_over(self, call: KernelCall, fits: Sequence[KernelFit]) -> bool:
        """Whether a kernel reads a cache in FP8 on a device with units for it, of which another architecture's kernels
        tell: they may have to convert what these units read as it is.
        """
        native = call.kv_dtype == "fp8" and "fp8" in self.machine.hardware.compute.peak and not call.kernel
        return native and all(fit.grade in ELSEWHERE or fit.grade == "datasheet" for fit in fits)

    def _of_other(self, engine: str) -> Timer:
        """The timer of another engine's kernels on the same device."""
        return replace(self, engine=engine, own="", version="", all_reduce=("", ()))

    def _fastest(self, model: KernelModel, call: KernelCall, fits: Sequence[KernelFit]) -> Duration:
        """The time by the fastest of several fits, those first that were measured at such extents."""
        best = self._time_by(fits[0], model, call)
        if len(fits) > 1:
            best_key = best.expected * UNABLE ** beyond_measured(fits[0], model, call)
            for fit in fits[1:]:
                other = self._time_by(fit, model, call)
                key = other.expected * UNABLE ** beyond_measured(fit, model, call)
                best, best_key = best.or_else(other, key < best_key), minimum(key, best_key)
        return best

    def _time_of_kinds(self, model: KernelModel, call: KernelCall) -> Duration:
        """One kernel over prompts of several lengths. Each kind takes its share of a kernel in which all are like it,
        so that there is one launch, and as many sequences fill the device; no kind is faster than by itself.
        """
        shares = [self.once(kind.alike).scaled(kind.share) for kind in call.kinds]
        mean, low, high = map(sum, zip(*(time[:3] for time in shares), strict=True))
        floor = maximum(*model.bound(call, self.machine)[:2])
        time = maximum(mean, floor)
        for kind in call.kinds:
            time = maximum(time, self.once(kind.alone).expected)
        longer = time / mean
        evidence = weakest([each.evidence for each in shares])
        return Duration(time, maximum(low * longer, floor), high * longer, floor, evidence)

    def _time_by(self, fit: KernelFit, model: KernelModel, call: KernelCall) -> Duration:
        """The call's time by one fit."""
        compute, memory, link = model.bound(call, self.machine)
        floor = maximum(maximum(compute, memory), link)
        as_fitted = with_implied(model, call._replace(dtype=fit.dtype) if fit.dtype else call, fit)
        time = maximum(rising_seconds(model, as_fitted, self.machine, fit.fitted, self.lattices), floor)
        low, high = interval(model, call, floor / maximum(time, LEAST), fit)
        evidence = evidence_of(fit.grade)
        if not model.covers(call):  # carried over to a shape that no table holds
            low, high = low**WIDER, high**WIDER
            evidence = "datasheet" if evidence == "datasheet" else "transferred"
        return Duration(time, maximum(time * low, floor), time * high, floor, evidence)

    @property
    def architecture(self) -> ArchitectureFit | None:
        """What whole runs say of the engine on the device's architecture."""
        hardware = self.machine.hardware
        return architecture_fit(self.store, self.engine, self.version, hardware.arch.family, hardware.id)

    def knows(self, model: KernelModel, call: KernelCall) -> bool:
        """Whether a call's own class says more of it than the class `general`: some device of the vendor was measured,
        and the engine has no fits to its own runs that are of the general class alone.
        """
        query, known = self._query(model, call), self.store.own_class
        if query not in known:
            own, wider = (nearest_entry(self.store, query._replace(op=op)) for op in (query.op, model.general))
            known[query] = own is not None and (not own.device or wider is None or bool(wider.device))
        return known[query]

    def _query(self, model: KernelModel, call: KernelCall) -> FitQuery:
        """What a fit is wanted for."""
        also = self.experts_also.get(call.dtype, ()) if call.kernel_class == EXPERTS else ()
        alone = self.int8_alone and call.storage.compute == "int8"
        return FitQuery(
            self.device, self.engine, self.version, call.kernel_class, call.dtype, call.kv_dtype,
            model.variant(call.kernel), self.ported.get(call.dtype, self.own), also, alone,
        )  # fmt: skip

    def choose(self, model: KernelModel, call: KernelCall) -> tuple[KernelFit, ...]:
        """The nearest fits of the store for the call's class, format and implementation: one, or one of each
        implementation where none is named.
        """
        query, fits = self._query(model, call), self.store.fits
        if query not in fits:
            fits[query] = implementations(self.store, query)
        return fits[query]


def as_timed(model: KernelModel, call: KernelCall, engine: str) -> KernelCall:
    """A table's row as what was timed. An engine's hold the pass that quantises the activations of a product; a library
    that is no engine is given them as its product reads them (DeepGEMM's tests/test_fp8.py): on an H20 it multiplies
    16,384 rows of 7,168 by 576 columns in 494 us, of which the peak leaves 37, and reading and writing the rows takes
    89.
    """
    if not call.kernel or QUANTISE not in model.optional or QUANTISE in call.dims or _is_engine(engine):
        return call
    return call._replace(dims={**call.dims, QUANTISE: call.dims[model.dims[0]] * 0})


def _is_engine(name: str) -> bool:
    """Whether a table's word is one of a serving engine, or none that says otherwise."""
    return not name or is_known("engines", name)


def with_wide_cache(call: KernelCall) -> KernelCall:
    """The call over a cache in 16 bits, twice as large."""
    kept = call.dims.get("kv_bytes", 0)
    more = {name: call.dims[name] + kept for name in ("kv_bytes", "hbm_bytes") if name in call.dims}
    return call._replace(kv_dtype="bf16", dims={**call.dims, **more})


def _form(call: KernelCall) -> tuple[object, ...]:
    """All of a call but the values of its extents."""
    return *call[:4], *call.dims


def with_implied(model: KernelModel, call: KernelCall, fit: KernelFit) -> KernelCall:
    """A call with the extents that follow from the implementation that runs it."""
    missing = [name for name in model.implied if name not in call.dims and name in fit.measured]
    if not missing:
        return call
    implied = {name: min(max(model.implied[name], fit.measured[name][0]), fit.measured[name][1]) for name in missing}
    return call._replace(dims={**call.dims, **implied})


def beyond_measured(fit: KernelFit, model: KernelModel, call: KernelCall) -> Num:
    """How many of a call's extents, of those that matter to its class, an implementation was not measured at."""
    outside: Num = 0
    for name, (low, high) in fit.measured.items():
        if name in model.implied:
            continue
        value = call.dims.get(name, model.optional.get(name, 0))
        outside = outside + ((value < low) | (value > high))
    return outside


def implementations(known: Store, query: FitQuery) -> tuple[KernelFit, ...]:
    """The nearest fit, or the fits of each implementation of its engine on its device, where none is named."""
    entries = implementation_entries(known, query)
    return tuple(fit_of(known, query, entry) for entry in entries) or (nearest(known, query),)


def implementation_entries(known: Store, query: FitQuery) -> tuple[Entry, ...]:
    """The nearest entry, or those of each implementation of its engine on its device, where none is named; none where
    nothing says something of a query.
    """
    near = by_distance(known, query)
    entries = known.by_op.get(query.op, [])
    if not near or query.kernel:
        return tuple(entries[index] for _, _, index in near[:1])
    first = entries[near[0][-1]]
    alike = [
        entry
        for cost, _, index in near
        if (entry := entries[index])[:3] == first[:3]
        and abs(cost - kernel_cost(entry, query) - near[0][0] + kernel_cost(first, query)) < SAME
    ]
    named = {entry.dtype for entry in alike if entry.kernel}
    return tuple(entry for entry in alike if entry.kernel or entry.dtype not in named)


def nearest_entry(known: Store, query: FitQuery) -> Entry | None:
    """The entry that is nearest to a query, if any says something of it."""
    near = by_distance(known, query)
    return known.by_op[query.op][near[0][-1]] if near else None


def by_distance(known: Store, query: FitQuery) -> list[tuple[float, float, int]]:
    """Distance, rank and position of every entry that says something of a query, the nearest first; ties go to the most
    efficient kernel, since a slow kernel of one engine is no evidence about another engine.
    """
    return sorted(
        (cost, -efficiency_rank(entry), index)
        for index, entry in enumerate(known.by_op.get(query.op, []))
        if (cost := distance(entry, query)) is not None
    )


def nearest(
    known: Store, query: FitQuery, surfaces: bool | None = None, trust: float | None = None,
    usual: Mapping[str, float] | None = None,
) -> KernelFit:  # fmt: skip
    """The nearest fit; without any, the usual constants. surfaces, trust, usual: what to carry over to another device,
    and what constants move to; by default as the store's transfer errors say.
    """
    entry = nearest_entry(known, query)
    if entry is not None:
        return fit_of(known, query, entry, surfaces, trust, usual)
    levels = levels_of(known, query)
    if query.device.runs is not None:  # shares of peaks that whole runs show beside the constants of the formula
        constants = scaled(dict(default_constants(MODELS[query.op]).constants), USUAL_SUSTAINED, sustained_by(query))
        seen = {str(code): query.device.runs for code in range(REGIMES)}
        return KernelFit(Fitted(constants=constants), "device", UNKNOWN, seen)
    constants = scaled(usual_constants(known, query, usual), USUAL_SUSTAINED, sustained_by(query))
    constants = at_cache_rate(query.op, constants, query.device, known.by_op.get(query.op, ()))
    level = levels.get("datasheet") or known.levels.get(ANY_CLASS, {}).get("datasheet", UNKNOWN)
    return KernelFit(Fitted(constants=constants), "datasheet", level, {})


def usual_constants(known: Store, query: FitQuery, stated: Mapping[str, float] | None = None) -> dict[str, float]:
    """What kernels of a class usually reach: as stated, or as the store's transfer errors say the constants of the
    formula or the middle of the store's fits.
    """
    level = levels_of(known, query).get("datasheet")
    if stated is None and level is not None and level.middle:
        stated = middle_constants(known.by_op.get(query.op, ()), query)
    return {**default_constants(MODELS[query.op]).constants, **(stated or {})}


def middle_constants(entries: Iterable[Entry], query: FitQuery) -> dict[str, float]:
    """The middle of each constant over the fits of a class in formats as wide as the query's; where its kernels convert
    a cache, of those over a cache as narrow, if there are any. Of an engine's implementations all together count. What
    hosts take is no constant of a class, nor what a fit has beyond the formula's constants. Of products only fits on
    devices of the query's vendor count: what libraries make of a matrix unit is the vendor's, while passes over memory
    are the engine's own code everywhere (throughput of six runs on Gaudi 2, in FP8, is off by 17 % in the median with
    the middle of other vendors' products, by 8 with the usual constants).
    """
    usual, width = default_constants(MODELS[query.op]).constants, level_of(query.op, query.dtype)
    alike = [e for e in entries if e.device and not e.kernel and not e.local and level_of(e.op, e.dtype) == width]
    if "matrix" in usual:
        alike = [e for e in alike if e.vendor == query.device.vendor]
    if MODELS[query.op].converts:
        alike = [e for e in alike if _same_cache(e, query)] or alike
    found: dict[str, list[float]] = {}
    for entry in alike:
        for name, value in entry.constants.items():
            if name not in entry.unused:
                found.setdefault(name, []).append(value)
    return {name: median(found[name]) for name in found if name in usual and name not in HOST_TIMES}


def fit_of(
    known: Store, query: FitQuery, entry: Entry, surfaces: bool | None = None, trust: float | None = None,
    usual: Mapping[str, float] | None = None,
) -> KernelFit:  # fmt: skip
    """An entry as the fit of a query. surfaces, trust, usual: as of `nearest`."""
    levels = levels_of(known, query)
    grade = grade_of(entry, query)
    measured = _measured_as(grade, entry, query)
    level = levels.get(measured) or levels.get("device") or known.levels.get(ANY_CLASS, {}).get(measured, UNKNOWN)
    if (measured in ELSEWHERE or measured == "format") and not _of_own_engine(entry, query):
        level = with_another_engine(level, levels.get("engine"))
    carried = (grade in ("fitted", "family") or level.surfaces) if surfaces is None else surfaces
    kept = balance_kept(products_faster(entry, query)) if grade in RELATED else 1.0
    faster: dict[str, float] = {}
    constants = own_constants(known, entry, query)
    if grade in RELATED:
        faster = at_own_balance(constants, entry, query) if kept < 1 else {}
        constants = on_relative(constants, entry, query)
    if grade in ELSEWHERE and entry.device:
        constants = scaled(constants, entry.sustained, sustained_by(query))
        middle = scaled(usual_constants(known, query, usual), USUAL_SUSTAINED, sustained_by(query))
        constants = shrunk(constants, middle, level.trust if trust is None else trust, code_of(entry, query))
        constants = at_cache_rate(query.op, constants, query.device, known.by_op[query.op])
    if not query.kernel and MODELS[query.op].common_floor and entry.device:
        floor = min(constants["floor_us"], common_floor_us(known, entry))
        constants["floor_us"], faster = floor, {**faster, "floor_us": floor} if faster else faster
    found = read_surfaces(*entry.surfaces) if entry.surfaces and carried else ()
    own = of_kernels(own_interval(entry, grade), entry, query)
    if kept < 1 and "device" in levels:
        other = levels["device"].interval
        own, level = (
            at_other_balance(own, other, kept),
            level._replace(interval=at_other_balance(level.interval, other, kept)),
        )
    return KernelFit(
        Fitted(constants, found, kept, faster, entry.cache != query.device.cache),
        grade, level, own,
        entry.dtype if entry.dtype in formats_of(query)[1:] else "", entry.measured,
    )  # fmt: skip


def own_constants(known: Store, entry: Entry, query: FitQuery) -> dict[str, float]:
    """The constants of a fit: what an older one lacks stands at its usual value, what none of its rows depends on is
    lent, and weights that the engine never widens have no rows from which on it does.
    """
    found = {**default_constants(MODELS[query.op]).constants, **entry.constants, **lent_constants(known, entry)}
    if query.int8_alone:
        found.pop(WIDENS, None)
    return found


def lent_constants(known: Store, entry: Entry) -> dict[str, float]:
    """The middle of constants that no row of a fit depends on over the fits of its class whose rows do: on its device,
    or else anywhere. What hosts take is each loop's own.
    """
    found: dict[str, float] = {}
    for name in entry.unused:
        others = [e for e in known.by_op.get(entry.op, ()) if name in e.constants and name not in e.unused]
        near = [other for other in others if other.device == entry.device] or others
        if near and name not in HOST_TIMES:
            found[name] = median(other.constants[name] for other in near)
    return found


def _measured_as(grade: Grade, entry: Entry, query: FitQuery) -> Grade:
    """The grade whose transfer errors are those of a fit: another engine or format on a related device is off by what
    it is off on the device itself.
    """
    if grade != "relative":
        return grade
    return "format" if format_cost(entry, query) > 0 else "engine"


def code_of(entry: Entry, query: FitQuery) -> tuple[str, ...]:
    """The constants that say how a kernel is written, where the query's device runs the very same one: whether units
    share a sequence is no matter of the device.
    """
    same = _of_own_engine(entry, query) and entry.version == query.version and entry.kernel in ("", query.kernel)
    return MODELS[entry.op].serial if same else ()


def shrunk(
    constants: Mapping[str, float], usual: Mapping[str, float], trust: float, kept: Collection[str] = ()
) -> dict[str, float]:
    """Constants between the usual ones of their class and themselves, in log; the time of a host is its own, whatever
    the device, and so are those `kept`.
    """
    own = {name: x for name, x in constants.items() if name not in usual or name in HOST_TIMES or name in kept}
    return {
        name: usual[name] ** (1 - trust) * value**trust for name, value in constants.items() if name not in own
    } | own


def common_floor_us(known: Store, entry: Entry) -> float:
    """The middle floor of all implementations of a class on an entry's device, in microseconds.

    Loops that time one layer launch its kernels from the host and wait in between, so that the host's time is part of
    their floor; unlike GEMM's, such rows rise with the work from the first byte on. A captured step has none of it.
    """
    floors = [each.constants["floor_us"] for each in known.by_op[entry.op] if each.device == entry.device]
    return median(floors)


def efficiency_rank(entry: Entry) -> float:
    """Sum of the logarithms of the shares of peak rates that a fit's kernels reach; 0 where its class has none."""
    return sum(math.log(min(entry.constants.get(name, 1.0), 1.0)) for name in MODELS[entry.op].shares)


def of_kernels(own: Intervals, entry: Entry, query: FitQuery) -> Intervals:
    """An interval of a fit's own, wider but for the fewest rows where the fitted runs had other kernels for them."""
    if not query.int8_alone or WIDENS not in entry.constants:
        return own
    return {code: ends if code == FEWEST else (WIDER * ends[0], WIDER * ends[1]) for code, ends in own.items()}


def own_interval(entry: Entry, grade: Grade) -> Intervals:
    """The interval that a fit's own unseen shapes showed, where it says something of this grade."""
    if grade == "fitted" or not entry.device:
        return entry.interval
    if grade == "family" and entry.interval:
        return {name: (WIDER * low, WIDER * high) for name, (low, high) in entry.interval.items()}
    return {}


def at_other_balance(ends: Intervals, other: Intervals, kept: float) -> Intervals:
    """An interval on a relative whose products and memory bound other calls than where a fit was made: at least that of
    another architecture, as far as the balance is lost. other: of another architecture. kept: as of `balance_kept`.
    """
    lost = {code: ((1 - kept) * low, (1 - kept) * high) for code, (low, high) in other.items()}
    return {
        code: (min(low, lost[code][0]), max(high, lost[code][1])) if code in lost else (low, high)
        for code, (low, high) in ends.items()
    }


def sustained_by(query: FitQuery) -> float:
    """The share of the peak that products of the query's format were seen to sustain on its device; 0: unknown."""
    narrow = STORED.get(query.dtype, STORED["bf16"]).compute not in WIDE
    return (narrow and query.device.narrow) or query.device.sustained


USUAL_SUSTAINED = 0.80
"""Sustained share of the devices that the usual constants belong to."""


def scaled(constants: dict[str, float], here: float, there: float) -> dict[str, float]:
    """Constants of one device for another of a different architecture: products by what both were seen to sustain."""
    if "matrix" not in constants or not (here and there):
        return constants
    return {**constants, "matrix": min(constants["matrix"] * there / here, 1.0)}


def distance(entry: Entry, query: FitQuery) -> float | None:
    """Distance between an entry and a query; None where the entry says nothing about the device.

    An entry without a device is of an engine whose runs were fitted across devices. Another architecture, its age and
    another engine are of one order, stacked memory in place of chips on a board and another group of formats are worse;
    the implementation and the version break ties. Peaks and bandwidth have no part in it: else a device with more of
    either could take over the constants of slower kernels, and lose by it.
    """
    cost, device = 0.0, query.device
    if not entry.device:
        if entry.engine not in (query.engine, query.own) or entry.vendor not in ("", device.vendor):
            return None
        cost += 0.3 if entry.vendor else 0.4
    elif entry.device != device.id:
        if entry.vendor != device.vendor or entry.local:
            return None
        cost += 1.0 + GENERATION * years_apart(entry.released, device.released)
        cost += 0.0 if related(entry, device) else 1.0
        cost += 0.0 if entry.memory == device.memory else 0.2
        cost += 0.0 if (entry.memory == STACKED) == (device.memory == STACKED) else 1.8
    cost += format_cost(entry, query)
    own = _of_own_engine(entry, query)
    if query.engine:
        cost += 0.0 if own else 0.7
        cost += 0.0 if entry.version == query.version else 0.01
    return cost + kernel_cost(entry, query) + (0.0 if own else serial_cost(entry))


def _of_own_engine(entry: Entry, query: FitQuery) -> bool:
    return entry.engine in (query.engine, query.own)


def with_another_engine(level: TransferError, engine: TransferError | None) -> TransferError:
    """The transfer error of another engine's fit on another device: errors of both kinds are independent, so that
    their squares add up.
    """
    if engine is None:
        return level
    ends = {
        code: (-math.hypot(low, engine.interval[code][0]), math.hypot(high, engine.interval[code][1]))
        for code, (low, high) in level.interval.items()
    }
    return level._replace(interval=ends)


def serial_cost(entry: Entry) -> float:
    """How much longer than twice the usual a fit's serial work takes, in logarithms: a kernel that leaves most of a
    device idle says little of another engine's.
    """
    usual = {name: 2 * MODELS[entry.op].constants[name].usual for name in MODELS[entry.op].serial}
    return sum(math.log(max(entry.constants.get(name, time) / time, 1.0)) for name, time in usual.items())


def years_apart(one: float, other: float) -> float:
    """Years between two releases, at most `OLDEST`; 0: not known."""
    return min(abs(one - other), OLDEST) if one and other else OLDEST


def kernel_cost(entry: Entry, query: FitQuery) -> float:
    """Another implementation is worse than all of them together."""
    return 0.0 if entry.kernel == query.kernel and entry.kernel else 0.3 if entry.kernel else 0.02


def interval(model: KernelModel, call: KernelCall, share: Num, found: KernelFit) -> tuple[Num, Num]:
    """The interval's ends over the time: by regime where unseen shapes of the fit showed them.

    share: the physical bound over the time.
    """
    ends = found.interval or found.level.interval
    regime = model.regime(call, share)
    if isinstance(regime, int):
        below, above = ends[str(regime)]
        return exp(below), exp(above)
    known = [ends.get(str(i), (0.0, 0.0)) for i in range(REGIMES)]
    return pick([exp(below) for below, _ in known], regime), pick([exp(above) for _, above in known], regime)


def level_of(op: str, dtype: str) -> str:
    """What a transfer error is stated for: a class of kernels in 16 bits, with only its weights in fewer, which are
    unpacked to 16, or in narrower formats.
    """
    if dtype in ("", "fp32") or dtype in ALIKE[0]:
        return op
    return f"{op} {WEIGHTS}" if dtype in ALIKE[1] else f"{op} {NARROW}"


def levels_of(known: Store, query: FitQuery) -> dict[str, TransferError]:
    """The transfer errors of a query's class and format by grade; of formats of weights alone those of narrow formats
    stand for grades that nothing is known about.
    """
    own = level_of(query.op, query.dtype)
    names = (own.replace(WEIGHTS, NARROW), own)
    return {grade: level for name in names for grade, level in known.levels.get(name, {}).items()}


def formats_of(query: FitQuery) -> tuple[str, ...]:
    """The formats of kernel tables that are as good as one another for a query: its own first."""
    return query.dtype, *MULTIPLIED_AS.get(query.dtype, ()), *query.also


def format_cost(entry: Entry, query: FitQuery) -> float:
    """Another number format: nothing for 16 bits of either kind, little within a group, much across groups."""
    cost = 0.0 if entry.dtype else 0.05
    if entry.dtype not in ("", *formats_of(query)):
        alike = [{entry.dtype, query.dtype} <= group for group in ALIKE]
        cost += 0.0 if alike[0] else 1.5 if any(alike) else 5.0
    return cost + (0.0 if _same_cache(entry, query) else 0.9)


def _same_cache(entry: Entry, query: FitQuery) -> bool:
    """Whether both read a cache in formats as wide, of 16 bits where it is not said."""
    both = {entry.kv_dtype or "bf16", query.kv_dtype or "bf16"}
    return len(both) == 1 or both <= ALIKE[0]


def grade_of(entry: Entry, query: FitQuery) -> Grade:
    """The weakest link between an entry and what it stands for."""
    same = format_cost(entry, query) == 0
    if not entry.device:  # an engine whose runs were fitted across devices
        return "device"
    if entry.device != query.device.id:
        if related(entry, query.device):
            return "family" if same and (not query.engine or entry.engine == query.engine) else "relative"
        other: Grade = "device" if entry.memory == query.device.memory else "class"
        return other if same else "far"
    if not same:
        return "format"
    return "fitted" if not query.engine or entry.engine == query.engine else "engine"


def evidence_of(grade: Grade) -> Evidence:
    """The contract's word for a grade."""
    if grade in RELATED or grade in ELSEWHERE:
        return "transferred"
    return "datasheet" if grade == "datasheet" else "calibrated"


@lru_cache(maxsize=256)
def split_engine(text: str) -> tuple[str, str]:
    """`vllm 0.24.0` as name and version, as tables and calibrations spell them."""
    found = re.match(r"\s*([A-Za-z_.]+(?:-[A-Za-z]+)*)[\s@=v]*([0-9][\w.]*)?", text)
    if not found:
        return "", ""
    return found.group(1).lower().rstrip("-_."), found.group(2) or ""


def timer(
    hardware: Hardware,
    engine: str = "",
    rates: DeviceRates | None = None,
    version: str | None = None,
    store: Store | None = None,
    own: str = "",
    ported: Mapping[str, str] | None = None,
    experts_also: Mapping[str, tuple[str, ...]] | None = None,
    int8_alone: Collection[str] = (),
    all_reduce: FusedAllReduce = NO_FUSED_ALL_REDUCE,
) -> Timer:
    """A timer for kernels of `engine` on a device; empty: of any. version: stated apart, else after the name, as in
    tables. store: the calibrations; by default those of the data folders. own, ported, experts_also, all_reduce: as of
    `Timer`.
    int8_alone: vendors, as in the engine's document.
    """
    store = store or default_store()
    name, stated = (engine, version) if version is not None else split_engine(engine)
    machine = rates or DeviceRates(hardware)
    sustained = hardware.compute.sustained.get("bf16", 0.0)
    runs = architecture_fit(store, name, stated, hardware.arch.family)
    device = DeviceTraits(
        hardware.id, hardware.vendor, hardware.lineage, hardware.release, sustained, hardware.memory.kind,
        narrow=runs.narrow if runs is not None else 0.0, runs=runs.interval if runs is not None else None,
        per_cycle=rates_per_cycle(hardware), cache=hardware.l2_bytes or 0,
    )  # fmt: skip
    memo, lattices = hardware.memo.setdefault(store, ({}, {}))
    alone = hardware.vendor in int8_alone and "int8" in hardware.compute.peak
    return Timer(
        device,
        machine,
        name,
        stated,
        store,
        memo,
        own,
        lattices,
        ported or {},
        experts_also or {},
        alone,
        all_reduce.on(hardware.arch.compute_capability),
    )
