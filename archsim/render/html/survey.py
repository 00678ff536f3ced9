"""`archsim survey` as a page that stands alone: charts with their tables, then the study row by row."""

from __future__ import annotations

from archsim.ledger.survey import TITLES, Adoption, Survey
from archsim.render.figures.chart import Chart
from archsim.render.figures.plotlyjs import Source
from archsim.render.figures.shares import shares_by_year
from archsim.render.html.environment import part
from archsim.render.html.markup import chart_html
from archsim.render.html.page import grid, html_document, section_html
from archsim.render.page import row
from archsim.render.pages.survey import differing_cells, few, head, leading_choice, study_totals


def document(answer: Survey, source: Source = "inline") -> str:
    """The page."""
    charts = survey_charts(answer)
    drawn = "".join(chart_html(chart) for chart in charts)
    tables = [section for section in (study_totals(answer), differing_cells(answer)) if section.rows]
    body = "".join([
        part("heading")(2, "Adoption by year"), f'<div class="plots">{drawn}</div>\n',
        part("heading")(2, answer.study["title"]), *(section_html(section._replace(sub=True)) for section in tables),
        _all_rows(answer),
    ])  # fmt: skip
    first, *lines = head(answer)
    return html_document("What transformers chose, year by year", [first, *lines], body, charts=charts, source=source)


def survey_charts(answer: Survey) -> list[Chart]:
    """A chart for each choice, named after it."""
    return [_chart(one) for one in answer.adoption]


def _chart(one: Adoption) -> Chart:
    finding = leading_choice(one)
    return shares_by_year(one.years, one.designs, few(one), key=one.choice, title=TITLES[one.choice],
                          finding=f"{finding[:1].upper()}{finding[1:]}.")  # fmt: skip


def _all_rows(answer: Survey) -> str:
    columns = answer.study["columns"]
    listed = []
    for one in answer.rows:
        cells = [one.cell(column) for column in columns]
        listed.append(row(one.name, *(_both(cell.stated, cell.computed, cell.status) for cell in cells)))
    title = f"All {len(answer.rows)} rows: as printed, and from the specs where they differ"
    return part("heading")(3, title) + grid(title, ("model", *columns), listed)


def _both(stated: str, computed: str | None, status: str) -> str:
    return stated if status in ("same", "no spec") or computed is None else f"{stated} → {computed}"
