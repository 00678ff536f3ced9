"""What is fitted to whole runs: one overhead per engine stack, and kernels of engines that nobody has tabulated.

Serving stacks whose kernels are measured get one number, the host's work per step. Engines without tables (llama.cpp,
AWQ kernels, ...) get the constants of their products and attention, from public runs in which these are nearly all of
the time. Which numbers are open, and their priors, stand in the engine's document; errors are of model and device
pairs that a fit has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.base.json_types import JsonObject
from archsim.calibration.fitting import Errors, errors, quantiles
from archsim.calibration.least_squares import SOFT, Search, minimise
from archsim.spec.engine import KernelPrior
from archsim.timing.calibration import Entry, Store
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
    """Runs that a fit may use. key: what makes up a family. predict: of some of them, with a store."""

    rows: tuple[int, ...]
    keys: tuple[str, ...]
    measured: Floats
    predict: Callable[[Store, Sequence[int]], Floats]

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


def predict_unseen(free: Sequence[Free], sample: Sample, known: Store) -> Floats:
    """Predictions of every run by fits that have not seen its family."""
    families = sorted(set(sample.keys))
    order = np.random.default_rng(0).permutation(len(families))
    part = np.array([order[families.index(key)] % FOLDS for key in sample.keys])
    found = np.full(len(sample.rows), np.nan)
    for fold in range(FOLDS):
        held = part == fold
        if held.any() and not held.all():
            fitted = put_all(free, fit_numbers(free, sample.take(~held), known), known)
            found[held] = sample.predict(fitted, sample.take(held).rows)
    return found


# ---------------------------------------------------------------------- what is open
def overhead(engine: str, version: str) -> Free:
    """The host's work per step of one engine stack, in microseconds."""

    def put(known: Store, value: float) -> Store:
        profile = dict(known.engines.get(engine, {}))
        profile["overhead_us"] = {**profile.get("overhead_us", {}), version: (value, value, value)}
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


def _put_constant(engine: str, vendor: str, op: str, dtype: str, name: str) -> Callable[[Store, float], Store]:
    key = ("", vendor, engine, op, dtype)

    def put(known: Store, value: float) -> Store:
        apart: dict[bool, list[Entry]] = {True: [], False: []}
        for entry in known.entries:
            apart[(entry.device, entry.vendor, entry.engine, entry.op, entry.dtype) == key].append(entry)
        old = apart[True][0].constants if apart[True] else {}
        made = Entry(device="", vendor=vendor, engine=engine, version="", op=op, dtype=dtype,
                     constants={**old, name: value})  # fmt: skip
        return replace(known, entries=(*apart[False], made))

    return put


# ---------------------------------------------------------------------- results
def fit_kernels(engine: str, fits: Sequence[KernelPrior], sample: Sample, store: Store) -> list[JsonObject]:
    """An engine's kernels with their constants, the interval and errors of unseen families, for `engines.yaml`."""
    open_ = list(constants(engine, fits))
    free = [number for _, _, number in open_]
    values = fit_numbers(free, sample, store)
    held = predict_unseen(free, sample, store)
    known = np.isfinite(held)
    low, high = quantiles(held[known], sample.measured[known])
    ends = [round(min(low, 0.0), 3), round(max(high, 0.0), 3)]
    seen = stated(errors(held, sample.measured))
    result = []
    for position, one in enumerate(fits):
        named = {"vendor": one.vendor, "op": one.kernel_class, **({"dtype": one.dtype} if one.dtype else {})}
        mine = {name: value for (at, name, _), value in zip(open_, values, strict=True) if at == position}
        about = {"held_out": "pairs of model and device", **seen}
        regimes = {str(code): ends for code in range(4)}
        result.append({**named, "constants": mine, "interval": regimes, "errors": about})
    return result


def fit_overhead(engine: str, version: str, sample: Sample, known: Store) -> tuple[list[float], JsonObject]:
    """The overhead of a stack in microseconds with its range over fits that lack a quarter of the families each, and
    the errors of these fits on the families that they lack.
    """
    free = [overhead(engine, version)]
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
