"""The dated table of prices: `hardware/prices.csv` of the user's folders or of archsim's own data."""

from __future__ import annotations

import csv
import io
import os
from functools import lru_cache
from pathlib import Path

from archsim.base.errors import SpecError
from archsim.base.input_file import is_file, read_text
from archsim.cost.price import Price
from archsim.spec.catalog import data_roots
from archsim.spec.hardware import Hardware

COLUMNS = ("device", "provider", "terms", "usd_per_device_hour", "region", "as_of", "source", "notes")
"""Columns of the table; others are left alone."""

LARGEST = 4 << 20
"""Bytes of a table."""

UNDATED = "commit"
"""`as_of` of a row that has no date of its own, but that of a catalogue's version."""


def table_file() -> Path:
    """The table that is used: the first in the data folders."""
    found = [folder / "prices.csv" for folder in data_roots("hardware")]
    return next((path for path in found[:-1] if is_file(path)), found[-1])


def price_table() -> tuple[Price, ...]:
    """All rows of the table. Raises SpecError for a file that is none."""
    path = table_file()
    return _read(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> tuple[Price, ...]:
    return parse_table(read_text(path, LARGEST), str(path))


def parse_table(text: str, name: str) -> tuple[Price, ...]:
    """The rows of a table. Raises SpecError that names the line of a row that is none."""
    reader = csv.DictReader(io.StringIO(text))
    missing = [column for column in COLUMNS[:4] if column not in (reader.fieldnames or ())]
    if missing:
        hint = f"columns: {', '.join(COLUMNS)}"
        raise SpecError(f"{name} lacks the column {missing[0]} of a price table", code="E109", hints=(hint,))
    return tuple(_price(row, f"{name}, line {reader.line_num}") for row in reader)


def _price(row: dict[str, str | None], place: str) -> Price:
    """One row. Raises SpecError."""
    cell = {column: (row.get(column) or "").strip() for column in COLUMNS}
    try:
        usd = float(cell["usd_per_device_hour"])
    except ValueError:
        usd = -1.0
    if not (0 <= usd < float("inf") and cell["device"] and cell["provider"] and cell["terms"]):
        hint = "a row has a device, a provider, terms and dollars per device and hour"
        raise SpecError(f"{place}: no price", code="E109", hints=(hint,))
    return Price(
        usd, cell["provider"], cell["terms"], None if cell["as_of"] in ("", UNDATED) else cell["as_of"],
        cell["source"], cell["region"], cell["notes"], cell["device"],
    )  # fmt: skip


def prices_of(hardware: Hardware) -> tuple[Price, ...]:
    """Rents of a device, the lowest first: those of the table, and those that its own document states."""
    stated = [
        Price(cost.usd_per_hour, cost.provider, "listed", cost.date, cost.source, device=hardware.id)
        for cost in hardware.cost
        if cost.usd_per_hour is not None
    ]
    listed = [price for price in price_table() if price.device == hardware.id]
    return tuple(sorted([*listed, *stated], key=lambda price: price.usd_per_device_hour))
