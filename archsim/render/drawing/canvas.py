"""The elements that drawings are made of, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from archsim.base.diagnostics import inert, shorten
from archsim.render.drawing.text_width import fold, shorten_to, text_width

TITLE, TEXT, SMALL = 12.0, 11.5, 10.5
"""Font sizes: of a box's title, its lines, and remarks."""

PAD = 8.0
RISE = 15.0
"""From one line of a box to the next."""


class Line(NamedTuple):
    """A line of a box. bold: its title. dim: a remark. marked: another model does not have it."""

    text: str
    bold: bool = False
    dim: bool = False
    marked: bool = False

    @property
    def size(self) -> float:
        """Its font size."""
        return TITLE if self.bold else SMALL if self.dim else TEXT


class Picture(NamedTuple):
    """A finished part of a drawing: its size and its elements."""

    width: float
    height: float
    body: str


def clean(text: object, limit: int = 200) -> str:
    """Text from outside, bounded and printable, not yet escaped."""
    return shorten(inert(str(text)[: limit + 1]), limit)


def folded(lines: Sequence[Line], room: float, most: int = 3) -> list[Line]:
    """Lines that are no wider than `room`; a difference is marked with a sign, as colour is never alone."""
    found = []
    for line in lines:
        text = ("≠ " if line.marked else "") + clean(line.text)
        found += [line._replace(text=part) for part in fold(text, room, line.size, line.bold or line.marked, most)]
    return found


def box_size(lines: Sequence[Line], room: float) -> tuple[float, float]:
    """Width and height of a box around lines that fit into `room`, which are folded already."""
    widest = max((text_width(line.text, line.size, line.bold or line.marked) for line in lines), default=0.0)
    return min(widest, room) + 2 * PAD, RISE * len(lines) + PAD


class Canvas:
    """Collects elements. `texts` and `rects` say what stands where, for tests."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def put(self, element: str) -> None:
        """An element as it is."""
        self.parts.append(element)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """One line; y is its base line."""
        style = f' class="{kind}"' if kind else ""
        self.put(f'<text x="{x:g}" y="{y:g}"{style}>{escape(words)}</text>')

    def fitted(self, x: float, y: float, room: float, line: Line, kind: str = "") -> None:
        """One line, cut where it is wider than the room for it."""
        words = shorten_to(clean(line.text), room, line.size, line.bold)
        self.text(x, y, words, f"{'b' if line.bold else 's' if line.dim else ''} {kind}".strip())

    def box(
        self, left: float, top: float, width: float, height: float, lines: Sequence[Line], kind: str,
        hover: str = "", data: str = "",
    ) -> None:  # fmt: skip
        """A box with its lines, which are folded already. hover: what a pointer over it shows; data: attributes."""
        differs = " differs" if any(line.marked for line in lines) else ""
        self.put(f"<g{data}>" + (f"<title>{escape(hover)}</title>" if hover else ""))
        self.put(
            f'<rect class="{kind}{differs}" x="{_r(left)}" y="{_r(top)}" width="{_r(width)}" height="{_r(height)}" '
            'rx="4"/>'
        )
        y = top + PAD / 2 + 11.5
        for line in lines:
            style = "b" if line.bold else "diff" if line.marked else "s" if line.dim else ""
            middle = "m" if len(lines) == 1 or width < 120 else ""
            x = left + width / 2 if middle else left + PAD
            self.text(float(_r(x)), float(_r(y)), line.text, f"{style} {middle}".strip())
            y += RISE
        self.put("</g>")

    def wire(self, path: str, kind: str = "") -> None:
        """A line."""
        self.put(f'<path class="w{" " + kind if kind else ""}" d="{path}"/>')

    def tip(self, x: float, y: float) -> None:
        """An arrow's head that points down to a place."""
        self.put(f'<path class="tip" d="M{_r(x)} {_r(y)}l-3.5-6h7z"/>')

    def sum(self, x: float, y: float, sign: str, hover: str = "") -> None:
        """A circle with a plus or a times sign."""
        cross = "m-4 0h8m-4-4v8" if sign == "plus" else "m-3-3l6 6m0-6l-6 6"
        title = f"<title>{escape(hover)}</title>" if hover else ""
        self.put(
            f'<g>{title}<circle cx="{_r(x)}" cy="{_r(y)}" r="8"/><path class="w" d="M{_r(x)} {_r(y)}{cross}"/></g>'
        )

    def group(self, x: float, y: float, picture: Picture) -> None:
        """A picture at a place."""
        self.put(f'<g transform="translate({_r(x)} {_r(y)})">{picture.body}</g>')

    def done(self, width: float, height: float) -> Picture:
        """Everything collected."""
        return Picture(width, height, "".join(self.parts))


def _r(value: float) -> str:
    """A coordinate with one digit behind the point."""
    return f"{round(value, 1):g}"
