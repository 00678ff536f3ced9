"""A waterfall as SVG: steps below one another, each beginning where the one before ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archsim.report.html.markup import figure, name_of, safe
from archsim.report.signed import absolute, signed

WIDTH, ROW, LEFT, RIGHT = 820, 22, 380, 110
LETTERS = 56
"""Characters of a step's name that fit."""


def waterfall(
    metric: str, words: str, steps: Sequence[tuple[str, Mapping[str, Any]]], names: tuple[str, str]
) -> str:
    """The steps that change one figure; nothing where none does. steps: (change, changes of all figures)."""
    found = [(change, delta[metric]) for change, delta in steps if delta.get(metric)]
    if not found:
        return ""
    ends = [0.0]
    for _, delta in found:
        ends.append(ends[-1] + delta)
    low = min(ends)
    scale = (WIDTH - LEFT - RIGHT) / ((max(ends) - low) or 1.0)
    bars = "".join(
        _bar(i, name_of(change, LETTERS), LEFT + (min(ends[i : i + 2]) - low) * scale, delta, metric, scale)
        for i, (change, delta) in enumerate(found)
    )
    title = f"{words}: what each step from {names[0]} to {names[1]} adds"
    box = f"0 0 {WIDTH} {ROW * len(found) + 4}"
    picture = f'<svg viewBox="{box}" role="img" aria-label="{safe(title)}">{bars}</svg>'
    return figure(picture, f"{title}; {signed(metric, ends[-1]).text} in all.", kind="wide")


def _bar(i: int, change: str, start: float, delta: float, metric: str, scale: float) -> str:
    y, size = ROW * i + 2, max(abs(delta) * scale, 1.0)
    text = ("+" if delta > 0 else "−") + absolute(metric, abs(delta))
    return (
        f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" class="name">{safe(change)}</text>'
        f'<rect class="{"up" if delta > 0 else "down"}" x="{start:.1f}" y="{y}" width="{size:.1f}" '
        f'height="{ROW - 4}"/>'
        f'<text x="{min(start + size + 6, WIDTH - RIGHT + 6):.1f}" y="{y + 14}">{safe(text)}</text>'
    )
