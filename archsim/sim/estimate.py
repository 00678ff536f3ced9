"""`archsim estimate`: a model on a device, from memory to time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.cost import count as c
from archsim.cost.kernels import Traffic
from archsim.cost.roofline import Machine, Work
from archsim.graph.graph import Block
from archsim.graph.passes.shard import Mesh, shard
from archsim.graph.step import Step
from archsim.sim.budget import PREFILL_TOKENS, USABLE, Memory, memory
from archsim.sim.counting import step_for
from archsim.sim.engines import canonical
from archsim.sim.formats import Formats, choose_formats
from archsim.sim.machine import Rates
from archsim.sim.phases import OpTime, Phase, op_time, price
from archsim.sim.plan import Plan, candidates, check_degrees, expert_counts, plan_for
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model


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
    """The answer: plan, memory, both phases, and every assumption behind them."""

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
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

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
            "assumptions": list(self.assumptions), "warnings": list(self.warnings),
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
    rates: Rates = field(init=False)
    graphs: dict[tuple[str, int], Block] = field(default_factory=dict)
    ranks: dict[tuple[str, Plan], Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = Rates(self.hardware)

    def graph(self, name: str, plan: Plan) -> Block:
        """One rank's graph of a named step."""
        if name == "one" and self.load.batch == 1 and self.model.encoder is None:
            name = "whole"  # a decode step of one sequence has one token as well
        if (name, plan) not in self.ranks:
            batch = -(-self.load.batch // plan.dp) * plan.dp
            if (name, batch) not in self.graphs:
                self.graphs[name, batch] = self.formats.apply(lower(self.model, self._step(name, batch)))
            self.ranks[name, plan] = shard(self.graphs[name, batch], mesh_of(plan.tp, plan.dp, plan.ep))
        return self.ranks[name, plan]

    def _step(self, name: str, batch: int) -> Step:
        new, out = self.load.input_len, self.load.output_len
        if name == "one":
            return step_for(self.model, 1, 1)
        if name == "prefill":
            return step_for(self.model, batch, new)
        if name == "chunk":
            return step_for(self.model, 1, min(PREFILL_TOKENS, new * batch))
        if name == "decode":
            return step_for(self.model, batch, 1, self.load.context - 1, new, absorbed=True)
        return step_for(self.model, batch, 1, new + out - 1, new)  # "whole": caches at full length

    def memory(self, plan: Plan) -> Memory:
        """What the fullest device holds."""
        whole = self.graph("prefill" if self.model.encoder is not None else "whole", plan)
        tokens = self.load.batch * self.load.input_len
        prefill = self.graph("prefill" if tokens <= PREFILL_TOKENS else "chunk", plan)
        budget = memory(self.hardware.working_set_bytes, self.usable, whole, prefill, plan.pp)
        return replace(budget, capacity=self.hardware.memory_bytes)

    def phase(self, name: str, plan: Plan) -> Phase:
        """Prefill or decode, priced. Pipeline stages follow one another."""
        machine = self.rates.machine()
        tokens = self.load.batch * (self.load.input_len if name == "prefill" else 1)
        return price(name, self.graph(name, plan), machine, plan.pp, self._hop(plan, tokens, machine))

    def _hop(self, plan: Plan, tokens: int, machine: Machine) -> OpTime | None:
        """Activations handed from stage to stage."""
        if plan.pp == 1:
            return None
        size = tokens * self.model.d_model * self.formats.activations.bytes / plan.tp / plan.dp
        w = Work(0, 0, Traffic(), size, self.formats.activations.compute, plan.devices)
        return op_time("pipeline.send", "send", plan.pp - 1, w, machine)


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
    engine: str = "generic",
) -> Estimate:
    """Memory and time of a model on a device.

    devices: a number, or "auto" for the fewest that hold it. tp, pp, ep, dp: degrees to keep; the rest follow.
    Raises InvalidPlan for degrees that do not divide the model, AnswerNo when no number of devices is enough.
    """
    load = checked_workload(model, batch, input_len, output_len)
    worker = Estimator(model, hardware, choose_formats(model, weights, kv_cache_dtype), load)
    given = {k: v for k, v in {"tp": tp, "pp": pp, "ep": ep, "dp": dp}.items() if v is not None}
    start = Plan(**given, engine=canonical(engine)[0])
    check_degrees(model, start)
    auto = devices in ("auto", None)
    if auto and not {"tp", "pp"} & given.keys():
        plan, budget = _smallest(worker, start, frozenset(given))
    else:
        count = start.devices if auto else _device_count(devices)
        plan = plan_for(model, count, hardware.max_domain, start, frozenset(given))
        budget = worker.memory(plan)
    return _answer(worker, plan, budget, auto, canonical(engine)[1])


def checked_workload(model: Model, batch: int, input_len: int, output_len: int) -> Workload:
    """The workload, or UsageError for numbers that mean nothing."""
    for name, value in (("batch", batch), ("input-len", input_len), ("output-len", output_len)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"`--{name}` must be a positive whole number, not {value!r}")
    return Workload(batch=batch, input_len=input_len, output_len=output_len)


def _device_count(devices: Any) -> int:
    try:
        count = int(devices)
    except (TypeError, ValueError):
        raise UsageError(f"`--devices` wants a number or `auto`, not {devices!r}") from None
    if count < 1:
        raise UsageError(f"`--devices` must be positive, not {count}")
    return count


def _smallest(worker: Estimator, start: Plan, fixed: frozenset[str]) -> tuple[Plan, Memory]:
    """The plan with the fewest devices that holds everything."""
    weights = c.weight_bytes(worker.graph("one", Plan()))
    usable = worker.hardware.working_set_bytes * worker.usable
    last: tuple[Plan, Memory] | None = None
    for plan in candidates(worker.model, worker.hardware.max_domain, start, fixed):
        if weights > usable * plan.devices or not _linked(worker, plan):
            continue  # cannot fit even if cut without loss
        last = plan, worker.memory(plan)
        if last[1].fits:
            return last
    raise _too_big(worker, last)


def _linked(worker: Estimator, plan: Plan) -> bool:
    """Whether the device has a link that joins the plan's groups."""
    try:
        for n in {plan.tp, plan.tp * plan.dp, plan.devices} - {1}:
            worker.rates.link(n)
    except InvalidPlan:
        return False
    return True


def _too_big(worker: Estimator, last: tuple[Plan, Memory] | None) -> AnswerNo:
    from archsim.base.units import format_bytes

    name, model = worker.hardware.name, worker.model.name
    hints = ("a narrower format: `--weights fp8` or `--weights int4`", "a smaller batch or a shorter context")
    if last is None:
        return AnswerNo(
            f"no group of {name} that a link joins can hold {model} in {worker.formats.name}", hints=hints
        )
    plan, budget = last
    return AnswerNo(
        f"{model} in {worker.formats.name} does not fit on any number of {name} that a link joins: "
        f"{plan.devices} would need {format_bytes(budget.needed)} each, {format_bytes(budget.usable)} usable",
        hints=hints,
    )


def _answer(worker: Estimator, plan: Plan, budget: Memory, auto: bool, notes: Iterable[str]) -> Estimate:
    decoder = worker.model.architecture != "encoder"
    prefill = worker.phase("prefill", plan)
    decode = worker.phase("decode", plan) if decoder else None
    one = worker.graph("one", Plan())
    return Estimate(
        model=worker.model, hardware=worker.hardware, plan=plan, formats=worker.formats,
        workload=worker.load, memory=budget, prefill=prefill, decode=decode, params_total=c.params(one),
        params_active=c.active_params(one), chosen=auto and plan.devices > 1,
        assumptions=(*worker.formats.assumptions, *assumed(worker, plan), *notes, *worker.rates.notes),
        warnings=(*worker.hardware.warnings, *warned(worker, plan)),
    )  # fmt: skip


def assumed(worker: Estimator, plan: Plan) -> list[str]:
    """What the figures rest on, one sentence each."""
    notes = [
        "speed of light: datasheet peaks, every tensor moved once, elementwise work fused, activations that fit "
        "the last-level cache kept there",
        "expected times are not fitted on this device: 80 % of the matrix peak, 85 % of the bandwidth, 75 % of the "
        "link, 3 us a kernel and 8 us a collective",
        "prefill computes logits at the last position; attention counts the pairs that the mask allows",
        f"{round(USABLE * 100)} % of the memory is usable, of which the runtime takes 0.5 GiB",
        f"prefill activations are of at most {PREFILL_TOKENS:,} tokens at once",
        f"decode at the mean context of {worker.load.context:,} tokens",
    ]
    if expert_counts(worker.model):
        notes.append(
            "tokens pick experts evenly and independently: E(1 - (1 - k/E)^T) distinct experts are read"
        )
    if plan.pp > 1:
        notes.append("pipeline stages run one after another for a single batch")
    return notes


def warned(worker: Estimator, plan: Plan) -> list[str]:
    """What the user should look at."""
    found = []
    longest = worker.load.input_len + worker.load.output_len
    limit = worker.model.max_context
    if limit is not None and longest > limit:
        found.append(f"{longest:,} tokens are more than the {limit:,} that {worker.model.name} was made for")
    if worker.load.batch < plan.dp:
        found.append(f"batch {worker.load.batch} is less than dp {plan.dp}: some replicas idle")
    return found
