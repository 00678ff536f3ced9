"""`archsim estimate`: a model on a device, from memory to time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field, replace
from typing import TYPE_CHECKING

from archsim.base.data_class import dataclass
from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict
from archsim.base.positive import check_positive
from archsim.counts import graph_counts as c
from archsim.counts.engine_formats import engine_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.images import Images, ImageWork
from archsim.counts.lowered_steps import shared_steps
from archsim.counts.sounds import Sounds, SoundWork, heard_source
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.towers import checked_towers, tower_params, towers_in_memory
from archsim.counts.workload import Workload, WorkloadSteps, checked_source, checked_workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.engines.overhead import EngineOverheads, overheads_of
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel, EngineTensors, Settings
from archsim.memory.plan_search import ChosenPlan, Objective, PlanSearch, RankedPlan
from archsim.predict.assumptions import assumed, lifted, timed_by, warned
from archsim.predict.encoder import EncoderTime, EncoderWork, encoder_time
from archsim.predict.metrics import metrics
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store, default_store
from archsim.timing.device import DeviceRates
from archsim.timing.step_pricer import StepPricer
from archsim.timing.step_time import StepTime

if TYPE_CHECKING:
    from archsim.cost.priced_work import PricedWork
    from archsim.energy.energy_use import EnergyUse
    from archsim.serving.steady_state import SteadyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Tabular):
    """The answer: plan, memory, both phases, and every assumption behind them. chosen: whether archsim chose more than
    one device. near: other plans on as many devices that are nearly as good. tensors: what the engine lays out
    on devices. overheads: of the engine at its version. cached_input: tokens of each prompt that are in the cache.
    """

    __repr__ = Tabular.__repr__

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    workload: Workload
    memory: DeviceMemory
    tensors: EngineTensors
    prefill: StepTime
    decode: StepTime | None
    params_total: int
    params_active: int
    chosen: bool
    overheads: EngineOverheads
    near: tuple[RankedPlan, ...] = ()
    store: Store = field(default_factory=default_store, repr=False)
    serving: SteadyState | None = None
    encoder: EncoderTime | None = None
    cached_input: int = 0
    cost: PricedWork | None = None
    energy: EnergyUse | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache growth per token of one sequence on one device, before any sliding window is full."""
        return self.memory.stage.growth

    @property
    def metrics(self) -> dict[str, float | None]:
        """Unqueued single-batch figures from the expected times. TPOT excludes the first token."""
        tpot = float(self.decode.expected_s) if self.decode else None
        before = float(self.encoder.time.expected_s) if self.encoder else 0.0
        return metrics(self.workload, before + float(self.prefill.expected_s), tpot, self.plan.devices)

    def to_dict(self) -> JsonObject:
        """The `archsim.estimate/1` object."""
        plan, load = self.plan, self.workload
        encoder = {"encoder": self.encoder.to_dict()} if self.encoder else {}
        phases = {
            **encoder,
            "prefill": self.prefill.to_dict(),
            "decode": self.decode.to_dict() if self.decode else None,
        }
        return {
            "schema": "archsim.estimate/1",
            "model": {"name": self.model.name, "architecture": self.model.architecture},
            "hardware": {"name": self.hardware.id, "devices": plan.devices},
            "plan": {
                "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "weights": self.formats.name,
                "kv_cache": self.formats.kv.name, "engine": plan.engine,
            },
            "workload": {
                "batch": load.batch, "input_len": load.input_len, "output_len": load.output_len,
                **({} if load.source_len is None else {"source_len": load.source_len}),
            },
            "params": {
                "total": self.params_total, "active": self.params_active, "towers": tower_params(self.model),
            },
            "memory": self.memory.to_dict(), "phases": phases, "metrics": self.metrics,
            **({"serving": self.serving.to_dict()} if self.serving else {}),
            **({"cost": self.cost.to_dict()} if self.cost else {}),
            **({"energy": self.energy.to_dict(), "carbon": self.energy.carbon_dict()} if self.energy else {}),
            **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip


def price_phases(pricer: StepPricer, steps: WorkloadSteps, decodes: bool = True) -> tuple[StepTime, StepTime | None]:
    """Prefill, and the decode step where there is one. A prefill goes through a pipeline in pieces, so that all stages
    work at once; a decode step cannot.
    """
    prefill = pricer.prefill(steps.prefill)
    decode = pricer.price(steps.decode).called("decode") if decodes else None
    return prefill, decode


def estimate(
    model: Model,
    hardware: Hardware,
    *,
    devices: int | str = "auto",
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    batch: int = 1,
    input_len: int = 2048,
    output_len: int = 256,
    source_len: int | None = None,
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE,
    concurrency: int | None = None,
    cached_input: int = 0,
    image: str | None = None,
    audio: str | None = None,
    without: str | Collection[str] = (),
    objective: Objective | None = None,
    store: Store | None = None,
) -> Estimate:
    """Memory and time of a model on a device.

    devices: a number, or "auto" for the smallest usual group that holds it: a valid tensor-parallel degree or a
    power of two, then whole link domains. tp, pp, ep, dp: degrees to use; those not given are chosen. concurrency:
    also the steady state of so many requests in flight, on the devices that hold the batch: the batch is then that of
    the requests that run, the others wait. cached_input: tokens of each prompt that a prefix cache holds then. image:
    size and number of the images of each request (`1024x768x2`), whose tokens are added to its prompt, and whose
    encoder runs before; audio: seconds and number of its sounds (`30x2`), alike. source_len: tokens of each source of
    an encoder-decoder, as long as the prompt unless given; where the source is a sound, `audio` says it. without:
    vision and audio towers that the engine does not load. objective: what plans on equally many devices are ranked by
    ("latency" unless given, see `Objective`). store: calibrations.
    Raises InvalidPlan for degrees that do not divide the model, AnswerNo when no number of devices is enough.
    """
    if concurrency is not None:
        check_positive(concurrency=concurrency)
    check_cached(cached_input, input_len, concurrency)
    source_len = checked_source(model, source_len)
    if audio is not None and model.encoder is not None:
        source_len, audio = heard_source(model, Sounds.parse(audio)), None
    work = _encoder_work(model, image, audio, concurrency)
    load = checked_workload(batch, input_len + (work.prompt_tokens if work else 0), output_len, source_len)
    runs_on = engine_for(model, weights, engine)
    formats = choose_formats(model, weights, kv_cache_dtype, engine=runs_on.engine)
    given = {k: v for k, v in {"tp": tp, "pp": pp, "ep": ep, "dp": dp}.items() if v is not None}
    check_positive(**given)
    chosen = choose_engine(runs_on.engine)
    settings = Settings(without=checked_towers(without))
    tensors = EngineTensors(model, hardware, formats, chosen, settings, shared_steps(model))
    memory = EngineMemoryModel(tensors, load, StepGraphs.shared(model, formats))
    search = PlanSearch(memory, DeviceRates(hardware), store, objective or "latency", concurrency)
    start, fixed = search.start(**given), frozenset(given)
    auto = devices is None or str(devices).lower() == "auto"
    if auto and not {"tp", "pp"} & fixed:
        found = search.smallest(start, fixed)
    else:
        found = search.plan_on(None if auto else devices, start, fixed)
    chosen_here, calibrations = auto and not given, store or default_store()

    def answer(search: PlanSearch, held: ChosenPlan) -> Estimate:
        made = _answer(search, held, chosen_here, calibrations)
        if work is not None:
            first = encoder_time(model, hardware, made.overheads, made.plan, work, made.workload.batch, calibrations)
            made = replace(made, encoder=first, assumptions=(*first.notes, *made.assumptions))
        assumptions = (
            *runs_on.assumptions,
            *towers_in_memory(model, formats, tensors.towers, settings.without),
            *made.assumptions,
        )
        return replace(made, assumptions=assumptions, warnings=(*made.warnings, *runs_on.warnings))

    if concurrency is None:
        return answer(search, found)
    return replace(_served(search, found, concurrency, cached_input, answer), cached_input=cached_input)


def _answer(search: PlanSearch, found: ChosenPlan, auto: bool, store: Store) -> Estimate:
    """The estimate on a plan."""
    plan, held, near = found
    memory = search.memory
    model, hardware, load, formats = memory.model, memory.hardware, memory.load, memory.tensors.formats
    engine = memory.tensors.engine
    overheads = overheads_of(engine.name, engine.version, measured=store.engines, document=engine.rules)
    pricer = StepPricer.of(
        model, hardware, formats, overheads, plan, graphs=memory.graphs, rates=search.rates,
        store=store,
    )  # fmt: skip
    prefill, decode = price_phases(pricer, memory.steps, model.architecture != "encoder")
    return Estimate(
        model=model, hardware=hardware, plan=plan, formats=formats, workload=load, memory=held, prefill=prefill,
        decode=decode, params_total=c.params(memory.one_token), params_active=c.active_params(memory.one_token),
        chosen=auto and plan.devices > 1, near=near, overheads=pricer.overheads, store=store, tensors=memory.tensors,
        assumptions=(
            *formats.assumptions, *assumed(memory, plan, held),
            *timed_by(pricer.overheads, prefill, engine, hardware),
            *lifted(prefill, decode),
            *search.rates.notes,
        ),
        warnings=(*hardware.warnings, *warned(model, load, plan)),
    )  # fmt: skip


def _encoder_work(model: Model, image: str | None, audio: str | None, concurrency: int | None) -> EncoderWork | None:
    """What an encoder does before the prompts. Raises UsageError for both kinds at once, and beside a steady state."""
    given = [option for option, value in (("--image", image), ("--audio", audio)) if value is not None]
    if len(given) > 1:
        raise UsageError("`--image` and `--audio` exclude each other: give one of them")
    if given and concurrency is not None:
        raise UsageError(f"`{given[0]}` goes with a batch: with `--concurrency` the encoder's time is not known")
    if audio:
        return SoundWork.of(model, Sounds.parse(audio))
    return ImageWork.of(model, Images.parse(image)) if image else None


def check_cached(cached_input: int, input_len: int, concurrency: int | None) -> None:
    """Raises UsageError for cached prompt tokens without a steady state, or that leave nothing of the prompt."""
    if not cached_input:
        return
    if concurrency is None:
        raise UsageError("`--cached-input` goes with `--concurrency`: a single batch has no earlier prompts to reuse")
    if not 0 <= cached_input < input_len:
        hint = "an engine computes at least the last token of a prompt"
        raise UsageError(f"{cached_input:,} of {input_len:,} prompt tokens cannot be cached", hints=(hint,))


def _no_steady_state(memory: EngineMemoryModel) -> str:
    """Why there is no steady state of continuous batching."""
    if memory.model.architecture == "encoder":
        return "an encoder does not decode"
    return f"the KV cache has no room for one request of {memory.length:,.0f} tokens"


def _served(
    search: PlanSearch, chosen: ChosenPlan, concurrency: int, cached_input: int,
    answer: Callable[[PlanSearch, ChosenPlan], Estimate],
) -> Estimate:  # fmt: skip
    """The answer with the steady state of continuous batching. What is priced is the batch that runs: as many of the
    requests in flight as have room, in the cache and in steps.
    """
    from archsim.serving.steady_state import steady_state_of

    memory, plan = search.memory, chosen.plan
    most = memory.running(plan, concurrency)
    if memory.model.architecture == "encoder" or most.requests < 1:
        alone = answer(search, chosen)
        ignored = Note("W03", f"`--concurrency` is ignored: {_no_steady_state(memory)}")
        return replace(alone, warnings=(*alone.warnings, ignored))
    load = memory.load

    def of(requests: int) -> Estimate:
        running = EngineMemoryModel(memory.tensors, replace(load, batch=requests), memory.graphs)
        return answer(replace(search, memory=running), chosen._replace(memory=running.in_steady_state(plan, requests)))

    found = of(most.requests)
    state = steady_state_of(
        pricer_for(found),
        concurrency,
        load.input_len,
        load.output_len,
        most.requests,
        most.reason,
        cached_input,
        source_len=load.source_len,
    )
    if (fewer := max(1, round(state.running))) < most.requests:  # their steps are full
        found = of(fewer)
    return replace(found, serving=state, assumptions=(*found.assumptions, *state.assumptions))


def pricer_for(e: Estimate) -> StepPricer:
    """What prices any other step of the estimate's model, device, formats, engine and plan."""
    return StepPricer.of(e.model, e.hardware, e.formats, e.overheads, e.plan, store=e.store)
