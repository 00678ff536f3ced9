"""From what people type for a serving engine to its document: `vLLM 0.9`, `llama.cpp@b6000`, `TensorRT-LLM`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import NoSuchName
from archsim.base.notes import Note
from archsim.base.version import version_of
from archsim.spec.catalog import files

if TYPE_CHECKING:
    from archsim.spec.engine import Engine

DEFAULT_ENGINE = "generic"
"""The document that is used where no engine is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """An engine's document at a version. version: as asked for, empty where assumed. notes: what had to be assumed."""

    name: str
    version: str
    rules: Engine
    notes: tuple[Note, ...]


def choose_engine(text: str) -> EngineChoice:
    """The document of `NAME[@VERSION]`, and what had to be assumed. Raises UnknownName, SpecError."""
    from archsim.spec.engine import load_engine

    name, rest = engine_and_version(text)
    version = rest if version_of(rest) else ""
    rules = load_engine(name, version)
    return EngineChoice(name=name, version=version, rules=rules, notes=tuple(_notes(rules, version)))


def _notes(rules: Engine, version: str) -> Iterator[Note]:
    from archsim.spec.engine import load_engine

    if rules.memory.as_ is not None:
        other = load_engine(rules.memory.as_.partition("@")[0]).title
        yield Note("A20", f"{rules.title} has no memory rules of its own: those of {other} are used")
    if newer := _versions_beyond(rules.version, version):
        text = f"the rules of {rules.title} {rules.version} are used for {version}, which is {newer} newer"
        yield Note("A19", f"{text}: what changed since is not known here")
    if rules.before and not version:
        text = f"no version of {rules.title} given: {rules.version} is assumed; `--engine {rules.name}@VERSION`"
        yield Note("A21", text)


def _versions_beyond(known: str, asked: str) -> str:
    """By how much a version is newer than the newest that a document knows, in words; empty where it is not."""
    last, wanted = version_of(known), version_of(asked)
    if last is None or wanted is None or wanted[: len(last)] <= last:
        return ""
    if len(last) == 1:
        return f"{wanted[0] - last[0]:,} builds"
    what = "major" if wanted[0] > last[0] else "minor"
    count = wanted[0] - last[0] if what == "major" else wanted[1] - last[1]
    return f"{count} {what} version{'s' if count > 1 else ''}"


def version_of_day(name: str, day: str) -> str:
    """The newest version of an engine that was out on a day (`2026-05-16`); empty where its document knows none."""
    from archsim.spec.engine import load_engine

    out = [version for version, released in load_engine(name).released.items() if released <= day]
    return max(out, key=lambda version: version_of(version) or (), default="")


def engine_and_version(text: str) -> tuple[str, str]:
    """An engine's name, and the version named with it (empty: none), as in `vLLM 0.9`, `vllm==1.0` or `vllm@v0.6`.

    A document's own name is found without reading any document. Raises UnknownName.
    """
    typed = text.strip().lower()
    head, _, version = typed.partition("@")
    documents = files("engines")
    if head in documents:
        return head, version.strip()
    name, rest = _longest(typed, documents)
    return name, rest.strip(" @=-_()")


def _longest(typed: str, documents: dict[str, Path]) -> tuple[str, str]:
    """The engine whose spelling covers most of the text's start, and what follows it.

    The spelling must end where a word does: `vllmx` is none. Blanks, hyphens and underscores may stand between letters.
    """
    found = [
        (match.end(), name)
        for name, path in documents.items()
        for spelling in (name, *aliases(path))
        if (match := re.match(r"[ _-]*".join(map(re.escape, spelling)) + r"(?![a-z](?!\d))", typed))
    ]
    if not found:
        import difflib

        close = difflib.get_close_matches(typed[:40], documents, n=1)
        known = f"known: {', '.join(documents)}"
        raise NoSuchName(f"no engine named {quote(typed)}", close=close, hints=(known,))
    end, name = max(found)
    return name, typed[end:]


def aliases(path: Path) -> tuple[str, ...]:
    """The other spellings that a document gives its engine."""
    status = path.stat()
    return _aliases(path, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=256)
def _aliases(path: Path, _stamp: tuple[int, int]) -> tuple[str, ...]:
    from archsim.spec.loader import read

    listed = read(path).get("aliases")
    return tuple(str(alias).lower() for alias in listed) if isinstance(listed, list) else ()
