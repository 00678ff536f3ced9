"""`archsim validate MODEL --device cpu --html`: predicted against measured, case by case, and the page's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archsim.measure.cpu_figures import errors
from archsim.render.figures.accuracy import Point, predicted_measured
from archsim.render.figures.chart import Chart
from archsim.render.figures.plotlyjs import Source
from archsim.render.html.markup import chart_html
from archsim.render.html.page import html_document, section_html
from archsim.render.page import plural
from archsim.render.pages.cpu_check import case_name, cpu_check_page

if TYPE_CHECKING:
    from archsim.measure.cpu_check import CpuCheck

BASIS = "Predictions were written before the model was built."


def cpu_document(answer: CpuCheck, source: Source = "inline") -> str:
    """The page of one check."""
    page = cpu_check_page(answer)
    charts = cpu_charts(answer)
    drawn = "".join(chart_html(chart) for chart in charts)
    tables = "".join(section_html(section._replace(sub=True)) for section in page.sections)
    return html_document(page.head[0], [BASIS, *page.head[1:]], drawn + tables, charts=charts, source=source)


def cpu_charts(answer: CpuCheck) -> list[Chart]:
    """The scatter of all cases that were timed; none where no case was."""
    rows = [row for row in answer.rows if row.get("measured_s")]
    if not rows:
        return []
    names = list(dict.fromkeys(f"{row['phase']}, {row['form']}" for row in rows))
    points = [
        Point(1e3 * row["measured_s"], 1e3 * row["predicted_s"], names.index(f"{row['phase']}, {row['form']}"),
              case_name(row)) for row in rows
    ]  # fmt: skip
    finding = f"Mean error {errors(rows)['mean']:.1%}; {plural(len(rows), 'case')}."
    return [predicted_measured(points, names, "ms", key="cases", title="Time of a pass", finding=finding)]
