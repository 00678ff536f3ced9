"""Data made from files, kept in the user's cache folder until one of the files changes.

A wheel brings its catalog indexes along; a clone makes them at first use. Where the cache folder cannot be read or
written, the data are made each time.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from archsim.base.json_types import JsonObject

MOST_BYTES = 64 * 2**20
"""What the cache folder holds at most when a process begins to write: some 5,000 documents."""

FORMAT = 1
"""Of the cache files; another number makes all of them anew."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/archsim`, by default `~/.cache/archsim`."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "archsim"


def derived(folder: Path, sources: Iterable[str], make: Callable[[], JsonObject]) -> JsonObject:
    """What `make` makes of `sources`, as JSON holds it: from the cache if nothing has changed since it was made.

    folder: what the data describe; one cache file each. sources: files whose time of change and size are compared;
    the module of `make` belongs to them.
    """
    where = os.path.realpath(folder)
    path = cache_folder() / f"{Path(where).name}-{zlib.crc32(where.encode()):08x}.json"
    stamp = _stamp(where, sources)
    try:
        kept = json.loads(path.read_text("utf-8"))
        if kept["stamp"] == stamp:
            return dict(kept["data"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # none yet, or not one of ours: it is made anew
    text = json.dumps({"stamp": stamp, "data": make()}, separators=(",", ":"), default=str)
    write_quietly(path, text)
    return dict(json.loads(text)["data"])


def _stamp(where: str, sources: Iterable[str]) -> str:
    """A short text that differs once a source was changed, added or removed."""
    seen = []
    for source in sorted(set(map(os.path.abspath, sources))):
        try:
            status = os.stat(source)
        except OSError:
            continue
        seen.append(f"{source}:{status.st_mtime_ns}:{status.st_size}")
    text = "\n".join([where, *seen])
    return f"{FORMAT}.{len(seen)}.{zlib.crc32(text.encode()):08x}.{zlib.adler32(text.encode()):08x}"


def write_quietly(path: Path, text: str) -> None:
    """Keeps the file, or does nothing where it cannot be written."""
    from archsim.base.errors import ArchsimError
    from archsim.base.output_file import make_folder, write_text

    with suppress(ArchsimError):
        make_folder(path.parent)
        _trim_once(path.parent)
        write_text(path, text, force=True)


@cache
def _trim_once(folder: Path) -> None:
    """Trims a folder at a process's first writing to it."""
    trim(folder, MOST_BYTES)


def trim(folder: Path, most: int) -> None:
    """Removes the oldest cache files of a folder that holds more than `most` bytes, down to half of that.

    Other processes may read, write and trim at the same time: what is gone is made anew, what is open stays readable.
    """
    kept = []
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            with suppress(OSError):  # another process has removed it
                if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    kept.append((status.st_mtime_ns, entry.path, status.st_size))
    held = sum(size for *_, size in kept)
    if held <= most:
        return
    for _, path, size in sorted(kept):
        with suppress(OSError):
            os.unlink(path)
        held -= size
        if held <= most // 2:
            return
