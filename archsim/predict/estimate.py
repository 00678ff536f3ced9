"""`archsim estimate`: a model on a device, from memory to time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict
from archsim.counts import graph_counts as c
from archsim.counts.count import checked, step_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import Workload, WorkloadSteps, checked_workload
from archsim.engines.names import DEFAULT_ENGINE, engine_of, named
from archsim.engines.overhead import EngineOverheads
from archsim.graph.graph import Block
from archsim.memory.budget import USABLE, Memory
from archsim.memory.workload_memory import WorkloadMemory
from archsim.predict.assumptions import assumed, timed_by, warned
from archsim.spec.format import load_format
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, candidates, check_degrees, plan_for
from archsim.timing.calibration import Store, default_store
from archsim.timing.device import DeviceRates
from archsim.timing.step_pricer import StepPricer, engine_overheads
from archsim.timing.step_time import StepTime

if TYPE_CHECKING:
    from archsim.serving.steady_state import SteadyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer: plan, memory, both phases, and every assumption behind them. chosen: whether archsim chose more than
    one device. overheads: of the engine at its version.
    """

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    workload: Workload
    memory: Memory
    prefill: StepTime
    decode: StepTime | None
    params_total: int
    params_active: int
    chosen: bool
    overheads: EngineOverheads
    store: Store = field(default_factory=default_store, repr=False)
    serving: SteadyState | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache growth per token of one sequence on one device, while no window is full."""
        graphs = StepGraphs(self.model, self.formats)
        one = graphs.rank(step_for(self.model, 1, 1), Plan(tp=self.plan.tp))
        grown = c.state_bytes(one, role="kv")
        return int(-(-round(grown) // self.plan.pp))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Unqueued single-batch figures from the expected times. TPOT excludes the first token."""
        ttft = float(self.prefill.expected_s)
        if self.decode is None:
            names = ("tpot_s", "tokens_per_s_per_user", "tokens_per_s", "tokens_per_s_per_device")
            return {"ttft_s": ttft, "e2e_s": ttft, **dict.fromkeys(names)}
        tpot = float(self.decode.expected_s)
        rate = self.workload.batch / tpot
        return {
            "ttft_s": ttft, "tpot_s": tpot, "e2e_s": ttft + tpot * (self.workload.output_len - 1),
            "tokens_per_s_per_user": 1 / tpot, "tokens_per_s": rate,
            "tokens_per_s_per_device": rate / self.plan.devices,
        }  # fmt: skip

    def to_dict(self) -> JsonObject:
        """The `archsim.estimate/1` object."""
        plan, load = self.plan, self.workload
        phases = {"prefill": self.prefill.to_dict(), "decode": self.decode.to_dict() if self.decode else None}
        return {
            "schema": "archsim.estimate/1",
            "model": {"name": self.model.name, "architecture": self.model.architecture},
            "hardware": {"name": self.hardware.id, "devices": plan.devices},
            "plan": {
                "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "weights": self.formats.name,
                "kv_cache": self.formats.kv.name, "engine": plan.engine,
            },
            "workload": {"batch": load.batch, "input_len": load.input_len, "output_len": load.output_len},
            "params": {"total": self.params_total, "active": self.params_active},
            "memory": self.memory.to_dict(), "phases": phases, "metrics": self.metrics,
            **({"serving": self.serving.to_dict()} if self.serving else {}),
            **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip


@dataclass(frozen=True)
class PlanSearch:
    """What a search for a plan asks: the graphs, the memory and the links of a workload's model on a device."""

    graphs: StepGraphs
    hardware: Hardware
    steps: WorkloadSteps
    rates: DeviceRates

    @cached_property
    def memory(self) -> WorkloadMemory:
        """Memory by plan."""
        return WorkloadMemory(self.graphs, self.hardware, self.steps)

    @property
    def model(self) -> Model:
        """The model."""
        return self.graphs.model

    @property
    def one_token(self) -> Block:
        """The graph of a single token on a single device, in which parameters are counted."""
        return self.graphs.rank(self.steps.one_token, Plan())

    def plan_within(self, start: Plan, fixed: frozenset[str]) -> tuple[Plan, Memory]:
        """The plan with the fewest devices that holds everything. fixed: degrees that are kept. Raises AnswerNo."""
        last: tuple[Plan, Memory] | None = None
        apart: InvalidPlan | None = None
        for plan in self.candidates(start, fixed):
            if missing := self.unlinked(plan):
                apart = apart or missing
                continue
            last = plan, self.memory.on(plan)
            if last[1].fits:
                return last
        if last is None and apart is not None and self.memory.on(Plan()).fits:
            raise apart  # the degrees that were asked for need the link
        raise self._too_big(last)

    def candidates(self, start: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
        """Plans by size whose devices together hold the weights, if they are cut without loss."""
        weights = c.weight_bytes(self.one_token)
        usable = self.hardware.working_set_bytes * USABLE
        for plan in candidates(self.model, self.hardware.max_domain, start, fixed):
            if weights <= usable * plan.devices:
                yield plan

    def unlinked(self, plan: Plan) -> InvalidPlan | None:
        """What is wrong where the device has no link that joins the plan's groups."""
        try:
            for ranks, stride in ((plan.tp, 1), (plan.dp, plan.tp), (plan.pp, plan.tp * plan.dp)):
                self.rates.hops(ranks, stride)
        except InvalidPlan as error:
            return error
        return None

    def _too_big(self, last: tuple[Plan, Memory] | None) -> AnswerNo:
        from archsim.base.units import format_bytes

        name, formats = self.hardware.name, self.graphs.formats
        bits = 8 * c.weight_bytes(self.one_token) / c.params(self.one_token)
        narrower = [n for n in ("fp8", "int4") if load_format(n).format().bits < 0.9 * bits]
        hints = tuple(f"a narrower format: `--weights {n}`" for n in narrower[-1:])
        hints += ("a smaller batch or a shorter context",)
        plan, budget = last or (Plan(), self.memory.on(Plan()))
        group = name if plan.devices == 1 else f"any number of {name} that a link joins"
        return AnswerNo(
            f"{self.model.name} in {formats.name} does not fit on {group}: {plan.devices} would need "
            f"{format_bytes(budget.needed)}{' each' if plan.devices > 1 else ''}, "
            f"{format_bytes(budget.usable)} usable",
            hints=hints,
        )


def price_phases(
    pricer: StepPricer, steps: WorkloadSteps, decodes: bool = True
) -> tuple[StepTime, StepTime | None]:
    """Prefill, and the decode step where there is one. A prefill goes through a pipeline in pieces, so that all stages
    work at once; a decode step cannot.
    """
    prefill = pricer.price(steps.prefill).called("prefill", steps.load.prompt_tokens)
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
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE,
    concurrency: int | None = None,
    store: Store | None = None,
) -> Estimate:
    """Memory and time of a model on a device.

    devices: a number, or "auto" for the smallest usual group that holds it: a valid tensor-parallel degree or a
    power of two, then whole link domains. tp, pp, ep, dp: degrees to keep; the rest follow. concurrency: also the
    steady state of so many requests in flight; the batch is then as large unless given. store: the calibrations.
    Raises InvalidPlan for degrees that do not divide the model, AnswerNo when no number of devices is enough.
    """
    if concurrency is not None:
        checked(concurrency=concurrency)
        batch = concurrency if batch == 1 else batch
    load = checked_workload(batch, input_len, output_len)
    formats = choose_formats(model, weights, kv_cache_dtype, engine=engine)
    search = PlanSearch(
        StepGraphs(model, formats), hardware, WorkloadSteps(model, load), DeviceRates(hardware)
    )
    given = {k: v for k, v in {"tp": tp, "pp": pp, "ep": ep, "dp": dp}.items() if v is not None}
    checked(**given)
    rules = engine_of(engine).rules
    start = Plan(**given, engine=rules.name, splits=rules.parallelism.splits)
    check_degrees(model, start)
    auto = devices is None or str(devices).lower() == "auto"
    if auto and not {"tp", "pp"} & given.keys():
        plan, budget = search.plan_within(start, frozenset(given))
    else:
        count = start.devices if auto else _device_count(devices)
        plan = plan_for(model, count, hardware.max_domain, start, frozenset(given))
        budget = search.memory.on(plan)
    answer = _answer(search, plan, budget, auto, engine, store or default_store())
    return answer if concurrency is None else _served(answer, concurrency)


def _device_count(devices: int | str) -> int:
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise UsageError(f"`--devices` wants a number or `auto`, not {devices!r}")
    if devices < 1:
        raise UsageError(f"`--devices` must be positive, not {devices}")
    return devices


def _answer(
    search: PlanSearch, plan: Plan, budget: Memory, auto: bool, engine: str, store: Store
) -> Estimate:
    """The estimate on a plan."""
    model, hardware, formats, load = search.model, search.hardware, search.graphs.formats, search.steps.load
    pricer = StepPricer.of(
        model, hardware, formats, engine_overheads(engine, store), plan, graphs=search.graphs, rates=search.rates,
        store=store,
    )  # fmt: skip
    prefill, decode = price_phases(pricer, search.steps, model.architecture != "encoder")
    return Estimate(
        model=model, hardware=hardware, plan=plan, formats=formats, workload=load, memory=budget, prefill=prefill,
        decode=decode, params_total=c.params(search.one_token), params_active=c.active_params(search.one_token),
        chosen=auto and plan.devices > 1, overheads=pricer.overheads, store=store,
        assumptions=(
            *formats.assumptions, *assumed(model, load, plan), *timed_by(pricer.overheads, prefill, named(engine)),
            *search.rates.notes,
        ),
        warnings=(*hardware.warnings, *warned(model, load, plan)),
    )  # fmt: skip


def _served(answer: Estimate, concurrency: int) -> Estimate:
    """The answer with the steady state of continuous batching."""
    from archsim.serving.steady_state import steady_state_of

    plan, load, budget = answer.plan, answer.workload, answer.memory
    room = budget.usable - budget.weights - budget.activations - budget.runtime
    each = budget.kv_cache * plan.dp / load.batch
    most = room / each * plan.dp if each else None
    if answer.decode is None or (most is not None and most < 1):
        ignored = Note("W03", "no steady state: no request has room, or none decodes")
        return replace(answer, warnings=(*answer.warnings, ignored))
    state = steady_state_of(pricer_for(answer), concurrency, load.input_len, load.output_len, most)
    return replace(answer, serving=state, assumptions=(*answer.assumptions, *state.assumptions))


def pricer_for(e: Estimate) -> StepPricer:
    """What prices any other step of the estimate's model, device, formats, engine and plan."""
    return StepPricer.of(e.model, e.hardware, e.formats, e.overheads, e.plan, store=e.store)
