"""A model on its devices under a serving engine, ready to be simulated: plan, cache, rules, times of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, log2
from operator import add
from typing import Literal, NamedTuple, cast, get_args

from archsim.base.diagnostics import quote
from archsim.base.errors import AnswerNo, ArchsimError, UsageError
from archsim.base.last_used import LastUsed
from archsim.base.notes import Note
from archsim.base.positive import check_positive
from archsim.counts.engine_formats import engine_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.towers import towers_in_memory
from archsim.counts.workload import Workload
from archsim.engines.names import DEFAULT_ENGINE, EngineChoice, choose_engine
from archsim.engines.overhead import NO_FLAGS, NO_HOST, EngineOverheads, ServerFlags, overheads_of
from archsim.engines.prompt_cut import cuts_prompts
from archsim.graph.step import Step
from archsim.importers.opening import open_model
from archsim.memory.engine_memory import DEFAULT_SEQS, DeviceMemory, EngineMemoryModel, EngineTensors, Settings
from archsim.memory.engine_rules import limits_of
from archsim.memory.plan_search import ChosenPlan, PlanSearch
from archsim.memory.tensors import PipelineStage
from archsim.predict.encoder import encoder_works
from archsim.predict.encoder_steps import EncodedItems, EncoderSteps
from archsim.predict.front_end import front_end_of, left_out
from archsim.predict.served_encoders import carried, encoded_items
from archsim.serving.acceptance import AcceptedDrafts, Drafting
from archsim.serving.autoscaling import ScaledFleet
from archsim.serving.cache import BlockCache, Cache
from archsim.serving.disaggregation import (
    DecodePool,
    DecodeScheduler,
    DisaggregatedFleet,
    Links,
    PrefillScheduler,
    SpeculativeDecodeScheduler,
    pool_records,
)
from archsim.serving.engine import Arriving, Replica
from archsim.serving.expected_answers import ExpectedAnswers
from archsim.serving.fleet import SHORTEST, Fleet, FleetPlan, Pool
from archsim.serving.front import NO_FRONT_END, FrontEnd, FrontQueue
from archsim.serving.gang import Gang, GangSeconds, RankRule, RankStep, rank_rule, slowest
from archsim.serving.load import Arrivals, Requests
from archsim.serving.micro_batches import MicroBatches
from archsim.serving.pipeline import Pipeline, StageScheduler
from archsim.serving.policy import Policy, PoolRules
from archsim.serving.prefix_cache import CACHES
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.resume_points import Resuming
from archsim.serving.scheduler import Chunk, Scheduler
from archsim.serving.speculation import Speculation, Sum, TableLimits, Tree, draft_model, eagle, mtp, ngram
from archsim.serving.speculative_scheduler import SpeculativeScheduler
from archsim.serving.step_parts import NO_GRAPHS, Captured
from archsim.serving.step_times import ExactSteps, StepTable, StepTimes
from archsim.spec.engine import Scheduler as SchedulerRules
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store, default_store
from archsim.timing.device import DeviceRates
from archsim.timing.duration import Evidence, weakest
from archsim.timing.step_pricer import StepPricer

PrefixUse = Literal["on", "off", "warm"]
"""What becomes of what earlier requests left in the cache."""

End = Literal[-1, 0, 1]
"""Step times at the low end of their 80 % interval, expected, or at the high end."""

ALONE = FleetPlan()
"""One replica."""

FIRST_DRAWS = Stream.of(0, "routing")
"""Of a router, where nothing is said."""

UNBOUNDED = 2**40
"""Tokens of a cache that does not grow with requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How replicas for answers differ from those for prompts. decode_hardware: None: the same. plans: degrees by name;
    empty: the server's. decode_settings: None: the server's. link: bytes per second of each device; None: of the fabric
    that joins all of them. by_layer: whether each layer of a cache is sent when it is computed.
    """

    decode_hardware: Hardware | None = None
    prefill_plan: dict[str, int] = field(default_factory=dict)
    decode_plan: dict[str, int] = field(default_factory=dict)
    decode_settings: Settings | None = None
    link: float | None = None
    by_layer: bool = False


Tables = LastUsed[int, StepTimes]
"""Times of steps, by the tokens of a sequence that they reach to."""

REACHES = 2
"""Tables of one server that are kept."""

LARGEST_STEP = 1 << 18
"""Tokens, and sequences, of a step up to which tables of times reach; larger ones are priced one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """What `simulate` is asked with beside the load, in the options' words. kv_tokens: of one replica's cache, in place
    of the memory plan's. chunked_prefill: on, off, or tokens of a prompt in one step at most. admission: the
    cache that must be free before a request starts, in place of the engine's rule. prefix_cache:
    on, off, or warm: on, and from the start with what several prompts begin with; None: as the engine has it. exact:
    price every step. front_end: the work before the engine (see `front_end.py`). drafting: speculative decoding. image,
    audio: what every prompt carries before its text, as of `estimate`. fleet: how many of it there are. pools: where
    prompts and answers are computed apart.
    """

    devices: int | str | None = "auto"
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    weights: str | None = None
    kv_cache_dtype: str | None = None
    engine: str = DEFAULT_ENGINE
    settings: Settings = field(default_factory=Settings)
    kv_tokens: int | None = None
    chunked_prefill: str | None = None
    admission: str | None = None
    prefix_cache: str | None = None
    exact: bool = False
    front_end: str | None = None
    drafting: Drafting | None = None
    image: str | None = None
    audio: str | None = None
    store: Store | None = None
    fleet: FleetPlan = ALONE
    pools: Pools | None = None
    flags: ServerFlags = NO_FLAGS

    @property
    def degrees(self) -> dict[str, int]:
        """The parallel degrees that were given."""
        given = {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}
        return {name: n for name, n in given.items() if n is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngine:
    """A server. kv_tokens: of one replica's cache. micro_batch: tokens that run at a time; 0: all of a step. prefix:
    whether prompts find what others left in the cache, `warm`: from the start. drafting: speculative decoding, by
    `drafter` where that is a model. left_out: the front end that runs under load show, where the server has none
    because nobody asked for it. encoded: images and sounds of every prompt, beside the tokens that requests say.
    chosen: whether archsim chose more than one device.
    """

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    engine: EngineChoice
    policy: Policy
    memory: DeviceMemory
    kv_tokens: int
    block: int
    prefix: PrefixUse
    pricer: StepPricer
    captured: Captured = NO_GRAPHS
    exact: bool = False
    drafting: Drafting | None = None
    drafter: StepPricer | None = None
    front: FrontEnd = NO_FRONT_END
    left_out: FrontEnd = NO_FRONT_END
    micro_batch: int = 0
    fleet: FleetPlan = ALONE
    decode: DecodeSide | None = None
    encoded: tuple[EncodedItems, ...] = ()
    chosen: bool = False
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    tables: Tables = field(default_factory=lambda: LastUsed(REACHES), repr=False, compare=False)

    def times(self, longest: int) -> StepTimes:
        """Times of its steps, with requests of up to `longest` tokens. Tables reach to the next power of two, so that
        loads that differ little share one.
        """
        longest += self.encoded_tokens
        if self.decode is not None:
            return TimesOfPools(replace(self, decode=None)._times(longest), self.decode.server._times(longest))
        return self._times(longest)

    @property
    def encoded_tokens(self) -> int:
        """Tokens of the images and sounds of a prompt."""
        return sum(items.prompt_tokens for items in self.encoded)

    def _times(self, longest: int) -> StepTimes:
        times = self._model_times(longest)
        return EncoderSteps(times, self.encoded) if self.encoded else times

    def _model_times(self, longest: int) -> StepTimes:
        """Times of the language model's steps."""
        if self.drafting is None and (self.exact or self.pricer.overheads.launch_s):
            return ExactSteps(self.pricer, captured=self.captured)
        reach = 1 << (longest - 1).bit_length()
        return self.tables.get(reach, lambda: self._tables(reach))

    def _tables(self, reach: int) -> StepTimes:
        """Tables for sequences of so many tokens."""
        most = (min(self.policy.budget, LARGEST_STEP), min(self.policy.max_seqs, LARGEST_STEP))
        limits = TableLimits(*most, reach, self.captured)
        if self.drafting is None:
            return limits.table(self.pricer, captured=self.captured)
        return self._speculation(self.drafting, limits)

    def _speculation(self, drafting: Drafting, limits: TableLimits) -> Speculation:
        """Times of steps that verify drafts."""
        if self.exact:
            raise UsageError("`--exact` computes steps without drafts", hints=("leave out --exact or --speculative",))
        if self.drafter is not None:
            return draft_model(self.pricer, self.drafter, drafting.drafts, limits)
        if drafting.method == "ngram":
            return ngram(self.pricer, drafting.drafts, limits)
        tree = None if drafting.tokens is None else Tree(drafting.topk, drafting.tokens)
        return {"mtp": mtp, "eagle": eagle}[drafting.method](self.pricer, drafting.drafts, limits, tree)

    @property
    def decodes_with(self) -> Drafting | None:
        """Speculative decoding, of the replicas that make answers."""
        return self.drafting if self.decode is None else self.decode.server.drafting

    @property
    def tokens_of_decode(self) -> int:
        """Tokens of a step that one decode takes."""
        return 1 if self.drafting is None else self.drafting.verified

    @property
    def devices(self) -> int:
        """Of all replicas."""
        second = 0 if self.decode is None else self.decode.server.plan.devices * self.fleet.decode_replicas
        return self.plan.devices * self.fleet.replicas + second

    def draws_of(self, stream: Stream) -> Stream:
        """Draws of the router of the second pool, which are its own."""
        return Stream(stream.key ^ 1)

    def run(
        self, requests: Requests, times: StepTimes, warmup: int = 0, draws: Stream = FIRST_DRAWS, samples: int = 0
    ) -> RunRecord:
        """One run of some requests. warmup: the first request that is measured. draws: of the router, and of drafts.
        samples: of the state over time, at most.
        """
        requests = self.carrying(requests)
        record = RunRecord.of(requests.input_len, requests.output_len, warmup=warmup, samples=samples)
        arrivals, fleet = Arrivals(requests), self.fleet
        if fleet.alone:
            rule = self.rank_rule("alone", draws)
            self.replica(times, requests, record, arrivals, self.scheduler_of(draws), rule).run()
            return record
        if self.decode is not None:
            self.disaggregated(self.decode, requests, times, record, draws).run()
            return record
        router = fleet.routing.router(requests, draws)
        schedulers = self.scheduler_of(draws)

        def replica(part: RunRecord, inbox: Arriving) -> Replica | Gang | Pipeline:
            return self.replica(times, requests, part, inbox, schedulers, self.rank_rule("alone", draws))

        pool = Pool(record, replica, router, self.shortest_s(times))
        if fleet.scaling is not None:
            ScaledFleet(arrivals, pool, fleet.scaling, delay_s=fleet.delay_s).run()
        else:
            Fleet(arrivals, pool, fleet.replicas, delay_s=fleet.delay_s, waits=requests.waits).run()
        return record

    def carrying(self, requests: Requests) -> Requests:
        """The requests with the images and sounds of every prompt. Raises UsageError for prompts that begin alike."""
        if not self.encoded:
            return requests
        if requests.prompts is not None:
            raise UsageError("`--image` and `--audio` are of prompts that share nothing: they stand before the text")
        more = self.encoded_tokens
        return replace(requests, input_len=[length + more for length in requests.input_len])

    def disaggregated(
        self, second: DecodeSide, requests: Requests, times: StepTimes, record: RunRecord, draws: Stream
    ) -> DisaggregatedFleet:
        """This server's replicas for prompts, another's for answers."""
        fleet, first = self.fleet, times.first if isinstance(times, TimesOfPools) else times
        then = times.then if isinstance(times, TimesOfPools) else times
        whole = [length == 1 for length in requests.output_len]
        routers = [fleet.routing.router(requests, stream) for stream in (draws, self.draws_of(draws))]
        records, decodes = pool_records(record), second.server.decode_scheduler_of(draws)

        def prefill(part: RunRecord, inbox: Arriving) -> Replica | Gang | Pipeline:
            rule = self.rank_rule("prompts", draws)
            return self.replica(first, requests, part, inbox, partial(PrefillScheduler, whole=whole), rule)

        def decode(part: RunRecord, inbox: Arriving) -> Replica | Gang | Pipeline:
            rule = second.server.rank_rule("answers", draws)
            return replace(second.server, front=NO_FRONT_END).replica(then, requests, part, inbox, decodes, rule)

        pools = (Pool(records[0], prefill, routers[0], self.shortest_s(first)),
                 DecodePool(records[1], decode, routers[1], second.server.shortest_s(then)))  # fmt: skip
        links = Links(second.link * self.plan.devices, second.link * second.server.plan.devices)
        counts = (fleet.replicas, fleet.decode_replicas)
        return DisaggregatedFleet(
            Arrivals(requests), record, *pools, counts, links, second.size, layers=second.layers,
            room_first=second.server.policy.pools.room_first, delay_s=fleet.delay_s,
        )  # fmt: skip

    def rank_rule(self, role: Literal["alone", "prompts", "answers"], draws: Stream) -> RankRule | None:
        """By which the engine sends requests to data-parallel ranks, in one run; None: the usual one."""
        batching = self.engine.rules.scheduler.batching
        return None if batching is None else rank_rule(getattr(batching.ranks, role), Stream(draws.key ^ 2))

    def replica(
        self, times: StepTimes, requests: Requests, record: RunRecord, arrivals: Arriving,
        scheduler: SchedulerOf = Scheduler, rule: RankRule | None = None,
    ) -> Replica | Gang | Pipeline:  # fmt: skip
        """One replica with its front end, that takes what arrives of some requests. rule: of data-parallel ranks."""
        policy = replace(self.policy, ignores_eos=requests.ignore_eos, shares_prefixes=self.prefix != "off")
        entry = arrivals if self.front.nothing else FrontQueue(arrivals, self.front, record)
        if self.micro_batch:
            times = MicroBatches(times, self.micro_batch, self.plan.pp)
        if self.plan.pp > 1 and self.policy.in_flight != "one":
            split = self.policy.in_flight == "split"
            stages = StageScheduler.batches(policy, self.cache(requests), record, self.plan.pp, split=split)
            return Pipeline(stages, times, entry)
        ranks = [scheduler(policy, self.cache(requests), record) for _ in range(self.plan.dp)]
        return Replica(ranks[0], times, entry) if len(ranks) == 1 else Gang(ranks, gang_seconds(times), entry, rule)

    def scheduler_of(self, draws: Stream) -> SchedulerOf:
        """Makes the scheduler of one data-parallel rank."""
        if self.drafting is None:
            return Scheduler
        return partial(SpeculativeScheduler, accepts=_accepted(self.drafting, draws), drafts=self.drafting.verified - 1)

    def decode_scheduler_of(self, draws: Stream) -> SchedulerOf:
        """The same of a rank that makes answers alone."""
        if self.drafting is None:
            return DecodeScheduler
        accepts = _accepted(self.drafting, draws)
        return partial(SpeculativeDecodeScheduler, accepts=accepts, drafts=self.drafting.verified - 1)

    def shortest_s(self, times: StepTimes) -> float:
        """No step takes less."""
        step: list[RankStep] = [(1, 1, ()), *[(0, 0, ())] * (self.plan.dp - 1)]
        seconds = times.seconds(1, 1, ()) if self.plan.dp == 1 else gang_seconds(times)(step)
        return SHORTEST * seconds

    def cache(self, requests: Requests) -> Cache:
        """The cache of one replica before the first of these requests."""
        if self.prefix == "off":
            return BlockCache(self.kv_tokens, self.block)
        batching = self.engine.rules.scheduler.batching
        rules = None if batching is None else batching.prefix
        kind = CACHES["blocks" if rules is None else rules.kind]
        cache = kind(self.kv_tokens, self.block, requests.input_len, requests.prompts, self.resuming)
        if self.prefix == "warm":
            cache.fill(requests.after)
        return cache

    @property
    def resuming(self) -> Resuming | None:
        """Where layers with windows or states let a prompt go on; None: wherever its tokens are found."""
        batching = self.engine.rules.scheduler.batching
        rules = None if batching is None else batching.prefix
        if rules is None:
            return None
        stage = self.memory.stage
        for points, need in (
            (rules.states, int(stage.keeps_states)),
            (rules.windows, -(-(stage.window - 1) // self.block)),
        ):
            if points is not None and need > 0:
                return Resuming(need, points.prompts, points.answers, points.junctions)
        return None

    def usual_steps(self, running: float, prompt: int, answer: int) -> UsualStep:
        """A step in which so many requests decode, beside a prompt (cut to a step), all of the sizes of `half_octave`:
        loads that differ little share the tables of its ends.
        """
        ranks, new = self.plan.dp, self.tokens_of_decode
        batch = half_octave(running / ranks / (self.plan.pp if self.policy.in_flight != "one" else 1))
        prompt, answer = half_octave(prompt + self.encoded_tokens), half_octave(answer)
        beside = min(batch, self.policy.max_seqs - 1, (self.policy.budget - 1) // new)  # the prompt is one as well
        context, chunk = prompt + max(1, answer // 2), max(1, min(prompt, self.policy.budget - beside * new))
        decode, first = Step.decode(batch * ranks, context), Step.prefill(ranks, chunk)
        both = Step.mixed(decode, first) if self.policy.mixes else first
        times = [self.pricer.price(step).duration for step in (decode, both)]
        alone, mixed = (float(time.ideal / time.expected) for time in times)
        evidence = weakest([time.evidence for time in times])
        return UsualStep(beside, beside * (context - 1), [(chunk, 0)], (alone, mixed), evidence)


def half_octave(number: float) -> int:
    """The nearest whole number to a power of the root of 2, at least 1, as of 1, 2, 3, 4, 6, 8, 11, 16."""
    return round(2 ** (round(2 * log2(max(number, 1))) / 2))


def _accepted(drafting: Drafting, draws: Stream) -> AcceptedDrafts:
    """The drafts that a replica accepts."""
    return AcceptedDrafts(drafting.accepted, Stream.of(draws.key, "acceptance"))


SchedulerOf = Callable[[Policy, Cache, RunRecord], Scheduler]
"""Makes the scheduler of a replica."""


@dataclass(frozen=True, slots=True)
class DecodeSide:
    """Where answers are made. link: bytes per second that a device sends or receives caches with. size: bytes of the
    cache of a prompt of so many tokens. layers: parts in which it is sent while the prompt is computed; 1: afterwards.
    """

    server: ServedEngine
    link: float
    size: Callable[[int], float]
    layers: int = 1


@dataclass(frozen=True, slots=True)
class TimesOfPools:
    """Times of two pools; asked for a step, that of the first."""

    first: StepTimes
    then: StepTimes

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        return self.first.seconds(decodes, context, chunks)


class UsualStep(NamedTuple):
    """A step like most: sequences that decode and their cached tokens, and a chunk. ideal: share of its time at the
    speed of light, without and with the chunk. evidence: what its time rests on.
    """

    decodes: int
    context: int
    chunks: list[Chunk]
    ideal: tuple[float, float]
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class ScaledSteps:
    """Times by factors: of steps that decode alone, and of steps with prompts."""

    times: StepTimes
    decode: float
    prompts: float

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        return self.times.seconds(decodes, context, chunks) * (self.prompts if chunks else self.decode)


def at_end(times: StepTimes, like: UsualStep, end: End, then: UsualStep | None = None) -> StepTimes:
    """Times in a world in which a step like this one is at an end of its 80 % interval; errors of steps go together.
    then: a usual step of the second of two pools; None: the same.
    """
    if end == 0:
        return times
    if isinstance(times, TimesOfPools):
        return TimesOfPools(at_end(times.first, like, end), at_end(times.then, then or like, end))
    name: Literal["low", "high"] = "low" if end < 0 else "high"
    step = (like.decodes, like.context, like.chunks)
    if isinstance(times, EncoderSteps):
        return times.at(name, at_end(times.times, like, end))
    if isinstance(times, StepTable):
        return times.at(name, step)
    if isinstance(times, Speculation):  # drafts err as the steps that verify them
        verify = times.verify
        assert isinstance(verify, StepTable)
        end_s = verify.at(name, step)
        alone = (max(1, like.decodes), max(1, like.context), ())
        factors = [end_s.seconds(*each) / verify.seconds(*each) for each in (alone, step)]
        return ScaledSteps(times, *factors)
    assert isinstance(times, ExactSteps)
    return ExactSteps(times.pricer, new=times.new, captured=times.captured, end=name)


def at_light(times: StepTimes, steps: UsualStep, then: UsualStep) -> StepTimes:
    """Times with steps at the speed of light. then: a usual step of the second of two pools."""
    if isinstance(times, TimesOfPools):
        return TimesOfPools(ScaledSteps(times.first, *steps.ideal), ScaledSteps(times.then, *then.ideal))
    return ScaledSteps(times, *steps.ideal)


def tables_of(times: StepTimes) -> Iterator[StepTable]:
    """All tables that times of steps are looked up in."""
    match times:
        case StepTable():
            yield times
        case EncoderSteps() | ScaledSteps():
            yield from tables_of(times.times)
        case TimesOfPools():
            for pool in (times.first, times.then):
                yield from tables_of(pool)
        case Speculation():
            for steps in (times.verify, times.first, times.further):
                if steps is not None:
                    yield from tables_of(steps)
        case Sum():
            for _, steps in times.terms:
                yield from tables_of(steps)


def gang_seconds(times: StepTimes) -> GangSeconds:
    """Steps of data-parallel ranks together."""
    if isinstance(times, EncoderSteps):
        return partial(times.gang_seconds, gang_seconds(times.times))
    return times.gang_seconds if isinstance(times, StepTable) else slowest(times)


def evidence_of(steps: UsualStep) -> Evidence:
    """What the times rest on."""
    return steps.evidence


def serve(model: Model, hardware: Hardware, request: ServerRequest, load: Workload) -> ServedEngine:
    """The server that is asked for. load: one usual request, which the devices must hold.

    Raises UsageError for engines whose scheduling is not known, InvalidPlan, AnswerNo where nothing fits.
    """
    if model.architecture != "decoder":
        raise UsageError(
            f"{model.name} is not a decoder: only decoders run in continuous batches",
            hints=("`archsim estimate` times a single batch",),
        )
    runs_on = engine_for(model, request.weights, request.engine)
    engine = choose_engine(runs_on.engine)
    formats = choose_formats(model, request.weights, request.kv_cache_dtype, engine=runs_on.engine)
    works = encoder_works(model, request.image, request.audio)
    load = replace(load, input_len=load.input_len + sum(work.prompt_tokens for work in works))
    encoding = tuple(work.tower.name for work in works)
    settings = replace(request.settings, parts=(*request.settings.parts, *encoding))
    tensors = EngineTensors(model, hardware, formats, engine, settings)
    policy = policy_of(tensors, request.chunked_prefill, request.admission)
    flags = request.flags
    policy = replace(policy, wait_steps=flags.wait_steps, wait_tokens=ceil(flags.wait_share * policy.budget))
    memory = EngineMemoryModel(tensors, load, StepGraphs.shared(model, formats))
    search = PlanSearch(memory, DeviceRates(hardware), request.store)
    chosen = _chosen(search, request)
    if request.kv_tokens is not None and request.kv_tokens > UNBOUNDED:
        raise UsageError(f"`--kv-tokens` is at most {UNBOUNDED:,}, not {quote(str(request.kv_tokens), 40)}")
    if not chosen.memory.fits and request.kv_tokens is None:
        raise AnswerNo(
            f"{model.name} does not fit {chosen.plan.devices} × {hardware.name} with one request of "
            f"{int(memory.length):,} tokens",
            hints=(*_enough(search), "`archsim fit` says what would make it fit"),
        )
    _check_plan(chosen.plan, request)
    policy = of_replica(policy, tensors, chosen.plan, drafts=request.drafting is not None)
    store = request.store or default_store()
    overheads = overheads_of(engine.name, engine.version, measured=store.engines, document=engine.rules)
    pricer = StepPricer.of(model, hardware, formats, overheads, chosen.plan, graphs=memory.graphs, store=store)
    found = memory.kv_tokens(chosen.plan)
    prefix = prefix_use(tensors, request.prefix_cache, chosen.memory.stage) if found is not None else "off"
    policy = limited_by_states(policy, chosen.memory, prefix)
    tokens = request.kv_tokens or (UNBOUNDED if found is None else found)
    pools = request.fleet.decode_replicas > 0
    encoded = encoded_items(model, hardware, overheads, chosen.plan, works, store)
    front = request.front_end, engine.name, overheads, store, hardware.vendor
    return ServedEngine(
        model=model, hardware=hardware, plan=chosen.plan, formats=formats, engine=engine, policy=policy,
        memory=chosen.memory, kv_tokens=tokens, block=tensors.paging.block, pricer=pricer, exact=request.exact,
        prefix=prefix,
        drafting=request.drafting, front=front_end_of(*front, pools=pools), left_out=left_out(*front, pools=pools),
        drafter=_drafter(request, hardware, overheads, chosen.plan, engine, store),
        captured=captured_of(tensors, policy, chosen.plan), fleet=request.fleet,
        micro_batch=tensors.tokens if tensors.rules.scheduler.batching.batch_tokens else 0,  # type: ignore[union-attr]
        encoded=encoded, chosen=str(request.devices) == "auto" and not request.degrees and chosen.plan.devices > 1,
        assumptions=(
            *carried(encoded), *runs_on.assumptions, *engine.notes, *towers_in_memory(model, formats, tensors.towers),
            *formats.assumptions,
        ),
        warnings=(*runs_on.warnings, *hardware.warnings),
    )  # fmt: skip


def _drafter(
    request: ServerRequest,
    hardware: Hardware,
    overheads: EngineOverheads,
    plan: Plan,
    engine: EngineChoice,
    store: Store,
) -> StepPricer | None:
    """The pricer of the model that drafts, on the same devices, without a host of its own."""
    if request.drafting is None or not request.drafting.model:
        return None
    model, _ = open_model(request.drafting.model)
    formats = choose_formats(model, None, request.kv_cache_dtype, engine=engine.name)
    return StepPricer.of(model, hardware, formats, overheads._replace(host=NO_HOST), plan, store=store)


def _check_plan(plan: Plan, request: ServerRequest) -> None:
    """Raises UsageError for what is not simulated over the stages of a pipeline."""
    if plan.pp == 1:
        return
    others = {
        "data-parallel ranks": plan.dp > 1, "drafts": request.drafting is not None,
        "pools for prompts and answers": request.fleet.decode_replicas > 0,
    }  # fmt: skip
    for name, asked in others.items():
        if asked:
            raise UsageError(
                f"{name} over {plan.pp} pipeline stages are not simulated",
                hints=("`--tp` for the devices of a replica, without `--pp`",),
            )


def captured_of(tensors: EngineTensors, policy: Policy, plan: Plan) -> Captured:
    """Sizes of the graphs that the engine captures on this device; none where it runs without."""
    if tensors.settings.enforce_eager:
        return NO_GRAPHS
    largest = largest_graph(tensors, plan)
    return Captured.of(tensors.rules.scheduler.captured, policy.max_seqs, largest, tensors.model.name)


def largest_graph(tensors: EngineTensors, plan: Plan) -> int:
    """The largest captured batch of the device, of wide plans another."""
    limits = limits_of(tensors.rules, tensors.hardware)
    return limits.graphs_wide if limits.graphs_wide and plan.tp * plan.dp >= WIDE else limits.graphs


WIDE = 4
"""Devices from which on an engine captures larger batches (`graphs_wide` of its limits)."""


ROOMS = {"chunk": "chunk", "prompt": "prompt", "answer": "prompt_and_answer", "expected": "expected"}
"""`--admission` -> the rule of an engine document."""


def policy_of(tensors: EngineTensors, chunked_prefill: str | None = None, admission: str | None = None) -> Policy:
    """The rules of an engine's document, with its limits on this device. Raises UsageError where it has none."""
    rules = tensors.rules.scheduler
    batching = rules.batching
    if batching is None:
        version = f" {tensors.engine.version}" if tensors.engine.version else ""
        raise UsageError(
            f"how {tensors.rules.title}{version} schedules requests is not known here",
            hints=(
                "`--engine vllm`, `sglang`, `trtllm` or `generic`",
                "`archsim estimate --concurrency N` for its steady state",
            ),
        )
    context = tensors.model.max_context or 0
    tokens = tensors.settings.max_num_batched_tokens or batching.batch_tokens or tensors.tokens
    seqs = tensors.seqs_limit or min(batching.seqs or DEFAULT_SEQS, tensors.tokens)
    if admission is not None:
        if str(admission).lower() not in ROOMS:
            raise UsageError(f"`--admission` is {', '.join(ROOMS)}, not {quote(str(admission))}")
        batching = batching.model_copy(update={"room": ROOMS[str(admission).lower()]})
    if tensors.settings.max_prefill_tokens:
        if not batching.prompt_tokens:
            raise UsageError(
                f"{tensors.engine.name}: no limit on the prompt tokens of a step beside that on all its tokens",
                hints=("leave out `--max-prefill-tokens`, or lower `--max-num-batched-tokens`",),
            )
        batching = batching.model_copy(update={"prompt_tokens": tensors.settings.max_prefill_tokens})
    if batching is not rules.batching:
        rules = rules.model_copy(update={"batching": batching})
    policy = batching_policy(rules, seqs, tokens, context, chunked_prefill)
    if not policy.chunked and tensors.rules.memory.activations.least_step:  # a prompt runs whole
        return replace(policy, budget=max(tokens, context))
    return policy


def of_replica(policy: Policy, tensors: EngineTensors, plan: Plan, *, drafts: bool) -> Policy:
    """The limits of one replica of the attention, where those of an engine are of all together. drafts: speculative
    decoding: where nobody states a limit, some engines then run fewer requests.
    """
    batching = tensors.rules.scheduler.batching
    assert batching is not None
    most, tokens = tensors.seqs_limit, policy.budget
    if most is None and drafts and batching.seqs_with_drafts:
        policy = replace(policy, max_seqs=min(policy.max_seqs, max(batching.seqs_with_drafts // plan.dp, 1)))
    elif most is not None and "seqs" in batching.divided:
        policy = replace(policy, max_seqs=min(policy.max_seqs, max(most // plan.dp, 1)))
    return replace(policy, budget=max(tokens // plan.dp, 1)) if "tokens" in batching.divided else policy


def limited_by_states(policy: Policy, memory: DeviceMemory, prefix: PrefixUse) -> Policy:
    """The rules where recurrent states have a pool of their own: it bounds the requests that run."""
    most = memory.requests_of_states(prefixes=prefix != "off")
    return policy if most is None else replace(policy, max_seqs=max(min(policy.max_seqs, most), 1))


def batching_policy(
    rules: SchedulerRules, max_seqs: int, budget: int, context: int, chunked_prefill: str | None = None
) -> Policy:
    """The rules of a document with limits of sequences and tokens, for models of so many tokens of context."""
    batching = rules.batching
    assert batching is not None
    if cuts_prompts(batching, context) and not batching.chunked and (chunked_prefill or "on") != "off":
        batching = batching.model_copy(update={"first": "running", "chunked": True})
    chunked, longest = _chunking(chunked_prefill, batching.chunked, batching.longest_chunk)
    ratio = batching.new_token_ratio
    return Policy(
        max_seqs=max_seqs, budget=budget, first=batching.first,
        mixes=rules.chunked_prefill_with_decode and batching.first == "running",
        chunked=chunked, longest_chunk=longest, prompt_tokens=batching.prompt_tokens or 0, room=batching.room,
        watermark=batching.watermark,
        expected=ExpectedAnswers(**ratio.model_dump()) if ratio else ExpectedAnswers(),
        gives_way=batching.gives_way, requeue=batching.requeue, places_until=batching.places_until,
        admit_after_preemption=batching.admit_after_preemption, ahead=batching.ahead, in_flight=batching.in_flight,
        pools=PoolRules(**batching.pools.model_dump()),
    )  # fmt: skip


def prefix_use(tensors: EngineTensors, asked: str | None, stage: PipelineStage) -> PrefixUse:
    """`--prefix-cache on|off|warm`, or the engine's default for these layers. Raises UsageError for anything else."""
    batching = tensors.rules.scheduler.batching
    rules = None if batching is None else batching.prefix
    usual = rules is not None and rules.default
    if rules is not None and rules.states is not None and stage.keeps_states:
        usual = usual and rules.states.default
    text = ("on" if usual else "off") if asked is None else str(asked).strip().lower()
    for use in get_args(PrefixUse):
        if text == use:
            return cast(PrefixUse, use)
    raise UsageError(f"`--prefix-cache` is on, off or warm, not {asked!r}")


def _chunking(asked: str | None, chunked: bool, longest: int) -> tuple[bool, int]:
    """`--chunked-prefill on|off|N`: whether prompts are cut, and the longest chunk."""
    if asked is None:
        return chunked, longest
    text = str(asked).strip().lower()
    if text in ("on", "off"):
        return text == "on", longest
    if not text.isdecimal() or not 0 < int(text[:12]) < 2**31:
        raise UsageError(f"`--chunked-prefill` is on, off or a number of tokens, not {asked!r}")
    return True, int(text)


def _chosen(search: PlanSearch, request: ServerRequest) -> ChosenPlan:
    """The plan that is asked for, or the fewest devices that hold a request."""
    check_positive(**request.degrees)
    start, fixed = search.start(**request.degrees), frozenset(request.degrees)
    auto = request.devices is None or str(request.devices).lower() == "auto"
    if auto and not {"tp", "pp"} & fixed:
        return search.smallest(start, fixed)
    return search.plan_on(None if auto else request.devices, start, fixed)


def _enough(search: PlanSearch) -> tuple[str, ...]:
    """The hint that names the fewest devices which hold a request, where any do."""
    try:
        found = search.smallest(search.start(), frozenset())
    except ArchsimError:
        return ()
    return (f"the fewest devices that hold it: `--devices {found.plan.devices}`",)


def usual_request(requests: Requests) -> Workload:
    """The mean prompt and answer of some requests."""
    count = len(requests)
    means = (max(1, round(sum(column) / count)) for column in (requests.input_len, requests.output_len))
    prompt, answer = means
    return Workload(batch=1, input_len=prompt, output_len=answer)


def longest_request(requests: Requests) -> int:
    """Tokens of the longest prompt with its answer."""
    longest: int = max(map(add, requests.input_len, requests.output_len))
    return longest
