"""Text that is safe inside HTML, and the few elements that the page is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from archsim.base.units import format_rate
from archsim.render.figures.chart import Chart
from archsim.render.html.environment import SENTENCE, bounded, part, ready

NAME = 60
"""Characters of a name from a spec that are shown."""

LONG = 40
"""Rows of a table that is not printed unasked."""

WEB = re.compile(r"https?://[\w.~:/?#\[\]@!$&'()*+,;=%-]{1,500}")
"""Addresses that become links; whatever else a spec calls an address is shown as text."""


class Cell(NamedTuple):
    """A table cell: its text, whether it is to be seen at once, and a remark below it. left: words, no number.
    url: where it leads.
    """

    text: str
    marked: bool = False
    note: str = ""
    left: bool = False
    url: str = ""


Row = Sequence[str | Cell]


def safe(value: object, limit: int = SENTENCE) -> str:
    """Text from outside for an element or an attribute: on one line, bounded, escaped."""
    return escape(bounded(value, limit), quote=True)


def name_of(value: object, limit: int = NAME) -> str:
    """A name from outside, bounded and printable, not yet escaped."""
    return bounded(value, limit)


def figures(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, and thousands separated."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if abs(short) >= 10 ** (digits - 1) else f"{short:,.{digits}g}"


def link(url: str, title: str = "") -> str:
    """A source: a link where the address is one of the web, else both as text."""
    if not WEB.fullmatch(url):
        shown = safe(title or url, 200)
        return f"{shown} {safe(url, 200)}" if title and url else shown
    return part("link")(url, title or url)


def table(caption: str, head: Sequence[str], rows: Iterable[Row], key: str = "", left: bool = False) -> str:
    """A table that scrolls by itself where the screen is narrow; the first column names the row. key: its id.
    left: of words, not of numbers.
    """
    heads = [(text, "l" if left or i == 0 else "") for i, text in enumerate(head)]
    return part("table")(caption, heads, [[_cell(cell) for cell in row] for row in rows], key)


class _TableCell(NamedTuple):
    """A cell as the template takes it."""

    text: str
    side: str
    marked: bool
    note: str
    url: str


def _cell(cell: str | Cell) -> _TableCell:
    c = cell if isinstance(cell, Cell) else Cell(cell)
    side = "w" if len(c.text) > 44 else "l" if c.left else ""
    return _TableCell(c.text, side, c.marked, c.note, c.url if WEB.fullmatch(c.url) else "")


def section(key: str, title: str, *parts: str) -> str:
    """A part of the page that the table of contents leads to; nothing where it has no content."""
    body = "".join(parts)
    return part("section")(key, title, ready(body)) if body else ""


def details(summary: str, body: str, kind: str = "") -> str:
    """What is there for those who ask. kind: its style; `long` is not printed unasked."""
    return part("details")(summary, ready(body), kind)


def paragraph(text: str, kind: str = "", key: str = "") -> str:
    """A paragraph of plain text."""
    return part("paragraph")(text, kind, key)


def figure(picture: str, caption: str, twin: str = "", key: str = "", kind: str = "") -> str:
    """A picture with a caption that states the finding, and its numbers as a table behind it."""
    return part("figure")(ready(picture), caption, ready(twin), key, kind)


def chart_html(chart: Chart, level: str = "h3", wide: bool = False) -> str:
    """The place of a chart with its finding, and its numbers as a table behind it. wide: as wide as the page."""
    twin = table(chart.title, chart.table.head, chart.table.rows)
    long = len(chart.table.rows) > LONG
    shown = {"key": chart.key, "title": chart.title, "finding": chart.finding, "twin": ready(twin), "long": long}
    return part("chart")({**shown, "wide": wide}, level)


def significant(value: float) -> str:
    """A number with four significant digits, zeros at its end included."""
    return format_rate(value, "").strip()


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Names in a sentence: the first few, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def legend(items: Iterable[tuple[str, str]]) -> str:
    """Which sign stands for what: (svg, words) pairs."""
    return part("legend")([(ready(sign), words) for sign, words in items])
