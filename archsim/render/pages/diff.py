"""`archsim diff` as a page: the design decisions in which two architectures differ, under what each changes."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.evolution.diff import GROUPS, TRAINED, Difference, Effect
from archsim.render.page import Page, Row, Section, footer, plural, row
from archsim.render.signed import absolute, scaled_count, signed_change

TITLES = {
    "parameters": "Parameters",
    "flops": "FLOPs per token",
    "cache": "KV cache and state",
    "training": "Training",
    "storage": "Stored bytes",
    "wiring": "Wiring",
}

WORDS = {
    "params": "total", "active_params": "active", "flops_per_token": "per token", "kv_bytes": "KV cache",
    "state_bytes": "state", "weight_bytes": "weights", "train_flops_per_token": "FLOPs a token",
    "train_bytes": "training memory",
}  # fmt: skip


def page(d: Difference, *, changes: Sequence[str] = ()) -> Page:
    """The report. changes: `--set` assignments."""
    changed = (f"changed: {', '.join(changes)}",) if changes else ()
    head = (
        f"{d.a.name} and {d.b.name}",
        f"{plural(len(d.effects), 'design decision')} between them · KV cache and FLOPs at {d.context_len:,} tokens",
        *changed,
    )
    if d.same:
        return Page(head=head, notes=("both are the same architecture",))
    sections = [section for group in TITLES if (section := _section(d, group)) is not None]
    return Page(head=head, sections=(*sections, _whole(d), _basis(d)))


def rows(d: Difference) -> list[JsonObject]:
    """A row for each decision, for CSV."""
    return [
        {"decision": e.decision, "change": e.change, "groups": " ".join(e.groups), "measured_in": e.measured,
         **{f"delta_{name}": value for name, value in e.delta.items()}}
        for e in d.effects
    ]  # fmt: skip


def _section(d: Difference, group: str) -> Section | None:
    """The decisions that change one kind of figure, the largest first."""
    figures = TRAINED if group == "training" else GROUPS.get(group, ())
    found = [e for e in d.effects if group in e.groups]
    if not found:
        return None
    found.sort(key=lambda e: -abs(e.delta.get(figures[0]) or 0) if figures else 0)
    kept = [name for name in figures if any(e.delta.get(name) for e in found)]
    lines = [_line(e, kept) for e in found]
    heads = (*(WORDS[name] for name in kept[1:]), "") if kept else ()
    return Section(
        title=TITLES[group], rows=tuple(lines), align="r" * len(kept) + "l", header=heads if kept[1:] else (),
        aside="" if kept else "no effect on the counts",
    )  # fmt: skip


def _line(e: Effect, figures: Sequence[str]) -> Row:
    where = {"a": "", "b": " (measured by undoing it in the second)", None: " (possible only together with others)"}
    return row(*(signed_change(name, e.delta.get(name)) for name in figures), e.change + where[e.measured])


def _whole(d: Difference) -> Section:
    lines = []
    for name in WORDS:
        old, new = getattr(d.first, name), getattr(d.last, name)
        if old or new:
            lines.append(row(_long(name), absolute(name, old), absolute(name, new), signed_change(name, new - old)))
    return Section(title="Totals", rows=tuple(lines), align="lrrr", header=("first", "second", "change"))


def _long(name: str) -> str:
    long = {
        "params": "parameters", "active_params": "active per token", "flops_per_token": "FLOPs per token",
        "train_flops_per_token": "FLOPs per training token",
    }  # fmt: skip
    return long.get(name, WORDS[name])


def _basis(d: Difference) -> Section:
    alone = sum(e.delta["params"] or 0 for e in d.effects)
    text = (
        f"each effect is that of the decision alone, applied to {d.a.name}. Effects interact: the parameters add up to "
        f"{scaled_count(alone)}. The steps of `archsim evolve` add up exactly"
    )
    return footer([("Basis", text)])
