"""Decisions in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from archsim.base.diagnostics import shorten
from archsim.blocks.dispatch import CLASS
from archsim.evolution.decisions import HIDDEN, MERGED, title_of
from archsim.evolution.mix import Change
from archsim.evolution.normal_form import is_tree

LONGEST = 60
"""Characters of one value that are shown."""

MANY = 3
"""Differences inside one block that are named one by one."""

MOST_VALUES = 6
"""Values of one field in different layers that are all named."""

ARROW = " → "


def describe_change(name: str, changes: Collection[Change]) -> str:
    """A decision in words: what changes, from what to what, and in how many layers where not in all."""
    own = [change for change in changes if change.decision == name]
    either = [change for change in own if change.field in MERGED.get(name, ())]
    rest = [change for change in own if change not in either]
    listed = list(dict.fromkeys((*_merged(either), *_by_field(rest))))
    return f"{title_of(name)}: {', '.join(listed)}{_where(own)}" if listed else title_of(name)


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
    old = _joined(format_value(change.field, change.old) for change in own)
    new = _joined(format_value(change.field, change.new) for change in own)
    if old != new:
        yield f"{old}{ARROW}{new}"
        return
    inside = list(dict.fromkeys(text for change in own for text in _inside(change.old, change.new)))
    yield ", ".join(inside[:MANY]) + (f" and {len(inside) - MANY} more" if len(inside) > MANY else "")


def _inside(old: object, new: object, path: str = "") -> Iterator[str]:
    """The fields of two blocks that differ, with the blocks that they are in."""
    if isinstance(old, tuple) and isinstance(new, tuple) and format_value("", old) == format_value("", new):
        if len(old) != len(new):
            yield f"{path.strip()} {len(old)}{ARROW}{len(new)}".strip()
        for one, other in zip(old, new, strict=False):
            yield from _inside(one, other, path)
        return
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if format_value("", old) != format_value("", new):
            yield f"{path.strip()} {format_value('', old)}{ARROW}{format_value('', new)}".strip()
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
        _joined(" with ".join(dict.fromkeys((*top[i], *sides[i]))) or "none" for sides in inner) for i in (0, 1)
    )
    return _by_field(own) if old == new else [f"{old}{ARROW}{new}"]


def _merged_value(change: Change, value: object) -> str:
    word = change.owner.words.get(change.field, "")
    return f"{format_value(change.field, value)} {word}".strip()


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
    plain = WORDS.get(change.field, change.field.replace("_", " "))
    return change.owner.words.get(change.field, plain)


def format_value(field: str, value: object) -> str:
    """A value of a field, short."""
    if field == "n_kv_heads" and value is None:
        return "one per head"
    if field == "kv_from" and isinstance(value, int):
        return f"layer {value + 1}"
    if field == "dim" and value is None:
        return "all"
    return shorten(_value(value), LONGEST)


def _value(value: object) -> str:
    if is_tree(value):
        return str(value[CLASS].describe(value))
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


def _by_role(value: Mapping[str, object]) -> str:
    """`bf16, linear and expert in fp8_block`."""
    default = value.get("default")
    roles: dict[str, list[str]] = {}
    for role, item in value.items():
        if role != "default" and item != default:
            roles.setdefault(str(item), []).append(role)
    parts = [f"{' and '.join(listed)} in {item}" for item, listed in roles.items()]
    return ", ".join((*([] if default is None else [str(default)]), *parts)) or "none"


def _tuple(value: tuple[object, ...]) -> str:
    if value and all(isinstance(item, bool) for item in value):
        return "yes" if all(value) else "".join(n for n, on in zip("qkv", value, strict=False) if on) or "no"
    return " and ".join(_value(item) for item in value) or "none"


NAMES = {
    "post_inside": "post inside the residual", "residual_after_norm": "residual after the norm",
    "one_norm": "one norm", "two_norms": "two norms", "sqrt_d_model": "root of the width",
    "before_rope": "before rope", "after_rope": "after rope",
}  # fmt: skip
"""Values of a spec that are not how people write them."""

WORDS: Mapping[str, str] = {
    **dict.fromkeys((
        "kind", "activation", "attention", "ffn", "mask", "layers", "weights", "position", "positions", "d_model",
        "vocab_size", "max_context", "n_heads", "d_head", "n_kv_heads", "q_rank", "mtp", "towers", "shared", "router",
        "qk_norm", "n_experts", "top_k", "tied", "parallel", "gated", "indexer", "gate", "pooler", "mlm_head", "mixer",
        "placement", "architecture", "d_ff", "dense", "altup", "hyper", "laurel", "per_layer", "per_layer_input",
        "kv_from", "token_types", "shared_weights", "keys_as_values", "capacity", "expert",
    ), ""),
    "qkv_bias": "q/k/v", "out_bias": "output", "rows": "rows of the table", "factor": "width of the table",
    "eps": "epsilon", "affine": "learned scale", "d_head_v": "of the values", "dim": "rotated dimensions",
    "interleaved": "pairs interleaved", "residual_scale": "residual", "branch_scale": "branch",
}  # fmt: skip
"""Field -> what it is called beside the title of its decision, where not by its name and its class says nothing."""
