"""Captured calls with repetitions folded, and two captures of different sizes aligned to extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from archsim.tracing.capture import Call, Record, Value

LONGEST_PERIOD = 24
"""Calls and operations that a repeated pattern has at most."""


@dataclass(slots=True, eq=False)
class Loop:
    """A pattern that runs several times in a row. body: the first repetition; rest: the others."""

    body: list[Item]
    rest: list[list[Item]]

    @property
    def times(self) -> int:
        """Repetitions."""
        return 1 + len(self.rest)


Item = Record | Loop


class Point(NamedTuple):
    """The sizes of a capture: sequences, new tokens of each, and tokens in its cache before."""

    batch: int
    new: int
    past: int = 0


class Term(NamedTuple):
    """coefficient · batch^i · new^j · length^k."""

    coefficient: Fraction
    powers: tuple[int, int, int]


Extent = tuple[Term, ...]
"""The size of a dimension, or a number of repetitions, as a sum of terms."""


@dataclass(slots=True, eq=False)
class Aligned:
    """A folded capture whose sizes are extents."""

    items: list[Item]
    shapes: dict[int, tuple[Extent, ...]] = field(default_factory=dict)
    times: dict[int, Extent] = field(default_factory=dict)

    def shape(self, value: Value) -> tuple[Extent, ...]:
        """The extents of a value."""
        return self.shapes[id(value)]


class Different(Exception):
    """Two captures that do not run the same operations."""


Readers = dict[int, list[Record]]

JOINS = frozenset({"cat", "stack"})
"""Operations that put the results of all repetitions together."""


# ---------------------------------------------------------------------- folding
def folded(call: Call, readers: Readers | None = None) -> list[Item]:
    """The operations of a call in order, with calls and operations that repeat as loops. readers: of every value."""
    readers = readers_of(call) if readers is None else readers
    signatures = [_signature(child) for child in call.children]
    found: list[Item] = []
    at = 0
    while at < len(call.children):
        period, times = _repetition(signatures, at)
        span = call.children[at : at + period * times]
        if times > 1 and not (_own_weights(span, period, call) and _passes_on(span, period, readers)):
            times = 1
        if times == 1:
            found += _opened(call.children[at], readers)
            at += 1
            continue
        starts = range(at, at + period * times, period)
        body, *rest = (
            [item for child in call.children[i : i + period] for item in _opened(child, readers)] for i in starts
        )
        found.append(Loop(body, rest))
        at += period * times
    return found


def _opened(child: Record | Call, readers: Readers) -> list[Item]:
    return [child] if isinstance(child, Record) else folded(child, readers)


def readers_of(call: Call) -> Readers:
    """Which operations read each tensor, by the identity of its root."""
    found: Readers = {}
    for record in call.records():
        for value in record.reads:
            found.setdefault(id(value.root), []).append(record)
    return found


def _repetition(signatures: Sequence[int], at: int) -> tuple[int, int]:
    """The pattern from a place on that covers most: its length and how often it stands there in a row."""
    best, covered = (1, 1), 1
    for period in range(1, min(LONGEST_PERIOD, (len(signatures) - at) // 2) + 1):
        pattern, times = signatures[at : at + period], 1
        while signatures[at + times * period : at + (times + 1) * period] == pattern:
            times += 1
        if times > 1 and times * period > covered:
            best, covered = (period, times), times * period
    return best


def _signature(child: Record | Call) -> int:
    """A hash of what a child does: operations, sizes, and which of them read each other."""
    records = [child] if isinstance(child, Record) else list(child.records())
    index = {id(record): i for i, record in enumerate(records)}
    if not records:
        return hash("")
    parts = []
    for i, record in enumerate(records):
        reads = tuple(
            (_distance(v, i, index), bool(v.root.param), v.shape, v.dtype)
            for v in record.reads
        )  # fmt: skip
        parts.append((record.name, repr(record.attrs), reads, tuple((v.shape, v.dtype) for v in record.writes)))
    return hash(tuple(parts))


def _distance(value: Value, at: int, index: dict[int, int]) -> int:
    """How many operations before a place its value was made; -1 where that was outside."""
    made = value.root.made
    return at - index[id(made)] if made is not None and id(made) in index else -1


def _own_weights(children: Sequence[Record | Call], period: int, call: Call) -> bool:
    """Whether each parameter of the pattern is the same in all repetitions, or another in each, which nothing else in
    the call reads.
    """
    lists, outside = [], _read_elsewhere(children, call)
    for start in range(0, len(children), period):
        records = [r for c in children[start : start + period] for r in ([c] if isinstance(c, Record) else c.records())]
        lists.append([v.root.param for r in records for v in r.reads if v.root.param])
    return all(
        len(kinds := set(names)) == 1 or (len(kinds) == len(names) and not kinds & outside)
        for names in zip(*lists, strict=True)
    )


def _read_elsewhere(children: Sequence[Record | Call], call: Call) -> set[str]:
    """Parameters that other operations of a call read than those of some of its children."""
    inside = {id(child) for child in children}
    others = (child for child in call.children if id(child) not in inside)
    records = (r for child in others for r in ([child] if isinstance(child, Record) else child.records()))
    return {v.root.param for r in records for v in r.reads if v.root.param}


def _passes_on(children: Sequence[Record | Call], period: int, readers: Readers) -> bool:
    """Whether what a repetition makes is read by itself and the next one alone, or joined with what all others make."""
    place: dict[int, int] = {}
    made: list[tuple[int, Record]] = []
    for i, child in enumerate(children):
        for record in [child] if isinstance(child, Record) else child.records():
            place[id(record)] = i // period
            made.append((i // period, record))
    last = (len(children) - 1) // period
    return all(
        place.get(id(reader)) in (at, at + 1) or reader.name in JOINS
        for at, record in made if at < last for value in record.writes for reader in readers.get(id(value), ())
    )  # fmt: skip


def all_records(items: Sequence[Item]) -> Iterator[Record]:
    """The operations of items, of loops those of the first repetition."""
    for item in items:
        if isinstance(item, Record):
            yield item
        else:
            yield from all_records(item.body)


# ---------------------------------------------------------------------- two captures
POWERS = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 2, 0), (0, 2, 0), (1, 0, 1), (0, 0, 1), (1, 1, 1), (0, 1, 1))
"""Products of sequences, new tokens and length that dimensions are multiples of, the plainest first."""


def aligned(first: list[Item], second: list[Item], points: tuple[Point, Point]) -> Aligned:
    """Both captures as one with extents. Raises Different where they do not run the same operations."""
    found = Aligned(first)
    _align(first, second, points, found)
    return found


def _align(first: Sequence[Item], second: Sequence[Item], points: tuple[Point, Point], found: Aligned) -> None:
    if len(first) != len(second):
        raise Different
    for a, b in zip(first, second, strict=True):
        if isinstance(a, Loop) and isinstance(b, Loop):
            found.times[id(a)] = extent_of(a.times, b.times, points)
            _align(a.body, b.body, points, found)
        elif isinstance(a, Record) and isinstance(b, Record) and a.name == b.name and len(a.reads) == len(b.reads):
            for x, y in (*zip(a.reads, b.reads, strict=True), *zip(a.writes, b.writes, strict=False)):
                _align_value(x, y, points, found)
                _align_value(x.root, y.root, points, found)
        else:
            raise Different


def _align_value(x: Value, y: Value, points: tuple[Point, Point], found: Aligned) -> None:
    if id(x) not in found.shapes:
        if len(x.shape) != len(y.shape):
            raise Different
        found.shapes[id(x)] = tuple(extent_of(m, n, points) for m, n in zip(x.shape, y.shape, strict=True))


def extent_of(m: int, n: int, points: tuple[Point, Point]) -> Extent:
    """The extent that is m at the first point and n at the second: a multiple of one product of sizes, else a straight
    line in the new tokens, of one sequence or of all.
    """
    a, b = points
    if m == n:
        return (Term(Fraction(m), (0, 0, 0)),)
    for powers in POWERS[1:]:
        if powers[2] and not a.past:
            continue
        coefficient = Fraction(m) / size_of(powers, a)
        if coefficient == Fraction(n) / size_of(powers, b):
            return (Term(coefficient, powers),)
    of, at = (2, (0, 0, 1)) if a.new == b.new else (1, (0, 1, 0))
    x, y = (p.past + p.new if of == 2 else p.new for p in (a, b))
    if x == y:
        raise Different
    found = []
    for i in range(2):
        ends = Fraction(m, a.batch**i), Fraction(n, b.batch**i)
        slope = (ends[1] - ends[0]) / (y - x)
        found.append((Term(slope, (i, *at[1:])), Term(ends[0] - slope * x, (i, 0, 0))))
    return min(found, key=lambda line: max(term.coefficient.denominator for term in line))


def size_of(powers: tuple[int, int, int], point: Point) -> int:
    """batch^i · new^j · length^k at a point."""
    i, j, k = powers
    return int(point.batch**i * point.new**j * (point.past + point.new) ** k)
