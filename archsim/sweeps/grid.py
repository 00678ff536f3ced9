"""One slice of a sweep (model, device, formats, engine) over one block of its grid: plans, memory, times, as columns.

The same graphs, time models and rules as `archsim estimate`, with arrays for the numeric axes: batch, prompt and
answer each lie along a dimension of their own, so that what depends on one of them is computed once for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from archsim.base.number import Num
from archsim.cost.price import Price
from archsim.counts.formats import Formats
from archsim.counts.workload import Workload, points_of
from archsim.energy.activity import activity_of
from archsim.engines.overhead import EngineOverheads
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel, EngineTensors
from archsim.memory.plan_search import PlanSearch
from archsim.predict.metrics import METRICS, metrics
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.sweeps.chunk import Axes, Chunk, Values, cells
from archsim.sweeps.columns import BY_NAME, COST_COLUMNS, ENERGY_COLUMNS, EVERYTHING, PRICED, Asked, Needs
from archsim.sweeps.cost_columns import cost_columns
from archsim.sweeps.energy_columns import energy_columns
from archsim.timing.duration import EVIDENCE
from archsim.timing.roofline import BOUNDS
from archsim.timing.step_pricer import StepPricer

PhaseName = Literal["prefill", "decode"]

CODES: Mapping[str, tuple[str, ...]] = {"bound": BOUNDS, "evidence": EVIDENCE}
"""Ending of a column of words -> the words that its numbers stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSlice:
    """What does not vary within a block. plans: one, or with `auto` the candidates in order of size. price: of one
    device and hour. utilization: share of the paid hours that serve.
    """

    tensors: EngineTensors
    overheads: EngineOverheads
    plans: tuple[Plan, ...]
    auto: bool
    price: Price | None = None
    utilization: float = 1.0

    @property
    def model(self) -> Model:
        """The model."""
        return self.tensors.model

    @property
    def hardware(self) -> Hardware:
        """The device."""
        return self.tensors.hardware

    @property
    def formats(self) -> Formats:
        """Weights and cache."""
        return self.tensors.formats

    @property
    def names(self) -> dict[str, str]:
        """Columns that are the same for all points."""
        return {
            "model": self.model.name, "hw": self.hardware.id, "weights": self.formats.name,
            "kv_cache": self.formats.kv.name, "engine": self.tensors.rules.name,
        }  # fmt: skip


class BlockPricer:
    """Memory and times of a slice at the workloads of a block. Prompts are all longer than one token, or all of one."""

    def __init__(self, part: SweepSlice, load: Workload) -> None:
        self.part, self.load = part, load
        self.memory = EngineMemoryModel(part.tensors, load)
        self.steps, self.graphs = self.memory.steps, self.memory.graphs
        self.pricer = StepPricer.of(part.model, part.hardware, part.formats, part.overheads, Plan(), graphs=self.graphs)

    def at(self, mask: object) -> BlockPricer:
        """The pricer of the prefills at the points of a mask over batch and prompts, one after another."""
        return BlockPricer(self.part, points_of(self.load, mask))

    def columns(self, name: PhaseName, plan: Plan, needs: Needs) -> Values:
        """The columns of a phase; words as positions in `CODES`."""
        pricer = self.pricer.on(plan)
        step = self.steps.prefill if name == "prefill" else self.steps.decode
        if needs == "ideal":
            ideal = pricer.prefill_ideal_s(step) if name == "prefill" else pricer.ideal_s(step)
            return {f"{name}_ideal_s": ideal}
        time = pricer.prefill(step) if name == "prefill" else pricer.price(step).called(name)
        values = {f"{name}_{end}_s": getattr(time, f"{end}_s") for end in ("ideal", "expected", "low", "high")}
        values[f"{name}_evidence"] = time.evidence_index
        if needs in ("bound", "activity"):
            values[f"{name}_bound"] = time.bound_index
        if needs == "activity":
            values |= {f"{name}_{part}": value for part, value in activity_of(time)._asdict().items()}
        return values


def axis(values: Sequence[int], dimension: int) -> Num:
    """One axis of a grid of (batch, prompt, answer): a plain number where there is only one value."""
    if len(values) == 1:
        return int(values[0])
    shape = [1, 1, 1]
    shape[dimension] = len(values)
    return np.asarray(values, dtype=np.float64).reshape(shape)


def block_load(axes: Axes) -> Workload:
    """The workloads of a block."""
    batch, input_len, output_len = (axis(values, i) for i, values in enumerate(axes))
    return Workload(batch=batch, input_len=input_len, output_len=output_len)


COST_NAMES = frozenset(column.name for column in COST_COLUMNS)
ENERGY_NAMES = frozenset(column.name for column in ENERGY_COLUMNS)

SPARE = 32_000_000
"""Bytes below the largest that glibc takes from its own heap (32 MiB)."""


def keep_memory() -> None:
    """Let the C library keep what arrays give back: glibc learns from one large array that is freed to take smaller
    ones from its heap. Else every temporary is fresh pages of the system, which takes longer than the arithmetic.
    """
    np.empty(SPARE, dtype=np.uint8)


def evaluate(part: SweepSlice, axes: Axes, asked: Asked = EVERYTHING) -> Chunk:
    """The times and memory of a block. input_len 1 uses decode kernels, and output_len 1 has no past, so these grid
    rows are priced separately.
    """
    if len(axes.input_len) > 1 and axes.input_len[0] == 1:
        parts = [axes._replace(input_len=box) for box in (axes.input_len[:1], axes.input_len[1:])]
        return _joined([evaluate(part, box, asked) for box in parts], 1)
    if axes.input_len == (1,) and len(axes.output_len) > 1 and axes.output_len[0] == 1:
        parts = [axes._replace(output_len=box) for box in (axes.output_len[:1], axes.output_len[1:])]
        return _joined([evaluate(part, box, asked) for box in parts], 2)
    values = _grid(part, axes, asked)
    return Chunk(axes.shape, {name: values[name] for name in BY_NAME if name in asked.names})


def _joined(parts: list[Chunk], dimension: int) -> Chunk:
    """Blocks side by side along one dimension."""
    shape = list(parts[0].shape)
    shape[dimension] = sum(part.shape[dimension] for part in parts)
    values: Values = {}
    for name, first in parts[0].values.items():
        if not isinstance(first, np.ndarray) and all(part.values[name] is first for part in parts):
            values[name] = first
            continue
        whole = [np.broadcast_to(cells(name, part.values[name]), part.shape) for part in parts]
        values[name] = np.concatenate(whole, axis=dimension)
    return Chunk(tuple(shape), values)


def _grid(part: SweepSlice, axes: Axes, asked: Asked) -> Values:
    """The columns of a block of like points, and what they are made of."""
    load = block_load(axes)
    worker = BlockPricer(part, load)
    picks = _picks(worker)
    values = _plans(picks, asked)
    if len(picks) == 1:
        values |= _times(worker, picks[0], asked)
    else:
        values |= _merged(axes, worker, picks, asked)
    wanted = [name for name in METRICS if name in asked.names]
    ttft, tpot = values.get("prefill_expected_s"), values.get("decode_expected_s")
    values |= metrics(load, ttft, tpot, values.get("devices"), wanted)
    if not asked.names.isdisjoint(COST_NAMES):
        values |= cost_columns(part.price, part.utilization, load, values)
    if not asked.names.isdisjoint(ENERGY_NAMES):
        values |= energy_columns(part.hardware, part.overheads, load, values)
    return part.names | load_columns(load) | _words(values)


def load_columns(load: Workload) -> Values:
    """The workload's own columns."""
    return {"batch": load.batch, "input_len": load.input_len, "output_len": load.output_len}


class Pick(NamedTuple):
    """A plan, the points that it is chosen for, and its memory. answered: whether its times are an answer."""

    plan: Plan
    where: Any
    memory: DeviceMemory
    answered: bool


def _picks(worker: BlockPricer) -> list[Pick]:
    """The plans chosen, each with its points; where no candidate fits the first one on most devices, without an answer
    unless their number was asked for.
    """
    s, memory = worker.part, worker.memory
    if not s.auto and len(s.plans) == 1:
        return [Pick(s.plans[0], True, memory.on(s.plans[0]), True)]
    found: list[Pick] = []
    open_: Any = np.True_
    plan = Plan(engine=s.tensors.rules.name)
    for _, group in groupby(s.plans, key=attrgetter("devices")):
        plans = list(group)
        plan = plans[0]
        for pick in _best(worker, plans, open_):
            found.append(pick)
            open_ = open_ & ~np.asarray(pick.where)
        if not np.any(open_):
            return found
    return [*found, Pick(plan, open_, memory.on(plan), not s.auto)]


def _best(worker: BlockPricer, plans: list[Plan], open_: Any) -> list[Pick]:
    """Of plans on equally many devices those that are best at some of the open points, each with its points."""
    held = [(plan, memory := worker.memory.on(plan), np.asarray(memory.fits) & open_) for plan in plans]
    held = [(plan, memory, fits) for plan, memory, fits in held if fits.any()]
    if len(held) < 2:
        return [Pick(plan, fits, memory, True) for plan, memory, fits in held]
    search = PlanSearch(worker.memory, worker.pricer.timer.machine)
    seconds = np.stack(np.broadcast_arrays(*(
        np.where(fits, search.rank(worker.pricer.on(plan)), np.inf) for plan, _, fits in held
    )))  # fmt: skip
    first = seconds.argmin(axis=0)
    picks = [Pick(plan, (first == i) & fits, memory, True) for i, (plan, memory, fits) in enumerate(held)]
    return [pick for pick in picks if np.any(pick.where)]


HELD: Mapping[str, Callable[[Pick], Any]] = {
    **{name: attrgetter(f"plan.{name}") for name in ("devices", "tp", "pp", "ep", "dp")},
    "fits": lambda pick: pick.memory.fits if pick.answered else False,
    "memory_bytes_per_device": attrgetter("memory.needed"),
    "weights_bytes_per_device": attrgetter("memory.weights"),
    "kv_cache_bytes_per_device": attrgetter("memory.kv_cache"),
    "activation_bytes_per_device": attrgetter("memory.activations"),
    "free_bytes_per_device": attrgetter("memory.free"),
}
"""Columns of a plan and of what it holds."""


def _plans(picks: list[Pick], asked: Asked) -> Values:
    """Degrees and memory of the plan chosen for each point."""
    masks = [pick.where for pick in picks]
    counted = not asked.names.isdisjoint({"tokens_per_s_per_device", *COST_NAMES, *ENERGY_NAMES})
    wanted = asked.names | ({"devices"} if counted else set())
    return {name: _selected(masks, list(map(found, picks))) for name, found in HELD.items() if name in wanted}


def _selected(masks: list[Any], values: list[Any]) -> Any:
    """Of each point the value of the plan chosen for it."""
    if not any(isinstance(value, np.ndarray) for value in values) and all(v == values[0] for v in values):
        return values[0]
    if len(values) == 1:
        return values[0]
    shape = np.broadcast_shapes(*(np.shape(part) for part in (*masks, *values)))
    result = np.empty(shape, dtype=np.result_type(*values))
    for mask, value in zip(masks, values, strict=True):
        np.copyto(result, value, where=mask)
    return result


def _times(worker: BlockPricer, pick: Pick, asked: Asked) -> Values:
    """The columns of both phases; words as positions in `CODES`, what does not exist as None."""
    return _either(worker, pick, "prefill", asked) | _either(worker, pick, "decode", asked)


def _either(worker: BlockPricer, pick: Pick, name: PhaseName, asked: Asked) -> Values:
    """The columns of a phase, as far as they are asked for; None where it does not exist or is no answer."""
    needs = asked.prefill if name == "prefill" else asked.decode
    exists = name == "prefill" or worker.part.model.architecture != "encoder"
    if exists and pick.answered and needs:
        return worker.columns(name, pick.plan, needs)
    wanted = [column for column in BY_NAME.values() if column.phases == (name,)]
    return {c.name: None for c in wanted if needs and PRICED.index(c.needs) <= PRICED.index(needs)}


def _merged(axes: Axes, worker: BlockPricer, picks: list[Pick], asked: Asked) -> Values:
    """The columns of both phases, of each point those of the plan chosen for it; plans that differ only in stages
    share what one rank does.
    """
    values: Values = {}
    groups: dict[Plan, list[Pick]] = {}
    for pick in picks:
        whole = pick._replace(where=np.broadcast_to(pick.where, axes.shape))
        groups.setdefault(replace(pick.plan, pp=1), []).append(whole)
    for members in groups.values():
        chosen = np.logical_or.reduce([pick.where for pick in members])
        _take_prefill(values, worker, members, chosen, asked)
        _take_decode(values, axes, worker, members, chosen, asked)
    missing = {name for name, value in values.items() if np.isnan(value).all()}
    return {name: None if name in missing else value for name, value in values.items()}


def _take_prefill(values: Values, worker: BlockPricer, members: list[Pick], chosen: Any, asked: Asked) -> None:
    """Prefills hang on batch and prompt together, so they are priced only where one of the plans is chosen."""
    used = chosen.any(axis=2, keepdims=True)
    local = worker if used.all() else worker.at(used)
    for pick in members:
        for name, value in _either(local, pick, "prefill", asked).items():
            whole = values.setdefault(name, np.full(chosen.shape, np.nan))
            if value is not None and local is not worker:
                value, flat = np.empty(used.shape), value
                value[used] = flat
            if value is not None:
                np.copyto(whole, value, where=pick.where)


def _take_decode(
    values: Values, axes: Axes, worker: BlockPricer, members: list[Pick], chosen: object, asked: Asked
) -> None:
    """Most of a decode step hangs on the batch alone, so it is priced over the smallest box around those points."""
    box = _box(chosen)
    within = Axes(*(values_[span] for values_, span in zip(axes, box, strict=True)))
    if within.points < WORTH * axes.points:
        local = BlockPricer(worker.part, block_load(within))
    else:
        box, local = (slice(None),) * 3, worker
    for pick in members:
        for name, value in _either(local, pick, "decode", asked).items():
            whole = values.setdefault(name, np.full(axes.shape, np.nan))
            if value is not None:
                np.copyto(whole[box], value, where=pick.where[box])


WORTH = 0.5
"""Share of a block below which a part of it is priced by itself: its graphs must be lowered anew."""

Box = tuple[slice, ...]
"""A part of a block: a range along each axis."""


def _box(mask: Any) -> Box:
    """The smallest part of a block that holds all points of a mask."""
    spans = []
    for dimension in range(mask.ndim):
        others = tuple(i for i in range(mask.ndim) if i != dimension)
        places = np.flatnonzero(mask.any(axis=others))
        spans.append(slice(int(places[0]), int(places[-1]) + 1))
    return tuple(spans)


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
