"""The grid of a sweep: values along the numeric axes, and how it is cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Axes(NamedTuple):
    """Values of the numeric axes, ascending."""

    batch: tuple[int, ...]
    input_len: tuple[int, ...]
    output_len: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Values along each axis."""
        return len(self.batch), len(self.input_len), len(self.output_len)

    @property
    def points(self) -> int:
        """Points of the grid."""
        return len(self.batch) * len(self.input_len) * len(self.output_len)

    def blocks(self, most: int) -> Iterator[Axes]:
        """The grid in order, cut into blocks of at most so many points."""
        outputs = max(1, min(len(self.output_len), most))
        inputs = max(1, min(len(self.input_len), most // outputs)) if outputs == len(self.output_len) else 1
        batches = max(1, most // (outputs * inputs)) if inputs == len(self.input_len) else 1
        for b in _runs(self.batch, batches):
            for i in _runs(self.input_len, inputs):
                for o in _runs(self.output_len, outputs):
                    yield Axes(b, i, o)


def _runs(values: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [values[i : i + size] for i in range(0, len(values), size)]
