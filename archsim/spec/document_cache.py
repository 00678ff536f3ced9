"""Typed documents by name, read once: a document is kept while each file behind it holds the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

from archsim.base.errors import ArchsimError
from archsim.spec import kept_documents, loader
from archsim.spec.catalog import Kind, is_built_in, resolve
from archsim.spec.one_look import seen_once

T = TypeVar("T")
MOST = 256
"""Documents that one cache keeps; the oldest goes first."""


class Reader:
    """Reads the files of one document, and notes what the document rests on: file contents and resolved names."""

    __slots__ = ("files", "names")

    def __init__(self) -> None:
        self.files: list[tuple[str | PathLike[str], bytes]] = []
        self.names: list[tuple[Kind, str, Path]] = []

    def read(self, path: str | PathLike[str]) -> loader.Node:
        """The YAML file as a new mapping. Raises SpecError as `loader.read`."""
        data = loader.content(path)
        self.files.append((path, data))
        return loader.parse_spec(data, path)

    def resolve(self, kind: Kind, name: str) -> Path:
        """The file of a name. Raises UnknownName, SpecError."""
        path = resolve(kind, name).path
        self.names.append((kind, name, path))
        return path

    def is_current(self) -> bool:
        """Whether a new reading would find the same names and bytes."""
        try:
            same_names = all(resolve(kind, name).path == path for kind, name, path in self.names)
            return same_names and all(loader.content(path) == data for path, data in self.files)
        except ArchsimError:
            return False


class _Document(NamedTuple, Generic[T]):
    value: T
    reader: Reader


class DocumentCache(Generic[T]):
    """Frozen documents by key. Contents are compared rather than times of change: a file that is rewritten within one
    tick of the clock is seen too, and reading a few kilobytes costs as little as asking for their age.

    kept: the name under which documents of the catalog are kept from one process to the next; empty: they are not.
    """

    def __init__(self, kept: str = "") -> None:
        self._documents: dict[Hashable, _Document[T]] = {}
        self._kept = kept

    def get(self, key: Hashable, load: Callable[[Reader], T]) -> T:
        """The document of a key, loaded where there is none yet or one of its files has changed."""
        kept = self._documents.get(key)
        if kept is not None and seen_once(kept.reader, kept.reader.is_current):
            return kept.value
        value, reader = self._load(key, load)
        self._documents.pop(key, None)
        if len(self._documents) >= MOST:
            self._documents.pop(next(iter(self._documents)), None)
        self._documents[key] = _Document(value, reader)
        return value

    def _load(self, key: Hashable, load: Callable[[Reader], T]) -> tuple[T, Reader]:
        """The document as it was kept by an earlier process, else read and validated."""
        reader, name = Reader(), f"{self._kept} {key}"
        if self._kept and (found := kept_documents.load(name)) is not None:
            data, names, reader.files[:] = found
            reader.names = [(cast("Kind", kind), given, Path(path)) for kind, given, path in names]
            with suppress(ValueError, TypeError, KeyError, ImportError):
                if reader.is_current():
                    return cast(T, kept_documents.restore(data)), reader
            reader = Reader()
        value = load(reader)
        if self._kept and all(is_built_in(path) for path, _ in reader.files):
            kept_documents.save(name, value, reader.names, reader.files)
        return value, reader
