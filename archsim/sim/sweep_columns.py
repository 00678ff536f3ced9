"""Columns of a sweep: what each holds, what must be priced for it, and which way it is better."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError

Kind = Literal["text", "whole", "number", "truth"]
Needs = Literal["", "ideal", "expected", "bound"]


class Column(NamedTuple):
    """needs: what has to be priced, each including those before it. better: 1 where more is better, -1 where less
    is, 0 where neither; only such columns are objectives.
    """

    name: str
    kind: Kind
    needs: Needs = ""
    better: int = 0


def _phase(name: str) -> tuple[Column, ...]:
    return (
        Column(name + "_ideal_s", "number", "ideal", -1),
        *(Column(f"{name}_{end}_s", "number", "expected", -1) for end in ("expected", "low", "high")),
        Column(name + "_bound", "text", "bound"),
        Column(name + "_evidence", "text", "expected"),
    )


COLUMNS: tuple[Column, ...] = (
    *(Column(name, "text") for name in ("model", "hw")),
    Column("devices", "whole", better=-1),
    *(Column(name, "whole") for name in ("tp", "pp", "ep", "dp")),
    *(Column(name, "text") for name in ("weights", "kv_cache", "engine")),
    Column("batch", "whole", better=1),
    Column("input_len", "whole", better=1),
    Column("output_len", "whole", better=1),
    Column("fits", "truth"),
    Column("memory_bytes_per_device", "whole", better=-1),
    *(
        Column(f"{part}_bytes_per_device", "whole", better=-1)
        for part in ("weights", "kv_cache", "activation")
    ),
    Column("free_bytes_per_device", "whole", better=1),
    *_phase("prefill"),
    *_phase("decode"),
    *(Column(name, "number", "expected", -1) for name in ("ttft_s", "tpot_s", "e2e_s")),
    *(Column(f"tokens_per_s{of}", "number", "expected", 1) for of in ("", "_per_user", "_per_device")),
)
"""In the order of output."""

BY_NAME = {column.name: column for column in COLUMNS}

PRICED: tuple[Needs, ...] = ("", "ideal", "expected", "bound")
"""From the least to price to the most."""


def column(name: str) -> Column:
    """The column of a name; `ttft` is `ttft_s`. Raises UsageError for a name that no column has."""
    found = BY_NAME.get(name) or BY_NAME.get(name + "_s")
    if found is None:
        close = difflib.get_close_matches(name, BY_NAME, 3, 0.6)
        hints = (f"did you mean {', '.join(f'`{n}`' for n in close)}?",) if close else ()
        listed = ", ".join(BY_NAME)
        raise UsageError(f"no column named {quote(name)}", hints=(*hints, f"columns: {listed}"))
    return found


def chosen(names: Iterable[str]) -> tuple[Column, ...]:
    """The columns of these names, each once; all of them where none is named."""
    return tuple(dict.fromkeys(column(name.strip()) for name in names if name.strip())) or COLUMNS


def priced(columns: Iterable[Column]) -> Needs:
    """The most that any of the columns needs."""
    return max((c.needs for c in columns), key=PRICED.index, default="")
