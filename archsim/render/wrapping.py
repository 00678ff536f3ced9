"""Text in so many terminal columns: words stay whole; what is longer than a line is parted behind a sign."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator

from archsim.base.diagnostics import shorten

LONGEST_WORD = 200
"""Characters of a word that are shown."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_BEHIND = re.compile(r"(?<=[/,;:·+=_*|)\]-])")
"""Where a word that is longer than a line may be parted: behind these signs."""


def columns(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks and codes of colours none."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def longest_word(text: str) -> int:
    """Columns of the longest word, with the blanks that the text begins with."""
    lead = len(text) - len(text.lstrip(" "))
    return lead + max((columns(word) for word in text.split()), default=0)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, at least one. A text that begins with blanks keeps them on every line."""
    body = text.lstrip(" ")
    lead = " " * min(len(text) - len(body), width // 2)
    lines, line = [], lead
    for word in body.split(" "):
        parts = list(_parts(shorten(word, LONGEST_WORD), width - len(lead)))
        for i, part in enumerate(parts):
            joined = line + part if i or line == lead else f"{line} {part}"
            if columns(joined) > width or i:
                lines.append(line.rstrip())
                joined = lead + part
            line = joined
    return [*lines, line.rstrip()]


def _parts(word: str, width: int) -> Iterator[str]:
    """The word, or pieces of it that are no wider than `width`, parted behind a sign where there is one."""
    if columns(word) <= width:
        yield word
        return
    piece = ""
    for part in _BEHIND.split(word):
        if columns(piece + part) <= width:
            piece += part
            continue
        for char in part if columns(part) > width else (part,):
            if (piece and columns(piece + char) > width) or len(char) > 1:
                yield from filter(None, (piece,))
                piece = ""
            piece += char
    yield piece


def fold_command(command: str, width: int, indent: str = "") -> list[str]:
    """A shell command on lines of at most `width` columns that end in a backslash, so that it can be copied whole.

    An option stays with its value. A single word that is longer than a line is parted where the shell joins it again.
    indent: blanks before each line.
    """
    if columns(indent + command) <= width:
        return [indent + command]
    lines, line = [], indent
    for group in _groups(shlex.split(command)):
        text = shlex.join(group)
        if line.strip() and columns(f"{line} {text} \\") > width:
            lines.append(f"{line} \\")
            line = f"{indent}   "
        line += " " * bool(line.strip() or lines)
        for i, part in enumerate(_quoted_parts(text, group, width - len(line) - 2)):
            if i:
                lines.append(f"{line}\\")
                line = ""
            line += part
    return [*lines, line]


def _groups(words: list[str]) -> Iterator[list[str]]:
    """Words of a command, an option together with its value."""
    i = 0
    while i < len(words):
        valued = words[i].startswith("-") and i + 1 < len(words) and not words[i + 1].startswith("-")
        yield words[i : i + 1 + valued]
        i += 1 + valued


def _quoted_parts(text: str, words: list[str], width: int) -> list[str]:
    """The words as one text or, where that is too wide, in parts that are quoted each for itself."""
    if columns(text) <= width:
        return [text]
    found: list[str] = []
    for number, word in enumerate(words):
        piece, first = "", " " * (number > 0)
        for char in word:
            if piece and columns(shlex.quote(piece + char)) > max(width - 1, 8):
                found.append(first + shlex.quote(piece))
                piece, first = "", ""
            piece += char
        found.append(first + shlex.quote(piece))
    return found
