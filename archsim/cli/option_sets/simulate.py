"""Options of `archsim simulate`, with the spellings of serving benchmarks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.base.data_class import dataclass
from archsim.cli.option_sets import fit as f
from archsim.cli.options import devices, models


class Wave(StrEnum):
    """What becomes of the requests that start together."""

    keep = "keep"
    drop = "drop"


class Load(StrEnum):
    """What may be found."""

    rate = "rate"
    concurrency = "concurrency"
    replicas = "replicas"
    ratio = "ratio"


Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", autocompletion=models, help="Catalog name, Hugging Face id, or path; --scenarios has its own."
    ),
]  # fmt: skip
Devices = Annotated[
    str | None,
    typer.Option("--hw", "--gpu", metavar="HW,...", autocompletion=devices, help="Devices: names, aliases, paths."),
]
Rate = Annotated[
    float | None, typer.Option("--rate", "--request-rate", metavar="R", help="Requests per second; inf: all at once.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", "--max-concurrency", min=1, metavar="N",
        help="Requests in flight; with --rate, at most so many.",
    ),
]  # fmt: skip
Trace = Annotated[
    str | None, typer.Option("--trace", metavar="FILE", help="Recorded requests: times, lengths, blocks of prompts.")
]
Speedup = Annotated[float | None, typer.Option("--speedup", metavar="X", help="Play the trace X times as fast.")]
Arrival = Annotated[
    str | None, typer.Option("--arrival", metavar="KIND", help="poisson (default), constant, gamma:CV or burst:N.")
]
Profile = Annotated[
    str | None,
    typer.Option("--rate-profile", metavar="T:F,...", help="Factors of the rate from some seconds on: 0:1,60:10."),
]
InputLen = Annotated[
    str | None,
    typer.Option(
        "--input-len", "--isl", metavar="DIST",
        help="Prompt tokens: 1k (default), uniform:A-B, lognormal:MEAN,CV, normal:MEAN,CV, FILE.csv:COLUMN, sharegpt.",
    ),
]  # fmt: skip
OutputLen = Annotated[
    str | None, typer.Option("--output-len", "--osl", metavar="DIST", help="Answer tokens, alike; 256 by default.")
]
Spread = Annotated[
    float | None,
    typer.Option(
        "--length-spread", "--random-range-ratio", metavar="F",
        help="Each length is uniform between F and 1 times its draw (InferenceMAX: 0.8).",
    ),
]  # fmt: skip
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests", "--num-prompts", min=1, metavar="N",
        help="Requests of a run. Default: 4,000; in a closed loop 10 x concurrency, at least 1,000.",
    ),
]  # fmt: skip
Duration = Annotated[float | None, typer.Option("--duration", metavar="S", help="Seconds in which requests arrive.")]
Turns = Annotated[str | None, typer.Option("--turns", metavar="DIST", help="Requests of a conversation.")]
Think = Annotated[str | None, typer.Option("--think", metavar="DIST", help="Seconds between answer and next turn.")]
Shared = Annotated[
    str | None,
    typer.Option("--shared-prefix", metavar="LEN[:GROUPS]", help="Tokens that the prompts of a group begin with."),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", help="Requests make every token that they may; SGLang then plans for whole answers."),
]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup", metavar="N|Ss|auto",
        help="What is not measured: requests, seconds (30s), or as much as drifts. Default: 5 % of an open loop.",
    ),
]  # fmt: skip
FirstWave = Annotated[
    Wave, typer.Option("--first-wave", help="Whether a closed loop measures the requests that start together.")
]
KvTokens = Annotated[
    int | None,
    typer.Option("--kv-tokens", min=1, metavar="N", help="Tokens of one replica's cache, as the engine logs them."),
]
Chunked = Annotated[
    str | None,
    typer.Option("--chunked-prefill", metavar="on|off|N", help="Whether prompts are cut; N: tokens of one in a step."),
]
PrefixCache = Annotated[
    str | None,
    typer.Option(
        "--prefix-cache", metavar="on|off|warm",
        help="Whether prompts find what others left in the cache; warm: from the start. Default: as the engine.",
    ),
]  # fmt: skip
Replicas = Annotated[
    str | None,
    typer.Option(
        "--replicas",
        metavar="N|RANGE",
        help="Replicas of the server, several make a study; with --find replicas the most that are tried.",
    ),
]
Router = Annotated[
    str | None,
    typer.Option(
        "--router", metavar="RULE",
        help="round-robin (default), random, least-requests, least-tokens, two-choices, prefix[:W] or session.",
    ),
]  # fmt: skip
RouterDelay = Annotated[
    float | None, typer.Option("--router-delay", metavar="S", help="Seconds that the router takes for each request.")
]
Autoscale = Annotated[
    str | None,
    typer.Option(
        "--autoscale", metavar="MIN-MAX:SIGNAL=TARGET",
        help="Replicas that keep requests, waiting or kv of each at a target: 1-8:requests=20,delay=60.",
    ),
]  # fmt: skip
Disaggregate = Annotated[
    str | None, typer.Option("--disaggregate", metavar="P:D", help="Replicas for prompts and replicas for answers.")
]
PrefillPlan = Annotated[
    str | None, typer.Option("--prefill-plan", metavar="tp=N,...", help="Degrees of the replicas for prompts.")
]
DecodePlan = Annotated[
    str | None, typer.Option("--decode-plan", metavar="tp=N,...", help="Degrees of the replicas for answers.")
]
DecodeHw = Annotated[str | None, typer.Option("--decode-hw", metavar="HW", help="Device of the replicas for answers.")]
KvLink = Annotated[
    str | None, typer.Option("--kv-link", metavar="RATE", help="What each device sends of caches: '50 GB/s'.")
]
KvTransfer = Annotated[
    str | None,
    typer.Option(
        "--kv-transfer", metavar="WHEN", help="Caches travel `after` the prompt (default), or `layers` as computed."
    ),
]  # fmt: skip
Admission = Annotated[
    str | None,
    typer.Option(
        "--admission", metavar="ROOM",
        help="Free cache that a request waits for: chunk, prompt, answer, expected. Default: the engine's rule.",
    ),
]  # fmt: skip
Speculative = Annotated[
    str | None,
    typer.Option(
        "--speculative", metavar="WAY", help="Who drafts, and how many: ngram:K, mtp:K, eagle:K, draft:MODEL,K."
    ),
]
Acceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance", metavar="A",
        help="Of drafts: a probability (0.7), shares by position (0.8,0.6,0.5), tokens a step (2.4), FILE.csv:COLUMN.",
    ),
]  # fmt: skip
FrontEnd = Annotated[
    str | None,
    typer.Option(
        "--front-end", metavar="none|measured|MS[,US]",
        help="Work before the engine: none (default), as runs under load say, or ms a request and us a prompt token.",
    ),
]  # fmt: skip
Slo = Annotated[
    str | None,
    typer.Option("--slo", metavar="TARGETS", help="Seconds to meet: ttft=0.5,tpot=0.03[,p=99] (also itl, e2e)."),
]
Goodput = Annotated[
    float | None,
    typer.Option("--goodput", metavar="F", help="Share of requests that must meet all targets. Default: 0.99."),
]
Find = Annotated[
    Load | None,
    typer.Option(
        "--find", help="What meets --slo: the largest rate or number of requests in flight, the fewest replicas."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of all random draws.")]
Replications = Annotated[int, typer.Option("--replications", min=1, max=1000, metavar="N", help="Independent runs.")]
Exact = Annotated[bool, typer.Option("--exact", help="Price every step instead of looking it up; slow.")]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 where the service level is missed.")]
RequestsOut = Annotated[
    Path | None,
    typer.Option("--requests-out", metavar="FILE", help="Write every request of one run to a .csv or .parquet file."),
]
Timeline = Annotated[
    Path | None,
    typer.Option("--timeline", metavar="FILE.json", help="Write requests and queues over time for ui.perfetto.dev."),
]
Rates = Annotated[
    str | None, typer.Option("--rates", metavar="RANGE", help="Several rates, such as 1,2,5 or 1-20+1: one row each.")
]
Concurrencies = Annotated[
    str | None, typer.Option("--concurrencies", metavar="RANGE", help="Several numbers in flight: one row each.")
]
Scenarios = Annotated[
    str | None,
    typer.Option(
        "--scenarios",
        metavar="FILE.jsonl",
        help="One simulation a line: model, hw and options by name; others as given here.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Rows as they come: .csv, .jsonl, or a .parquet folder of parts."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with --out: rows that are there are not simulated again.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, max=1024, metavar="N", help="Processes. Default: 1.")]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster, or `local`: needs the extra `ray`.")
]
ExpectedOnly = Annotated[
    bool, typer.Option("--expected-only", help="Leave out the runs at both ends of the step times' interval.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the page with charts to one HTML file.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The requests of a load: when they arrive, and their lengths."""

    rate: Rate = None
    concurrency: Concurrency = None
    trace: Trace = None
    speedup: Speedup = None
    arrival: Arrival = None
    rate_profile: Profile = None
    input_len: InputLen = None
    output_len: OutputLen = None
    length_spread: Spread = None
    requests: Requests = None
    duration: Duration = None
    turns: Turns = None
    think: Think = None
    shared_prefix: Shared = None
    ignore_eos: IgnoreEos = False
    warmup: Warmup = None
    first_wave: FirstWave = Wave.keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server's scheduler and caches."""

    max_num_seqs: f.Seqs = None
    max_num_batched_tokens: f.StepTokens = None
    gpu_memory_utilization: f.Utilization = None
    mem_fraction_static: f.Static = None
    block_size: f.Block = None
    kv_tokens: KvTokens = None
    chunked_prefill: Chunked = None
    admission: Admission = None
    prefix_cache: PrefixCache = None
    speculative: Speculative = None
    acceptance: Acceptance = None
    front_end: FrontEnd = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Several servers: replicas, routers, pools."""

    replicas: Replicas = None
    router: Router = None
    router_delay: RouterDelay = None
    autoscale: Autoscale = None
    disaggregate: Disaggregate = None
    prefill_plan: PrefillPlan = None
    decode_plan: DecodePlan = None
    decode_hw: DecodeHw = None
    kv_link: KvLink = None
    kv_transfer: KvTransfer = None
