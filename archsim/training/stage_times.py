"""Times of a pipeline's stages, in whole picoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PICOSECONDS = 10**12
"""Of one second."""

Rows = Sequence[Sequence[int]]
"""When every pass of every rank ends."""


class StageTimes(NamedTuple):
    """Picoseconds of one micro-batch on one stage. weights: the part of the backward that gives gradients of weights,
    which some schedules put off.
    """

    forward: int
    backward: int
    weights: int = 0

    @classmethod
    def of(cls, forward_s: float, backward_s: float, weights_s: float = 0.0) -> StageTimes:
        """From seconds."""
        return cls(*(round(x * PICOSECONDS) for x in (forward_s, backward_s, weights_s)))


def pass_times(stage: StageTimes) -> tuple[int, int, int, int]:
    """Picoseconds of each kind of pass on a stage, in the order of `schedules.KINDS`."""
    return stage.forward, stage.backward, stage.backward - stage.weights, stage.weights
