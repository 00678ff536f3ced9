"""Pages as HTML: one file that needs nothing else, with tables, and pictures where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from archsim import __version__
from archsim.report.html.markup import name_of, paragraph, safe, table
from archsim.report.page import Cell, Page, Section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
STYLE = Path(__file__).parent / "html" / "page.css"

OWN = ".words td:last-child{text-align:left;white-space:normal}"
"""Beside the common style: last columns of words."""


def document(page: Page, pictures: str = "") -> str:
    """The page. pictures: HTML that is shown between what was asked and the tables."""
    title, *rest = page.head
    notes = "".join(paragraph(line) for line in rest) + (paragraph(f"Note: {page.note}") if page.note else "")
    body = "".join(_section(section) for section in page.sections)
    heading = safe(name_of(title, 200))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{heading}</title>\n<style>{STYLE.read_text('utf-8')}{OWN}</style></head>\n<body>\n"
        f"<header><h1>{heading}</h1>{paragraph(f'archsim {__version__}', 'dim')}{notes}</header>\n"
        f"<main>\n{pictures}{body}</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    below = "".join(paragraph(text, "dim") for text in section.below)
    title = section.title + (f" ({section.aside})" if section.aside else "")
    if not section.rows:
        return (f"<h2>{safe(title)}</h2>" if title else "") + below
    columns = max(len(cells) for cells in section.rows)
    kept = [i for i in range(columns) if not _bars(section, i)]
    heads = ["", *section.header, *[""] * columns]
    rows = [[cells[i].text if i < len(cells) else "" for i in kept] for cells in section.rows]
    style = ' class="words"' if section.align[kept[-1] : kept[-1] + 1] != "r" else ""
    return f"<div{style}>{table(title or 'Basis', [heads[i] for i in kept], rows)}{below}</div>\n"


def _bars(section: Section, column: int) -> bool:
    return any(_is_bar(cells, column) for cells in section.rows)


def _is_bar(cells: Sequence[Cell], column: int) -> bool:
    return column < len(cells) and cells[column].bar is not None
