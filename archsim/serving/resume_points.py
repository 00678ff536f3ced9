"""Where a prompt can go on after what an earlier one left, in layers that keep less of it than all tokens.

A layer with a window needs the last tokens before the point, one with a recurrent state the state at that very point.
Engines keep them at some points only: a prompt that is found in the other layers goes on from the last of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

Span = tuple[int, int]
"""Blocks of a run from the first to before the second."""


@dataclass(frozen=True, slots=True)
class Resuming:
    """Where such layers are kept. need: blocks before a point that they hold: those of a window, or 1 for a state.
    prompts, answers: at the last whole multiple of so many tokens of a prompt, and of a request that has ended; 0: not
    there. junctions: where a prompt was found in the other layers beyond the last such point, `beside` that of its own
    end or `instead` of it.
    """

    need: int
    prompts: int = 1
    answers: int = 0
    junctions: Literal["none", "beside", "instead"] = "none"

    def points(self, prompt: int, junction: int, block: int) -> list[int]:
        """Blocks after which a prompt of so many tokens leaves such a point. junction: blocks up to one; 0: none."""
        end = _floor(prompt, self.prompts) // block
        at = _floor(junction * block, self.prompts) // block if self.junctions != "none" else 0
        kept = (at,) if at and self.junctions == "instead" else (end, at)
        return sorted({point for point in kept if point > 0})

    def last_point(self, computed: int, block: int) -> int:
        """Blocks after which a request leaves one that ends with so many computed tokens; 0: none."""
        return _floor(computed, self.answers) // block


def _floor(tokens: int, step: int) -> int:
    return tokens // step * step if step else 0


class Stretch(Protocol):
    """Blocks that are cached one behind the other. kept: those of layers that keep less, in order and apart. above: the
    run before it; None at the root.
    """

    blocks: int
    kept: list[Span]

    @property
    def above(self) -> Stretch | None: ...


def keep(run: Stretch, part: int, need: int) -> None:
    """From behind the first `part` blocks of a run requests can go on: the `need` blocks before it are kept."""
    at: Stretch | None = run
    while at is not None and at.above is not None and need > 0:
        start = max(0, part - need)
        at.kept = joined(at.kept, (start, part))
        need -= part - start
        at = at.above
        part = at.blocks


def joined(spans: list[Span], new: Span) -> list[Span]:
    """Spans with one more: in order, those that touch as one."""
    found: list[Span] = []
    for low, high in sorted([*spans, new]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def cut(spans: list[Span], low: int, high: int) -> list[Span]:
    """The part of spans within [low, high), counted from low."""
    return [(max(a, low) - low, min(b, high) - low) for a, b in spans if a < high and b > low]


def last_resumable(run: Stretch, part: int, need: int) -> tuple[int, int]:
    """Of what is found up to `part` blocks of a run, the last point from which a request can go on: how many runs above
    it lies, and behind how many blocks of that one; (-1, 0) where there is none.
    """
    chain = list(_upwards(run))
    best, before, whole = (-1, 0), 0, True  # before: blocks kept without a gap up to here; whole: from the start on
    for up in range(len(chain) - 1, -1, -1):
        at = chain[up]
        most, end = part if up == 0 else at.blocks, 0
        for low, high in at.kept:
            if low > end:
                before, whole = 0, False
            end = high
            last = min(high, most)
            if last > low and (whole or before + last - low >= need):
                best = (up, last)
            before += high - low
        if end < at.blocks:
            before, whole = 0, False
    return best


def _upwards(run: Stretch) -> Iterator[Stretch]:
    """A run and all above it but the root."""
    at: Stretch | None = run
    while at is not None and at.above is not None:
        yield at
        at = at.above
