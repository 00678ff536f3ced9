"""One structure over one block of a grid: the plan of each point, its memory and its times, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from archsim.sim.budget import Memory
from archsim.sim.estimate import Workload
from archsim.sim.formats import Formats
from archsim.sim.phases import WEAKEST
from archsim.sim.plan import Plan
from archsim.sim.profile import Profile
from archsim.sim.sweep_axes import Axes
from archsim.sim.sweep_chunk import Chunk, Values
from archsim.sim.sweep_columns import BY_NAME, Needs
from archsim.sim.sweep_price import BOUNDS, GridEstimator, axis, bound_of, evidence_of, forget, workload
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

CODES: Mapping[str, tuple[str, ...]] = {"bound": BOUNDS, "evidence": WEAKEST}
"""Ending of a column of words -> the words that its numbers stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What does not vary within a block. plans: one, or with `auto` the candidates in order of size."""

    model: Model
    hardware: Hardware
    formats: Formats
    profile: Profile
    plans: tuple[Plan, ...]
    auto: bool
    engine: str


def evaluate(structure: Structure, axes: Axes, needs: Needs) -> Chunk:
    """A block priced. One-token prompts run in other kernels, and without a past where the answer is one token too:
    they are priced apart.
    """
    if len(axes.input_len) > 1 and axes.input_len[0] == 1:
        parts = [axes._replace(input_len=part) for part in (axes.input_len[:1], axes.input_len[1:])]
        return _joined([evaluate(structure, part, needs) for part in parts], 1)
    if axes.input_len == (1,) and len(axes.output_len) > 1 and axes.output_len[0] == 1:
        parts = [axes._replace(output_len=part) for part in (axes.output_len[:1], axes.output_len[1:])]
        return _joined([evaluate(structure, part, needs) for part in parts], 2)
    try:
        values = _grid(structure, axes, needs)
    finally:
        forget()
    return Chunk(axes.shape, {name: values[name] for name in BY_NAME if name in values})


def _joined(parts: list[Chunk], dimension: int) -> Chunk:
    """Blocks side by side along one dimension."""
    shape = list(parts[0].shape)
    shape[dimension] = sum(part.shape[dimension] for part in parts)
    values: Values = {}
    for name, first in parts[0].values.items():
        if not isinstance(first, np.ndarray) and all(part.values[name] is first for part in parts):
            values[name] = first
            continue
        whole = [np.broadcast_to(_array(part.values[name]), part.shape) for part in parts]
        values[name] = np.concatenate(whole, axis=dimension)
    return Chunk(tuple(shape), values)


def _array(value: Any) -> Any:
    return np.asarray(value, dtype=object if isinstance(value, str) else None)


def _grid(structure: Structure, axes: Axes, needs: Needs) -> Values:
    """All columns of a block of like points."""
    s = structure
    load = workload(*(axis(values, i) for i, values in enumerate(axes)))
    worker = GridEstimator(s.model, s.hardware, s.formats, load, profile=s.profile)
    picks = _picks(worker, s)
    values = _plans(picks)
    if len(picks) == 1:
        values |= _times(worker, picks[0], needs)
    else:
        values |= _merged(s, axes, worker, picks, needs)
    return {
        "model": s.model.name, "hw": s.hardware.id, "weights": s.formats.name, "kv_cache": s.formats.kv.name,
        "engine": s.engine, **load_columns(load), **_words(values | _metrics(values, load)),
    }  # fmt: skip


def load_columns(load: Workload) -> Values:
    """The workload's own columns."""
    return {"batch": load.batch, "input_len": load.input_len, "output_len": load.output_len}


class Pick(NamedTuple):
    """A plan, the points that it is chosen for, and its memory. answered: whether its times are an answer."""

    plan: Plan
    where: Any
    memory: Memory
    answered: bool


def _picks(worker: GridEstimator, s: Structure) -> list[Pick]:
    """The plans chosen, each with its points; where no candidate fits the largest one, without an answer."""
    if not s.auto:
        return [Pick(s.plans[0], True, worker.memory(s.plans[0]), True)]
    found: list[Pick] = []
    open_: Any = np.True_
    budget: Memory | None = None
    for plan in s.plans:
        budget = worker.memory(plan)
        fits = np.asarray(budget.fits) & open_
        if fits.any():
            found.append(Pick(plan, fits, budget, True))
            open_ = open_ & ~fits
            if not open_.any():
                return found
    plan = s.plans[-1] if s.plans else Plan(engine=s.engine)
    return [*found, Pick(plan, open_, budget or worker.memory(plan), False)]


def _plans(picks: list[Pick]) -> Values:
    """Degrees and memory of the plan chosen for each point."""
    found = [_held(pick.plan, pick.memory) for pick in picks]
    masks = [pick.where for pick in picks[:-1]]
    return {name: _selected(masks, [values[name] for values in found]) for name in found[0]}


def _held(plan: Plan, held: Memory) -> Values:
    return {
        "devices": plan.devices, "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "fits": held.fits,
        "memory_bytes_per_device": held.needed, "weights_bytes_per_device": held.weights,
        "kv_cache_bytes_per_device": held.kv_cache, "activation_bytes_per_device": held.activations,
        "free_bytes_per_device": held.free,
    }  # fmt: skip


def _selected(masks: list[Any], values: list[Any]) -> Any:
    """Of each point the value of the plan chosen for it."""
    if not any(isinstance(value, np.ndarray) for value in values) and all(v == values[0] for v in values):
        return values[0]
    result = values[-1]
    for mask, value in zip(reversed(masks), reversed(values[:-1]), strict=True):
        result = np.where(mask, value, result)
    return result


def _times(worker: GridEstimator, pick: Pick, needs: Needs) -> Values:
    """The columns of both phases; words as positions in `CODES`, what does not exist as None."""
    values: Values = {}
    for name in ("prefill", "decode"):
        exists = name == "prefill" or worker.model.architecture != "encoder"
        if exists and pick.answered and needs:
            values |= _phase(worker, name, pick.plan, needs)
        else:
            values |= {c: None for c in BY_NAME if c.startswith(name + "_") and BY_NAME[c].needs}
    return values


Box = tuple[slice, ...]
"""A part of a block: a range along each axis."""


def _merged(s: Structure, axes: Axes, worker: GridEstimator, picks: list[Pick], needs: Needs) -> Values:
    """The columns of both phases, of each point those of the plan chosen for it; plans that differ only in stages
    share what one rank does, which is priced no further than where one of them is chosen.
    """
    values: Values = {}
    groups: dict[Plan, list[Pick]] = {}
    for pick in picks:
        groups.setdefault(replace(pick.plan, pp=1), []).append(pick)
    for members in groups.values():
        box = _box(np.logical_or.reduce([np.broadcast_to(pick.where, axes.shape) for pick in members]))
        part = Axes(*(values_[span] for values_, span in zip(axes, box, strict=True)))
        if part.points < WORTH * axes.points:
            load = workload(*(axis(values_, i) for i, values_ in enumerate(part)))
            local = GridEstimator(s.model, s.hardware, s.formats, load, profile=s.profile)
        else:
            box, local = (slice(None),) * 3, worker
        for pick in members:
            chosen = np.broadcast_to(pick.where, axes.shape)[box]
            for name, value in _times(local, pick, needs).items():
                whole = values.setdefault(name, np.full(axes.shape, np.nan))
                if value is not None:
                    np.copyto(whole[box], value, where=chosen)
    missing = {name for name, value in values.items() if np.isnan(value).all()}
    return {name: None if name in missing else value for name, value in values.items()}


WORTH = 0.7
"""Share of a block below which a part of it is priced by itself: its graphs must be lowered anew."""


def _box(mask: Any) -> Box:
    """The smallest part of a block that holds all points of a mask."""
    spans = []
    for dimension in range(mask.ndim):
        others = tuple(i for i in range(mask.ndim) if i != dimension)
        places = np.flatnonzero(mask.any(axis=others))
        spans.append(slice(int(places[0]), int(places[-1]) + 1))
    return tuple(spans)


def _phase(worker: GridEstimator, name: str, plan: Plan, needs: Needs) -> Values:
    """The columns of one phase."""
    values: Values = {f"{name}_ideal_s": worker.ideal(name, plan)}
    if needs == "ideal":
        return values
    phase = worker.phase(name, plan, limits=needs == "bound")
    values |= {f"{name}_{end}_s": getattr(phase, f"{end}_s") for end in ("expected", "low", "high")}
    values[f"{name}_evidence"] = evidence_of(phase)
    if needs == "bound":
        values[f"{name}_bound"] = bound_of(phase)
    return values


def _metrics(values: Values, load: Workload) -> Values:
    """The unqueued figures of `estimate`, from the expected times."""
    ttft, tpot = values.get("prefill_expected_s"), values.get("decode_expected_s")
    if tpot is None:
        rates = ("tpot_s", "tokens_per_s", "tokens_per_s_per_user", "tokens_per_s_per_device")
        return {"ttft_s": ttft, "e2e_s": ttft, **dict.fromkeys(rates)}
    rate = load.batch / tpot
    return {
        "ttft_s": ttft, "tpot_s": tpot, "e2e_s": ttft + tpot * (load.output_len - 1), "tokens_per_s": rate,
        "tokens_per_s_per_user": 1 / tpot, "tokens_per_s_per_device": rate / values["devices"],
    }  # fmt: skip


def _words(values: Values) -> Values:
    """Columns of words, from the positions that stand for them."""
    for name, value in values.items():
        words = CODES.get(name.rsplit("_", 1)[-1])
        if words is not None and value is not None:
            values[name] = _spelled(value, words)
    return values


def _spelled(value: Any, words: tuple[str, ...]) -> Any:
    if not isinstance(value, np.ndarray):
        return None if value != value else words[int(value)]
    table = np.array([*words, None], dtype=object)
    codes = np.where(np.isnan(value), len(words), value) if value.dtype == np.float64 else value
    return table[codes.astype(np.int64)]
