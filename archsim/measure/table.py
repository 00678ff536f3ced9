"""Result files that a kill cannot spoil: every row is one line, written and flushed at once.

A line that was torn is cut off when the file is opened again, so the file is at any moment a valid table of what
was measured.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from archsim.base.diagnostics import quote
from archsim.base.errors import OutputRefused
from archsim.base.input_file import read_text
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, failures_of, write_text
from archsim.measure.point import DIMS, Key, Point, Result

COLUMNS = (
    "op", "device", "dtype", "kv_dtype", *DIMS, "time_us", "engine", "kernel", "source", "split",
    "spread_pct", "n_calls", "l2", "mode", "moved_bytes", "clock_mhz", "note",
)  # fmt: skip
"""Columns of a kernel table, and behind them those of our own."""

SKIPPED = ("suite", "model", "op", "device", "dtype", "kv_dtype", *DIMS, "kernel", "l2", "reason")
SOURCE = "own measurement"
FIT, HELD = "own", "held"
LARGEST = 256 * 2**20
"""Bytes of a result file at most."""
BLOCK = 1 << 16
"""Bytes that are looked through at once."""
TEMPORARY = "not measured: "
"""How the reason of a point begins that a later session should try again."""


class Lines:
    """A file that grows by whole lines. `header` is what it begins with; a file that begins otherwise is left alone.

    Raises OutputRefused for a file that is not one of ours, OutputFailure where it cannot be written.
    """

    def __init__(self, path: Path, header: str) -> None:
        self.path = path
        heal(path, header)
        with failures_of(path):
            self._file = path.open("a", encoding="utf-8", newline="")
            if path.stat().st_size == 0:
                self.write(header)

    def write(self, line: str) -> None:
        """Append one line, so that it is in the file when the call returns."""
        with failures_of(self.path):
            self._file.write(line.rstrip("\n") + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with failures_of(self.path):
            self._file.close()


def heal(path: Path, header: str) -> None:
    """Cut off what stands behind the last end of line of a file that begins with `header`, or is torn within it.

    Raises OutputRefused for any other file.
    """
    if not os.path.lexists(path):
        return
    check_output(path, force=True)
    begin = header.rstrip("\n").encode() + b"\n"
    with failures_of(path), path.open("rb+") as file:
        seen = file.read(len(begin))
        if not begin.startswith(seen):
            hint = "measure into another folder with `--out DIR`"
            raise OutputRefused(f"{quote(path, 200)} is not a file of `archsim measure`", hints=(hint,))
        file.truncate(_whole_lines(file) if seen == begin else 0)


def _whole_lines(file: BinaryIO) -> int:
    """Bytes up to the last end of line, looked for from the end on."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - BLOCK)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def line(values: Iterable[object]) -> str:
    """One CSV line; line breaks inside a value become spaces."""
    buffer = io.StringIO()
    texts = [" ".join(str(v).split()) if isinstance(v, str) else v for v in values]
    csv.writer(buffer, lineterminator="\n").writerow(texts)
    return buffer.getvalue()


def cells(point: Point, device: str, engine: str) -> JsonObject:
    """A point as a row of a kernel table, without its time."""
    row: JsonObject = dict.fromkeys(COLUMNS, "")
    row |= {name: point.dims[name] for name in DIMS if name in point.dims}
    return row | {
        "op": point.op, "device": device, "dtype": point.dtype, "kv_dtype": point.kv_dtype, "engine": engine,
        "kernel": point.kernel, "source": SOURCE, "split": HELD if point.held else FIT, "l2": point.l2,
    }  # fmt: skip


def measured_row(point: Point, result: Result, device: str, engine: str, clock: int | None) -> JsonObject:
    """A timed point as a row."""
    t = result.timing
    return cells(point, device, engine) | {
        "time_us": f"{t.us:.4g}" if t.us < 1000 else f"{t.us:.1f}", "spread_pct": f"{t.spread_pct:.1f}",
        "n_calls": t.calls, "mode": t.mode, "moved_bytes": "" if result.moved is None else result.moved,
        "clock_mhz": "" if clock is None else clock, "note": result.note,
    }  # fmt: skip


def skipped_row(point: Point, device: str, reason: str) -> JsonObject:
    """A point that was not timed, and why."""
    row = {name: point.dims.get(name, "") for name in DIMS}
    return row | {
        "suite": point.suite, "model": point.model, "op": point.op, "device": device, "dtype": point.dtype,
        "kv_dtype": point.kv_dtype, "kernel": point.kernel, "l2": point.l2, "reason": reason,
    }  # fmt: skip


def read(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV file; a torn last line is left out. Nothing where there is no file."""
    if not path.exists():
        return
    text = read_text(path, LARGEST)
    whole = text[: text.rfind("\n") + 1]
    for row in csv.DictReader(io.StringIO(whole)):
        yield {name: value or "" for name, value in row.items() if name is not None}


def key_of(row: Mapping[str, str]) -> Key:
    """The key of a row, as `Point.key` gives it."""
    sizes = (row.get(name, "") for name in DIMS)
    names = ("device", "model", "op", "kernel", "l2", "dtype", "kv_dtype")
    return (*(row.get(name, "") for name in names), *sizes)


def write_plan(path: Path, points: Iterable[Point], device: str, engine: str, *, force: bool = False) -> int:
    """A kernel table of `points` without times, and how many they are. Whole models are no kernels.

    force: overwrite an existing file. Raises OutputRefused, OutputFailure.
    """
    rows = [cells(point, device, engine) for point in points if not point.whole]
    text = line(COLUMNS) + "".join(line(row[c] for c in COLUMNS) for row in rows)
    write_text(path, text, force=force)
    return len(rows)
