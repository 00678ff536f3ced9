"""Where a workload is put: the engine, the plan and the memory of an estimate, before any time is known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.base.positive import check_positive
from archsim.counts.engine_formats import RunsOn, engine_for
from archsim.counts.formats import choose_formats
from archsim.counts.lowered_steps import shared_steps
from archsim.counts.sounds import Sounds, heard_source
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.towers import checked_towers
from archsim.counts.workload import checked_source, checked_workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.graph.graph import ops
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel, EngineTensors, MostRunning, Settings
from archsim.memory.plan_search import ChosenPlan, Objective, PlanSearch
from archsim.predict.encoder import EncoderWork, encoder_works
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.timing.calibration import Store
from archsim.timing.device import DeviceRates
from archsim.timing.roofline import compute_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A workload on the plan that was chosen for it. chosen: whether archsim chose the number of devices and all
    degrees. works: what encoders do before the prompts. concurrency: requests in flight, where that was asked.
    """

    search: PlanSearch
    plan: ChosenPlan
    runs_on: RunsOn
    chosen: bool
    works: tuple[EncoderWork, ...] = ()
    concurrency: int | None = None

    @property
    def running(self) -> MostRunning | None:
        """Of the requests in flight those that run in the steady state; None where there is no steady state."""
        if self.concurrency is None or self.search.memory.model.architecture == "encoder":
            return None
        most = self.search.memory.running(self.plan.plan, self.concurrency)
        return most if most.requests >= 1 else None

    def in_steady_state(self, requests: int) -> Placement:
        """A batch of so many requests, with the memory that it takes in the steady state."""
        memory = self.search.memory
        own = EngineMemoryModel(memory.tensors, replace(memory.load, batch=requests), memory.graphs)
        held = self.plan._replace(memory=own.in_steady_state(self.plan.plan, requests))
        return replace(self, search=replace(self.search, memory=own), plan=held)

    @property
    def memory(self) -> DeviceMemory:
        """The memory of what runs."""
        running = self.running
        return self.plan.memory if running is None else self.in_steady_state(running.requests).plan.memory

    def check_rates(self) -> None:
        """Raises UsageError for a format that the device cannot multiply in, InvalidPlan where no link joins a group of
        the plan: what the time of a step fails by.
        """
        plan, rates = self.plan.plan, self.search.rates
        groups = {(plan.pp, plan.tp * plan.dp)}
        dtypes = set[str]()
        for op, _ in ops(self.search.memory.tensors.rank(plan)):
            if op.kind == "contract":
                dtypes.add(compute_dtype(op))
            elif op.kind == "collective":
                groups.add((op.attrs["group"], op.attrs.get("stride", 1)))
        for dtype in dtypes:
            rates.matrix_flops(dtype)
        for ranks, stride in groups:
            rates.hops(ranks, stride)


def place(
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
) -> Placement:
    """The plan and the memory of `estimate`, whose options these are; what it raises is raised here, but for what only
    a time needs (`check_rates`).
    """
    if concurrency is not None:
        check_positive(concurrency=concurrency)
    check_cached(cached_input, input_len, concurrency)
    if cached_input and model.encoder is not None:
        raise UsageError(f"`--cached-input`: {model.name} reads a source anew with each request, which no cache holds")
    source_len = checked_source(model, source_len)
    if audio is not None and model.encoder is not None:
        source_len, audio = heard_source(model, Sounds.parse(audio)), None
    works = encoder_works(model, image, audio)
    left_out = checked_towers(without)
    _check_held(works, left_out)
    seen = sum(work.prompt_tokens for work in works)
    if works and model.encoder is not None:  # they are part of the source
        source_len = (input_len if source_len is None else source_len) + seen
    else:
        input_len += seen
    load = checked_workload(batch, input_len, output_len, source_len)
    runs_on = engine_for(model, weights, engine)
    formats = choose_formats(model, weights, kv_cache_dtype, engine=runs_on.engine)
    given = {k: v for k, v in {"tp": tp, "pp": pp, "ep": ep, "dp": dp}.items() if v is not None}
    check_positive(**given)
    settings = Settings(parts=tuple(work.tower.name for work in works), without=left_out)
    tensors = EngineTensors(model, hardware, formats, choose_engine(runs_on.engine), settings, shared_steps(model))
    memory = EngineMemoryModel(tensors, load, StepGraphs.shared(model, formats))
    search = PlanSearch(memory, DeviceRates(hardware), store, objective or "latency", concurrency)
    start, fixed = search.start(**given), frozenset(given)
    auto = devices is None or str(devices).lower() == "auto"
    if auto and not {"tp", "pp"} & fixed:
        found = search.smallest(start, fixed)
    else:
        found = search.plan_on(None if auto else devices, start, fixed)
    return Placement(
        search=search, plan=found, runs_on=runs_on, chosen=auto and not given, works=works, concurrency=concurrency
    )


def _check_held(works: Collection[EncoderWork], without: Collection[str]) -> None:
    """Raises UsageError for images or sounds of an encoder that `--without` leaves out."""
    for work in works:
        if work.tower.name in without:
            option = "--image" if work.noun == "image" else "--audio"
            hint = f"leave out `{option}` or `--without {work.tower.name}`"
            raise UsageError(
                f"`{option}` needs the {work.tower.name} tower, which `--without` leaves out", hints=(hint,)
            )


def check_cached(cached_input: int, input_len: int, concurrency: int | None) -> None:
    """Raises UsageError for cached prompt tokens without a steady state, or that leave nothing of the prompt."""
    if not cached_input:
        return
    if concurrency is None:
        raise UsageError("`--cached-input` goes with `--concurrency`: a single batch has no earlier prompts to reuse")
    if not 0 <= cached_input < input_len:
        hint = "an engine computes at least the last token of a prompt"
        raise UsageError(f"{cached_input:,} of {input_len:,} prompt tokens cannot be cached", hints=(hint,))
