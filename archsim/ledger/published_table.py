"""A published table of models beside the specs: every cell recomputed, and those that differ with their reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from archsim.base.errors import UsageError
from archsim.base.expression import evaluate
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field
from archsim.blocks.dispatch import Spec
from archsim.ledger.choices import DENSE, choices
from archsim.ledger.quantities import ModelFacts, facts
from archsim.ledger.verdict import Verdict, compare_values, over_models
from archsim.spec import loader
from archsim.spec.catalog import data_roots, names
from archsim.spec.model import Model

Status = Literal["same", "rounded", "some sizes", "differs", "not in a spec", "no spec"]
COLUMNS = ("date", "norm", "position", "activation", "attention", "block", "moe", "vocab")
STUDY = "study-53.yaml"
Text = Annotated[str, Field(min_length=1, max_length=200)]


class Origin(Spec):
    """The article that a file quotes figures from."""

    title: Text
    author: Text | None = None
    published: Text | None = None
    url: Text | None = None
    note: Text | None = None


class Total(Spec):
    """A number of the study's summary: rows whose cell in `column` has the text `has` and not `lacks`, of one year or
    all."""

    id: Text
    of: Text
    column: Text
    has: str
    lacks: Text | None = None
    year: Text | None = None
    stated: int | None = None


class RowSpec(Spec):
    """One row as printed. models: the specs of its sizes, the one that is counted first. missing: the catalog's name
    of a model without a spec. confused_with: a model that the row may describe instead. why: by column, or by word of
    the last one, a cause that no spec can give."""

    name: Text
    models: tuple[Text, ...] = ()
    missing: Text | None = None
    confused_with: Text | None = None
    date: Text
    norm: Text
    position: Text
    activation: Text
    attention: Text
    block: Text
    moe: Text
    vocab: Text
    stability: tuple[Text, ...] = ()
    why: Mapping[str, Text] = Field(default_factory=dict)


class StudySpec(Spec):
    """The file of a study."""

    source: Origin
    reads_as: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    stability_checks: Mapping[str, str] = Field(default_factory=dict)
    summary: tuple[Total, ...]
    rows: tuple[RowSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: what the study prints, what the specs say, and why they differ."""

    column: str
    stated: str
    computed: str | None
    status: Status
    reason: str = ""

    def to_dict(self) -> JsonObject:
        """As data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One row: the specs it is compared with, or why there is none, and its cells."""

    name: str
    models: tuple[str, ...]
    missing: str | None
    cells: tuple[Cell, ...]
    note: str = ""

    @property
    def differing(self) -> tuple[Cell, ...]:
        """Cells that are wrong for some size or for all."""
        return tuple(cell for cell in self.cells if cell.status in ("differs", "some sizes"))

    def cell(self, column: str) -> Cell:
        """The cell of one column."""
        return next(cell for cell in self.cells if cell.column == column)

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "name": self.name, "models": list(self.models), "missing": self.missing, "note": self.note,
            "cells": [cell.to_dict() for cell in self.cells],
        }  # fmt: skip


def plural(n: int, noun: str) -> str:
    """`1 head`, `8 heads`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def load_study() -> StudySpec:
    """The study's table as it comes with archsim."""
    node = loader.read(data_file("survey", STUDY))
    return loader.validate(node, StudySpec)


def data_file(folder: str, name: str) -> Path:
    """A file of the built-in data below `specs`, in a checkout and in an installed wheel."""
    path = data_roots("specs")[-1] / folder / name
    if not path.exists():
        raise UsageError(f"the data of archsim lack {folder}/{name}", hints=["install archsim anew"])
    return path


def compare(study: StudySpec) -> tuple[StudyRow, ...]:
    """All rows beside the specs."""
    return tuple(_row(study, row) for row in study.rows)


def _row(study: StudySpec, row: RowSpec) -> StudyRow:
    if not row.models:
        reason = status_of(row.missing or row.name)
        cells = [Cell(column=c, stated=getattr(row, c), computed=None, status="no spec") for c in COLUMNS]
        return StudyRow(name=row.name, models=(), missing=reason, cells=tuple(cells))
    sizes = {name: facts(name) for name in row.models}
    cells = [_cell(study, row, column, sizes) for column in COLUMNS]
    cells += _stability(study, row, sizes)
    return StudyRow(
        name=row.name, models=row.models, missing=None, cells=tuple(cells), note=_confusion(study, row, cells)
    )


def status_of(name: str) -> str:
    """Why the catalog has no spec of a name."""
    found = next((e.status for e in names("models") if e.name == name and e.path is None), None)
    return found or "not in the catalog"


def print_value(model: Model, column: str) -> str:
    """A model's value in the words of the table."""
    if column == "date":
        return (model.released or "")[:7]
    if column == "vocab":
        return f"{model.vocab_size:,}"
    return choices(model).text(column)


def _cell(study: StudySpec, row: RowSpec, column: str, sizes: Mapping[str, ModelFacts]) -> Cell:
    stated = getattr(row, column)
    meant = study.reads_as.get(column, {}).get(stated, stated)
    values = {name: print_value(m.model, column) for name, m in sizes.items()}
    found = {name: _verdict(column, meant, m, values[name]) for name, m in sizes.items()}
    verdict = over_models(found.values())
    status: Status = "same" if verdict == "true" else "differs" if verdict == "false" else "some sizes"
    if status == "some sizes" and "false" not in found.values():
        status = "rounded"
    reason = "" if status == "same" else _reason(row, column, found, values, sizes)
    computed = ", ".join(dict.fromkeys(values.values()))
    return Cell(column=column, stated=stated, computed=computed, status=status, reason=reason)


def _verdict(column: str, stated: str, m: ModelFacts, value: str) -> Verdict:
    if column == "vocab":
        return compare_values(stated, m.model.vocab_size)
    return compare_values(stated, value)


def _reason(
    row: RowSpec, column: str, found: Mapping[str, Verdict], values: Mapping[str, str], sizes: Mapping[str, ModelFacts]
) -> str:
    """The fields of the spec that decide, which sizes they belong to, why, and where the spec has them from."""
    wrong = [name for name, verdict in found.items() if verdict != "true"]
    right = [name for name in found if name not in wrong]
    told: dict[str, list[str]] = {}
    for name in wrong:
        told.setdefault(_decides(column, sizes[name], values[name]), []).append(name)
    if len(told) == 1 and not right and len(wrong) > 1:
        parts = [f"all {len(wrong)} sizes: {next(iter(told))}"]
    else:
        parts = [f"{', '.join(listed)}: {why}" for why, listed in told.items()]
    if right:
        parts.append(f"as stated in {', '.join(right)}")
    model = sizes[wrong[0]].model
    cause = row.why.get(column) or (_of_paper(model, row.date) if column == "date" else "")
    return "; ".join((*parts, *filter(None, [cause]))) + _source(model, column)


def _decides(column: str, m: ModelFacts, value: str) -> str:
    """The fields of the spec behind one value."""
    q = m.quantity
    if column == "attention" and m.attentions and all(a.caches_heads for a in m.attentions):
        return f"{value}, {q('heads')} query heads over {plural(q('kv_heads'), 'key/value head')}"
    if column == "moe" and value != DENSE:
        return f"{q('experts')} routed experts, {q('top_k')} chosen, {q('shared_experts')} shared"
    if column == "norm":
        kinds = {layer.norm.effect for layer in m.layers if layer.norm is not None}
        places = {PLACES[layer.placement] for layer in m.layers}
        return f"{value}, a norm {' and '.join(sorted(kinds))}, {' and '.join(sorted(places))}"
    if column == "vocab":
        return f"{value} entries"
    return f"released {value}" if column == "date" else value


PLACES: Mapping[str, str] = {
    "pre": "before each block", "post": "behind the residual sum",
    "post_inside": "behind each block, inside the residual", "pre+post": "before and behind each block",
    "residual_after_norm": "before each block, the residual taken behind it",
}  # fmt: skip


def _of_paper(model: Model, date: str) -> str:
    """Whether a date is that of a paper among the model's sources, by its number on arXiv."""
    numbers = (url.rsplit("/", 1)[-1] for url in (s.url for s in model.sources) if url and "arxiv.org" in url)
    paper = next((number for number in numbers if f"20{number[:2]}-{number[2:4]}" == date), None)
    return f"{date} is the date of arXiv:{paper}" if paper else ""


def _source(model: Model, column: str) -> str:
    """The source that vouches for the field, by its title or address; a date has none unless one is named for it."""
    field = {"date": "released", "vocab": "vocab_size"}.get(column, "layers")
    listed = [s for s in model.sources if field in s.covers] or list(() if column == "date" else model.sources)
    return f" (source: {listed[0].title or listed[0].url})" if listed else ""


def _stability(study: StudySpec, row: RowSpec, sizes: Mapping[str, ModelFacts]) -> Iterator[Cell]:
    """The words of the last column, each on its own; most are about training, which no spec describes."""
    for word in row.stability:
        check = study.stability_checks.get(word)
        if check is None:
            yield Cell(column="stability", stated=word, computed=None, status="not in a spec")
            continue
        names = {"model": facts}
        found = {name: bool(evaluate(check, {**names, "m": m})) for name, m in sizes.items()}
        right = [name for name, holds in found.items() if holds]
        status: Status = "same" if len(right) == len(found) else "some sizes" if right else "differs"
        wrong = [name for name, holds in found.items() if not holds]
        parts = [f"not so in {', '.join(wrong)}", f"as stated in {', '.join(right)}" if right else ""]
        reason = "; ".join(filter(None, [*parts, row.why.get(word)])) if wrong else ""
        yield Cell(column="stability", stated=word, computed="yes" if right else "no", status=status, reason=reason)


def _confusion(study: StudySpec, row: RowSpec, cells: list[Cell]) -> str:
    """How many of the row's cells belong to the model that it may have been taken for."""
    if row.confused_with is None:
        return ""
    other = {row.confused_with: facts(row.confused_with)}
    again = [_cell(study, row, column, other) for column in COLUMNS] + list(_stability(study, row, other))
    right = sum(cell.status in ("same", "rounded") for cell in again)
    own = sum(cell.status in ("same", "rounded") for cell in cells)
    agree = [cell.column for cell in again if cell.status in ("same", "rounded")]
    return (
        f"{right} of {len(again)} cells are those of {row.confused_with} ({', '.join(agree)}), "
        f"{own} those of {row.models[0]}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRow:
    """One number of the summary: as stated, counted in the study's own table, and from the specs.

    computed: rows with a spec. unknown: rows without one that the study counts in, or may.
    """

    id: str
    of: str
    stated: int | None
    in_table: int
    computed: int
    unknown: int

    def to_dict(self) -> JsonObject:
        """As data."""
        return asdict(self)


def totals(study: StudySpec, rows: tuple[StudyRow, ...]) -> tuple[TotalRow, ...]:
    """The study's summary, counted again: each row by its first model."""
    found = []
    for total in study.summary:
        pairs = list(zip(study.rows, rows, strict=True))
        table = [r for r, _ in pairs if _counts(total, getattr(r, total.column), r.date)]
        known = [r for r, made in pairs if made.models and _count(total, made)]
        lacking = [r for r, made in pairs if not made.models and r in table]
        found.append(
            TotalRow(
                id=total.id, of=total.of, stated=total.stated, in_table=len(table), computed=len(known),
                unknown=len(lacking),
            )
        )  # fmt: skip
    return tuple(found)


def _count(total: Total, row: StudyRow) -> bool:
    model = facts(row.models[0]).model
    return _counts(total, print_value(model, total.column), print_value(model, "date"))


def _counts(total: Total, value: str, date: str) -> bool:
    found = total.has in value and (total.lacks is None or total.lacks not in value)
    return found and (total.year is None or date.startswith(total.year))
