"""Shares by year as stacked bars in SVG: no script, a colour and a hatching for each value, words for each bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from archsim.render.html.markup import legend

WIDTH, HEIGHT = 460, 255
LEFT, RIGHT, TOP, BOTTOM = 62, 8, 10, 40
COLOURS = 8
"""Colours and hatchings there are; the last is for all further values together."""

HATCHES = (
    "",
    "M0 8L8 0M-2 2L2 -2M6 10L10 6",
    "M2 2h.1M6 6h.1",
    "M0 0L8 8M-2 6L2 10M6 -2L10 2",
    "M0 2h8M0 6h8",
    "M2 0v8M6 0v8",
    "M0 8L8 0M0 0L8 8",
    "M0 4h8M4 0v8",
)
"""What is drawn over each colour, in a square of 8: nothing, rising lines, dots, falling, level, upright ones, nets."""

STYLE = "rect.bar{stroke:var(--paper);stroke-width:1}pattern path{stroke:var(--paper);stroke-width:1.3;fill:none}" \
    "pattern.dots path{stroke-width:3;stroke-linecap:round}.defs{position:absolute}figure h3{margin:.4rem 0}" + "".join(
    f".c{i}{{fill:var(--c{i})}}" for i in range(COLOURS)
)  # fmt: skip


def patterns() -> str:
    """The hatchings, once for a page."""
    found = "".join(
        f'<pattern id="h{i}" class="{"dots" if i == 2 else "lines"}" width="8" height="8" '
        'patternUnits="userSpaceOnUse">'
        f'<rect class="c{i}" width="8" height="8"/><path d="{hatch}"/></pattern>'
        for i, hatch in enumerate(HATCHES)
    )
    return f'<svg class="defs" width="0" height="0" aria-hidden="true"><defs>{found}</defs></svg>\n'


def stacked_bars(title: str, years: Sequence[str], wholes: Sequence[int], values: Mapping[str, Sequence[int]]) -> str:
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
                    f'<rect class="bar" fill="url(#h{min(colour, COLOURS - 1)})" x="{x + 2:.1f}" y="{y:.1f}" '
                    f'width="{step - 4:.1f}" height="{tall:.1f}"><title>{words}</title></rect>'
                )
        middle = x + step / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - 22}" text-anchor="middle">{escape(years[i])}</text>'
            f'<text x="{middle:.1f}" y="{HEIGHT - 7}" text-anchor="middle">{wholes[i]}</text>'
        )
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def key(names: Sequence[str]) -> str:
    """Which colour stands for which value."""
    rect = '<rect fill="url(#h{})" width="16" height="16"/>'
    sign = f'<svg viewBox="0 0 16 16" class="key" aria-hidden="true">{rect}</svg>'
    return legend((sign.format(min(i, COLOURS - 1)), name) for i, name in enumerate(names))


def _axis(height: float) -> str:
    marks = []
    for share in (0, 50, 100):
        y = TOP + height * (1 - share / 100)
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>')
    marks.append(f'<text x="{LEFT - 6}" y="{HEIGHT - 7}" text-anchor="end">designs</text>')
    return "".join(marks)
