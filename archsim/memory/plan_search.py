"""The plan with the fewest devices on which a workload fits: one search for `estimate`, `fit` and `sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.units import format_bytes
from archsim.counts import graph_counts as c
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.spec.format import load_format
from archsim.spec.parallelism import Plan, candidates, check, check_degrees, plan_for
from archsim.timing.device import DeviceRates


def device_count(devices: int | str) -> int:
    """`--devices` as a number. Raises UsageError."""
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if not isinstance(devices, int) or isinstance(devices, bool):
        raise UsageError(f"`--devices` wants a number or `auto`, not {devices!r}")
    if devices < 1:
        raise UsageError(f"`--devices` must be positive, not {devices}")
    return devices


@dataclass(frozen=True)
class PlanSearch:
    """The memory of a workload and the links of its devices, and the plans that they allow."""

    memory: EngineMemoryModel
    rates: DeviceRates

    def start(self, **degrees: int) -> Plan:
        """The plan of the degrees that were asked for, as the engine shares a model. Raises InvalidPlan."""
        rules = self.memory.rules
        plan = Plan(**degrees, engine=rules.name, splits=rules.parallelism.splits)
        check_degrees(self.memory.model, plan)
        return plan

    def plan_on(self, devices: int | str | None, start: Plan, fixed: frozenset[str]) -> Plan:
        """The plan on so many devices; without a number, on as many as the degrees make. Raises InvalidPlan."""
        known = start.devices if devices is None or devices == "auto" else device_count(devices)
        domain = self.memory.hardware.max_domain
        return self.as_engine(plan_for(self.memory.model, known, domain, start, fixed))

    def as_engine(self, plan: Plan) -> Plan:
        """Whole experts on each rank, where the engine of that version kept them so."""
        if self.memory.rules.parallelism.experts == "spread" and plan.ep == 1 and plan.tp > 1:
            try:
                return check(self.memory.model, replace(plan, ep=plan.tp))
            except UsageError:
                return plan
        return plan

    def smallest(self, start: Plan, fixed: frozenset[str]) -> tuple[Plan, DeviceMemory]:
        """The plan with the fewest devices that holds everything. fixed: degrees that are kept.

        Raises AnswerNo where there is none, InvalidPlan where the degrees asked for need a link that is not there.
        """
        last: tuple[Plan, DeviceMemory] | None = None
        apart: InvalidPlan | None = None
        for plan in self.candidates(start, fixed):
            if missing := self.unlinked(plan):
                apart = apart or missing
                continue
            last = plan, self.memory.on(plan)
            if last[1].fits:
                return last
        if last is None and apart is not None and self.memory.on(Plan()).fits:
            raise apart
        raise self._too_big(last)

    def candidates(self, start: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
        """Plans by size whose devices together hold the weights, if they are cut without loss."""
        memory = self.memory
        weights = sum(stage.weights for stage in memory.tensors.stages(Plan()))
        usable = memory.division(Plan(), 0).limit
        for plan in candidates(memory.model, memory.hardware.max_domain, start, fixed):
            if weights <= usable * plan.devices:
                yield self.as_engine(plan)

    def linked(self, start: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
        """The candidates whose groups a link joins."""
        return (plan for plan in self.candidates(start, fixed) if self.unlinked(plan) is None)

    def unlinked(self, plan: Plan) -> InvalidPlan | None:
        """What is wrong where the device has no link that joins the plan's groups."""
        try:
            for ranks, stride in ((plan.tp, 1), (plan.dp, plan.tp), (plan.pp, plan.tp * plan.dp)):
                self.rates.hops(ranks, stride)
        except InvalidPlan as error:
            return error
        return None

    def _too_big(self, last: tuple[Plan, DeviceMemory] | None) -> AnswerNo:
        memory = self.memory
        graph = memory.tensors.rank(Plan())
        bits = 8 * c.weight_bytes(graph) / c.params(graph)
        narrower = [n for n in memory.rules.formats.weights if load_format(n).format().bits < 0.9 * bits]
        hints = tuple(f"a narrower format: `--weights {n}`" for n in narrower[-1:])
        hints += ("a smaller batch or a shorter context",)
        plan, held = last or (Plan(), memory.on(Plan()))
        name = memory.hardware.name
        group = name if plan.devices == 1 else f"any number of {name} that a link joins"
        return AnswerNo(
            f"{memory.model.name} in {memory.tensors.formats.name} does not fit on {group}: {plan.devices} would need "
            f"{format_bytes(held.needed)}{' each' if plan.devices > 1 else ''}, {format_bytes(held.usable)} usable",
            hints=hints,
        )
