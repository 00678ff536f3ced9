"""`archsim fit` as a page: the verdict, the memory bar, the engine's own words, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.notes import urgent
from archsim.base.units import format_rate
from archsim.memory.check_fit import Fit
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Cell, Page, Row, Section, Style, bar, facts, percent, plural, row
from archsim.render.pages.memory_rows import graphs_name, step_text, towers_remark
from archsim.render.provenance import basis

MEANING = {
    "total": "of the total, with weights, one step and caches in it",
    "static": "of the total, with weights and caches in it",
    "free": "of what is free after weights and one step",
    "none": "all that is visible: the engine reserves nothing ahead",
}
"""What a memory fraction is of."""


def gib(size: float) -> str:
    """Bytes in GiB, as engines log them."""
    return f"{size / 2**30:,.2f} GiB"


def page(
    f: Fit,
    *,
    inputs: Sequence[str] = (),
    asked: tuple[str, str] | None = None,
    options: Mapping[str, object] = {},
    changes: Sequence[str] = (),
    verbose: bool = False,
) -> Page:
    """The report. inputs: files behind it. asked: model and device as spelt, None where no command
    asked: then there is none to go on with. options: the others, by name. changes: `--set` assignments.
    """
    changed = [f"changed: {', '.join(changes)}"] if changes else []
    sections = [_verdict(f), _memory(f), _cache(f), _offload(f), _suggestions(f), _inverse(f)]
    text = "exact = counted from the spec · modelled = the engine's rules at that version"
    end = basis(text, f.assumptions, inputs, verbose)
    end += [_next(f, asked, {**options, "set": tuple(changes)})] if asked else []
    return Page(
        head=(*head(f), *changed), notes=urgent(f.assumptions), sections=(*(s for s in sections if s is not None), *end)
    )


def head(f: Fit) -> tuple[str, str]:
    """What was asked, in two lines."""
    plan = f.plan
    degrees = [f"{name} {n}" for name in ("tp", "pp", "ep", "dp") if (n := getattr(plan, name)) > 1]
    where = f.hardware.name if plan.devices == 1 else f"{plan.devices:,} × {f.hardware.name}, {', '.join(degrees)}"
    engine = f.engine.rules.title
    parts = [f"{f.formats.name} weights"]
    parts += [f"{f.cache_name} KV cache"] if f.kv_tokens is not None else []
    parts += [f"{f.length:,} tokens per request"]
    parts += [f"{f.batch:,} at once"] if f.batch > 1 else []
    parts.append(" ".join([engine, f.engine.version.partition("@")[2] or f.engine.version]).strip())
    return f"{f.model.name} on {where}", " · ".join(parts)


def bare(f: Fit) -> str:
    """The answer in one line."""
    tokens = "" if f.kv_tokens is None else f", {f.kv_tokens:,} KV tokens"
    return f"{f.verdict}: {f.model.name} on {f.plan.devices} × {f.hardware.id}{tokens}\n"


def _verdict(f: Fit) -> Section:
    styles: dict[str, Style] = {"FITS": "good", "TIGHT": "note", "NO": "bad"}
    cell = Cell(f.verdict, styles[f.verdict])
    return Section(title="", rows=(row(cell, _why(f)),), align="l", below=_what_takes_it(f))


def _what_takes_it(f: Fit) -> tuple[str, ...]:
    """Where the memory goes and the cheapest change that makes it fit; nothing where it fits."""
    b = f.budget
    if f.fits:
        return ()
    loaded, aside = b.weights + b.layout + b.extra, step_text(f.engine.rules, f.batched_tokens, f.seqs)
    text = f"of {gib(b.limit)}, weights take {gib(loaded)} and {gib(b.activations)} are set aside for {aside}"
    change = next(iter(f.suggestions), None)
    return (text if change is None else f"{text}; `{change.change}` makes it fit",)


def _why(f: Fit) -> str:
    room, what = f.budget.room, "a request" if f.batch == 1 else f"{f.batch:,} requests"
    if room < 0:
        return f"the weights and one step do not fit: short by {gib(-room)}"
    if not f.need:
        return f"{gib(room)} are left"
    need = f"{what} of {f.length:,} tokens needs {gib(f.need)}"
    left = f"{gib(room)} {'are' if f.fits else 'is all that is'} left for the cache"
    close = ", within 10 %" if f.verdict == "TIGHT" else ""
    return f"{need}, {left}{close}"


def _memory(f: Fit) -> Section:
    b, step = f.budget, step_text(f.engine.rules, f.batched_tokens, f.seqs)
    static, beyond = b.meaning == "static", ", beyond the budget"
    parts = [
        ("weights", b.weights, weights_known(f)), ("  tables and padding", b.layout, "modelled"),
        ("adapters, other parts", b.extra, "modelled"),
        ("activations", b.activations, f"modelled: {step}" + beyond * static),
        (graphs_name(f.hardware.vendor), b.graphs, "modelled" + beyond * (not b.graphs_inside or static)),
        ("non-torch", b.non_torch, "modelled: context and libraries" + beyond * static),
    ]  # fmt: skip
    rows = [_part(name, size, b.visible, note) for name, size, note in parts if size or name == "weights"]
    if b.room >= 0:
        rows.append(_part("left for the cache", b.room, b.visible, f"a request takes {gib(f.request_bytes)}"))
    else:
        rows.append(row("short by", Cell(gib(-b.room), "bad"), bar(0), percent(-b.room / b.visible), ""))
    share = "" if b.meaning == "none" else f" ({b.share:.3g} {MEANING[b.meaning]})"
    title = "Memory per device" if f.plan.devices > 1 else "Memory"
    return Section(
        title=title, rows=tuple(rows), align="lrlr", aside=f"{gib(b.visible)} visible, {gib(b.limit)} budget",
        below=(_below(f, share),),
    )  # fmt: skip


def _below(f: Fit, share: str) -> str:
    """What sets the budget."""
    if f.settings.kv_cache_memory_bytes is not None:
        return f"budget: the cache was given {gib(f.settings.kv_cache_memory_bytes)}, whatever the memory fraction"
    return f"memory fraction{share}" if share else f"budget: {MEANING['none']}"


def weights_known(f: Fit) -> str:
    """How the weights are known, and which towers are among them."""
    return towers_remark(f.model, f.towers) or "exact"


def _part(name: str, size: int, whole: int, note: str) -> Row:
    return row(name, gib(size), bar(size / whole), percent(size / whole), note)


PLAIN_LINES = {
    "weights": "weights: {weights}",
    "peak": "peak while loading: {peak}",
    "room": "left for the cache: {room}",
    "tokens": "KV cache: {tokens:,} tokens",
    "host_tokens": "in host memory: {host_tokens:,} more tokens",
    "concurrency": "requests of {length:,} tokens at once: {concurrency:.2f}",
    "longest": "longest request: {longest:,} tokens",
}
"""What is said of the cache where the engine logs nothing of the kind."""


def _cache(f: Fit) -> Section | None:
    """The cache in the lines that people search the engine's log for, and those that it does not log."""
    loaded = f.budget.weights + f.budget.layout + f.budget.extra
    facts = {
        "weights": gib(loaded), "peak": gib(f.load_peak) if f.load_peak > loaded else None, "room": gib(f.budget.room),
        "tokens": f.kv_tokens, "host_tokens": f.host_tokens, "concurrency": f.concurrency, "longest": f.longest,
    }  # fmt: skip
    logged = f.engine.rules.log
    lines = [
        (logged.get(name) or PLAIN_LINES[name]).format(**facts, length=f.length)
        for name, value in facts.items() if value is not None
    ]  # fmt: skip
    if f.kv_bytes_per_token is not None:
        each = f"{f.kv_bytes_per_token:,.0f} B per token"
        kind = "exact" if f.uniform else f"mean over {f.length:,} tokens; layers differ"
        lines.append(f"{each} on each device ({kind})")
    title = f"In {f.engine.rules.title}'s log lines" if logged else "Cache"
    return Section(title=title, rows=tuple(row(line) for line in lines), wrap=False)


def _offload(f: Fit) -> Section | None:
    o = f.offload
    if o is None:
        return None
    source = "assumed: a desktop with two channels of DDR5-5600; `--host-bandwidth`" if o.assumed else "as given"
    if f.settings.cpu_offload_gb and f.settings.host_bandwidth is None and not o.assumed:
        source = "the device's link to its host"
    pairs = [
        ("weights", gib(o.host_weights)),
        ("caches", gib(o.host_caches)),
        ("bandwidth", f"{format_rate(o.host_bandwidth, 'B/s')}, {source}"),
        ("decode", f"{1 / o.expected_s:,.3g} tokens/s expected, {1 / o.ideal_s:,.3g} at most, at batch 1"),
    ]
    return facts("In host memory", pairs)


def _suggestions(f: Fit) -> Section | None:
    if not f.suggestions:
        return None
    rows = []
    for change in f.suggestions:
        tokens = "" if change.kv_tokens is None else f"{change.kv_tokens:,} tokens"
        longest = "" if change.longest is None else f"a request of up to {change.longest:,}"
        rows.append(row(change.change, change.verdict, tokens, longest))
    title = "Options that hold more" if f.fits else "What would make it fit"
    return Section(title=title, rows=tuple(rows), align="llrl", aside="cheapest change first")


def _inverse(f: Fit) -> Section | None:
    turned = f.inverse
    if turned is None:
        return None
    fewest = "none up to 64" if turned.devices is None else plural(turned.devices, "device")
    pairs = [
        ("fewest devices", fewest),
        ("widest weights", turned.weights or "none that was tried"),
        ("largest batch", None if turned.batch is None else f"{turned.batch:,} × {f.length:,} tokens"),
        ("longest request", _longest(f)),
    ]
    return facts("Limits", pairs)


def _longest(f: Fit) -> str | None:
    """Tokens of the longest request; what limits it where memory does not."""
    if f.longest is not None:
        return f"{f.longest:,} tokens"
    return "no limit but the model's context" if f.fits and f.kv_tokens is not None else None


ALIKE = ("batch", "input_len", "output_len", "source_len", "weights", "kv_cache_dtype", "engine", "without", "set")
"""Options that `estimate` and `fit` share, beside those of the plan."""


def _next(f: Fit, asked: tuple[str, str], options: Mapping[str, object]) -> Section:
    """Commands that go on from here. The plan is spelt out: `estimate` would choose the devices anew."""
    model, hw = asked
    degrees = {name: n for name in ("tp", "pp", "ep", "dp") if (n := getattr(f.plan, name)) > 1}
    kept = {"devices": f.plan.devices, **degrees, **{name: options[name] for name in ALIKE}}
    lines = [(command_line("estimate", model, hw=hw, **kept), "how fast it is")]
    lines.append(
        (
            command_line("explain", model, "kv_cache", weights=options["weights"], set=options["set"]),
            "the formula of the cache",
        )
    )
    return try_section(lines)


def table(answers: Sequence[Fit]) -> Page:
    """Several devices, weight formats or both beside each other."""
    first = answers[0]
    formats = len({f.formats.name for f in answers}) > 1
    rows = []
    for f in answers:
        turned = f.inverse
        rows.append(
            row(
                f"{f.plan.devices} × {f.hardware.id}", *([f.formats.name] if formats else []), f.verdict,
                gib(f.budget.room),
                "" if f.kv_tokens is None else f"{f.kv_tokens:,}",
                "" if f.longest is None else f"{f.longest:,}",
                "" if f.concurrency is None else f"{f.concurrency:.2f}x",
                str(turned.devices or "none") if turned else "", (turned.weights or "none") if turned else "",
            )
        )  # fmt: skip
    common = ("", "for the cache", "KV tokens", "longest", "concurrency", "fewest")
    heads = ("weights", *common, "widest") if formats else (*common, "weights")
    _, asked = head(first)
    asked = asked.partition(" · ")[2] if formats else asked
    section = Section(
        title="Device", rows=tuple(rows), align="l" * formats + "llrrrrrl", header=heads, wrap=False, keys=1 + formats
    )
    return Page(head=(first.model.name, asked), sections=(section,))
