"""Continuous batching in its steady state, in closed form.

`concurrency` requests are always in flight; while one answer of `osl` tokens is decoded, the prompts of the others that
take the places of finished ones are prefilled in the same steps. With B requests running,

    TPOT = t(B) + (B - 1) / osl · (t(B + prompt) - t(B))

where t(B) is a decode step at the mean context and t(B + prompt) the step that also prefills one prompt. An engine that
puts prompts before decodes and does not mix them lets requests of one length finish, and start, together: each then
waits for the prompts behind its own, (B - 1)/2 on average (public points of such an engine show 0.52 of the others).
Where lengths differ, requests end independently: the prompts that take their places in one step of decodes
share a step, and so share what it takes beside them. A place has one prompt in every so many steps of decodes
(`ServedLoad.cycle`), so that between its first and its last token a request waits for the prompts of all others but
those that run with its own, or while it waits for that. B answers take that many decode steps and B prompts; the share
of prompts in that is the utilisation: near one, queues decide, and no closed form is right. Where the prompts of all do
not fit the steps of their decodes, steps are full, and only as many requests run as fill them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, inf, log1p

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.number import Num
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.workload import Workload, checked_workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.engines.overhead import FIRST_TOKEN, NO_FLAGS, FirstToken, ServerFlags
from archsim.graph.step import Step
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, check_degrees
from archsim.timing.calibration import Store
from archsim.timing.classes.gemm import TILE
from archsim.timing.duration import Duration, weakest
from archsim.timing.prompt_steps import prompt_steps
from archsim.timing.step_pricer import StepPricer, StepTimer, engine_overheads

BUSIEST = 0.85
"""Utilisation above which no TTFT is given: small errors of capacity become errors of the queue a thousand times
as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """Requests of one length that are always in flight.

    concurrency: in flight. running: of these, how many decode at the same time, on all replicas. replicas: attention
    replicas that share the requests. stages: of a pipeline, each with requests of its own.
    chunked_prefill_with_decode: whether prompts are prefilled in the same steps as decodes. encoder: whether a prompt
    is the source of an encoder-decoder, which runs before any decode. limit: why no more requests run, in words.
    first_token: what TTFT holds beside steps. cached_len: tokens of each prompt that a prefix cache holds, which are
    read and not computed. one_length: whether all requests are of exactly these lengths, not of such a mean.
    source_len: tokens of each source where it is not as long as the prompt. step_tokens: of one step at most; 0: all.
    ahead: steps that are scheduled while the one before them runs. before: what encoders of images or sounds take with
    each prompt. prompt_graphs: tokens beyond which a step with prompts waits for its launches; None: none does.
    wait_steps: as of `ServerFlags`.
    """

    concurrency: int
    running: float
    input_len: int
    output_len: int
    replicas: int = 1
    stages: int = 1
    chunked_prefill_with_decode: bool = True
    encoder: bool = False
    limit: str = ""
    first_token: FirstToken = FIRST_TOKEN
    cached_len: int = 0
    one_length: bool = False
    source_len: int | None = None
    step_tokens: int = 0
    ahead: int = 0
    prompt_graphs: int | None = None
    before: Duration | None = None
    wait_steps: int = 0

    @property
    def per_replica(self) -> float:
        """Requests that run on one replica and stage at a time; each has at least its own."""
        return max(1.0, self.running / self.replicas / self.stages)

    @property
    def stage_batches(self) -> tuple[tuple[float, int], ...]:
        """Batches of all replicas that stand for the steps of a stage, and the share of each.

        Stages of a pipeline hold one request more or one fewer. From half a tile of a product's rows on, a step is as
        long as between those of whole tiles: kernels have smaller tiles for the rest.
        """
        each = max(float(self.replicas), self.running / self.stages)
        rows = each / self.replicas
        step = 1 if rows <= TILE / 2 else TILE / 2 if rows <= TILE else TILE
        apart = int(step * self.replicas) if step > 1 else 1
        fewer = int(each // apart) * apart
        if each == fewer:
            return ((1.0, fewer),)
        if apart == 1 and self.stages == 1:
            return ((1.0, max(self.replicas, round(each))),)
        share = (each - fewer) / apart
        return ((1 - share, fewer), (share, fewer + apart))

    @property
    def decode(self) -> Step:
        """A decode step of all replicas at the mean context."""
        return self.decode_of(max(self.replicas, round(self.running / self.stages)))

    def decode_of(self, batch: int) -> Step:
        """A decode step of so many requests on all replicas."""
        load = Workload(batch=batch, input_len=self.input_len, output_len=self.output_len)
        room = self.input_len + self.output_len - load.context
        return Step.decode(batch, load.context, room=room, source=self._source)

    @property
    def prompt(self) -> Step:
        """One prompt on every replica, but for what its cache holds."""
        if self.cached_len:
            return Step.prefill_chunk(self.input_len - self.cached_len, self.cached_len, self.replicas)
        return Step.prefill(self.replicas, self.input_len, self._source)

    @property
    def prompts(self) -> list[tuple[Num, Step]]:
        """The steps that one prompt on every replica takes, and how many there are of each."""
        return prompt_steps(self.prompt, self.step_tokens, self.replicas)

    @property
    def new(self) -> int:
        """Tokens of a prompt that are computed."""
        return self.input_len - self.cached_len

    @property
    def answers(self) -> int:
        """Tokens of an answer."""
        return max(self.output_len, 1)

    @property
    def cycle(self) -> float:
        """Steps of decodes from one prompt in a place to the next one. Beside decodes, a prompt's steps are among them.
        In steps of their own: an engine that schedules ahead has decided the step after the one in which a request
        ends, and that is one of decodes unless prompts waited when it did.
        """
        if self.one_length or self.encoder:
            return self.answers
        if self.is_mixed:
            return self.answers - 1 + float(sum(n for n, _ in self.prompts)) + self.ahead
        return max(self.answers - 1 + self.ahead * self._apart(self.answers), 1.0)

    def _apart(self, cycle: float) -> float:
        """How often a step that is scheduled when a request ends is one of decodes, where prompts have their own: after
        every step of decodes in which some have ended comes one of prompts, a step later.
        """
        some = self.per_replica / cycle * first_of_step(self.per_replica, cycle)
        return 1 / (1 + some)

    @property
    def others(self) -> float:
        """Prompts of others for each token of an answer after the first, on one replica."""
        others, cycle = self.per_replica - 1, self.cycle
        if self.one_length or self.encoder:
            return (others if self.chunked_prefill_with_decode else others / 2) / cycle
        if self.is_mixed:
            return others / cycle
        elsewhere = 1 + self.ahead * self._apart(cycle)  # with its own prompt, or while that waits, in steps of decodes
        return others * max(1 - elsewhere / cycle, 0.0) / max(self.answers - 1, 1)

    @property
    def mean_wait_steps(self) -> float:
        """Steps of decodes that a prompt lets pass on average where prompts wait for others: the first one in line
        `wait_steps` of them, those that come meanwhile half as many. None where no other request decodes.
        """
        more = self.wait_steps * self.per_replica / self.cycle
        return self.wait_steps * (1 + more / 2) / (1 + more) * min(max(self.per_replica - 1, 0.0), 1.0)

    @property
    def together(self) -> int:
        """Prompts of a step that has as many as a prompt usually finds, its own among them; 1 where each has its own.
        Requests of one length do not end independently.
        """
        if self.one_length or self.encoder or self.stages > 1:
            return 1
        usual = max(2, round(1 + self.per_replica / self.cycle))
        if not self.step_tokens:
            return usual
        room = self.step_tokens - (self.per_replica if self.is_mixed else 0)
        return max(1, min(usual, int(room // self.new)))

    def prompts_together(self, count: int) -> Step:
        """The step that prefills so many prompts on every replica, beside decodes where steps are mixed."""
        prompt = self.prompt
        many = replace(prompt, seqs=tuple(seqs._replace(batch=count * seqs.batch) for seqs in prompt.seqs))
        return Step.mixed(self.decode, many) if self.is_mixed else many

    @property
    def second_may_wait(self) -> bool:
        """Whether a step with two prompts waits for its launches: a third one then adds less than the second."""
        tokens = 2 * self.new + (self.per_replica if self.is_mixed else 0)
        waits = self.prompt_graphs is not None and self.prompt_graphs < tokens
        return waits and (not self.step_tokens or 3 * self.new < self.step_tokens)

    @property
    def fills(self) -> float:
        """Requests on one replica whose prompts and decodes fill all steps of mixed engines; infinite where steps have
        no limit, or prompts others.
        """
        if not self.step_tokens or not self.is_mixed or self.one_length:
            return inf
        return self.step_tokens * self.cycle / (self.answers - 1 + self.new)

    @property
    def is_mixed(self) -> bool:
        """Whether prompts are prefilled beside decodes, in the same steps."""
        return self.chunked_prefill_with_decode and not self.encoder

    @property
    def with_prompt(self) -> Step:
        """The step that prefills one prompt on every replica, with the decodes beside it where steps are mixed."""
        return self.prefill_step(self.decode)

    def prefill_step(self, decode: Step) -> Step:
        """The step that prefills one prompt on every replica, together with these decodes where steps are mixed."""
        return Step.mixed(decode, self.prompt) if self.is_mixed else self.prompt

    @property
    def _source(self) -> int | None:
        if not self.encoder:
            return None
        return self.input_len if self.source_len is None else self.source_len


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """The steady state. running: requests that decode at the same time on all replicas. ttft: None where `refusal`
    says why; front_s: of its seconds, those before and after the engine's steps. utilisation: share of the engine's
    time that goes into prompts. request: seconds of the whole system for each request that it answers. encoder: what
    the encoders of a request's images and sounds take, which is part of its prompt.
    """

    concurrency: int
    running: float
    tpot: Duration
    ttft: Duration | None
    refusal: str | None
    utilisation: float
    tokens_per_s: float
    request: Duration
    front_s: float = 0.0
    encoder: Duration | None = None
    assumptions: tuple[Note, ...] = ()

    def to_dict(self) -> JsonObject:
        """As in the JSON of `estimate --concurrency`."""
        return {
            "concurrency": self.concurrency, "running": self.running, "utilisation": self.utilisation,
            "tpot_s": self.tpot.expected, "tpot_low_s": self.tpot.low, "tpot_high_s": self.tpot.high,
            "ttft_s": self.ttft.expected if self.ttft else None,
            "ttft_low_s": self.ttft.low if self.ttft else None,
            "ttft_high_s": self.ttft.high if self.ttft else None, "ttft_refused": self.refusal,
            "ttft_front_s": self.front_s if self.ttft else None,
            "tokens_per_s": self.tokens_per_s, "evidence": self.tpot.evidence,
            **({} if self.encoder is None else {"encoder_s": self.encoder.expected}),
        }  # fmt: skip


def steady(
    model: Model, hardware: Hardware, *, concurrency: int, input_len: int, output_len: int, tp: int = 1, pp: int = 1,
    ep: int = 1, dp: int = 1, weights: str | None = None, kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE, most_running: float | None = None, formats: Formats | None = None,
    store: Store | None = None, one_length: bool = False, flags: ServerFlags = NO_FLAGS,
) -> SteadyState:  # fmt: skip
    """The steady state of `concurrency` requests of such a mean length. most_running: requests that the cache or the
    scheduler lets run at the same time; the rest wait. one_length: as of a `ServedLoad`. flags: of the server. Raises
    UsageError, InvalidPlan.
    """
    checked_workload(concurrency, input_len, output_len)
    plan = Plan(tp=tp, pp=pp, ep=ep, dp=dp, engine=choose_engine(engine).rules.name)
    check_degrees(model, plan)
    formats = formats or choose_formats(model, weights, kv_cache_dtype, engine=engine)
    overheads = engine_overheads(engine, store).started_with(flags)
    pricer = StepPricer.of(model, hardware, formats, overheads, plan, store=store)
    return steady_state_of(pricer, concurrency, input_len, output_len, most_running, one_length=one_length)


def steady_state_of(
    pricer: StepPricer, concurrency: int, input_len: int, output_len: int, most_running: float | None = None,
    limit: str = "", cached_len: int = 0, one_length: bool = False, source_len: int | None = None,
    encoders: Sequence[Duration] = (),
) -> SteadyState:  # fmt: skip
    """The steady state of the model, engine and plan of a pricer. limit: what sets `most_running`, in words.
    cached_len, one_length, source_len: as of a `ServedLoad`. encoders: what those of a request's images and sounds
    take.
    """
    running = float(concurrency if most_running is None else min(concurrency, most_running))
    if not running > 0:
        raise UsageError(f"`most_running` must be above 0, not {most_running!r}")
    load = served_load(pricer, concurrency, input_len, output_len, running, limit)
    before = composed(lambda *each: sum(each), *encoders) if encoders else None
    load = replace(load, cached_len=cached_len, one_length=one_length, source_len=source_len, before=before)
    return steady_state(pricer, load)


def served_load(
    pricer: StepPricer, concurrency: int, input_len: int, output_len: int, running: float, limit: str = ""
) -> ServedLoad:
    """The load of equal requests on the engine and plan of a pricer."""
    return ServedLoad(
        concurrency=concurrency, running=running, input_len=input_len, output_len=output_len,
        replicas=pricer.plan.dp, stages=pricer.plan.pp, encoder=pricer.graphs.model.encoder is not None,
        chunked_prefill_with_decode=pricer.overheads.mixes_prompts(pricer.graphs.model.max_context or 0), limit=limit,
        first_token=pricer.overheads.first_token, step_tokens=pricer.prompt_cut if pricer.plan.pp == 1 else 0,
        ahead=pricer.overheads.scheduled_ahead,
        prompt_graphs=pricer.prompt_graphs if pricer.overheads.host.launch_s[0] else None,
        wait_steps=pricer.overheads.flags.wait_steps,
    )  # fmt: skip


def steady_state(timer: StepTimer, load: ServedLoad) -> SteadyState:
    """The closed form, from a decode step, a step with one prompt on every replica, and one with several."""
    most = load.fills * load.replicas
    if load.running > max(most, load.replicas):
        load = replace(load, running=max(most, load.replicas), limit=f"steps of {load.step_tokens:,} tokens are full")
    return closed_form(load, *steps_of(timer, load), further=further_prompt(timer, load))


def further_prompt(timer: StepTimer, load: ServedLoad) -> Duration | None:
    """What each prompt after the first adds to a step; None where prompts do not share steps."""
    count = load.together
    if count < 2 or load.per_replica <= 1:
        return None
    if not load.second_may_wait:
        one, many = (timer.price(load.prompts_together(n)).duration for n in (1, count))
        return composed(lambda alone, all_s: max(all_s - alone, 0.0) / (count - 1), one, many)
    count, second = max(count, 3), second_of_further(load.per_replica, load.cycle)
    rest = (1 - second) / (count - 2)
    times = (timer.price(load.prompts_together(n)).duration for n in (1, 2, count))
    return composed(lambda alone, two, all_s: max(second * (two - alone) + rest * (all_s - two), 0.0), *times)


def steps_of(timer: StepTimer, load: ServedLoad) -> tuple[Duration, Duration, bool]:
    """A decode step, the step that prefills one prompt on every replica, and whether that is beside the decodes; on
    average over the batches that stand for the load. What a prompt adds counts as often as a batch has requests, so
    that a load between two batches is answered between the two.
    """
    batches = load.stage_batches
    mean = sum(share * batch for share, batch in batches)
    steps = [(share, batch / mean, load.decode_of(batch)) for share, batch in batches]
    decodes = [(share, timer.price(step).duration) for share, _, step in steps]
    prompts = [(share * often * n, time) for share, often, step in steps for n, time in _in_steps(timer, load, step)]
    if load.is_mixed:
        prompts += [
            (share * (1 - often), decode) for (share, often, _), (_, decode) in zip(steps, decodes, strict=True)
        ]
    return _weighted(decodes), _weighted(prompts), load.is_mixed


def _in_steps(timer: StepTimer, load: ServedLoad, decode: Step) -> list[tuple[float, Duration]]:
    """The times of the steps of one prompt, beside these decodes where steps are mixed, less the decodes of all steps
    but one.
    """
    parts = [(n, timer.price(Step.mixed(decode, step) if load.is_mixed else step).duration) for n, step in load.prompts]
    more = sum(n for n, _ in parts) - 1
    return [*parts, (-more, timer.price(decode).duration)] if load.is_mixed and more else parts


def _weighted(parts: Sequence[tuple[float, Duration]]) -> Duration:
    """Times that err alike, each so many times."""
    parts = [part for part in parts if part[0]]
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    scaled = [time.scaled(n) for n, time in parts]
    expected, low, high, ideal = (sum(values) for values in zip(*(time[:4] for time in scaled), strict=True))
    return Duration(expected, low, high, ideal, weakest([time.evidence for time in scaled]))


def closed_form(
    load: ServedLoad, step: Duration, prompt: Duration, mixed: bool, further: Duration | None = None
) -> SteadyState:
    """The steady state of a decode step, and of the step that prefills one prompt, beside the decodes if `mixed`.
    further: what each further prompt adds to such a step, where those that come together share one.
    """
    requests, cycle = load.per_replica, load.cycle
    if load.before is not None:
        prompt = composed(lambda time, encoder: time + encoder, prompt, load.before)
        further = further and composed(lambda time, encoder: time + encoder, further, load.before)

    def added(step_s: float, prompt_s: float, further_s: float, places: float) -> float:
        """Seconds that a prompt adds to the decodes, where those of so many places meet."""
        alone_s = max(prompt_s - step_s, 0.0) if mixed else prompt_s
        first = 1.0 if further is None else first_of_step(places, cycle)
        return first * alone_s + (1 - first) * further_s

    times = (step, prompt, further or prompt)
    tpot = composed(lambda t, p, f: t + load.others * added(t, p, f, requests - 1), *times)
    request = composed(lambda t, p, f: (cycle * t + requests * added(t, p, f, requests)) / load.running, *times)
    prompts = 1 - cycle * step.expected / (request.expected * load.running)  # share of the time
    refusal = refused(prompts, load)
    return SteadyState(
        concurrency=load.concurrency, running=load.running, tpot=tpot, refusal=refusal, utilisation=prompts,
        ttft=None if refusal else time_to_first_token(load, step, prompt), assumptions=_assumed(load, mixed),
        tokens_per_s=load.answers / request.expected, request=request, front_s=front_seconds(load),
        encoder=load.before,
    )  # fmt: skip


def front_seconds(load: ServedLoad) -> float:
    """Seconds of a first token before and after the engine's steps (see `FirstToken`)."""
    return (load.one_length and load.first_token.one_length_s) or load.first_token.front_s


def time_to_first_token(load: ServedLoad, step: Duration, prompt: Duration) -> Duration:
    """From sending to the first token, without a queue of requests that have no room.

    Most requests come while others decode: their own prompt runs next, after the rest of the step under way. Those that
    start together wait in the line of all prompts, half of it on average. What else takes time is measured of whole
    runs (see `FirstToken`), and so is the interval.
    """
    requests, shown = load.per_replica, load.first_token
    front_s = front_seconds(load)
    others = min(shown.one_length_prompts, (requests - 1) / 2) if load.one_length else 0.0
    share = min(1.0, requests / max(load.output_len, 1))  # of steps that have a prompt

    def first(step_s: float, prompt_s: float) -> float:
        """The own turn, E[t²] / 2E[t] over steps with and without a prompt before it, and the line's share."""
        mean, square = (share * prompt_s**n + (1 - share) * step_s**n for n in (1, 2))
        own = prompt_s + (square / mean / 2 if requests > 1 else 0.0) + load.mean_wait_steps * step_s
        line = max(prompt_s * (requests + 1) / 2, own)
        return front_s + own + (line - own) * shown.line + others * prompt_s

    found = composed(first, step, prompt)
    low, high = (found.expected * exp(end) for end in shown.off)
    return found._replace(low=max(min(found.low, low), prompt.ideal), high=max(found.high, high), ideal=prompt.ideal)


def first_of_step(places: float, cycle: float) -> float:
    """Share of the prompts that are the first of their step, where each place has one in every `cycle` steps, and none
    knows of the others.
    """
    return -expm1(places * log1p(-1 / cycle)) * cycle / places if cycle > 1 and places > 0 else 1 / max(places, 1.0)


def second_of_further(places: float, cycle: float) -> float:
    """Share of the prompts after the first of their step that are its second ones, where each place has a prompt in
    every `cycle` steps, and none knows of the others.
    """
    if cycle <= 1:
        return 0.0
    none = exp(places * log1p(-1 / cycle))
    further = places / cycle - 1 + none
    return (1 - none - none * places / (cycle - 1)) / further if further > 1e-9 else 1.0


def composed(make: Callable[..., float], *times: Duration) -> Duration:
    """A time that follows from others; its ends are those of all together (errors go together)."""
    expected, low, high, ideal = (make(*map(float, each)) for each in zip(*(time[:4] for time in times), strict=True))
    return Duration(expected, low, high, ideal, weakest([time.evidence for time in times]))


def _assumed(load: ServedLoad, mixed: bool) -> tuple[Note, ...]:
    how = "share steps with" if mixed else "run between the steps of"
    text = (
        f"prompts {how} running decodes; every request has {load.input_len:,} prompt and "
        f"{load.output_len:,} answer tokens; {_shared(load)}; {load.first_token.line:.0%} of the requests start "
        "together, as in benchmarks"
    )
    return (Note("A15", text),)


def _shared(load: ServedLoad) -> str:
    if load.cached_len:
        return f"{load.cached_len:,} of the prompt tokens are in the cache"
    return "no prefix is shared"


def refused(utilisation: float, load: ServedLoad) -> str | None:
    """Why no TTFT is given; None where one is."""
    waiting = load.concurrency - load.running
    if waiting >= 1:
        limit = load.limit or f"at most {load.running:,.0f} run at once"
        wait = "1 request waits" if round(waiting) == 1 else f"{waiting:,.0f} requests wait"
        return f"{wait}, as {limit}: TTFT is queueing time, which no closed form gives"
    if utilisation > BUSIEST:
        return (
            f"prefill takes {utilisation:.0%} of the time, above {BUSIEST:.0%}: so near saturation TTFT is mostly "
            "queueing, where small errors in capacity become large ones"
        )
    return None
