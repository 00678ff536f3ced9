"""Decisions in words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from archsim.base.diagnostics import shorten
from archsim.sim.evolve_decisions import TITLES, WORDS
from archsim.sim.evolve_mix import Change
from archsim.sim.evolve_tree import CLASS, is_tree, kind

LONGEST = 60
"""Characters of one value that are shown."""


def told(name: str, changes: Collection[Change]) -> str:
    """A decision in words: what changes, from what to what."""
    fields: dict[str, tuple[list[str], list[str]]] = {}
    for change in changes:
        if change.decision == name:
            sides = fields.setdefault(change.field, ([], []))
            for side, value in zip(sides, (change.old, change.new), strict=True):
                text = shown(change.field, value)
                if text not in side:
                    side.append(text)
    found = {field: (" / ".join(old), " / ".join(new)) for field, (old, new) in fields.items() if old != new}
    parts = [f"{WORDS.get(field, field)} {old} → {new}".strip() for field, (old, new) in found.items()]
    return f"{TITLES[name]}: {', '.join(parts)}" if parts else TITLES[name]


def shown(field: str, value: Any) -> str:
    """A value of a field, short."""
    if field == "n_kv_heads" and value is None:
        return "one per head"
    return shorten(_value(value), LONGEST)


def _value(value: Any) -> str:
    if is_tree(value):
        return BLOCKS[value[CLASS]](value) if value[CLASS] in BLOCKS else kind(value)
    if isinstance(value, dict):
        return " ".join(str(item) if key == "default" else f"{key}={item}" for key, item in value.items())
    if isinstance(value, tuple):
        return _tuple(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return (
        f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _tuple(value: tuple[Any, ...]) -> str:
    if value and all(isinstance(item, bool) for item in value):
        return "yes" if all(value) else "".join(n for n, on in zip("qkv", value, strict=False) if on) or "no"
    return (
        " + ".join(str(item["name"]) if is_tree(item) and "name" in item else str(item) for item in value)
        or "none"
    )


def _mask(mask: Any) -> str:
    return f"{mask['kind']} {mask['window']:,}" if mask["window"] else str(mask["kind"])


def _mla(attention: Any) -> str:
    return f"mla of {attention['kv_rank'] + attention['d_rope']:,} per token"


def _moe(moe: Any) -> str:
    return f"{moe['n_experts']:,} experts of {moe['expert']['d_ff']:,}, {moe['top_k']:,} per token"


def _router(router: Any) -> str:
    groups = f", {router['top_groups']} of {router['groups']} groups" if router["groups"] > 1 else ""
    return f"{router['score']}{groups}"


def _shared(network: Any) -> str:
    return f"{network['n']} of {network['d_ff']:,}"


BLOCKS = {"MaskSpec": _mask, "Mla": _mla, "Moe": _moe, "Router": _router, "Shared": _shared}
"""Class -> how one is shown; others are shown by their kind."""
