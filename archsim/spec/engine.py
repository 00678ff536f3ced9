"""The engine document: memory, time, scheduler and parallelism of a serving engine, by version, with sources."""

from __future__ import annotations

from typing import Annotated, Literal

from archsim.base.errors import InvalidValue, SpecError
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Check, Field, LazyModel, field_validator
from archsim.base.units import parse_quantity
from archsim.base.version import version_of
from archsim.spec import loader
from archsim.spec.document_cache import DocumentCache, Reader
from archsim.spec.node import Node, merge


def _is_bytes(text: str) -> str:
    parse_quantity(text, "B")
    return text


Size = Annotated[str, Check("after", _is_bytes)]
"""A number of bytes with its unit, such as `0.5 GiB`."""

Count = Annotated[int, Field(strict=True, gt=0)]


class EngineSection(LazyModel):
    """Strict and frozen. Validators are compiled when the first document is read."""


class PrefillGraphs(EngineSection):
    """What captured graphs of prefills keep free. each: a token count of `sizes` up to the chunk; latent: all of a
    model with latent attention. sizes: (first, last, step) of the counts; the last row goes on to the chunk.
    """

    each: Size
    latent: Size
    sizes: tuple[tuple[Count, Count, Count], ...] = Field(min_length=1)

    def captured(self, tokens: int) -> int:
        """Token counts that are captured for a chunk of so many tokens."""
        *rows, (first, _, step) = self.sizes
        ends = [(start, min(end, tokens), by) for start, end, by in rows] + [(first, tokens, step)]
        return sum((end - start) // by + 1 for start, end, by in ends if end >= start)


class AutoShare(EngineSection):
    """A share that follows from what has to stay free: base + per_token x the tokens of a chunk + per_graph x the
    largest captured batch + per_device x devices (+ per_replica_graph x replicas x captured batch, and
    per_replica_wide_graph where that batch is beyond wide_above) + prefill graphs; at least `least` on devices of more
    than `least_above`; and beside that `exchange`, where tokens reach experts by kernels of expert parallelism.
    """

    base: Size
    per_token: Size
    least_tokens: Count
    per_graph: Size
    per_device: Size
    per_replica_graph: Size
    per_replica_wide_graph: Size = "0 MiB"
    wide_above: Count = 300
    exchange: Size = "0 GiB"
    least: Size
    least_above: Size
    prefill_graphs: PrefillGraphs | None = None


class Share(EngineSection):
    """What the engine's memory fraction is of: the total (weights, activations and cache inside), the total with
    weights and cache inside (static), what is free after weights and activations (free), or nothing (none).
    by_devices: the default from so many tensor-parallel devices on.
    """

    meaning: Literal["total", "static", "free", "none"]
    default: float | None = Field(default=None, gt=0, le=1)
    by_devices: dict[int, float] = Field(default_factory=dict)
    auto: AutoShare | None = None


class Activations(EngineSection):
    """What one step needs beyond weights and cache.

    profile: the step is a chunk of max_num_batched_tokens, a whole request (length), whole requests of the batch, or
    what of a prefill is alive at once, by liveness (estimate).
    least_step: a whole request counts as at least max_num_batched_tokens. element: bytes of a number. logits_rows: rows
    of the output head, logits_copies: times their float32 size. hidden_kept: the vectors of all tokens of the step lie
    beside the logits. chunk_above, chunk_tokens: longer requests are cut. split_k: partial outputs of a product in 16
    bits, by weight format, whose buffers stay reserved.
    """

    profile: Literal["chunk", "length", "batch", "estimate"]
    least_step: bool = False
    element: Count = 2
    logits_rows: Literal["seqs", "tokens", "last"] = "last"
    logits_copies: float = Field(default=1.0, gt=0)
    hidden_kept: bool = False
    chunk_above: Count | None = None
    chunk_tokens: Count | None = None
    split_k: dict[str, int] = Field(default_factory=dict)


class Graphs(EngineSection):
    """Captured CUDA graphs: a middle value and its range. inside: whether the memory fraction counts them."""

    bytes: Size
    low: Size
    high: Size
    inside: bool = False


class NonTorch(EngineSection):
    """Context, libraries and communication buffers of one device, from so many devices on; value and range."""

    devices: Count = 1
    bytes: Size
    low: Size
    high: Size


class Otherwise(EngineSection):
    """The limits of devices in `except`."""

    seqs: Count
    tokens: Count


class Limits(EngineSection):
    """Default batch limits of devices with less memory than `below`. graphs: largest captured batch (graphs_wide
    from 4 devices on). excluded (`except` in files): name parts of devices that take `otherwise`.
    """

    below: Size | None = None
    seqs: Count | None = None
    tokens: Count
    graphs: Count = 256
    graphs_wide: Count | None = None
    excluded: tuple[str, ...] = Field(default=(), alias="except")
    otherwise: Otherwise | None = None


class Online(EngineSection):
    """Weight formats that the engine makes of wider ones while it loads, and its peak then: those of the checkpoint
    (whole), the converted ones beside them (both), or the converted ones alone, module by module (streamed).
    """

    formats: tuple[str, ...]
    peak: Literal["whole", "both", "streamed"]


class EncoderShare(EngineSection):
    """Factor on the engine's own memory fraction for a model with a vision encoder: `factor`, times 1 less `slope` for
    each `layers` x `width` squared that the encoder has beyond the first, within `least` and `most`.
    """

    factor: float = Field(gt=0, le=1)
    slope: float = 0.0
    layers: Count = 24
    width: Count = 1024
    least: float = 0.0
    most: float = 1.0

    def of(self, layers: int, width: int) -> float:
        """The factor for an encoder of so many layers of this width."""
        beyond = layers * width**2 / (self.layers * self.width**2) - 1
        return self.factor * max(self.least, min(self.most, 1 - self.slope * beyond))


class Encoders(EngineSection):
    """What is kept free for vision encoders. profiled: their step over as many images of the largest size as the tokens
    of a step hold, and what it gives, beside the step of the language model.
    """

    profiled: bool = False
    share: EncoderShare | None = None


class EngineSource(EngineSection):
    """Where values come from, and the fields it vouches for."""

    url: str
    covers: tuple[str, ...]


Option = Literal[
    "kv_cache_memory_bytes",
    "cpu_offload_gb",
    "kv_offloading_size",
    "override_tensor",
    "split_mode",
    "tensor_split",
    "num_gpu_experts",
    "n_gpu_layers",
    "cpu_moe",
    "n_cpu_moe",
]
"""Settings of memory that not every engine has."""


class Drafts(EngineSection):
    """How a draft model lies beside the model. place: its layers are dealt out over the stages as the model's, or all
    of them are on the last. step: its largest step is set aside beside the model's, once or for `each_slot` of the
    sequences that run, or shares the larger of both. cache: format of its cache; empty: as the model's.
    """

    place: Literal["dealt", "last"]
    step: Literal["shared", "beside", "each_slot"]
    cache: str = ""


class PageGroups(EngineSection):
    """One pool of pages that are equally large for groups of equally many layers, where layers keep caches differently:
    groups as large as the kind with fewest layers, or with most where these are less than half as many again; what is
    missing in the last group of a kind is padding. A page holds a recurrent state whole. steps: how many steps' tokens
    a windowed layer keeps room for at the start. states: pages of each recurrent layer.
    """

    steps: Count = 1
    states: Count = 1


class CachePools(EngineSection):
    """Memory for caches that is divided when the engine starts, whatever requests come. windows: tokens that layers
    with a window keep, over those that the others keep; entry_windows: the same of models whose other layers keep
    compressed entries; windowed: how names of models begin whose windows have a pool, empty: all; those of others keep
    as many tokens as other layers. states: memory of recurrent states over that of all other caches;
    states_of_request: states that a request takes at most, of itself and of prefixes that are kept for others.
    """

    windows: Annotated[float, Field(gt=0, le=1)]
    entry_windows: Annotated[float, Field(gt=0, le=1)]
    states: Annotated[float, Field(gt=0)]
    states_of_request: Count = 1
    windowed: tuple[str, ...] = ()

    def of(self, model: str) -> CachePools:
        """The same as they are for a model."""
        if not self.windowed or model.startswith(self.windowed):
            return self
        return self.model_copy(update={"windows": 1.0, "entry_windows": 1.0})


class HostExperts(EngineSection):
    """Routed experts in host memory. concurrent: whether they run at the same time as those of the device, or
    after them. kernels: formats that they can be in, where an engine counts the experts that devices keep,
    and how its command calls what runs them.
    """

    concurrent: bool = False
    kernels: dict[str, str] = Field(default_factory=dict)


class EngineMemoryRules(EngineSection):
    """How the engine divides a device, and how it keeps weights and caches.

    as: another engine's rules (`hf`, or of a version `hf@4.44`), over which the fields given here are laid. reserve:
    bytes that the driver keeps, by vendor. windows: caches of windowed layers kept in `full`, `cut` to the window, or
    to the window and one `chunk`. latent: MLA's latent kept, or keys and values expanded (naive). states: recurrent
    states in the formats that the model defines, or all in fp32. groups: pages where layers keep caches differently;
    nothing where each layer has its own. pools: memory divided between kinds of caches beforehand; nothing where
    all share one. layout: factor on weights stored in a format.
    rope_tables: bytes of a number in tables of sines and cosines of every position that the model knows; 0: none.
    embedding: where the input table lives. towers: whether vision and audio encoders are loaded with the language
    model, or only where they are asked for. encoders: what is kept free for those that are loaded. cache_formats: the
    cache format that checkpoints of a weight format ask for, where the engine follows them. options: settings that not
    every engine has: the ones that it takes. host_experts: how routed experts in host memory run. drafts: draft models
    of speculative decoding, where they are modelled.
    """

    as_: str | None = Field(default=None, alias="as")
    share: Share
    reserve: dict[str, Size] = Field(default_factory=dict)
    activations: Activations
    graphs: Graphs | None = None
    non_torch: tuple[NonTorch, ...]
    block_size: Count
    windows: Literal["full", "cut", "chunk"] = "cut"
    latent: Literal["latent", "naive"] = "latent"
    states: Literal["model", "fp32"] = "model"
    groups: PageGroups | None = None
    pools: CachePools | None = None
    layout: dict[str, float] = Field(default_factory=dict)
    rope_tables: int = Field(default=0, ge=0)
    embedding: Literal["device", "host"] = "device"
    towers: Literal["loaded", "asked"] = "loaded"
    encoders: Encoders = Encoders.model_construct()
    online: Online | None = None
    cache_formats: dict[str, str] = Field(default_factory=dict)
    options: tuple[Option, ...] = ()
    host_experts: HostExperts = HostExperts.model_construct()
    drafts: Drafts | None = None

    @field_validator("non_torch")
    @classmethod
    def _from_one_device_on(cls, entries: tuple[NonTorch, ...]) -> tuple[NonTorch, ...]:
        """Entries by devices, the first one from a single device on."""
        devices = [entry.devices for entry in entries]
        if devices[:1] != [1] or devices != sorted(set(devices)):
            raise InvalidValue("an engine states `non_torch` from 1 device on, in rising order of `devices`")
        return entries


class KernelPrior(EngineSection):
    """Constants of a kernel class without a table, which `archsim calibrate` fits to runs on a vendor's devices.

    prior: [middle value, its spread in log] of each constant. given: constants that the engine's code
    states. like: another vendor, whose fit stands for this one's.
    """

    vendor: str
    kernel_class: str
    dtype: str = ""
    prior: dict[str, tuple[float, float]] = Field(default_factory=dict)
    given: dict[str, float] = Field(default_factory=dict)
    like: str | None = None


class Exchange(EngineSection):
    """How tokens reach experts on other ranks and how results come back. kernels: of `expert_parallelism` (DeepEP's and
    those built like them), or the `all_to_all` of the collective library. gathered: ranks up to which every rank
    gathers all tokens instead, and sums are scattered back.
    """

    kernels: Literal["all_to_all", "expert_parallelism"] = "all_to_all"
    gathered: int = Field(default=0, ge=0)


class FusedAllReduce(EngineSection):
    """All-reduces of activations that run in one kernel with the norm after them. kernels: the engine whose measured
    all-reduces stand for it. up_to_mib: by compute capability and ranks, MiB of a rank's tensor up to which it runs;
    beyond, and on other devices, the engine's own all-reduce does.
    """

    kernels: str
    up_to_mib: dict[str, dict[int, Annotated[float, Field(gt=0)]]]


class Time(EngineSection):
    """What decides the time of a step beside the model and the device.

    kernels: the engine whose measured kernels stand for this one's. accumulate: what its products of 16-bit operands
    add up in. fused_qkv: linear layers that read one activation (QKV, gate and up) are one GEMM. launch_us: host
    microseconds per kernel launch where steps are not captured as a CUDA graph (0: captured). quantised_before: by
    weight format, under its own name or the one that kernel tables have for all of its kind, what writes a product's
    activations in that format: the `passes` before it (norms, activations), attention as well (`all`), a kernel that
    finds a scale for each of its `rows`, or the `kernel` that tables time with products, as of formats that are not
    named. ported: by weight format as
    kernel tables name it, the engine that its kernels were taken from, whose runs stand for them. experts_also: by
    format of experts as kernel tables name it, further formats there whose kernels run such experts as well, with other
    scales. int8_alone: vendors on whose devices with int8 products quantised weights are multiplied in int8 for any
    number of rows; on others they are widened to 16 bits from the fit's `widen_rows` on. host: the way in which this
    version drives the device, such as `async` where the work for the next step is done while one runs; `archsim
    calibrate` fits the host's work per step for each, and versions that share it share the numbers. None is ever
    borrowed from another way. Empty: nothing is known of it. cpu: how it runs a graph on a processor: operator by
    operator (`eager`), with row-wise functions as one kernel each (`compiled`), or as on any other device (empty).
    exchange: how tokens reach experts on other ranks. all_reduce: which sums over ranks run in one kernel with the
    norm. scans: in steps with prompts, whether decodes of delta rules run in their own kernel (`apart`), or in that of
    prompts, a chunk each, with their states copied there and back (`together`). fits: kernel classes that it fits to
    whole runs. The fitted numbers lie in `hardware/calibration/engines.yaml`.
    """

    kernels: str
    accumulate: Literal["fp16", "fp32"] = "fp32"
    fused_qkv: bool = True
    launch_us: float = Field(default=0.0, ge=0)
    quantised_before: dict[str, Literal["kernel", "rows", "passes", "all"]] = Field(default_factory=dict)
    ported: dict[str, str] = Field(default_factory=dict)
    experts_also: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    int8_alone: tuple[str, ...] = ()
    host: str = ""
    cpu: Literal["", "eager", "compiled"] = ""
    exchange: Exchange = Field(default_factory=Exchange)
    all_reduce: FusedAllReduce | None = None
    scans: Literal["apart", "together"] = "apart"
    fits: tuple[KernelPrior, ...] = ()


class ResumePoints(EngineSection):
    """Where layers that keep less than all tokens let a later prompt go on: those with a window, or with a recurrent
    state. prompts: at the last whole multiple of so many tokens of each prompt. answers: of prompt and answer, when the
    request ends; 0: not there. junctions: where a prompt was found in the other layers beyond the last such point,
    `beside` that of its own end or `instead` of it. default: whether prompts are found at all where nothing is said.
    """

    prompts: Count = 1
    answers: int = Field(default=0, ge=0)
    junctions: Literal["none", "beside", "instead"] = "none"
    default: bool = True


class PrefixCaching(EngineSection):
    """How prompts find what others left in the cache. kind: `blocks` by the hash of all tokens up to their end, or
    a `tree` of runs that are given up as a whole. default: whether it is on where nothing is said. windows, states: of
    models with such layers, where they let a prompt go on; nothing: wherever its tokens are found.
    """

    kind: Literal["blocks", "tree"]
    default: bool = True
    windows: ResumePoints | None = None
    states: ResumePoints | None = None


class NewTokenRatio(EngineSection):
    """Share of what is left of the answers for which room is kept beside those that decode: `start` at first, falling
    to `least` over so many decode steps; when requests give way, what the others have made with `ahead` tokens more
    each. longest: tokens of an answer that count at most.
    """

    start: float = Field(gt=0, le=1)
    least: float = Field(ge=0, le=1)
    steps: Count
    ahead: int = Field(ge=0)
    longest: Count


RankRuleName = Literal["round_robin", "random", "fewest_requests", "fewest_tokens"]
"""A rule by which an engine sends requests to its data-parallel ranks (`serving/gang.py`)."""


class RankRules(EngineSection):
    """Which data-parallel rank a request is sent to: each in turn, any, the one with the fewest requests (those that
    wait counted four times), or of those with fewer requests than the fullest the one with the fewest prompt tokens.
    alone: of servers that compute prompts and make answers; prompts, answers: of servers of two pools.
    """

    alone: RankRuleName = "fewest_requests"
    prompts: RankRuleName = "fewest_requests"
    answers: RankRuleName = "fewest_requests"


class PoolBatching(EngineSection):
    """How servers behave that compute prompts alone, or make answers alone.

    room_first: whether room for a prompt's cache is taken where its answer will be made before the prompt is computed;
    else afterwards. reserve: tokens that are kept free there for each request that has room; without, by `room` of
    `Batching`. longest: tokens of an answer that count at most. places: requests that have room there at most, as a
    multiple of those that run; of servers that run no more than `few`, `places_of_few`; without, room is given out
    while one more request may run. sent_run: whether prompts whose caches are being sent count as running where they
    were computed.
    """

    room_first: bool = False
    reserve: int | None = Field(default=None, ge=0)
    longest: Count = 4096
    places: Count | None = None
    few: int = Field(default=0, ge=0)
    places_of_few: Count = 1
    sent_run: bool = False


class Batching(EngineSection):
    """The rules of continuous batching, which `archsim simulate` follows step by step.

    first: whether running requests or prompts are scheduled first; prompts then have all their blocks from the start.
    chunked: whether a prompt is cut where the tokens of a step end; else it waits for a step that holds it.
    chunked_above: models with a longer context are served with prompts cut, beside decodes, whatever the rest says.
    longest_chunk: tokens of one prompt in a step at most (0: those of the step). seqs: requests that run at once, where
    the limits name none; seqs_with_drafts: of all replicas together, with speculative decoding. divided: limits that
    the replicas of the attention share equally: a stated one of requests (`seqs`), any of `tokens`. prompt_tokens: of a
    step, beyond which no other prompt is taken, not even in part. batch_tokens: tokens of a step, where it is computed
    in micro-batches of the limits' tokens. room: cache that must be free before a prompt is admitted: that of its first
    `chunk`, of the whole `prompt`, of `prompt_and_answer` so that no request ever gives way, or of these beside what
    `new_token_ratio` expects of the others (`expected`). gives_way: for a block, the request admitted last, or that
    with the fewest tokens of its answer; it computes its cache again, after waiting at an end of the queue (requeue).
    places_until: requests that have made their last token keep their places until that is known (`end`), or until the
    next step of `decodes` is scheduled; their cache is free before. watermark: share of the blocks that an admission
    leaves free. admit_after_preemption: whether a step in which requests gave way admits others. ahead: 1 where a step
    is scheduled while the one before it runs. in_flight: of a pipeline: as many batches as stages, which share the
    limit of requests or split it, or only one batch. prefix: of the prefix cache; nothing where there is none. ranks:
    of data-parallel replicas of the attention. pools: of servers for prompts or answers alone.
    """

    first: Literal["running", "prompts"] = "running"
    chunked: bool = True
    chunked_above: Count | None = None
    longest_chunk: int = Field(default=0, ge=0)
    seqs: Count | None = None
    seqs_with_drafts: Count | None = None
    divided: tuple[Literal["seqs", "tokens"], ...] = ()
    prompt_tokens: Count | None = None
    batch_tokens: Count | None = None
    room: Literal["chunk", "prompt", "prompt_and_answer", "expected"] = "chunk"
    new_token_ratio: NewTokenRatio | None = None
    gives_way: Literal["last", "fewest_tokens"] = "last"
    requeue: Literal["head", "tail"] = "head"
    places_until: Literal["end", "decodes"] = "end"
    watermark: float = Field(default=0.0, ge=0, lt=1)
    admit_after_preemption: bool = False
    ahead: Literal[0, 1] = 0
    in_flight: Literal["shared", "split", "one"] = "shared"
    prefix: PrefixCaching | None = None
    ranks: RankRules = RankRules.model_construct()
    pools: PoolBatching = PoolBatching.model_construct()


class CapturedGraphs(EngineSection):
    """Sizes of captured CUDA graphs in tokens. A step runs in the smallest one that holds it.

    sizes: the smallest ones. steps: [first, distance] of those that follow. most: the largest; without one, the largest
    captured batch of `limits`. by_sequence: also no more than so many times the most sequences of a step. mixed:
    whether steps with prompts run in graphs as well. models: for models of the catalog that the engine captures more
    of, their largest.
    """

    sizes: tuple[Count, ...]
    steps: tuple[tuple[Count, Count], ...] = ()
    most: Count | None = None
    by_sequence: Count | None = None
    mixed: bool = False
    models: dict[str, Count] = Field(default_factory=dict)

    def largest(self, model: str) -> int | None:
        """Tokens of the largest graph of a model; None where the device decides."""
        return self.models.get(model, self.most)


class Scheduler(EngineSection):
    """How requests are batched.

    chunked_prefill_with_decode: whether the tokens of prompts share a step with decodes; else prompts run in steps of
    their own. context: default length of a request: the model's longest, that of the workload, or a number. limits:
    the most sequences and tokens of one step, by size of the device. holds_longest: whether a server starts only where
    its cache holds one request of that length. batching: the order of requests; nothing where it
    is not known. captured: graphs that steps are padded to.
    """

    chunked_prefill_with_decode: bool
    context: Literal["model", "workload"] | Count
    holds_longest: bool = False
    limits: Annotated[tuple[Limits, ...], Field(min_length=1)] = (Limits.model_construct(tokens=8192, seqs=256),)
    captured: CapturedGraphs | None = None
    batching: Batching | None = None


class Parallelism(EngineSection):
    """How several devices share a model.

    splits: tensors are cut, or whole layers dealt out. experts: whether tensor parallelism cuts each expert or spreads
    whole ones. attention_replicas: whether data-parallel attention replicas can share the experts (with expert
    parallelism). pipeline: which stages take the layers that are left over: the first, the last, those before the last,
    all of them the last one; `output`: the output matrix counts as a layer; `even`: equal runs of layers rounded up.
    """

    splits: Literal["tensors", "layers"] = "tensors"
    experts: Literal["cut", "spread"] = "cut"
    attention_replicas: bool = False
    pipeline: Literal["even", "first", "last", "before_last", "all_last", "output"] = "first"


class Formats(EngineSection):
    """Number formats that the engine reads.

    weights: for suggestions, the widest first; kv_cache: a narrow one; caches: all that caches can be in, empty where
    any; cache_words: what the command line calls those that have another name there. follows: method of quantisation
    -> the formats that it may state for caches and that the engine then caches in. native: the engine's file type for
    checkpoints whose experts are published in a format, where it only runs files of its own. quantised_on_fp4: weight
    formats of 4-bit floats whose activations the engine quantises as well on devices that have units for such
    products; else it unpacks the weights to 16 bits, as the format's document says. activations: `weights` where a
    module of wide numbers computes and caches in them, else 16 bits. files_of: other engines whose files it
    reads too. own_files_alone: whether every narrow format has to be one of its own files.
    """

    weights: tuple[str, ...] = ("fp8", "int8", "int4")
    kv_cache: str = "fp8"
    caches: tuple[str, ...] = ()
    cache_words: dict[str, str] = Field(default_factory=dict)
    follows: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    native: dict[str, str] = Field(default_factory=dict)
    quantised_on_fp4: tuple[str, ...] = ()
    activations: Literal["sixteen", "weights"] = "sixteen"
    files_of: tuple[str, ...] = ()
    own_files_alone: bool = False


class Engine(EngineSection):
    """Everything that is known of one engine at one version.

    version: the newest that the document knows; empty where nothing depends on it. aliases: other spellings. flags: how
    the engine's own command line calls a setting. serve: the parts of the command that starts it, in order, by the fact
    that each says (`archsim/memory/serve_command.py`). log: the lines in which it logs what fits, by the fact that each
    states (`archsim/render/pages/fit.py`). released: versions and the days on which they came out. before:
    changes for versions below a version, applied from the newest to the oldest.
    """

    schema_: Literal["archsim.engine/2"] = Field(alias="schema")
    name: str
    title: str
    version: str = ""
    aliases: tuple[str, ...] = ()
    flags: dict[str, str] = Field(default_factory=dict)
    serve: dict[str, str] = Field(default_factory=dict)
    log: dict[str, str] = Field(default_factory=dict)
    memory: EngineMemoryRules
    time: Time
    scheduler: Scheduler
    parallelism: Parallelism = Parallelism.model_construct()
    formats: Formats = Formats.model_construct()
    released: dict[str, Annotated[str, Field(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")]] = Field(
        default_factory=dict
    )
    before: dict[str, JsonObject] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: dict[str, EngineSource] = Field(default_factory=dict)


def load_engine(name: str, version: str = "") -> Engine:
    """The document of an engine (name or path) at a version; without one, at the newest that the file knows.

    Raises UnknownName, SpecError.
    """
    return _DOCUMENTS.get((name, version), lambda reader: _load(reader, name, version))


_DOCUMENTS: DocumentCache[Engine] = DocumentCache("engine")
"""Engines by name and version, each kept while its file, and those whose memory rules it takes, stay the same."""


def _load(reader: Reader, name: str, version: str) -> Engine:
    return loader.validate(_with_memory_of(reader, _read(reader, name, version)), Engine, document="engine")


def _read(reader: Reader, name: str, version: str) -> Node:
    """The document as of a version."""
    document = reader.read(reader.resolve("engines", name))
    asked = version_of(version)
    before = document.get("before")
    changes = {str(limit): change for limit, change in before.items()} if isinstance(before, Node) else {}
    for limit in sorted(changes, key=lambda text: version_of(text) or (), reverse=True):
        if asked is not None and asked < (version_of(limit) or ()) and isinstance(changes[limit], Node):
            document = merge(document, changes[limit])
    return document


def _with_memory_of(reader: Reader, document: Node, above: tuple[str, ...] = ()) -> Node:
    """The document over the memory rules of the engine that `memory: as` names (`hf`, `hf@4.44`).

    Raises SpecError where documents refer to each other in a circle.
    """
    memory = document.get("memory")
    other = memory.get("as") if isinstance(memory, Node) else None
    if not isinstance(memory, Node) or not isinstance(other, str):
        return document
    name, _, version = other.partition("@")
    chain = (*above, str(document.get("name")))
    if name in chain:
        raise SpecError(
            f"memory rules refer to each other: {' -> '.join((*chain, name))}",
            code="E111",
            span=memory.value_mark("as").span(),
        )
    base = _with_memory_of(reader, _read(reader, name, version), chain)
    result = Node(document.mark)
    for key, value in document.items():
        result.put(key, value, (document.key_mark(key), document.value_mark(key)))
    marks = document.key_mark("memory"), document.value_mark("memory")
    result.put("memory", merge(base["memory"], memory), marks)
    return result
