"""Constants of engines on architectures without kernel tables, fitted to serving runs under load.

One share of the peak that products in narrow formats sustain for an engine and an architecture, one gap between
launches for each version of the engine, and one time of a launch in steps with prompts for each device. Errors are of
devices that a fit has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log

import numpy as np

from archsim.accuracy.loaded import run_of_load
from archsim.accuracy.question import device_of, model_of, real, weights_of
from archsim.base.arrays import Floats
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.version import version_of
from archsim.calibration.engine_fits import (
    Free,
    Sample,
    fit_numbers,
    predict_held,
    put_all,
    stated,
    unseen_fits,
)  # fmt: skip
from archsim.calibration.fitting import errors, quantiles
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine, engine_and_version
from archsim.engines.overhead import ANY_DEVICE
from archsim.graph.step import Step
from archsim.serving.steady_state import steady
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store
from archsim.timing.kernel_timer import WIDER
from archsim.timing.step_pricer import StepPricer, engine_overheads

GAP = (3.0, 1.0)
"""Prior of the gap between launches in microseconds, and its spread in log: that of a CUDA graph's nodes is near 1."""

SHARE = (0.5, 0.7)
"""Prior of the sustained share of the peak, and its spread in log."""

FEWEST = 4
"""Rows below which an engine and an architecture have no fit."""

OWN_GAP = 12
"""Rows of a version below which it has the gap of the one before it."""

PROMPT_GAPS = (0.012, 0.04)
"""Share of the gaps between tokens that hold a prompt, with which the longest hundredth of them has one, not several.
"""

SHORT_PROMPT = 2048
"""Tokens of a prompt up to which launching its kernels takes no less than computing them (a judgement): longer ones
are left out of fits of launches.
"""

ALIKE = (1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0)
"""Gaps of neighbouring versions that differ by less may be one: limits that are tried, fewest gaps first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One closed-loop run with its mean TPOT: what was asked of which engine on which device. prompt_s: seconds of a
    step with a prompt, by which the longest gaps between tokens are above the usual one; 0 where they do not say it.
    """

    model: str
    device: str
    engine: str
    version: str
    weights: str | None
    tp: int
    concurrency: int
    isl: int
    osl: int
    tpot_s: float
    prompt_s: float = 0.0

    @property
    def family(self) -> str:
        """The device's architecture."""
        return device_of(self.device).arch.family

    def predict(self, store: Store) -> float:
        """Seconds per output token in the steady state."""
        return _tpot(self.model, self.device, f"{self.engine}@{self.version}", self.weights, self.tp, self.concurrency,
                     self.isl, self.osl, store)  # fmt: skip

    def launch_s(self, store: Store) -> float | None:
        """Seconds of each launch in its steps with prompts, which may take as long for their kernels: an upper bound
        then. None where it is not known.
        """
        if not self.prompt_s or self.isl > SHORT_PROMPT:
            return None
        asked = self.model, self.device, f"{self.engine}@{self.version}", self.weights, self.tp, self.isl, store
        return self.prompt_s / launches_of_prompt(*asked)


@lru_cache(maxsize=64)
def launches_of_prompt(
    model: str, device: str, engine: str, weights: str | None, tp: int, isl: int, store: Store
) -> float:
    """Launches of a step with one prompt."""
    spec = model_of(model)[0]
    formats = choose_formats(spec, weights_of(model, weights), None, engine=engine)
    plan = Plan(tp=tp, engine=choose_engine(engine).rules.name)
    pricer = StepPricer.of(spec, device_of(device), formats, engine_overheads(engine, store), plan, store=store)
    return float(pricer.price(Step.prefill(1, isl)).rank.launches)


@lru_cache(maxsize=4096)
def _tpot(
    model: str, device: str, engine: str, weights: str | None, tp: int, concurrency: int, isl: int, osl: int,
    store: Store,
) -> float:  # fmt: skip
    spec, _ = model_of(model)
    found = steady(
        spec, device_of(device), concurrency=concurrency, input_len=isl, output_len=osl, tp=tp,
        weights=weights_of(model, weights), engine=engine, store=store,
    )  # fmt: skip
    return float(found.tpot.expected)


def loaded_runs(rows: Sequence[Mapping[str, str]]) -> Iterator[LoadedRun]:
    """The rows of a table of loaded runs that say what ran: those that `validate` answers, on tensor parallelism alone,
    with a version or the day of the run, and a TPOT (the median of requests where no mean is stated).
    """
    for row in rows:
        tpot = real(row, "tpot_mean_ms") or real(row, "tpot_p50_ms")
        try:
            run = run_of_load(row)
            engine, version = engine_and_version(run.engine)
            device_of(run.device)
            model_of(run.model)
        except ArchsimError:
            continue
        if not (tpot and run.batch and run.isl and run.osl and version) or run.decode is not None:
            continue
        if (run.pp, run.dp, run.ep) == (1, 1, 1):
            yield LoadedRun(
                model=run.model, device=run.device, engine=engine, version=version, weights=run.weights,
                tp=run.tp, isl=run.isl, osl=run.osl, concurrency=run.batch, tpot_s=tpot / 1e3,
                prompt_s=_prompt_s(row, run.batch / run.osl),
            )  # fmt: skip


def _prompt_s(row: Mapping[str, str], prompts: float) -> float:
    """Seconds of a step with a prompt by the gaps between tokens of a run. prompts: in a step, on average."""
    low, high = PROMPT_GAPS
    usual, longest = real(row, "itl_p50_ms"), real(row, "itl_p99_ms")
    return (longest - usual) / 1e3 if low < prompts < high and usual and longest else 0.0


def sample_of(runs: Sequence[LoadedRun]) -> Sample:
    """Runs as a fit takes them; a family is a device."""

    def predict(store: Store, at: Sequence[int]) -> np.ndarray:
        return np.array([runs[i].predict(store) for i in at])

    return Sample(
        rows=tuple(range(len(runs))), keys=tuple(run.device for run in runs), predict=predict,
        measured=np.array([run.tpot_s for run in runs]), families="devices",
    )  # fmt: skip


def profile(known: Store, engine: str, family: str) -> JsonObject:
    """What a store says of an engine on an architecture; an open interval where it says nothing."""
    found = known.engines.get(engine, {}).get("architectures", {}).get(family, {})
    return {"launch_gap_us": {}, "interval": [0.0, 0.0], **found}


def put_profile(known: Store, engine: str, family: str, values: JsonMapping) -> Store:
    """The store with another profile of an engine on an architecture."""
    measured = dict(known.engines.get(engine, {}))
    measured["architectures"] = {**measured.get("architectures", {}), family: values}
    return replace(known, engines={**known.engines, engine: measured})


def open_numbers(engine: str, family: str, versions: Sequence[str]) -> list[Free]:
    """The gap of each version, then the share of the peak."""

    def gap(version: str) -> Callable[[Store, float], Store]:
        def put(known: Store, value: float) -> Store:
            old = profile(known, engine, family)
            gaps = {**old["launch_gap_us"], version: value}
            return put_profile(known, engine, family, {**old, "launch_gap_us": gaps})

        return put

    def share(known: Store, value: float) -> Store:
        return put_profile(known, engine, family, {**profile(known, engine, family), "sustained_narrow": value})

    gaps = [Free(GAP[0], 0.05, 50.0, gap(version), GAP[1]) for version in versions]
    return [*gaps, Free(SHARE[0], 0.05, 1.0, share, SHARE[1])]


def versions_of(runs: Sequence[LoadedRun]) -> list[str]:
    """Versions with a gap of their own: those with many runs, else that with most."""
    count = Counter(run.version for run in runs)
    return sorted(version for version, n in count.items() if n >= min(OWN_GAP, max(count.values())))


def alike(gaps: Mapping[str, float], limit: float = ALIKE[0]) -> list[list[str]]:
    """Neighbouring versions whose gaps differ by less than a factor, the oldest first."""
    groups: list[list[str]] = []
    for version in sorted(gaps, key=lambda text: version_of(text) or ()):
        if groups and 1 / limit < gaps[version] / gaps[groups[-1][0]] < limit:
            groups[-1].append(version)
        else:
            groups.append([version])
    return groups


def pooled(gaps: Mapping[str, float], runs: Mapping[str, int], groups: Sequence[Sequence[str]]) -> dict[str, float]:
    """The gap of each group of versions, the mean of their logarithms by runs: it stands from the oldest of them on."""
    found = {}
    for group in groups:
        count = sum(runs[version] for version in group)
        found[group[0]] = float(f"{exp(sum(runs[version] * log(gaps[version]) for version in group) / count):.4g}")
    return found


def with_groups(
    known: Store, engine: str, family: str, runs: Mapping[str, int], groups: Sequence[Sequence[str]]
) -> Store:
    """The store with one gap for each group of versions. runs: of each version."""
    found = profile(known, engine, family)
    return put_profile(known, engine, family, {**found, "launch_gap_us": pooled(found["launch_gap_us"], runs, groups)})


def prompt_launch_us(runs: Sequence[LoadedRun], known: Store) -> JsonObject:
    """Microseconds of a launch in steps with prompts by device: the middle of the runs that say it, and what a tenth of
    them is below and above. `any`: of other devices, whose host is not known: the mean of all, as far as these reach.
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        if (launch_s := run.launch_s(known)) is not None:
            found.setdefault(device_of(run.device).id, []).append(launch_s * 1e6)
    seen = {device: [float(np.quantile(each, q)) for q in (0.5, 0.1, 0.9)] for device, each in sorted(found.items())
            if len(each) >= FEWEST}  # fmt: skip
    if not seen:
        return {}
    middle = exp(sum(log(value) for value, _, _ in seen.values()) / len(seen))
    ends = min(low for _, low, _ in seen.values()), max(high for _, _, high in seen.values())
    every = {**seen, ANY_DEVICE: [middle, *ends]}
    return {device: [float(f"{value:.4g}") for value in values] for device, values in every.items()}


def fit_architecture(engine: str, family: str, runs: Sequence[LoadedRun], known: Store) -> JsonObject:
    """The profile of an engine on an architecture, with the interval and the errors of unseen devices; of one device
    alone the errors of the fit itself, and an interval wider than they are. Launches of prompts come first, by their
    own figures. Gaps that are alike are one, as far as runs of unseen devices do not tell them apart.
    """
    sample, count = sample_of(runs), Counter(run.version for run in runs)
    bare = put_profile(known, engine, family, {"launch_gap_us": {}, "interval": [0.0, 0.0]})
    launches = prompt_launch_us(runs, bare)
    if launches:
        bare = put_profile(known, engine, family, {**profile(bare, engine, family), "prompt_launch_us": launches})
    free = open_numbers(engine, family, versions_of(runs))
    apart = put_all(free, fit_numbers(free, sample, bare), bare)
    gaps, several = profile(apart, engine, family)["launch_gap_us"], len(set(sample.keys)) > 1
    every = np.ones(len(runs), bool)
    fits = list(unseen_fits(free, sample, bare)) if several else [(every, apart)]
    tried: list[tuple[list[list[str]], Floats]] = []
    for groups in (alike(gaps, limit) for limit in (ALIKE if several else ALIKE[:1])):
        if not tried or groups != tried[-1][0]:
            joined = [(held, with_groups(fitted, engine, family, count, groups)) for held, fitted in fits]
            tried.append((groups, predict_held(joined, sample)))
    groups, held = min(tried, key=lambda one: errors(one[1], sample.measured).median)
    low, high = (end * (1 if several else WIDER) for end in quantiles(held, sample.measured))
    return {
        **profile(with_groups(apart, engine, family, count, groups), engine, family),
        "interval": [round(min(low, 0.0), 3), round(max(high, 0.0), 3)],
        "errors": {"held_out": "devices" if several else "none", **stated(errors(held, sample.measured))},
    }  # fmt: skip


def refit_architectures(
    document: JsonMapping, rows: Sequence[Mapping[str, str]], known: Store, say: Callable[[str], None]
) -> JsonObject:
    """`engines.yaml` with the profiles of engines on architectures of vendors without kernel tables fitted anew."""
    tabulated = {entry.vendor for entry in known.entries if entry.device}
    groups: dict[tuple[str, str], list[LoadedRun]] = {}
    for run in loaded_runs(rows):
        if device_of(run.device).vendor not in tabulated:
            groups.setdefault((run.engine, run.family), []).append(run)
    engines = {name: dict(measured) for name, measured in document["engines"].items()}
    for (engine, family), runs in groups.items():
        if len(runs) >= FEWEST:
            found = fit_architecture(engine, family, runs, known)
            measured = engines.setdefault(engine, {})
            measured["architectures"] = {**measured.get("architectures", {}), family: found}
            say(f"{engine} on {family}: {len(runs)} runs under load, median error {found['errors']['median']:.1%}")
    return {**document, "engines": engines}
