"""What can be picked on the page: names of the catalog, looked up in tables and never as paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import NoSuchName
from archsim.spec.catalog import BUILT_IN, Kind, names
from archsim.spec.spelling import normalise, without_suffixes

LONGEST = 200
"""Characters of a name at most."""

_EXL = re.compile(r"exl[23]_[1-8](\.[0-9]{1,2})?bpw")
_VERSION = re.compile(r"v?[0-9][0-9a-z]{0,9}(\.[0-9a-z]{1,9}){0,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Names by kind, and every spelling of each. A text that is none of these spellings is refused: nothing that a
    link or a control says is ever opened as a file.
    """

    models: tuple[str, ...]
    devices: tuple[str, ...]
    formats: tuple[str, ...]
    engines: tuple[str, ...]
    spellings: Mapping[str, Mapping[str, str]]

    def model(self, text: str) -> tuple[str, str | None]:
        """The catalog's name of a model, and the weight format that a suffix implies (`-FP8`). Raises NoSuchName."""
        known = self.spellings["models"]
        for spelling, hint in ((normalise(text[:LONGEST]), None), *_shorter(text)):
            if spelling in known:
                return known[spelling], hint
        raise _unknown("model", text, self.models)

    def device(self, text: str) -> str:
        """The catalog's name of a device. Raises NoSuchName."""
        return self._name("hw", "device", text, self.devices)

    def format(self, text: str) -> str:
        """The catalog's name of a number format, or EXL2 at an average of so many bits. Raises NoSuchName."""
        lowered = text.strip().lower()
        return lowered if _EXL.fullmatch(lowered) else self._name("formats", "format", text, self.formats)

    def engine(self, text: str) -> str:
        """`NAME` or `NAME@VERSION` of a serving engine. Raises NoSuchName."""
        name, at, version = text.strip().lower().partition("@")
        if at and not _VERSION.fullmatch(version):
            raise _unknown("engine", text, self.engines)
        return self._name("engines", "engine", name, self.engines) + at + version

    def _name(self, kind: str, noun: str, text: str, listed: tuple[str, ...]) -> str:
        found = self.spellings[kind].get(normalise(text[:LONGEST]))
        if found is None:
            raise _unknown(noun, text, listed)
        return found


def choices(built_in: bool = False) -> Choices:
    """What can be picked. built_in: only what archsim comes with, none of the user's own folders."""
    return Choices(
        models=_listed("models", built_in), devices=_listed("hw", built_in), formats=_listed("formats", built_in),
        engines=_listed("engines", built_in),
        spellings={kind: _spellings(kind, built_in) for kind in ("models", "hw", "formats", "engines")},
    )  # fmt: skip


def _shorter(text: str) -> list[tuple[str, str | None]]:
    """A name with suffixes left out that do not change a shape, normalised."""
    return [(normalise(rest), hint) for rest, hint in without_suffixes(text[:LONGEST])]


def _listed(kind: Kind, built_in: bool) -> tuple[str, ...]:
    return tuple(entry.name for entry in names(kind) if entry.path is not None and _shown(entry.origin, built_in))


def _shown(origin: str, built_in: bool) -> bool:
    return origin == BUILT_IN or not built_in


@lru_cache(maxsize=16)
def _spellings(kind: Kind, built_in: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in names(kind):
        if entry.path is not None and _shown(entry.origin, built_in):
            for spelling in (normalise(entry.name), *entry.aliases):
                found.setdefault(spelling, entry.name)
    return found


def _unknown(noun: str, text: str, listed: tuple[str, ...]) -> NoSuchName:
    close = get_close_matches(text.lower()[:60], listed, n=3, cutoff=0.6)
    return NoSuchName(f"no {noun} named {quote(text)}", close=close)
