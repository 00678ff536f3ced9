"""Decisions in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from archsim.base.diagnostics import shorten
from archsim.evolution.decisions import HIDDEN, MERGED, TITLES, WORDS
from archsim.evolution.mix import Change
from archsim.evolution.normal_form import CLASS, is_tree, kind

LONGEST = 60
"""Characters of one value that are shown."""

MANY = 3
"""Differences inside one block that are named one by one."""

MOST_VALUES = 6
"""Values of one field in different layers that are all named."""

ARROW = " → "


def told(name: str, changes: Collection[Change]) -> str:
    """A decision in words: what changes, from what to what, and in how many layers where not in all."""
    own = [change for change in changes if change.decision == name]
    either = [change for change in own if change.field in MERGED.get(name, ())]
    rest = [change for change in own if change not in either]
    listed = list(dict.fromkeys((*_merged(either), *_by_field(rest))))
    return f"{TITLES[name]}: {', '.join(listed)}{_where(own)}" if listed else TITLES[name]


def _by_field(own: Collection[Change]) -> list[str]:
    """`word old → new` for each field, those without a word first."""
    fields: dict[str, list[Change]] = {}
    shown_fields = {change.field for change in own}
    for change in own:
        if not shown_fields & HIDDEN.get(change.field, frozenset()):
            fields.setdefault(_word(change), []).append(change)
    parts = [f"{word} {text}".strip() for word in sorted(fields, key=bool) for text in _texts(fields[word])]
    return [part for part in parts if part]


def _texts(own: Collection[Change]) -> Iterator[str]:
    """One field: from what to what; where both look the same, what differs inside."""
    old = _joined(shown(change.field, change.old) for change in own)
    new = _joined(shown(change.field, change.new) for change in own)
    if old != new:
        yield f"{old}{ARROW}{new}"
        return
    inside = list(dict.fromkeys(text for change in own for text in _inside(change.old, change.new)))
    yield ", ".join(inside[:MANY]) + (f" and {len(inside) - MANY} more" if len(inside) > MANY else "")


def _inside(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The fields of two blocks that differ, with the blocks that they are in."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if shown("", old) != shown("", new):
            yield f"{path.strip()} {shown('', old)}{ARROW}{shown('', new)}".strip()
        return
    for field in dict.fromkeys((*old, *new)):
        if field != CLASS and old.get(field) != new.get(field):
            yield from _inside(old.get(field), new.get(field), f"{path} {field.replace('_', ' ')}")


def _merged(own: Collection[Change]) -> list[str]:
    """Fields of which a layer has one or the other: what it has, before and after."""
    pairs: dict[int, tuple[list[str], list[str]]] = {}
    for change in own:
        sides = pairs.setdefault(change.pair, ([], []))
        for side, value in zip(sides, (change.old, change.new), strict=True):
            if value is not None:
                side.append(_merged_value(change, value))
    top = pairs.pop(0, ([], []))
    inner = list(pairs.values()) or ([([], [])] if own else [])
    old, new = (
        _joined(" with ".join(dict.fromkeys((*top[i], *sides[i]))) or "none" for sides in inner)
        for i in (0, 1)
    )
    return _by_field(own) if old == new else [f"{old}{ARROW}{new}"]


def _merged_value(change: Change, value: Any) -> str:
    word = WORDS.get(f"{change.owner}.{change.field}", "")
    return f"{shown(change.field, value)} {word}".strip()


def _where(own: Collection[Change]) -> str:
    """`, in 58 of 61 layers`; nothing where all layers change, or what is not in a layer does."""
    pairs = {change.pair: change.layers for change in own}
    of = max((change.of for change in own), default=0)
    found = sum(pairs.values())
    return f", in {found:,} of {of:,} layers" if 0 not in pairs and 0 < found < of else ""


def _joined(texts: Iterable[str]) -> str:
    """Values with strokes between; of many the first and the last."""
    found = list(dict.fromkeys(texts))
    if len(found) > MOST_VALUES:
        found = [*found[: MANY - 1], f"… {len(found):,} values …", found[-1]]
    return " / ".join(found)


def _word(change: Change) -> str:
    return WORDS.get(
        f"{change.owner}.{change.field}", WORDS.get(change.field, change.field.replace("_", " "))
    )


def shown(field: str, value: Any) -> str:
    """A value of a field, short."""
    if field == "n_kv_heads" and value is None:
        return "one per head"
    if field == "kv_from" and value is not None:
        return f"layer {value + 1}"
    if field == "dim" and value is None:
        return "all"
    return shorten(_value(value), LONGEST)


def _value(value: Any) -> str:
    if is_tree(value):
        return BLOCKS[value[CLASS]](value) if value[CLASS] in BLOCKS else _plain(kind(value))
    if isinstance(value, dict):
        return _by_role(value)
    if isinstance(value, tuple):
        return _tuple(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else _plain(str(value))


def _plain(name: str) -> str:
    """A name as people write it; those of formats and activations stay as they are."""
    return NAMES.get(name, name)


def _by_role(value: Mapping[str, Any]) -> str:
    """`bf16, linear and expert in fp8_block`."""
    default = value.get("default")
    roles: dict[str, list[str]] = {}
    for role, item in value.items():
        if role != "default" and item != default:
            roles.setdefault(str(item), []).append(role)
    parts = [f"{' and '.join(listed)} in {item}" for item, listed in roles.items()]
    return ", ".join((*([] if default is None else [str(default)]), *parts)) or "none"


def _tuple(value: tuple[Any, ...]) -> str:
    if value and all(isinstance(item, bool) for item in value):
        return "yes" if all(value) else "".join(n for n, on in zip("qkv", value, strict=False) if on) or "no"
    return " and ".join(_value(item) for item in value) or "none"


def _mask(mask: Any) -> str:
    name = _plain(str(mask["kind"]))
    return f"{name} {mask['window']:,}" if mask["window"] else name


def _mla(attention: Any) -> str:
    return f"mla of {attention['kv_rank'] + attention['d_rope']:,} per token"


def _moe(moe: Any) -> str:
    return f"{moe['n_experts']:,} experts of {moe['expert']['d_ff']:,}, {moe['top_k']:,} per token"


def _router(router: Any) -> str:
    groups = f", {router['top_groups']} of {router['groups']} groups" if router["groups"] > 1 else ""
    return f"{router['score']}{groups}"


def _shared(network: Any) -> str:
    return f"{network['n']} of {network['d_ff']:,}"


def _mtp(module: Any) -> str:
    return f"{module['n']} module" + ("s" if module["n"] > 1 else "")


def _tower(tower: Any) -> str:
    return f"{tower['name']} of {tower['params']:,} parameters"


def _gate(gate: Any) -> str:
    return f"{gate['kind']} for each {gate['per']}"


BLOCKS: Mapping[str, Callable[[Any], str]] = {
    "MaskSpec": _mask, "Mla": _mla, "Moe": _moe, "Router": _router, "Shared": _shared, "Mtp": _mtp, "Gate": _gate,
    "Tower": _tower,
    "AltUp": lambda x: f"{x['n']} streams", "Laurel": lambda x: f"rank {x['rank']:,}",
    "PerLayerEmbedding": lambda x: f"{x['d']:,} per layer", "PerLayerInput": lambda x: f"{x['d']:,} per layer",
    "Indexer": lambda x: f"the best {x['top_k']:,} keys",
}  # fmt: skip
"""Class -> how one is shown; others are shown by their kind."""

NAMES = {
    "t5": "relative bias of t5", "transformer_xl": "transformer-xl", "gated_delta_net": "gated delta net",
    "rg_lru": "rg-lru", "short_conv": "short convolution", "block_sparse": "block-sparse",
    "post_inside": "post inside the residual",
    "residual_after_norm": "residual after the norm", "one_norm": "one norm", "two_norms": "two norms",
    "sqrt_d_model": "root of the width", "before_rope": "before rope", "after_rope": "after rope",
}  # fmt: skip
"""Words of a spec that are not how people write them."""
