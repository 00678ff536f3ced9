"""A document as YAML that reads like the specs of the catalog: groups of keys, short mappings on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from archsim.base.json_types import JsonMapping

WIDTH = 110
GROUPS = (
    ("name",),
    ("architecture", "d_model", "vocab_size", "max_context", "embedding", "final_norm", "head", "pooler",
     "mlm_head"),
    ("encoder",), ("layer", "layers"), ("mtp",), ("weights",),
)  # fmt: skip
"""Keys that stand together, in this order; a blank line between groups."""

_PLAIN = re.compile(r"[A-Za-z][\w./ +-]*")
_WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])


def spec_text(document: JsonMapping, origin: str = "") -> str:
    """The text of a spec file. `origin` is told in its first line."""
    known = {key for group in GROUPS for key in group}
    parts = [*GROUPS, tuple(key for key in document if key not in known)]
    blocks = ["\n".join(_lines({k: document[k] for k in group if k in document}, 0)) for group in parts]
    head = f"# {' '.join(origin.split())}\n" if origin else ""
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def _lines(mapping: JsonMapping, indent: int) -> Iterator[str]:
    """A mapping in block style, each value on its key's line where it fits."""
    pad = " " * indent
    for key, value in mapping.items():
        name = _scalar(key)
        short = f"{pad}{name}: {_flow(value)}"
        long = not isinstance(value, Mapping | list) or not value
        if long or (len(short) <= WIDTH and not _spread(key, value)):
            yield short
        elif isinstance(value, list):
            yield f"{pad}{name}:{_comment(key, value, len(pad) + len(name) + 1)}"
            yield from _items(value, indent + 2)
        else:
            yield f"{pad}{name}:{_comment(key, value, len(pad) + len(name) + 1)}"
            yield from _lines(value, indent + 2)


def _items(values: list[Any], indent: int) -> Iterator[str]:
    """A list in block style, each item on one line where it fits."""
    pad = " " * indent
    for value in values:
        short = f"{pad}- {_flow(value)}"
        nested = isinstance(value, Mapping) and "layers" in value
        if not isinstance(value, Mapping) or not value or (len(short) <= WIDTH and not nested):
            yield short
            continue
        first, *rest = _lines(value, indent + 2)
        yield f"{pad}- {first.lstrip()}"
        yield from rest


def _spread(key: str, value: object) -> bool:
    """Whether a value gets lines of its own even where one would do: the layers."""
    return key in ("layer", "layers", "encoder") and bool(value)


def _comment(key: str, value: Any, column: int) -> str:
    text = ""
    if key == "layer":
        text = "what all layers share"
    groups = [v for v in value if isinstance(v, Mapping) and "layers" in v] if key == "layers" else []
    if len(groups) == 1:
        text = " : ".join(f"{v.get('repeat', 1)} {v.get('name', 'layers')}" for v in groups[0]["layers"])
    return f"{' ' * max(2, 29 - column)}# {text}" if text else ""


def _flow(value: object) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return _scalar(value)


def _scalar(value: object) -> str:
    """A number, word or text as YAML has it, quoted where it could be taken for something else."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        mantissa, _, exponent = repr(value).partition("e")
        mantissa += "" if "." in mantissa or not exponent else ".0"
        return f"{mantissa}e{int(exponent):+d}" if exponent else mantissa
    if isinstance(value, int):
        return str(value)
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text == text.strip()
    return text if plain else json.dumps(text)
