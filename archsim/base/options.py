"""The options of the Python functions: names and types as the commands' long flags, in snake_case.

`...Arguments` are what the functions below the API take; `...Options` add what the API does before it calls them.
Defaults stand behind each option; an option that is None counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

Range = str | int | Iterable[int]
"""One number, several, or a range as text: `1,8,32`, `1-256+1` (step), `1-256*2` (factor)."""

Several = str | Sequence[str]
"""One name, a list, or names joined by commas."""


class Changes(TypedDict, total=False):
    """`set`: fields of the spec to change, such as "attention.n_kv_heads=4"."""

    set: str | Sequence[str]


class CountArguments(TypedDict, total=False):
    """What is counted of a model."""

    batch: int  # 1
    input_len: int  # 2048
    weights: str | None  # the checkpoint's own format
    kv_cache_dtype: str | None  # 16 bits
    logits: str  # "last", or "all" positions
    parts: Collection[str]  # optional modules to include: vision, audio, mtp, mlm-head
    imatrix: bool | None  # whether a GGUF file type was made with an importance matrix
    image: str | None  # images of a request, as "1024x768x2"
    source_len: int | None  # tokens of an encoder-decoder's source; as long as the prompt


class PlanArguments(TypedDict, total=False):
    """Devices, parallel degrees, formats and engine."""

    devices: int | str  # "auto": the fewest that hold the model; in `fit` one, or tp x pp x dp
    tp: int | None
    pp: int | None
    ep: int | None
    dp: int | None
    weights: str | None  # the checkpoint's own format
    kv_cache_dtype: str | None  # 16 bits
    engine: str  # "generic"; NAME or NAME@VERSION


class Calibrations(TypedDict, total=False):
    """`store`: what times rest on."""

    store: Any  # a `Store` of `archsim.timing.calibration`; the one that archsim comes with


class CostArguments(TypedDict, total=False):
    """What devices cost: rented at a price, or owned."""

    price: float | str | None  # dollars per device and hour, a provider ("runpod:spot"), "cheapest" or "table"
    utilization: float | None  # 1; share of the paid hours that serve the load
    capex: float | None  # dollars for a device of one's own
    years: float | None  # 3; over which it is written off
    host_share: float | None  # 0.3; host, network and rack over the device
    power_price: float | None  # dollars per kWh; electricity is left out
    pue: float | None  # 1.2; as in `EnergyArguments`
    break_even: float | str | None  # a price of tokens: dollars per million, or "IN,OUT"


class EnergyArguments(TypedDict, total=False):
    """What devices draw, and under which limit."""

    energy: bool  # False
    power_limit: float | None  # watts of one device
    pue: float | None  # 1.2; electricity of the facility over that of its machines
    grid: float | None  # grams of CO2 per kWh


class PaidArguments(CostArguments, EnergyArguments, total=False):
    """What a load costs and draws."""


class EstimateArguments(PlanArguments, Calibrations, total=False):
    """A plan and a workload of equal requests."""

    batch: int  # 1
    input_len: int  # 2048
    output_len: int  # 256
    concurrency: int | None  # also the steady state of so many requests in flight
    cached_input: int  # 0; with `concurrency`, tokens of each prompt that a prefix cache holds
    image: str | None  # images of each request, as "1024x768x2"
    audio: str | None  # sounds of each request, as "30x2": seconds, sounds
    source_len: int | None  # tokens of each source of an encoder-decoder; as long as the prompt
    without: str | Collection[str]  # vision and audio towers that the engine does not load
    objective: Literal["latency", "throughput"] | None  # "latency"; what plans on equally many devices are ranked by


class FitArguments(PlanArguments, total=False):
    """A plan and how the engine is run; see `archsim.memory.engine_memory.Settings`."""

    batch: int  # 1: requests of max_model_len that must fit at once
    input_len: int  # 2048
    output_len: int  # 256
    source_len: int | None  # tokens of each source of an encoder-decoder; as long as the request
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float | None
    mem_fraction_static: float | None
    block_size: int | None
    enforce_eager: bool  # False
    parts: Collection[str]
    without: str | Collection[str]  # vision and audio towers that the engine does not load
    max_loras: int  # 0
    max_lora_rank: int  # 16
    visible_memory: int | None  # bytes that a process sees of the device; what the driver leaves
    n_gpu_layers: int | None
    cpu_moe: bool  # False
    n_cpu_moe: int  # 0
    num_gpu_experts: int | None  # routed experts of each layer that devices keep; all
    kv_cache_memory_bytes: int | None  # of a device, in place of what the memory fraction leaves
    cpu_offload_gb: float  # 0: GiB of each device's weights in host memory
    kv_offloading_size: float  # 0: GiB of host memory for pages of the cache
    override_tensor: str | Sequence[str]  # PATTERN=CPU: tensors in host memory, by their names in GGUF files
    split_mode: str | None  # "layer", "row", "tensor" or "none", as in llama.cpp
    tensor_split: str | Sequence[float] | None  # proportions of the devices, such as "3,1"
    draft_model: Any  # a model of speculative decoding, in memory beside the model
    draft_weights: str | None  # its format; its checkpoint's own
    cache_type_k: str | None
    cache_type_v: str | None
    enable_dp_attention: bool  # False
    host_bandwidth: float | None  # B/s
    suggest: bool  # True


class RangeArguments(TypedDict, total=False):
    """A plan and a workload, each number a range."""

    devices: Range  # "auto"
    tp: Range | None
    pp: Range | None
    ep: Range | None
    dp: Range | None
    batch: Range  # 1
    input_len: Range  # 2048
    output_len: Range  # 256


class CompareArguments(RangeArguments, PaidArguments, total=False):
    """Ranges, in one choice of formats and engine; prices and energy."""

    weights: str | None
    kv_cache_dtype: str | None
    engine: str


class PairArguments(TypedDict, total=False):
    """What two architectures are compared at."""

    context_len: int  # 8192
    phase: str  # "inference"; "train" for what training takes too


class EvolveArguments(PairArguments, total=False):
    """The order of steps, and how many orders the attribution averages over."""

    order: str  # "story", "reverse", "random:SEED", or decisions that come first
    orders: int  # 8; 0 for no attribution
    seed: int  # 0


class TimingArguments(TypedDict, total=False):
    """How a model is timed on this machine."""

    device: str | None  # "cpu" or "cuda": time the model instead of reading measurements
    size: str | None  # "small": its kinds of layers at toy width, or "full"
    batch: int  # 1
    input_len: int | None
    dtype: str | None
    threads: int  # 1
    out: str | None  # folder of plan and results, on a processor that was measured
    budget: float  # 120 seconds, on such a processor


class LoadArguments(TypedDict, total=False):
    """What the candidates of a report are estimated with."""

    devices: int | str  # "auto"
    batch: int  # 1
    input_len: int  # 2048
    output_len: int  # 256
    kv_cache_dtype: str | None
    engine: str  # "generic"


class PageArguments(LoadArguments, total=False):
    """What a report compares, and its page."""

    light: bool  # False; True: tables instead of charts, without script
    plotlyjs: str  # "inline": plotly.js in the file; "directory": beside it; "cdn": from plotly's servers
    stamp: str  # a date or remark to show
    command: str  # the command line to show


class LoadOptions(TypedDict, total=False):
    """The load options of `simulate`."""

    rate: float | None  # requests per second; inf: all at once
    concurrency: int | None  # requests (or conversations) in flight at most
    trace: str | None  # a file of recorded requests
    speedup: float | None  # 1; of a trace
    arrival: str | None  # "poisson"; or constant, gamma:CV, burst:N
    rate_profile: str | None  # factors of the rate from given times on: "0:1,60:10,120:1"
    input_len: str | int | None  # 1024; a distribution of lengths
    output_len: str | int | None  # 256
    length_spread: float | None  # 1; each length is uniform between this share of it and all of it
    requests: int | None  # 4000; in a closed loop 10 x concurrency, at least 1000
    duration: float | None  # seconds in which requests arrive
    turns: str | int | None  # requests of a conversation
    think: str | float | None  # 0; seconds between an answer and the next turn
    shared_prefix: str | int | None  # LEN[:GROUPS]; tokens that prompts of a group begin with
    ignore_eos: bool  # False; whether requests ask for every token of their answers, which the server then counts on


class ServerArguments(PlanArguments, Calibrations, total=False):
    """A serving engine and how it is run."""

    max_num_seqs: int | None  # requests that run at once; the engine's default
    max_num_batched_tokens: int | None  # tokens of a step; the engine's default
    max_prefill_tokens: int | None  # of the prompts of a step, beyond which no other is taken; the engine's default
    gpu_memory_utilization: float | None
    mem_fraction_static: float | None
    block_size: int | None  # tokens of a block of the cache
    kv_tokens: int | None  # of one replica's cache; the memory plan's
    chunked_prefill: str | int | None  # "on", "off", or tokens of a prompt in a step at most
    admission: str | None  # "chunk", "prompt", "answer" or "expected": room that a request needs; the engine's rule
    prefix_cache: str | None  # "on", "off", or "warm": what several prompts begin with is cached from the start
    speculative: str | None  # "ngram:K", "mtp:K", "eagle:K", "draft:MODEL,K", "eagle:K,topk=N,tokens=N"
    acceptance: str | float | None  # of drafts: "0.7", "0.8,0.6,0.5", tokens a step ("2.4") or "FILE.csv:COLUMN"
    image: str | None  # images of every prompt, before its text, as "1024x768x2"
    audio: str | None  # sounds of every prompt, as "30x2": seconds, sounds
    exact: bool  # False: price every step instead of looking it up
    front_end: str | None  # "none", "measured", or "MS[,US]": of a request and a prompt token, before the engine
    replicas: int | str | None  # 1; of the server; with find="replicas" the most that are tried
    router: str  # "round-robin"; random, least-requests, least-tokens, two-choices, prefix[:W], session
    disaggregate: str | None  # "P:D": replicas for prompts and for answers
    prefill_plan: str | None  # "tp=4,ep=4": of replicas for prompts; the server's
    decode_plan: str | None
    decode_hw: str | None  # of replicas for answers; the same device
    kv_link: str | float | None  # "50 GB/s": of each device; that of the fabric
    kv_transfer: str | None  # "after": when a prompt is computed; "layers": each layer when it is
    autoscale: str | None  # "MIN-MAX:SIGNAL=TARGET[,delay=S]"; signals: requests, waiting, kv
    router_delay: float | None  # 0; seconds that the router takes for each request


class RunArguments(TypedDict, total=False):
    """How a load is run and what is asked of it."""

    seed: int  # 0
    replications: int  # 5
    warmup: int | str | None  # not measured: requests, seconds ("30s") or "auto"; 5 % of an open loop
    first_wave: str | None  # "keep" or "drop" the requests that start a closed loop together; None: drop with `find`
    slo: str | None  # "ttft=0.5,tpot=0.03[,p=99]", in seconds
    goodput: float | None  # 0.99; share of requests that must meet all targets
    find: (
        Literal["rate", "concurrency", "replicas", "ratio"] | None
    )  # the largest load, or fewest replicas, that meets the targets
    expected_only: bool  # False: leave out the runs at both ends of the step times' interval


class CountOptions(CountArguments, Changes):
    """Options of `archsim.count`."""


class EstimateOptions(EstimateArguments, PaidArguments, Changes, total=False):
    """Options of `archsim.estimate`."""

    by: Literal["part", "op", "block", "kind", "phase", "context"] | None  # what `to_dict` breaks the phases down by


class TraceOptions(EstimateArguments, Changes):
    """Options of `archsim.trace`."""


class FitOptions(FitArguments, Changes):
    """Options of `archsim.fit`."""


class SimulateOptions(ServerArguments, LoadOptions, RunArguments, CostArguments, Changes):
    """Options of `archsim.simulate`."""


class FitsOptions(TypedDict, total=False):
    """Options of `archsim.fits`."""

    devices: int  # that together hold a model; 1
    context: int | None  # tokens of the request that must fit; the engine's default
    engine: str
    weights: str | None  # this format alone; the checkpoint's own and those that the engine offers
    kv_cache_dtype: str | None
    progress: Callable[[int, int], None]  # told how many models are done, and of how many


class CompareOptions(RangeArguments, PaidArguments, Changes, total=False):
    """Options of `archsim.compare`; `set` changes all models but the first."""

    weights: Several | None  # formats, each of which every model is taken in
    kv_cache_dtype: str | None
    engine: str


class SweepOptions(RangeArguments, Changes, total=False):
    """Options of `archsim.sweep`."""

    weights: Several | None
    kv_cache_dtype: Several | None
    engine: Several
    columns: Several | None
    where: str | None
    pareto: Several | None
    price: float | str | None  # of each device; columns of dollars
    utilization: float | None  # 1; share of the paid hours that serve


class DiffOptions(PairArguments, Changes, total=False):
    """Options of `archsim.diff`; `set` changes the second model, `set_from` the first."""

    set_from: str | Sequence[str]
    weights: Several | None  # the format of both models, or of each


class EvolveOptions(EvolveArguments, Changes, total=False):
    """Options of `archsim.evolve`; `set` changes the second model, `set_from` the first."""

    set_from: str | Sequence[str]


class FileArguments(TypedDict, total=False):
    """How files of measurements are read."""

    limit: int | None  # rows of each file at most, drawn with a fixed seed


class LogArguments(ServerArguments, total=False):
    """The server that was measured, where a file does not say it."""

    model: object  # a name, a path or a loaded object, as in `estimate`
    hw: object


class ValidateOptions(TimingArguments, FileArguments, LogArguments):
    """Options of `archsim.validate`: of files, of a model, or of the server that was measured."""


class ClaimOptions(TypedDict, total=False):
    """Options of `archsim.claims`."""

    id: str | Collection[str] | None  # one id, or several
    verdict: str | None  # "true", "approximately", "false" or "uncheckable"


class TrainArguments(TypedDict, total=False):
    """What is trained, and how."""

    devices: int | None
    recipe: str | None  # the stack's
    optimizer: str  # "adamw"
    recompute: str | None  # the least that fits
    dialect: str | None  # the stack's
    loss: str | None  # the stack's
    stack: str  # "generic"
    tokens: float | str | None  # of the whole run
    mfu_peak: str  # "auto"
    goodput: float  # 0.9
    price: float | str | None  # dollars per device and hour, a provider, "cheapest" or "table"
    grid: float | None  # grams of CO2 per kWh
    pue: float | None  # 1.2; electricity of the facility over that of its machines
    method: str | None  # "full", "lora" or "qlora"
    rank: int | None  # of adapters: 16
    targets: str | tuple[str, ...] | None  # products with an adapter: "all"
    search: bool  # False: also where some degrees are given, choose the others
    objective: str  # "time"; "memory", "cost" and "energy", of a token, which may take fewer devices
    offload: str | None  # what lies on the host: "optimizer", "activations", or both
    by: str | None  # "op", "block" or "kind": what each takes of a step


class LayoutArguments(TypedDict, total=False):
    """Degrees and batches of `archsim.training.layout.Layout`; degrees that are not given are chosen."""

    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    dp: int | None
    sp: bool | None
    zero: int | None
    hsdp: int | None
    schedule: str | None
    micro_batch: int | None
    global_batch: int | None
    seq_len: int | None


class TrainOptions(TrainArguments, LayoutArguments, Changes):
    """Options of `archsim.train`."""


class TrainRunsOptions(Changes, total=False):
    """Options of `archsim.compare_training`: those of `train`. Numbers may be ranges; names may be several."""

    devices: Range | None
    tp: Range | None
    pp: Range | None
    vpp: Range | None
    cp: Range | None
    ep: Range | None
    dp: Range | None
    micro_batch: Range | None
    global_batch: Range | None
    seq_len: Range | None
    zero: Range | None
    schedule: Several | None
    recompute: Several | None
    recipe: Several | None
    optimizer: Several | None
    stack: Several | None
    method: Several | None
    loss: str | None
    dialect: str | None
    rank: int | None
    targets: str | tuple[str, ...] | None
    offload: str | None
    objective: str
    tokens: float | str | None
    price: float | str | None
    goodput: float


class TrainSweepOptions(TrainRunsOptions, total=False):
    """Options of `archsim.sweep_training`."""

    columns: Several | None  # all
    where: str | None  # a condition over columns, such as "fits and mfu > 0.4"
    pareto: Several | None  # columns of which nothing beats what stays


class ScalingOptions(TypedDict, total=False):
    """Options of `archsim.scaling`. Amounts are numbers, or text such as "70B", "1.4T" and "5.76e23"."""

    params: float | str | None
    tokens: float | str | None  # training tokens
    budget: float | str | None  # dollars to rent devices with
    hw: Any  # the device that they rent: a name, a path or a loaded `Hardware`
    mfu: float | None  # 0.4; model FLOP over the dense bf16 peak
    price: float | str | None  # as in `train`; the lowest rent on demand that is on file
    inference_tokens: float | str | None  # tokens to serve
    unique_tokens: float | str | None  # different tokens that there are
    law: Several  # all that apply
    extrapolate: bool  # False


class DesignArguments(TypedDict, total=False):
    """Options of the search behind `archsim.design`. Amounts are numbers or text such as "8B" and "1e23", times and
    sizes text such as "25ms" and "20GB"."""

    context: int  # 8192; prompt and answer together
    output_len: int  # 256
    batch: int  # 1
    weights: Several | None  # formats to try; bf16
    kv_cache_dtype: str | None
    engine: str  # generic
    params: float | str | None  # parameters: "6B-8B", or one number within 5 %
    active: float | str | None  # the same of active parameters
    memory: str | None  # at most
    tpot: str | None
    ttft: str | None
    sure: bool  # False; limits hold for the upper end of the interval
    train_flops: float | str | None  # training budget
    tokens: float | str | None  # training tokens, whatever they take
    train_usd: float | str | None  # dollars for rented devices
    train_hw: object  # the device that they rent; the one that serves
    law: str  # besiroglu2024
    extrapolate: bool  # False
    objective: Several | None  # loss, params, tpot, ttft, memory, kv, cost: the first first
    vary: Several | Mapping[str, object]  # "d_model=2048-8192+256", ...
    fix: Several | Mapping[str, object]  # "d_head=128", ...
    attention: Several | None  # full, window, window:1024:5/6, mla, mla:512
    ffn: Several | None  # dense, moe
    allow_mqa: bool  # False; any number of heads to a key/value head
    sample: int | None  # begin with so many combinations, not with all
    price: float | str | None  # of a device and hour


class DesignOptions(DesignArguments, total=False):
    """Options of `archsim.design`."""

    like: object  # a model whose norms, positions, activations and tables candidates have


class AdviseOptions(EstimateArguments, Changes, total=False):
    """Options of `archsim.advise`, and those of `estimate`."""

    context: int  # 8192; prompt and answer together
    objective_of: str  # tpot, ttft, memory, cost, context or train: what changes are ranked by
    price: float | str | None  # of a device and hour
    pairs: bool  # False; also pairs of the best eight


class ReportOptions(PageArguments, CostArguments, Changes, total=False):
    """Options of `archsim.report`."""

    weights: Several | None  # formats to compare
