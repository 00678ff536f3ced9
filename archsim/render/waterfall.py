"""A waterfall as SVG: both ends as bars from zero, and between them each step from where the one before ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.json_types import JsonMapping
from archsim.evolution.evolve import Evolution
from archsim.render.html.markup import figure, name_of, safe
from archsim.render.page import plural
from archsim.render.signed import absolute, signed_change

WIDTH, ROW, RIGHT = 460, 34, 112
LETTERS = 62
"""Characters of a step's name that fit above its bar."""


def waterfall(
    metric: str, words: str, steps: Sequence[tuple[str, JsonMapping]], names: tuple[str, str], first: float | None
) -> str:
    """The steps that change one figure; nothing where none does. steps: (change, changes of all figures). first: the
    figure that they begin at.
    """
    found = [(change, delta[metric]) for change, delta in steps if delta.get(metric)]
    if not found or first is None:
        return ""
    ends = [first]
    for _, delta in found:
        ends.append(ends[-1] + delta)
    scale = (WIDTH - RIGHT) / max(ends)
    bars = [_bar(0, name_of(names[0], LETTERS), 0.0, first, absolute(metric, first), "whole", scale)]
    for i, (change, delta) in enumerate(found, start=1):
        text, kind = signed_change(metric, delta).text, "up" if delta > 0 else "down"
        bars.append(_bar(i, name_of(change, LETTERS), min(ends[i - 1 : i + 1]), abs(delta), text, kind, scale))
    last = len(found) + 1
    bars.append(_bar(last, name_of(names[1], LETTERS), 0.0, ends[-1], absolute(metric, ends[-1]), "whole", scale))
    return _figure(metric, words, "".join(bars), found, names, ends, len(steps) - len(found))


def waterfalls(e: Evolution, names: tuple[str, str], metrics: Mapping[str, str]) -> str:
    """The waterfalls of an evolution's figures, side by side. names: of both ends; metrics: figure -> its words."""
    steps = [(e.change(step), step.delta) for step in e.steps]
    return "".join(
        waterfall(metric, words, steps, names, getattr(e.first, metric)) for metric, words in metrics.items()
    )


def _figure(
    metric: str,
    words: str,
    bars: str,
    found: Sequence[tuple[str, float]],
    names: tuple[str, str],
    ends: Sequence[float],
    still: int,
) -> str:
    """The picture, and the finding below it."""
    shown = tuple(name_of(name, LETTERS) for name in names)
    name = words[:1].upper() + words[1:]
    title = f"{name}, step by step from {shown[0]} to {shown[1]}"
    most, delta = max(found, key=lambda step: abs(step[1]))
    finding = (
        f"{name}: {absolute(metric, ends[0])} to {absolute(metric, ends[-1])}, most of all by {name_of(most, 80)} "
        f"({signed_change(metric, delta).text})"
    )
    rest = f"; {plural(still, 'other step')} {'changes' if still == 1 else 'change'} nothing" if still else ""
    box = f"0 0 {WIDTH} {ROW * (len(found) + 2) + 4}"
    picture = f'<svg viewBox="{box}" role="img" aria-label="{safe(title)}">{bars}</svg>'
    return figure(f"<h3>{safe(name)}</h3>{picture}", f"{finding}{rest}.")


def _bar(i: int, name: str, start: float, size: float, text: str, kind: str, scale: float) -> str:
    y, x, width = ROW * i, start * scale, max(size * scale, 1.0)
    return (
        f'<text x="0" y="{y + 13}" class="name">{safe(name)}</text>'
        f'<rect class="{kind}" x="{x:.1f}" y="{y + 17}" width="{width:.1f}" height="13"/>'
        f'<text x="{min(x + width, WIDTH - RIGHT) + 6:.1f}" y="{y + 28}">{safe(text)}</text>'
    )
