"""The plan with the fewest devices on which a workload fits: one search for `estimate`, `fit` and `sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.number import Num
from archsim.base.units import format_bytes
from archsim.counts import graph_counts as c
from archsim.engines.overhead import overheads_of
from archsim.graph.step import Step
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.spec.format import load_format
from archsim.spec.parallelism import Plan, check, check_degrees, device_counts, plan_for, replica_plans
from archsim.timing.calibration import Store, default_store
from archsim.timing.device import DeviceRates
from archsim.timing.step_pricer import StepPricer


def device_count(devices: int | str) -> int:
    """`--devices` as a number. Raises UsageError."""
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise UsageError(f"`--devices` takes a number or `auto`, not {devices!r}")
    if devices < 1:
        raise UsageError(f"`--devices` must be positive, not {devices}")
    return devices


Objective = Literal["latency", "throughput"]
"""What plans on equally many devices are ranked by: the time of a token at the batch that is asked for, or tokens per
second with as many requests as the plan holds."""

NEAR = 0.1
"""Share by which another plan may be slower and still be as good, for all that an estimate knows."""


class RankedPlan(NamedTuple):
    """A plan, its memory, and its place among those on as many devices: seconds, smaller is better; 0 for a plan that
    stood alone. slower: than the best, as a share.
    """

    plan: Plan
    memory: DeviceMemory
    seconds: float = 0.0
    slower: float = 0.0


class ChosenPlan(NamedTuple):
    """The plan that is taken, and the others on as many devices that come near it, the nearest first."""

    plan: Plan
    memory: DeviceMemory
    near: tuple[RankedPlan, ...] = ()


@dataclass(frozen=True)
class PlanSearch:
    """The memory of a workload and the links of its devices, and the plans that they allow.

    store: the calibrations that plans are ranked by. objective: see `Objective`. in_flight: requests that are always in
    flight, of which as many run as have room.
    """

    memory: EngineMemoryModel
    rates: DeviceRates
    store: Store | None = None
    objective: Objective = "latency"
    in_flight: int | None = None

    def start(self, **degrees: int) -> Plan:
        """The plan of the degrees that were asked for, as the engine shares a model. Raises InvalidPlan."""
        rules = self.memory.rules
        tensors = self.memory.tensors.settings.split_mode == "tensor"
        plan = Plan(**degrees, engine=rules.name, splits="tensors" if tensors else rules.parallelism.splits)
        check_degrees(self.memory.model, plan)
        return plan

    def plan_on(self, devices: int | str | None, start: Plan, fixed: frozenset[str]) -> ChosenPlan:
        """The best plan on so many devices; without a number, on as many as the degrees make. Where none holds the
        workload, the one without replicas of the attention, if there is one. Raises InvalidPlan, also where no link
        joins the groups of any.
        """
        plans = self.plans_on(devices, start, fixed)
        missing = [self.unlinked(plan, replicas="dp" not in fixed) for plan in plans]
        if missing[0] is not None and all(missing):
            raise missing[0]
        plans = tuple(plan for plan, error in zip(plans, missing, strict=True) if error is None)
        return self.best(plans) or ChosenPlan(plans[0], self.memory.on(plans[0]))

    def plans_on(self, devices: int | str | None, start: Plan, fixed: frozenset[str]) -> tuple[Plan, ...]:
        """The plans on so many devices (see `plan_on`). Raises InvalidPlan where there is none."""
        known = start.devices if devices is None or devices == "auto" else device_count(devices)
        return self._options(known, start, fixed)

    def _options(self, devices: int, start: Plan, fixed: frozenset[str]) -> tuple[Plan, ...]:
        """The plan that cuts every layer over the devices, then those with replicas of the attention that a link joins.
        Raises InvalidPlan where there is none.
        """
        model, domain = self.memory.model, self.memory.hardware.max_domain
        shared: tuple[Plan, ...] = ()
        if self.memory.rules.parallelism.attention_replicas:
            shared = tuple(p for p in replica_plans(model, devices, start, fixed) if self.unlinked(p) is None)
        try:
            cut = self.as_engine(plan_for(model, devices, domain, start, fixed))
        except InvalidPlan:
            if not shared:
                raise
            return shared
        return (cut, *(plan for plan in shared if plan != cut))

    def as_engine(self, plan: Plan) -> Plan:
        """Whole experts on each rank, where the engine of that version kept them so."""
        if self.memory.rules.parallelism.experts == "spread" and plan.ep == 1 and plan.tp > 1:
            try:
                return check(self.memory.model, replace(plan, ep=plan.tp))
            except UsageError:
                return plan
        return plan

    def smallest(self, start: Plan, fixed: frozenset[str]) -> ChosenPlan:
        """The best plan on the fewest devices that hold everything. fixed: degrees that are kept.

        Raises AnswerNo where there is none, InvalidPlan where the degrees asked for need a link that is not there.
        """
        last: ChosenPlan | None = None
        apart: InvalidPlan | None = None
        for plans in self.candidates(start, fixed):
            missing = [error for plan in plans if (error := self.unlinked(plan))]
            if len(missing) == len(plans):
                apart = apart or missing[0]
                continue
            linked = [plan for plan in plans if self.unlinked(plan) is None]
            if found := self.best(linked):
                return found
            last = ChosenPlan(linked[0], self.memory.on(linked[0]))
        if last is None and apart is not None and self.memory.on(Plan()).fits:
            raise apart
        counts = self._counts(start, fixed)
        raise self._does_not_fit(last) if last else self._too_large(max(filter(self._joined, counts), default=1))

    def best(self, plans: Sequence[Plan]) -> ChosenPlan | None:
        """Of plans on equally many devices the best that holds the workload; None where none does."""
        held = [RankedPlan(plan, self.memory.on(plan)) for plan in plans]
        held = [ranked for ranked in held if ranked.memory.fits]
        if len(held) > 1:
            pricer = self._pricer(plans[0])
            held = sorted(
                (ranked._replace(seconds=float(self.rank(pricer.on(ranked.plan)))) for ranked in held),
                key=lambda ranked: ranked.seconds,
            )
        if not held:
            return None
        best, *others = held
        near = (ranked._replace(slower=ranked.seconds / best.seconds - 1) for ranked in others)
        return ChosenPlan(best.plan, best.memory, tuple(ranked for ranked in near if ranked.slower <= NEAR))

    def _pricer(self, plan: Plan) -> StepPricer:
        memory = self.memory
        engine, store = memory.tensors.engine, self.store or default_store()
        overheads = overheads_of(engine.name, engine.version, measured=store.engines, document=engine.rules)
        formats = memory.tensors.formats
        return StepPricer.of(
            memory.model, memory.hardware, formats, overheads, plan, graphs=memory.graphs, rates=self.rates, store=store
        )

    def rank(self, pricer: StepPricer) -> Num:
        """What plans are ranked by: seconds of a decode step at the longest context, or of a token of the whole system
        while as many requests run as the plan holds, prompts included. It hangs on the batch and on the sum of prompt
        and answer alone, as memory does, so that `estimate` and `fit` choose alike.
        """
        memory = self.memory
        source = memory.steps.source
        if self.objective == "latency" and self.in_flight is not None:
            running = max(memory.running(pricer.plan, self.in_flight).requests, 1)
            return pricer.price(Step.decode(running, memory.length, source=source)).expected_s / running
        if self.objective == "latency":
            return pricer.price(Step.decode(memory.load.batch, memory.length, source=source)).expected_s
        requests = max(memory.most_running(pricer.plan).requests, 1)
        decode = pricer.price(Step.decode(requests, memory.length, source=source)).expected_s
        prompts = pricer.price(Step.prefill(pricer.plan.dp, memory.load.input_len, source)).expected_s
        each = requests / pricer.plan.dp
        return (decode + each * prompts / memory.load.output_len) / requests

    def candidates(self, start: Plan, fixed: frozenset[str]) -> Iterator[tuple[Plan, ...]]:
        """Plans by number of devices, whose devices together hold the weights, if they are cut without loss."""
        for devices in self._counts(start, fixed):
            if not self.weights_fit(devices):
                continue
            try:
                yield self._options(devices, start, fixed)
            except InvalidPlan:
                continue

    def weights_fit(self, devices: int) -> bool:
        """Whether so many devices together hold the weights, if they are cut without loss: else no plan fits."""
        memory = self.memory
        weights = sum(stage.weights for stage in memory.tensors.stages(Plan()))
        return bool(weights <= memory.division(Plan(), 0).limit * devices)

    def linked(self, start: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
        """The candidates whose groups a link joins."""
        return (plan for plans in self.candidates(start, fixed) for plan in plans if self.unlinked(plan) is None)

    def unlinked(self, plan: Plan, *, replicas: bool = True) -> InvalidPlan | None:
        """What is wrong where the device has no link that joins the plan's groups. replicas: those of `dp` too, which
        send nothing where they are whole models; where they do, their price says what is missing.
        """
        try:
            for ranks, stride in ((plan.tp, 1), (plan.dp if replicas else 1, plan.tp), (plan.pp, plan.tp * plan.dp)):
                self.rates.hops(ranks, stride)
        except InvalidPlan as error:
            return error
        return None

    def _counts(self, start: Plan, fixed: frozenset[str]) -> Iterator[int]:
        return device_counts(self.memory.model, self.memory.hardware.max_domain, start, fixed)

    def _joined(self, devices: int) -> bool:
        """Whether a link joins so many devices."""
        return devices == 1 or self.unlinked(Plan(tp=devices)) is None

    def _too_large(self, devices: int) -> AnswerNo:
        """Weights that not even so many devices hold together."""
        memory = self.memory
        weights, usable = c.weight_bytes(memory.tensors.rank(Plan())), memory.division(Plan(), 0).limit
        return self._no(
            f"{devices:,} × {memory.hardware.name}: its weights take {format_bytes(weights)}, where "
            f"{format_bytes(usable * devices)} are usable", usable * devices,
        )  # fmt: skip

    def _does_not_fit(self, last: ChosenPlan) -> AnswerNo:
        """The largest plan that a link joins, where it does not hold the workload."""
        name, devices, held = self.memory.hardware.name, last.plan.devices, last.memory
        place = f"one {name}" if devices == 1 else f"any number of {name} that a link joins"
        each = "" if devices == 1 else f" on each of {devices}"
        return self._no(
            f"{place}: it needs {format_bytes(held.needed)}{each}, where {format_bytes(held.usable)} are usable",
            held.usable * devices,
        )

    def _no(self, where: str, usable: int) -> AnswerNo:
        """It does not fit where is said. Hints: the narrowest format, if its weights fit in so many usable bytes; a
        smaller request, if the weights fit as they are; else another device.
        """
        memory = self.memory
        graph = memory.tensors.rank(Plan())
        weights, params = c.weight_bytes(graph), c.params(graph)
        bits = {name: load_format(name).format().bits for name in memory.rules.formats.weights}
        narrower = [
            name for name, width in bits.items() if width < 7.2 * weights / params and width * params < 8 * usable
        ]
        hints = tuple(f"a narrower format: `--weights {name}`" for name in narrower[-1:])
        hints += ("a smaller batch or a shorter context",) if weights < usable else ()
        text = f"{memory.model.name} in {memory.tensors.formats.name} does not fit on {where}"
        return AnswerNo(text, hints=hints or ("a device with more memory: `archsim list hw --sort memory`",))
