"""What a page leaves out so that its file stays below the limit: the bulkiest first, and said on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from archsim.render.figures.chart import Chart

MOST, MOST_LIGHT = 2_000_000, 300_000
"""Bytes of a file beside plotly.js, and of one without charts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a page is made of. sections: (key, title, content). charts: those that have a place in them."""

    sections: tuple[tuple[str, str, str], ...]
    charts: tuple[Chart, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def placed(self) -> tuple[Chart, ...]:
        """The charts whose places are still there."""
        body = "".join(text for _, _, text in self.sections)
        return tuple(chart for chart in self.charts if f'id="chart-{chart.key}"' in body)


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
            parts = replace(less, left_out=(*parts.left_out, words))
            yield parts


def _without(pattern: str) -> Callable[[Parts], Parts]:
    """Removes elements that hold none of their own kind."""
    found = re.compile(pattern, re.S)

    def less(parts: Parts) -> Parts:
        return replace(parts, sections=tuple((key, title, found.sub("", body)) for key, title, body in parts.sections))

    return less


def _details(kind: str) -> Callable[[Parts], Parts]:
    return _without(rf'<details class="{kind}">.*?</details>\n?')


def _no_words(parts: Parts) -> Parts:
    bare = (replace(c, traces=tuple({k: v for k, v in t.items() if k != "hovertext"} for t in c.traces))
            for c in parts.charts)  # fmt: skip
    return replace(parts, charts=tuple(bare))


def _no_section(name: str) -> Callable[[Parts], Parts]:
    return lambda parts: replace(parts, sections=tuple(s for s in parts.sections if s[0] != name))


SAVINGS = (
    Saving("the tables of all kernels and of other long charts", _details("twin long")),
    Saving("the inside of the blocks of the architectures", _details("long inside")),
    Saving("the steps from each architecture to the next", _without('<div class="stretches">.*?<!--stretches-->')),
    Saving("the estimates as JSON, which `archsim report --json` gives", _details("long estimates")),
    Saving("the list of sources", _details("long sources")),
    Saving("the numbers of the charts as tables", _details("twin")),
    Saving("the labels of single marks", _no_words),
    Saving("the drawings of the architectures", _without('<div class="plans">.*?</div>')),
    Saving("the rooflines", _no_section("rooflines")),
)
"""What is left out, in this order, until a file is small enough."""
