"""Steps that are computed in micro-batches, one after another: decodes first, then prompts, cut where one is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archsim.serving.scheduler import Chunk

if TYPE_CHECKING:
    from archsim.serving.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """Times of steps whose tokens run `size` at a time (llama.cpp's `--ubatch-size`). stages: of a pipeline, which
    work on several micro-batches of a step at the same time.
    """

    times: StepTimes
    size: int
    stages: int = 1

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`: the sum over the micro-batches; stages idle while the first comes and the last goes."""
        if decodes + sum([new for new, _ in chunks]) <= self.size:
            return self.times.seconds(decodes, context, chunks)
        times = [self.times.seconds(*part) for part in self._parts(decodes, context, chunks)]
        return (sum(times) + (self.stages - 1) * max(times)) / self.stages

    def _parts(
        self, decodes: int, context: int, chunks: Sequence[Chunk]
    ) -> Iterator[tuple[int, int, Sequence[Chunk]]]:  # fmt: skip
        """The micro-batches of a step."""
        own, left = list[Chunk](), self.size
        while decodes > self.size:
            part = context * self.size // decodes
            yield self.size, part, ()
            decodes, context = decodes - self.size, context - part
        left -= decodes
        for new, past in chunks:
            while new:
                if not left:
                    yield decodes, context, own
                    decodes, context, own, left = 0, 0, [], self.size
                now = min(new, left)
                own.append((now, past))
                new, past, left = new - now, past + now, left - now
        if decodes or own:
            yield decodes, context, own
