"""A section's table as lines of a terminal: heads, rows, bars, and cells that go on below themselves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import inert, shorten
from archsim.render.page import Cell, Row, Section, Style
from archsim.render.table_layout import BAR, GAP, Layout, lay_out, unbroken
from archsim.render.wrapping import columns, wrap

NAME, LINE, TEXT = 72, 200, 4000
"""Characters shown of a cell or the title of columns, of a title alone, and of a last column."""

UNDER = "      "
"""What stands before a last column that goes below its row."""

_EIGHTHS = " ▏▎▍▌▋▊▉"

Line = list[tuple[str, Style]]
"""Pieces of one line and what each means."""


def bound_text(text: str, limit: int = NAME) -> str:
    """Text from outside: on one line, printable, not too long."""
    return shorten(inert(text[: limit + 1]), limit)


def bar_text(fraction: float, width: int = BAR) -> str:
    """A bar of block characters, in eighths of a column; never empty for a fraction above zero."""
    eighths = max(round(fraction * width * 8), 1 if fraction > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def table_lines(section: Section, width: int, whole: bool) -> list[Line]:
    """The rows of a section, its title in the line of the heads where it has such.

    whole: rows that are not to be wrapped are as long as they are.
    """
    indent = GAP if section.title else ""
    title = bound_text(section.title) if section.header else ""
    heads = (title[len(indent) :], *map(bound_text, section.header)) if section.header else ()
    texts = [tuple(_text(cell, i == len(line) - 1) for i, cell in enumerate(line)) for line in section.rows]
    if not texts and not heads:
        return []
    bars = frozenset(i for line in section.rows for i, cell in enumerate(line) if cell.bar is not None)
    if whole and not section.wrap:
        layout = unbroken(texts, heads)
    else:
        layout = lay_out(texts, heads, section.align, bars, width - len(indent), section.keys)
    table = _Table(section, title, indent, layout, width, whole and not section.wrap)
    lines: list[Line] = []
    for number, band in enumerate(layout.bands):
        lines += [[]] * (number > 0) + (table.head_lines(band, number == 0) if heads else [])
        for cells, row_texts in zip(section.rows, texts, strict=True):
            lines += table.row_lines(cells, row_texts, band)
    return lines


def _text(cell: Cell, last: bool) -> str:
    if cell.bar is None:
        return bound_text(cell.text, TEXT if last else NAME)
    return _bar(cell, BAR)


def _bar(cell: Cell, width: int) -> str:
    return " " * round(cell.start * width) + bar_text(cell.bar or 0.0, width)


@dataclass(frozen=True, slots=True)
class _Table:
    """A section with its layout. whole: nothing is wrapped."""

    section: Section
    title: str
    indent: str
    layout: Layout
    width: int
    whole: bool

    def head_lines(self, band: Sequence[int], first: bool) -> list[Line]:
        """The titles of a band's columns; the section's own before them or, where it is too long for that, above."""
        section, widths = self.section, self.layout.widths
        lines: list[Line] = []
        title, named = self.title if first else "", band[0] == 0
        room = len(self.indent) + widths[0] if named else 0
        if columns(title) > room:
            lines, title = [[(part, "title")] for part in wrap(title, self.width)], ""
        shown = [i for i in band if i]
        cells = [
            wrap(bound_text(section.header[i - 1]), widths[i]) if i <= len(section.header) else [""] for i in shown
        ]
        height = max([1, *map(len, cells)])
        for number in range(height):
            line: Line = []
            if named:
                own = title if number == height - 1 else ""
                line = [(own, "title"), (" " * (room - columns(own)), "")]
            for at, i in enumerate(shown):
                above = height - len(cells[at])
                text = cells[at][number - above] if number >= above else ""
                gap = GAP if named or at else self.indent
                line.append((gap + _pad(text, widths[i], section.align[i : i + 1]), "dim"))
            lines.append(line)
        return self._with_aside(lines) if first else lines

    def _with_aside(self, lines: list[Line]) -> list[Line]:
        aside = bound_text(self.section.aside, LINE)
        if not aside:
            return lines
        if sum(columns(text) for text, _ in lines[-1]) + len(GAP) + columns(aside) <= self.width:
            return [*lines[:-1], [*lines[-1], (GAP + aside, "dim")]]
        above: list[Line] = [[(part, "dim")] for part in wrap(aside, self.width)]
        return [*above, *lines]

    def row_lines(self, cells: Row, texts: Sequence[str], band: Sequence[int]) -> list[Line]:
        """One row of a band. A row with fewer cells than columns ends with a text that spans the others."""
        shown = [i for i in band if i < len(texts)]
        if self.layout.under and len(texts) > self.layout.under:
            shown = [i for i in shown if i < self.layout.under]
        parts = [self._cell(cells[i], texts[i], i, i == len(texts) - 1, shown) for i in shown]
        lines: list[Line] = []
        for pieces in zip_longest(*parts):
            line: Line = [(self.indent, "")]
            for at, (i, piece) in enumerate(zip(shown, pieces, strict=True)):
                padded = _pad(piece or "", self.layout.widths[i], self.section.align[i : i + 1])
                gap = GAP * (at < len(shown) - 1)
                line.append((padded + gap, cells[i].style))
            lines.append(line)
        if self.layout.under and len(texts) > self.layout.under:
            below = wrap(texts[-1], self.width - len(UNDER)) if texts[-1].strip() else []
            lines += [[(UNDER, ""), (part, cells[-1].style)] for part in below]
        return lines

    def _cell(self, cell: Cell, text: str, i: int, last: bool, shown: Sequence[int]) -> list[str]:
        """The lines of one cell."""
        own = self.layout.widths[i]
        if cell.bar is not None:
            natural = self.layout.natural[i]
            return [text if own >= natural else _bar(cell, max(BAR * own // max(natural, 1), 1))[:own]]
        if self.whole:
            return [text]
        if last and len(self.layout.widths) > i + 1:
            before = sum(self.layout.widths[j] + len(GAP) for j in shown if j != i)
            own = max(self.width - len(self.indent) - before, own)
        return [text] if columns(text) <= own else wrap(text, own)


def _pad(text: str, width: int, align: str) -> str:
    space = " " * (width - columns(text))
    return space + text if align == "r" else text + space
