"""How wide text is, without a browser: advance widths of DejaVu Sans, which is wider than the fonts that are asked for.

Source: DejaVu Sans and DejaVu Sans Bold 2.37, in hundredths of the font size, rounded up.
"""

from __future__ import annotations

CHARACTERS = (
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
    "×·–—…→←↑↓≠²³≤≥αβγδΔπ√µ±’“”éèüöä"
)
REGULAR = (
    32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34,
    84, 84, 84, 54, 100, 69, 69, 70, 78, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79, 61, 79, 70, 64, 62, 74, 69, 99,
    69, 62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64, 64, 28, 28, 58, 28, 98, 64, 62, 64, 64, 42, 53,
    40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84, 84, 32, 50, 100, 100, 84, 84, 84, 84, 84, 41, 41, 84, 84, 66, 64, 60,
    62, 69, 61, 64, 64, 84, 32, 52, 52, 62, 62, 64, 62, 62,
)  # fmt: skip
BOLD = (
    35, 46, 53, 84, 70, 101, 88, 31, 46, 46, 53, 84, 38, 42, 38, 37, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 40, 40,
    84, 84, 84, 59, 100, 78, 77, 74, 84, 69, 69, 83, 84, 38, 38, 78, 64, 100, 84, 86, 74, 86, 78, 73, 69, 82, 78, 111,
    78, 73, 73, 46, 37, 46, 84, 50, 50, 68, 72, 60, 72, 68, 44, 72, 72, 35, 35, 67, 35, 105, 72, 69, 72, 72, 50, 60,
    48, 72, 66, 93, 65, 66, 59, 72, 37, 72, 84, 84, 38, 50, 100, 100, 84, 84, 84, 84, 84, 44, 44, 84, 84, 69, 72, 69,
    69, 78, 80, 67, 74, 84, 38, 66, 66, 68, 68, 72, 69, 68,
)  # fmt: skip

_WIDTHS = {False: dict(zip(CHARACTERS, REGULAR, strict=True)), True: dict(zip(CHARACTERS, BOLD, strict=True))}
_WIDEST = 111
"""Of a character that the table does not have."""


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of a line in the unit of `size`, the font size; an upper bound for the fonts of a drawing."""
    widths = _WIDTHS[bold]
    return sum(widths.get(letter, _WIDEST) for letter in text) * size / 100


def fold(text: str, room: float, size: float, bold: bool = False, most: int = 3) -> list[str]:
    """The text as lines that are no wider than `room`, cut between words where that can be; at most `most` of them,
    the last with an ellipsis where more is left out."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    cut = lines[:most]
    if len(lines) > most:
        cut[-1] += " …"
    return [shorten_to(line, room, size, bold) for line in cut]


def shorten_to(text: str, room: float, size: float, bold: bool = False) -> str:
    """The text where it fits, else its beginning with an ellipsis."""
    if text_width(text, size, bold) <= room:
        return text
    kept = text.removesuffix(" …")
    while kept and text_width(kept + "…", size, bold) > room:
        kept = kept[:-1]
    return kept + "…"
