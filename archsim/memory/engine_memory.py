"""One model on one kind of device, as an engine lays it out: weights, caches and steps of any plan and workload.

The one place that `estimate`, `fit`, `sweep` and serving ask whether something fits, and how many tokens a cache holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from archsim.base.data_class import dataclass
from archsim.base.errors import InvalidPlan, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.number import Num, ceil_div, maximum, product, where
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import Formats, cache_format, choose_formats
from archsim.counts.lowered_steps import LoweredSteps
from archsim.counts.step_graphs import StepGraphs, rank_mesh
from archsim.counts.towers import loaded_towers, tower_bytes_per_device
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.engines.names import EngineChoice
from archsim.graph.graph import Block, ops
from archsim.graph.passes.shard import shard
from archsim.graph.tensor import nbytes
from archsim.memory.activations import PrefillActivations, step_bytes
from archsim.memory.encoders import EncoderStep, encoder_share, largest_encoder_step
from archsim.memory.engine_rules import EngineMemory, engine_memory, limits_of
from archsim.memory.kv_cache import (
    LONGEST,
    LONGEST_SOURCE,
    WIDEST_WINDOW,
    Paging,
    has_latent_cache,
    with_cache_formats,
    with_expanded_latents,
)
from archsim.memory.offload import HostSplit, OffloadRequest, check_experts, host_patterns, host_split
from archsim.memory.split_mode import SplitMode
from archsim.memory.tensors import HeldWeights, Layers, PipelineStage, distinct_stages, every_stage, layers_of
from archsim.spec.catalog import files
from archsim.spec.engine import Engine, Option, load_engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model, Tower
from archsim.spec.parallelism import Plan

TIGHT = 0.10
"""Share of the requests' need within which the room that remains counts as tight, either side."""

DEFAULT_SEQS = 256
"""Sequences of a step where an engine states no limit."""

Verdict = Literal["FITS", "TIGHT", "NO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the engine is run. Numbers of tokens and sequences; fractions of memory; None: the engine's default.

    parts: optional modules to load. without: vision and audio towers that are not loaded. visible_memory: bytes that a
    process sees of the device, where that is not the usual (a part of it, WSL). n_gpu_layers: layers on the device, the
    rest in host memory; cpu_moe: routed experts in host memory, n_cpu_moe: those of the first layers. num_gpu_experts:
    routed experts of each layer that devices keep, the others lie in host memory. kv_cache_memory_bytes: of a device,
    in place of what the memory fraction leaves. cpu_offload_gb: GiB of a device's weights that stay in host memory, of
    the first layers on. kv_offloading_size: GiB of host memory for pages that give way, of all tensor-parallel ranks.
    override_tensor: PATTERN=CPU for tensors in host memory, by their names in GGUF files. cache_type_k, cache_type_v:
    formats of keys and of values, where they differ. max_prefill_tokens: of the prompts of a step, beyond which no
    other prompt is taken. host_bandwidth: B/s. split_mode: how devices share a model. tensor_split: in which
    proportions. draft_model: of speculative decoding; draft_weights: its format, the checkpoint's unless given.
    """

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_prefill_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    parts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    max_loras: int = 0
    max_lora_rank: int = 16
    visible_memory: int | None = None
    n_gpu_layers: int | None = None
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    num_gpu_experts: int | None = None
    kv_cache_memory_bytes: int | None = None
    cpu_offload_gb: float = 0.0
    kv_offloading_size: float = 0.0
    override_tensor: tuple[str, ...] = ()
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    host_bandwidth: float | None = None
    split_mode: SplitMode | None = None
    tensor_split: tuple[float, ...] = ()
    draft_model: Model | None = None
    draft_weights: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_prefill_tokens", "block_size",
                     "max_lora_rank", "kv_cache_memory_bytes", "visible_memory"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                flag = name.replace("_", "-")
                raise UsageError(f"`--{flag}` must be a positive whole number, not {value!r}")
        for name in ("gpu_memory_utilization", "mem_fraction_static"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise UsageError(f"`--{name.replace('_', '-')}` must be above 0 and at most 1, not {value!r}")
        for name in ("max_loras", "n_gpu_layers", "n_cpu_moe", "num_gpu_experts"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise UsageError(f"`--{name.replace('_', '-')}` must be a whole number of 0 or more, not {value!r}")
        for name in ("cpu_offload_gb", "kv_offloading_size"):
            value = getattr(self, name)
            if not 0 <= value < 2**20:
                raise UsageError(f"`--{name.replace('_', '-')}` must be a number of GiB, not {value!r}")
        if self.host_bandwidth is not None and not self.host_bandwidth > 0:
            raise UsageError(f"`--host-bandwidth` must be above 0, not {self.host_bandwidth!r}")

    @property
    def offload(self) -> OffloadRequest:
        """What is asked to lie in host memory."""
        return OffloadRequest(
            layers_here=self.n_gpu_layers, experts=LONGEST if self.cpu_moe else self.n_cpu_moe,
            device_experts=self.num_gpu_experts, weight_bytes=round(self.cpu_offload_gb * 2**30),
            tensors=host_patterns(self.override_tensor),
        )  # fmt: skip

    def checked(self, rules: Engine) -> Settings:
        """The same; UsageError for a setting that the engine does not have."""
        for name in get_args(Option):
            if getattr(self, name) != getattr(DEFAULTS, name) and name not in rules.memory.options:
                raise UsageError(
                    f"{rules.title} has no `--{name.replace('_', '-')}` at this version", hints=(_engines_with(name),)
                )
        if self.draft_model is not None and rules.memory.drafts is None:
            raise UsageError(f"how {rules.title} keeps a draft model at this version is not modelled")
        return self


def _engines_with(option: str) -> str:
    """Which engines have an option of memory, each at its newest version, as a sentence for those who ask another."""
    having = [name for name in files("engines") if option in load_engine(name).memory.options]
    return f"engines that have it: {', '.join(having)}"


DEFAULTS = Settings()
"""An engine as it starts without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What one device holds while a workload runs: that of the pipeline stage that holds fewest tokens.

    division: of the device by the engine. stage: its weights and caches. length: tokens of a request. source: of its
    source, of an encoder-decoder, where that is not as long. requests: that must fit at once, on one attention replica.
    In a sweep these are arrays, and `stage` is that of the last point.
    """

    division: EngineMemory
    stage: PipelineStage
    paging: Paging
    length: Num
    requests: Num
    request_bytes: Num
    source: Num | None = None

    @property
    def capacity(self) -> int:
        """Bytes of the device."""
        return self.division.capacity

    @property
    def weights(self) -> Num:
        """Bytes of weights."""
        return self.division.weights

    @property
    def kv_cache(self) -> Num:
        """Bytes of cache and state that the requests need at their full length."""
        return self.request_bytes * self.requests

    @property
    def activations(self) -> Num:
        """Bytes of the largest step beyond weights and caches."""
        return self.division.activations

    @property
    def runtime(self) -> int:
        """Bytes of the process beside weights, steps and caches."""
        return self.division.runtime

    @property
    def free(self) -> Num:
        """What is left of the room for caches; negative where the requests do not fit."""
        return self.division.room - self.kv_cache

    @property
    def needed(self) -> Num:
        """All that must fit."""
        return self.weights + self.kv_cache + self.activations + self.runtime

    @property
    def usable(self) -> Num:
        """What everything together may take under the engine's rules."""
        return self.needed + self.free

    @property
    def fits(self) -> Any:
        """Whether the engine starts and holds the requests."""
        return self.free >= 0

    @property
    def verdict(self) -> Verdict:
        """TIGHT where the room is within 10 % of what the requests need, either side."""
        if self.kv_cache > 0 and abs(self.free) <= TIGHT * self.kv_cache:
            return "TIGHT"
        return "FITS" if self.fits else "NO"

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the cache holds, in whole pages, on one attention replica; None where there is no cache."""
        if not self.stage.caches:
            return None
        source = None if self.source is None else int(self.source)
        return self.stage.tokens(int(self.division.room), int(self.length), self.paging, source)

    def requests_of_states(self, *, prefixes: bool) -> int | None:
        """Requests whose recurrent states fit a pool of their own, on one attention replica; None: there is none.
        prefixes: whether states are kept for requests that begin alike.
        """
        return self.stage.requests_of_states(int(self.division.room), self.paging, prefixes=prefixes)

    @property
    def max_concurrency(self) -> float | None:
        """Requests of this length that the cache holds on one attention replica; None where they need none."""
        return max(self.division.room, 0) / self.request_bytes if self.request_bytes else None

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return {
            "fits": self.fits, "verdict": self.verdict, "kv_tokens": self.kv_tokens,
            "per_device": {
                "capacity_bytes": self.capacity, "usable_bytes": self.usable, "weights_bytes": self.weights,
                "kv_cache_bytes": self.kv_cache, "activation_bytes": self.activations,
                "runtime_bytes": self.runtime, "free_bytes": self.free,
            },
        }  # fmt: skip


class MostRunning(NamedTuple):
    """The most requests that run at the same time on all replicas, and in words what sets that number."""

    requests: int
    reason: str


class EngineTensors:
    """What the devices of any plan hold of one model under an engine's rules, whatever the workload."""

    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        formats: Formats,
        engine: EngineChoice,
        settings: Settings = DEFAULTS,
        lowered: LoweredSteps | None = None,
    ) -> None:
        self.model, self.hardware, self.formats = model, hardware, formats
        self.lowered = lowered or LoweredSteps(model, settings.parts)
        self.engine, self.settings = engine, settings
        self.rules = engine.rules
        self._whole: dict[tuple[int, Num], Block] = {}
        self._ranks: dict[tuple[int, int, int], Block] = {}
        self._stages: dict[Plan, tuple[PipelineStage, ...]] = {}
        self._encoders: dict[int, EncoderStep | None] = {}
        self._held: dict[Plan, HeldWeights] = {}
        self._divisions: dict[Plan, EngineMemory] = {}

    @cached_property
    def tokens(self) -> int:
        """Tokens of one step at most."""
        return self.settings.max_num_batched_tokens or limits_of(self.rules, self.hardware).tokens

    @cached_property
    def seqs(self) -> int:
        """Sequences of one step at most."""
        return min(self.seqs_limit or DEFAULT_SEQS, max(self.tokens, 1))

    @cached_property
    def seqs_limit(self) -> int | None:
        """Sequences that the engine runs at once on one attention replica; None where it states no limit."""
        return self.settings.max_num_seqs or limits_of(self.rules, self.hardware).seqs

    @cached_property
    def towers(self) -> tuple[Tower, ...]:
        """Vision and audio encoders that the engine holds in memory."""
        s = self.settings
        return loaded_towers(self.model, s.parts, s.without, self.rules.memory.towers == "loaded")

    @cached_property
    def paging(self) -> Paging:
        """How the engine keeps caches."""
        memory = self.rules.memory
        block = self.settings.block_size or memory.block_size
        pools = None if memory.pools is None else memory.pools.of(self.model.name)
        return Paging(block=block, windows=memory.windows, chunk=self.tokens, groups=memory.groups, pools=pools)

    @cached_property
    def latent(self) -> bool:
        """Whether the model's attention caches latents."""
        return has_latent_cache(self.rank(Plan()))

    def graph(self, plan: Plan, tokens: Num, source: Num | None = None) -> Block:
        """One rank's graph of a prefill of so many tokens on every attention replica."""
        key = plan.dp, tokens
        if isinstance(tokens, (int, float)) and key in self._whole:
            stored = self._whole[key]
        else:
            step = step_for(self.model, plan.dp, tokens, source=source)
            whole = self.formats.apply(self.lowered.get(step))
            kinds = (self.settings.cache_type_k, self.settings.cache_type_v)
            stored = with_cache_formats(whole, self.rules, *map(cache_format, kinds))
            if isinstance(tokens, (int, float)):
                self._whole[key] = stored
        return shard(stored, rank_mesh(self.model, plan))

    def rank(self, plan: Plan) -> Block:
        """One rank's graph of the longest request, in which caches are laid out."""
        key = plan.tp, plan.dp, plan.ep
        if key not in self._ranks:
            self._ranks[key] = with_expanded_latents(self.graph(plan, LONGEST, LONGEST_SOURCE), self.rules)
        return self._ranks[key]

    def stages(self, plan: Plan) -> tuple[PipelineStage, ...]:
        """What the devices hold, distinct stages of the pipeline once; a partial offload leaves some on the host."""
        if plan not in self._stages:
            own = self.every_stage(plan)
            if self.draft is not None:
                own = [
                    a if b is None else a.combined_with(b) for a, b in zip(own, self.draft_stages(plan), strict=True)
                ]
            self._stages[plan] = distinct_stages(own)
        return self._stages[plan]

    def every_stage(self, plan: Plan) -> list[PipelineStage]:
        """What the devices of the pipeline's stages hold of this model, in order. Raises InvalidPlan for proportions of
        another number of devices."""
        parts, rows = self.settings.tensor_split, self.settings.split_mode == "row"
        if self.settings.split_mode == "none" and plan.devices > 1:
            raise InvalidPlan(f"`--split-mode none` keeps the whole model on one device, not on {plan.devices:,}")
        if parts and len(parts) != plan.pp:
            raise InvalidPlan(f"`--tensor-split` has {len(parts)} proportions, the layers lie on {plan.pp:,} devices")
        return every_stage(
            self.layers(plan), plan.pp, self.rules.parallelism.pipeline, self.tower_bytes(plan), parts, rows
        )

    @cached_property
    def draft(self) -> EngineTensors | None:
        """The draft model of speculative decoding under the same rules; None where there is none."""
        s, rule = self.settings, self.rules.memory.drafts
        if s.draft_model is None or rule is None:
            return None
        formats = choose_formats(s.draft_model, s.draft_weights, rule.cache or self.formats.kv.name)
        own = Settings(
            max_model_len=s.max_model_len, max_num_seqs=s.max_num_seqs, block_size=s.block_size,
            max_num_batched_tokens=self.tokens, tensor_split=s.tensor_split, split_mode=s.split_mode,
        )  # fmt: skip
        return EngineTensors(s.draft_model, self.hardware, formats, self.engine, own)

    def draft_stages(self, plan: Plan) -> list[PipelineStage | None]:
        """What each stage holds of the draft model; None where that is nothing."""
        if self.draft is None or self.rules.memory.drafts is None:
            return [None] * plan.pp
        if self.rules.memory.drafts.place == "dealt":
            return list(self.draft.every_stage(plan))
        return [None] * (plan.pp - 1) + self.draft.every_stage(replace(plan, pp=1))

    def tower_bytes(self, plan: Plan) -> int:
        """Bytes of the towers that are loaded, on the device that has them."""
        return sum(tower_bytes_per_device(tower, self.formats, plan.tp) for tower in self.towers)

    def layers(self, plan: Plan) -> Layers:
        """Weights and caches of the layers that devices hold."""
        split = self.split(plan)
        return split.here if split is not None else layers_of(self.rank(plan), plan.pp, self.rules, self.model)

    def split(self, plan: Plan) -> HostSplit | None:
        """What lies on devices and what in host memory; None where all is on devices. Experts that are counted in
        host memory lie there once, for all devices.
        """
        request = self.settings.offload
        if request.device_experts is not None:
            check_experts(self.rank(Plan()), self.rules, self.model, plan)
        found = host_split(self.rank(plan), request, self.rules, self.model, plan.pp)
        if found is None or request.device_experts is None or plan.tp * plan.dp == 1:
            return found
        whole = host_split(self.rank(Plan()), request, self.rules, self.model)
        return found if whole is None else replace(found, host=whole.host)

    def held(self, plan: Plan) -> HeldWeights:
        """The weights that one device holds of all layers and of what is outside of them."""
        if plan not in self._held:
            self._held[plan] = HeldWeights(each=self.layers(plan).all_weights)
        return self._held[plan]

    def division(self, plan: Plan) -> EngineMemory:
        """How a device is divided, before weights and activations."""
        if plan not in self._divisions:
            s = self.settings
            share = s.gpu_memory_utilization or s.mem_fraction_static
            latent = share is None and self.rules.memory.share.auto is not None and self.latent
            division = engine_memory(
                self.rules, self.hardware, plan, share=share, tokens=self.tokens, eager=s.enforce_eager, latent=latent,
                factor=encoder_share(self.rules, self.towers), asked=s.kv_cache_memory_bytes,
                visible=s.visible_memory,
            )  # fmt: skip
            self._divisions[plan] = replace(division, layout=self.layout(plan), extra=self.extra(plan))
        return self._divisions[plan]

    def extra(self, plan: Plan) -> int:
        """Bytes of slots for adapters on a device."""
        s = self.settings
        return int(ceil_div(lora_bytes(self.rank(plan), s.max_loras, s.max_lora_rank), plan.pp))

    def encoder_step(self, plan: Plan) -> EncoderStep | None:
        """What the engine keeps free for vision encoders; None where it does not."""
        if plan.tp not in self._encoders:
            self._encoders[plan.tp] = largest_encoder_step(
                self.model, self.formats, self.rules, self.towers, self.tokens, plan.tp
            )
        return self._encoders[plan.tp]

    def layout(self, plan: Plan) -> int:
        """Bytes that the engine's padded layouts and its tables add to weights on a device."""
        factors = self.rules.memory.layout
        items = [i for i in self.weights(plan) if i.tensor.format.name in factors] if factors else ()
        extra = sum((factors[i.tensor.format.name] - 1) * float(nbytes(i.tensor) * i.copies) for i in items)
        return round(extra / plan.pp) + rope_table_bytes(self.rank(plan), self.model, self.rules)

    def weights(self, plan: Plan) -> list[c.Item]:
        """The weights on one rank, in their formats."""
        return c.inventory(self.rank(plan))


def rope_table_bytes(graph: Block, model: Model, rules: Engine) -> int:
    """Tables of the sine and cosine of each pair at every position, one for each distinct rotation: as many numbers as
    dimensions are rotated. 32 MiB of Llama 3.1's 131,072 positions, which is what "Model loading took 14.9889 GiB" has
    beside 14.9576 GiB of weights.
    """
    if not rules.memory.rope_tables or not model.max_context:
        return 0
    turned = (
        (op.attrs["rope"], next(reversed(op.reads[0].axes.values()))) for op, _ in ops(graph) if "rope" in op.attrs
    )
    numbers = sum(int(rope.rotated_size(int(width))) for rope, width in set(turned))
    return numbers * model.max_context * rules.memory.rope_tables


def lora_bytes(graph: Block, slots: int, rank: int) -> int:
    """Slots for adapters, allocated when the engine starts: rank x (inputs + outputs) of every linear weight on
    the rank, 2 bytes each (https://github.com/vllm-project/vllm/issues/14450).
    """
    total = 0
    for item in c.inventory(graph) if slots else ():
        tensor = item.tensor
        if tensor.role == "linear" and tensor.inner:
            inner = product(n for a, n in tensor.axes.items() if a in tensor.inner)
            outer = product(n for a, n in tensor.axes.items() if a not in tensor.inner)
            total += round((inner + outer) * item.copies)
    return 2 * slots * rank * total


class EngineMemoryModel:
    """The memory of one workload on any plan; numbers and arrays alike."""

    def __init__(self, tensors: EngineTensors, load: Workload, graphs: StepGraphs | None = None) -> None:
        self.tensors, self.load = tensors, load
        self.model, self.hardware, self.rules = tensors.model, tensors.hardware, tensors.rules
        self.graphs = graphs or StepGraphs(self.model, tensors.formats)
        self.steps = WorkloadSteps(self.model, load)
        self.prefill = PrefillActivations(self.graphs, self.steps)
        self._step_bytes: dict[tuple[int, int, int], Num] = {}
        self._room: dict[tuple[Plan, Num], list[tuple[PipelineStage, Num]]] = {}

    @property
    def one_token(self) -> Block:
        """The graph of a single token on a single device, in which parameters are counted."""
        return self.graphs.rank(self.steps.one_token, Plan())

    @property
    def length(self) -> Num:
        """Tokens of a request: prompt and answer, unless a length was asked for."""
        answer = 0 if self.model.architecture == "encoder" else self.load.output_len
        return self.tensors.settings.max_model_len or self.load.input_len + answer

    def on(self, plan: Plan) -> DeviceMemory:
        """The memory of the workload on a plan: of the stage that holds fewest tokens."""
        requests = ceil_div(self.load.batch, plan.dp)
        found: DeviceMemory | None = None
        for stage in self.tensors.stages(plan):
            memory = self.of_stage(plan, stage, requests)
            found = memory if found is None else _tighter(found, memory)
        assert found is not None  # a plan has one stage at least
        return found

    def kv_tokens(self, plan: Plan) -> int | None:
        """Tokens that the caches of every stage hold; None where there is no cache. Where states have a pool of their
        own, the stage that holds fewest requests may hold more tokens than another.
        """
        requests = ceil_div(self.load.batch, plan.dp)
        stages = (self.of_stage(plan, stage, requests).kv_tokens for stage in self.tensors.stages(plan))
        return min((tokens for tokens in stages if tokens is not None), default=None)

    def of_stage(self, plan: Plan, stage: PipelineStage, requests: Num) -> DeviceMemory:
        """The memory of one stage's device with so many requests on a replica."""
        t = self.tensors
        request = stage.request_bytes(self.length, t.paging, self.load.source_len)
        division = replace(self.division(plan, self.activations(plan, self.length, requests)), weights=stage.weights)
        return DeviceMemory(
            division=division, stage=stage, paging=t.paging, length=self.length,
            requests=requests, request_bytes=request, source=self.load.source_len,
        )  # fmt: skip

    def division(self, plan: Plan, activations: Num) -> EngineMemory:
        """How a device is divided beside the weights."""
        return replace(self.tensors.division(plan), activations=activations)

    def step_tokens(self, length: Num, requests: Num = 1) -> Num:
        """Tokens of the step that activations are set aside for, with requests of up to `length` tokens."""
        rules, asked = self.rules.memory.activations, self.tensors.settings.max_num_batched_tokens
        if rules.profile == "batch":
            return asked or requests * length
        if rules.profile != "length" or asked:
            return self.tensors.tokens
        tokens = maximum(length, self.tensors.tokens) if rules.least_step else length
        if rules.chunk_above is None:
            return tokens
        return where(length > rules.chunk_above, rules.chunk_tokens or self.tensors.tokens, tokens)

    def activations(self, plan: Plan, length: Num, requests: Num = 1) -> Num:
        """Bytes that the largest step needs beyond weights and caches, with requests of up to `length` tokens."""
        t, rules = self.tensors, self.rules.memory.activations
        if rules.profile == "estimate":
            return self.prefill.on(plan)
        step, encoders = self.step_activations(plan, length, requests), t.encoder_step(plan)
        return step if encoders is None else maximum(encoders.inside, step + encoders.outputs)

    def step_activations(self, plan: Plan, length: Num, requests: Num = 1) -> Num:
        """Bytes of the language model's largest step."""
        t, rules = self.tensors, self.rules.memory.activations
        tokens = self.step_tokens(length, requests)
        key = plan.tp, plan.dp, plan.ep
        if rules.profile == "chunk" and key in self._step_bytes:
            return self._step_bytes[key]
        step = step_bytes(rules, self.model, t.formats.name, t.graph(plan, tokens), tokens, t.seqs)
        self._step_bytes[key] = self._beside_a_draft(step, plan, tokens)
        return self._step_bytes[key]

    def _beside_a_draft(self, step: Num, plan: Plan, tokens: Num) -> Num:
        """Bytes of the model's step and its draft's, as the engine sets them aside."""
        t, draft, rule = self.tensors, self.tensors.draft, self.rules.memory.drafts
        if draft is None or rule is None:
            return step
        graph = draft.graph(replace(plan, pp=1), tokens)
        own = step_bytes(self.rules.memory.activations, draft.model, draft.formats.name, graph, tokens, t.seqs)
        if rule.step == "shared":
            return maximum(step, own)
        return step + own * (t.seqs if rule.step == "each_slot" else 1)

    # -------------------------------------------------------------------------------- questions
    def most_running(self, plan: Plan, slack: Callable[[EngineMemory], int] | None = None) -> MostRunning:
        """Requests of the workload that run at once in the steady state: as many as every stage's cache holds and the
        scheduler admits. slack: bytes by which the cache is larger than its division says.
        """
        return self._admitted(plan, self._held(plan, 1, slack))

    def running(self, plan: Plan, asked: int) -> MostRunning:
        """Of `asked` requests those that run at once in the steady state, the others wait. Activations are those of
        the requests that run; where they grow with these, the number is found by bisection, so that more requests in
        flight never run fewer.
        """
        most = ceil_div(asked, plan.dp)
        low = min(self._held(plan, 1), most)
        if self.rules.memory.activations.profile not in ("chunk", "length"):
            low, high = 0, most + 1  # on each replica: `low` run, `high` do not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._held(plan, middle) >= middle else (low, middle)
        admitted = self._admitted(plan, low)
        return MostRunning(min(admitted.requests, asked), admitted.reason)

    @property
    def steady_length(self) -> int:
        """Tokens that a request holds in the steady state: requests are at all stages of their answers, and pages fill
        as answers grow. A cache without pages is set aside at full length, and so is one whose requests never give way.
        """
        prompt, answer = int(self.load.input_len), int(self.load.output_len)
        batching = self.rules.scheduler.batching
        whole = self.tensors.paging.block == 1 or (batching is not None and batching.room == "prompt_and_answer")
        return prompt + (answer if whole else answer // 2)

    def in_steady_state(self, plan: Plan, running: int) -> DeviceMemory:
        """The memory while so many requests run on all replicas, each with what it holds in the steady state."""
        requests, t = ceil_div(running, plan.dp), self.tensors
        found: DeviceMemory | None = None
        for stage in t.stages(plan):
            request = stage.request_bytes(self.steady_length, t.paging.running, self.load.source_len)
            memory = replace(self.of_stage(plan, stage, requests), request_bytes=request)
            found = memory if found is None else _tighter(found, memory)
        assert found is not None  # a plan has one stage at least
        return found

    def _held(self, plan: Plan, requests: int, slack: Callable[[EngineMemory], int] | None = None) -> int:
        """Requests that the cache of one replica holds in the steady state, beside a step of `requests` of them."""
        t = self.tensors
        division = self.division(plan, self._activations_of(plan, requests))
        held: list[int] = []
        for stage in t.stages(plan):
            own = replace(division, weights=stage.weights)
            room = own.room + (slack(own) if slack else 0)
            each = stage.request_bytes(self.steady_length, t.paging.running, self.load.source_len)
            held.append(int(room // max(each, 1)))
        return max(min(held), 0)

    def _activations_of(self, plan: Plan, requests: int) -> Num:
        """Bytes of the largest step of so many requests on a replica."""
        if self.rules.memory.activations.profile != "estimate" or requests * plan.dp == self.load.batch:
            return self.activations(plan, self.load.input_len + self.load.output_len, requests)
        load = replace(self.load, batch=requests * plan.dp)
        return PrefillActivations(self.graphs, WorkloadSteps(self.model, load)).on(plan)

    def _admitted(self, plan: Plan, cache: int) -> MostRunning:
        """Of the requests that a replica's cache holds those that the scheduler admits, on all replicas."""
        t, replicas = self.tensors, " on each replica" if plan.dp > 1 else ""
        if t.seqs_limit is None or cache <= t.seqs_limit:
            return MostRunning(cache * plan.dp, f"the KV cache has room for {cache:,}{replicas}")
        flag = f" ({self.rules.flags['seqs']})" if "seqs" in self.rules.flags else ""
        admitted = f"the engine runs at most {t.seqs_limit:,} sequences{flag}{replicas}"
        return MostRunning(t.seqs_limit * plan.dp, admitted)

    def holds(self, plan: Plan, length: int) -> bool:
        """Whether one request of `length` tokens fits on every stage."""
        paging, source = self.tensors.paging, self.load.source_len
        return all(stage.request_bytes(length, paging, source) <= room for stage, room in self._rooms(plan, length))

    def _rooms(self, plan: Plan, length: int) -> list[tuple[PipelineStage, Num]]:
        """Every stage and the bytes that its device has for the cache beside a step of one request."""
        constant = self.rules.memory.activations.profile == "estimate"
        key = plan, 0 if constant else self.step_tokens(length)
        rooms = self._room.get(key)
        if rooms is None:
            division = self.division(plan, self.activations(plan, length))
            stages = self.tensors.stages(plan)
            rooms = self._room[key] = [(stage, replace(division, weights=stage.weights).room) for stage in stages]
        return rooms

    def longest(self, plan: Plan) -> int | None:
        """Tokens of the longest single request that fits, found by bisection; None where memory sets no limit: nothing
        grows with the request, or no more than up to a window.
        """
        if not any(stage.grows for stage in self.tensors.stages(plan)):
            return None
        if not self.holds(plan, 1):
            return 0
        low, high = 1, 2
        while self.holds(plan, high):
            if high > WIDEST_WINDOW:
                return None
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(plan, middle) else (low, middle)
        return low


def _tighter(a: DeviceMemory, b: DeviceMemory) -> DeviceMemory:
    """Of two stages the one whose device holds fewer requests, point by point."""
    first, second = (_requests_held(m) for m in (a, b))
    less = second < first
    if isinstance(less, (bool, int)):
        return b if less else a
    weights = where(less, b.weights, a.weights)
    return replace(
        b, division=replace(b.division, weights=weights),
        request_bytes=where(less, b.request_bytes, a.request_bytes),
    )  # fmt: skip


def _requests_held(m: DeviceMemory) -> Num:
    """Requests that the room holds; where they need nothing, the room, and where the weights leave none, what lacks."""
    room = m.division.room
    return where(room < 0, room, room / maximum(m.request_bytes, 1))


def default_length(model: Model, engine: EngineChoice, load: Workload, max_model_len: int | None) -> int:
    """Tokens of the request that an engine must hold to start: as asked for, else its default."""
    rule = engine.rules.scheduler.context
    if max_model_len is not None:
        return max_model_len
    if rule == "model" and model.max_context:
        return model.max_context
    if isinstance(rule, int):
        return min(rule, model.max_context or rule)
    return int(load.input_len + (load.output_len if model.architecture != "encoder" else 0))
