"""The one gate for files that archsim reads: their kind and size are checked before the first byte is read.

A folder, a named pipe, a socket or a device is refused without being opened; a file above the limit of its kind is
refused by its size, however little of it is stored.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, BinaryIO

from archsim.base.diagnostics import quote, shorten
from archsim.base.errors import SpecError
from archsim.base.output_file import KINDS

MAX_DEPTH = 64
"""Levels of a document."""


def open_input(path: str | os.PathLike[str], limit: int | None = None) -> BinaryIO:
    """A regular file of at most `limit` bytes, open for reading. Raises SpecError (E109)."""
    try:
        return _opened(path, limit)
    except FileNotFoundError:
        raise unusable(path, "no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the file cannot be read"
        raise unusable(path, reason[:1].lower() + reason[1:]) from None


def read_input(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Raises SpecError (E109)."""
    with open_input(path, limit) as stream:
        try:
            data = stream.read(limit + 1)
        except OSError as error:
            raise unusable(path, (error.strerror or "the file cannot be read").lower()) from None
    if len(data) > limit:
        raise unusable(path, f"more than {limit:,} bytes")
    return data


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """The text of a UTF-8 file; a mark at its beginning is left out. Raises SpecError (E109)."""
    try:
        return read_input(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unusable(path, f"not UTF-8 text (byte {error.start:,})") from None


def parse_json(path: str | os.PathLike[str], text: str) -> Any:
    """The value of a JSON text; `path` stands for it in messages. Raises SpecError (E109)."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        raise unusable(path, f"not valid JSON: {shorten(str(error), 100)}") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return value
    raise _too_deep(path)


def _containers(value: Any) -> list[Any]:
    """The mappings and lists directly inside a value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [inner for inner in inside if isinstance(inner, (dict, list))]


def _too_deep(path: str | os.PathLike[str]) -> SpecError:
    return SpecError(f"cannot use {quote(os.fspath(path), 200)}: nested more than {MAX_DEPTH} levels deep", code="E111")


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a regular file; False for one that is no path at all."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a folder; False for one that is no path at all."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything of this name; False for one that is no path at all."""
    try:
        return os.path.exists(path)
    except (OSError, ValueError):
        return False


def unusable(path: str | os.PathLike[str], reason: str, *hints: str) -> SpecError:
    """The error for a file that cannot be read."""
    return SpecError(f"cannot use {quote(os.fspath(path), 200)}: {reason}", code="E109", hints=hints)


def _opened(path: str | os.PathLike[str], limit: int | None) -> BinaryIO:
    _check(path, os.stat(path), limit)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        _check(path, os.fstat(handle), limit)  # what was opened, should the name have changed hands
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check(path: str | os.PathLike[str], status: os.stat_result, limit: int | None) -> None:
    kind = KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        raise unusable(path, f"{kind}, not a regular file")
    if limit is not None and status.st_size > limit:
        raise unusable(path, f"{status.st_size:,} bytes, more than the limit of {limit:,}")
