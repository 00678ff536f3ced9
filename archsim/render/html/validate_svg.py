"""Predicted against measured as an SVG on two logarithmic axes: no script, no request, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from archsim.render.html.markup import legend

WIDTH, HEIGHT = 460, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 50

SHAPES = (
    '<circle r="2.6"/>',
    '<rect x="-2.4" y="-2.4" width="4.8" height="4.8"/>',
    '<path d="M0-3.2 3 2.4-3 2.4z"/>',
    '<path d="M0-3.4 3.4 0 0 3.4-3.4 0z"/>',
    '<path d="M-2.6-2.6 2.6 2.6M-2.6 2.6 2.6-2.6" fill="none"/>',
    '<path d="M-3.2 0H3.2M0-3.2V3.2" fill="none"/>',
    '<path d="M0 3.2 3-2.4-3-2.4z"/>',
    '<circle r="2.6" fill="none"/>',
)
"""One for each group, so that colour is never alone. The last is for all other groups."""


COLOURS = "".join(f".c{i}{{fill:var(--c{i});stroke:var(--c{i})}}" for i in range(len(SHAPES)))
"""The style of each group's marks."""


class Point(NamedTuple):
    """One row: both figures, its group's number, and what it is."""

    measured: float
    predicted: float
    group: int
    words: str


class Axis(NamedTuple):
    """Decades from low to high over pixels from start to end."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixels of a value."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def scatter(points: Sequence[Point], unit: str, title: str) -> str:
    """The plot. unit: of both axes. title: what it shows, for readers who cannot see it."""
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = axis_ends(values, 1.0)
    x = Axis(low, high, LEFT, WIDTH - RIGHT)
    y = Axis(low, high, HEIGHT - BOTTOM, TOP)
    parts = [_grid(x, y), _bands(x, y), _names(unit), *_marks(points, x, y)]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def symbols() -> str:
    """The marks of groups, defined once for a whole document."""
    marks = "".join(f'<g id="g{i}">{shape}</g>' for i, shape in enumerate(SHAPES))
    return f'<svg width="0" height="0" class="defs" aria-hidden="true"><defs>{marks}</defs></svg>'


def key(names: Sequence[str]) -> str:
    """Which mark stands for which group."""
    return legend((sample(i, i), name) for i, name in enumerate(names)).rstrip()


def sample(shape: int, colour: int) -> str:
    """A mark as it stands in a legend."""
    return f'<svg viewBox="-5 -5 10 10" class="key c{colour}" aria-hidden="true"><use href="#g{shape}"/></svg>'


def axis_ends(values: Sequence[float], least: float) -> tuple[float, float]:
    """Decades from a little below the smallest value to a little above the largest, `least` decades at least."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(least - (high - low), 0.0) / 2 + 0.04 * max(high - low, least)
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """Round values between two powers of ten: whole decades, with 2 and 5 where those are few."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    step = max(1, round((high - low) / 6))
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    found = [s * 10.0**d for d in decades if steps != (1,) or d % step == 0 for s in steps]
    return [value for value in found if low <= math.log10(value) <= high]


def number(value: float) -> str:
    """A round value in few characters."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _grid(x: Axis, y: Axis) -> str:
    parts = [f'<path class="frame" d="M{x.start} {y.end}V{y.start}H{x.end}"/>']
    for value in ticks(x.low, x.high):
        at, up = x.at(value), y.at(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {y.start}V{y.end}M{x.start} {up:.1f}H{x.end}"/>')
        parts.append(f'<text x="{at:.1f}" y="{y.start + 17}" text-anchor="middle">{number(value)}</text>')
        parts.append(f'<text x="{x.start - 6}" y="{up + 4:.1f}" text-anchor="end">{number(value)}</text>')
    return "".join(parts)


def _bands(x: Axis, y: Axis) -> str:
    """The diagonal, and the bands of 10 and 25 % either side."""
    parts = []
    for name, factor in (("far", 1.25), ("near", 1.10)):
        up = math.log10(factor)
        points = [(x.low, x.low + up), (x.high - up, x.high), (x.high, x.high), (x.high, x.high - up),
                  (x.low + up, x.low), (x.low, x.low)]  # fmt: skip
        path = " ".join(f"{x.at(10**a):.1f},{y.at(10**b):.1f}" for a, b in points)
        parts.append(f'<polygon class="{name}" points="{path}"/>')
    parts.append(f'<path class="one" d="M{x.start} {y.start}L{x.end} {y.end}"/>')
    return "".join(parts)


def _names(unit: str) -> str:
    across, up = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<text class="name" x="{across}" y="{HEIGHT - 8}" text-anchor="middle">measured ({escape(unit)})</text>'
        f'<text class="name" transform="translate(14 {up}) rotate(-90)" text-anchor="middle">'
        f"predicted ({escape(unit)})</text>"
    )


def _marks(points: Iterable[Point], x: Axis, y: Axis) -> Iterable[str]:
    for point in points:
        words = f"{point.words}: {point.predicted:.4g} predicted, {point.measured:.4g} measured"
        yield (
            f'<use href="#g{point.group}" class="c{point.group}" x="{x.at(point.measured):.1f}" '
            f'y="{y.at(point.predicted):.1f}"><title>{escape(words)}</title></use>'
        )
