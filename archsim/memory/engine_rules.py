"""How an engine divides a device: what its memory fraction is of, and what is left for the cache."""

from __future__ import annotations

from archsim.base.data_class import dataclass
from archsim.base.number import Num, minimum, where
from archsim.base.units import parse_quantity
from archsim.engines.prompt_cut import limits_for
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
    return limits_for(rules.scheduler.limits, hardware)


def non_torch_of(rules: Engine, devices: int) -> NonTorch:
    """Context, libraries and communication buffers for a group of so many devices."""
    return [x for x in rules.memory.non_torch if x.devices <= devices][-1]


def share_of(rules: Engine, hardware: Hardware, plan: Plan, tokens: int, limits: Limits, latent: bool = False) -> float:
    """The default memory fraction. latent: whether the model's attention caches latents."""
    if rules.memory.share.auto is None:
        reached = [n for n in rules.memory.share.by_devices if n <= plan.tp]
        return rules.memory.share.by_devices[max(reached)] if reached else rules.memory.share.default or 1.0
    capacity, auto = hardware.memory_bytes, rules.memory.share.auto
    kept = _kept_free(auto, capacity, plan, tokens, limits, latent)
    if rules.time.exchange.kernels == "expert_parallelism" and plan.ep > rules.time.exchange.gathered:
        kept += size(auto.exchange)
    return max(round((capacity - kept) / capacity, 3), 0.05)


def _kept_free(rule: AutoShare, capacity: int, plan: Plan, tokens: int, limits: Limits, latent: bool) -> float:
    """Bytes beside weights and cache, without buffers of expert parallelism."""
    wide = limits.graphs_wide if limits.graphs_wide and plan.tp >= 4 else limits.graphs
    kept = size(rule.base) + max(tokens, rule.least_tokens) * parse_quantity(rule.per_token, "B")
    kept += wide * size(rule.per_graph) + plan.tp * plan.pp * size(rule.per_device)
    if plan.dp > 1:
        each = size(rule.per_replica_graph) + (size(rule.per_replica_wide_graph) if wide > rule.wide_above else 0)
        kept += wide * plan.dp * each
    if (graphs := rule.prefill_graphs) is not None:
        kept += size(graphs.latent) if latent else graphs.captured(tokens) * size(graphs.each)
    return max(kept, size(rule.least)) if capacity > size(rule.least_above) else kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """How an engine divides one device: bytes. In a sweep what depends on the workload is an array.

    visible: what the process sees of the capacity. share, meaning: the memory fraction, and what it is of, as in the
    engine document. weights: on the device of the tightest pipeline stage. layout: padding of weights. extra: adapters
    and optional parts. graphs: captured CUDA graphs. non_torch: context, libraries, communication buffers. asked: bytes
    of caches that were asked for, in place of what the share leaves.
    """

    capacity: int
    visible: int
    share: float
    meaning: str
    weights: Num
    layout: int
    extra: int
    activations: Num
    graphs: int
    graphs_inside: bool
    non_torch: int
    asked: int | None = None

    @property
    def loaded(self) -> Num:
        """Weights as they lie in memory, with what is loaded beside them."""
        return self.weights + self.layout + self.extra

    @property
    def fixed(self) -> Num:
        """All inside the budget but the cache."""
        if self.meaning == "static":
            return self.loaded
        return self.loaded + self.activations + self.non_torch + (self.graphs if self.graphs_inside else 0)

    @property
    def limit(self) -> Num:
        """Bytes the engine allots itself: share x total (vLLM), x static pool (SGLang), or what is needed and share x
        what is free then (TensorRT-LLM).
        """
        if self.asked is not None:
            return minimum(self.fixed + self.asked, self.visible)
        if self.meaning == "static":
            return int(self.share * (self.visible - self.non_torch))
        if self.meaning == "free":
            return self.fixed + whole(self.share * (self.visible - self.fixed))
        return int(self.share * self.visible)

    @property
    def room(self) -> Num:
        """What is left for caches; negative when the weights do not fit, or what was asked for does not."""
        if self.asked is not None:
            short = self.visible - self.fixed - self.asked
            return where(short < 0, short, self.asked)
        return self.limit - self.fixed

    @property
    def outside(self) -> Num:
        """What comes on top of the budget: steps and graphs where the share is static, graphs of older engines."""
        if self.meaning == "static":
            return self.activations + self.graphs + self.non_torch
        return 0 if self.graphs_inside else self.graphs

    @property
    def runtime(self) -> int:
        """What the process takes beside weights, steps and caches."""
        return self.layout + self.extra + self.graphs + self.non_torch

    @property
    def overrun(self) -> Num:
        """Bytes by which budget and what is outside of it exceed the device; negative: slack."""
        return self.limit + self.outside - self.visible


def whole(value: Num) -> Num:
    """Bytes cut to a whole number."""
    return int(value) if isinstance(value, (int, float)) else value // 1


def engine_memory(
    rules: Engine, hardware: Hardware, plan: Plan, *, share: float | None, tokens: int, eager: bool, latent: bool,
    factor: float = 1.0, asked: int | None = None, visible: int | None = None,
) -> EngineMemory:  # fmt: skip
    """The division before weights and activations are known. share: as asked for, None for the engine's default.
    tokens: of one step at most. eager: no CUDA graphs are captured. latent: see `share_of`. factor: on that default.
    asked: bytes of caches that take the place of the fraction. visible: bytes that a process sees, where stated.
    """
    graphs = rules.memory.graphs
    return EngineMemory(
        capacity=hardware.memory_bytes, visible=visible or visible_bytes(hardware, rules),
        share=share or factor * share_of(rules, hardware, plan, tokens, limits_of(rules, hardware), latent),
        meaning=rules.memory.share.meaning, weights=0, layout=0, extra=0, activations=0,
        graphs=0 if graphs is None or eager else size(graphs.bytes),
        graphs_inside=graphs is not None and graphs.inside,
        non_torch=size(non_torch_of(rules, plan.tp * plan.dp).bytes), asked=asked,
    )  # fmt: skip
