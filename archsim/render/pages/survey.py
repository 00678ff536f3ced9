"""`archsim survey` for terminals and as a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from archsim.base.json_types import JsonObject
from archsim.ledger.published_table import StudyRow
from archsim.ledger.survey import TITLES, Adoption, Survey
from archsim.render.page import Cell, Page, Section, row

NAMED = 7
"""Values that are shown by name; the others are summed up."""

ENOUGH = 10
"""Designs that a year needs for a finding to be stated of it."""


def page(answer: Survey, verbose: bool = False) -> Page:
    """Adoption by year, the study's numbers, and its cells that differ; all of its rows where `verbose`."""
    sections = [_adoption(one) for one in answer.adoption]
    sections += [study_totals(answer), differing_cells(answer), _missing(answer)]
    if verbose:
        sections.append(_rows(answer))
    return Page(head=head(answer), sections=tuple(section for section in sections if section.rows))


def head(answer: Survey) -> tuple[str, ...]:
    """What was counted."""
    compared = sum(bool(one.models) for one in answer.rows)
    return (
        f"{answer.models} models of the catalog in {answer.designs} designs, by year of release",
        "A design is one release of one maker: its sizes count once where they chose the same.",
        f"{answer.study['title']}: {compared} of its {len(answer.rows)} models have a spec, and "
        f"{answer.differing} of their cells differ.",
    )


def few(one: Adoption) -> dict[str, tuple[int, ...]]:
    """The most frequent values, and the others together."""
    names = list(one.values)
    found = {name: one.values[name] for name in names[:NAMED]}
    rest = [one.values[name] for name in names[NAMED:]]
    if rest:
        found["others"] = tuple(sum(counts) for counts in zip(*rest, strict=True))
    return found


def _adoption(one: Adoption) -> Section:
    rows = [row(name, *(str(n) if n else "·" for n in counts)) for name, counts in few(one).items()]
    rows.append(row(Cell("designs", "dim"), *(str(n) for n in one.designs)))
    return Section(title=TITLES[one.choice], rows=tuple(rows), header=one.years, align="l" + "r" * len(one.years))


def study_totals(answer: Survey) -> Section:
    """What the study states, has in its own table, and what the specs say."""
    rows = []
    for total in answer.totals:
        computed = str(total.computed) + (f" to {total.computed + total.unknown}" if total.unknown else "")
        rows.append(row(total.of, "" if total.stated is None else str(total.stated), str(total.in_table), computed))
    header = ("stated", "in its own table", "from the specs")
    return Section(title="The study's numbers", rows=tuple(rows), header=header, align="lrrr")


def _cells(answer: Survey) -> Iterator[tuple[StudyRow, Any]]:
    for one in answer.rows:
        for cell in one.differing:
            yield one, cell


def differing_cells(answer: Survey) -> Section:
    """The cells of the study that differ from the specs, each with its reason."""
    rows = [row(one.name, cell.column, f"{cell.stated}: {cell.reason}") for one, cell in _cells(answer)]
    below = [f"{one.name}: {one.note}" for one in answer.rows if one.note]
    rounded = ((one, cell) for one in answer.rows for cell in one.cells if cell.status == "rounded")
    near = [f"{one.name} ({cell.stated}, {cell.computed})" for one, cell in rounded]
    if near:
        below.append("Within 3 %, so not listed: " + "; ".join(near))
    header = ("column", "as printed, and why it differs")
    return Section(title="Cells that differ", rows=tuple(rows), header=header, below=tuple(below))


def _missing(answer: Survey) -> Section:
    rows = [row(one.name, one.missing or "") for one in answer.rows if not one.models]
    return Section(title="Without a spec", rows=tuple(rows))


def _rows(answer: Survey) -> Section:
    rows = []
    for one in answer.rows:
        told = ", ".join(f"{cell.column} {cell.computed}" for cell in one.cells if cell.computed is not None)
        names = ", ".join(one.models) or "no spec"
        rows.append(row(one.name, f"{names}: {told}" if told else names))
    return Section(title="All rows from the specs", rows=tuple(rows))


def rows(answer: Survey) -> list[JsonObject]:
    """One flat row a cell of the study."""
    return [
        {"name": one.name, "models": " ".join(one.models), "missing": one.missing or "", **cell.to_dict()}
        for one in answer.rows
        for cell in one.cells
    ]


def bare(answer: Survey) -> str:
    """The study's numbers alone."""
    return "".join(f"{total.id} {total.computed}\n" for total in answer.totals)


def leading_choice(one: Adoption) -> str:
    """The finding: what leads, since when, and by how much in the last year with several designs."""
    years = [i for i, n in enumerate(one.designs) if n]
    if not years:
        return "no design"
    last = max((i for i in years if one.designs[i] >= ENOUGH), default=years[-1])
    top = max(one.values, key=lambda value: one.values[value][last])
    share = f"{top} in {one.values[top][last]} of {one.designs[last]} designs of {one.years[last]}"
    since = years[-1] + 1
    for i in reversed(years):
        if one.values[top][i] < max(counts[i] for counts in one.values.values()):
            break
        since = i
    if since <= last:
        return f"{share}, the most frequent choice every year since {one.years[since]}"
    return share
