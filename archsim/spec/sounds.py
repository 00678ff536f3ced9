"""How a processor cuts a sound into what its encoder sees, as data: how many tokens it takes follows."""

from __future__ import annotations

from math import ceil, floor
from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import Count, InvalidBlock, Spec


class SoundRule(Spec):
    """frames_per_second: columns of the spectrum, or pieces of the waveform. piece: seconds that the encoder sees at a
    time. padded: a piece that is shorter is filled up to them. longest: seconds beyond which a sound is cut off.

    tokens: the vectors of whole pieces, silence included (Voxtral), or of the sound alone (Qwen2-Audio). fewer: frames
    that a spectrum lacks at its ends, whose windows would reach beyond the sound (of whole hundredths of a second);
    less than nothing where it has more than whole ones. around: tokens before and behind a sound. numbers: vectors
    between two numbers, which count seconds, `second` at a time, a token for each digit (MOSS).
    """

    frames_per_second: Count = 100
    piece: Count | None = 30
    padded: bool = True
    longest: Count | None = None
    tokens: Literal["pieces", "sound"] = "pieces"
    fewer: int = 0
    around: int = 0
    numbers: Count | None = None
    second: Count = 1

    @model_validator(mode="after")
    def _complete(self) -> SoundRule:
        if self.padded and self.piece is None:
            raise InvalidBlock("`padded` sounds are filled up to `piece` seconds", "E104")
        return self

    def frames(self, seconds: float) -> int:
        """Frames of a sound, without what is cut off."""
        kept = seconds if self.longest is None else min(seconds, self.longest)
        frames = round(kept * self.frames_per_second, 6)
        return max((ceil(frames) if self.fewer >= 0 else floor(frames)) - self.fewer, 1)

    def marks(self, vectors: int) -> int:
        """Tokens of a sound that are no vectors of its encoder."""
        numbers = 0 if self.numbers is None else vectors // self.numbers
        return self.around + sum(len(str(n * self.second)) for n in range(1, numbers + 1))

    def pieces(self, seconds: float) -> tuple[tuple[int, int], ...]:
        """(how many, frames of each) of the pieces that the encoder sees."""
        frames = self.frames(seconds)
        if self.piece is None:
            return ((1, frames),)
        whole = self.piece * self.frames_per_second
        if self.padded:
            return ((ceil(frames / whole), whole),)
        full, rest = floor(frames / whole), frames % whole
        return tuple(part for part in ((full, whole), (1, rest)) if all(part))
