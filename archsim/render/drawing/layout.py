"""Where the boxes of a picture stand: a directed graph in rows, each below all that it reads.

Layered drawing after Sugiyama, Tagawa and Toda 1981: rows by longest path, places in a row by the mean of neighbours,
distances by pooling adjacent violators, so that no two boxes of a row overlap. A line that passes rows keeps a place
of its own in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Edge = tuple[str, str]
SWEEPS = 16


class Stop(NamedTuple):
    """A place of a line in a row that it passes: from `top` to `bottom` at `x`."""

    x: float
    top: float
    bottom: float


class Layout(NamedTuple):
    """Centres and tops of boxes, the rows that long lines pass, and the size of the whole."""

    centres: Mapping[str, float]
    tops: Mapping[str, float]
    passes: Mapping[Edge, Sequence[Stop]]
    width: float
    height: float


class _Rows:
    """The boxes by row, with a stand-in in every row that a long line passes. Lines of one box share stand-ins."""

    def __init__(self, names: Sequence[str], edges: Sequence[Edge]) -> None:
        order = {name: i for i, name in enumerate(names)}
        self.edges = [edge for edge in dict.fromkeys(edges) if order[edge[0]] < order[edge[1]]]
        self.rank = dict.fromkeys(names, 0)
        for a, b in sorted(self.edges, key=lambda edge: order[edge[1]]):
            self.rank[b] = max(self.rank[b], self.rank[a] + 1)
        self.chains: dict[Edge, list[str]] = {}
        links: dict[Edge, None] = {}
        passing: dict[str, None] = {}
        for a, b in self.edges:
            chain = [f"{a}\n{row}" for row in range(self.rank[a] + 1, self.rank[b])]
            self.chains[a, b] = chain
            passing.update(dict.fromkeys(chain))
            links.update(dict.fromkeys(zip([a, *chain], [*chain, b], strict=True)))
        self.passing = set(passing)
        self.rank |= {name: int(name.rpartition("\n")[2]) for name in passing}
        self.rows: list[list[str]] = [[] for _ in range(max(self.rank.values(), default=-1) + 1)]
        for name in [*passing, *names]:
            self.rows[self.rank[name]].append(name)
        self.above: dict[str, list[str]] = {name: [] for name in self.rank}
        self.below: dict[str, list[str]] = {name: [] for name in self.rank}
        for a, b in links:
            self.above[b].append(a)
            self.below[a].append(b)


def arrange(
    sizes: Mapping[str, tuple[float, float]], edges: Sequence[Edge], *, gap: float = 14, step: float = 20,
    spine: bool = False,
) -> Layout:  # fmt: skip
    """Places for boxes of these (width, height), named from the first to the last of the computation.

    gap: between neighbours in a row; step: between rows. spine: lines that pass rows go left of everything, and do not
    draw boxes aside: the picture of a residual stream.
    """
    graph = _Rows(list(sizes), edges)
    widths = {name: sizes[name][0] if name in sizes else 0.0 for name in graph.rank}
    if not spine:
        _order(graph)
    x = _spread(graph, widths, gap, spine)
    left = min((x[name] - widths[name] / 2 for name in x), default=0.0)
    right = max((x[name] + widths[name] / 2 for name in x), default=0.0)
    tops, height = _tops(graph, sizes, step)
    passes = {
        edge: [Stop(x[name] - left, *tops[name]) for name in chain] for edge, chain in graph.chains.items()
    }  # fmt: skip
    centres = {name: x[name] - left for name in sizes}
    return Layout(centres, {name: tops[name][0] for name in sizes}, passes, right - left, height)


def _tops(
    graph: _Rows, sizes: Mapping[str, tuple[float, float]], step: float
) -> tuple[dict[str, tuple[float, float]], float]:
    """Top and bottom of each box, and of each stand-in those of its row; boxes are centred in their row."""
    places: dict[str, tuple[float, float]] = {}
    y = 0.0
    for row in graph.rows:
        tall = max((sizes[name][1] for name in row if name in sizes), default=0.0)
        for name in row:
            own = sizes[name][1] if name in sizes else tall
            places[name] = (y + (tall - own) / 2, y + (tall + own) / 2)
        y += tall + step
    return places, y - step if graph.rows else 0.0


def _order(graph: _Rows) -> None:
    """Boxes of a row in the order of the middle of what they are joined to, a few times down and up."""
    for sweep in range(6):
        down = sweep % 2 == 0
        for row in graph.rows if down else graph.rows[::-1]:
            place = {name: i for line in graph.rows for i, name in enumerate(line)}
            near = graph.above if down else graph.below
            size = {name: len(graph.rows[graph.rank[name]]) for name in place}
            middle = {
                name: _mean((place[n] + 0.5) / size[n] for n in near[name]) if near[name] else
                (place[name] + 0.5) / size[name] for name in row
            }  # fmt: skip
            row.sort(key=middle.__getitem__)


def _spread(graph: _Rows, widths: Mapping[str, float], gap: float, spine: bool) -> dict[str, float]:
    """The centre of each box across."""
    if spine:
        return _on_spine(graph, widths, gap)
    x = dict.fromkeys(graph.rank, 0.0)
    for sweep in range(SWEEPS):
        for row in graph.rows if sweep % 2 == 0 else graph.rows[::-1]:
            wanted = [_wanted(graph, name, x) for name in row]
            steps = [(widths[a] + widths[b]) / 2 + gap for a, b in pairwise(row)]
            for name, place in zip(row, keep_apart(wanted, steps), strict=True):
                x[name] = place
    return x


def _on_spine(graph: _Rows, widths: Mapping[str, float], gap: float) -> dict[str, float]:
    """Boxes of a row side by side around the middle, and each long line straight, left of all that it passes."""
    x: dict[str, float] = {}
    edges: list[float] = []
    for row in graph.rows:
        names = [name for name in row if name not in graph.passing]
        left = -(sum(widths[name] for name in names) + gap * (len(names) - 1)) / 2
        edges.append(left)
        for name in names:
            x[name] = left + widths[name] / 2
            left += widths[name] + gap
    chains = {chain[0].rpartition("\n")[0]: chain for chain in sorted(graph.chains.values(), key=len) if chain}
    for chain in sorted(chains.values(), key=len):
        rows = [graph.rank[name] for name in chain]
        lane = min(edges[row] for row in rows) - gap
        for name, place in zip(chain, rows, strict=True):
            x[name] = edges[place] = lane
    return x


STIFF = 6.0
"""How much more a long line pulls itself straight than the boxes at its ends pull it."""


def _wanted(graph: _Rows, name: str, x: Mapping[str, float]) -> float:
    near = [*graph.above[name], *graph.below[name]]
    if not near:
        return x[name]
    pulls = [STIFF if name in graph.passing and n in graph.passing else 1.0 for n in near]
    return sum(pull * x[n] for pull, n in zip(pulls, near, strict=True)) / sum(pulls)


def keep_apart(wanted: Sequence[float], steps: Sequence[float]) -> list[float]:
    """Places as close to the wanted ones as can be (least squares) with these distances between neighbours at least."""
    offsets = [0.0]
    for step in steps:
        offsets.append(offsets[-1] + step)
    pools: list[list[float]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        pools.append([place - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, weight = pools.pop()
            before = pools[-1]
            before[0] = (before[0] * before[1] + value * weight) / (before[1] + weight)
            before[1] += weight
    flat = [value for value, weight in pools for _ in range(int(weight))]
    return [value + offset for value, offset in zip(flat, offsets, strict=True)]


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
