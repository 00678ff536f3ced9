"""Tables of measured kernels as calls: rows of one class, device, format and engine together."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import numpy as np

from archsim.base import text_stream
from archsim.timing.classes.call import KernelCall

if TYPE_CHECKING:
    from archsim.base.arrays import Floats, Ints, Where

LARGEST = 256 * 2**20
"""Bytes of text of one file at most."""

EXTENTS = (
    *("m", "n", "k", "batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "window", "experts", "topk"),
    *("hidden", "inter", "tp", "ep", "n_gpus", "bytes", "threads", "between"),
)
"""Columns that hold extents."""


LARGEST_EXTENT, SMALLEST_EXTENT = 2**50, 2**-20
"""Beyond them products of several extents, and powers of one, are no numbers any more."""


class Key(NamedTuple):
    """What the rows of one group share."""

    op: str
    device: str
    dtype: str
    kv_dtype: str
    engine: str
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows of one key: their numbers in the file, extents as arrays (NaN: not given), and times in seconds."""

    key: Key
    rows: Ints
    dims: Mapping[str, Floats]
    seconds: Floats

    @property
    def call(self) -> KernelCall:
        """The rows as one array call."""
        return KernelCall(self.key.op, self.key.dtype, self.key.kv_dtype, self.key.kernel, self.dims)

    def take(self, index: Where) -> Group:
        """Some of the rows, by position or mask."""
        dims = {name: values[index] for name, values in self.dims.items()}
        return Group(key=self.key, rows=self.rows[index], dims=dims, seconds=self.seconds[index])


def read_groups(path: Path, leave: str = "") -> list[Group]:
    """The groups of a kernel table, CSV or gzipped CSV. leave: a value of `split` whose rows are left out."""
    with open_text(path) as stream:
        return groups(row for row in csv.DictReader(stream) if not leave or row.get("split") != leave)


def open_text(path: Path) -> TextIO:
    """A text file of sane size, unpacked where it is gzipped. Raises SpecError (E109), also while it is read."""
    return text_stream.open_text(path, LARGEST)


def groups(rows: Iterable[Mapping[str, str]]) -> list[Group]:
    """Rows gathered by key, in order of first appearance."""
    found: dict[Key, list[tuple[int, Mapping[str, str]]]] = {}
    for number, row in enumerate(rows):
        found.setdefault(Key(*(row.get(name) or "" for name in Key._fields)), []).append((number, row))
    return [_group(key, members) for key, members in found.items()]


def _group(key: Key, members: list[tuple[int, Mapping[str, str]]]) -> Group:
    dims = {name: column for name in EXTENTS if (column := _column(members, name)) is not None}
    times = _column(members, "time_us")
    seconds = np.full(len(members), np.nan) if times is None else times * 1e-6
    return Group(key=key, rows=np.array([n for n, _ in members]), dims=dims, seconds=seconds)


def _column(members: list[tuple[int, Mapping[str, str]]], name: str) -> Floats | None:
    """A column as floats; None where no row has it."""
    texts = [row.get(name) or "" for _, row in members]
    if not any(texts):
        return None
    return np.array([float(text) if text else np.nan for text in texts])


def merge_groups(parts: Iterable[Group], key: Key) -> Group:
    """Several groups as one of `key`; extents that only some have are dropped."""
    listed = list(parts)
    names = [name for name in listed[0].dims if all(name in part.dims for part in listed)]
    return Group(
        key=key,
        rows=np.concatenate([part.rows for part in listed]),
        dims={name: np.concatenate([part.dims[name] for part in listed]) for name in names},
        seconds=np.concatenate([part.seconds for part in listed]),
    )


def select(found: Iterable[Group], **wanted: str) -> Iterator[Group]:
    """The groups whose key agrees with every given field."""
    for group in found:
        if all(getattr(group.key, name) == value for name, value in wanted.items()):
            yield group
