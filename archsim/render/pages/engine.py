"""An engine's document as a page: memory, time, scheduler, parallelism, and what changed when."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.engines.names import EngineChoice
from archsim.engines.overhead import overheads_of
from archsim.render.page import Page, Row, Section, bullets, facts, plural, row
from archsim.spec.engine import Engine, EngineMemoryRules, Exchange
from archsim.timing.calibration import default_store

MEANING = {
    "total": "a share of the total, for weights, one step and caches",
    "static": "a share of the total, for weights and caches, without steps and graphs",
    "free": "a share of what is free after weights and one step, for caches",
    "none": "none: no memory is reserved in advance",
}
PROFILE = {
    "chunk": "of a step of max-num-batched-tokens",
    "length": "of a step with one whole request",
    "batch": "of a step with the whole prompts of a batch",
    "estimate": "as in `archsim estimate`",
}
PEAK = {
    "streamed": "layer by layer",
    "both": "while the checkpoint's weights are in memory",
    "whole": "after the whole checkpoint is loaded",
}
QUANTISED = {
    "kernel": "quantised by a kernel of their own",
    "rows": "quantised by a kernel that finds a scale for each token",
    "passes": "quantised by the norm or activation before",
    "all": "quantised by the norm, activation or attention before",
}
LOGITS_ROWS = {"seqs": "max-num-seqs rows", "tokens": "all tokens of the step", "last": "the last positions"}
WINDOWS = {"full": "the whole context", "cut": "the window", "chunk": "the window and the tokens of one step"}

EXPERTS = {"cut": "each sharded over all ranks", "spread": "whole, distributed over ranks"}
PIPELINE = {
    "even": "equally many layers each, rounded up",
    "first": "one more layer on the first where they do not divide evenly",
    "last": "one more layer on the last where they do not divide evenly",
    "before_last": "one more layer on those before the last where they do not divide evenly",
    "all_last": "all remaining layers on the last",
    "output": "the output matrix counts as a layer",
}


def engine_page(chosen: EngineChoice, file: str) -> Page:
    """The rules at a version, and their sources."""
    rules = chosen.rules
    version = chosen.version or (f"{rules.version}, the newest known" if rules.version else "")
    sources = tuple(row(key, f"{s.url} (covers {', '.join(s.covers)})") for key, s in rules.sources.items())
    name = [("name", rules.name), ("version", version), ("also", ", ".join(rules.aliases))]
    sections = [
        facts("Engine", name),
        facts("Memory", _memory(rules.memory)),
        facts("Caches and weights", _keeps(rules.memory)),
        facts("Time", _time(rules)),
        facts("Scheduler", _scheduler(rules)),
        Section(title="Default limits", rows=tuple(_limits(rules))),
        facts("Several devices", _parallelism(rules)),
        Section(title="Older versions", rows=tuple(row(v, _short(change)) for v, change in rules.before.items())),
        bullets("Notes", (*rules.notes, *chosen.notes)),
        Section(title="Sources", rows=sources),
        facts("File", [(file, " ")]),
    ]
    return Page(head=(rules.title,), sections=tuple(s for s in sections if s.rows))


def _memory(rules: EngineMemoryRules) -> Iterator[tuple[str, str]]:
    if rules.as_ is not None:
        yield "rules", f"those of {rules.as_}"
    yield "budget", MEANING[rules.share.meaning]
    if rules.share.default is not None:
        yield "  default share", f"{rules.share.default:g}"
    if rules.share.auto is not None:
        yield "  default share", "from the device, the chunk and the captured batches"
    yield from ((f"driver reserve ({what})", size) for what, size in rules.reserve.items())
    yield "activations", PROFILE[rules.activations.profile]
    rows, copies = LOGITS_ROWS[rules.activations.logits_rows], rules.activations.logits_copies
    yield "sampler buffers", f"{copies:g} × float32 logits of {rows}"
    if rules.graphs is not None:
        where = "inside" if rules.graphs.inside else "outside"
        yield ("CUDA graphs", f"{rules.graphs.bytes} ({rules.graphs.low} to {rules.graphs.high}), {where} the budget")
    for part in rules.non_torch:
        least = f" from {part.devices} devices on" if part.devices > 1 else ""
        yield "non-torch", f"{part.bytes} ({part.low} to {part.high}){least}"


def _keeps(rules: EngineMemoryRules) -> Iterator[tuple[str, str]]:
    yield "block size, tokens", f"{rules.block_size:,}"
    yield "sliding windows keep", WINDOWS[rules.windows]
    yield "MLA caches", "the latent" if rules.latent == "latent" else "keys and values of all heads"
    yield "recurrent states", "fp32" if rules.states == "fp32" else "as the model defines"
    yield from ((f"cache of {fmt} weights", cache) for fmt, cache in rules.cache_formats.items())
    yield from ((f"{fmt} padded by", f"{factor:g}") for fmt, factor in rules.layout.items())
    if rules.online is not None:
        yield "online quantisation", f"{', '.join(rules.online.formats)}, {PEAK[rules.online.peak]}"


def _time(rules: Engine) -> Iterator[tuple[str, str]]:
    yield "kernel times", f"measured with {rules.time.kernels}"
    yield "QKV, gate and up", "one GEMM" if rules.time.fused_qkv else "separate GEMMs"
    yield from ((f"{fmt} activations", QUANTISED[by]) for fmt, by in rules.time.quantised_before.items())
    yield from ((f"{fmt} GEMMs", f"kernels ported from {name}") for fmt, name in rules.time.ported.items())
    yield from _exchange(rules.time.exchange)
    launch = f"{rules.time.launch_us:g} µs each" if rules.time.launch_us else "captured as a CUDA graph"
    yield "kernel launches", launch
    work = overheads_of(rules.name, measured=default_store().engines, document=rules).host
    for name, (value, low, high) in (("host time per step", work.step_s), ("  and per sequence", work.sequence_s)):
        if value:
            yield name, f"{value * 1e6:,.0f} µs ({low * 1e6:,.0f} to {high * 1e6:,.0f}), fitted to runs"


def _exchange(rules: Exchange) -> Iterator[tuple[str, str]]:
    """How tokens reach experts on other ranks."""
    beyond = "expert-parallel kernels" if rules.kernels == "expert_parallelism" else "an all-to-all"
    if rules.gathered:
        yield "expert dispatch", f"all-gather on up to {rules.gathered} ranks, {beyond} beyond"
    else:
        yield "expert dispatch", beyond


def _scheduler(rules: Engine) -> Iterator[tuple[str, str]]:
    mixed = rules.scheduler.chunked_prefill_with_decode
    yield "prompts", "in chunks, together with decodes" if mixed else "in separate steps"
    context = rules.scheduler.context
    yield "default context", f"{context:,}" if isinstance(context, int) else f"of the {context}"


def _parallelism(rules: Engine) -> Iterator[tuple[str, str]]:
    yield "split by", rules.parallelism.splits
    yield "experts under TP", EXPERTS[rules.parallelism.experts]
    yield "pipeline stages", PIPELINE[rules.parallelism.pipeline]


def _limits(rules: Engine) -> Iterator[Row]:
    for limit in rules.scheduler.limits:
        seqs = "" if limit.seqs is None else plural(limit.seqs, "sequence")
        yield row(f"below {limit.below}" if limit.below else "else", f"{limit.tokens:,} tokens", seqs)
        if limit.otherwise is not None:
            other = limit.otherwise
            yield row(", ".join(limit.excluded), f"{other.tokens:,} tokens", plural(other.seqs, "sequence"))


def _short(change: object) -> str:
    """A change of rules in one line."""
    if isinstance(change, dict):
        return ", ".join(f"{key} {_short(value)}" for key, value in change.items())
    if isinstance(change, list | tuple):
        return "; ".join(map(_short, change))
    return "none" if change is None else str(change)
