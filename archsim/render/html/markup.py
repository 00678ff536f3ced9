"""Text that is safe inside HTML, and the few elements that the page is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from archsim.base.diagnostics import inert, shorten
from archsim.base.units import format_rate

NAME = 60
"""Characters of a name from a spec that are shown."""

SENTENCE = 600
"""Characters of a note, title or warning that are shown."""

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
    return escape(shorten(inert(str(value)[: limit + 1]), limit), quote=True)


def name_of(value: object, limit: int = NAME) -> str:
    """A name from outside, bounded and printable, not yet escaped."""
    return shorten(inert(str(value)[: limit + 1]), limit)


def figures(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, and thousands separated."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if abs(short) >= 10 ** (digits - 1) else f"{short:,.{digits}g}"


def link(url: str, title: str = "") -> str:
    """A source: a link where the address is one of the web, else both as text."""
    shown = safe(title or url, 200)
    if not WEB.fullmatch(url):
        return f"{shown} {safe(url, 200)}" if title and url else shown
    return f'<a href="{escape(url, quote=True)}" rel="noopener noreferrer">{shown}</a>'


def table(caption: str, head: Sequence[str], rows: Iterable[Row], key: str = "", left: bool = False) -> str:
    """A table that scrolls by itself where the screen is narrow; the first column names the row. key: its id.
    left: of words, not of numbers.
    """
    heads = "".join(
        f'<th scope="col"{_side(i, left)}>{safe(text)}</th>' if text else "<td></td>" for i, text in enumerate(head)
    )
    body = "".join(f"<tr>{''.join(_cell(i, cell) for i, cell in enumerate(row))}</tr>" for row in rows)
    place = f' id="{key}"' if key else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(caption)}"><table{place}>'
        f"<caption>{safe(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def _cell(column: int, cell: str | Cell) -> str:
    found = cell if isinstance(cell, Cell) else Cell(cell)
    text = link(found.url, found.text) if found.url else safe(found.text)
    shown = f"<mark>{text}</mark>" if found.marked else text
    shown += f" <small>{safe(found.note)}</small>" if found.note else ""
    wide = ' class="w"' if len(found.text) > 44 and column else ' class="l"' if found.left else ""
    return f'<th scope="row"{wide}>{shown}</th>' if column == 0 else f"<td{wide}>{shown}</td>"


def _side(column: int, left: bool) -> str:
    return ' class="l"' if left or column == 0 else ""


def section(key: str, title: str, *parts: str) -> str:
    """A part of the page that the table of contents leads to; nothing where it has no content."""
    body = "".join(parts)
    if not body:
        return ""
    return f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{safe(title)}</h2>\n{body}</section>\n'


def details(summary: str, body: str, kind: str = "") -> str:
    """What is there for those who ask. kind: its style; `long` is not printed unasked."""
    style = f' class="{kind}"' if kind else ""
    return f"<details{style}><summary>{safe(summary)}</summary>\n{body}</details>\n"


def paragraph(text: str, kind: str = "", key: str = "") -> str:
    """A paragraph of plain text."""
    style = f' class="{kind}"' if kind else ""
    place = f' id="{key}"' if key else ""
    return f"<p{style}{place}>{safe(text, 2000)}</p>\n"


def figure(picture: str, caption: str, twin: str = "", key: str = "", kind: str = "") -> str:
    """A picture with a caption that states the finding, and its numbers as a table behind it."""
    place = f' id="{key}-caption"' if key else ""
    style = f' class="{kind}"' if kind else ""
    behind = details("The numbers as a table", twin, "twin") if twin else ""
    return f"<figure{style}>{picture}<figcaption{place}>{safe(caption)}</figcaption>{behind}</figure>\n"


def significant(value: float) -> str:
    """A number with four significant digits, zeros at its end included."""
    return format_rate(value, "").strip()


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Names in a sentence: the first few, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def legend(items: Iterable[tuple[str, str]]) -> str:
    """Which sign stands for what: (svg, words) pairs."""
    return '<ul class="legend">' + "".join(f"<li>{sign}{safe(words)}</li>" for sign, words in items) + "</ul>\n"
