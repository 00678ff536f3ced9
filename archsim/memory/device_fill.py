"""One question to `fit`: what an engine would put on a device, for any plan and request length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from archsim.base.errors import UsageError
from archsim.base.notes import Note, past_context
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import Formats, cache_format
from archsim.counts.step_graphs import StepGraphs, mesh_of
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.engines.names import Chosen
from archsim.graph.graph import Block
from archsim.graph.passes.shard import shard
from archsim.graph.tensor import nbytes
from archsim.memory.activations import forward_bytes, logits_bytes, split_k_bytes
from archsim.memory.engine_budget import Budget, limits_of, non_torch_of, share_of, size, visible_bytes
from archsim.memory.extras import extra_bytes, lora_bytes
from archsim.memory.kv_blocks import LONGEST, Paging, Stage, expanded, stated
from archsim.memory.offload import Moved, Offload, offloaded, parted, spread
from archsim.memory.stages import stages
from archsim.memory.workload_memory import WorkloadMemory
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the engine is run. Numbers of tokens and sequences; fractions of memory; None: the engine's default.

    batch: requests of max_model_len that must fit at once. parts: optional modules to load. n_gpu_layers: layers
    on the device, the rest in host memory; cpu_moe: routed experts in host memory, n_cpu_moe: those of the first
    layers. cache_type_k, cache_type_v: formats of keys and of values, where they differ. host_bandwidth: B/s.
    """

    batch: int = 1
    input_len: int = 2048
    output_len: int = 256
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    parts: tuple[str, ...] = ()
    max_loras: int = 0
    max_lora_rank: int = 16
    n_gpu_layers: int | None = None
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    host_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "input_len", "output_len", "max_model_len", "max_num_seqs",
                     "max_num_batched_tokens", "block_size", "max_lora_rank"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                flag = name.replace("_", "-")
                raise UsageError(f"`--{flag}` must be a positive whole number, not {value!r}")
        for name in ("gpu_memory_utilization", "mem_fraction_static"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise UsageError(f"`--{name.replace('_', '-')}` must be above 0 and at most 1, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The devices of a plan. stages: one for each pipeline stage. graph: of a request of LONGEST tokens."""

    graph: Block
    stages: tuple[Stage, ...]
    extra: int


@dataclass(slots=True, kw_only=True)
class Case:
    """Model, device, formats, engine and settings; answers for any plan. Graphs are kept. native: the formats of
    the checkpoint, where the engine converts it while loading."""

    model: Model
    hardware: Hardware
    formats: Formats
    engine: Chosen
    settings: Settings
    steps: dict[tuple[Plan, int], int] = field(default_factory=dict)
    native: Formats | None = None

    @property
    def length(self) -> int:
        """Tokens of the request that must fit."""
        s, rule = self.settings, self.engine.rules.scheduler.context
        if s.max_model_len is not None:
            return s.max_model_len
        if rule == "model" and self.model.max_context:
            return self.model.max_context
        if isinstance(rule, int):
            return min(rule, self.model.max_context or rule)
        return s.input_len + (s.output_len if self.model.architecture != "encoder" else 0)

    @property
    def tokens(self) -> int:
        """Tokens of one step at most."""
        return self.settings.max_num_batched_tokens or limits_of(self.engine.rules, self.hardware).tokens

    @property
    def seqs(self) -> int:
        """Sequences at once at most."""
        default = limits_of(self.engine.rules, self.hardware).seqs or 256
        return min(self.settings.max_num_seqs or default, max(self.tokens, 1))

    @property
    def moved(self) -> Moved:
        """What is asked to lie in host memory."""
        s = self.settings
        return Moved(layers_here=s.n_gpu_layers, experts=LONGEST if s.cpu_moe else s.n_cpu_moe)

    @property
    def paging(self) -> Paging:
        """How the engine keeps caches."""
        rules = self.engine.rules
        block = self.settings.block_size or rules.memory.block_size
        return Paging(block=block, windows=rules.memory.windows, chunk=self.tokens)

    def graph(self, plan: Plan, tokens: int) -> Block:
        """One rank's graph of a prefill of so many tokens on every attention replica."""
        whole = lower(self.model, step_for(self.model, plan.dp, tokens), self.settings.parts)
        keys, values = (
            cache_format(name) for name in (self.settings.cache_type_k, self.settings.cache_type_v)
        )
        stored = stated(self.formats.apply(whole), self.engine.rules, keys, values)
        return shard(stored, mesh_of(plan.tp, plan.dp, plan.ep))

    def ranks(self, plan: Plan) -> Ranks:
        """What the devices of a plan hold."""
        graph = expanded(self.graph(plan, LONGEST), self.engine.rules)
        s = self.settings
        extra = extra_bytes(self.model, self.formats, s.parts, plan.tp)
        extra += lora_bytes(graph, s.max_loras, s.max_lora_rank)
        return Ranks(graph=graph, stages=self._stages(graph, plan), extra=-(-extra // plan.pp))

    def _stages(self, graph: Block, plan: Plan) -> tuple[Stage, ...]:
        """The stages; a partial offload leaves some layers, or their experts, in host memory."""
        parts = parted(graph, self.moved, self.engine.rules, self.model)
        if parts is not None:
            return spread(parts, plan.pp, self.engine.rules)
        if plan.pp > 1:
            return stages(graph, plan.pp, self.engine.rules, self.model)
        (whole,) = stages(graph, 1, self.engine.rules, self.model)
        return (Stage(weights=round(c.weight_bytes(graph)), caches=whole.caches),)

    def offload(self, plan: Plan) -> Offload | None:
        """What lies in host memory, and the decode speed that follows; None where nothing does."""
        s, rules = self.settings, self.engine.rules
        split = offloaded(self.graph(plan, LONGEST), self.moved, rules, self.model)
        if split is None or not self.moved.anything:
            return None
        one = self.formats.apply(lower(self.model, step_for(self.model, 1, 1)))
        context = min(self.length, s.input_len + s.output_len // 2)
        return split.offload(one, self.hardware, s.host_bandwidth, context, self.paging)

    # -------------------------------------------------------------------------------- budget
    def budget(self, plan: Plan, ranks: Ranks, stage: Stage, length: int) -> Budget:
        """How one device is divided when requests are up to `length` tokens."""
        rules, s = self.engine.rules, self.settings
        limits = limits_of(rules, self.hardware)
        share = s.gpu_memory_utilization or s.mem_fraction_static
        share = share or share_of(rules, self.hardware, plan, self.tokens, limits)
        graphs = 0 if rules.memory.graphs is None or s.enforce_eager else size(rules.memory.graphs.bytes)
        return Budget(
            capacity=self.hardware.memory_bytes, visible=visible_bytes(self.hardware, rules), share=share,
            meaning=rules.memory.share.meaning, weights=stage.weights, layout=self._layout(ranks.graph, plan),
            extra=ranks.extra, activations=self.activations(plan, length), graphs=graphs,
            graphs_inside=rules.memory.graphs is not None and rules.memory.graphs.inside,
            non_torch=size(non_torch_of(rules, plan.tp * plan.dp).bytes),
        )  # fmt: skip

    def load_peak(self, plan: Plan, budget: Budget) -> int:
        """Bytes that the device holds at most while weights are loaded, and converted where the engine does that."""
        loaded, online = budget.weights + budget.layout + budget.extra, self.engine.rules.memory.online
        if self.native is None or online is None or online.peak == "streamed":
            return loaded
        before = replace(self, formats=self.native, native=None, steps={})
        wide = max(stage.weights for stage in before.ranks(plan).stages)
        return loaded + wide if online.peak == "both" else max(loaded, wide)

    def _layout(self, graph: Block, plan: Plan) -> int:
        """Bytes that the engine's padded layouts add to weights."""
        layout = self.engine.rules.memory.layout
        items = [i for i in c.inventory(graph) if i.tensor.format.name in layout] if layout else []
        extra = sum((layout[i.tensor.format.name] - 1) * float(nbytes(i.tensor) * i.copies) for i in items)
        return round(extra / plan.pp)

    def activations(self, plan: Plan, length: int) -> int:
        """Bytes that the largest step needs beyond weights and cache."""
        tokens = self._step_tokens(length)
        if (plan, tokens) not in self.steps:
            self.steps[plan, tokens] = self._activations(plan, tokens)
        return self.steps[plan, tokens]

    def _step_tokens(self, length: int) -> int:
        rules = self.engine.rules.memory.activations
        if rules.profile != "length":
            return self.tokens
        if self.settings.max_num_batched_tokens:
            return self.settings.max_num_batched_tokens
        if rules.chunk_above is not None and length > rules.chunk_above:
            return rules.chunk_tokens or self.tokens
        return max(length, self.tokens) if rules.least_step else length

    def _activations(self, plan: Plan, tokens: int) -> int:
        rules = self.engine.rules.memory.activations
        if rules.profile == "estimate":
            s = self.settings
            load = Workload(batch=s.batch, input_len=min(self.length, s.input_len), output_len=s.output_len)
            graphs, steps = StepGraphs(self.model, self.formats), WorkloadSteps(self.model, load)
            return int(WorkloadMemory(graphs, self.hardware, steps).peak(plan))
        graph = self.graph(plan, tokens)
        rows = {"seqs": self.seqs, "tokens": tokens, "last": 1}[rules.logits_rows]
        peak = max(forward_bytes(graph, rules.element), logits_bytes(self.model, rows, rules.logits_copies))
        return peak + split_k_bytes(rules, self.formats.name, graph, tokens)

    # -------------------------------------------------------------------------------- questions
    def holds(self, plan: Plan, ranks: Ranks, length: int) -> bool:
        """Whether one request of `length` tokens fits on every stage."""
        return all(
            stage.request_bytes(length, self.paging) <= self.budget(plan, ranks, stage, length).room
            for stage in ranks.stages
        )

    def longest(self, plan: Plan, ranks: Ranks) -> int | None:
        """The longest single request that fits, found by bisection; None where length costs nothing."""
        growing = any("C" in held.tensor.axes for stage in ranks.stages for held in stage.caches)
        if not growing:
            return None
        if not self.holds(plan, ranks, 1):
            return 0
        low, high = 1, 2
        while high < LONGEST and self.holds(plan, ranks, high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(plan, ranks, middle) else (low, middle)
        return low

    # -------------------------------------------------------------------------------- words
    def assumptions(self, plan: Plan) -> Iterator[Note]:
        """What the answer rests on."""
        rules, s = self.engine.rules, self.settings
        yield from self.engine.notes
        if s.max_model_len is None:
            source = {"model": "the model's longest", "workload": "prompt and answer"}.get(
                str(rules.scheduler.context), f"the default of {rules.title}"
            )
            yield Note("A22", f"--max-model-len {self.length:,}: {source}")
        steps = f"steps of at most {self._step_tokens(self.length):,} tokens and {self.seqs:,} sequences"
        yield Note("A23", steps)
        extra = non_torch_of(rules, plan.tp * plan.dp)
        text = f"non-torch memory {extra.bytes} per device, seen from {extra.low} to {extra.high}"
        yield Note("A24", text)
        graphs = rules.memory.graphs
        if graphs is not None and not s.enforce_eager:
            where = "inside" if graphs.inside else "outside"
            text = f"CUDA graphs {graphs.bytes}, seen from {graphs.low} to {graphs.high}, {where} the memory fraction"
            yield Note("A25", text)
        if plan.dp > 1:
            yield Note("A26", "tokens and concurrency are those of one attention replica")
        if s.parts:
            text = f"with {', '.join(s.parts)}: opaque towers in the default format, cut over the ranks"
            yield Note("A27", text)

    def warnings(self, plan: Plan, budget: Budget, load_peak: int) -> Iterator[Note]:
        """What the user should look at."""
        from archsim.base.units import format_bytes

        if load_peak > budget.visible >= budget.weights:
            yield Note(
                "W06",
                f"{self.formats.name} made of {self.native.name if self.native else ''} while loading takes "
                f"{format_bytes(load_peak, binary=True)} at its peak, more than the device has: a checkpoint that is "
                f"{self.formats.name} already, or a newer engine, loads",
            )
        limit = self.model.max_context
        if limit is not None and self.length > limit:
            yield past_context(self.length, limit, self.model.name)
        if budget.overrun > 0:
            yield Note(
                "W07",
                f"budget, activations and graphs together exceed the device by "
                f"{format_bytes(budget.overrun, binary=True)}: a lower memory fraction avoids running out later",
            )
