"""Headers of safetensors files and their index: the name, type and shape of every tensor. No data is read.

Layout: 8 bytes of length, then JSON (https://github.com/huggingface/safetensors). A header is untrusted: its length
and the number of values in it are bounded before it is parsed.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject

MAX_HEADER = 32 * 2**20
MAX_CONTAINERS = 1_000_000
MAX_VALUES = 4_000_000
MAX_TENSORS = 300_000
MAX_SHARDS = 2048
MAX_ELEMENTS = 2**50

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64,
    "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip
"""Type names -> bits per stored element."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor as stored."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Stored elements; packed ones hold several values each."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of its data."""
        return -(-self.elements * BITS[self.dtype] // 8)


def read_tensors(path: Path) -> dict[str, Entry]:
    """All tensors of a file, or of all files that an index names. Raises SpecError (E109)."""
    if not path.name.endswith(".index.json"):
        return _one(path)
    whole: dict[str, Entry] = {}
    for shard in _shards(path):
        whole |= _one(shard)
        if len(whole) > MAX_TENSORS:
            raise _bad(path, f"more than {MAX_TENSORS:,} tensors")
    return whole


def _shards(path: Path) -> list[Path]:
    """The files of an index, which lie beside it."""
    size = path.stat().st_size
    if size > MAX_HEADER:
        raise _bad(path, f"an index of {size:,} bytes")
    files = _parse_json(path, path.read_bytes()).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(f, str) for f in files.values()):
        raise _bad(path, "it has no `weight_map`")
    names = sorted(set(files.values()))
    if len(names) > MAX_SHARDS or any(name != os.path.basename(name) for name in names):
        raise _bad(path, "its `weight_map` does not name files beside it")
    missing = [name for name in names if not _is_file(path.with_name(name))]
    if missing:
        listed = ", ".join(quote(name, 100) for name in missing[:3])
        raise _bad(path, f"{len(missing)} of {len(names)} files are missing: {listed}")
    return [path.with_name(name) for name in names]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _one(path: Path) -> dict[str, Entry]:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size < 10:
                raise _bad(path, "it is no safetensors file")
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(MAX_HEADER, status.st_size - 8):
                raise _bad(path, f"a header of {length:,} bytes")
            document = _parse_json(path, file.read(length))
    except OSError as error:
        raise _bad(path, f"it cannot be read: {type(error).__name__}") from None
    return {name: _entry(path, name, value) for name, value in document.items() if name != "__metadata__"}


def _parse_json(path: Path, data: bytes) -> JsonObject:
    """The mapping in a bounded piece of JSON."""
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS or data.count(b",") > MAX_VALUES:
        raise _bad(path, "a header with more values than any model has")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _bad(path, "its header is no valid JSON") from None
    if not isinstance(document, dict) or len(document) > MAX_TENSORS:
        raise _bad(path, "its header is no mapping of tensors")
    return document


def _entry(path: Path, name: str, value: object) -> Entry:
    """One tensor, its shape checked against the place of its data."""
    fields: JsonObject = value if isinstance(value, dict) else {}
    dtype, shape, place = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _bad(path, f"tensor {quote(name, 100)} has the unknown type {quote(str(dtype)[:40])}")
    if not isinstance(shape, list) or len(shape) > 8 or not all(map(_size, shape)) or prod(shape) > MAX_ELEMENTS:
        raise _bad(path, f"tensor {quote(name, 100)} has an impossible shape")
    entry = Entry(dtype, tuple(shape))
    if not (isinstance(place, list) and len(place) == 2 and all(map(_size, place))):
        raise _bad(path, f"tensor {quote(name, 100)} has no place")
    if place[1] - place[0] != entry.bytes:
        raise _bad(path, f"tensor {quote(name, 100)} does not fill its place")
    return entry


def _size(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MAX_ELEMENTS


def _bad(path: Path, reason: str) -> SpecError:
    return SpecError(f"cannot use {quote(str(path), 200)}: {reason}", code="E109")
