"""The answer of `archsim validate`: every prediction beside its measurement, what was refused, and error figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from archsim.accuracy.rows import Kind, Refused, Rows
from archsim.accuracy.summary import Labels, figures, groups_by_label, ranking, summarise
from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from archsim.base.arrays import Floats, Ints

SCHEMA = "archsim.validate/1"
PIECE = 20_000
"""Rows that are written at once."""


@dataclass(frozen=True, kw_only=True)
class Validation(Tabular):
    """Predictions of one kind of file. files: what was read. notes: what predictions rest on."""

    __repr__ = Tabular.__repr__

    kind: Kind
    rows: Rows
    refused: tuple[Refused, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> Labels:
        """Rows by every dimension they can be grouped by."""
        return groups_by_label({**self.rows.labels, "evidence": self.rows.evidence})

    @cached_property
    def summary(self) -> JsonObject:
        """The contract's summary."""
        return {
            "rows": len(self.rows), "refused": len(self.refused), **summarise(self.rows, self.rows.scored),
            "pairs": ranking(self.rows), "by": {name: self.by(name) for name in self.labels},
        }  # fmt: skip

    def by(self, dimension: str) -> dict[str, JsonObject]:
        """Error figures of every group of one dimension, largest first."""
        if dimension not in self.labels:  # nothing was predicted
            return {}
        names, codes = self.labels[dimension]
        scored = self.rows.scored
        found = {name: codes == i for i, name in enumerate(names)}
        order = sorted(found, key=lambda name: (-int(found[name].sum()), name))
        return {name: figures(self.rows, scored & found[name], int(found[name].sum())) for name in order}

    def worst(self, count: int = 5) -> list[int]:
        """Positions of the rows with the largest errors, as factors."""
        rows = self.rows
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.abs(np.log(rows.predicted / rows.measured))
        size = np.where(rows.scored & np.isfinite(size), size, -1.0)
        order = np.lexsort((np.arange(len(size)), -size))[:count]
        return [int(i) for i in order if size[i] >= 0]

    def to_dict(self) -> JsonObject:
        """The `archsim.validate/1` object."""
        return {
            "schema": SCHEMA, "kind": self.kind, "rows": list(self.rows.dicts()),
            "refused": [refused.to_dict() for refused in self.refused], "summary": self.summary,
            "files": list(self.files), "notes": list(self.notes),
        }  # fmt: skip

    def json(self) -> Iterator[str]:
        """The same as JSON text in pieces, one row a line."""
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        yield f'{{"schema": "{SCHEMA}", "kind": "{self.kind}",\n "rows": ['
        for start in range(0, len(self.rows), PIECE):
            lines = map(encode, self.rows.dicts(start, start + PIECE))
            yield (",\n  " if start else "\n  ") + ",\n  ".join(lines)
        yield '],\n "refused": [' + ",\n  ".join(encode(r.to_dict()) for r in self.refused)
        rest = {"summary": self.summary, "files": list(self.files), "notes": list(self.notes)}
        yield "],\n" + json.dumps(rest, indent=1, ensure_ascii=False, allow_nan=False)[2:] + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Several(Tabular):
    """The answers of a folder that holds files of several kinds."""

    __repr__ = Tabular.__repr__

    answers: tuple[Validation, ...]

    def to_dict(self) -> JsonObject:
        """The `archsim.validations/1` object."""
        return {"schema": "archsim.validations/1", "answers": [answer.to_dict() for answer in self.answers]}

    def json(self) -> Iterator[str]:
        """The same as JSON text in pieces."""
        yield '{"schema": "archsim.validations/1", "answers": [\n'
        for i, answer in enumerate(self.answers):
            yield ",\n" * bool(i)
            yield from answer.json()
        yield "]}\n"


def join_validations(parts: Iterable[Validation]) -> Validation:
    """Answers of one kind as one. Where ids occur twice, those of each file are prefixed with its name."""
    listed = list(parts)
    if len(listed) == 1:
        return listed[0]
    names = [name for part in listed for name in dict.fromkeys(part.rows.ids)]
    clash = len(names) != len(set(names))
    prefixes = [f"{part.files[0]}:" if clash else "" for part in listed]
    refused = [r._replace(id=prefix + r.id) for prefix, p in zip(prefixes, listed, strict=True) for r in p.refused]
    return Validation(
        kind=listed[0].kind, rows=_stack([part.rows for part in listed], prefixes), refused=tuple(refused),
        files=tuple(name for part in listed for name in part.files),
        notes=tuple(dict.fromkeys(note for part in listed for note in part.notes)),
    )  # fmt: skip


def _stack(parts: Sequence[Rows], prefixes: Sequence[str]) -> Rows:
    def texts(name: str) -> list[str]:
        return [text for part in parts for text in getattr(part, name)]

    def numbers(name: str) -> Floats:
        return np.concatenate([getattr(part, name) for part in parts])

    names = dict.fromkeys(name for part in parts for name in part.labels)
    return Rows(
        ids=[prefix + name for prefix, part in zip(prefixes, parts, strict=True) for name in part.ids],
        metrics=texts("metrics"), measured=numbers("measured"), predicted=numbers("predicted"),
        low=numbers("low"), high=numbers("high"), naive=numbers("naive"), evidence=texts("evidence"),
        labels={
            name: [t for part in parts for t in part.labels.get(name) or [""] * len(part)] for name in names
        },
        counted=np.concatenate([part.counted for part in parts]), titles=texts("titles"),
        peers=_apart([part.peers for part in parts]),
    )  # fmt: skip


def _apart(codes: Sequence[Ints]) -> Ints:
    """Codes of several files, none shared: rows of two files are not compared."""
    found, start = [], 0
    for part in codes:
        found.append(np.where(part >= 0, part + start, -1))
        start += int(part.max(initial=-1)) + 1
    return np.concatenate(found)
