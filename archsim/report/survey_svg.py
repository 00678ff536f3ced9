"""Shares by year as stacked bars in SVG: no script, every bar with its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 50, 8, 10, 26
COLOURS = 8
"""Colours there are; the last is for all further values together."""


def stacked(
    title: str, years: Sequence[str], wholes: Sequence[int], values: Mapping[str, Sequence[int]]
) -> str:
    """Bars of the values' shares, one a year. wholes: what a year's shares are of; years without any are left out.

    A design may have several values, so that a year's values can be more than its designs: shares are of their sum.
    """
    shown = [i for i, whole in enumerate(wholes) if whole]
    step = (WIDTH - LEFT - RIGHT) / max(len(shown), 1)
    height = HEIGHT - TOP - BOTTOM
    parts = [_axis(height)]
    for place, i in enumerate(shown):
        x, y = LEFT + place * step, float(HEIGHT - BOTTOM)
        total = sum(counts[i] for counts in values.values()) or 1
        for colour, (name, counts) in enumerate(values.items()):
            tall = height * counts[i] / total
            y -= tall
            if counts[i]:
                words = escape(f"{years[i]}: {name}, {counts[i]} of {wholes[i]} designs")
                parts.append(
                    f'<rect class="bar c{min(colour, COLOURS - 1)}" x="{x + 2:.1f}" y="{y:.1f}" '
                    f'width="{step - 4:.1f}" height="{tall:.1f}"><title>{words}</title></rect>'
                )
        middle = x + step / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(years[i])}</text>'
        )
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def key(names: Sequence[str]) -> str:
    """Which colour stands for which value."""
    items = "".join(
        f'<li><svg viewBox="0 0 10 10" class="key" aria-hidden="true"><rect class="c{min(i, COLOURS - 1)}" '
        f'width="10" height="10"/></svg>{escape(name)}</li>'
        for i, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _axis(height: float) -> str:
    marks = []
    for share in (0, 50, 100):
        y = TOP + height * (1 - share / 100)
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>')
    return "".join(marks)
