"""What a page leaves out so that its file stays below the limit: the bulkiest first, and said on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from archsim.render.html.grid import Grid

MOST, MOST_LIGHT = 6_000_000, 300_000
"""Bytes of a file with controls and of one without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a page is made of. sections: (key, title, content). grid: behind the controls; None without them."""

    sections: tuple[tuple[str, str, str], ...]
    grid: Grid | None
    left_out: tuple[str, ...] = ()


class Saving(NamedTuple):
    """One thing to leave out: what it is in words, and the page without it."""

    words: str
    without: Callable[[Parts], Parts]


def fitting(parts: Parts) -> Iterator[Parts]:
    """The page whole, then with more and more left out."""
    yield parts
    for words, without in SAVINGS:
        less = without(parts)
        if less != parts:
            words_too = parts.left_out if words in parts.left_out else (*parts.left_out, words)
            parts = replace(less, left_out=words_too)
            yield parts


def _without(pattern: str) -> Callable[[Parts], Parts]:
    """Removes elements that hold none of their own kind."""
    found = re.compile(pattern, re.S)

    def less(parts: Parts) -> Parts:
        return replace(parts, sections=tuple((key, title, found.sub("", body)) for key, title, body in parts.sections))

    return less


def _details(kind: str) -> Callable[[Parts], Parts]:
    return _without(rf'<details class="{kind}">.*?</details>\n?')


def _thin(parts: Parts) -> Parts:
    """Every second batch and context, the report's own kept."""
    if parts.grid is None:
        return parts
    batch, context = parts.grid.at
    batches, contexts = _halve(parts.grid.batches, batch), _halve(parts.grid.contexts, context)
    return replace(parts, grid=replace(parts.grid, batches=batches, contexts=contexts))


def _halve(values: tuple[int, ...], kept: int) -> tuple[int, ...]:
    at = values.index(kept)
    return tuple(value for i, value in enumerate(values) if (i - at) % 2 == 0)


def _no_rooflines(parts: Parts) -> Parts:
    return replace(parts, sections=tuple(s for s in parts.sections if s[0] != "rooflines"))


STEPS = "every second step of the controls"

SAVINGS = (
    Saving("the table of all kernels", _details("long kernels")),
    Saving("what is inside the blocks of the architectures", _details("long inside")),
    Saving("the steps from each architecture to the next", _details("stretch long")),
    Saving("kernels on the rooflines that take less than 1 % of their phase", _without('<g class="slight">.*?</g>')),
    Saving("the estimates as JSON, which `archsim report --json` gives", _details("long estimates")),
    Saving("the list of sources", _details("long sources")),
    Saving("the numbers of the charts as tables", _details("twin")),
    Saving("the words of single marks", _without("<title>.*?</title>")),
    Saving(STEPS, _thin),
    Saving(STEPS, _thin),
    Saving("the drawings of the architectures", _without('<div class="plans">.*?</div>')),
    Saving("the rooflines", _no_rooflines),
)
"""What is left out, in this order, until a file is small enough."""
