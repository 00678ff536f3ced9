"""Memory figures of runs, and the batch that an engine reaches at its greatest load, from the rules of `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from archsim.accuracy.question import ANY, Run, device_of, model_of, weights_of
from archsim.accuracy.times import Prediction
from archsim.base.errors import UnknownName
from archsim.base.units import parse_quantity
from archsim.counts import graph_counts as c
from archsim.counts.formats import choose_formats
from archsim.engines.names import engine_of
from archsim.memory.device_fill import Case, Ranks, Settings
from archsim.memory.engine_budget import Budget, non_torch_of
from archsim.memory.kv_blocks import Stage
from archsim.spec.catalog import names
from archsim.spec.hardware import Hardware
from archsim.spec.parallelism import Plan

GIB = 1 << 30

ROUNDED = 0.01
"""Half-width of the interval of counted bytes: what files and engines add, and the rounding of printed figures."""

STEP = 0.25
"""Half-width, as a share, of the activations of a step."""


class Room(NamedTuple):
    """One run's memory: the question to `fit`, its plan, what the devices hold and the tightest of them."""

    case: Case
    plan: Plan
    ranks: Ranks
    stage: Stage

    def budget(self, length: int) -> Budget:
        """How the device is divided when requests are up to `length` tokens."""
        return self.case.budget(self.plan, self.ranks, self.stage, length)


@lru_cache(maxsize=512)
def room_of(run: Run) -> Room:
    """The memory of a run. Raises what `fit` raises."""
    model, _ = model_of(run.model)
    settings = Settings(
        input_len=max(run.isl or 1, 1), output_len=max(run.osl or 1, 1), max_model_len=run.longest,
        gpu_memory_utilization=run.memory_share,
    )  # fmt: skip
    formats = choose_formats(model, weights_of(run.model, run.weights), run.kv, engine=run.engine)
    case = Case(
        model=model,
        hardware=hardware_of(run),
        formats=formats,
        engine=engine_of(run.engine),
        settings=settings,
    )
    plan = Plan(tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp, engine=case.engine.name)
    ranks = case.ranks(plan)
    return Room(case, plan, ranks, max(ranks.stages, key=lambda stage: stage.weights))


def hardware_of(run: Run) -> Hardware:
    """The device; with the memory that a process saw, where the run states it. Only memory figures use it, so for a
    device that nobody knows the one of the catalog with the nearest memory stands in.
    """
    try:
        hardware = device_of(run.device)
    except UnknownName:
        if run.total_gib is None and run.device != ANY:
            raise
        hardware = nearest(run.total_gib or 80.0)
    if run.total_gib is None:
        return hardware
    kept = engine_of(run.engine).rules.memory.reserve.get(hardware.vendor)
    size = run.total_gib + (parse_quantity(kept, "B") / GIB if kept else 0.0)
    memory = hardware.memory.model_copy(update={"capacity": f"{size} GiB", "working_set": None})
    return hardware.model_validate({**hardware.model_dump(by_alias=True), "memory": memory.model_dump()})


@lru_cache(maxsize=16)
def nearest(gib: float) -> Hardware:
    """The first of the catalog's devices whose memory is nearest."""
    known = [
        device_of(entry.name) for entry in names("hw") if entry.path and entry.path.parent.name == "devices"
    ]
    return min(known, key=lambda hardware: abs(hardware.memory_bytes - gib * GIB))


def exactly(value: float) -> Prediction:
    """A counted figure."""
    return Prediction(value, value * (1 - ROUNDED), value * (1 + ROUNDED), value)


def weights_per_device(run: Run) -> Prediction:
    """GiB of loaded weights on the device that holds most; whichever device it is."""
    room = room_of(replace(run, device=ANY, total_gib=None))
    return exactly((room.stage.weights + room.ranks.extra) / GIB)


def file_size(run: Run) -> Prediction:
    """GiB of the whole weight file, as on one device."""
    graph = room_of(replace(run, device=ANY, total_gib=None, tp=1, pp=1, ep=1, dp=1)).ranks.graph
    return exactly(float(c.weight_bytes(graph)) / GIB)


def kv_room(run: Run) -> Prediction:
    """GiB that one device has left for the cache."""
    room = room_of(run)
    budget = room.budget(room.case.length)
    low, high = (max(budget.room + change, 1) / GIB for change in _slack(room, budget))
    return Prediction(max(budget.room, 1) / GIB, low, high, budget.room / GIB)


def kv_tokens(run: Run) -> Prediction:
    """Tokens that the engine's cache holds."""
    room = room_of(run)
    length = room.case.length
    budget = room.budget(length)

    def held(change: int) -> float:
        return float(
            max(min(s.tokens(budget.room + change, length, room.case.paging) for s in room.ranks.stages), 1)
        )

    low, high = _slack(room, budget)
    return Prediction(held(0), held(low), held(high), held(0))


def _slack(room: Room, budget: Budget) -> tuple[int, int]:
    """Bytes by which the cache may be smaller or larger: the ranges seen of what the engine itself takes."""
    rules = room.case.engine.rules
    extra = non_torch_of(rules, room.plan.tp * room.plan.dp)
    less, more = (parse_quantity(extra.high, "B") - parse_quantity(extra.bytes, "B"),
                  parse_quantity(extra.bytes, "B") - parse_quantity(extra.low, "B"))  # fmt: skip
    if rules.memory.graphs is not None and budget.graphs_inside and budget.graphs:
        less += parse_quantity(rules.memory.graphs.high, "B") - budget.graphs
        more += budget.graphs - parse_quantity(rules.memory.graphs.low, "B")
    step = STEP * budget.activations
    return -round(less + step), round(more + step)


def peak(run: Run) -> Prediction:
    """GiB allocated at the peak, summed over devices: weights, caches at full length, and the largest step."""
    room = room_of(run)
    batch, new, whole = run.batch or 1, max(run.isl or 1, 1), (run.isl or 0) + (run.osl or 0)
    rows = [_stage_peak(room, stage, (batch, new, max(whole, 1))) for stage in room.ranks.stages]
    count = run.tp * run.dp / GIB
    held, step = sum(h for h, _ in rows) * count, sum(s for _, s in rows) * count
    total = held + step
    return Prediction(
        total, total - STEP * step - ROUNDED * total, total + 2 * STEP * step + ROUNDED * total, held
    )


def _stage_peak(room: Room, stage: Stage, load: tuple[int, int, int]) -> tuple[float, float]:
    """Bytes that stay and bytes of the step, at whichever of the prompt and the last token needs more."""
    batch, new, whole = load
    paging = room.case.paging
    moments = []
    for tokens, length in ((batch * new, new), (batch, whole)):
        held = stage.weights + room.ranks.extra + batch * stage.request_bytes(length, paging)
        moments.append((float(held), float(room.case.activations(room.plan, tokens))))
    return max(moments, key=sum)


def queues(engine: str) -> bool:
    """Whether an engine sets memory aside for a cache, and lets requests wait when that is full."""
    return engine_of(engine).rules.memory.share.meaning != "none"


def largest_batch(run: Run) -> int:
    """Requests that run at once at the greatest load: as many as the cache holds and the scheduler admits, or one."""
    return largest_batches(run)[1]


@lru_cache(maxsize=512)
def largest_batches(run: Run) -> tuple[int, int, int]:
    """The largest batch with less cache than expected by as much as `_slack` says, as expected, and with more.

    Pages fill as answers grow, so that requests in a steady state hold the prompt and half the answer each; a cache
    without pages is set aside at full length.
    """
    whole, mean = (max((run.isl or 0) + part, 1) for part in ((run.osl or 0), (run.osl or 0) // 2))
    room = room_of(replace(run, longest=run.longest or whole))
    paging = room.case.paging
    each = mean if paging.block > 1 else whole
    budgets = [room.case.budget(room.plan, room.ranks, stage, whole) for stage in room.ranks.stages]
    request = [max(stage.request_bytes(each, paging), 1) for stage in room.ranks.stages]
    slack = [_slack(room, budget) for budget in budgets]

    def held(changes: Sequence[int]) -> int:
        free = (budget.room + change for budget, change in zip(budgets, changes, strict=True))
        fits = min(room_left // size for room_left, size in zip(free, request, strict=True))
        return max(1, min(int(fits), room.case.seqs)) * run.dp

    return held([low for low, _ in slack]), held([0] * len(slack)), held([high for _, high in slack])
