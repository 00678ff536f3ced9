"""Pages for terminals: never wider than asked, the same text with and without colour.

Lines are laid out as plain pieces of text with a meaning. Only where colour is wanted do they become
`rich.text.Text`, never markup, so that markup in a name stays what it is. Whatever text is shown, control
characters of it are escapes and its length is bounded.
"""

from __future__ import annotations

from io import StringIO

from archsim.render.page import Page, Row, Section, Style
from archsim.render.table_layout import GAP
from archsim.render.table_lines import LINE, Line, bound_text, table_lines
from archsim.render.wrapping import columns, fold_command, wrap

WIDTH = 100
"""Columns where no terminal says how many there are."""

READABLE = 120
"""Columns of a line of text at most, however wide the terminal."""

TEXT = 4000
"""Characters shown of a line of text."""

STYLES = {
    "title": "bold", "dim": "dim", "good": "green", "bad": "bold red", "note": "yellow", "compute": "magenta",
    "memory": "cyan", "communication": "blue",
}  # fmt: skip
"""How a terminal shows what a piece of text means."""


def render(page: Page, colour: bool = False, width: int | None = None) -> str:
    """The page as text that ends with a newline; with ANSI codes where `colour` is wanted.

    width: columns that no line exceeds. Without one, for files and pipes, lines have 100 columns, and those that other
    programs read (commands, lists) are whole however long they are.
    """
    room, whole = width or WIDTH, width is None
    lines: list[Line] = []
    for i, line in enumerate(page.head):
        lines += _paragraph(line, room, style="title" if i == 0 else "")
    lines += [[]] * bool(page.notes)
    for note in page.notes:
        lines += _paragraph("note: " + note, room, style="note")
    for section in page.sections:
        lines += [[]] * bool(lines) + _section(section, room, whole)
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


def _section(section: Section, width: int, whole: bool) -> list[Line]:
    if section.commands:
        lines = [*_title(section, width), *_commands(section.rows, width, whole)]
    elif section.header:
        lines = table_lines(section, width, whole)
    else:
        lines = [*_title(section, width), *table_lines(section, width, whole)]
    return lines + [line for text in section.below for line in _paragraph(text, width, indent=GAP)]


def _title(section: Section, width: int) -> list[Line]:
    """The title with what stands beside it; below it where the line is too short for both."""
    if not section.title:
        return []
    title, aside = bound_text(section.title, LINE), bound_text(section.aside, LINE)
    lines: list[Line] = [[(part, "title")] for part in wrap(title, width)]
    if aside and len(lines) == 1 and columns(title) + len(GAP) + columns(aside) <= width:
        lines[0].append((GAP + aside, "dim"))
    elif aside:
        lines += _paragraph(aside, width, indent=GAP, style="dim")
    return lines


def _commands(rows: tuple[Row, ...], width: int, whole: bool) -> list[Line]:
    """Commands that can be copied as they stand: what each is for is a comment of the shell, behind it where there is
    room for all, else above it.
    """
    pairs = [(bound_text(line[0].text, TEXT), bound_text(line[-1].text, TEXT)) for line in rows]
    start = min(max((columns(command) for command, _ in pairs), default=0), 64)
    beside = [f"{GAP}{command.ljust(start)}  # {about}" for command, about in pairs]
    if whole or all(columns(line) <= width for line in beside):
        return [[(line, "")] for line in beside]
    lines: list[Line] = []
    for command, about in pairs:
        lines += [[(f"{GAP}# {part}", "dim")] for part in wrap(about, width - len(GAP) - 2)]
        lines += [[(part, "")] for part in fold_command(command, width, GAP)]
    return lines


def _paragraph(text: str, width: int, indent: str = "", style: Style = "") -> list[Line]:
    room = min(width, max(READABLE, WIDTH)) - len(indent)
    return [[(indent, ""), (line, style)] for line in wrap(bound_text(text, TEXT), room)]
