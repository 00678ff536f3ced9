"""Changes of a spec that a link or a control states: fields and values, never the name of a file."""

from __future__ import annotations

import re

from archsim.base.diagnostics import quote

BETWEEN = ";"
"""Between two changes, in a link and in the control."""
MOST, LONGEST = 8, 200
"""Changes of one model, and characters of each."""

_FIELD = re.compile(r"[A-Za-z_]\w*(\.\w+){0,5}")
ELSEWHERE = {"weights": "weights have a control of their own", "extends": "choose another model above instead"}
"""First words that a change does not begin with, and what does what was meant."""


def read_changes(text: str) -> tuple[str, ...]:
    """`attention.n_kv_heads=4; layers.repeat=40` as changes. Raises ValueError for what is none."""
    given = [part.strip() for part in text.split(BETWEEN) if part.strip()]
    if len(given) > MOST:
        raise ValueError(f"at most {MOST} changes of a model")
    return tuple(_change(part) for part in given)


def _change(text: str) -> str:
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value or _FIELD.fullmatch(field) is None or len(text) > LONGEST or not text.isprintable():
        raise ValueError(f"FIELD=VALUE such as attention.n_kv_heads=4, not {quote(text, 40)}")
    first = field.partition(".")[0]
    if first in ELSEWHERE:
        raise ValueError(f"{quote(first)} is not changed here: {ELSEWHERE[first]}")
    return f"{field}={value}"
