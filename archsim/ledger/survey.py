"""`archsim survey`: what the models of the catalog chose, year by year, and a published study recounted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject
from archsim.ledger.choices import DENSE, Choices, choices
from archsim.ledger.published_table import COLUMNS, StudyRow, TotalRow, compare, load_study, totals
from archsim.spec.catalog import names
from archsim.spec.load import load_model
from archsim.spec.model import Model

CHOICES = Choices._fields
TITLES: Mapping[str, str] = {
    "norm": "Norm", "position": "Positions", "activation": "Activation", "attention": "Attention",
    "block": "Block", "moe": "Experts",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """One choice by year: for each value the designs that have it. A design with two kinds of layers has both."""

    choice: str
    years: tuple[str, ...]
    designs: tuple[int, ...]
    values: dict[str, tuple[int, ...]]

    def to_dict(self) -> JsonObject:
        """As data."""
        listed = {value: list(counts) for value, counts in self.values.items()}
        return {
            "choice": self.choice, "years": list(self.years), "designs": list(self.designs), "values": listed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey(Tabular):
    """The whole answer."""

    __repr__ = Tabular.__repr__

    models: int
    designs: int
    undated: tuple[str, ...]
    adoption: tuple[Adoption, ...]
    study: JsonObject
    rows: tuple[StudyRow, ...]
    totals: tuple[TotalRow, ...]

    @property
    def differing(self) -> int:
        """Cells of the study that differ from the specs."""
        return sum(len(row.differing) for row in self.rows)

    def to_dict(self) -> JsonObject:
        """The `archsim.survey/1` object."""
        return {
            "schema": "archsim.survey/1",
            "catalog": {"models": self.models, "designs": self.designs, "undated": list(self.undated)},
            "adoption": [one.to_dict() for one in self.adoption],
            "study": {
                **self.study, "rows": [row.to_dict() for row in self.rows],
                "totals": [total.to_dict() for total in self.totals],
                "missing": [row.name for row in self.rows if not row.models], "differing": self.differing,
            },
        }  # fmt: skip


def survey() -> Survey:
    """The survey of the catalog as it stands."""
    loaded = [load_model(entry.name) for entry in names("models") if entry.path is not None]
    dated = [model for model in loaded if model.released]
    designs = distinct(dated)
    study = load_study()
    rows = compare(study)
    return Survey(
        models=len(loaded), designs=len(designs), undated=tuple(m.name for m in loaded if not m.released),
        adoption=tuple(_adoption(name, designs) for name in CHOICES),
        study={"title": study.source.title, "note": study.source.note, "columns": list(COLUMNS)}, rows=rows,
        totals=totals(study, rows),
    )  # fmt: skip


def distinct(models: Iterable[Model]) -> list[tuple[str, Choices]]:
    """Year and choices of each design: sizes of one release by one maker with the same choices count once."""
    found: dict[tuple[Any, ...], tuple[str, Choices]] = {}
    for model in models:
        made = choices(model)
        released = (model.released or "")[:7]
        found.setdefault((model.org, released, made), (released[:4], made))
    return sorted(found.values())


def _adoption(choice: str, designs: list[tuple[str, Choices]]) -> Adoption:
    years = tuple(sorted({year for year, _ in designs}))
    counts: dict[str, dict[str, int]] = {}
    for year, made in designs:
        for value in dict.fromkeys(_group_experts(choice, value) for value in getattr(made, choice)):
            by_year = counts.setdefault(value, {})
            by_year[year] = by_year.get(year, 0) + 1
    order = sorted(counts, key=lambda value: (-sum(counts[value].values()), value))
    return Adoption(
        choice=choice, years=years, designs=tuple(sum(y == year for y, _ in designs) for year in years),
        values={value: tuple(counts[value].get(year, 0) for year in years) for value in order},
    )  # fmt: skip


def _group_experts(choice: str, value: str) -> str:
    """Experts in two classes: what their numbers are is another question."""
    if choice != "moe":
        return value
    return "Dense" if value == DENSE else "Mixture of experts"
