"""Where text goes: the answer to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from archsim.base.errors import ArchsimError
    from archsim.base.notes import Note
    from archsim.render.page import Page


NARROWEST, USUAL_WIDTH = 40, 80
"""Columns that every line may have, and those of a terminal that does not tell."""

WIDTH: ContextVar[int | None] = ContextVar("WIDTH", default=None)
"""What `--width` says; set anew by every command line."""


def emit(text: str) -> None:
    """Write the answer. Raises OutputFailure and ReaderGone (`archsim.cli.streams`)."""
    sys.stdout.write(text)
    sys.stdout.flush()


def emit_json(data: JsonObject) -> None:
    """Write a JSON document."""
    emit(json_text(data, indent=2))


def json_text(data: JsonObject, indent: int | None = None) -> str:
    """A JSON document: raw numbers, never NaN; a number that does not exist is null."""
    from archsim.base.diagnostics import inert_json

    return inert_json(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False, default=_plain)) + "\n"


def emit_page(page: Page, layout: str, no_color: bool = False) -> None:
    """Write a page as `table` or `md`."""
    if layout == "md":
        from archsim.render.markdown import render

        emit(render(page))
        return
    from archsim.render.terminal import render as rendered

    emit(rendered(page, colour=use_colour(sys.stdout, no_color), width=line_width(sys.stdout)))


def line_width(stream: TextIO) -> int | None:
    """Columns of a line: what `--width` says, else `COLUMNS`, else the terminal; None for a file or a pipe."""
    if (asked := WIDTH.get()) is not None:
        return asked
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return max(int(named), NARROWEST)
    if not stream.isatty():
        return None
    try:
        return max(os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH, NARROWEST)
    except (OSError, ValueError):
        return USUAL_WIDTH


def emit_answer(
    layout: str,
    no_color: bool,
    data: Callable[[], JsonObject],
    page: Callable[[], Page],
    *,
    rows: Callable[[], list[JsonObject]] | None = None,
    bare: Callable[[], str] | None = None,
    html: Callable[[], str] | None = None,
) -> None:
    """Write an answer in a layout; only what that layout needs is made.

    rows: of CSV, by default the data as one row. bare: what `--quiet` prints, where that is asked for.
    """
    if layout == "json":
        emit_json(data())
    elif layout == "csv":
        from archsim.render.flat import flatten, to_csv

        emit(to_csv(rows() if rows is not None else [flatten(data())]))
    elif bare is not None:
        emit(bare())
    elif layout == "html" and html is not None:
        emit(html())
    else:
        emit_page(page(), layout, no_color)


def say(error: ArchsimError, no_color: bool = False) -> None:
    """Write an error on stderr, in the message grammar."""
    from archsim.base.diagnostics import render
    from archsim.spec.catalog import with_stdin_named

    width = line_width(sys.stderr)
    _complain(with_stdin_named(render(error, colour=use_colour(sys.stderr, no_color), width=width)))


def _complain(text: str) -> None:
    """Write on stderr, in lines of a terminal's width. What is laid out (frames, tables) stays as it is."""
    width = line_width(sys.stderr)
    lines = text.split("\n")
    if width is not None:
        from archsim.render.wrapping import wrap

        lines = [part for line in lines for part in ([line] if _laid_out(line) else wrap(line, width))]
    sys.stderr.write("\n".join(lines) + "\n")


def _laid_out(line: str) -> bool:
    """Whether blanks or bars in a line stand for columns."""
    return "   " in line or " |" in line


def warn(messages: Iterable[Note | str]) -> None:
    """Write warnings on stderr, one line each, with the code of those that have one."""
    from archsim.base.diagnostics import inert

    for message in messages:
        title = "warning" if isinstance(message, str) else f"warning[{message.code}]"
        _complain(f"{title}: {inert(str(message))}")


def note(messages: Iterable[str]) -> None:
    """Write on stderr what figures rest on, one line each."""
    from archsim.base.diagnostics import inert

    for message in messages:
        _complain(f"note: {inert(message)}")


def note_text_part(model: str) -> None:
    """Beside a bare answer: that it is of the text part, where a vision-language model's name stands for that."""
    from archsim.spec.catalog import resolve

    found = resolve("models", model)
    if found.text_of:
        note((f"{found.text_of.rsplit('/', 1)[-1]} is counted as {found.name}, without its vision tower",))


def note_other_format(assumptions: Iterable[Note]) -> None:
    """Beside a bare answer: that it is of another format than was asked for."""
    note(one.text for one in assumptions if one.code == OTHER_FORMAT)


OTHER_FORMAT = "A11"
"""A format of experts of a model that has none."""


def use_colour(stream: TextIO, no_color: bool = False) -> bool:
    """Whether colour is wanted: on a terminal only, unless NO_COLOR, TERM=dumb or --no-color say no."""
    if no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _plain(value: object) -> Any:
    """What json does not know: tuples are lists already; paths and the like are text."""
    return value.item() if hasattr(value, "item") else str(value)


STDOUT = "-"
"""The file name that stands for stdout."""


def check_drawing(path: Path, *, force: bool) -> None:
    """Refuses a place where no drawing may be written, before the work for it is done."""
    from archsim.base.output_file import check_output

    if str(path) != STDOUT:
        check_output(path, force=force)


def write_drawing(path: Path, svg: Callable[[], str], *, force: bool) -> None:
    """Write a drawing and say where it is; `-` writes it to stdout."""
    from archsim.base.output_file import write_text

    check_drawing(path, force=force)
    text = svg()
    if str(path) == STDOUT:
        emit(text)
        return
    write_text(path, text, force=force)
    emit(f"{path}: {len(text.encode()):,} bytes\n")
