"""Headers of GGUF files: metadata, and the name, shape and type of every tensor. No tensor data is read.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, either byte order). A header is
untrusted: every count is bounded by the bytes that are left, and the long arrays of a tokenizer are
stepped over without being built.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.input_file import open_input, unusable
from archsim.base.json_types import JsonObject

MAX_HEADER = 512 * 2**20
MAX_STRINGS = 4_000_000
MAX_TENSORS = 100_000
MAX_KEYS = 20_000
MAX_KEPT = 4096
"""Longest array, and longest text, that is kept; per-layer arrays are far shorter."""
MAX_NUMBERS = 1_000_000
MAX_SHARDS = 1024
MAX_ELEMENTS = 2**50

STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

TYPES = {
    0: "fp32", 1: "fp16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s",
    20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0",
    39: "mxfp4", 40: "nvfp4_gguf", 41: "q1_0", 42: "q2_0",
}  # fmt: skip
"""ggml type -> format (ggml/include/ggml.h)."""
INTEGERS = {24: 1, 25: 2, 26: 4, 27: 8, 28: 8}
"""ggml types of index tables and the like -> bytes per element."""

ENCODER = "clip"
"""Architecture of files that hold only vision and audio encoders."""
MAX_BESIDE = 64

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: extents with the row first, as GGUF has them; format name, "" for integers; and its bytes."""

    name: str
    shape: tuple[int, ...]
    format: str
    bytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(slots=True)
class Header:
    """What a GGUF file, or all files of a split one, say. values: without long arrays and texts, which stand in
    `lengths`.
    """

    path: Path
    version: int = 3
    values: JsonObject = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    tensors: list[TensorInfo] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.bytes for t in self.tensors)


def read_gguf(path: Path) -> Header:
    """The header of a file, tensors of its other shards included. Raises SpecError (E109)."""
    found = _SHARD.fullmatch(path.name)
    if found is None:
        return _read_one(path)
    count = int(found[3])
    if not 1 <= int(found[2]) <= count <= MAX_SHARDS:
        raise SpecError(f"{quote(path.name)} is not named like a part of a split file", code="E109")
    parts = [path.with_name(f"{found[1]}-{i + 1:05}-of-{count:05}{path.suffix}") for i in range(count)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        listed = ", ".join(quote(name, 100) for name in missing[:3])
        raise SpecError(f"{len(missing)} of {count} parts are missing: {listed}", code="E109")
    whole = _read_one(parts[0])
    for part in parts[1:]:
        whole.tensors += _read_one(part).tensors
        if len(whole.tensors) > MAX_TENSORS:
            raise SpecError(f"{quote(path.name)} has more than {MAX_TENSORS:,} tensors", code="E109")
    return whole


def first_files(files: Iterable[Path]) -> list[Path]:
    """Of files of models those that can be opened alone: whole ones and first parts, no encoders."""
    parts = ((file, _SHARD.fullmatch(file.name)) for file in files if "mmproj" not in file.name.lower())
    return [file for file, part in parts if part is None or int(part[2]) == 1]


def encoder_files(path: Path) -> list[Path]:
    """Files beside a GGUF file that are named as those of encoders (`mmproj`)."""
    try:
        files = [file for file in path.parent.iterdir() if file.suffix.lower() == ".gguf" and file != path]
    except OSError:
        return []
    return sorted(file for file in files if "mmproj" in file.name.lower() and file.is_file())[:MAX_BESIDE]


def _read_one(path: Path) -> Header:
    with open_input(path) as file:
        size = min(os.fstat(file.fileno()).st_size, MAX_HEADER)
        if size < 24:
            raise unusable(path, "no GGUF file")
        try:
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                return _Reader(data, size, path).header()
        except OSError as error:
            raise unusable(path, f"it cannot be read: {type(error).__name__}") from None


def parse_gguf(data: bytes, name: str) -> Header:
    """The header that the first bytes of a file hold; `name` stands for the file. Raises SpecError (E109)."""
    if (found := _SHARD.fullmatch(name)) and int(found[3]) > 1:
        hint = "pass the model's config.json instead, which describes the same architecture"
        raise SpecError(f"{quote(name)} is one part of a split file", code="E109", hints=(hint,))
    if len(data) < 24:
        raise unusable(name, "no GGUF file")
    return _Reader(data, min(len(data), MAX_HEADER), Path(name)).header()


class _Reader:
    """One pass over one header."""

    def __init__(self, data: mmap.mmap | bytes, size: int, path: Path) -> None:
        self.data, self.size, self.path = data, size, path
        self.at = 4
        self.order = "<"
        self.strings = 0
        self.kept = 0

    def header(self) -> Header:
        """Everything in front of the tensor data."""
        if self.data[:4] != b"GGUF":
            raise self.bad("it does not begin with GGUF")
        version = self.number("I")
        if version & 0xFFFF == 0:  # written on a machine of the other byte order
            self.at, self.order = 4, ">"
            version = self.number("I")
        if version not in (2, 3):
            raise self.bad(f"version {version} is not supported, 2 and 3 are")
        tensors = self.counted("tensors", self.number("Q"), 24, MAX_TENSORS)
        keys = self.counted("keys", self.number("Q"), 12, MAX_KEYS)
        header = Header(self.path, version)
        for _ in range(keys):
            self.pair(header)
        header.tensors = [self.tensor() for _ in range(tensors)]
        return header

    def bad(self, reason: str) -> SpecError:
        """The error for this file."""
        return SpecError(f"cannot use {quote(str(self.path), 200)}: {reason}", code="E109")

    def number(self, code: str) -> Any:
        """The next scalar."""
        width = struct.calcsize("<" + code)
        if self.at + width > self.size:
            raise self.bad("it ends inside its header")
        (value,) = struct.unpack_from(self.order + code, self.data, self.at)
        self.at += width
        return value

    def counted(self, what: str, count: int, width: int, most: int) -> int:
        """A count of things of at least `width` bytes, which must all be in the file."""
        if count > most or count * width > self.size - self.at:
            raise self.bad(f"{count:,} {what} are more than it can hold")
        return count

    def text(self, most: int) -> str | None:
        """The next string; None if it is longer than `most`."""
        length = self.counted("bytes of a string", self.number("Q"), 1, MAX_HEADER)
        start, self.at = self.at, self.at + length
        return self.data[start : self.at].decode("utf-8", "replace") if length <= most else None

    def pair(self, header: Header) -> None:
        """The next key and its value."""
        key = self.text(MAX_KEPT)
        if key is None:
            raise self.bad("a key is too long")
        kind = self.number("I")
        if kind == STRING:
            header.values[key] = self.text(MAX_KEPT)
        elif kind == ARRAY:
            values, count = self.array(key)
            header.lengths[key] = count
            if values is not None:
                header.values[key] = values
        elif kind in SCALARS:
            header.values[key] = self.number(SCALARS[kind])
        else:
            raise self.bad(f"key {quote(key, 100)} has the unknown type {kind}")

    def array(self, key: str) -> tuple[list[Any] | None, int]:
        """The next array if it is short and of numbers, and its length."""
        kind, count = self.number("I"), self.number("Q")
        if kind == STRING:
            self.strings += self.counted("strings", count, 8, MAX_STRINGS)
            if self.strings > MAX_STRINGS:
                raise self.bad(f"it holds more than {MAX_STRINGS:,} strings")
            self.step_over(count)
            return None, count
        if kind not in SCALARS:
            raise self.bad(f"key {quote(key, 100)} is an array of the unsupported type {kind}")
        code = SCALARS[kind]
        width = struct.calcsize("<" + code)
        self.counted("array elements", count, width, MAX_HEADER)
        start, self.at = self.at, self.at + count * width
        self.kept += count if count <= MAX_KEPT else 0
        if count > MAX_KEPT or self.kept > MAX_NUMBERS:
            return None, count
        return list(struct.unpack_from(f"{self.order}{count}{code}", self.data, start)), count

    def step_over(self, count: int) -> None:
        """Skip strings by their lengths."""
        length, data, at, end = struct.Struct(self.order + "Q").unpack_from, self.data, self.at, self.size - 8
        for _ in range(count):
            if at > end:
                raise self.bad("it ends inside a list of strings")
            at += 8 + length(data, at)[0]
        if at > self.size:
            raise self.bad("it ends inside a string")
        self.at = at

    def tensor(self) -> TensorInfo:
        """The next tensor."""
        name, dims = self.text(MAX_KEPT), self.number("I")
        if name is None or not 1 <= dims <= 4:
            raise self.bad(f"tensor {quote(str(name), 100)} has {dims} dimensions")
        shape = tuple(self.number("Q") for _ in range(dims))
        kind, _ = self.number("I"), self.number("Q")
        if 0 in shape or prod(shape) > MAX_ELEMENTS:
            raise self.bad(f"tensor {quote(name, 100)} has the impossible shape {shape}")
        if kind in INTEGERS:
            return TensorInfo(name, shape, "", prod(shape) * INTEGERS[kind])
        if kind not in TYPES:
            raise self.bad(f"tensor {quote(name, 100)} has the unknown type {kind}")
        return TensorInfo(name, shape, TYPES[kind], self.stored(name, shape, TYPES[kind]))

    def stored(self, name: str, shape: tuple[int, ...], kind: str) -> int:
        """Bytes of a tensor, whose rows are whole blocks."""
        from archsim.spec.format import stored_format

        fmt = stored_format(kind)
        if shape[0] % fmt.block[0]:
            raise self.bad(f"tensor {quote(name, 100)} has rows of {shape[0]:,}, not a multiple of {fmt.block[0]}")
        return prod(shape) // fmt.block[0] * fmt.bytes


class Keys:
    """Metadata of one architecture. Every number is checked before it is used."""

    def __init__(self, header: Header) -> None:
        self.values = header.values
        self.file = header.path.name
        self.architecture = header.values.get("general.architecture")

    def get(self, key: str) -> Any:
        """A value of the architecture, or None."""
        return self.values.get(f"{self.architecture}.{key}")

    def number(self, key: str, layer: int = 0) -> int | None:
        """A whole number from 0 to 2**40; of a list, the entry of a layer. None where there is none."""
        value = self.get(key)
        if isinstance(value, list):
            value = value[layer] if layer < len(value) else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**40:
            raise SpecError(
                f"GGUF key {quote(f'{self.architecture}.{key}')}: {value!r} is not a valid size", code="E102"
            )
        return value

    def count(self, key: str, layer: int = 0) -> int:
        """A positive number that has to be there."""
        value = self.number(key, layer)
        if not value:
            reason = "missing" if value is None else "0"
            raise SpecError(f"GGUF key {quote(f'{self.architecture}.{key}')}: {reason}", code="E102")
        return value

    def real(self, key: str, default: float) -> float:
        """A finite number, else the default."""
        value = self.get(key)
        fine = isinstance(value, (int, float)) and 0 < value < 1e30
        return float(value) if fine else default
