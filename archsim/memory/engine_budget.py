"""How an engine divides a device: what its memory fraction is of, and what is left for the cache."""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.units import parse_quantity
from archsim.spec.engine import AutoShare, Engine, Limits, NonTorch
from archsim.spec.hardware import Hardware
from archsim.spec.parallelism import Plan


def size(text: str) -> int:
    """Bytes of a quantity in an engine document."""
    return int(parse_quantity(text, "B"))


def visible_bytes(hardware: Hardware, rules: Engine) -> int:
    """Bytes that a process sees: what the driver reports less what it keeps; of shared memory the working set."""
    if hardware.memory.unified:
        return hardware.working_set_bytes
    kept = rules.memory.reserve.get(hardware.vendor)
    return hardware.working_set_bytes - (size(kept) if kept else 0)


def limits_of(rules: Engine, hardware: Hardware) -> Limits:
    """The default batch limits for a device of this size."""
    chosen = next(
        (x for x in rules.scheduler.limits if x.below is None or hardware.memory_bytes < size(x.below)),
        rules.scheduler.limits[-1],
    )
    if chosen.otherwise is not None and any(part in hardware.id for part in chosen.excluded):
        return Limits(seqs=chosen.otherwise.seqs, tokens=chosen.otherwise.tokens)
    return chosen


def non_torch_of(rules: Engine, devices: int) -> NonTorch:
    """Context, libraries and communication buffers for a group of so many devices."""
    return [x for x in rules.memory.non_torch if x.devices <= devices][-1]


def share_of(rules: Engine, hardware: Hardware, plan: Plan, tokens: int, limits: Limits) -> float:
    """The default memory fraction."""
    if rules.memory.share.auto is None:
        reached = [n for n in rules.memory.share.by_devices if n <= plan.tp]
        return rules.memory.share.by_devices[max(reached)] if reached else rules.memory.share.default or 1.0
    return _auto(rules.memory.share.auto, hardware.memory_bytes, plan, tokens, limits)


def _auto(rule: AutoShare, capacity: int, plan: Plan, tokens: int, limits: Limits) -> float:
    wide = limits.graphs_wide if limits.graphs_wide and plan.tp >= 4 else limits.graphs
    kept = size(rule.base) + max(tokens, rule.least_tokens) * parse_quantity(rule.per_token, "B")
    kept += wide * size(rule.per_graph) + plan.tp * plan.pp * size(rule.per_device)
    kept += wide * plan.dp * size(rule.per_replica_graph) if plan.dp > 1 else 0
    if capacity > size(rule.least_above):
        kept = max(kept, size(rule.least))
    return max(round((capacity - kept) / capacity, 3), 0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bytes of one device. limit: what the engine gives itself. layout: padding of weights. extra: adapters and
    optional parts. meaning: of the share, as in the engine document."""

    capacity: int
    visible: int
    share: float
    meaning: str
    weights: int
    layout: int
    extra: int
    activations: int
    graphs: int
    graphs_inside: bool
    non_torch: int

    @property
    def fixed(self) -> int:
        """All inside the budget but the cache."""
        loaded = self.weights + self.layout + self.extra
        if self.meaning == "static":
            return loaded
        return loaded + self.activations + self.non_torch + (self.graphs if self.graphs_inside else 0)

    @property
    def limit(self) -> int:
        """What weights, cache and, by the engine's meaning of its share, the rest may take."""
        if self.meaning == "static":
            return int(self.share * (self.visible - self.non_torch))
        if self.meaning == "free":
            return self.fixed + int(self.share * (self.visible - self.fixed))
        return int(self.share * self.visible)

    @property
    def room(self) -> int:
        """What is left for caches; negative when the weights do not fit."""
        return self.limit - self.fixed

    @property
    def outside(self) -> int:
        """What comes on top of the budget: steps and graphs where the share is static, graphs of older engines."""
        if self.meaning == "static":
            return self.activations + self.graphs + self.non_torch
        return 0 if self.graphs_inside else self.graphs

    @property
    def overrun(self) -> int:
        """Bytes by which budget and what is outside of it exceed the device; negative: slack."""
        return self.limit + self.outside - self.visible
