"""Columns of a sweep: what each holds, what must be priced for it, and which way it is better."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError

Kind = Literal["text", "whole", "number", "truth"]
Needs = Literal["", "ideal", "expected", "bound", "activity"]


class Column(NamedTuple):
    """needs: what has to be priced of which phases, each including those before it. better: 1 where more is better,
    -1 where less is, 0 where neither; only such columns are objectives.
    """

    name: str
    kind: Kind
    needs: Needs = ""
    better: int = 0
    phases: tuple[str, ...] = ()


def _phase(name: str) -> tuple[Column, ...]:
    of = (name,)
    return (
        Column(name + "_ideal_s", "number", "ideal", -1, of),
        *(Column(f"{name}_{end}_s", "number", "expected", -1, of) for end in ("expected", "low", "high")),
        Column(name + "_bound", "text", "bound", 0, of),
        Column(name + "_evidence", "text", "expected", 0, of),
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
    *(Column(f"{part}_bytes_per_device", "whole", better=-1) for part in ("weights", "kv_cache", "activation")),
    Column("free_bytes_per_device", "whole", better=1),
    *_phase("prefill"),
    *_phase("decode"),
    Column("ttft_s", "number", "expected", -1, ("prefill",)),
    Column("tpot_s", "number", "expected", -1, ("decode",)),
    Column("e2e_s", "number", "expected", -1, ("prefill", "decode")),
    *(Column(f"tokens_per_s{of}", "number", "expected", 1, ("decode",)) for of in ("", "_per_user", "_per_device")),
)
"""In the order of output."""

BOTH = ("prefill", "decode")
COST_COLUMNS: tuple[Column, ...] = (
    *(Column(name, "text") for name in ("price_provider", "price_terms", "price_as_of")),
    Column("usd_per_device_hour", "number", better=-1),
    Column("usd_per_hour", "number", better=-1),
    *(Column(name, "number", "expected", -1, BOTH)
      for name in ("usd_per_m_output", "usd_per_m_input", "usd_per_m_output_all_in")),
    *(Column(f"usd_per_m_output_all_in_{end}", "number", "expected", -1, BOTH) for end in ("low", "high")),
)  # fmt: skip
"""Columns that a price is needed for."""

ENERGY_COLUMNS: tuple[Column, ...] = tuple(
    Column(name, "number", "activity", -1, BOTH) for name in ("power_w_per_device", "j_per_output_token")
)
"""Columns that are there where they are asked for: what one device draws, and what all draw for each output token (of
models that do not decode: each input token)."""

BY_NAME = {column.name: column for column in (*COLUMNS, *COST_COLUMNS, *ENERGY_COLUMNS)}

PRICED: tuple[Needs, ...] = ("", "ideal", "expected", "bound", "activity")
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


def chosen(names: Iterable[str], priced: bool = False) -> tuple[Column, ...]:
    """The columns of these names, each once; all of them where none is named. priced: whether a price is given."""
    named = tuple(dict.fromkeys(column(name.strip()) for name in names if name.strip()))
    return named or ((*COLUMNS, *COST_COLUMNS) if priced else COLUMNS)


def check_priced(columns: Iterable[Column]) -> None:
    """Raises UsageError for a column of dollars, which a price is needed for."""
    missing = next((column.name for column in columns if column in COST_COLUMNS), None)
    if missing is not None:
        raise UsageError(f"`{missing}` needs a price", hints=("give --price 2.5, --price table or --price cheapest",))


class Asked(NamedTuple):
    """What is asked about every point: columns by name, and the most that any of them needs of each phase."""

    names: frozenset[str]
    prefill: Needs
    decode: Needs

    @classmethod
    def of(cls, columns: Iterable[Column]) -> Asked:
        """What these columns ask for."""
        listed = tuple(columns)
        names = frozenset(column.name for column in listed)
        return cls(names, _needed(listed, "prefill"), _needed(listed, "decode"))


def _needed(columns: Iterable[Column], phase: str) -> Needs:
    return max((c.needs for c in columns if phase in c.phases), key=PRICED.index, default="")


EVERYTHING = Asked.of(COLUMNS)
