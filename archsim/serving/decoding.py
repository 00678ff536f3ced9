"""Times of steps that follow each other while the same sequences decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable


class Steps(Protocol):
    """Step times of any kind (`StepTimes`)."""

    def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float: ...


@runtime_checkable
class Decoding(Protocol):
    """Step times that know such steps together, faster than one after the other."""

    def decoding(self, decodes: int, context: int) -> Iterator[float]:
        """Seconds of each step, without end: every sequence has one more cached token in the next one."""
        ...


def step_after_step(times: Steps, decodes: int, context: int) -> Iterator[float]:
    """The same of any step times."""
    while True:
        yield times.seconds(decodes, context, ())
        context += decodes
