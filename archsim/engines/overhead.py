"""What an engine does around its kernels: which kernels it has, how it launches them, and its own time per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from archsim.base.json_types import JsonMapping
from archsim.base.number import Num, maximum
from archsim.base.version import newest_until
from archsim.engines.names import DEFAULT_ENGINE
from archsim.engines.prompt_cut import cuts_prompts

if TYPE_CHECKING:
    from archsim.spec.engine import Engine, Scheduler


Span = tuple[float, float, float]
"""A value and the ends of its 80 % interval."""


class HostWork(NamedTuple):
    """What the host does for a step while the device waits, with its 80 % interval; it does not scale with the device.

    step_s: for any step. sequence_s: beyond that for each sequence that runs. launch_s: for each launch, with all that
    it does around it, in steps with prompts that no captured graph holds: a device that is faster waits for them; 0:
    it never does. whole_launch_s: the same where such steps are compiled as one graph (`ServerFlags`). Each as (value,
    low, high) in seconds.
    """

    step_s: Span = (0.0, 0.0, 0.0)
    sequence_s: Span = (0.0, 0.0, 0.0)
    launch_s: Span = (0.0, 0.0, 0.0)
    whole_launch_s: Span = (0.0, 0.0, 0.0)

    def time(self, sequences: Num, end: int = 0) -> Num:
        """Seconds of a step of so many sequences on a replica. end: 0 the value, 1 low, 2 high."""
        return self.step_s[end] + self.sequence_s[end] * sequences

    @property
    def of_whole_graphs(self) -> HostWork:
        """Of a server that compiles steps with prompts as one graph; the same where nothing is known of such."""
        return self._replace(launch_s=self.whole_launch_s) if self.whole_launch_s[0] else self

    def waiting_s(self, launches: Num, kernels_s: Num, end: int = 0) -> Num:
        """Seconds that a device waits for so many launches of kernels that take `kernels_s`, where no captured graph
        holds them. end: as of `time`.
        """
        return maximum(0.0, self.launch_s[end] * launches - kernels_s)


class FirstToken(NamedTuple):
    """What stands between a request and its first token.

    front_s: seconds before and after the engine's steps: HTTP, tokenizer, detokenizer, waiting for the first step;
    measured of whole runs. line: share of the requests that wait in the line of all prompts: those that start together,
    a tenth of a run that sends ten requests for each in flight, or all where prompts run between the steps of decodes,
    as answers of one length then also end together. off: ends of the 80 % interval, in log. one_length_s: front_s of
    sweeps whose requests are all of one length; 0: the same. one_length_prompts: prompts of others that these wait for,
    since they come in step.
    """

    front_s: float = 0.03
    line: float = 0.1
    off: tuple[float, float] = (-0.6, 0.75)
    one_length_s: float = 0.0
    one_length_prompts: float = 0.0


FusedSums = tuple[str, tuple[tuple[int, float], ...]]
"""An engine whose kernels do an all-reduce and the norm after it, and MiB of a rank's tensor by ranks up to which."""


class ServerFlags(NamedTuple):
    """Options of a server beside its defaults. captured: tokens of the largest captured graph of steps with
    prompts; None: the default. whole_graph: steps with prompts are compiled as one graph and none of them is captured
    (vLLM's `cudagraph_mode` FULL_DECODE_ONLY without `splitting_ops`). wait_steps: steps that the first prompt in line
    lets pass, so that others run with it (TensorRT-LLM's `batch_wait_timeout_iters`). host: the way in which it drives
    the device, where that is not its version's (vLLM's `--async-scheduling`); it then schedules a step ahead.
    all_reduce: of an all-reduce that also does the norm, the engine whose kernels run, and MiB by ranks up to which.
    wait_share: of the tokens of a step, below which prompts let steps pass (`batch_wait_max_tokens_ratio`).
    """

    captured: int | None = None
    whole_graph: bool = False
    wait_steps: int = 0
    host: str = ""
    all_reduce: FusedSums = ("", ())
    wait_share: float = 1.0


NO_HOST, FIRST_TOKEN, NO_FLAGS = HostWork(), FirstToken(), ServerFlags()
"""Of steps that wait for no host, and of engines of which nothing is known."""


class ExpertExchange(NamedTuple):
    """How tokens reach experts on other ranks: as `exchange` in the engine's document."""

    kernels: Literal["all_to_all", "expert_parallelism"] = "all_to_all"
    gathered: int = 0


COLLECTIVE_LIBRARY = ExpertExchange()


ANY_DEVICE = "any"
"""The key of limits that hold on whatever device a server runs."""


class FusedAllReduce(NamedTuple):
    """All-reduces that run in one kernel with the norm after them: as `all_reduce` in the engine's document."""

    kernels: str = ""
    up_to_mib: Mapping[str, Mapping[int, float]] = MappingProxyType({})

    def on(self, capability: str | None) -> FusedSums:
        """The engine whose kernels run on a device of a compute capability, and by ranks MiB up to which."""
        limits = self.up_to_mib.get(capability or "") or self.up_to_mib.get(ANY_DEVICE, {})
        return (self.kernels, tuple(limits.items())) if limits else ("", ())


NO_FUSED_ALL_REDUCE = FusedAllReduce()


class EngineOverheads(NamedTuple):
    """One engine at one version.

    kernels, version: the engine whose measured kernels stand for it. fused_qkv: linear layers that read the same
    activation (QKV, gate and up) run as one GEMM. chunked_prefill_with_decode: prompts share steps with decodes.
    composition: what a composed step may be off beyond its kernels, as logarithms of both ends. host: its work for a
    step. launch_s: host time of a launch where steps are not captured as a graph (0: captured). accumulate: what
    products of 16-bit operands add up in. quantised_before, ported, experts_also, int8_alone: as in the engine's
    document. first_token: what TTFT holds beyond its steps. cpu, exchange, all_reduce, scans: how the engine runs a
    graph on a processor, how its tokens reach experts on other ranks, which all-reduces also do the norm, and where
    decodes of delta rules run beside prompts: as in its document.
    scheduler: its rules of steps, by which long prompts are cut; None: they are not known. flags: what the server was
    told. hosts: the host's work by other ways to drive the device, which a flag may ask for.
    """

    name: str = DEFAULT_ENGINE
    chunked_prefill_with_decode: bool = True
    kernels: str = ""
    version: str = ""
    fused_qkv: bool = True
    composition: tuple[float, float] = (0.0, 0.0)
    host: HostWork = NO_HOST
    launch_s: float = 0.0
    accumulate: Literal["fp16", "fp32"] = "fp32"
    quantised_before: Mapping[str, str] = MappingProxyType({})
    ported: Mapping[str, str] = MappingProxyType({})
    experts_also: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    int8_alone: tuple[str, ...] = ()
    first_token: FirstToken = FIRST_TOKEN
    cpu: Literal["", "eager", "compiled"] = ""
    exchange: ExpertExchange = COLLECTIVE_LIBRARY
    all_reduce: FusedAllReduce = NO_FUSED_ALL_REDUCE
    scans: Literal["apart", "together"] = "apart"
    scheduler: Scheduler | None = None
    flags: ServerFlags = NO_FLAGS
    hosts: Mapping[str, HostWork] = MappingProxyType({})

    def started_with(self, flags: ServerFlags) -> EngineOverheads:
        """The overheads of a server with these flags."""
        host, (kernels, limits) = self.hosts.get(flags.host, self.host), flags.all_reduce
        return self._replace(
            flags=flags, host=host.of_whole_graphs if flags.whole_graph else host,
            all_reduce=FusedAllReduce(kernels, {ANY_DEVICE: dict(limits)}) if kernels else self.all_reduce,
        )  # fmt: skip

    def prompt_graphs(self, model: str) -> int | None:
        """Tokens of the largest captured graph of a model's steps with prompts; 0: none is, None: it is not known."""
        if self.flags.captured is not None:
            return self.flags.captured
        graphs = None if self.scheduler is None else self.scheduler.captured
        return graphs.largest(model) if graphs is not None and graphs.mixed else None

    def waiting_for_launches(self, launch_s: Span) -> EngineOverheads:
        """The overheads of a server that waits for so much host time of each launch in steps with prompts."""
        return self._replace(host=self.host._replace(launch_s=launch_s))

    def mixes_prompts(self, context: int) -> bool:
        """Whether prompts share steps with decodes for a model of so many tokens of context: not where they come first,
        and are not cut.
        """
        batching = None if self.scheduler is None else self.scheduler.batching
        first = batching is not None and batching.first == "prompts" and not cuts_prompts(batching, context)
        return self.chunked_prefill_with_decode and not first

    @property
    def scheduled_ahead(self) -> int:
        """Steps that are scheduled while the one before them runs; 0 where nothing is known of steps."""
        if self.flags.host:
            return 1
        batching = None if self.scheduler is None else self.scheduler.batching
        return 0 if batching is None else batching.ahead


def overheads_of(
    engine: str = DEFAULT_ENGINE,
    version: str = "",
    *,
    measured: Mapping[str, JsonMapping],
    document: Engine | None = None,
) -> EngineOverheads:
    """The overheads of an engine at a version: its document's, and what calibrations measured of its host.

    measured: of all engines, as calibrations state it. document: the engine's, where it is at hand.
    """
    if document is None:
        from archsim.spec.engine import load_engine

        document = load_engine(engine, version)
    kernels, own = document.time.kernels, measured.get(engine, {})
    mixed, fused = document.scheduler.chunked_prefill_with_decode, document.time.all_reduce
    return EngineOverheads(
        name=engine, kernels=kernels, version=version if kernels == engine else "",
        fused_qkv=document.time.fused_qkv, quantised_before=document.time.quantised_before, ported=document.time.ported,
        chunked_prefill_with_decode=mixed, experts_also=document.time.experts_also,
        int8_alone=document.time.int8_alone,
        launch_s=document.time.launch_us * 1e-6, accumulate=document.time.accumulate,
        composition=_composition(measured, own, document.time.host),
        host=_host_work(own, document.time.host), first_token=_first_token(own, mixed),
        cpu=document.time.cpu,
        exchange=ExpertExchange(document.time.exchange.kernels, document.time.exchange.gathered),
        all_reduce=NO_FUSED_ALL_REDUCE if fused is None else FusedAllReduce(fused.kernels, fused.up_to_mib),
        scans=document.time.scans,
        scheduler=document.scheduler, hosts={way: _host_work(own, way) for way in own.get("host", {})},
    )  # fmt: skip


HOST_NAMES = ("step_us", "sequence_us", "launch_us", "whole_launch_us")
"""The numbers of the host's work in calibrations, in the order of `HostWork`."""

USUAL_HOST = HostWork((5e-4, 1.5e-4, 2e-3), (1e-5, 0.0, 5e-5))
"""Of a serving engine of which no runs are known: half a millisecond a step, and ten microseconds a sequence."""


def _composition(measured: Mapping[str, JsonMapping], own: JsonMapping, way: str) -> tuple[float, float]:
    """What steps of an engine's way to drive the device are off beyond their kernels, else what those of all are."""
    found = own.get("composition", {}).get(way) or measured.get("composition", {})
    low, high = found.get("interval", (0.0, 0.0))
    return low, high


def _host_work(own: JsonMapping, way: str) -> HostWork:
    """The host's work for a step by an engine's way to drive the device."""
    if not way:
        return NO_HOST
    found = own.get("host", {}).get(way)
    if found is None:
        return USUAL_HOST
    return HostWork(*(_seconds(found.get(name, (0.0, 0.0, 0.0))) for name in HOST_NAMES))


def _seconds(span_us: Sequence[float]) -> Span:
    value, low, high = (number * 1e-6 for number in span_us)
    return value, low, high


def _first_token(own: JsonMapping, mixed: bool) -> FirstToken:
    """What was measured of an engine's first tokens, else usual figures; requests of one length whose prompts are not
    mixed with decodes start and end together.
    """
    usual = FIRST_TOKEN if mixed else FIRST_TOKEN._replace(line=1.0)
    found = own.get("first_token")
    if not found:
        return usual
    one_length_s = found.get("one_length_ms", 0.0) * 1e-3
    return usual._replace(
        front_s=found["front_ms"] * 1e-3, off=tuple(found["interval"]), one_length_s=one_length_s,
        one_length_prompts=found.get("one_length_prompts", 0.0) if mixed else 0.0,
    )  # fmt: skip


class FirstUse(NamedTuple):
    """Seconds that the first step of a benchmark waits with weights of a format, since a version of the engine."""

    weights: str
    version: str
    seconds: float


class FrontWork(NamedTuple):
    """What runs under load say of the way to an engine. request_s, token_s: seconds of its front end for a request and
    for each token of its prompt; workers: requests that it handles at once. first_use_s: what the first step of a
    benchmark waits for kernels that are compiled, loaded or tuned when they are first used; first_uses: those of
    formats and versions that have enough runs. Where prompts and answers have servers of their own: pools_s: what a
    first token waits for routers and handshakes; line_s: what each request takes of the server of its prompt alone, one
    after the other, for its handshake and its transfer; pools_first_use_s: in place of first_use_s; None: as that.
    """

    request_s: float
    token_s: float = 0.0
    workers: int = 16
    first_use_s: float = 0.0
    pools_s: float = 0.0
    line_s: float = 0.0
    pools_first_use_s: float | None = None
    first_uses: tuple[FirstUse, ...] = ()

    def of(self, weights: str, version: str, *, pools: bool) -> FrontWork:
        """That of a server with weights of a format and a version of the engine; without one, of the newest. pools:
        whether prompts and answers have servers of their own.
        """
        known = {one.version: one.seconds for one in self.first_uses if one.weights == weights}
        first_use_s = newest_until(known, version) if known else self.first_use_s
        if pools and self.pools_first_use_s is not None:
            first_use_s = self.pools_first_use_s
        return self._replace(first_use_s=first_use_s, pools_first_use_s=None, first_uses=())


def front_work_of(own: JsonMapping, first: FirstToken, vendor: str = "") -> FrontWork:
    """As measured of runs under load on a vendor's devices, whose hosts and software differ; of another vendor's, where
    it has no runs, those with most; else the front end that the closed form of the steady state has.
    """
    by_vendor = own.get("front_end")
    if not by_vendor:
        return FrontWork(first.front_s)
    found = by_vendor.get(vendor) or max(by_vendor.values(), key=lambda one: one["runs"])
    return FrontWork(
        found["request_us"] * 1e-6,
        found["token_us"] * 1e-6,
        found["workers"],
        found["first_use_ms"] * 1e-3,
        found.get("pools_ms", 0.0) * 1e-3,
        found.get("pools_line_ms", 0.0) * 1e-3,
        found["pools_first_use_ms"] * 1e-3 if "pools_first_use_ms" in found else None,
        tuple(FirstUse(weights, version, 1e-3 * milliseconds)
              for weights, versions in found.get("first_uses_ms", {}).items()
              for version, milliseconds in versions.items()),
    )  # fmt: skip
