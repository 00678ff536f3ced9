"""`archsim simulate` as a page: what requests see, how much is served, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from archsim.base.json_types import JsonObject
from archsim.base.notes import urgent
from archsim.base.units import format_number, format_rate, format_seconds, format_span
from archsim.engines.names import DEFAULT_ENGINE
from archsim.predict.assumptions import EVIDENCE
from archsim.predict.simulation import Simulation
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Cell, Page, Row, Section, footer, percent, plural, row, spark
from archsim.render.provenance import basis
from archsim.serving.interval import Interval

LATENCIES = {
    "ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL, all gaps", "e2e_s": "end to end", "queue_s": "in the queue",
}  # fmt: skip
"""Metrics on the page, with their names."""

STATISTICS = ("mean", "p50", "p90", "p99")

LIMITS = {
    "rate": "the rate at which requests arrive", "concurrency": "the number of requests in flight",
    "cache": "room in the KV cache", "sequences": "requests that run at once",
    "step tokens": "tokens of a step",
}  # fmt: skip
"""`limited_by` of the JSON, in words."""

SETTINGS = {"sequences": "seqs", "step tokens": "tokens"}
"""Limits that are settings of an engine, by their keys among its flags."""

COLUMNS = 32
"""Columns of a line over time."""


def page(
    s: Simulation,
    *,
    inputs: Sequence[str] = (),
    asked: tuple[str, str] | None = None,
    options: Mapping[str, object] = {},
    verbose: bool = False,
) -> Page:
    """The report. inputs: files behind it. asked: model and device as spelt, None where no command asked. options: the
    others, by name.
    """
    sections = [*_found(s), _latencies(s), _throughput(s), *_slo(s), *_cost(s), _state(s), *_replicas(s), *_refused(s)]
    text = f"times are {EVIDENCE[s.evidence]}; intervals are 80 %, of the model and of sampling"
    end = basis(text, s.assumptions, inputs, verbose)
    end += [_next(asked, options)] if asked else []
    return Page(head=head(s), notes=urgent(s.assumptions), sections=(*sections, *end))


def _cost(s: Simulation) -> Iterator[Section]:
    """What the load costs, where a price is asked for."""
    if s.cost is not None:
        from archsim.render.pages.cost import cost_sections

        yield from cost_sections(s.cost)


def head(s: Simulation) -> tuple[str, ...]:
    """What was asked, in three lines."""
    plan, w = s.server.plan, s.workload
    degrees = [f"{name} {n}" for name in ("tp", "pp", "ep", "dp") if (n := getattr(plan, name)) > 1]
    where = s.hardware.name if plan.devices == 1 else f"{plan.devices:,} × {s.hardware.name}, {', '.join(degrees)}"
    rules, version = s.server.engine.rules, s.server.engine.version
    parts = [f"{s.server.formats.name} weights", f"{s.server.formats.kv.name} KV cache"]
    parts += [] if rules.name == DEFAULT_ENGINE else [f"{rules.title} {version or rules.version}".strip()]
    parts += [] if s.server.decodes_with is None else [f"speculative {s.server.decodes_with}"]
    runs = "" if w["replications"] == 1 else f", {w['replications']} times"
    requests = f"{w['requests']:,} requests{runs}, {w['measured_requests']:,} measured"
    lengths = [f"{name} {w[key]['mean']:,.0f} tokens (p99 {w[key]['p99']:,})"
               for name, key in (("prompt", "input_len"), ("answer", "output_len"))]  # fmt: skip
    carried = [f"{one.prompt_tokens:,} more of {plural(one.count, one.noun)}" for one in s.server.encoded]
    lengths[0] += "".join(f" and {text}" for text in carried)
    where += fleet(s)
    return f"{s.model.name} on {where}", " · ".join(parts), " · ".join([offered(s), requests, *lengths])


def fleet(s: Simulation) -> str:
    """Replicas and their router, where there are several."""
    plan = s.server.fleet
    if plan.alone:
        return ""
    if plan.scaling is not None:
        return f", {plan.scaling}, {plan.routing} router"
    if s.server.decode is None:
        return f", {plural(plan.replicas, 'replica')}, {plan.routing} router"
    return f", {plan.replicas:,} for prompts and {second(s)} for answers, {plan.routing} router"


def second(s: Simulation) -> str:
    """The replicas that make answers, with what differs from the others."""
    assert s.server.decode is not None
    server = s.server.decode.server
    words = []
    if server.plan.devices > 1:
        words += [
            f"of {server.plan.devices:,}",
            *(f"{n} {d}" for n in ("tp", "ep", "dp") if (d := getattr(server.plan, n)) > 1),
        ]
    if server.hardware.id != s.hardware.id:
        words.append(f"on {server.hardware.name}")
    return f"{s.server.fleet.decode_replicas:,}" + (f" ({', '.join(words)})" if words else "")


def offered(s: Simulation) -> str:
    """How requests arrive, in words."""
    w = s.workload
    if w["trace"]:
        return f"trace {w['trace']}"
    if w["arrival"] == "all at once":
        return "all at once"
    if w["rate_per_s"] is None:
        return f"{plural(w['concurrency'], 'request')} in flight"
    limit = f", at most {w['concurrency']:,} in flight" if w["concurrency"] else ""
    return f"{w['rate_per_s']:,g} requests/s, {w['arrival']}{changes(s)}{limit}"


def changes(s: Simulation) -> str:
    """How the rate changes over time, in words."""
    points = [point for point in s.load.profile if point != (0.0, 1.0)]
    return "".join(f", × {factor:g} from {start:g} s on" for start, factor in points)


def bare(s: Simulation) -> str:
    """The answer in one line."""
    words = []
    for metric, name in (("ttft_s", "TTFT"), ("tpot_s", "TPOT")):
        mean, tail = (s.observed.latencies[metric][statistic] for statistic in ("mean", "p99"))
        if mean is None:
            words.append(f"{name} not given")
        else:
            words.append(
                f"{name} {format_seconds(mean.value)}" + (f" (p99 {format_seconds(tail.value)})" if tail else "")
            )
    words.append(format_rate(s.observed.rates["output_tokens_per_s"].value, "tokens/s"))
    where = f"{s.server.plan.devices} × {s.hardware.id}{fleet(s)}"
    return f"{s.model.name} on {where}, {offered(s)}: {', '.join(words)}\n"


def _latencies(s: Simulation) -> Section:
    rows = [_latency(name, s.observed.latencies[metric]) for metric, name in LATENCIES.items()]
    front_s = s.server.left_out.seconds(int(s.usual.input_len))
    took = f"TTFT is the engine's; in runs under load the front end took {format_seconds(front_s)} more"
    below = (f"{took} (`--front-end measured`)",) if front_s and rows[0][1].text != "-" else ()
    header = (*STATISTICS, "interval of the mean")
    return Section(title="Latency", rows=tuple(rows), align="lrrrrr", header=header, below=below)


def _latency(name: str, found: Mapping[str, Interval | None]) -> Row:
    """One metric; a dash where a number does not exist."""
    values = [found[statistic] for statistic in STATISTICS]
    mean = values[0]
    span = "" if mean is None else format_span(mean.low, mean.high)
    return row(name, *(Cell("-", "dim") if v is None else format_seconds(v.value) for v in values), span)


def _throughput(s: Simulation) -> Section:
    names = {"requests_per_s": "requests/s", "output_tokens_per_s": "output tokens/s",
             "total_tokens_per_s": "all tokens/s"}  # fmt: skip
    rates = s.throughput()
    rows = [
        row(
            name, format_number(rates[key].value), f"{format_number(rates[key].low)} – {format_number(rates[key].high)}"
        )
        for key, name in names.items()
    ]
    return Section(title="Throughput", rows=tuple(rows), align="lrr", header=("mean", "interval"))


SIZES = {
    "rate_per_s": ("requests/s", "requests/s"), "concurrency": ("request in flight", "requests in flight"),
    "replicas": ("replica", "replicas"),
}  # fmt: skip
"""What was found, in words: one, and several."""


def _found(s: Simulation) -> Iterator[Section]:
    """The largest load that meets the service level."""
    found = s.found
    if found is None or found.size is None or s.observed.slo is None:
        return

    def number(value: float) -> str:
        return format_number(value) if found.quantity == "rate_per_s" else f"{value:,.0f}"

    def amount(value: float) -> str:
        one, several = SIZES[found.quantity]
        return f"{number(value)} {one if number(value) == '1' else several}"

    size = found.size
    name = "smallest fleet" if found.quantity == "replicas" else "largest load"
    if found.binding is None:
        rows = [row(name, f"at least {amount(size.value)}", ""),
                row("bound by", "nothing up to there; no larger load was tried", "")]  # fmt: skip
    else:
        rows = [row(name, amount(size.value), f"{number(size.low)} – {number(size.high)}"),
                row("bound by", _binding(found.binding), "")]  # fmt: skip
    if found.binding is not None and size.sampling_low is not None and size.sampling_high is not None:
        span = f"{number(size.sampling_low)} – {number(size.sampling_high)}"
        rows.insert(1, row("95 % of sampling alone", "", span))
    if found.ratio is not None:
        others = ", ".join(f"{ratio} {number(rate)}" for ratio, rate in found.ratios.items())
        rows.insert(0, row("best ratio", found.ratio, f"largest rates: {others}"))
    if found.next_binding is not None:
        name, larger = found.next_binding
        rows.append(row("without that target", amount(larger), f"bound by {_binding(name)}"))
    targets = ", ".join(f"{name.upper()} {format_seconds(value)}" for name, value in s.observed.slo.targets.items())
    wave = ", without the first wave" if found.quantity == "concurrency" and not s.how.first_wave else ""
    below = (f"with {targets} for {_share(s)}{wave}; below, the run at this load",)
    yield Section(title="Capacity", rows=tuple(rows), align="lrl", below=below)


def _share(s: Simulation) -> str:
    """How many requests must meet the targets, in words."""
    slo = s.observed.slo
    assert slo is not None
    return (
        f"p{slo.percentile:g} of each"
        if slo.percentile is not None
        else f"{percent(slo.share)} of requests, all at once"
    )


def _binding(name: str) -> str:
    """What binds, in words: `ttft_p99` is TTFT p99."""
    metric, _, level = name.partition("_p")
    return f"{metric.upper()} p{level}" if level else "a growing backlog"


def _slo(s: Simulation) -> Iterator[Section]:
    """Whether the service level holds."""
    seen = s.observed
    if seen.slo is None or seen.attained is None or s.found is not None:
        return
    targets = ", ".join(f"{name.upper()} {format_seconds(value)}" for name, value in seen.slo.targets.items())
    verdict = Cell("MET", "good") if seen.met else Cell("MISSED", "bad")
    rows = [row("service level", verdict, targets),
            row("requests that meet it", percent(seen.attained.value), f"{percent(seen.slo.share)} required"),
            row("goodput", format_rate(seen.rates["goodput_requests_per_s"].value, "requests/s"), "")]  # fmt: skip
    yield Section(title="Service level", rows=tuple(rows), align="lrl")


def _state(s: Simulation) -> Section:
    state = s.state
    rows = [
        row("running", f"{state['running']['mean']:,.1f}", f"at most {state['running']['max']:,}",
            over_time(s.series, "running")),
        row("waiting", f"{state['waiting']['mean']:,.1f}", f"at most {state['waiting']['max']:,}",
            over_time(s.series, "waiting")),
        row("KV cache in use", percent(state["kv_occupancy"]["mean"]),
            f"at most {percent(state['kv_occupancy']['max'])}", over_time(s.series, "kv_occupancy")),
    ]  # fmt: skip
    if state["prefix_hit_share"]:
        rows.append(row("prompts from the cache", percent(state["prefix_hit_share"]), "of prompt tokens", ""))
    below = [f"{state['steps']:,.0f} steps of {state['step_tokens']:,.0f} tokens on average (at most "
             f"{s.server.policy.budget:,}), {percent(state['prompt_steps'])} with a prompt"]  # fmt: skip
    if state["accepted_per_step"] is not None:
        below.append(f"a decode accepts {state['accepted_per_step']:.2f} drafts a step on average; tokens of one step "
                     "arrive together, so ITL has gaps of 0")  # fmt: skip
    if state["preemptions"]:
        again = f"{state['recomputed_tokens']:,.0f} tokens are recomputed"
        below.append(f"{state['preemptions']:,.1f} preemptions a run: {again}")
    if s.server.fleet.scaling is not None:
        there = state["replicas"]
        rows.append(
            row("replicas", f"{there['mean']:,.1f}", f"at most {there['max']:,}", over_time(s.series, "replicas"))
        )
    if state["kv_transfer_s"]:
        sent = state["kv_transfer_s"]
        times = f"{format_seconds(sent['mean'])} after the first token, p99 {format_seconds(sent['p99'])}"
        below.append(f"the KV cache has arrived {times}")
    below.append(f"limited by {limit_in_words(s)}")
    if not state["stationary"]:
        more = f"not stationary: {state['backlog_per_s']:.3g} more requests in the system each second"
        enough = state["replicas_for_load"]
        below.append(more if enough is None else f"{more}; about {plural(enough, 'replica')} would serve them")
    return Section(title="Server", rows=tuple(rows), align="lrll", header=("mean", "", "over the run"),
                   below=tuple(below))  # fmt: skip


def limit_in_words(s: Simulation) -> str:
    """What limits a run, with the engine's own flag where it is a setting; a pool of recurrent states where that is
    what bounds the requests that run.
    """
    limit, server = s.state["limited_by"], s.server
    most = server.memory.requests_of_states(prefixes=server.prefix != "off")
    if limit == "sequences" and server.decode is None and most is not None and most <= server.policy.max_seqs:
        return "room for recurrent states, which have a pool of their own"
    flag = s.server.engine.rules.flags.get(SETTINGS.get(limit, ""), "")
    return f"{LIMITS.get(limit, limit)}{f' ({flag})' if flag else ''}"


LISTED = 8
"""Replicas that are listed one by one; of more, three."""


def _replicas(s: Simulation) -> Iterator[Section]:
    """Each replica of a fleet; of a large one the least busy, the one in the middle, and the busiest."""
    replicas = s.replicas
    if len(replicas) < 2:
        return
    names = [f"{one['pool'] or ''} {one['replica']}".strip() for one in replicas]
    if len(replicas) > LISTED:
        ordered = sorted(replicas, key=lambda one: one["utilisation"])
        replicas = [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
        names = [
            f"{words}, {one['replica']}"
            for words, one in zip(("least busy", "median", "busiest"), replicas, strict=True)
        ]
    rows = [row(name, *_replica(one)) for name, one in zip(names, replicas, strict=True)]
    header = ("requests", "TTFT", "end to end", "running", "waiting", "KV cache", "busy")
    yield Section(title="Replicas", rows=tuple(rows), align="lrrrrrrr", header=header)


def _replica(one: JsonObject) -> Iterator[str]:
    """The cells of a replica."""
    yield f"{one['requests']:,}"
    for name in ("ttft_s", "e2e_s"):
        yield "-" if one[name] is None else format_seconds(one[name])
    yield from (f"{one[name]:,.1f}" for name in ("running", "waiting"))
    yield percent(one["kv_occupancy"]["mean"])
    yield percent(one["utilisation"])


def over_time(series: JsonObject, name: str) -> str:
    """A value over the run, in columns of eight heights."""
    values = series[name]
    if not values or not max(values):
        return ""
    step = max(1, -(-len(values) // COLUMNS))
    return spark([max(values[i : i + step]) for i in range(0, len(values), step)])


def _refused(s: Simulation) -> Iterator[Section]:
    """Why numbers are missing, each reason once."""
    reasons: dict[str, list[str]] = {}
    for metric, reason in s.observed.refused.items():
        name, _, statistic = metric.partition(".")
        if name in LATENCIES:
            reasons.setdefault(reason, []).append(" ".join(filter(None, (LATENCIES[name], statistic))))
    if reasons:
        yield footer(("Not given" if not i else "", f"{', '.join(names)}: {reason}")
                     for i, (reason, names) in enumerate(reasons.items()))  # fmt: skip


def _next(asked: tuple[str, str], options: Mapping[str, object]) -> Section:
    """Commands that go on from here."""
    model, hw = asked
    same = ("devices", "tp", "pp", "weights", "kv_cache_dtype", "engine", "image", "audio")
    plan = {name: options.get(name) for name in same}
    lines = [(command_line("estimate", model, hw=hw, **plan), "one request alone, kernel by kernel")]
    if options.get("slo") is None:
        lines.append((command_line("simulate", model, hw=hw, **{**options, "slo": "ttft=0.5,tpot=0.05"}),
                      "whether requests meet targets"))  # fmt: skip
    elif options.get("find") is None and options.get("trace") is None:
        load = {name: value for name, value in options.items() if name not in ("rate", "concurrency")}
        what = "concurrency" if options.get("rate") is None else "rate"
        lines.append((command_line("simulate", model, hw=hw, **{**load, "find": what}),
                      "the largest load that meets them"))  # fmt: skip
    return try_section(lines)


def subject(s: Simulation) -> str:
    """What the answer is about."""
    return f"{s.model.name} on {plural(s.server.plan.devices, 'device')} {s.hardware.id}{fleet(s)}, {offered(s)}"
