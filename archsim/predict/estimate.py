"""`archsim estimate`: a model on a device, from memory to time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from typing import TYPE_CHECKING

from archsim.base.data_class import dataclass
from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict
from archsim.counts.formats import Formats
from archsim.counts.layer_columns import params
from archsim.counts.towers import tower_params, towers_in_memory
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.engines.names import DEFAULT_ENGINE
from archsim.engines.overhead import EngineOverheads, overheads_of
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel, EngineTensors
from archsim.memory.plan_search import ChosenPlan, Objective, PlanSearch, RankedPlan
from archsim.predict.assumptions import assumed, lifted, timed_by, warned
from archsim.predict.encoder import EncoderTime, encoder_time
from archsim.predict.metrics import metrics
from archsim.predict.placement import Placement, place
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store, default_store
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
    on devices. overheads: of the engine at its version. encoders: of the images and sounds of a batch. cached_input:
    tokens of each prompt that are in the cache.
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
    encoders: tuple[EncoderTime, ...] = ()
    cached_input: int = 0
    cost: PricedWork | None = None
    energy: EnergyUse | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def encoder(self) -> EncoderTime | None:
        """The encoder of images, else of sounds; None without either."""
        return self.encoders[0] if self.encoders else None

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache growth per token of one sequence on one device, before any sliding window is full."""
        return self.memory.stage.growth

    @property
    def metrics(self) -> dict[str, float | None]:
        """Unqueued single-batch figures from the expected times. TPOT excludes the first token."""
        tpot = float(self.decode.expected_s) if self.decode else None
        before = sum(float(encoder.time.expected_s) for encoder in self.encoders)
        return metrics(self.workload, before + float(self.prefill.expected_s), tpot, self.plan.devices)

    def to_dict(self) -> JsonObject:
        """The `archsim.estimate/1` object."""
        plan, load = self.plan, self.workload
        names = ("encoder", *(f"{encoder.work.noun}_encoder" for encoder in self.encoders[1:]))
        phases = {
            **{name: encoder.to_dict() for name, encoder in zip(names, self.encoders, strict=False)},
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
    encoder runs before it, with each prompt of a steady state; audio: seconds and number of its sounds (`30x2`), alike,
    beside images too. source_len: tokens of each source of an encoder-decoder, as long as the prompt unless given;
    where the source is a sound, `audio` says it. without: vision and audio towers that the engine does not load.
    objective: what plans on equally many devices are ranked by ("latency" unless given, see `Objective`). store:
    calibrations.
    Raises InvalidPlan for degrees that do not divide the model, AnswerNo when no number of devices is enough.
    """
    placed = place(
        model, hardware, devices=devices, tp=tp, pp=pp, ep=ep, dp=dp, batch=batch, input_len=input_len,
        output_len=output_len, source_len=source_len, weights=weights, kv_cache_dtype=kv_cache_dtype, engine=engine,
        concurrency=concurrency, cached_input=cached_input, image=image, audio=audio, without=without,
        objective=objective, store=store,
    )  # fmt: skip
    calibrations = store or default_store()
    if concurrency is None:
        return _timed(placed, calibrations)
    return replace(_served(placed, concurrency, cached_input, calibrations), cached_input=cached_input)


def _timed(placed: Placement, store: Store) -> Estimate:
    """The estimate of what was placed, with all that was assumed about it."""
    made = _answer(placed.search, placed.plan, placed.chosen, store)
    if placed.works:
        encoders = _encoders(made, placed, made.workload.batch, store)
        shown = _encoders(made, placed, None, store) if placed.running is not None else encoders
        notes = tuple(note for encoder in shown for note in encoder.notes)
        made = replace(made, encoders=encoders, assumptions=(*notes, *made.assumptions))
    tensors, runs_on = made.tensors, placed.runs_on
    assumptions = (
        *runs_on.assumptions,
        *towers_in_memory(made.model, made.formats, tensors.towers, tensors.settings.without),
        *made.assumptions,
    )
    return replace(made, assumptions=assumptions, warnings=(*made.warnings, *runs_on.warnings))


def _encoders(made: Estimate, placed: Placement, batch: int | None, store: Store) -> tuple[EncoderTime, ...]:
    """What the encoders take for a batch, or for one request."""
    return tuple(
        encoder_time(made.model, made.hardware, made.overheads, made.plan, work, batch, store) for work in placed.works
    )


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
    total, active = params(memory.graphs, memory.steps.one_token)
    prefill, decode = price_phases(pricer, memory.steps, model.architecture != "encoder")
    return Estimate(
        model=model, hardware=hardware, plan=plan, formats=formats, workload=load, memory=held, prefill=prefill,
        decode=decode, params_total=total, params_active=active,
        chosen=auto and plan.devices > 1, near=near, overheads=pricer.overheads, store=store, tensors=memory.tensors,
        assumptions=(
            *formats.assumptions, *assumed(memory, plan, held),
            *timed_by(pricer.overheads, prefill, engine, hardware),
            *lifted(prefill, decode),
            *search.rates.notes,
        ),
        warnings=(*hardware.warnings, *warned(model, load, plan)),
    )  # fmt: skip


def _no_steady_state(memory: EngineMemoryModel) -> str:
    """Why there is no steady state of continuous batching."""
    if memory.model.architecture == "encoder":
        return "an encoder does not decode"
    return f"the KV cache has no room for one request of {memory.length:,.0f} tokens"


def _served(placed: Placement, concurrency: int, cached_input: int, store: Store) -> Estimate:
    """The answer with the steady state of continuous batching. What is priced is the batch that runs: as many of the
    requests in flight as have room, in the cache and in steps.
    """
    from archsim.serving.steady_state import steady_state_of

    running = placed.running
    if running is None:
        alone = _timed(placed, store)
        ignored = Note("W03", f"`--concurrency` is ignored: {_no_steady_state(placed.search.memory)}")
        return replace(alone, warnings=(*alone.warnings, ignored))
    found = _timed(placed.in_steady_state(running.requests), store)
    load = found.workload
    state = steady_state_of(
        pricer_for(found),
        concurrency,
        load.input_len,
        load.output_len,
        running.requests,
        running.reason,
        cached_input,
        source_len=load.source_len,
        encoders=[encoder.time.duration for encoder in _encoders(found, placed, None, store)],
    )
    if (fewer := max(1, round(state.running))) < running.requests:  # their steps are full
        found = _timed(placed.in_steady_state(fewer), store)
    return replace(found, serving=state, assumptions=(*found.assumptions, *state.assumptions))


def pricer_for(e: Estimate) -> StepPricer:
    """What prices any other step of the estimate's model, device, formats, engine and plan."""
    return StepPricer.of(e.model, e.hardware, e.formats, e.overheads, e.plan, store=e.store)
