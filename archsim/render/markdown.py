"""Pages as Markdown, to be pasted into issues and documents."""

from __future__ import annotations

import re

from archsim.base.diagnostics import inert, shorten
from archsim.render.page import Page, Section

_SPECIAL = str.maketrans({c: "\\" + c for c in "\\`*_<>[]|~&"})

_BLOCK = re.compile(r"^([0-9]{1,9}(?=[.)])|(?=[#+-]))")
"""What makes a heading or a list of a line that begins with it."""

LONGEST = 4000
"""Characters of a text that are written."""


def render(page: Page) -> str:
    """The page as Markdown that ends with a newline. Bars are left out."""
    parts = [f"## {escape(line)}" if i == 0 else paragraph(line) for i, line in enumerate(page.head)]
    parts += [f"> {paragraph(note)}" for note in page.notes]
    parts += [_section(section) for section in page.sections]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text from outside without meaning inside a line of Markdown, bounded."""
    return shorten(inert(text[: LONGEST + 1]), LONGEST).translate(_SPECIAL)


def paragraph(text: str) -> str:
    """Text from outside that is a line of its own: neither a heading nor an item of a list."""
    return _BLOCK.sub(r"\1\\", escape(text).lstrip(), count=1)


def _section(section: Section) -> str:
    mark = "####" if section.sub else "###"
    title = f"{mark} {escape(section.title)}" + (f" ({escape(section.aside)})" if section.aside else "")
    body = _commands(section) if section.commands else _table(section)
    parts = [title if section.title else "", body, *(paragraph(line) for line in section.below)]
    return "\n\n".join(part for part in parts if part)


def _commands(section: Section) -> str:
    """Commands as a block of code, each under what it is for."""
    lines = [f"# {_code(about.text)}\n{_code(command.text)}" for command, about in section.rows]
    return "\n".join(("```sh", *lines, "```"))


def _code(text: str) -> str:
    """Text from outside on one line of a block of code, which it cannot end."""
    return shorten(inert(text[: LONGEST + 1]), LONGEST).replace("```", "` ` `")


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    columns = max(len(line) for line in section.rows)
    kept = [i for i in range(columns) if not _is_bar(section, i)]
    first = section.title if section.align[:1] == "r" and section.header else ""
    heads = [*map(escape, (first, *section.header)), *[""] * columns]
    lines = [_line([heads[i] for i in kept])]
    lines.append(_line(["--:" if section.align[i : i + 1] == "r" else "---" for i in kept]))
    for cells in section.rows:
        lines.append(_line([escape(cells[i].text) if i < len(cells) else "" for i in kept]))
    return "\n".join(lines)


def _is_bar(section: Section, column: int) -> bool:
    return any(column < len(line) and line[column].bar is not None for line in section.rows)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
