"""What an engine holds of a model on a device, judged for one request: `archsim fit` without its suggestions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict, past_context
from archsim.base.units import format_bytes, parse_quantity
from archsim.counts.count import step_for
from archsim.counts.engine_formats import RunsOn, engine_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.lowered_steps import LoweredSteps, shared_steps
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.towers import tower_bytes_per_device, towers_in_memory
from archsim.counts.workload import Workload, checked_source
from archsim.engines.names import DEFAULT_ENGINE, EngineChoice, choose_engine
from archsim.memory.engine_memory import (
    DeviceMemory,
    EngineMemoryModel,
    EngineTensors,
    Settings,
    Verdict,
    default_length,
)
from archsim.memory.engine_rules import EngineMemory, non_torch_of
from archsim.memory.offload import Offload
from archsim.memory.other_weights import OtherWeights
from archsim.memory.plan_search import ChosenPlan, PlanSearch, device_count
from archsim.memory.tensors import pipeline_stages
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model, Tower
from archsim.spec.parallelism import Plan
from archsim.timing.device import DeviceRates

CONVERTIBLE = ("bf16", "fp16", "fp32")
"""Formats of checkpoints that an engine may convert while it loads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """Everything that `fit` is asked with, in the options' words. batch: requests of max_model_len that must fit at
    once."""

    devices: int | str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    batch: int = 1
    input_len: int = 2048
    output_len: int = 256
    source_len: int | None = None
    weights: str | None = None
    kv_cache_dtype: str | None = None
    engine: str = DEFAULT_ENGINE
    settings: Settings = field(default_factory=Settings)

    @property
    def degrees(self) -> dict[str, int]:
        """The parallel degrees that were given."""
        given = {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}
        return {name: n for name, n in given.items() if n is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one option, and what it leads to. change: as typed. longest: tokens of the longest request."""

    change: str
    verdict: Verdict
    devices: int
    kv_tokens: int | None
    longest: int | None

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return {
            "change": self.change, "kv_tokens": self.kv_tokens, "verdict": self.verdict, "devices": self.devices,
            "max_model_len": self.longest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """Limits: the inverse questions, everything else as asked. devices: the fewest that fit. weights: the widest
    format that fits on the devices asked for. batch: requests of max_model_len at once. None: there is none.
    """

    devices: int | None
    weights: str | None
    batch: int | None

    def to_dict(self) -> JsonObject:
        """Plain numbers."""
        return {"fewest_devices": self.devices, "widest_weights": self.weights, "largest_batch": self.batch}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Tabular):
    """Whether it fits. All bytes are of one device, that of the stage that holds fewest tokens.

    length: max_model_len asked for. longest: tokens of the longest request that fits; None where memory sets no limit.
    seqs, batched_tokens: of one step at most. towers: vision and audio encoders in memory. load_peak: bytes while
    weights are loaded.
    """

    __repr__ = Tabular.__repr__

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    engine: EngineChoice
    settings: Settings
    memory: DeviceMemory
    batch: int
    length: int
    longest: int | None
    batched_tokens: int
    seqs: int
    offload: Offload | None
    towers: tuple[Tower, ...] = ()
    load_peak: int = 0
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    suggestions: tuple[Change, ...] = ()
    inverse: Inverse | None = None

    @property
    def budget(self) -> EngineMemory:
        """How the engine divides the device."""
        return self.memory.division

    @property
    def fits(self) -> bool:
        """Whether the engine starts and holds the requests."""
        return bool(self.memory.fits)

    @property
    def verdict(self) -> Verdict:
        """FITS, TIGHT or NO."""
        return self.memory.verdict

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the cache holds, in whole pages; None where there is no cache."""
        return self.memory.kv_tokens

    @property
    def host_tokens(self) -> int | None:
        """Tokens whose pages host memory holds beside those of the devices; None where it holds none."""
        size, stage = self.settings.kv_offloading_size * 2**30, self.memory.stage
        if not size or not stage.grows:
            return None
        ranks = self.plan.tp * self.plan.pp
        source = None if self.memory.source is None else int(self.memory.source)
        return stage.tokens(int(size / ranks), self.length, self.memory.paging, source)

    @property
    def need(self) -> int:
        """Bytes of the requests that must fit."""
        return int(self.memory.kv_cache)

    @property
    def request_bytes(self) -> int:
        """Bytes of one of these requests."""
        return int(self.memory.request_bytes)

    @property
    def concurrency(self) -> float | None:
        """Requests of `length` tokens that the cache holds."""
        return self.memory.max_concurrency

    @property
    def growth(self) -> int:
        """Bytes of one more token before any sliding window is full."""
        return self.memory.stage.growth

    @property
    def uniform(self) -> bool:
        """Whether all layers page alike, and a request's source grows with it."""
        return self.memory.stage.uniform and self.memory.source is None

    @property
    def cache_name(self) -> str:
        """The cache's format, or those of keys and of values."""
        s, usual = self.settings, self.formats.kv.name
        keys, values = s.cache_type_k or usual, s.cache_type_v or usual
        return keys if keys == values else f"{keys} keys, {values} values"

    @property
    def kv_bytes_per_token(self) -> float | int | None:
        """Bytes of a token on a device: of one more where all layers grow alike, else the mean over a request of
        `length`; None where nothing grows."""
        if self.kv_tokens is None:
            return None
        return self.growth if self.uniform else self.request_bytes / self.length

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the cache: tokens x bytes per token; the shortfall as a negative number where there is none."""
        each, room = self.kv_bytes_per_token, int(self.budget.room)
        if room < 0 or each is None or self.kv_tokens is None:
            return room
        return round(self.kv_tokens * each)

    def to_dict(self) -> JsonObject:
        """The `archsim.fit/1` object."""
        plan, settings = self.plan, self.settings
        return {
            "schema": "archsim.fit/1", "fits": self.fits, "verdict": self.verdict, "devices": plan.devices,
            "kv_tokens": self.kv_tokens, "max_model_len": self.longest, "max_concurrency": self.memory.max_concurrency,
            "per_device": self._device(),
            "suggestions": [change.to_dict() for change in self.suggestions],
            "inverse": self.inverse.to_dict() if self.inverse else None,
            "model": {"name": self.model.name}, "hardware": {"name": self.hardware.id},
            "plan": {
                "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "weights": self.formats.name,
                "kv_cache": self.formats.kv.name, "engine": self.engine.name,
                "engine_version": self.engine.version or None,
            },
            "settings": {
                "max_model_len": self.length, "max_num_seqs": self.seqs, "batch": self.batch,
                "max_num_batched_tokens": self.batched_tokens, "source_len": self.memory.source,
                "memory_fraction": self.budget.share,
                "memory_fraction_of": self.budget.meaning,
                "block_size": settings.block_size or self.engine.rules.memory.block_size,
            },
            "offload": self._offload(),
            **({} if self.host_tokens is None else {"host_kv_tokens": self.host_tokens}),
            **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip

    def _device(self) -> JsonObject:
        b = self.budget
        return {
            "capacity_bytes": b.capacity, "visible_bytes": b.visible, "budget_bytes": b.limit,
            "weights_bytes": b.weights,
            "towers": {t.name: tower_bytes_per_device(t, self.formats, self.plan.tp) for t in self.towers},
            "layout_bytes": b.layout, "extra_bytes": b.extra,
            "activation_bytes": b.activations, "cuda_graph_bytes": b.graphs,
            "cuda_graphs_in_budget": b.graphs_inside, "non_torch_bytes": b.non_torch,
            "kv_cache_bytes": self.kv_cache_bytes, "available_kv_bytes": b.room,
            "kv_bytes_per_token": self.kv_bytes_per_token, "kv_growth_bytes_per_token": self.growth,
            "request_bytes": self.request_bytes, "load_peak_bytes": self.load_peak,
        }  # fmt: skip

    def _offload(self) -> JsonObject | None:
        o = self.offload
        if o is None:
            return None
        return {
            "host_weights_bytes": o.host_weights, "host_cache_bytes": o.host_caches,
            "host_bandwidth_bytes_per_s": o.host_bandwidth, "decode_ideal_s": o.ideal_s,
            "decode_expected_s": o.expected_s,
        }  # fmt: skip


class FitChoices(NamedTuple):
    """What a request means for a model: the engine that runs it, its document, and the formats."""

    runs_on: RunsOn
    engine: EngineChoice
    formats: Formats


def fit_choices(model: Model, request: FitRequest) -> FitChoices:
    """What a request means for a model. Raises UsageError, UnknownName."""
    runs_on = engine_for(model, request.weights, request.engine)
    formats = choose_formats(model, request.weights, request.kv_cache_dtype, engine=runs_on.engine)
    return FitChoices(runs_on, choose_engine(runs_on.engine), formats)


def request_memory(
    lowered: LoweredSteps, hardware: Hardware, request: FitRequest, choices: FitChoices,
    like: EngineMemoryModel | None = None,
) -> EngineMemoryModel:  # fmt: skip
    """The memory that a request is about. like: that of the same request in other weights, whose graphs are shared."""
    model, (_, engine, formats) = lowered.model, choices
    load = Workload(
        batch=request.batch, input_len=request.input_len, output_len=request.output_len,
        source_len=checked_source(model, request.source_len),
    )  # fmt: skip
    length = default_length(model, engine, load, request.settings.max_model_len)
    settings = replace(request.settings.checked(engine.rules), max_model_len=length)
    load = replace(load, input_len=min(length, request.input_len))
    if like is not None and OtherWeights.serves(like.tensors, formats, engine):
        return EngineMemoryModel(OtherWeights(like.tensors, formats, engine), load, like.graphs)
    tensors = EngineTensors(model, hardware, formats, engine, settings, lowered)
    return EngineMemoryModel(tensors, load, StepGraphs(model, formats, lowered=None if settings.parts else lowered))


def chosen_plan(memory: EngineMemoryModel, request: FitRequest) -> ChosenPlan:
    """The plan that a request asks for. Raises InvalidPlan, AnswerNo."""
    search, start, fixed = _plan_search(memory, request)
    if request.devices == "auto" and not {"tp", "pp"} & fixed:
        return search.smallest(start, fixed)
    return search.plan_on(request.devices, start, fixed)


def _plan_search(memory: EngineMemoryModel, request: FitRequest) -> tuple[PlanSearch, Plan, frozenset[str]]:
    """The search, the plan that it begins with and the degrees that stay."""
    search = PlanSearch(memory, DeviceRates(memory.hardware))
    return search, search.start(**request.degrees), frozenset(request.degrees)


def check_fit(model: Model, hardware: Hardware, request: FitRequest) -> Fit:
    """The answer without suggestions."""
    choices = fit_choices(model, request)
    return _answer(_memory_asked_for(model, hardware, request, choices), request, choices)


def check_change(model: Model, hardware: Hardware, request: FitRequest) -> Fit | None:
    """As `check_fit`; None where the devices together are too small for the weights, whatever the plan."""
    choices = fit_choices(model, request)
    memory = _memory_asked_for(model, hardware, request, choices)
    if request.devices != "auto" and not request.settings.tensor_split:
        search, start, _ = _plan_search(memory, request)
        if not search.weights_fit(start.devices if request.devices is None else device_count(request.devices)):
            return None
    return _answer(memory, request, choices)


def _memory_asked_for(model: Model, hardware: Hardware, request: FitRequest, choices: FitChoices) -> EngineMemoryModel:
    parts = request.settings.parts
    return request_memory(LoweredSteps(model, parts) if parts else shared_steps(model), hardware, request, choices)


def _answer(memory: EngineMemoryModel, request: FitRequest, choices: FitChoices) -> Fit:
    model, hardware = memory.model, memory.hardware
    runs_on, engine, formats = choices
    tensors, length = memory.tensors, int(memory.length)
    plan, held, _ = chosen_plan(memory, request)
    peak = load_peak(request, tensors, plan, held.division)
    return Fit(
        model=model, hardware=hardware, plan=plan, formats=formats, engine=engine, settings=request.settings,
        memory=held, batch=request.batch, length=length, longest=memory.longest(plan),
        batched_tokens=tensors.tokens, seqs=tensors.seqs, load_peak=peak,
        offload=_offload(memory, plan, memory.load), towers=tensors.towers,
        assumptions=(
            *runs_on.assumptions, *towers_in_memory(model, formats, tensors.towers, request.settings.without),
            *formats.assumptions,
            *_assumptions(request, memory, plan),
        ),
        warnings=(*_warnings(memory, length, held.division, peak), *runs_on.warnings),
    )  # fmt: skip


def _offload(memory: EngineMemoryModel, plan: Plan, load: Workload) -> Offload | None:
    """What lies in host memory, and the decode speed that follows; None where nothing was asked to."""
    tensors, model = memory.tensors, memory.model
    settings, rules = tensors.settings, memory.rules
    if not settings.offload.anything:
        return None
    split = tensors.split(plan)
    if split is None:
        return None
    (stage,) = pipeline_stages(split.here, 1, rules.parallelism.pipeline)
    one = tensors.formats.apply(lower(model, step_for(model, 1, 1)))
    context = min(int(memory.length), int(load.input_len + load.output_len // 2))
    rate = settings.host_bandwidth
    if settings.cpu_offload_gb and rate is None and memory.hardware.host is not None:
        rate = float(parse_quantity(memory.hardware.host.per_direction, "B/s"))  # read in place, over the host's link
    return split.offload(stage, one, memory.hardware, rate, context, tensors.paging)


def load_peak(request: FitRequest, tensors: EngineTensors, plan: Plan, division: EngineMemory) -> int:
    """Bytes that the device holds at most while weights are loaded, and converted where the engine does that."""
    loaded, online = int(division.loaded), tensors.rules.memory.online
    native = converted_from(request, tensors)
    if native is None or online is None or online.peak == "streamed":
        return loaded
    before = EngineTensors(tensors.model, tensors.hardware, native, tensors.engine, tensors.settings)
    wide = int(max(stage.weights for stage in before.stages(plan)))
    return loaded + wide if online.peak == "both" else max(loaded, wide)


def converted_from(request: FitRequest, tensors: EngineTensors) -> Formats | None:
    """The formats of the checkpoint, where the engine converts it while loading."""
    online = tensors.rules.memory.online
    if request.weights is None or online is None or tensors.formats.name not in online.formats:
        return None
    native = choose_formats(tensors.model)
    return native if native.name in CONVERTIBLE else None


def _assumptions(request: FitRequest, memory: EngineMemoryModel, plan: Plan) -> Iterator[Note]:
    """What the answer rests on."""
    tensors, rules, s = memory.tensors, memory.rules, request.settings
    yield from tensors.engine.notes
    length = int(memory.length)
    if s.max_model_len is None:
        source = {"model": "the model's longest", "workload": "prompt and answer"}.get(
            str(rules.scheduler.context), f"the default of {rules.title}"
        )
        yield Note("A22", f"--max-model-len {length:,}: {source}")
    steps = f"steps of at most {memory.step_tokens(length):,} tokens and {tensors.seqs:,} sequences"
    yield Note("A23", steps)
    extra = non_torch_of(rules, plan.tp * plan.dp)
    text = f"non-torch memory {extra.bytes} per device, seen from {extra.low} to {extra.high}"
    yield Note("A24", text)
    graphs = rules.memory.graphs
    if graphs is not None and not s.enforce_eager:
        where = "inside" if graphs.inside else "outside"
        text = f"captured graphs {graphs.bytes}, seen from {graphs.low} to {graphs.high}, {where} the memory fraction"
        yield Note("A25", text)
    if (draft := tensors.draft) is not None:
        own = format_bytes(sum(stage.weights for stage in draft.stages(Plan())), binary=True)
        yield Note(
            "A52", f"draft model {draft.model.name}: {own} of {draft.formats.name} weights, and a cache of its own"
        )
    if plan.dp > 1:
        yield Note("A26", "tokens and concurrency are those of one attention replica")


def _warnings(memory: EngineMemoryModel, length: int, division: EngineMemory, peak: int) -> Iterator[Note]:
    """What the user should look at."""
    model, formats = memory.model, memory.tensors.formats
    if peak > division.visible >= division.weights:
        native = choose_formats(model).name
        yield Note(
            "W06",
            f"{formats.name} made of {native} while loading takes {format_bytes(peak, binary=True)} at its peak, more "
            f"than the device has: a checkpoint that is {formats.name} already, or a newer engine, loads",
        )
    limit = model.max_context
    if limit is not None and length > limit:
        yield past_context(length, limit, model.name)
    if division.overrun > 0:
        yield Note(
            "W07",
            f"budget, activations and graphs together exceed the device by "
            f"{format_bytes(division.overrun, binary=True)}: a lower memory fraction avoids running out later",
        )
