"""`archsim simulate`: what requests see of a serving engine under a load, request by request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from statistics import fmean

from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict, past_context
from archsim.base.options import LoadOptions, RunArguments, ServerArguments
from archsim.base.ranges import parse_range
from archsim.cost.priced_work import PricedWork
from archsim.counts.workload import Workload
from archsim.engines.names import DEFAULT_ENGINE
from archsim.memory.engine_memory import Settings
from archsim.predict.pools import parse_ratio, pools_of, serve_fleet
from archsim.predict.served_engine import (
    DecodeSide,
    End,
    ServedEngine,
    ServerRequest,
    UsualStep,
    at_end,
    evidence_of,
    longest_request,
    usual_request,
)
from archsim.serving.acceptance import Drafting, parse_drafting
from archsim.serving.autoscaling import parse_autoscale
from archsim.serving.fleet import FleetPlan
from archsim.serving.front import FrontEnd
from archsim.serving.interval import Interval
from archsim.serving.load import Requests
from archsim.serving.observation import Observation, observe
from archsim.serving.observe import Measured, alive_s, by_replica, cache_use, measure, replicas_at_once, series
from archsim.serving.offered_load import OfferedLoad, offered_load, workload_json
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord, Samples
from archsim.serving.resume_points import Resuming
from archsim.serving.routers import parse_router
from archsim.serving.search import Found
from archsim.serving.slo import Slo, parse_slo
from archsim.serving.step_times import StepTimes
from archsim.serving.warm_up import WarmUp, parse_warm_up
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.timing.duration import Evidence

WARMUP = 0.05
"""Share of the requests of an open loop that are not measured, where nothing is said."""

REPLICATIONS = 5
"""Independent runs, where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """How a load is run. warmup: what is not measured; None: the usual share. first_wave: whether a closed loop
    measures the requests that start together; by default a search does not, since it is for a load that lasts. ends:
    whether both ends of the step times are run as well. samples: of the state over time, at most.
    """

    seed: int = 0
    replications: int = REPLICATIONS
    warmup: WarmUp | None = None
    first_wave: bool = True
    slo: Slo | None = None
    ends: bool = True
    samples: int = Samples.MOST

    def __post_init__(self) -> None:
        if not 1 <= self.replications <= 1000:
            raise UsageError(f"`--replications` is a number from 1 to 1,000, not {self.replications!r}")
        if self.seed < 0:
            raise UsageError(f"`--seed` is a whole number of 0 or more, not {self.seed!r}")

    def routing(self, replication: int) -> Stream:
        """Draws of the router in one replication."""
        return Stream.of(self.seed, "routing", replication)

    def skipped(self, load: OfferedLoad, count: int, trial: Callable[[], RunRecord]) -> int:
        """Requests at the start of a run that are not measured; trial: runs the load with all of them measured, for
        warm-ups that no count says. Raises UsageError where none would be left.
        """
        if self.warmup is not None:
            skipped = self.warmup.requests if self.warmup.requests is not None else self.warmup.count(trial())
        elif not load.is_open and load.rate is None:
            skipped = 0 if self.first_wave else load.concurrency or 0
        else:
            skipped = 0 if load.rate == inf else round(WARMUP * count)
        if skipped >= count:
            raise UsageError(
                f"of {count:,} requests {skipped:,} are warm-up: none is measured", hints=("raise --requests",)
            )
        return skipped


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs one load after another on a server, always with the same draws. times: of its steps, at the expected value.
    steps: a usual one: at the ends of the interval it is at the ends of its own.
    """

    server: ServedEngine
    how: RunRequest
    times: StepTimes
    steps: UsualStep

    def run(self, load: OfferedLoad, replication: int = 0, end: End = 0) -> RunRecord:
        """One replication at an end of the step times."""
        return self.of(load.requests(self.how.seed, replication), load, end, replication)

    def of(self, requests: Requests, load: OfferedLoad, end: End = 0, replication: int = 0) -> RunRecord:
        """The run of requests that are drawn already."""
        times, draws = at_end(self.times, self.steps, end), self.how.routing(replication)
        warmup = self.how.skipped(load, len(requests), lambda: self.server.run(requests, times, draws=draws))
        return self.server.run(requests, times, warmup, draws)

    def measured(self, load: OfferedLoad, replication: int = 0, end: End = 0) -> Measured:
        """What the requests of a run saw."""
        return measure(self.run(load, replication, end), self.how.slo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Tabular):
    """The answer of `archsim simulate`. usual: mean prompt and answer. record: of one replication; the sums of all
    are in `state`. found: where the largest load was asked for; the answer is then that of this load.
    """

    __repr__ = Tabular.__repr__

    server: ServedEngine
    load: OfferedLoad
    how: RunRequest
    usual: Workload
    workload: JsonObject
    observed: Observation
    state: JsonObject
    series: JsonObject
    evidence: Evidence
    record: RunRecord = field(repr=False)
    found: Found | None = None
    refused_requests: Mapping[int, str] = field(default_factory=dict)
    cost: PricedWork | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def model(self) -> Model:
        """The model that is served."""
        return self.server.model

    @property
    def hardware(self) -> Hardware:
        """The device that serves it."""
        return self.server.hardware

    @property
    def replicas(self) -> list[JsonObject]:
        """What each replica did, in the run that `record` is of."""
        return by_replica(self.record)

    def throughput(self) -> dict[str, Interval]:
        """Requests and tokens per second, and output tokens per second and device."""
        rates = {name: self.observed.rates[name] for name in ("requests_per_s", "output_tokens_per_s",
                                                              "total_tokens_per_s")}  # fmt: skip
        devices = self.server.devices
        if self.server.fleet.scaling is not None:
            devices = self.server.plan.devices * self.state["replicas"]["mean"]
        each = scaled(rates["output_tokens_per_s"], 1 / devices)
        return rates | {"output_tokens_per_s_per_device": each}

    def to_dict(self) -> JsonObject:
        """The `archsim.simulate/1` object."""
        s, plan, policy = self.server, self.server.plan, self.server.policy
        return {
            "schema": "archsim.simulate/1", "model": {"name": s.model.name},
            "hardware": {"name": s.hardware.id, "devices": s.devices},
            "plan": {
                "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "weights": s.formats.name,
                "kv_cache": s.formats.kv.name, "engine": s.engine.name,
            },
            "engine": {
                "name": s.engine.name, "version": s.engine.version or s.engine.rules.version or None,
                "scheduler": {
                    "max_num_seqs": policy.max_seqs, "max_num_batched_tokens": policy.budget, "first": policy.first,
                    "mixes": policy.mixes, "chunked_prefill": policy.chunked, "longest_chunk": policy.longest_chunk,
                    "room": policy.room, "watermark": policy.watermark, "ahead": policy.ahead, "block_size": s.block,
                    "prefix_cache": s.prefix,
                },
                "front_end": front_json(s.front), "front_end_left_out": front_json(s.left_out),
                "speculative": None if s.decodes_with is None else {
                    "method": s.decodes_with.method, "drafts": s.decodes_with.drafts,
                    "topk": s.decodes_with.topk, "tokens": s.decodes_with.verified,
                    "model": s.decodes_with.model or None, "accepted": list(s.decodes_with.accepted),
                },
            },
            "fleet": {
                "replicas": s.fleet.replicas, "router": str(s.fleet.routing), "router_delay_s": s.fleet.delay_s,
                "decode": None if s.decode is None else decode_json(s.decode, s.fleet),
                "autoscale": None if s.fleet.scaling is None else str(s.fleet.scaling),
            },
            "workload": self.workload, "metrics": self.observed.metrics_json(),
            "throughput": {name: rate.to_dict() for name, rate in self.throughput().items()},
            "slo": self.observed.slo_json(), "state": self.state, "replicas": self.replicas, "series": self.series,
            "found": None if self.found is None else self.found.to_dict(),
            **({"cost": self.cost.to_dict()} if self.cost else {}),
            "refused": [*self.observed.refused_json(), *(
                {"metric": f"request {index}", "reason": reason} for index, reason in self.refused_requests.items())],
            "evidence": self.evidence, **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip


def decode_json(decode: DecodeSide, fleet: FleetPlan) -> JsonObject:
    """The replicas that make answers, as in the JSON."""
    server, plan = decode.server, decode.server.plan
    return {
        "replicas": fleet.decode_replicas, "hardware": server.hardware.id, "devices": plan.devices, "tp": plan.tp,
        "ep": plan.ep, "dp": plan.dp, "weights": server.formats.name, "kv_tokens": server.kv_tokens,
        "kv_link_bytes_per_s": decode.link, "kv_transfer_parts": decode.layers,
    }  # fmt: skip


def scaled(found: Interval, factor: float) -> Interval:
    """An interval in another unit."""
    ends = (found.sampling_low, found.sampling_high)
    low, high = (None if end is None else end * factor for end in ends)
    return Interval(value=found.value * factor, low=found.low * factor, high=found.high * factor,
                    sampling_low=low, sampling_high=high)  # fmt: skip


def simulated(
    model: Model, hardware: Hardware, load: LoadOptions, server: ServerArguments, run: RunArguments
) -> Simulation:
    """The answer to the options of `archsim simulate`. Raises UsageError, InvalidPlan, AnswerNo, SpecError."""
    return simulate(model, hardware, offered_load(**load), server_request(server), run_request(run))


def run_request(run: RunArguments) -> RunRequest:
    """How options say that a load is run. Raises UsageError."""
    slo = run.get("slo")
    if slo is None and "goodput" in run:
        raise UsageError("`--goodput` is the share of requests that meet targets: give `--slo`")
    first_wave = run.get("first_wave") or ("keep" if run.get("find") is None else "drop")
    if first_wave not in ("keep", "drop"):
        raise UsageError(f"`--first-wave` is keep or drop, not {first_wave!r}")
    return RunRequest(
        seed=run.get("seed", 0), replications=run.get("replications", REPLICATIONS),
        warmup=parse_warm_up(run.get("warmup")), first_wave=first_wave == "keep",
        ends=not run.get("expected_only", False),
        slo=None if slo is None else parse_slo(slo, run.get("goodput")),
    )  # fmt: skip


def server_request(asked: ServerArguments) -> ServerRequest:
    """The server that options describe."""
    settings = Settings(
        max_num_seqs=asked.get("max_num_seqs"), max_num_batched_tokens=asked.get("max_num_batched_tokens"),
        max_prefill_tokens=asked.get("max_prefill_tokens"),
        gpu_memory_utilization=asked.get("gpu_memory_utilization"), block_size=asked.get("block_size"),
        mem_fraction_static=asked.get("mem_fraction_static"),
    )  # fmt: skip
    chunked = asked.get("chunked_prefill")
    return ServerRequest(
        devices=asked.get("devices", "auto"), tp=asked.get("tp"), pp=asked.get("pp"), ep=asked.get("ep"),
        dp=asked.get("dp"), weights=asked.get("weights"), kv_cache_dtype=asked.get("kv_cache_dtype"),
        engine=asked.get("engine", DEFAULT_ENGINE), settings=settings, kv_tokens=asked.get("kv_tokens"),
        chunked_prefill=None if chunked is None else str(chunked), admission=asked.get("admission"),
        prefix_cache=asked.get("prefix_cache"), exact=asked.get("exact", False), front_end=asked.get("front_end"),
        drafting=parse_drafting(asked.get("speculative"), asked.get("acceptance")),
        image=asked.get("image"), audio=asked.get("audio"),
        store=asked.get("store"), fleet=fleet_plan(asked), pools=pools_of(asked),
    )  # fmt: skip


def fleet_plan(asked: ServerArguments) -> FleetPlan:
    """How many replicas, and the router. Raises UsageError."""
    ratio, scaled = asked.get("disaggregate"), asked.get("autoscale")
    scaling = None if scaled is None else parse_autoscale(scaled)
    if scaling is not None:
        for name in ("replicas", "disaggregate"):
            if asked.get(name) is not None:
                raise UsageError(f"leave out `--{name}`: `--autoscale` says how many replicas there are")
        return FleetPlan(
            replicas=scaling.least, routing=parse_router(asked.get("router") or "round-robin"),
            delay_s=asked.get("router_delay") or 0.0, scaling=scaling,
        )  # fmt: skip
    prefill, decode = (replicas_of(asked.get("replicas")), 0) if ratio is None else parse_ratio(ratio)
    return FleetPlan(
        replicas=prefill, decode_replicas=decode, routing=parse_router(asked.get("router") or "round-robin"),
        delay_s=asked.get("router_delay") or 0.0,
    )  # fmt: skip


def replicas_of(asked: int | str | None) -> int:
    """The number that `--replicas` says. Raises UsageError where it is several."""
    if asked is None:
        return 1
    numbers = parse_range(str(asked), "replicas")
    if len(numbers) > 1:
        raise UsageError(
            f"`--replicas` is one number, not {asked}", hints=("the fewest of a range: --find replicas --slo ...",)
        )
    return numbers[0]


def simulate(
    model: Model, hardware: Hardware, load: OfferedLoad, request: ServerRequest | None = None,
    how: RunRequest | None = None,
) -> Simulation:  # fmt: skip
    """A load on a server. Raises UsageError, InvalidPlan, AnswerNo where the model does not fit."""
    how = how or RunRequest()
    first = load.requests(how.seed, 0)
    served = serve_fleet(model, hardware, request or ServerRequest(), usual_request(first))
    return simulate_on(served, load, how, first)


def simulate_on(server: ServedEngine, load: OfferedLoad, how: RunRequest, first: Requests | None = None) -> Simulation:
    """A load on a server that is ready. first: the requests of the first replication, where they are drawn already.
    Raises UsageError where no request can run.
    """
    first = first or load.requests(how.seed, 0)
    usual = usual_request(first)
    runs, record = started(server, load, how, first)
    if not record.finished:
        raise UsageError(f"no request can run: {next(iter(record.refused.values()))}")
    others = [runs.run(load, number) for number in range(1, how.replications if load.is_random else 1)]
    records = (record, *others)
    measured = [measure(one, how.slo) for one in records]
    ends: tuple[End, ...] = (-1, 1) if how.ends else ()
    model_ends = [[measure(runs.of(first, load, end), how.slo)] for end in ends]
    observed = observe(measured, model_ends, slo=how.slo, endless=load.is_endless)
    carries = [{"noun": one.noun, "count": one.count, "tokens": one.tokens} for one in server.encoded]
    workload = workload_json(load, first) | ({"encoded": carries} if carries else {})
    drawn = {"measured_requests": observed.measured_requests, "seed": how.seed, "replications": len(records),
             "warmup": record.warmup, "first_wave": "keep" if how.first_wave else "drop"}  # fmt: skip
    return Simulation(
        server=server, load=load, how=how, usual=usual, workload=workload | drawn, observed=observed,
        state=state_of(server, records, observed, load), series=series(record), record=record,
        refused_requests=dict(list(record.refused.items())[:100]), evidence=evidence_of(runs.steps),
        assumptions=(*server.assumptions, *assumed(server, load)), warnings=warned(server, load, first, record),
    )  # fmt: skip


def started(server: ServedEngine, load: OfferedLoad, how: RunRequest, first: Requests) -> tuple[Runs, RunRecord]:
    """The first replication at expected times, and what runs others like it."""
    usual, times = usual_request(first), server.times(longest_request(first))
    draws = how.routing(0)
    warmup = how.skipped(load, len(first), lambda: server.run(first, times, draws=draws))
    record = server.run(first, times, warmup, draws, how.samples)
    running = record.running_s / record.busy_s if record.busy_s else 1.0
    running = min(running, server.policy.max_seqs)
    return Runs(server, how, times, server.usual_steps(running, int(usual.input_len), int(usual.output_len))), record


def state_of(
    server: ServedEngine, records: Sequence[RunRecord], observed: Observation, load: OfferedLoad
) -> JsonObject:
    """`state` of the JSON: means of the replications, and the largest of all."""

    def mean(of: str) -> float:
        return fmean(getattr(record, of) for record in records)

    uses = [cache_use(record) for record in records]
    drafting = server.decodes_with
    decoded = mean("decode_tokens") if drafting is None else mean("verified") * drafting.verified
    hits = sum(record.hit_tokens for record in records)
    prompts = hits + sum(record.prompt_tokens - record.recomputed_tokens for record in records)
    return {
        "utilisation": fmean(record.busy_s / alive_s(record) for record in records),
        "running": {"mean": observed.running, "max": max(record.most_running for record in records)},
        "waiting": {"mean": observed.waiting, "max": max(record.most_waiting for record in records)},
        "kv_tokens": server.kv_tokens,
        "kv_occupancy": {"mean": fmean(usual for usual, _ in uses), "max": max(most for _, most in uses)},
        "steps": mean("steps"), "prompt_steps": mean("prompt_steps") / max(mean("steps"), 1.0),
        "step_tokens": (mean("prompt_tokens") + decoded) / max(mean("steps"), 1.0),
        "preemptions": fmean(sum(record.preemptions) for record in records),
        "recomputed_tokens": mean("recomputed_tokens"), "prefix_hit_share": hits / prompts if prompts else 0.0,
        "accepted_per_step": accepted_per_step(records), "backlog_per_s": observed.backlog_per_s,
        "replicas_for_load": replicas_for_load(server, load, observed.backlog_per_s),
        "stationary": observed.stationary, "limited_by": limited_by(records, load),
        "kv_transfer_s": transfers(records[0]),
        "replicas": {"mean": fmean(replicas_at_once(record)[0] for record in records),
                     "max": max(replicas_at_once(record)[1] for record in records)},
    }  # fmt: skip


LIMITS = {
    "cache": "cache", "sequences": "sequences", "tokens": "step tokens",
    "preempted": "cache",
}  # fmt: skip
"""What keeps a request out -> as `limited_by` says it."""


def transfers(record: RunRecord) -> JsonObject | None:
    """Seconds from the end of a prompt until the cache is where the request decodes; None without two pools."""
    seconds = sorted(time for time in record.transfer_s or () if time >= 0)
    if not seconds:
        return None
    return {"mean": fmean(seconds), "p50": seconds[len(seconds) // 2], "p99": seconds[len(seconds) * 99 // 100],
            "max": seconds[-1]}  # fmt: skip


def limited_by(records: Sequence[RunRecord], load: OfferedLoad) -> str:
    """What keeps requests waiting for most of the time that any waits; else what sets the load: `rate` or
    `concurrency`.
    """
    sums: dict[str, float] = {}
    for record in records:
        for reason, seconds in record.limits.items():
            name = LIMITS.get(reason, "cache")
            sums[name] = sums.get(name, 0.0) + seconds
    busy = sum(record.busy_s for record in records)
    worst = max(sums, key=lambda name: sums[name], default="")
    if worst and sums[worst] > 0.05 * busy:
        return worst
    return "rate" if load.is_open else "concurrency"


def replicas_for_load(server: ServedEngine, load: OfferedLoad, backlog_per_s: float) -> int | None:
    """About as many replicas as serve the rate of a load of which some pile up, by what these serve of it; None where
    none do, where the rate is not one number, and where replicas are not alike or change in number.
    """
    fleet, rate = server.fleet, load.rate
    if not backlog_per_s or rate is None or rate == inf or load.profile or fleet.decode_replicas or fleet.scaling:
        return None
    served = rate - backlog_per_s
    return ceil(fleet.replicas * rate / served) if served > 0 else None


def accepted_per_step(records: Sequence[RunRecord]) -> float | None:
    """Tokens beyond the first that a sequence makes in a step which verifies drafts; None where none does."""
    verified = sum(record.verified for record in records)
    return sum(record.decode_tokens for record in records) / verified - 1 if verified else None


def assumed(server: ServedEngine, load: OfferedLoad) -> list[Note]:
    """What the answer rests on."""
    policy = server.policy
    steps = f"steps of at most {policy.budget:,} tokens and {policy.max_seqs:,} sequences"
    return [
        Note("A23", steps),
        Note("A37", cache_of(server, load)),
        Note("A38", front_in_words(server.front, server.left_out)),
        *([] if server.decodes_with is None else [Note("A47", drafts_of(server.decodes_with))]),
    ]  # fmt: skip


def front_json(front: FrontEnd) -> JsonObject | None:
    """A front end in the JSON; None where it takes no time."""
    if front.nothing:
        return None
    return {"request_s": front.request_s, "token_s": front.token_s, "workers": front.workers}


def front_in_words(front: FrontEnd, left_out: FrontEnd) -> str:
    """What requests pass before the engine. left_out: what runs under load show of it, where it is not asked for."""
    if front.nothing and left_out.nothing:
        return "no network, no tokenizer: TTFT is that of the engine"
    if front.nothing:
        return (
            "no network, no tokenizer: TTFT is that of the engine; in runs under load "
            f"{_of_requests(left_out)} passed before it"
        )
    pools = (
        f"; handshakes between the pools take {1e3 * (front.wait_s + front.line_s):.3g} ms more, "
        f"{1e3 * front.line_s:.3g} of them one request after the other"
    )  # fmt: skip
    return (
        f"{_of_requests(front)} pass before the engine, {front.workers} requests at a time"
        f"{pools if front.wait_s or front.line_s else ''}"
    )


def _of_requests(front: FrontEnd) -> str:
    """The time of a front end in words."""
    return (
        f"{1e3 * front.request_s:.3g} ms of each request and {1e6 * front.token_s:.3g} µs of each token of its prompt"
    )


def drafts_of(drafting: Drafting) -> str:
    """Speculative decoding in words."""
    shares = ", ".join(f"{share:.3g}" for share in drafting.accepted)
    return f"{drafting}: shares of steps that accept 1, 2, .. drafts: {shares}; no memory is set aside for the drafter"


def resumed(rule: Resuming | None) -> str:
    """Where layers with a window or a state let a prompt go on, in words."""
    if rule is None:
        return "in layers with a window or a state as in the others"
    places = [] if rule.junctions == "instead" else ["where earlier prompts ended"]
    if rule.answers:
        places.append("where requests ended")
    if rule.junctions != "none":
        places.append("where an earlier prompt left what it had in common with others")
    if rule.junctions == "instead":
        places.append("else where it ended")
    return f"but in layers with a window or a state only {', '.join(places)}"


def cache_of(server: ServedEngine, load: OfferedLoad) -> str:
    """The cache in words."""
    if server.memory.kv_tokens is None:
        return "the cache does not grow with requests"
    found = "no prompt finds another's"
    if server.prefix != "off":
        found = "prompts find what others left in them" if load.shares else "no two prompts share a prefix"
        if load.shares and not server.memory.stage.uniform:
            found += f", {resumed(server.resuming)}, as long as the tokens before are kept"
    if server.prefix == "warm" and load.shares:
        found += "; what several begin with is there from the start"
    return f"the KV cache holds {server.kv_tokens:,} tokens in blocks of {server.block}; {found}"


def warned(server: ServedEngine, load: OfferedLoad, requests: Requests, record: RunRecord) -> tuple[Note, ...]:
    """What the reader should look at."""
    found, limit, longest = list(server.warnings), server.model.max_context, longest_request(requests)
    if limit is not None and longest > limit:
        found.append(past_context(longest, limit, server.model.name))
    same = len(set(requests.input_len)) == len(set(requests.output_len)) == 1
    if not load.is_open and (load.concurrency or 1) > 1 and same:
        found.append(Note("W12", "all requests have one length: in a closed loop they start and end together, which "
                          "real ones do not; --length-spread 0.8 spreads them"))  # fmt: skip
    if record.refused:
        index, reason = next(iter(record.refused.items()))
        share = f"{len(record.refused):,} of {len(record):,} requests can never run"
        found.append(Note("W13", f"{share}; request {index}: {reason}"))
    return tuple(found)
