"""Pages for terminals: at most 100 columns wide, the same text with and without colour.

Lines are laid out as plain pieces of text with a meaning. Only where colour is wanted do they become
`rich.text.Text`, never markup, so that markup in a name stays what it is. Control
characters are shown as escapes.
"""

from __future__ import annotations

import textwrap
import unicodedata

from archsim.base.diagnostics import inert
from archsim.report.page import Cell, Page, Section, Style

WIDTH = 100
BAR = 24
GAP = "  "
_EIGHTHS = " ▏▎▍▌▋▊▉"

Line = list[tuple[str, Style]]
"""Pieces of one line and what each means."""


def render(page: Page, colour: bool = False) -> str:
    """The page as text that ends with a newline; with ANSI codes where `colour` is wanted."""
    lines: list[Line] = [[(inert(line), "title" if i == 0 else "")] for i, line in enumerate(page.head)]
    if page.note:
        lines += [[], *_paragraph("note: " + page.note, style="note")]
    for section in page.sections:
        lines += [[]] * bool(lines) + _section(section)
    if colour:
        from archsim.report.terminal_colour import painted

        return painted(lines, WIDTH)
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def bar_text(fraction: float, width: int = BAR) -> str:
    """A bar of block characters, in eighths of a column; never empty for a fraction above zero."""
    eighths = max(round(fraction * width * 8), 1 if fraction > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def columns(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _section(section: Section) -> list[Line]:
    table = [tuple(_shown(cell) for cell in line) for line in section.rows]
    widths = _widths(section, table)
    lines = [_title(section, widths)] if section.title else []
    for cells, texts in zip(section.rows, table, strict=True):
        lines += _row(cells, texts, widths, section)
    return lines + [line for text in section.below for line in _paragraph(text, indent=GAP)]


def _shown(cell: Cell) -> str:
    return inert(cell.text) if cell.bar is None else bar_text(cell.bar)


def _widths(section: Section, table: list[tuple[str, ...]]) -> list[int]:
    heads = ("", *section.header) if section.header else ()
    count = max([len(heads), *(len(line) for line in table)])
    widths = [max([columns(x[i]) for x in (*table, heads) if i < len(x)], default=0) for i in range(count)]
    if widths and section.header:
        widths[0] = max(widths[0], columns(section.title) - len(GAP))
    return widths


def _title(section: Section, widths: list[int]) -> Line:
    line: Line = [(inert(section.title), "title")]
    if section.header:
        line.append((" " * (len(GAP) + widths[0] - columns(section.title)), ""))
        for i, head in enumerate(section.header, start=1):
            line.append((GAP + _padded(head, widths[i], section.align[i : i + 1]), "dim"))
    if section.aside:
        line.append((GAP + inert(section.aside), "dim"))
    return line


def _row(cells: tuple[Cell, ...], texts: tuple[str, ...], widths: list[int], section: Section) -> list[Line]:
    """One row; the last column goes on below itself where it is too long."""
    *first, last = texts
    line: Line = [(GAP if section.title else "", "")]
    for i, text in enumerate(first):
        line.append((_padded(text, widths[i], section.align[i : i + 1]) + GAP, cells[i].style))
    style, start = cells[-1].style, sum(columns(text) for text, _ in line)
    if section.align[len(first) : len(first) + 1] == "r":
        last = _padded(last, widths[len(first)], "r")
    if not section.wrap or start + columns(last) <= WIDTH or WIDTH - start < 20:
        return [[*line, (last, style)]]
    head, *rest = textwrap.wrap(last, WIDTH - start, break_long_words=False, break_on_hyphens=False)
    return [[*line, (head, style)], *([(" " * start, ""), (part, style)] for part in rest)]


def _padded(text: str, width: int, align: str) -> str:
    space = " " * (width - columns(text))
    return space + text if align == "r" else text + space


def _paragraph(text: str, indent: str = "", style: Style = "") -> list[Line]:
    wrapped = textwrap.wrap(inert(text), WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    return [[(indent, ""), (line, style)] for line in wrapped or [""]]
