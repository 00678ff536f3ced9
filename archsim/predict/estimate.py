"""`archsim estimate`: a model on a device, from memory to time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.notes import Note, notes_to_dict
from archsim.base.number import Num, maximum, minimum
from archsim.counts import graph_counts as c
from archsim.counts.count import checked, step_for
from archsim.counts.formats import Formats, choose_formats
from archsim.engines.names import DEFAULT_ENGINE, engine_of, named
from archsim.engines.overhead import Profile, driven, profile_of
from archsim.graph.graph import Block
from archsim.graph.passes.shard import Mesh, shard
from archsim.graph.step import Step
from archsim.memory.budget import PREFILL_TOKENS, USABLE, Memory, memory
from archsim.predict.assumptions import assumed, timed_by, warned
from archsim.spec.format import load_format
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, candidates, check_degrees, plan_for
from archsim.timing.calibration import Store, default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.device import Rates
from archsim.timing.kernel_timer import Timed, Timer
from archsim.timing.kernel_timer import timer as timer_of
from archsim.timing.step_time import OpTime, Phase, price, sent, with_extra

if TYPE_CHECKING:
    from archsim.serving.steady_state import Steady


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Equal sequences: batch of them, prompt and answer tokens of each."""

    batch: int = 1
    input_len: int = 2048
    output_len: int = 256

    @property
    def context(self) -> int:
        """Mean context of a decode step: the prompt and half the answer."""
        return self.input_len + self.output_len // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer: plan, memory, both phases, and every assumption behind them. chosen: whether archsim chose more than
    one device. profile: of the engine at its version.
    """

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    workload: Workload
    memory: Memory
    prefill: Phase
    decode: Phase | None
    params_total: int
    params_active: int
    chosen: bool
    profile: Profile
    store: Store = field(default_factory=default_store, repr=False)
    serving: Steady | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache growth per token of one sequence on one device, while no window is full."""
        one = self.formats.apply(lower(self.model, step_for(self.model, 1, 1)))
        grown = c.state_bytes(shard(one, mesh_of(self.plan.tp)), role="kv")
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

    def to_dict(self) -> dict[str, Any]:
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


mesh_of = lru_cache(maxsize=64)(Mesh.of)
"""Meshes are kept: they remember how they cut each shape."""


@dataclass(slots=True)
class Estimator:
    """One model, device, format choice and workload; prices any plan. Graphs are lowered once, then sharded."""

    model: Model
    hardware: Hardware
    formats: Formats
    load: Workload
    usable: float = USABLE
    profile: Profile = field(default_factory=profile_of)
    store: Store = field(default_factory=default_store)
    rates: Rates = field(init=False)
    graphs: dict[str, Block] = field(default_factory=dict)
    ranks: dict[tuple[str, Plan], Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = Rates(self.hardware)

    def graph(self, name: str, plan: Plan) -> Block:
        """The graph of a named step on the rank that has most to do."""
        if name == "one" and self.load.batch == 1 and self.model.encoder is None:
            name = "decode"  # a decode step of one sequence has one token as well
        if (name, plan) not in self.ranks:
            if name not in self.graphs:
                self.graphs[name] = self.formats.apply(lower(self.model, self._step(name)))
            batch = {"one": 1, "chunk": self._together, "single": plan.dp}.get(name, self.load.batch)
            mesh = mesh_of(plan.tp, plan.dp, plan.ep, batch if plan.dp > 1 else None)
            self.ranks[name, plan] = shard(self.graphs[name], mesh)
        return self.ranks[name, plan]

    @property
    def _together(self) -> Num:
        """Prompts whose activations are alive together: one where prompts are cut, else as many as fit."""
        if self.model.cached and self.model.encoder is None:
            return 1
        return minimum(self.load.batch, maximum(1, PREFILL_TOKENS // self.load.input_len))

    def _step(self, name: str) -> Step:
        batch, new, out = self.load.batch, self.load.input_len, self.load.output_len
        if name == "one":
            return step_for(self.model, 1, 1)
        if name == "prefill":
            return step_for(self.model, batch, new)
        if name == "chunk":
            whole = not self.model.cached or self.model.encoder is not None
            return step_for(
                self.model, self._together, new if whole else minimum(PREFILL_TOKENS, new * batch)
            )
        context = self.load.context  # of decode; its caches have room for the whole answer
        return step_for(self.model, batch, 1, context - 1, new, absorbed=True, room=new + out - context)

    def memory(self, plan: Plan) -> Memory:
        """What the fullest device holds. An encoder's weights are in its prefill, the caches in the decode step."""
        seq2seq = self.model.encoder is not None
        tokens = self.load.batch * self.load.input_len
        prefill = self.graph("prefill" if tokens <= PREFILL_TOKENS else "chunk", plan)
        whole = self.graph("prefill" if seq2seq else "decode", plan)
        budget = memory(self.hardware.working_set_bytes, self.usable, whole, prefill, plan.pp)
        if seq2seq:
            cache = round(c.state_bytes(self.graph("decode", plan))) // plan.pp
            budget = replace(budget, kv_cache=cache)
        return replace(budget, capacity=self.hardware.memory_bytes)

    def timer(self) -> Timer:
        """Times kernels of the engine on the device."""
        return timer_of(self.hardware, self.profile.kernels, self.rates, self.profile.version, self.store)

    def phase(self, name: str, plan: Plan) -> Phase:
        """Prefill or decode, priced. A prefill in pieces keeps all pipeline stages busy; a decode step cannot."""
        pieces = pieces_of(self.load.batch * self.load.input_len) if name == "prefill" else 0
        timer = self.timer()
        graph, step = self.graph(name, plan), self._step(name)
        priced = price(name, graph, timer, step, merged=self.profile.merged, stages=plan.pp, pieces=pieces)
        if plan.pp > 1:
            priced = self._handed_on(priced, plan, step.tokens, timer)
        return driven(priced, self.profile)

    def _handed_on(self, phase: Phase, plan: Plan, tokens: Num, timer: Timer) -> Phase:
        """The phase with the activations handed from stage to stage."""
        op, call = self._transfer(plan, tokens)
        timed, hops = timer.time(call), plan.pp - 1
        whole = Timed(timed.seconds * hops, timed.low * hops, timed.high * hops, timed.evidence)
        return with_extra(phase, op, whole, "nccl_send_recv")

    def _transfer(self, plan: Plan, tokens: Num) -> tuple[OpTime, KernelCall]:
        """All transfers between stages, and one of them as a call."""
        size = tokens * self.model.d_model * self.formats.activations.bytes / plan.tp / plan.dp
        stride = plan.tp * plan.dp
        link = self.rates.hops(plan.pp, stride)[0]
        call = KernelCall("nccl_send_recv", dims={"n_gpus": 2, "bytes": size, "stride": stride})
        return sent("pipeline.send", size, link.rate, plan.pp - 1), call


PIECE = 2048
"""Tokens of one piece of a prefill that a pipeline works on stage by stage: enough to hide that each reads weights."""


def pieces_of(tokens: Num) -> Num:
    """Pieces that a prefill is cut into, on average: at least one."""
    return maximum(1.0, tokens / PIECE)


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
    load = checked_workload(model, batch, input_len, output_len)
    store = store or default_store()
    formats = choose_formats(model, weights, kv_cache_dtype, engine=engine)
    profile = profile_of(*named(engine), store)
    worker = Estimator(model, hardware, formats, load, profile=profile, store=store)
    given = {k: v for k, v in {"tp": tp, "pp": pp, "ep": ep, "dp": dp}.items() if v is not None}
    checked(**given)
    rules = engine_of(engine).rules
    start = Plan(**given, engine=rules.name, splits=rules.parallelism.splits)
    check_degrees(model, start)
    auto = devices is None or str(devices).lower() == "auto"
    if auto and not {"tp", "pp"} & given.keys():
        plan, budget = _smallest(worker, start, frozenset(given))
    else:
        count = start.devices if auto else _device_count(devices)
        plan = plan_for(model, count, hardware.max_domain, start, frozenset(given))
        budget = worker.memory(plan)
    answer = _answer(worker, plan, budget, auto, named(engine))
    return answer if concurrency is None else _served(answer, worker, concurrency, engine)


def _served(answer: Estimate, worker: Estimator, concurrency: int, engine: str) -> Estimate:
    """The answer with the steady state of continuous batching."""
    from archsim.serving.steady_state import steady

    plan, load = answer.plan, worker.load
    budget = answer.memory
    room = budget.usable - budget.weights - budget.activations - budget.runtime
    each = budget.kv_cache * plan.dp / load.batch
    most = room / each * plan.dp if each else None
    if answer.decode is None or (most is not None and most < 1):
        ignored = Note("W03", "no steady state: no request has room, or none decodes")
        return replace(answer, warnings=(*answer.warnings, ignored))
    state = steady(
        worker.model, worker.hardware, concurrency=concurrency, input_len=load.input_len,
        output_len=load.output_len, tp=plan.tp, pp=plan.pp, ep=plan.ep, dp=plan.dp, engine=engine,
        formats=worker.formats, most_running=most, store=worker.store,
    )  # fmt: skip
    return replace(answer, serving=state, assumptions=(*answer.assumptions, *state.assumptions))


def checked_workload(model: Model, batch: int, input_len: int, output_len: int) -> Workload:
    """The workload, or UsageError for numbers that mean nothing."""
    checked(batch=batch, input_len=input_len, output_len=output_len)
    return Workload(batch=batch, input_len=input_len, output_len=output_len)


def _device_count(devices: Any) -> int:
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise UsageError(f"`--devices` wants a number or `auto`, not {devices!r}")
    if devices < 1:
        raise UsageError(f"`--devices` must be positive, not {devices}")
    return devices


def _smallest(worker: Estimator, start: Plan, fixed: frozenset[str]) -> tuple[Plan, Memory]:
    """The plan with the fewest devices that holds everything."""
    weights = c.weight_bytes(worker.graph("one", Plan()))
    usable = worker.hardware.working_set_bytes * worker.usable
    last: tuple[Plan, Memory] | None = None
    apart: InvalidPlan | None = None
    for plan in candidates(worker.model, worker.hardware.max_domain, start, fixed):
        if weights > usable * plan.devices:
            continue  # cannot fit even if cut without loss
        if missing := unlinked(worker, plan):
            apart = apart or missing
            continue
        last = plan, worker.memory(plan)
        if last[1].fits:
            return last
    if last is None and apart is not None and worker.memory(Plan()).fits:
        raise apart  # the degrees that were asked for need the link
    raise _too_big(worker, last)


def unlinked(worker: Estimator, plan: Plan) -> InvalidPlan | None:
    """What is wrong where the device has no link that joins the plan's groups."""
    try:
        for ranks, stride in ((plan.tp, 1), (plan.dp, plan.tp), (plan.pp, plan.tp * plan.dp)):
            worker.rates.hops(ranks, stride)
    except InvalidPlan as error:
        return error
    return None


def _too_big(worker: Estimator, last: tuple[Plan, Memory] | None) -> AnswerNo:
    from archsim.base.units import format_bytes

    name, model = worker.hardware.name, worker.model.name
    one = worker.graph("one", Plan())
    bits = 8 * c.weight_bytes(one) / c.params(one)
    narrower = [n for n in ("fp8", "int4") if load_format(n).format().bits < 0.9 * bits]
    hints = tuple(f"a narrower format: `--weights {n}`" for n in narrower[-1:])
    hints += ("a smaller batch or a shorter context",)
    plan, budget = last or (Plan(), worker.memory(Plan()))
    group = name if plan.devices == 1 else f"any number of {name} that a link joins"
    return AnswerNo(
        f"{model} in {worker.formats.name} does not fit on {group}: {plan.devices} would need "
        f"{format_bytes(budget.needed)}{' each' if plan.devices > 1 else ''}, {format_bytes(budget.usable)} usable",
        hints=hints,
    )


def _answer(worker: Estimator, plan: Plan, budget: Memory, auto: bool, engine: tuple[str, str]) -> Estimate:
    decoder = worker.model.architecture != "encoder"
    prefill = worker.phase("prefill", plan)
    decode = worker.phase("decode", plan) if decoder else None
    one = worker.graph("one", Plan())
    return Estimate(
        model=worker.model, hardware=worker.hardware, plan=plan, formats=worker.formats,
        workload=worker.load, memory=budget, prefill=prefill, decode=decode, params_total=c.params(one),
        params_active=c.active_params(one), chosen=auto and plan.devices > 1,
        profile=worker.profile, store=worker.store,
        assumptions=(
            *worker.formats.assumptions, *assumed(worker, plan), *timed_by(worker, prefill, engine),
            *worker.rates.notes,
        ),
        warnings=(*worker.hardware.warnings, *warned(worker, plan)),
    )  # fmt: skip
