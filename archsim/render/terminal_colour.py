"""Colour for terminal pages, by meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

STYLES = {
    "title": "bold", "dim": "dim", "good": "green", "bad": "bold red", "note": "yellow", "compute": "magenta",
    "memory": "cyan", "communication": "blue",
}  # fmt: skip
"""What a piece of text means to how it looks."""


def paint(lines: Iterable[Sequence[tuple[str, str]]], width: int) -> str:
    """The lines with ANSI codes; the text itself is never read as markup."""
    buffer = StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=True, color_system="standard", highlight=False, markup=False,
        emoji=False, legacy_windows=False, no_color=False,
    )  # fmt: skip
    for line in lines:
        text = Text()
        for piece, meaning in line:
            text.append(piece, STYLES.get(meaning, ""))
        text.rstrip()
        console.print(text, soft_wrap=True)
    return buffer.getvalue()
