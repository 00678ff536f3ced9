"""Results as CSV: raw numbers, one row a result or a part of one."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

from archsim.base.diagnostics import inert
from archsim.base.json_types import JsonMapping, JsonObject

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""What makes a spreadsheet run a cell that begins with it."""


def flatten(value: JsonMapping, prefix: str = "") -> JsonObject:
    """Nested mappings with dotted keys; lists are left out."""
    flat: JsonObject = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat |= flatten(item, f"{prefix}{key}.")
        elif not isinstance(item, (list, tuple)):
            flat[prefix + key] = item
    return flat


def to_csv(rows: Iterable[JsonMapping]) -> str:
    """Rows under a header of all their keys; None is empty. Text that a spreadsheet would run is quoted."""
    table = list(rows)
    keys = list(dict.fromkeys(key for line in table for key in line))
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(keys)
    for line in table:
        writer.writerow([cell(line.get(key)) for key in keys])
    return buffer.getvalue()


def cell(value: object) -> Any:
    """A value as a cell: truth in lower case, lists as words. Text is on one line and printable, and what a spreadsheet
    would run begins with `'`.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return cell(" ".join(map(str, value)))
    if isinstance(value, str):
        text = inert(value)
        return "'" + text if value.lstrip()[:1] in FORMULA or value[:1] in FORMULA else text
    return value
