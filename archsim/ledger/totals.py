"""The numbers of a study's summary, counted again in its own table and from the specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from archsim.ledger.published_table import StudyRow, StudySpec, Total, printed
from archsim.ledger.quantities import facts


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

    def to_dict(self) -> dict[str, Any]:
        """As data."""
        return {
            "id": self.id, "of": self.of, "stated": self.stated, "in_table": self.in_table,
            "computed": self.computed, "unknown": self.unknown,
        }  # fmt: skip


def totals(study: StudySpec, rows: tuple[StudyRow, ...]) -> tuple[TotalRow, ...]:
    """The study's summary, counted again: each row by its first model."""
    found = []
    for total in study.summary:
        pairs = list(zip(study.rows, rows, strict=True))
        table = [r for r, _ in pairs if _counts(total, getattr(r, total.column), r.date)]
        known = [r for r, made in pairs if made.models and _counted(total, made)]
        lacking = [r for r, made in pairs if not made.models and r in table]
        found.append(
            TotalRow(
                id=total.id, of=total.of, stated=total.stated, in_table=len(table), computed=len(known),
                unknown=len(lacking),
            )
        )  # fmt: skip
    return tuple(found)


def _counted(total: Total, row: StudyRow) -> bool:
    model = facts(row.models[0]).model
    return _counts(total, printed(model, total.column), printed(model, "date"))


def _counts(total: Total, value: str, date: str) -> bool:
    found = total.has in value and (total.lacks is None or total.lacks not in value)
    return found and (total.year is None or date.startswith(total.year))
