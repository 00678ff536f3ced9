"""Catalog documents as they were after validation, kept in the user's cache folder: a command that starts reads plain
data instead of building pydantic's validators, which takes longer than the answer.

A kept document stands while the same names lead to the same files with the same bytes, and no module that checks
documents has changed. It is JSON, and restores nothing but archsim's own spec classes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from archsim.base.derived import cache_folder, write_quietly
from archsim.base.lazy_model import LazyModel
from archsim.spec.node import Node, NodeList

CHECKING = ("base", "spec", "blocks")
"""Packages whose modules decide what a document means."""

PLAIN = (str, int, float, bool, type(None))
"""Types that JSON holds as they are."""


class NotPlain(Exception):
    """A value that cannot be kept."""


def load(name: str) -> tuple[object, list[tuple[str, str, str]], list[tuple[str, bytes]]] | None:
    """A kept document by its name: its data, the names that were resolved (kind, name, path), and its files."""
    try:
        record = json.loads(_path(name).read_text("utf-8"))
        if record["code"] != _code():
            return None
        names = [(str(kind), str(given), str(path)) for kind, given, path in record["names"]]
        return record["data"], names, [(str(path), text.encode()) for path, text in record["files"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # none yet, or not one of ours


def save(
    name: str,
    value: object,
    names: Iterable[tuple[str, str, Path]],
    files: Iterable[tuple[str | os.PathLike[str], bytes]],
) -> None:
    """Keeps a document where it can be; silent where the folder cannot be written."""
    try:
        record = {
            "code": _code(), "names": [(kind, given, str(path)) for kind, given, path in names],
            "files": [(os.fspath(path), data.decode()) for path, data in files], "data": flatten(value),
        }  # fmt: skip
        write_quietly(_path(name), json.dumps(record, separators=(",", ":")))
    except (NotPlain, UnicodeError, ValueError):
        pass


def flatten(value: object) -> object:
    """A document as JSON: a spec as `{class: [fields, those that were given]}`, a mapping and a tuple alike marked."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, (tuple, list)) and kind in (tuple, list, NodeList):
        items = [flatten(item) for item in value]
        return items if kind is tuple else {"[]": items}
    if isinstance(value, dict) and kind in (dict, Node):
        return {"": [[flatten(key), flatten(item)] for key, item in value.items()]}
    if not isinstance(value, LazyModel) or not kind.__module__.startswith("archsim."):
        raise NotPlain(kind.__name__)
    fields = {name: flatten(value.__dict__[name]) for name in value.all_fields}
    return {f"{kind.__module__}:{kind.__qualname__}": [fields, sorted(value.model_fields_set)]}


def restore(data: object) -> object:
    """The value that `flatten` made JSON of. Raises ValueError for data that it did not make."""
    if isinstance(data, PLAIN):
        return data
    if isinstance(data, list):
        return tuple([restore(item) for item in data])
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError("no document that was kept")
    ((kind, content),) = data.items()
    if kind == "":
        return {restore(key): restore(item) for key, item in content}
    if kind == "[]":
        return [restore(item) for item in content]
    fields, given = content
    spec = _class(kind)
    if fields.keys() != spec.all_fields.keys():
        raise ValueError(f"a kept {kind} has other fields than the class")
    return spec.model_construct(set(given), **{name: restore(item) for name, item in fields.items()})


@cache
def _class(spelled: str) -> type[LazyModel]:
    """A spec class by module and name. Raises ValueError for anything else."""
    module, _, name = spelled.partition(":")
    found = getattr(import_module(module), name, None) if module.startswith("archsim.") else None
    if not isinstance(found, type) or not issubclass(found, LazyModel):
        raise ValueError(f"no spec class {spelled}")
    return found


def _path(name: str) -> Path:
    """One file for each installation, so that two of different versions do not write over one another's."""
    name = f"{os.path.dirname(__file__)} {name}"
    return cache_folder() / f"document-{zlib.crc32(name.encode()):08x}{zlib.adler32(name.encode()):08x}.json"


@cache
def _code() -> str:
    """A short text that differs once a module that checks documents is another."""
    seen = []
    for package in CHECKING:
        with os.scandir(Path(__file__).parent.parent / package) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    seen.append(f"{entry.path}:{status.st_mtime_ns}:{status.st_size}")
    text = "\n".join(seen)
    return f"{zlib.crc32(text.encode()):08x}{zlib.adler32(text.encode()):08x}"
