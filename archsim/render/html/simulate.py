"""A simulated load as one HTML file: the page's tables, and charts of latencies, queues and requests between them."""

from __future__ import annotations

from archsim.predict.simulation import Simulation
from archsim.render.figures.load import load_charts
from archsim.render.figures.plotlyjs import Source
from archsim.render.html.markup import chart_html
from archsim.render.html.page import html_document, section_html
from archsim.render.page import Page

END = ("", "Try")
"""Sections that stand below the charts: what the answer rests on, and where to go on."""


def document(answer: Simulation, page: Page, source: Source = "inline") -> str:
    """The whole file."""
    charts = load_charts(answer)
    title, *lines = page.head
    first, last = ([section for section in page.sections if (section.title in END) is end] for end in (False, True))
    before, after = ("".join(map(section_html, sections)) for sections in (first, last))
    drawn = "".join(chart_html(chart, "h2") for chart in charts)
    notes = [*lines, *(f"Note: {note}" for note in page.notes)]
    body = f'{before}<div class="plots">{drawn}</div>\n{after}'
    return html_document(title, notes, body, charts=charts, source=source)
