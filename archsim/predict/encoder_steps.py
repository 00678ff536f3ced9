"""Steps in which encoders of images and sounds run, beside the chunks of prompts that need what they make.

An engine encodes an image in the step whose chunk of the prompt holds its first token, and keeps the vectors until the
last one is computed (vLLM's `Scheduler._try_schedule_encoder_inputs`; its limit of encoder tokens in one step, those of
the step itself and at least the largest image, is not followed). A prompt that is computed again is encoded again.
Images stand before the sounds of a prompt, and both before its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from archsim.serving.decoding import Decoding, step_after_step
from archsim.serving.gang import GangSeconds, RankStep
from archsim.serving.step_parts import Chunk
from archsim.serving.step_times import End, StepTimes
from archsim.timing.duration import Duration


@dataclass(frozen=True, slots=True)
class EncodedItems:
    """The images, or the sounds, of every prompt: `count` of `tokens` tokens each, from the token `first` on. time: of
    the encoder over so many of them at once.
    """

    noun: str
    count: int
    tokens: int
    first: int
    time: Callable[[int], Duration]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt that are theirs."""
        return self.count * self.tokens

    def begun(self, new: int, past: int) -> int:
        """Those that begin in a chunk of a prompt."""
        return self._before(past + new) - self._before(past)

    def _before(self, tokens: int) -> int:
        """Those that begin before a token of the prompt."""
        return min(max(-(-(tokens - self.first) // self.tokens), 0), self.count)


@dataclass(frozen=True, slots=True)
class EncoderSteps:
    """Times of steps with those of the encoders that run in them, one after the other. end: which time of these."""

    times: StepTimes
    items: tuple[EncodedItems, ...]
    end: End = "expected"

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        return self.times.seconds(decodes, context, chunks) + self.encoder_seconds(chunks)

    def encoder_seconds(self, chunks: Sequence[Chunk]) -> float:
        """What the encoders take, each over all images or sounds that begin in these chunks."""
        begun = ((items, sum([items.begun(*chunk) for chunk in chunks])) for items in self.items if chunks)
        return sum([float(getattr(items.time(n), self.end)) for items, n in begun if n])

    def decoding(self, decodes: int, context: int) -> Iterator[float]:
        """As of `Decoding`: steps without prompts encode nothing."""
        times = self.times
        return (times.decoding if isinstance(times, Decoding) else partial(step_after_step, times))(decodes, context)

    def gang_seconds(self, inner: GangSeconds, ranks: Sequence[RankStep]) -> float:
        """The step of data-parallel ranks together: all wait for the one that encodes longest."""
        return inner(ranks) + max(self.encoder_seconds(chunks) for _, _, chunks in ranks)

    def at(self, end: End, times: StepTimes) -> EncoderSteps:
        """At an end of the interval, like these times of the steps themselves."""
        return replace(self, times=times, end=end)
