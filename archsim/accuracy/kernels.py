"""Kernel tables: rows of one class, device, format and engine are predicted together, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from archsim.accuracy.files import Table
from archsim.accuracy.naive_roofline import Needs, bounds, needs
from archsim.accuracy.rows import Refused, Rows
from archsim.accuracy.summary import Repeated, codes_of
from archsim.accuracy.table import EXTENTS, LARGEST_EXTENT, SMALLEST_EXTENT, Key
from archsim.accuracy.times import RunTimes
from archsim.accuracy.validation import Validation
from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, UnknownName
from archsim.base.number import exp
from archsim.base.progress import counted
from archsim.spec.load import load_hardware
from archsim.timing.calibration import Store
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.duration import Duration
from archsim.timing.kernel_timer import UNKNOWN, Timer, timer
from archsim.timing.roofline import DATASHEET, seconds

if TYPE_CHECKING:
    from archsim.base.arrays import Array, Bools, Floats, Ints

METRIC = "time_us"
MICRO = 1e6

REGIMES = ("m ≤ 16", "m 17–128", "m 129–1,024", "m > 1,024")
"""By the tokens that a kernel works on at once."""

EDGES = (16, 128, 1024)
BOUNDS = ("compute", "memory", "network")
LABELS = ("op", "device", "engine", "dtype", "regime", "bound")


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows of one key: their places in the table, extents as arrays (NaN: not given)."""

    key: Key
    at: Ints
    dims: dict[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPredictions:
    """Predictions of a part's rows in seconds; NaN where there is none, and then a reason for the row."""

    seconds: Floats | float
    low: Floats | float
    high: Floats | float
    naive: Floats | float
    evidence: str
    regime: Ints | int
    bound: Ints | int


def validate_table(table: Table, times: RunTimes) -> Validation:
    """Every row predicted or refused with a reason."""
    count = len(table)
    columns = {name: np.full(count, np.nan) for name in ("seconds", "low", "high", "naive")}
    codes = {name: np.full(count, -1) for name in ("regime", "bound")}
    evidence = np.full(count, "", dtype=object)
    reasons: dict[int, str] = {}
    timers = Timers(times.store)
    for part in counted(list(parts(table)), f"kernels of {table.name}"):
        try:
            usable, found = predict_rows(part, timers)
        except ArchsimError as error:
            reasons |= dict.fromkeys(part.at.tolist(), error.message)
            continue
        for name, column in columns.items():
            column[part.at] = getattr(found, name)
        for name, column in codes.items():
            column[part.at] = getattr(found, name)
        evidence[part.at] = found.evidence
        reasons |= missing(part, usable)
    return _answer(table, columns, codes, evidence, reasons)


def parts(table: Table) -> Iterator[KeyRows]:
    """The rows gathered by key, in order of first appearance."""
    count = len(table)
    keys = zip(*([_text(v) for v in table.questions.get(n, [""] * count)] for n in Key._fields), strict=True)
    index: dict[Key, int] = {}
    codes = np.array([index.setdefault(key, len(index)) for key in map(Key._make, keys)], dtype=int)
    dims = {name: _floats(table.questions[name]) for name in EXTENTS if name in table.questions}
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(index) + 1))
    for key, code in index.items():
        at = order[ends[code] : ends[code + 1]]
        yield KeyRows(key, at, {name: values[at] for name, values in dims.items()})


class _Memo(dict[Any, float]):
    """Fields as floats, each text converted once; NaN for what is no number."""

    def __missing__(self, field: Any) -> float:
        try:
            found = float(field) if field not in ("", None) else np.nan
        except (TypeError, ValueError):
            found = np.nan
        except OverflowError:
            found = np.inf
        self[field] = found
        return found


def _floats(column: Sequence[object]) -> Floats:
    memo = _Memo()
    return np.array([memo[field] for field in column])


def _text(field: object) -> str:
    return "" if field is None else str(field).strip()


def predict_rows(part: KeyRows, timers: Timers) -> tuple[Bools, KeyPredictions]:
    """Which rows of a part can be asked, and the predictions. Raises UnknownName for a device or class."""
    key = part.key
    needed = needs(key.op)
    if needed is None:
        raise UnknownName(f"no time model for kernels of class {quote(key.op)}")
    clock = timers[key.device, key.engine]
    call = kernel_call(part, needed)
    usable = np.ones(len(part.at), bool)
    for name in needed.positive:
        values = call.dims.get(name)
        if values is not None:
            usable &= np.isfinite(values) & (values >= SMALLEST_EXTENT)
        elif name in needed.dims:
            usable &= False
    for values in part.dims.values():
        usable &= ~(np.abs(values) > LARGEST_EXTENT)
    if not usable.any():
        return usable, NOTHING
    some = int(np.argmax(usable))
    dims = {name: np.where(usable, values, values[some]) for name, values in call.dims.items()}
    return usable, predict_call(clock, call._replace(dims=dims), usable)


NOTHING = KeyPredictions(seconds=np.nan, low=np.nan, high=np.nan, naive=np.nan, evidence="", regime=-1, bound=-1)
"""Of a part that has no row that can be asked."""


class Timers(dict[tuple[str, str], Timer]):
    """Timers by device and engine, made when first asked for. Raises UnknownName for a device."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def __missing__(self, key: tuple[str, str]) -> Timer:
        device, engine = key
        self[key] = timer(load_hardware(device), engine, store=self.store)
        return self[key]


def kernel_call(part: KeyRows, needed: Needs) -> KernelCall:
    """The rows as one array call; extents that a class can do without are filled where they are empty."""
    dims = dict(part.dims)
    for name, usual in needed.usual.items():
        other = dims.get(usual) if isinstance(usual, str) else np.full(len(part.at), float(usual))
        if other is not None:
            own = dims.get(name, np.full(len(part.at), np.nan))
            dims[name] = np.where(np.isfinite(own), own, other)
    dims = {name: values for name, values in dims.items() if np.isfinite(values).any()}
    key = part.key
    return KernelCall(key.op, key.dtype or "bf16", key.kv_dtype, key.kernel, dims)


def predict_call(clock: Timer, call: KernelCall, usable: Bools) -> KeyPredictions:
    """The predictions of one array call, with the roofline beside them."""
    found = kernel_time(clock, call)
    naive = np.stack([np.broadcast_to(np.asarray(part, float), usable.shape) for part in bounds(call, clock.machine)])

    def kept(values: float | Floats) -> Floats:
        full = np.broadcast_to(np.asarray(values, float), usable.shape)
        return np.where(usable & np.isfinite(full), full, np.nan)

    return KeyPredictions(
        seconds=kept(found.expected), low=kept(found.low), high=kept(found.high), naive=kept(naive.max(axis=0)),
        evidence=found.evidence, regime=regimes(call, usable), bound=np.where(usable, naive.argmax(axis=0), -1),
    )  # fmt: skip


def regimes(call: KernelCall, usable: Bools) -> Ints:
    """The regime of every row, by its tokens; -1 for kernels that have none (collectives)."""
    dims = call.dims
    if "m" in dims:
        tokens = dims["m"]
    elif "batch" in dims:
        tokens = dims["batch"] * dims["seq_q"] if call.kernel_class.endswith("prefill") else dims["batch"]
    else:
        return np.full(usable.shape, -1)
    return np.where(usable, np.searchsorted(EDGES, tokens), -1)


def missing(part: KeyRows, usable: Bools) -> dict[int, str]:
    """Why rows of a part cannot be predicted."""
    found: dict[int, str] = {}
    needed = needs(part.key.op)
    for i in np.flatnonzero(~usable).tolist():
        bad = [name for name in needed.positive if not _is_usable(part, name, i, needed)] if needed else []
        large = [name for name, values in part.dims.items() if abs(values[i]) > LARGEST_EXTENT]
        why = f"{', '.join(large)} above {LARGEST_EXTENT:,}" if large else ""
        needs_them = f"{part.key.op} needs {', '.join(bad)} as a positive number" if bad else ""
        found[int(part.at[i])] = why or needs_them
    return found


def _is_usable(part: KeyRows, name: str, row: int, needed: Needs) -> bool:
    """Whether a row states an extent as a positive number, or leaves out one that it need not state."""
    value = part.dims[name][row] if name in part.dims else np.nan
    return bool(value >= SMALLEST_EXTENT) if np.isfinite(value) else bool(np.isnan(value) and name not in needed.dims)


def _answer(
    table: Table, columns: dict[str, Floats], codes: dict[str, Ints], evidence: Array, reasons: dict[int, str]
) -> Validation:
    known = np.isfinite(columns["seconds"]) & (columns["seconds"] > 0)
    for row in np.flatnonzero(~known).tolist():
        reasons.setdefault(row, "the time model gives no time above zero for these extents")
    at = np.flatnonzero(known)
    rows = at.tolist()
    measured = np.array([np.nan if v is None else v for v in table.measured[METRIC]], dtype=float)
    names: dict[str, Sequence[str]] = {"regime": (*REGIMES, ""), "bound": (*BOUNDS, "")}
    labels: dict[str, list[str]] = {}
    for name in LABELS:
        if name in names:
            labels[name] = [names[name][code] for code in codes[name][at].tolist()]
        elif name in table.questions:
            column = table.questions[name]
            labels[name] = [_text(column[i]) for i in rows]
    return Validation(
        kind="kernels", files=(table.name,),
        rows=Rows(
            ids=[table.ids[i] for i in rows], metrics=Repeated(METRIC, len(rows)), measured=measured[at],
            predicted=columns["seconds"][at] * MICRO, low=columns["low"][at] * MICRO,
            high=columns["high"][at] * MICRO, naive=columns["naive"][at] * MICRO,
            evidence=evidence[at].tolist(), labels=labels, counted=np.ones(len(rows), bool),
            titles=Titles(table, rows), peers=_peers(table)[at],
        ),
        refused=tuple(Refused(table.ids[i], METRIC, reasons[i]) for i in sorted(reasons)),
    )  # fmt: skip


def _peers(table: Table) -> Ints:
    """The same call on whatever device, by whatever engine and kernel."""
    names = [name for name in ("op", "dtype", "kv_dtype", *EXTENTS) if name in table.questions]
    return codes_of([table.questions[name] for name in names])


class Titles(Sequence[str]):
    """What each row is, put into words only where it is asked for."""

    def __init__(self, table: Table, rows: Sequence[int]) -> None:
        self.table, self.rows = table, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Titles(self.table, self.rows[at])
        asked = self.table.question(self.rows[at])
        words = [_text(asked.pop(name, "")) for name in ("op", "device", "engine", "dtype", "kv_dtype", "kernel")]
        extents = [f"{name} {value}" for name, value in asked.items() if name in EXTENTS]
        return " ".join([*filter(None, words[:4]), *extents])


def kernel_time(timer: Timer, call: KernelCall) -> Duration:
    """A kernel's time, or those of a table of calls; a class without a time model at the usual efficiencies."""
    if call.kernel_class in MODELS:
        return timer.time(call)
    compute, memory, link = bounds(call, timer.machine)
    time = seconds(compute, memory, link, DATASHEET)
    low, high = UNKNOWN.interval["0"]
    return Duration(time, time * exp(low), time * exp(high))
