"""The names that every expression of the ledger may use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from archsim.base.expression import Named
from archsim.base.json_types import JsonObject
from archsim.blocks.mask import MaskSpec
from archsim.ledger.published_table import StudySpec, TotalRow, compare, load_study, totals
from archsim.ledger.quantities import ModelFacts, facts


class StudyFacts(Named):
    """Counts over the rows of the 53-model study, by the specs and by its own table."""

    def quantity(self, name: str) -> Any:
        """`rows`; `count(id)` and `table(id)` of a number of its summary; `share` and `number` of a quantity."""
        known: JsonObject = {
            "count": self.count,
            "table": self.table,
            "share": self.share,
            "number": self.number,
        }
        return len(self.study.rows) if name == "rows" else known[name]

    @cached_property
    def study(self) -> StudySpec:
        """The study's table."""
        return load_study()

    @cached_property
    def totals(self) -> dict[str, TotalRow]:
        """Its summary, counted again."""
        return {total.id: total for total in totals(self.study, compare(self.study))}

    def count(self, id: str) -> int:
        """Rows by their specs; rows without one as the study has them."""
        return self.totals[id].computed + self.totals[id].unknown

    def table(self, id: str) -> int:
        """Rows by the study's own cells."""
        return self.totals[id].in_table

    def share(
        self, name: str, *values: object, where: str = "", equals: object = None, since: str = ""
    ) -> float:
        """Share of the rows with a spec whose quantity is one of the values; of those alone `where` another is so, or
        that were released in the year `since` or later."""
        found = [m for m in self.rows if (m.model.released or "") >= since]
        found = [m for m in found if not where or m.quantity(where) == equals]
        return sum(m.quantity(name) in values for m in found) / len(found)

    def number(self, name: str, *values: object) -> int:
        """Rows with a spec whose quantity is one of the values."""
        return sum(m.quantity(name) in values for m in self.rows)

    @property
    def rows(self) -> list[ModelFacts]:
        """The first model of every row that has a spec."""
        return [facts(row.models[0]) for row in self.study.rows if row.models]


def pairs(kind: str, tokens: int, window: int | None = None) -> int:
    """(query, key) pairs of a mask over a sequence; sliding_both looks `window` keys to either side."""
    both = kind == "sliding_both"
    spec = MaskSpec.model_validate(
        {"kind": "sliding" if both else kind, "window": window, "bidirectional": both}
    )
    return int(spec.mask().pairs(0, tokens))


FUNCTIONS: Mapping[str, Callable[..., Any] | Named] = {
    "abs": abs, "min": min, "max": max, "round": round, "sum": lambda *xs: sum(xs), "len": len,
    "log2": math.log2, "model": facts, "pairs": pairs, "study": StudyFacts(),
}  # fmt: skip
"""Functions and objects by name."""
