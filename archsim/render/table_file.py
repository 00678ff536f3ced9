"""Rows of plain values as a file: CSV or Parquet, by the name's ending."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.output_file import replacing
from archsim.render.flat import cell

ROWS = 50_000
"""Rows that are held at once."""


def check_name(path: Path) -> str:
    """The ending. Raises UsageError for one that is not written."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise UsageError(
            f"{quote(path.name)} has no file extension of a table that can be written",
            hints=("name it .csv or .parquet",),
        )
    return kind


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[JsonObject], *, force: bool = False) -> None:
    """A whole table, streamed. Raises UsageError, OutputRefused, OutputFailure."""
    if check_name(path) == ".csv":
        with replacing(path, force=force) as stream:
            text = TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([cell(row[name]) for name in columns] for row in rows)
            text.detach()
        return
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        hints = ('`pip install "archsim[parquet]"`', "or name the file .csv")
        raise UsageError("Parquet files are written by pyarrow, which is not installed", hints=hints) from None
    left = iter(rows)
    with replacing(path, force=force) as stream:
        file = None
        while chunk := list(islice(left, ROWS)):
            table = arrow.Table.from_pylist(chunk, **({"schema": file.schema} if file else {}))
            file = file or parquet.ParquetWriter(stream, table.schema)
            file.write_table(table)
        if file is not None:
            file.close()
