"""What is fitted to whole runs: one overhead per engine stack, and kernels of engines that nobody has tabulated.

Serving stacks whose kernels are measured get one number, the host's work per step. Engines without tables (llama.cpp,
AWQ kernels, ...) get the constants of their products and attention, from public runs in which these are nearly all of
the time. Which numbers are open, and their priors, stand in the engine's document; errors are of model and device
pairs that a fit has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy import runs, serving
from archsim.accuracy.files import Table
from archsim.accuracy.question import device_of, engine_of
from archsim.accuracy.rows import Rows
from archsim.accuracy.times import KINDS, RunTimes
from archsim.accuracy.validation import Validation
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.calibration.fitting import TAIL, Errors, errors, quantiles
from archsim.calibration.least_squares import SOFT, Search, minimise
from archsim.calibration.serving_fits import refit_serving, served_points
from archsim.calibration.writing import write_yaml
from archsim.engines.names import choose_engine, engine_and_version
from archsim.spec.catalog import files
from archsim.spec.engine import KernelPrior, load_engine
from archsim.timing.calibration import Entry, Store, default_store
from archsim.timing.classes.catalog import MODELS

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats


FOLDS = 4
ROOM = 4.0
"""Factor beyond a constant's usual range: whole runs also hold what no kernel table has."""

OVERHEAD = (300.0, 1.0)
"""Prior of the host's work per step in microseconds, and its spread in log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Runs that a fit may use. key: what makes up a family. predict: of some of them, with a store. families: what
    the keys are, in words.
    """

    rows: tuple[int, ...]
    keys: tuple[str, ...]
    measured: Floats
    predict: Callable[[Store, Sequence[int]], Floats]
    families: str = "pairs of model and device"

    def by_device(self) -> Sample:
        """The same runs with whole devices as families, where there are enough of them."""
        devices = tuple(key.rpartition(" ")[2] for key in self.keys)
        return replace(self, keys=devices, families="devices") if len(set(devices)) > FOLDS else self

    def take(self, mask: Bools) -> Sample:
        """Some of the runs."""
        kept = [i for i, use in enumerate(mask) if use]
        return replace(self, rows=tuple(self.rows[i] for i in kept), keys=tuple(self.keys[i] for i in kept),
                       measured=self.measured[kept])  # fmt: skip


class Free(NamedTuple):
    """One number that is open. put: a store with the number in it. spread: of the prior, in log."""

    centre: float
    low: float
    high: float
    put: Callable[[Store, float], Store]
    spread: float = 0.5


SEARCH = Search(step=0.05, damping=0.1, rounds=6)
"""Each prediction is that of whole runs: few rounds, and slopes over steps that beat their rounding."""


def fit_numbers(free: Sequence[Free], sample: Sample, known: Store) -> list[float]:
    """The numbers that, put into a store, bring predictions of whole runs nearest to what was measured.

    In the logarithms, with log-normal priors at the centres that weigh as much as one row each.
    """
    centre, spread = np.log([f.centre for f in free]), np.array([f.spread for f in free])
    low, high = (np.log([getattr(f, end) for f in free]) for end in ("low", "high"))

    def residuals(x: Floats) -> Floats:
        tried = put_all(free, np.exp(x).tolist(), known)
        rest = np.log(sample.predict(tried, sample.rows) / sample.measured)
        return np.concatenate([rest, (x - centre) / spread * SOFT])

    found = np.exp(minimise(residuals, centre, low, high, SEARCH)).tolist()
    return [float(f"{value:.4g}") for value in found]


def put_all(free: Sequence[Free], values: Sequence[float], known: Store) -> Store:
    """The store with some numbers in it."""
    for f, value in zip(free, values, strict=True):
        known = f.put(known, value)
    return known


def unseen_fits(free: Sequence[Free], sample: Sample, known: Store) -> Iterator[tuple[Bools, Store]]:
    """Parts of the runs, each with the store fitted on families that are not in it."""
    families = sorted(set(sample.keys))
    order = np.random.default_rng(0).permutation(len(families))
    part = np.array([order[families.index(key)] % FOLDS for key in sample.keys])
    for fold in range(FOLDS):
        held = part == fold
        if held.any() and not held.all():
            yield held, put_all(free, fit_numbers(free, sample.take(~held), known), known)


def predict_held(fits: Iterable[tuple[Bools, Store]], sample: Sample) -> Floats:
    """Predictions of every run by the fit of its part; not a number where there is none."""
    found = np.full(len(sample.rows), np.nan)
    for held, fitted in fits:
        found[held] = sample.predict(fitted, sample.take(held).rows)
    return found


def predict_unseen(free: Sequence[Free], sample: Sample, known: Store) -> Floats:
    """Predictions of every run by fits that have not seen its family."""
    return predict_held(unseen_fits(free, sample, known), sample)


# ---------------------------------------------------------------------- what is open
def overhead(engine: str, way: str) -> Free:
    """The host's work per step of an engine that drives the device in a `way`, in microseconds, none for a sequence."""

    def put(known: Store, value: float) -> Store:
        profile = dict(known.engines.get(engine, {}))
        work = {"step_us": (value, value, value), "sequence_us": (0.0, 0.0, 0.0)}
        profile["host"] = {**profile.get("host", {}), way: work}
        return replace(known, engines={**known.engines, engine: profile})

    return Free(OVERHEAD[0], 5.0, 20_000.0, put, OVERHEAD[1])


def constants(engine: str, fits: Sequence[KernelPrior]) -> Iterator[tuple[int, str, Free]]:
    """The open constants of an engine's kernels: position of the fit, name, and the number."""
    for position, one in enumerate(fits):
        for name, (centre, spread) in one.prior.items():
            model = MODELS[one.kernel_class]
            stated = {**model.constants, **model.extra}[name]
            put = _put_constant(engine, one.vendor, one.kernel_class, one.dtype, name)
            high = stated.high * (1 if stated.high == 1 else ROOM)
            yield position, name, Free(centre, stated.low / ROOM, high, put, spread)


def given(engine: str, fits: Sequence[KernelPrior], known: Store) -> Store:
    """The store with the constants that the engine's document states, and nothing else, in the entries to be fitted."""
    keys = {_key(engine, one.vendor, one.kernel_class, one.dtype) for one in fits}
    experts = {_key(engine, one.vendor, "moe", one.dtype) for one in fits if one.kernel_class == "gemm"}
    kept = tuple(entry for entry in known.entries if _key_of(entry) not in keys | experts)
    stated = tuple(_entry(engine, one.vendor, one.kernel_class, one.dtype, one.given) for one in fits if one.given)
    return replace(known, entries=(*kept, *stated))


def _key(engine: str, vendor: str, op: str, dtype: str) -> tuple[str, ...]:
    return "", vendor, engine, op, dtype


def _key_of(entry: Entry) -> tuple[str, ...]:
    return entry.device, entry.vendor, entry.engine, entry.op, entry.dtype


def _entry(engine: str, vendor: str, op: str, dtype: str, numbers: Mapping[str, float]) -> Entry:
    """A fit of an engine on all devices of a vendor."""
    return Entry(device="", vendor=vendor, engine=engine, version="", op=op, dtype=dtype, constants=numbers)


def _put_constant(engine: str, vendor: str, op: str, dtype: str, name: str) -> Callable[[Store, float], Store]:
    key = _key(engine, vendor, op, dtype)

    def put(known: Store, value: float) -> Store:
        apart: dict[bool, list[Entry]] = {True: [], False: []}
        for entry in known.entries:
            apart[_key_of(entry) == key].append(entry)
        old = apart[True][0].constants if apart[True] else {}
        made = _entry(engine, vendor, op, dtype, {**old, name: value})
        return replace(known, entries=(*apart[False], made))

    return put


# ---------------------------------------------------------------------- results
def fit_kernels(engine: str, fits: Sequence[KernelPrior], sample: Sample, store: Store) -> list[JsonObject]:
    """An engine's kernels with their constants, the interval and errors of unseen families, for `engines.yaml`."""
    open_ = list(constants(engine, fits))
    free = [number for _, _, number in open_]
    store = given(engine, fits, store)
    values = fit_numbers(free, sample, store)
    held = predict_unseen(free, sample, store)
    known = np.isfinite(held)
    low, high = quantiles(held[known], sample.measured[known])
    ends = [round(min(low, 0.0), 3), round(max(high, 0.0), 3)]
    seen = stated(errors(held, sample.measured))
    result = []
    for position, one in enumerate(fits):
        named = {"vendor": one.vendor, "op": one.kernel_class, **({"dtype": one.dtype} if one.dtype else {})}
        mine = {name: value for (at, name, _), value in zip(open_, values, strict=True) if at == position} | one.given
        about = {"held_out": sample.families, **seen}
        regimes = {str(code): ends for code in range(4)}
        result.append({**named, "constants": mine, "interval": regimes, "errors": about})
    return result


def fit_overhead(engine: str, way: str, sample: Sample, known: Store) -> tuple[list[float], JsonObject]:
    """The overhead of a stack in microseconds with its range over fits that lack a quarter of the families each, and
    the errors of these fits on the families that they lack.
    """
    free = [overhead(engine, way)]
    whole = fit_numbers(free, sample, known)[0]
    families = sorted(set(sample.keys))
    held, parts = np.full(len(sample.rows), np.nan), [whole]
    for fold in range(FOLDS):
        left = np.array([families.index(key) % FOLDS != fold for key in sample.keys])
        if left.any() and not left.all():
            parts += fit_numbers(free, sample.take(left), known)
            fitted = put_all(free, parts[-1:], known)
            held[~left] = sample.predict(fitted, sample.take(~left).rows)
    seen = stated(errors(held, sample.measured)) if np.isfinite(held).any() else {"rows": 0}
    return [round(v, 1) for v in (whole, min(parts), max(parts))], seen


def stated(seen: Errors) -> JsonObject:
    """Errors as `engines.yaml` has them."""
    return {"rows": seen.rows, **{name: round(getattr(seen, name), 4) for name in ("median", "mean", "p90")}}


# ---------------------------------------------------------------------- samples
RATES = frozenset({"decode_tok_s", "prefill_tok_s", "throughput_tok_s"})
"""Metrics that are tokens per second."""

KERNELS = frozenset({"decode_tok_s", "prefill_tok_s", "tpot_ms", "ttft_ms", "latency_ms"})
"""Metrics of runs in which an engine's kernels are nearly all of the time."""

STEPS = frozenset({"decode_rate_per_seq", "decode_rate_sum", "tpot_mean", "gen_over_wall"})
"""Definitions in which decode steps are nearly all of the time."""

FEWEST, FEWEST_WHOLE, FEWEST_STEPS = 5, 20, 40
"""Runs below which an engine's constants stay at their priors, and below which no spread of whole runs, and none of an
engine's own steps, is taken."""


def refit(document: JsonMapping, tables: Sequence[Table], say: Callable[[str], None]) -> JsonObject:
    """`engines.yaml` with every number fitted anew that the tables say something about. What is open, and from which
    prior, stands in the engines' own documents.
    """
    known = default_store()
    engines = {name: dict(measured) for name, measured in document["engines"].items()}
    lists = [table for table in tables if table.kind == "runs"]
    tables_served = [table for table in tables if table.kind == "serving"]
    points = served_points(tables_served, known)
    stacks = of_steps(lists)
    for name in files("engines"):
        opened = load_engine(name).time
        if fits := refitted_kernels(name, opened.fits, engines.get(name, {}).get("fits", ()), lists, known, say):
            engines.setdefault(name, {})["fits"] = fits
        for stack, sample in stacks.items():
            told = {(point.engine, point.way) for point in points}
            if stack[0] == name and stack[1] and stack not in told and len(sample.rows) >= FEWEST:
                refit_overhead(engines.setdefault(name, {}), stack, sample, known, say)
    refit_serving(engines, points, say)
    result = with_compositions({**document, "engines": engines}, tables_served, known)
    return {**result, "composition": result["composition"] | spreads(result, lists, known)}


def refitted_kernels(
    engine: str,
    opened: Sequence[KernelPrior],
    present: Sequence[JsonObject],
    tables: Sequence[Table],
    known: Store,
    say: Callable[[str], None],
) -> list[JsonObject]:
    """The fits of an engine's kernels, anew for each vendor of which there are runs enough."""
    found: list[JsonObject] = []
    for vendor in dict.fromkeys(prior.vendor for prior in opened if prior.prior):
        sample = of_runs(tables, engine, vendor)
        if sample is not None and len(sample.rows) >= FEWEST:
            mine = [prior for prior in opened if prior.vendor == vendor and prior.prior]
            found += fit_kernels(engine, mine, sample.by_device(), known)
            say(f"{engine} on {vendor}: {len(sample.rows)} runs")
        else:
            found += [fit for fit in present if fit["vendor"] == vendor]
    return found


def refit_overhead(
    measured: JsonObject, stack: tuple[str, str], sample: Sample, known: Store, say: Callable[[str], None]
) -> None:
    """Puts the host's work per step of an engine and way of which there are runs alone, and its errors, among what is
    measured of the engine.
    """
    name, way = stack
    numbers, seen = fit_overhead(name, way, sample, known)
    work = {"step_us": numbers, "sequence_us": [0.0, 0.0, 0.0]}
    measured["host"] = {**measured.get("host", {}), way: work}
    measured["host_errors"] = {**measured.get("host_errors", {}), way: {"of": "runs", **seen}}
    say(f"{name} {way}: {numbers[0]:,.0f} us a step from {len(sample.rows)} runs")


def with_compositions(document: JsonMapping, tables: Sequence[Table], known: Store) -> JsonObject:
    """The document with how far whole steps are off beyond the intervals of their kernels and of the host: of all
    serving points, and of each engine and way that several models or devices speak for. One pair of model and device
    says nothing of how far its interval carries.
    """
    engines = {name: {k: v for k, v in own.items() if k != "composition"} for name, own in document["engines"].items()}
    times = RunTimes(replace(known, engines={**engines, "composition": {}}))
    found = [serving.validate_table(table, times).rows for table in tables]
    steps = [rows.scored & (np.array(rows.metrics) == "tpot_ms") for rows in found]
    whole = dict(document.get("composition", {}))
    whole |= _spread_beyond([_rests(rows, mask) for rows, mask in zip(found, steps, strict=True)], 1) or {}
    for (engine, way), families in _stacks(found, steps).items():
        masks = [mask & _of_stack(rows, engine, way) for rows, mask in zip(found, steps, strict=True)]
        spread = _spread_beyond([_rests(rows, mask) for rows, mask in zip(found, masks, strict=True)], FEWEST_STEPS)
        if spread and len(families) > 1:
            engines[engine].setdefault("composition", {})[way] = spread
    return {**document, "engines": engines, "composition": whole}


def _stacks(tables: Sequence[Rows], steps: Sequence[Bools]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """The engines and ways to drive the device that rows are of, with their pairs of model and device."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for rows, mask in zip(tables, steps, strict=True):
        for i in map(int, np.flatnonzero(mask)):
            chosen = choose_engine(rows.labels["engine"][i])
            pair = rows.labels["model"][i], rows.labels["device"][i]
            found.setdefault((chosen.name, chosen.rules.time.host), set()).add(pair)
    return found


def _of_stack(rows: Rows, engine: str, way: str) -> Bools:
    chosen = [choose_engine(name) for name in rows.labels["engine"]]
    return np.array([one.name == engine and one.rules.time.host == way for one in chosen], bool)


def _spread_beyond(rests: Sequence[tuple[Floats, Floats, Floats]], fewest: int) -> JsonObject | None:
    """The interval that leaves 80 % of residuals inside, joined with what the rows' own intervals reach; None of too
    few."""
    rest, low, high = (np.concatenate([part[i] for part in rests] or [np.zeros(0)]) for i in range(3))
    if len(rest) < fewest:
        return None
    ends = [0.0 - beyond(-rest, low), beyond(rest, high)]
    return {"interval": [round(end, 3) for end in ends], "rows": len(rest)}


def spreads(document: JsonMapping, tables: Sequence[Table], known: Store) -> JsonObject:
    """How far whole runs are off beyond the intervals of their steps, by kind of figure."""
    steps = {"interval": document["composition"].get("interval", (0.0, 0.0))}
    times = RunTimes(replace(known, engines={**document["engines"], "composition": steps}))
    found = [runs.validate_table(table, times).rows for table in tables]
    result = {}
    for kind in dict.fromkeys(KINDS.values()) if found else ():
        of_kind = [[KINDS.get(name) == kind for name in rows.labels["definition"]] for rows in found]
        rests = [_rests(rows, np.array(mask, bool) & rows.scored) for rows, mask in zip(found, of_kind, strict=True)]
        if spread := _spread_beyond(rests, FEWEST_WHOLE):
            result[kind] = spread
    return result


def _rests(rows: Rows, mask: Bools) -> tuple[Floats, Floats, Floats]:
    """Log-residuals of some rows, and in log what their intervals reach below and above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = (rows.measured / rows.predicted, rows.predicted / rows.low, rows.high / rows.predicted)
        rest, low, high = (np.log(column[mask]) for column in columns)
    return rest, low, high


def beyond(rest: Floats, reach: Floats) -> float:
    """The spread that, joined with `reach` as an independent error, leaves `TAIL` of the residuals above."""
    needed = np.sort(np.sqrt(np.maximum(np.where(rest > 0, rest, 0.0) ** 2 - reach**2, 0.0)))
    rank = min(len(needed) - 1, int(np.ceil((1 - TAIL) * (len(needed) + 1))) - 1)
    return float(needed[rank])


def of_steps(tables: Sequence[Table]) -> dict[tuple[str, str], Sample]:
    """Runs of a stated engine version in which steps of a known batch are nearly all of the time, by engine and way."""
    found: dict[tuple[str, str], Sample] = {}
    for table in tables:
        stacks: dict[tuple[str, str], list[int]] = {}
        for i in range(len(table)):
            asked = table.question(i)
            if asked.get("definition") in STEPS and asked.get("batch") and _value(table, i):
                chosen = choose_engine(engine_of(asked.get("engine"), asked.get("engine_version"))[0])
                if chosen.version:
                    stacks.setdefault((chosen.name, chosen.rules.time.host), []).append(i)
        for stack, rows in stacks.items():
            found[stack] = _as_times(table, rows)
    return found


def _as_times(table: Table, rows: Sequence[int]) -> Sample:
    """Runs of a list as times: rates are turned over."""
    rate = {i: table.question(i)["metric"] in RATES for i in rows}
    keys = tuple(f"{table.question(i)['model']} {table.question(i)['device']}" for i in rows)
    measured = [_value(table, i) for i in rows]
    return Sample(
        rows=tuple(rows), keys=keys, predict=_predictor(table, runs.validate_table, rate),
        measured=np.array([1 / v if rate[i] else v for i, v in zip(rows, measured, strict=True)]),
    )  # fmt: skip


def of_runs(tables: Sequence[Table], engine: str, vendor: str) -> Sample | None:
    """The runs of one engine on devices of one vendor, as times: rates are turned over."""
    for table in tables:
        rows = [i for i in range(len(table)) if _is_of(table.question(i), engine, vendor)]
        rows = [i for i in rows if _value(table, i)]
        if rows:
            return _as_times(table, rows)
    return None


def _is_of(question: JsonMapping, engine: str, vendor: str) -> bool:
    if question.get("metric") not in KERNELS:
        return False
    try:
        name = engine_and_version(str(question.get("engine")))[0]
        return name == engine and device_of(question["device"]).vendor == vendor
    except ArchsimError:
        return False


def _value(table: Table, row: int) -> float:
    return next((column[row] or 0.0 for column in table.measured.values() if column[row]), 0.0)


def _predictor(
    table: Table, validate_table: Callable[[Table, RunTimes], Validation], rate: Mapping[int, bool]
) -> Callable[[Store, Sequence[int]], Floats]:
    """Predicted times of some rows of a table."""

    def predict(store: Store, rows: Sequence[int]) -> Floats:
        part = replace(table.take(rows), ids=[str(i) for i in rows])
        found = validate_table(part, RunTimes(store)).rows
        times = {}
        for id, metric, value in zip(found.ids, found.metrics, found.predicted, strict=True):
            if metric != "ttft_ms" or rate:
                times[id] = 1 / value if rate.get(int(id)) else value
        return np.array([times.get(str(i), np.nan) for i in rows], float)

    return predict


def write(document: JsonMapping, source: Path | None, path: Path, *, force: bool = False) -> None:
    """`engines.yaml`, with the comment that heads its source kept."""
    lines = source.read_text("utf-8").splitlines(keepends=True) if source else []
    write_yaml(path, document, "".join(line for line in lines if line.startswith("#")), force=force)
