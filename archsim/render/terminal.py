"""Pages for terminals: at most 100 columns wide, the same text with and without colour.

Lines are laid out as plain pieces of text with a meaning. Only where colour is wanted do they become
`rich.text.Text`, never markup, so that markup in a name stays what it is. Whatever text is shown, control
characters of it are escapes and its length is bounded.
"""

from __future__ import annotations

import textwrap
import unicodedata
from io import StringIO

from archsim.base.diagnostics import inert, shorten
from archsim.render.page import Cell, Page, Section, Style

WIDTH = 100
BAR = 24
GAP = "  "
NAME, LINE, TEXT = 72, 200, 4000
"""Characters shown of a cell or the title of columns, of a title alone, and of a last column or a line of text."""

STYLES = {
    "title": "bold", "dim": "dim", "good": "green", "bad": "bold red", "note": "yellow", "compute": "magenta",
    "memory": "cyan", "communication": "blue",
}  # fmt: skip
"""How a terminal shows what a piece of text means."""

_EIGHTHS = " ▏▎▍▌▋▊▉"

Line = list[tuple[str, Style]]
"""Pieces of one line and what each means."""


def render(page: Page, colour: bool = False) -> str:
    """The page as text that ends with a newline; with ANSI codes where `colour` is wanted."""
    lines: list[Line] = []
    for i, line in enumerate(page.head):
        lines += _paragraph(line, style="title" if i == 0 else "")
    if page.note:
        lines += [[], *_paragraph("note: " + page.note, style="note")]
    for section in page.sections:
        lines += [[]] * bool(lines) + _section(section)
    if colour:
        return _paint(lines)
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def _paint(lines: list[Line]) -> str:
    """The lines with ANSI codes; the text itself is never read as markup."""
    from rich.console import Console
    from rich.text import Text

    buffer = StringIO()
    console = Console(
        file=buffer, width=WIDTH, force_terminal=True, color_system="standard", highlight=False, markup=False,
        emoji=False, legacy_windows=False, no_color=False,
    )  # fmt: skip
    for line in lines:
        text = Text()
        for piece, meaning in line:
            text.append(piece, STYLES.get(meaning, ""))
        text.rstrip()
        console.print(text, soft_wrap=True)
    return buffer.getvalue()


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
    title = _bound_text(section.title, NAME if section.header else LINE)
    section = section._replace(title=title, header=tuple(map(_bound_text, section.header)))
    table = [tuple(_show(cell, i == len(line) - 1) for i, cell in enumerate(line)) for line in section.rows]
    widths = _widths(section, table)
    lines = [_title(section, widths)] if section.title else []
    for cells, texts in zip(section.rows, table, strict=True):
        lines += _row(cells, texts, widths, section)
    return lines + [line for text in section.below for line in _paragraph(text, indent=GAP)]


def _show(cell: Cell, last: bool) -> str:
    if cell.bar is None:
        return _bound_text(cell.text, TEXT if last else NAME)
    return " " * round(cell.start * BAR) + bar_text(cell.bar)


def _bound_text(text: str, limit: int = NAME) -> str:
    """Text from outside: on one line, printable, not too long."""
    return shorten(inert(text[: limit + 1]), limit)


def _widths(section: Section, table: list[tuple[str, ...]]) -> list[int]:
    heads = ("", *section.header) if section.header else ()
    count = max([len(heads), *(len(line) for line in table)])
    widths = [max([columns(x[i]) for x in (*table, heads) if i < len(x)], default=0) for i in range(count)]
    if widths and section.header:
        widths[0] = max(widths[0], columns(section.title) - len(GAP))
    return widths


def _title(section: Section, widths: list[int]) -> Line:
    line: Line = [(section.title, "title")]
    if section.header:
        line.append((" " * (len(GAP) + widths[0] - columns(section.title)), ""))
        for i, head in enumerate(section.header, start=1):
            line.append((GAP + _pad(head, widths[i], section.align[i : i + 1]), "dim"))
    if section.aside:
        line.append((GAP + _bound_text(section.aside, LINE), "dim"))
    return line


def _row(cells: tuple[Cell, ...], texts: tuple[str, ...], widths: list[int], section: Section) -> list[Line]:
    """One row; the last column goes on below itself where it is too long."""
    *first, last = texts
    line: Line = [(GAP if section.title else "", "")]
    for i, text in enumerate(first):
        line.append((_pad(text, widths[i], section.align[i : i + 1]) + GAP, cells[i].style))
    style, start = cells[-1].style, sum(columns(text) for text, _ in line)
    if section.align[len(first) : len(first) + 1] == "r":
        last = _pad(last, widths[len(first)], "r")
    if not section.wrap or start + columns(last) <= WIDTH or WIDTH - start < 20:
        return [[*line, (last, style)]]
    head, *rest = _wrap(last, WIDTH - start)
    return [[*line, (head, style)], *([(" " * start, ""), (part, style)] for part in rest)]


def _pad(text: str, width: int, align: str) -> str:
    space = " " * (width - columns(text))
    return space + text if align == "r" else text + space


def _paragraph(text: str, indent: str = "", style: Style = "") -> list[Line]:
    return [[(indent, ""), (line, style)] for line in _wrap(_bound_text(text, TEXT), WIDTH - len(indent))]


def _wrap(text: str, width: int) -> list[str]:
    """Lines of so many characters; a word that is longer than a page stays whole only up to 200 characters."""
    words = " ".join(shorten(word, 200) for word in text.split(" "))
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]
