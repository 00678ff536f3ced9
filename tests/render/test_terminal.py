"""Layout of pages for terminals and for Markdown."""

from __future__ import annotations

import re

import pytest

from archsim.render import markdown, terminal
from archsim.render.flat import flatten, to_csv
from archsim.render.page import Cell, Page, Section, bar, row
from archsim.render.table_lines import bar_text


def page(*rows: tuple[Cell, ...], **fields: object) -> Page:
    """A page of one section."""
    return Page(head=("head",), sections=(Section(title="Title", rows=rows, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(("fraction", "text"), [(0, ""), (1e-9, "▏"), (0.5, "████"), (1, "████████"), (0.53, "████▎")])
def test_bars(fraction: float, text: str) -> None:
    """A bar is in eighths of a column and never empty for something above zero."""
    assert bar_text(fraction, 8) == text


def test_columns_are_aligned() -> None:
    """Letters of `align` put text left and numbers right; wide characters count twice."""
    text = terminal.render(page(row("a", "1"), row("中文", "22"), align="lr"))
    assert text.splitlines()[2:] == ["Title", "  a      1", "  中文  22"]


def test_long_last_column_goes_on_below_itself() -> None:
    """Nothing is cut: what is too long for a line continues under its column."""
    lines = terminal.render(page(row("a", "word " * 40))).splitlines()
    assert all(len(line) <= terminal.WIDTH for line in lines)
    assert lines[4].startswith("     word")
    assert " ".join(lines).count("word") == 40


def test_colour_changes_no_text() -> None:
    """With colour the text is the same, markup in it stays text."""
    made = page(row(Cell("[red]x[/red] :smile:", "bad"), bar(0.5)))
    coloured = terminal.render(made, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == terminal.render(made)


def test_control_characters_are_escaped() -> None:
    """A name cannot move the cursor or end the line."""
    text = terminal.render(page(row("a\x1b[2J\nb")))
    assert "\x1b" not in text and "a\\x1b[2J\\nb" in text


def test_markdown_has_no_bars_and_is_escaped() -> None:
    """Bars are left out, and text from outside has no meaning in Markdown."""
    text = markdown.render(page(row("a|b", bar(0.5), "*c*"), align="lrr"))
    assert "| a\\|b | \\*c\\* |" in text and "█" not in text


@pytest.mark.parametrize("field", ["title", "aside", "header", "below", "cell", "head", "note"])
def test_no_text_of_a_page_reaches_the_terminal_as_it_is(field: str) -> None:
    """Whatever place a text from outside stands in, it is printable in the terminal and inert in Markdown."""
    evil = "\x1b[2J\x9b31m\u202e<b>[a](b)|`\n# x"
    texts = dict.fromkeys(("title", "aside", "cell", "head", "note"), "t") | {"header": "h", "below": "b", field: evil}
    made = Page(
        head=("head", texts["head"]), notes=(texts["note"],),
        sections=(Section(title=texts["title"], rows=(row("a", texts["cell"]),), align="ll", aside=texts["aside"],
                          header=(texts["header"],), below=(texts["below"],)),),
    )  # fmt: skip
    for text in (terminal.render(made), markdown.render(made)):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "\\x1b" in text
    marked = markdown.render(made)
    assert not re.search(r"(?<!\\)[\[<`]", marked.replace("\\\\", ""))
    widths = {line.replace("\\|", "").count("|") for line in marked.splitlines() if line.startswith("|")}
    assert widths == {3}


def test_long_texts_are_bounded() -> None:
    """A name of ten thousand letters takes neither a page nor the columns beside it."""
    made = page(row("N" * 10_000, "1"), row("a", "N" * 10_000), align="lr", aside="N" * 10_000)
    assert max(map(len, terminal.render(made).splitlines())) < 500


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "12. a", "1) a"])
def test_a_line_is_neither_heading_nor_list(text: str) -> None:
    """A line of text that begins as a heading or a list does stays a line."""
    assert re.match(r"\\|[0-9]+\\", markdown.paragraph(text))
    assert markdown.paragraph(text).replace("\\", "") == text


def test_a_waterfall_begins_where_the_step_before_ended() -> None:
    """A bar with a start stands behind as many blanks."""
    lines = terminal.render(page(row("a", bar(0.5)), row("b", bar(0.25, start=0.5)))).splitlines()
    assert lines[3:] == ["  a  " + "█" * 12, "  b  " + " " * 12 + "█" * 6]


def test_csv() -> None:
    """Nested keys are dotted, lists left out, and a cell cannot become a formula of a spreadsheet."""
    assert flatten({"a": {"b": 1, "c": [1]}, "d": None}) == {"a.b": 1, "d": None}
    assert to_csv([{"a": "=1+1", "b": True}, {"a": None}]) == "a,b\n'=1+1,true\n,\n"
    assert to_csv([{"a": " =1", "b": -1.5}, {"a": "\n@x", "b": "＝1"}]) == "a,b\n' =1,-1.5\n'\\n@x,'＝1\n"
