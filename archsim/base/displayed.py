"""Answers that show themselves: the pages of the commands, in a notebook, a prompt and `print`.

How an answer looks is known only to `archsim.render`, which knows every kind of answer. It is imported by name when
something is shown for the first time: below it nothing depends on it, and a program that shows nothing never loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

VIEWS = "archsim.render.views"
"""The module that shows answers."""


class Views(Protocol):
    """What that module has: an answer in each form."""

    def text(self, answer: object) -> str:
        """As on a terminal, without colour."""

    def markdown(self, answer: object) -> str:
        """As Markdown."""

    def html(self, answer: object) -> str:
        """As a piece of HTML that stands in another page."""

    def subject(self, answer: object) -> str:
        """What it is about, in a few words."""

    def rows(self, answer: object) -> Sequence[JsonObject]:
        """The rows of `--format csv`."""

    def figure(self, answer: object, name: str, theme: str) -> Figure:
        """One of its charts."""


class Displayed:
    """An answer with the page of its command: `print(answer)`, Markdown and HTML for notebooks. `repr` is one line."""

    __slots__ = ()

    def __str__(self) -> str:
        return _views().text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {_views().subject(self)}; print() shows the page>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return _views().html(self)

    def _repr_markdown_(self) -> str:
        """What a notebook keeps for readers without HTML."""
        return _views().markdown(self)

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        """What the prompt of IPython shows."""
        printer.text(repr(self) if cycle else str(self))


class Printer(Protocol):
    """The printer of IPython."""

    def text(self, text: str) -> None:
        """Write a text."""


class Tabular(Displayed):
    """An answer that is a table too: the rows of `--format csv`. Some have charts."""

    __slots__ = ()

    def to_rows(self) -> list[JsonObject]:
        """One mapping for each row, with raw numbers; None where a number does not exist."""
        return list(_views().rows(self))

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame. Raises UsageError where pandas is not installed."""
        try:
            frames = import_module("pandas")
        except ImportError:
            hint = "`pip install pandas`; `to_rows()` gives the same rows as a list of dicts"
            raise UsageError("`to_pandas` needs pandas, which is not installed", hints=(hint,)) from None
        return frames.DataFrame(self.to_rows())

    def figure(self, name: str = "", *, theme: str = "light") -> Figure:
        """A chart as a plotly `Figure`. name: which one, such as `memory`; by default the first. theme: light or dark.

        Raises UsageError for another name, or where the answer has no chart.
        """
        return _views().figure(self, name, theme)


def _views() -> Views:
    return cast(Views, import_module(VIEWS))
