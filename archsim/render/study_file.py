"""Rows of a study as a file that grows: what is in it after a kill is whole, and `--resume` goes on behind it.

`.csv` and `.jsonl` grow line by line, each task's rows in one write; `NAME.parquet` is a folder with one part per task,
which readers of Parquet take as one table.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Protocol

from archsim.base.diagnostics import quote
from archsim.base.errors import OutputRefused, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.output_file import failures_of, make_folder, replacing
from archsim.render.flat import cell
from archsim.sweeps.scenarios import TEXT, TRUTH, WHOLE


class StudyFile(Protocol):
    """Takes the rows of one task after another. keys: of the rows that it has."""

    keys: set[str]

    def add(self, rows: Sequence[JsonObject]) -> None:
        """Rows that are there when this returns, all or none."""
        ...


def open_study(path: Path, columns: Sequence[str], *, resume: bool = False, force: bool = False) -> StudyFile:
    """The file under a name that says its format. resume: go on with one that exists; force: begin it anew.

    Raises UsageError for another name, or a file of another study; OutputRefused where it exists; OutputFailure.
    """
    kinds: dict[str, Callable[..., StudyFile]] = {".csv": LineFile, ".jsonl": LineFile, ".parquet": PartFolder}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        names = ", ".join(kinds)
        raise UsageError(f"{quote(path.name)} has no file extension of a study", hints=(f"name it {names}",))
    if path.exists() and not (resume or force):
        raise OutputRefused(f"{quote(path)} exists", hints=("`--resume` continues it", "`--force` starts over"))
    return kind(path, columns, anew=force and not resume)


class LineFile:
    """CSV or JSON lines."""

    def __init__(self, path: Path, columns: Sequence[str], *, anew: bool) -> None:
        self.path, self.columns, self.keys = path, columns, set[str]()
        self.is_csv = path.suffix.lower() == ".csv"
        if path.exists() and not path.is_file():
            raise OutputRefused(f"{quote(path)} is not a regular file")
        with failures_of(path):
            kept = "" if anew or not path.exists() else path.read_text("utf-8")
            whole = kept[: kept.rfind("\n") + 1]  # a kill may have cut the last line
            self._read(whole)
            if whole != kept or anew:
                with replacing(path, force=True) as stream:
                    stream.write(whole.encode())
        if self.is_csv and not whole:
            self._append(",".join(columns) + "\n")

    def _read(self, text: str) -> None:
        lines = text.splitlines()
        try:
            if self.is_csv:
                header, *rows = list(csv.reader(lines)) or [list(self.columns)]
                if header != list(self.columns):
                    raise ValueError
                self.keys = {row[0] for row in rows}
            else:
                self.keys = {json.loads(line)["key"] for line in lines}
        except (ValueError, KeyError, TypeError, IndexError, csv.Error):
            raise UsageError(f"{quote(self.path)} holds no rows of a study", hints=("`--force` starts over",)) from None

    def add(self, rows: Sequence[JsonObject]) -> None:
        """As of `StudyFile`."""
        buffer = StringIO()
        if self.is_csv:
            csv.writer(buffer, lineterminator="\n").writerows(
                [cell(row[name]) for name in self.columns] for row in rows
            )
        else:
            buffer.writelines(json.dumps(row) + "\n" for row in rows)
        self._append(buffer.getvalue())

    def _append(self, text: str) -> None:
        with failures_of(self.path), self.path.open("ab") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())


class PartFolder:
    """A folder of Parquet parts, each there under its name when it is whole."""

    def __init__(self, path: Path, columns: Sequence[str], *, anew: bool) -> None:
        try:
            self.arrow, self.parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError:
            hints = ('`pip install "archsim[parquet]"`', "or name the file .csv or .jsonl")
            raise UsageError("Parquet files are written by pyarrow, which is not installed", hints=hints) from None
        if path.exists() and not path.is_dir():
            raise OutputRefused(f"{quote(path)} is a file", hints=("a study in Parquet is a folder of parts",))
        self.path, self.columns = make_folder(path), columns
        parts = sorted(path.glob("part-*.parquet"))
        if anew:
            for part in parts:
                part.unlink()
            parts = []
        self.keys = {key for part in parts for key in self.parquet.read_table(part, columns=["key"])["key"].to_pylist()}
        self.number = len(parts)

    def add(self, rows: Sequence[JsonObject]) -> None:
        """As of `StudyFile`."""
        schema = self.arrow.schema([(name, self._type(name)) for name in self.columns])
        table = self.arrow.Table.from_pylist([{name: row[name] for name in self.columns} for row in rows], schema)
        with replacing(self.path / f"part-{self.number:05}.parquet") as stream:
            self.parquet.write_table(table, stream)
        self.number += 1

    def _type(self, name: str) -> object:
        """Types do not hang on the rows, so that all parts are one table."""
        if name in TEXT:
            return self.arrow.string()
        return self.arrow.bool_() if name in TRUTH else self.arrow.int64() if name in WHOLE else self.arrow.float64()
