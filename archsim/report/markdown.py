"""Pages as Markdown, to be pasted into issues and documents."""

from __future__ import annotations

from archsim.base.diagnostics import inert
from archsim.report.page import Page, Section

_SPECIAL = str.maketrans({c: "\\" + c for c in "\\`*_<>[]|"})


def render(page: Page) -> str:
    """The page as Markdown that ends with a newline. Bars are left out."""
    head = [escape(line) for line in page.head]
    parts = [f"## {line}" if i == 0 else line for i, line in enumerate(head)]
    if page.note:
        parts.append(f"> {escape(page.note)}")
    parts += [_section(section) for section in page.sections]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text from outside without meaning in Markdown."""
    return inert(text).translate(_SPECIAL)


def _section(section: Section) -> str:
    title = f"### {escape(section.title)}" + (f" ({escape(section.aside)})" if section.aside else "")
    parts = [title if section.title else "", _table(section), *(escape(line) for line in section.below)]
    return "\n\n".join(part for part in parts if part)


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    columns = max(len(line) for line in section.rows)
    kept = [i for i in range(columns) if not _is_bar(section, i)]
    heads = ["", *section.header, *[""] * columns]
    lines = [_line([heads[i] for i in kept])]
    lines.append(_line(["--:" if section.align[i : i + 1] == "r" else "---" for i in kept]))
    for cells in section.rows:
        lines.append(_line([escape(cells[i].text) if i < len(cells) else "" for i in kept]))
    return "\n".join(lines)


def _is_bar(section: Section, column: int) -> bool:
    return any(column < len(line) and line[column].bar is not None for line in section.rows)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
