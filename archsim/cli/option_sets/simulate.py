"""Options of `archsim simulate`, with the spellings of serving benchmarks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.base.data_class import dataclass
from archsim.cli.option_sets import fit as f
from archsim.cli.options import Audio, Image, devices, models, tokens


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
        help="Requests in flight; with --rate, the most at once.",
    ),
]  # fmt: skip
Trace = Annotated[
    str | None, typer.Option("--trace", metavar="FILE", help="Recorded requests: times, lengths, blocks of prompts.")
]
Speedup = Annotated[float | None, typer.Option("--speedup", metavar="X", help="Replay the trace X times faster.")]
Arrival = Annotated[
    str | None, typer.Option("--arrival", metavar="KIND", help="poisson (default), constant, gamma:CV or burst:N.")
]
Profile = Annotated[
    str | None, typer.Option("--rate-profile", metavar="T:F,...", help="Rate over time, as SECONDS:FACTOR: 0:1,60:10.")
]
InputLen = Annotated[
    str | None,
    typer.Option(
        "--input-len", "--isl", metavar="DIST",
        help="Prompt tokens: 1k (default), uniform:A-B, lognormal:MEAN,CV, normal:MEAN,CV, FILE.csv:COLUMN, sharegpt.",
    ),
]  # fmt: skip
OutputLen = Annotated[
    str | None,
    typer.Option("--output-len", "--osl", metavar="DIST", help="Answer tokens, in the same forms; default: 256."),
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
Turns = Annotated[str | None, typer.Option("--turns", metavar="DIST", help="Requests per conversation.")]
Think = Annotated[str | None, typer.Option("--think", metavar="DIST", help="Seconds between answer and next turn.")]
Shared = Annotated[
    str | None,
    typer.Option(
        "--shared-prefix", metavar="LEN[:GROUPS]", help="Tokens that all prompts of a group share at their start."
    ),
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Requests generate all their tokens; SGLang then plans for whole answers.")
]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup", metavar="N|Ss|auto",
        help="What is not measured: requests, seconds (30s) or auto (while it drifts). Default: 5 % of an open loop.",
    ),
]  # fmt: skip
FirstWave = Annotated[
    Wave | None,
    typer.Option(
        "--first-wave",
        help="Whether a closed loop measures its first wave of requests. Default: keep; with --find: drop.",
    ),
]
KvTokens = Annotated[
    int | None,
    typer.Option("--kv-tokens", min=1, metavar="N", help="Tokens of one replica's cache, as the engine logs them."),
]
Chunked = Annotated[
    str | None,
    typer.Option("--chunked-prefill", metavar="on|off|N", help="Chunked prefill; N: prompt tokens in a step."),
]
PrefillTokens = Annotated[
    int | None,
    typer.Option(
        "--max-prefill-tokens", parser=tokens, metavar="N",
        help="Prompt tokens of a step beyond which no other prompt is taken (SGLang).",
    ),
]  # fmt: skip
PrefixCache = Annotated[
    str | None,
    typer.Option(
        "--prefix-cache", metavar="on|off|warm",
        help="Prefix cache; warm: shared prefixes are in it from the start. Default: as the engine.",
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
        help="Scale the replicas to a target of requests, waiting or kv each: 1-8:requests=20,delay=60.",
    ),
]  # fmt: skip
Disaggregate = Annotated[
    str | None, typer.Option("--disaggregate", metavar="P:D", help="Prefill replicas and decode replicas.")
]
PrefillPlan = Annotated[
    str | None, typer.Option("--prefill-plan", metavar="tp=N,...", help="Parallel degrees of the prefill replicas.")
]
DecodePlan = Annotated[
    str | None, typer.Option("--decode-plan", metavar="tp=N,...", help="Parallel degrees of the decode replicas.")
]
DecodeHw = Annotated[str | None, typer.Option("--decode-hw", metavar="HW", help="Device of the decode replicas.")]
KvLink = Annotated[
    str | None, typer.Option("--kv-link", metavar="RATE", help="KV transfer rate of each device: '50 GB/s'.")
]
KvTransfer = Annotated[
    str | None,
    typer.Option(
        "--kv-transfer", metavar="WHEN", help="Send the KV cache `after` the prompt (default), or `layers` as computed."
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
        "--speculative",
        metavar="WAY",
        help="Drafter and number of drafts: ngram:K, mtp:K, eagle:K, draft:MODEL,K; a tree: eagle:K,topk=N,tokens=N.",
    ),
]
Acceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance", metavar="A",
        help="Accepted drafts: a probability (0.7), shares by position (0.8,0.6,0.5), tokens per step (2.4), "
        "FILE.csv:COLUMN.",
    ),
]  # fmt: skip
FrontEnd = Annotated[
    str | None,
    typer.Option(
        "--front-end", metavar="none|measured|MS[,US]",
        help="Work before the engine: none (default), as in measured runs, or ms per request and us per prompt token.",
    ),
]  # fmt: skip
Slo = Annotated[
    str | None,
    typer.Option("--slo", metavar="TARGETS", help="Targets in seconds: ttft=0.5,tpot=0.03[,p=99] (also itl, e2e)."),
]
Goodput = Annotated[
    float | None,
    typer.Option("--goodput", metavar="F", help="Share of requests that must meet all targets. Default: 0.99."),
]
Find = Annotated[
    Load | None,
    typer.Option(
        "--find", help="Find what meets --slo: the largest rate or number of requests in flight, the fewest replicas."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of all random draws.")]
Replications = Annotated[int, typer.Option("--replications", min=1, max=1000, metavar="N", help="Independent runs.")]
Exact = Annotated[bool, typer.Option("--exact", help="Compute every step instead of looking it up; slow.")]
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
        help="One simulation per line: model, hw and options by name; others as given here.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Write rows as they come: .csv, .jsonl, or a .parquet folder of parts."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume --out: rows already in it are not simulated again.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, max=1024, metavar="N", help="Processes. Default: 1.")]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster, or `local`: needs the extra `ray`.")
]
ExpectedOnly = Annotated[
    bool, typer.Option("--expected-only", help="Simulate expected step times alone, not the ends of their interval.")
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
    first_wave: FirstWave = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server's scheduler and caches."""

    max_num_seqs: f.Seqs = None
    max_num_batched_tokens: f.StepTokens = None
    max_prefill_tokens: PrefillTokens = None
    gpu_memory_utilization: f.Utilization = None
    mem_fraction_static: f.Static = None
    block_size: f.Block = None
    kv_tokens: KvTokens = None
    chunked_prefill: Chunked = None
    admission: Admission = None
    prefix_cache: PrefixCache = None
    speculative: Speculative = None
    acceptance: Acceptance = None
    image: Image = None
    audio: Audio = None
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
