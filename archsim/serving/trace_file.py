"""Files of recorded requests: when each arrived, how long its prompt and answer were, and which blocks its prompt has.

CSV and JSON lines, gzipped or not, read as a stream: our own columns (`t_s, input, output`, `block_hashes_of_512`), the
Azure traces, Mooncake's, BurstGPT's and LLMServingSim's. Times count from the first request.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TextIO

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.input_file import unusable
from archsim.base.text_stream import open_text

MOST = 20_000_000
"""Requests of one trace at most; a longer one is cut with `--requests`."""

LONGEST = 2**30
"""Tokens of one prompt or answer at most."""

LATEST = 1e12
"""Seconds: no time is beyond."""

LONGEST_LINE = 1 << 24
"""Characters of one line at most."""

MOST_BLOCKS = 1 << 20
"""Blocks of one prompt at most."""


def _seconds(scale: float) -> Callable[[str], float]:
    """Times in a unit of `scale` seconds."""
    return lambda value: float(value) * scale


def _date(value: str) -> float:
    """Seconds of a date and time, of which the fraction may have any number of digits."""
    from datetime import UTC, datetime

    text, _, fraction = value.strip().partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    time = datetime.fromisoformat(text + fraction[len(digits) :])
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() + float("0." + (digits or "0"))


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a kind of trace are called. seconds: a time of it in seconds. block: tokens of a block."""

    time: str
    seconds: Callable[[str], float]
    input: str
    output: str
    blocks: str = ""
    block: int = 512


KINDS = (
    Columns("t_s", _seconds(1), "input", "output", "block_hashes_of_512"),
    Columns("arrival_s", _seconds(1), "input", "output"),
    Columns("timestamp", _seconds(1e-3), "input_length", "output_length", "hash_ids"),  # Mooncake: milliseconds
    Columns("TIMESTAMP", _date, "ContextTokens", "GeneratedTokens"),  # Azure
    Columns("Timestamp", _seconds(1), "Request tokens", "Response tokens"),  # BurstGPT
    Columns("arrival_time_ns", _seconds(1e-9), "input_toks", "output_toks"),  # LLMServingSim
)
"""Kinds of traces, told by their columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded requests in order of arrival. blocks: identities of each prompt's blocks of `block` tokens, each of
    which stands for all tokens up to its end; None where the file has none. notes: what was mended while reading.
    """

    name: str
    arrival_s: array[float]
    input_len: array[int]
    output_len: array[int]
    blocks: list[tuple[int, ...]] | None = None
    block: int = 512
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)


@contextmanager
def lines_of(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a text file of any size. What is wrong with it becomes a SpecError (E109)."""
    with open_text(path, None) as stream:
        try:
            yield _lines(path, stream)
        except UnicodeDecodeError:
            raise unusable(path, "not UTF-8 text") from None
        except csv.Error as error:
            raise unusable(path, f"no table: {error}") from None


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    """Lines of a bounded length."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise unusable(path, f"a line of more than {LONGEST_LINE:,} characters")
        yield line


def read_trace(path: str | Path, limit: int | None = None) -> Trace:
    """The first `limit` requests of a file (None: all). Requests without a prompt or an answer are left out, and
    requests out of order are sorted; a note says how many. Raises SpecError (E109) for anything else.
    """
    path = Path(path)
    with lines_of(path) as lines:
        first = next(lines, "")
        rows = _json_rows if first.lstrip()[:1] == "{" else _csv_rows
        return _trace(path, rows(path, chain([first], lines)), limit)


Row = tuple[int, Mapping[str, object]]
"""The number of a line and its fields."""


def _csv_rows(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    """The rows of a table with a header."""
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    yield 1, dict.fromkeys(header)
    for fields in reader:
        if fields and len(fields) != len(header):
            raise unusable(path, f"line {reader.line_num:,} has {len(fields)} fields, the header {len(header)}")
        if fields:
            yield reader.line_num, dict(zip(header, fields, strict=True))


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    """The objects of a file with one on each line; the first stands for the header too."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise unusable(path, f"line {number:,} is not a JSON object") from None
        if not isinstance(value, dict):
            raise unusable(path, f"line {number:,} is not a JSON object")
        if number == 1:
            yield 1, value
        yield number, value


def _kind(path: Path, names: Iterable[str]) -> Columns:
    """The kind of trace that has these columns. Raises SpecError."""
    listed = list(names)
    for kind in KINDS:
        if {kind.time, kind.input, kind.output} <= set(listed):
            return kind
    shown = ", ".join(quote(name, 30) for name in listed[:8]) or "none"
    raise unusable(
        path, f"no trace of requests: its columns are {shown}",
        "a trace has the columns t_s, input, output; Azure, Mooncake, BurstGPT and LLMServingSim files are read too",
    )  # fmt: skip


def _trace(path: Path, rows: Iterator[Row], limit: int | None) -> Trace:
    """The trace in rows, the first of which names the columns."""
    kind = _kind(path, next(rows, (1, {}))[1])
    times, inputs, outputs = array("d"), array("q"), array("q")
    blocks: list[tuple[int, ...]] = []
    empty = 0
    for number, row in rows:
        if len(times) == (MOST if limit is None else limit):
            if limit is None:
                raise unusable(path, f"more than {MOST:,} requests", "take the first with --requests N")
            break
        prompt, answer = (_length(path, number, row, name) for name in (kind.input, kind.output))
        if not prompt or not answer:
            empty += 1
            continue
        times.append(_time(path, number, row, kind))
        inputs.append(prompt)
        outputs.append(answer)
        if kind.blocks and row.get(kind.blocks) not in (None, ""):
            blocks.append(_blocks(path, number, row[kind.blocks], prompt, kind))
    if not times:
        raise unusable(path, "no request in it")
    if blocks and len(blocks) != len(times):
        raise unusable(path, f"{len(times) - len(blocks):,} of {len(times):,} requests have no {kind.blocks}")
    left = (f"{empty:,} requests of {path.name} have no prompt or no answer and were left out",) if empty else ()
    return _in_order(Trace(name=path.name, arrival_s=times, input_len=inputs, output_len=outputs,
                           blocks=blocks or None, block=kind.block, notes=left))  # fmt: skip


def _in_order(trace: Trace) -> Trace:
    """The trace sorted by time, counted from its first request."""
    from dataclasses import replace

    times = trace.arrival_s
    late = sum(1 for i in range(1, len(times)) if times[i] < times[i - 1])
    order = sorted(range(len(times)), key=times.__getitem__) if late else range(len(times))
    start = times[order[0]]
    note = (f"{late:,} requests of {trace.name} are out of time order; all were sorted by time",) if late else ()
    return replace(
        trace, arrival_s=array("d", (times[i] - start for i in order)),
        input_len=array("q", (trace.input_len[i] for i in order)),
        output_len=array("q", (trace.output_len[i] for i in order)),
        blocks=trace.blocks and [trace.blocks[i] for i in order], notes=(*trace.notes, *note),
    )  # fmt: skip


def _time(path: Path, number: int, row: Mapping[str, object], kind: Columns) -> float:
    """Seconds of a row. Raises SpecError."""
    try:
        value = kind.seconds(str(row.get(kind.time)))
    except (ValueError, OverflowError):
        raise _wrong(path, number, row, kind.time, "no time") from None
    if not isfinite(value) or abs(value) > LATEST:
        raise _wrong(path, number, row, kind.time, "no time")
    return value


def _length(path: Path, number: int, row: Mapping[str, object], name: str) -> int:
    """Tokens of a row; 0 where it says so. Raises SpecError."""
    value = row.get(name)
    try:
        count = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        count = -1.0
    if not 0 <= count <= LONGEST or count != int(count):
        raise _wrong(path, number, row, name, f"not a number of tokens up to {LONGEST:,}")
    return int(count)


def _blocks(path: Path, number: int, value: object, prompt: int, kind: Columns) -> tuple[int, ...]:
    """Identities of the blocks of a prompt. Raises SpecError."""
    listed = value.split("|") if isinstance(value, str) else map(str, value) if isinstance(value, list) else [""]
    try:
        found = tuple(map(int, listed))
    except ValueError:
        found = (-1,)
    if not found or min(found) < 0 or max(found) >= 2**63 or len(found) > min(MOST_BLOCKS, -(-prompt // kind.block)):
        raise unusable(
            path, f"line {number:,}: {quote(kind.blocks)} are not the blocks of {kind.block} tokens of a prompt of "
            f"{prompt:,}",
        )  # fmt: skip
    return found


def _wrong(path: Path, number: int, row: Mapping[str, object], name: str, what: str) -> SpecError:
    return unusable(path, f"line {number:,}: {quote(name)} is {quote(row.get(name))}, {what}")
