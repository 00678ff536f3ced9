"""The load that is offered to a server, as options state it, and the requests it amounts to under a seed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Unpack, cast

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import LoadOptions
from archsim.base.ranges import parse_range
from archsim.serving.arrival_times import (
    POISSON,
    Arrival,
    Profile,
    checked_rate,
    expected_arrivals,
    parse_arrival,
    parse_profile,
    stretch,
)
from archsim.serving.block_runs import block_runs
from archsim.serving.lengths import Lengths, parse_lengths
from archsim.serving.load import Prompts, Requests, Run
from archsim.serving.random_numbers import Stream
from archsim.serving.trace_file import MOST, Trace, read_trace

REQUESTS = 4000
"""Requests of one run of an open loop where nothing is said: p99 needs 1,000 of them."""

MOST_TURNS = 1000
"""Turns of one conversation."""

ROUNDS = 10
"""Requests of a closed loop over its concurrency, where nothing is said (the InferenceX harness's number)."""


@dataclass(frozen=True, kw_only=True)
class OfferedLoad:
    """A load. rate: requests per second; infinite: all at once; None: closed loop, or as in the trace. concurrency:
    requests (or conversations) in flight at most. count: requests; None: as many as arrive in `duration_s`. spread:
    each length is uniform between this share of its distribution's draw and all of it. turns: requests of a
    conversation, each with the conversation before it in its prompt; think: seconds between an answer and the next
    turn. shared: tokens at the beginning of prompts, in so many groups, on top of `input_len`. ignore_eos: as of
    `Requests`.
    """

    input_len: Lengths
    output_len: Lengths
    rate: float | None = None
    arrival: Arrival = POISSON
    profile: Profile = ()
    concurrency: int | None = None
    count: int | None = None
    duration_s: float | None = None
    spread: float = 1.0
    turns: Lengths | None = None
    think: Lengths | None = None
    shared: tuple[int, int] = (0, 1)
    trace: Trace | None = None
    speedup: float = 1.0
    ignore_eos: bool = False

    @property
    def is_random(self) -> bool:
        """Whether replications differ."""
        return self.trace is None

    @property
    def shares(self) -> bool:
        """Whether prompts begin like others."""
        return bool(self.turns or self.shared[0] or (self.trace and self.trace.blocks))

    @property
    def is_open(self) -> bool:
        """Whether requests arrive whatever becomes of those before them."""
        return self.concurrency is None

    @property
    def is_endless(self) -> bool:
        """Whether it would go on for ever at its rate: then a server either holds it or falls behind without end."""
        return self.is_open and self.trace is None and not self.profile and self.rate != inf

    @cached_property
    def offered_rate(self) -> float | None:
        """Requests per second that arrive; None in a closed loop."""
        if self.trace is not None:
            span = self.trace.arrival_s[-1]
            return (len(self.trace) - 1) / span * self.speedup if span else inf
        return self.rate

    def at_rate(self, rate: float) -> OfferedLoad:
        """The same draws at another rate; a trace runs faster or slower."""
        if self.trace is None:
            return replace(self, rate=rate)
        return replace(self, speedup=self.speedup * rate / (self.offered_rate or rate))

    def requests(self, seed: int = 0, replication: int = 0) -> Requests:
        """The requests of one replication."""

        def stream(purpose: str) -> Stream:
            return Stream.of(seed, purpose, replication)

        if self.trace is not None:
            found = _recorded(self, self.trace)
        else:
            found = _conversations(self, stream) if self.turns is not None else _single(self, stream)
        return replace(found, ignore_eos=True) if self.ignore_eos else found


Streams = Callable[[str], Stream]


def offered_load(**options: Unpack[LoadOptions]) -> OfferedLoad:
    """The load of the options of `simulate`. Raises UsageError, and SpecError (E109) for files."""
    given: LoadOptions = cast(LoadOptions, {name: value for name, value in options.items() if value is not None})
    _check_numbers(given)
    _check_together(given)
    if "trace" in given:
        trace = read_trace(given["trace"] or "", given.get("requests"))
        return OfferedLoad(
            input_len=parse_lengths(1, "input-len"), output_len=parse_lengths(1, "output-len"), count=len(trace),
            trace=trace, speedup=given.get("speedup", 1.0) or 1.0,
            ignore_eos=bool(given.get("ignore_eos")),
        )  # fmt: skip
    rate, concurrency = given.get("rate"), given.get("concurrency")
    count = closed_loop_requests(concurrency) if concurrency and rate is None else REQUESTS
    if count > MOST_IMPLIED and not given.keys() & {"requests", "duration"}:
        raise UsageError(
            f"{concurrency:,} in flight would be simulated with {count:,} requests",
            hints=[f"say how many with `--requests`, such as `--requests {2 * (concurrency or 0)}`"],
        )
    turns, think, profile = given.get("turns"), given.get("think"), given.get("rate_profile")
    return OfferedLoad(
        input_len=parse_lengths(given.get("input_len", 1024) or "", "input-len"),
        output_len=parse_lengths(given.get("output_len", 256) or "", "output-len", answers=True),
        rate=None if rate is None else float(rate), arrival=parse_arrival(given.get("arrival", "poisson") or ""),
        profile=parse_profile(profile) if profile else (), concurrency=concurrency,
        count=given.get("requests") or (None if "duration" in given else count), duration_s=given.get("duration"),
        spread=given.get("length_spread", 1.0) or 1.0, turns=None if turns is None else parse_lengths(turns, "turns"),
        think=None if think is None else parse_lengths(think, "think", least=0),
        shared=_shared(given.get("shared_prefix")), ignore_eos=bool(given.get("ignore_eos")),
    )  # fmt: skip


MOST_IMPLIED = 200_000
"""Requests that are simulated at most without being asked for: with replications, about a minute."""


def closed_loop_requests(concurrency: int) -> int:
    """Requests of a closed loop where nothing is said: ten for each in flight, and enough for p99."""
    return max(ROUNDS * concurrency, 1000)


def _check_numbers(given: LoadOptions) -> None:
    """Numbers are in their ranges. Raises UsageError."""
    for name in ("requests", "concurrency"):
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST):
            raise UsageError(f"`--{name}` must be a whole number from 1 to {MOST:,}")
    for name, most in (("duration", 1e9), ("speedup", 1e6), ("length_spread", 1.0)):
        number = given.get(name)
        if number is not None and not (isinstance(number, (int, float)) and 1e-6 <= number <= most):
            raise UsageError(f"`--{name.replace('_', '-')}` must be a number from 0.000001 to {most:,.0f}")
    if "rate" in given:
        checked_rate(given["rate"])


def _check_together(given: LoadOptions) -> None:
    """Options do not contradict each other. Raises UsageError."""

    def refuse(names: Collection[str], why: str) -> None:
        if both := [f"`--{name.replace('_', '-')}`" for name in given if name in names]:
            raise UsageError(f"leave out {', '.join(both)}: {why}")

    timed = ("arrival", "rate_profile", "duration")
    if "trace" in given:
        taken = LoadOptions.__annotations__.keys() - {"trace", "speedup", "requests", "ignore_eos"}
        return refuse(taken, "`--trace` says when requests arrive and how long they are")
    if "rate" not in given and "concurrency" not in given:
        raise UsageError(
            "say how requests arrive: a rate, a concurrency or a trace",
            hints=("--rate 10, --rate inf (all at once), --concurrency 64 or --trace FILE",),
        )
    refuse(("speedup",), "it belongs to `--trace`; for another load give another `--rate`")
    if "rate" not in given:
        refuse(timed, "in a closed loop requests arrive when others have ended; give a `--rate`")
    elif given["rate"] == inf:
        refuse(timed, "`--rate inf` sends all requests at once")
    if "turns" not in given:
        refuse(("think",), "it is the time between an answer and the next turn, and needs `--turns`")
    return None


def _shared(text: str | int | None) -> tuple[int, int]:
    """Tokens and groups of `--shared-prefix LEN[:GROUPS]`. Raises UsageError."""
    if text is None or str(text).strip() == "0":
        return 0, 1
    length, _, groups = str(text).partition(":")
    found = parse_range(length, "shared-prefix"), parse_range(groups or "1", "shared-prefix")
    if any(len(values) > 1 for values in found):
        raise UsageError(f"`--shared-prefix` is LEN or LEN:GROUPS, not {quote(str(text))}")
    return found[0][0], found[1][0]


def _recorded(load: OfferedLoad, trace: Trace) -> Requests:
    """The requests of a trace; a prompt that is longer than its blocks ends in tokens of its own."""
    times = array("d", (time / load.speedup for time in trace.arrival_s))
    prompts = None
    if trace.blocks is not None:
        runs = block_runs(trace.blocks, trace.input_len, trace.block)
        prompts = Prompts(runs=runs, answers=[-1] * len(runs), block=trace.block)
    return Requests(arrival_s=times, input_len=trace.input_len, output_len=trace.output_len, prompts=prompts)


def _single(load: OfferedLoad, stream: Streams) -> Requests:
    """Requests that stand alone."""
    times = _times(load, stream, 1.0)
    prompts, answers = (_lengths(load, which, stream, len(times)) for which in ("input", "output"))
    shared, groups = load.shared
    known = None
    if shared:
        group = stream("groups").uniforms(len(times))
        runs = [((int(g * groups), shared), (-1, own)) for g, own in zip(group, prompts, strict=True)]
        known = Prompts(runs=runs, answers=[-1] * len(runs))
        prompts = array("q", (shared + own for own in prompts))
    return Requests(arrival_s=times, input_len=prompts, output_len=answers, concurrency=load.concurrency, prompts=known)


def _times(load: OfferedLoad, stream: Streams, of: float) -> array[float]:
    """When requests arrive, or conversations of `of` requests each."""
    count = load.count or 0
    if load.rate is None:
        return array("d", bytes(8 * count))
    if load.duration_s is None:
        return array("d", stretch(load.arrival.unit_times(stream("arrivals"), count), load.rate / of, load.profile))
    rate, within = load.rate / of, load.duration_s
    expected = expected_arrivals(within, rate, load.profile)
    if load.count is None and expected > MOST / 2:
        raise UsageError(f"{expected:,.0f} requests arrive in {within:g} s; give a shorter --duration")
    count = count or round(expected * 1.2) + 64
    while True:
        times = stretch(load.arrival.unit_times(stream("arrivals"), count), rate, load.profile)
        if times[-1] >= within or count == load.count:
            break
        count *= 2
    early = array("d", (time for time in times if time < within))
    if not early:
        raise UsageError(f"no request arrives within {within:g} s at {load.rate:g} requests/s")
    return early


def _lengths(load: OfferedLoad, which: str, stream: Streams, count: int, first: int = 0) -> array[int]:
    """Lengths of prompts or answers."""
    lengths = load.input_len if which == "input" else load.output_len
    draws = stream(f"rows of {lengths.file}" if lengths.file else f"{which} lengths").uniforms(count, first)
    if load.spread == 1:
        return array("q", (max(1, round(lengths.quantile(u))) for u in draws))
    spread = stream(f"{which} spread").uniforms(count, first)
    low = load.spread
    return array("q", (max(1, round(lengths.quantile(u) * (low + (1 - low) * v)))
                       for u, v in zip(draws, spread, strict=True)))  # fmt: skip


def _conversations(load: OfferedLoad, stream: Streams) -> Requests:
    """Conversations: each turn's prompt is the shared prefix, all that was said before, and its own new tokens."""
    assert load.turns is not None
    mean = max(1.0, load.turns.mean)
    total = replace(load, count=None if load.count is None else max(1, round(load.count / mean)))
    starts = _times(total, stream, mean)
    turns = [max(1, round(load.turns.quantile(u))) for u in stream("turns").uniforms(len(starts))]
    count = sum(turns)
    if max(turns) > MOST_TURNS:
        raise UsageError(f"`--turns`: {quote(load.turns.text)} has conversations of more than {MOST_TURNS:,} turns")
    if count > MOST:
        raise UsageError(f"{count:,} requests: `--turns` {quote(load.turns.text)} of {len(starts):,} conversations")
    new, answers = (_lengths(load, which, stream, count) for which in ("input", "output"))
    think = [0.0] * count
    if load.think is not None:
        think = [max(0.0, load.think.quantile(u)) for u in stream("think").uniforms(count)]
    shared, groups = load.shared
    group = stream("groups").uniforms(len(starts))
    times, after, runs = array("d"), array("q"), []
    for start, length, which in zip(starts, turns, group, strict=True):
        said: tuple[Run, ...] = ((int(which * groups), shared),) if shared else ()
        for turn in range(length):
            index = len(after)
            own = groups + 2 * index
            said = (*said, (own, new[index]))
            runs.append(said)
            said = (*said, (own + 1, answers[index]))
            times.append(start)
            after.append(index - 1 if turn else -1)
    return Requests(
        arrival_s=times, input_len=array("q", (sum(tokens for _, tokens in said) for said in runs)), output_len=answers,
        concurrency=load.concurrency, after=after, think_s=think,
        prompts=Prompts(runs=runs, answers=[groups + 2 * i + 1 for i in range(count)]),
    )  # fmt: skip


def workload_json(load: OfferedLoad, requests: Requests) -> JsonObject:
    """What of `workload` in the JSON of `simulate` the load says; lengths are those of `requests`."""
    prefix: JsonObject = {}
    if load.shared[0]:
        prefix |= {"shared_tokens": load.shared[0], "groups": load.shared[1]}
    if load.turns is not None:
        prefix |= {"turns_mean": load.turns.mean}
    if load.trace is not None and load.trace.blocks is not None:
        prefix |= {"block_tokens": load.trace.block}
    rate = load.offered_rate
    return {
        "arrival": _arrival(load), "rate_per_s": None if rate in (None, inf) else rate,
        "concurrency": load.concurrency, "requests": len(requests), "input_len": _summary(requests.input_len),
        "output_len": _summary(requests.output_len), "length_spread": load.spread, "prefix": prefix,
        "trace": None if load.trace is None else load.trace.name,
    }  # fmt: skip


def _arrival(load: OfferedLoad) -> str:
    """How requests arrive, in a word."""
    if load.trace is not None:
        return "trace"
    if load.rate is None:
        return "closed loop"
    return "all at once" if load.rate == inf else str(load.arrival)


def _summary(lengths: Sequence[int]) -> JsonObject:
    """Mean, median and 99th percentile."""
    ordered = sorted(lengths)
    return {"mean": sum(ordered) / len(ordered), "p50": ordered[len(ordered) // 2],
            "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}  # fmt: skip
