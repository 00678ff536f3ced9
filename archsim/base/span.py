"""Places in text files, for errors that show where they were found."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A place in a text file: `line` and `column` from 1, `length` in characters, `text` the whole line."""

    file: str
    line: int
    column: int
    length: int
    text: str
