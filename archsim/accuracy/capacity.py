"""Memory figures of runs, and the batch that an engine reaches at its greatest load, from the rules of `fit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from archsim.accuracy.question import ANY, Run, device_of, model_of, weights_of
from archsim.accuracy.times import Prediction
from archsim.base.errors import AnswerNo, UnknownName
from archsim.base.units import parse_quantity
from archsim.counts import graph_counts as c
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors, Settings, default_length
from archsim.memory.engine_rules import EngineMemory, non_torch_of
from archsim.memory.kv_cache import Paging
from archsim.memory.tensors import PipelineStage
from archsim.spec.catalog import names
from archsim.spec.hardware import Hardware
from archsim.spec.parallelism import Plan

GIB = 1 << 30

ROUNDED = 0.01
"""Half-width of the interval of counted bytes: what files and engines add, and the rounding of printed figures."""

STEP = 0.25
"""Half-width, as a share, of the activations of a step."""


class RunMemory(NamedTuple):
    """One run's memory: the model of it, its plan, and the stage whose device holds most weights."""

    model: EngineMemoryModel
    plan: Plan
    stage: PipelineStage

    @property
    def stages(self) -> tuple[PipelineStage, ...]:
        """What the devices of the plan hold."""
        return self.model.tensors.stages(self.plan)

    @property
    def extra(self) -> int:
        """Bytes of optional towers on a device."""
        return self.model.tensors.extra(self.plan)

    @property
    def paging(self) -> Paging:
        """How the engine keeps caches."""
        return self.model.tensors.paging

    @property
    def length(self) -> int:
        """Tokens of the longest request."""
        return int(self.model.length)

    def division(self, length: int) -> EngineMemory:
        """How the device is divided when requests are up to `length` tokens."""
        division = self.model.division(self.plan, self.model.activations(self.plan, length))
        return replace(division, weights=self.stage.weights)


@lru_cache(maxsize=512)
def memory_of(run: Run) -> RunMemory:
    """The memory of a run. Raises what `fit` raises."""
    model, _ = model_of(run.model)
    load = Workload(input_len=max(run.isl or 1, 1), output_len=max(run.osl or 1, 1))
    engine = choose_engine(run.engine)
    settings = Settings(
        max_model_len=default_length(model, engine, load, run.longest), gpu_memory_utilization=run.memory_share
    )
    formats = choose_formats(model, weights_of(run.model, run.weights), run.kv, engine=run.engine)
    memory = EngineMemoryModel(EngineTensors(model, hardware_of(run), formats, engine, settings), load)
    plan = Plan(tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp, engine=engine.name)
    return RunMemory(memory, plan, max(memory.tensors.stages(plan), key=lambda stage: stage.weights))


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
    kept = choose_engine(run.engine).rules.memory.reserve.get(hardware.vendor)
    size = run.total_gib + (parse_quantity(kept, "B") / GIB if kept else 0.0)
    memory = hardware.memory.model_copy(update={"capacity": f"{size} GiB", "working_set": None})
    return hardware.model_validate({**hardware.model_dump(by_alias=True), "memory": memory.model_dump()})


@lru_cache(maxsize=16)
def nearest(gib: float) -> Hardware:
    """The first of the catalog's devices whose memory is nearest."""
    known = [device_of(entry.name) for entry in names("hw") if entry.path and entry.path.parent.name == "devices"]
    return min(known, key=lambda hardware: abs(hardware.memory_bytes - gib * GIB))


def exactly(value: float) -> Prediction:
    """A counted figure."""
    return Prediction(value, value * (1 - ROUNDED), value * (1 + ROUNDED), value)


def weights_per_device(run: Run) -> Prediction:
    """GiB of loaded weights on the device that holds most; whichever device it is."""
    memory = memory_of(replace(run, device=ANY, total_gib=None))
    return exactly((memory.stage.weights + memory.extra) / GIB)


def file_size(run: Run) -> Prediction:
    """GiB of the whole weight file, as on one device."""
    memory = memory_of(replace(run, device=ANY, total_gib=None, tp=1, pp=1, ep=1, dp=1))
    return exactly(float(c.weight_bytes(memory.model.tensors.rank(memory.plan))) / GIB)


def kv_room(run: Run) -> Prediction:
    """GiB that one device has left for the cache."""
    memory = memory_of(run)
    division = memory.division(memory.length)
    low, high = (max(division.room + change, 1) / GIB for change in _slack(memory, division))
    return Prediction(max(division.room, 1) / GIB, low, high, division.room / GIB)


def kv_tokens(run: Run) -> Prediction:
    """Tokens that the engine's cache holds."""
    memory = memory_of(run)
    length = memory.length
    division = memory.division(length)

    def held(change: int) -> float:
        room = int(division.room + change)
        return float(max(min(s.tokens(room, length, memory.paging) for s in memory.stages), 1))

    low, high = _slack(memory, division)
    return Prediction(held(0), held(low), held(high), held(0))


def _slack(memory: RunMemory, division: EngineMemory) -> tuple[int, int]:
    """Bytes by which the cache may be smaller or larger: the ranges seen of what the engine itself takes."""
    rules = memory.model.rules
    extra = non_torch_of(rules, memory.plan.tp * memory.plan.dp)
    less, more = (parse_quantity(extra.high, "B") - parse_quantity(extra.bytes, "B"),
                  parse_quantity(extra.bytes, "B") - parse_quantity(extra.low, "B"))  # fmt: skip
    graphs = rules.memory.graphs
    if graphs is not None and division.graphs_inside and division.graphs:
        less += parse_quantity(graphs.high, "B") - division.graphs
        more += division.graphs - parse_quantity(graphs.low, "B")
    step = STEP * division.activations
    return -round(less + step), round(more + step)


def peak(run: Run) -> Prediction:
    """GiB allocated at the peak, summed over devices: weights, the final KV cache, and the largest step."""
    memory = memory_of(run)
    batch, new, whole = run.batch or 1, max(run.isl or 1, 1), (run.isl or 0) + (run.osl or 0)
    rows = [_stage_peak(memory, stage, (batch, new, max(whole, 1))) for stage in memory.stages]
    alike = [stage.count * run.tp * run.dp / GIB for stage in memory.stages]
    held, step = (sum(row[i] * n for row, n in zip(rows, alike, strict=True)) for i in (0, 1))
    total = held + step
    return Prediction(total, total - STEP * step - ROUNDED * total, total + 2 * STEP * step + ROUNDED * total, held)


def _stage_peak(memory: RunMemory, stage: PipelineStage, load: tuple[int, int, int]) -> tuple[float, float]:
    """Bytes that stay and bytes of the step, at whichever of the prompt and the last token needs more."""
    batch, new, whole = load
    moments = []
    for tokens, length in ((batch * new, new), (batch, whole)):
        held = stage.weights + memory.extra + batch * stage.request_bytes(length, memory.paging)
        moments.append((float(held), float(memory.model.activations(memory.plan, tokens))))
    return max(moments, key=sum)


def queues(engine: str) -> bool:
    """Whether an engine sets memory aside for a cache, and lets requests wait when that is full."""
    return choose_engine(engine).rules.memory.share.meaning != "none"


def largest_batch(run: Run) -> int:
    """Requests that run at once at the greatest load: as many as the cache holds and the scheduler admits."""
    return largest_batches(run)[1]


def most_held(run: Run) -> int:
    """Requests whose caches fit beside the weights on devices that hold nothing else: no engine can run more at once.
    Prompts are whole, answers half written.
    """
    memory = memory_of(run)
    tokens = max((run.isl or 0) + (run.osl or 0) // 2, 1)
    free = memory.model.hardware.memory_bytes - memory.extra
    held = (int((free - s.weights) // max(s.request_bytes(tokens, memory.paging), 1)) for s in memory.stages)
    return max(min(held), 1) * run.dp


@lru_cache(maxsize=512)
def largest_batches(run: Run) -> tuple[int, int, int]:
    """The largest batch with less cache than expected by as much as `_slack` says, as expected, and with more; the
    first two at least one request on every replica. Raises AnswerNo where the last is none at all.
    """
    memory = memory_of(replace(run, longest=run.longest or max((run.isl or 0) + (run.osl or 0), 1)))

    def held(slack: Callable[[EngineMemory], int] | None = None) -> int:
        return memory.model.most_running(memory.plan, slack).requests

    most = held(lambda division: _slack(memory, division)[1])
    if most < 1:
        raise AnswerNo(f"the weights leave no room for a request of {memory.length:,} tokens on {run.device}")
    return max(run.dp, held(lambda division: _slack(memory, division)[0])), max(run.dp, held()), max(run.dp, most)
