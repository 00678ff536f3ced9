"""A sweep's rows as a CSV, JSON or Parquet file, written block by block so that no row is ever torn."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import StringIO, TextIOWrapper
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np

from archsim.base.diagnostics import inert_json, quote
from archsim.base.errors import UsageError
from archsim.base.output_file import OutputFile, failures_of
from archsim.render.flat import cell
from archsim.sweeps.chunk import BEYOND, Chunk, plain, repeat_list
from archsim.sweeps.columns import BY_NAME

GROUP = 65_536
"""Rows that a Parquet row group collects at least."""


class Writer(Protocol):
    """Takes blocks of rows."""

    def write(self, chunk: Chunk) -> None:
        """Add the rows of a block."""

    def close(self) -> None:
        """End the document."""


class CsvWriter:
    """A header of all columns, then a row for each point; null is empty."""

    def __init__(self, stream: TextIO, names: Sequence[str]) -> None:
        self.stream = stream
        stream.write(",".join(names) + "\n")

    def write(self, chunk: Chunk) -> None:
        """Add the rows of a block."""
        parts: list[str | list[str]] = []
        for i, cells in enumerate(_columns(chunk, _csv_text, "")):
            parts += ["," if i else "", cells]
        self.stream.write("".join(_lines([*parts, "\n"], chunk.points)))

    def close(self) -> None:
        """Nothing follows the rows."""


class JsonWriter:
    """One object: `schema`, `columns` and `rows`, each row a line of its own."""

    def __init__(self, stream: TextIO, names: Sequence[str], notes: Sequence[str]) -> None:
        self.stream, self.begun = stream, False
        about = json.dumps({"schema": "archsim.sweep/1", "columns": list(names), "notes": list(notes)})
        stream.write(about[:-1] + ', "rows": [')

    def write(self, chunk: Chunk) -> None:
        """Add the rows of a block."""
        parts: list[str | list[str]] = []
        for name, cells in zip(chunk.values, _columns(chunk, _json_text, "null"), strict=True):
            parts += [", " if parts else "{", f"{json.dumps(name)}: ", cells]
        text = "".join(_lines([",\n", *parts, "}"], chunk.points))
        self.stream.write(text if self.begun else text[1:])
        self.begun = self.begun or bool(text)

    def close(self) -> None:
        """End the list and the object."""
        self.stream.write("\n]}\n")


class ParquetWriter:
    """Columns with their types; words and names as dictionaries."""

    def __init__(self, stream: BinaryIO, names: Sequence[str]) -> None:
        self.arrow, parquet = _pyarrow()
        self.schema = self.arrow.schema([(name, self._type(name)) for name in names])
        self.file = parquet.ParquetWriter(stream, self.schema)
        self.waiting: list[Any] = []

    def _type(self, name: str) -> Any:
        kinds = {
            "text": self.arrow.dictionary(self.arrow.int32(), self.arrow.string()),
            "whole": self.arrow.int64(), "number": self.arrow.float64(), "truth": self.arrow.bool_(),
        }  # fmt: skip
        return kinds[BY_NAME[name].kind]

    def write(self, chunk: Chunk) -> None:
        """Add the rows of a block; small blocks wait until they make up a row group."""
        columns = [self._column(name, value, chunk) for name, value in chunk.values.items()]
        self.waiting.append(self.arrow.Table.from_arrays(columns, schema=self.schema))
        if sum(table.num_rows for table in self.waiting) >= GROUP:
            self._flush()

    def _column(self, name: str, value: Any, chunk: Chunk) -> Any:
        kind = BY_NAME[name].kind
        if value is None:
            return self.arrow.nulls(chunk.points, self._type(name))
        if kind == "text":
            if isinstance(value, str):
                places = self.arrow.array(np.zeros(chunk.points, dtype=np.int32))
                return self.arrow.DictionaryArray.from_arrays(places, self.arrow.array([value]))
            words = np.broadcast_to(value, chunk.shape).ravel()
            return self.arrow.array(words, self.arrow.string()).dictionary_encode()
        types = {"whole": np.int64, "number": np.float64, "truth": np.bool_}
        own: Any = np.asarray(value)
        missing = ~(np.abs(own.astype(np.float64)) < (np.inf if kind == "number" else BEYOND))
        flat: Any = np.where(missing, 0, own).astype(types[kind])
        flat, missing = (np.broadcast_to(each, chunk.shape).ravel() for each in (flat, missing))
        return self.arrow.array(flat, mask=missing)

    def _flush(self) -> None:
        if self.waiting:
            self.file.write_table(self.arrow.concat_tables(self.waiting).unify_dictionaries())
            self.waiting.clear()

    def close(self) -> None:
        """Write what waits, and the file's footer."""
        self._flush()
        self.file.close()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Parquet files are written by pyarrow, which is not installed",
            hints=('`pip install "archsim[parquet]"`', "or write `--out FILE.csv` or `--out FILE.json`"),
        ) from None
    return pyarrow, pyarrow.parquet


def _csv_text(value: object) -> str:
    """A value as one cell: quoted where it must be, and inert where a spreadsheet would run it."""
    buffer = StringIO()
    csv.writer(buffer, lineterminator="").writerow([cell(value)])
    return buffer.getvalue()


def _json_text(value: object) -> str:
    return inert_json(json.dumps(value))


def _columns(chunk: Chunk, text: Callable[[Any], str], null: str) -> list[str | list[str]]:
    """All columns' cells; of columns that are the same array (TTFT is the expected prefill) once."""
    known: dict[tuple[int, str], str | list[str]] = {}
    found = []
    for name, value in chunk.values.items():
        key = id(value), BY_NAME[name].kind
        if key not in known:
            known[key] = _cells(name, value, chunk, text, null)
        found.append(known[key])
    return found


def _cells(name: str, value: object, chunk: Chunk, text: Callable[[Any], str], null: str) -> str | list[str]:
    """A column's cells: one text where all points share it. Each distinct place is written out once."""
    if not isinstance(value, np.ndarray):
        found = plain(name, value)
        return null if found is None else text(found)
    return repeat_list(_texts(name, value, text, null), value.shape, chunk.shape)


def _texts(name: str, value: object, text: Callable[[Any], str], null: str) -> list[str]:
    kind, found = BY_NAME[name].kind, plain(name, value)
    if kind == "text":
        known = {word: null if word is None else text(word) for word in set(found)}
        return [known[word] for word in found]
    if kind == "truth":
        return ["true" if held else "false" for held in found]
    return [null if v is None else repr(v) for v in found] if None in found else list(map(repr, found))


def _lines(parts: list[str | list[str]], points: int) -> Iterator[str]:
    """The rows: parts side by side, neighbours that never change as one."""
    merged: list[str | list[str]] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    columns: Iterable[Any] = [repeat(p, points) if isinstance(p, str) else p for p in merged]
    return map("".join, zip(*columns, strict=True))


class SweepFile:
    """A sweep's rows under a file name that says the format: there when `done`, or not at all."""

    def __init__(self, path: Path, names: Sequence[str], notes: Sequence[str] = (), force: bool = False) -> None:
        kind = path.suffix.lower()
        if kind not in (".csv", ".json", ".parquet"):
            raise UsageError(
                f"{quote(path.name)} has no file extension that can be written",
                hints=("name the file .csv, .json or .parquet",),
            )
        self.path = path
        self.text: TextIOWrapper | None = None
        self.file = OutputFile(path, force=force)
        try:
            self.writer = self._opened(kind, names, notes)
        except BaseException:
            self.drop()
            raise

    def _opened(self, kind: str, names: Sequence[str], notes: Sequence[str]) -> Writer:
        with failures_of(self.path):
            if kind == ".parquet":
                return ParquetWriter(self.file.stream, names)
            self.text = TextIOWrapper(self.file.stream, encoding="utf-8", newline="")
            return CsvWriter(self.text, names) if kind == ".csv" else JsonWriter(self.text, names, notes)

    def write(self, chunk: Chunk) -> None:
        """Add the rows of a block. Raises OutputFailure."""
        with failures_of(self.path):
            self.writer.write(chunk)

    def done(self) -> None:
        """End the document and give it its name. Raises OutputFailure, and leaves nothing behind then."""
        try:
            with failures_of(self.path):
                self.writer.close()
                if self.text is not None:
                    self.text.flush()
        except BaseException:
            self.drop()
            raise
        self.file.commit()

    def drop(self) -> None:
        """Leave nothing behind."""
        if self.text is not None:
            with suppress(OSError, ValueError):
                self.text.close()
        self.file.drop()
