"""An engine's memory rules as a page: what its fraction is of, what it reserves, and what changed when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from archsim.engines.names import ALIASES, Chosen
from archsim.render.page import Page, Row, Section, facts, row
from archsim.spec.engine import Engine

MEANING = {
    "total": "the total: weights, one step and caches are inside",
    "static": "the total: weights and caches are inside, steps and graphs are not",
    "free": "what is free after weights and one step",
    "none": "nothing: no memory is reserved ahead",
}
PROFILE = {
    "chunk": "of max-num-batched-tokens",
    "length": "of a whole request",
    "estimate": "as `archsim estimate` prices it",
}
WINDOWS = {"full": "the whole context", "cut": "the window", "chunk": "the window and the tokens of one step"}


def engine_page(chosen: Chosen, file: str) -> Page:
    """The rules at a version, and their sources."""
    rules = chosen.rules
    version = chosen.version or f"{rules.version}, the newest that is known"
    sources = tuple(row(key, f"{s.url} (covers {', '.join(s.covers)})") for key, s in rules.sources.items())
    sections = [
        facts("Engine", [("name", rules.name), ("version", version), ("also", ", ".join(also(chosen.name)))]),
        facts("Memory", list(_memory(rules))),
        facts("Caches and weights", list(_kept(rules))),
        Section(title="Default limits", rows=tuple(_limits(rules))),
        Section(title="Before", rows=tuple(row(v, _short(change)) for v, change in rules.before.items())),
        Section(title="Notes", rows=tuple(row("-", text) for text in (*rules.notes, *chosen.notes))),
        Section(title="Sources", rows=sources),
        facts("File", [(file, " ")]),
    ]
    return Page(head=(rules.title,), sections=tuple(s for s in sections if s.rows))


def also(name: str) -> tuple[str, ...]:
    """The other spellings of an engine."""
    return tuple(spelling for spelling in ALIASES.get(name, ()) if spelling != name)


def _memory(rules: Engine) -> Iterator[tuple[str, str]]:
    yield "fraction of", MEANING[rules.share.meaning]
    if rules.share.default is not None:
        yield "default", f"{rules.share.default:g}"
    if rules.share.auto is not None:
        yield "default", "from the device, the chunk and the captured batches"
    yield from ((f"{what} keeps", size) for what, size in rules.reserve.items())
    yield "one step", PROFILE[rules.activations.profile]
    rows, copies = rules.activations.logits_rows, rules.activations.logits_copies
    yield "logits", f"{rows}, {copies:g} × float32"
    if rules.graphs is not None:
        where = "inside" if rules.graphs.inside else "outside"
        yield (
            "CUDA graphs",
            f"{rules.graphs.bytes} ({rules.graphs.low} to {rules.graphs.high}), {where} the fraction",
        )
    for part in rules.non_torch:
        least = f" from {part.devices} devices on" if part.devices > 1 else ""
        yield "non-torch", f"{part.bytes} ({part.low} to {part.high}){least}"


def _kept(rules: Engine) -> Iterator[tuple[str, str]]:
    yield "tokens a page", f"{rules.block_size:,}"
    yield "windowed layers keep", WINDOWS[rules.windows]
    yield "latent attention", "the latent" if rules.latent == "latent" else "keys and values of all heads"
    yield "recurrent states", "fp32" if rules.states == "fp32" else "as the model defines"
    yield (
        "default context",
        f"{rules.context:,}" if isinstance(rules.context, int) else f"of the {rules.context}",
    )
    yield "several devices share", rules.splits
    yield "layers left over go to", rules.pipeline.replace("_", " ")
    yield from ((f"{fmt} padded by", f"{factor:g}") for fmt, factor in rules.layout.items())
    if rules.online is not None:
        yield "made while loading", f"{', '.join(rules.online.formats)}: {rules.online.peak}"


def _limits(rules: Engine) -> Iterator[Row]:
    for limit in rules.limits:
        seqs = "" if limit.seqs is None else f"{limit.seqs:,} sequences"
        yield row(f"below {limit.below}" if limit.below else "else", f"{limit.tokens:,} tokens", seqs)
        if limit.otherwise is not None:
            other = limit.otherwise
            yield row(", ".join(limit.excluded), f"{other.tokens:,} tokens", f"{other.seqs:,} sequences")


def _short(change: Any) -> str:
    """A change of rules in one line."""
    if isinstance(change, dict):
        return ", ".join(f"{key} {_short(value)}" for key, value in change.items())
    if isinstance(change, list | tuple):
        return "; ".join(map(_short, change))
    return "none" if change is None else str(change)
