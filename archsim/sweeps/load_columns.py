"""Columns of simulated loads in conditions: `ttft_s.p99 < 0.5`, as the JSON of `simulate` has them."""

from __future__ import annotations

import difflib
import re

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping
from archsim.sweeps.columns import Column, Kind
from archsim.sweeps.scenarios import COLUMNS, METRICS, STATISTICS, TEXT, TRUTH, WHOLE
from archsim.sweeps.where import Condition

DOTTED = re.compile(rf"\b({'|'.join(METRICS)})\.({'|'.join(STATISTICS)})\b")
"""A statistic of a metric."""


def load_column(name: str) -> Column:
    """The column of a name; a metric alone is its mean. Raises UsageError for a name that no column has."""
    spelled = f"{name}_mean" if name in METRICS else name
    if spelled not in COLUMNS:
        close = difflib.get_close_matches(name, COLUMNS, 3, 0.6)
        hints = (f"did you mean {', '.join(f'`{n}`' for n in close)}?",) if close else ()
        raise UsageError(f"no column of simulated loads is named {quote(name)}", hints=(*hints, _listed()))
    kind: Kind = (
        "text" if spelled in TEXT else "truth" if spelled in TRUTH else "whole" if spelled in WHOLE else "number"
    )
    return Column(spelled, kind)


def _listed() -> str:
    others = [name for name in COLUMNS if not name.startswith(METRICS)]
    return f"columns: {', '.join(METRICS)} with .{', .'.join(STATISTICS)}, and {', '.join(others)}"


def load_condition(text: str) -> Condition:
    """A condition on rows of simulated loads. Raises UsageError."""
    return Condition.of(DOTTED.sub(r"\1_\2", text), load_column)


def holds(condition: Condition | None, row: JsonMapping) -> bool:
    """Whether a row stays: one without an answer meets no condition."""
    return condition is None or (row["error"] is None and bool(condition(row)))
