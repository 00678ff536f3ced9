"""A report as plain data: head lines and sections of cells. Renderers decide what it looks like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Style = Literal["", "title", "dim", "good", "bad", "note", "compute", "memory", "communication"]
"""What a cell means, never how it looks. Every styled fact is also said in words."""


class Cell(NamedTuple):
    """One value as text; or, where `bar` is given, a bar of that fraction of the full length, which begins at the
    fraction `start`.
    """

    text: str
    style: Style = ""
    bar: float | None = None
    start: float = 0.0


Row = tuple[Cell, ...]


class Section(NamedTuple):
    """A titled block of rows. align: one letter per column, `l` or `r`. header: titles of all columns but the
    first, which is the section's title. keys: columns that name a row. aside: a fact that stands beside the title.
    below: lines of text. wrap: whether lines that are too long are wrapped in files and pipes too. sub: whether it
    belongs to the section above. commands: whether the rows are commands of the shell, each with what it is for.
    """

    title: str
    rows: tuple[Row, ...] = ()
    align: str = ""
    header: tuple[str, ...] = ()
    aside: str = ""
    below: tuple[str, ...] = ()
    wrap: bool = True
    sub: bool = False
    commands: bool = False
    keys: int = 1


class Page(NamedTuple):
    """A complete report. head: what was asked. notes: what the reader must know before the figures."""

    head: tuple[str, ...]
    notes: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()


def row(*cells: str | Cell) -> Row:
    """A row of cells, plain text wrapped."""
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def bar(fraction: float, start: float = 0.0) -> Cell:
    """A bar, `fraction` of the full length; with `start` its place in a waterfall."""
    return Cell("", bar=min(max(float(fraction), 0.0), 1.0), start=min(max(float(start), 0.0), 1.0))


def facts(title: str, pairs: Iterable[tuple[str, str | None]]) -> Section:
    """A section of label and value; pairs without a value are left out."""
    return Section(title=title, rows=tuple(row(label, text) for label, text in pairs if text))


def footer(pairs: Iterable[tuple[str, str]]) -> Section:
    """Lines below the tables, such as `Basis` and `Inputs`, without a title."""
    return Section(title="", rows=tuple(row(Cell(name, "dim"), text) for name, text in pairs))


def bullets(title: str, texts: Iterable[object]) -> Section:
    """A titled list."""
    return Section(title=title, rows=tuple(row("-", str(text)) for text in texts))


def spark(values: Sequence[float]) -> str:
    """Columns of eight heights, from zero to the largest value: their ratios are true."""
    most = max(values)
    return "".join("▁▂▃▄▅▆▇█"[max(round(8 * value / most) - 1, 0)] for value in values)


def percent(fraction: float) -> str:
    """A share with one decimal."""
    return f"{100 * fraction:.1f} %"


def plural(n: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
