"""Sounds of a request: how many tokens they take, and the step that their encoder runs."""

from __future__ import annotations

import re

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.number import Num
from archsim.blocks.stage import tokens_after
from archsim.counts.graph_counts import flops
from archsim.graph.graph import Block
from archsim.graph.step import Seqs, Step
from archsim.spec.model import Model, Tower

LONGEST = 24 * 3600
"""Seconds of one sound."""


@dataclass(frozen=True, slots=True)
class Sounds:
    """`count` sounds of so many seconds, in each request."""

    seconds: float
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Sounds:
        """From `30` or, for several, `30x4`: seconds, sounds. Raises UsageError."""
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)s?(?:[x×](\d{1,5}))?", text.strip().lower())
        seconds, count = (float(match[1]), int(match[2] or 1)) if match else (0.0, 0)
        if not 0 < seconds <= LONGEST or count < 1:
            message = f"`--audio` is seconds of audio, such as 30, or 30x4 for four clips, not {quote(text)}"
            raise UsageError(message)
        return cls(seconds, count)


@dataclass(frozen=True, slots=True)
class SoundWork:
    """What the sounds of one request ask of the encoder: the pieces of each, as (how many, frames), and its tokens."""

    tower: Tower
    sounds: Sounds
    pieces: tuple[tuple[int, int], ...]
    tokens: int

    noun = "sound"

    @classmethod
    def of(cls, model: Model, sounds: Sounds) -> SoundWork:
        """Raises UsageError for a model whose encoder, or whose processor's rule, is not known."""
        tower = next((t for t in model.towers if t.name == "audio" and t.stages and t.sounds is not None), None)
        if tower is None or tower.sounds is None:
            raise UsageError(f"`--audio`: {_why(model)}")
        from archsim.spec.tower import tokens_of  # few commands ask for sounds: cold start

        pieces = tower.sounds.pieces(sounds.seconds)
        heard = ((1, tower.sounds.frames(sounds.seconds)),) if tower.sounds.tokens == "sound" else pieces
        vectors = sum(n * tokens_of(tower, Step.of(1, frames)) for n, frames in heard)
        return cls(tower, sounds, pieces, vectors + tower.sounds.marks(vectors))

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the sounds of a request add to its prompt."""
        return self.tokens * self.sounds.count

    @property
    def count(self) -> int:
        """Sounds of a request."""
        return self.sounds.count

    def step(self, batch: Num = 1) -> Step:
        """The encoder's step for so many requests."""
        return self.step_of(batch * self.sounds.count)

    def step_of(self, count: Num) -> Step:
        """The encoder's step for so many sounds."""
        return Step(seqs=tuple(Seqs(count * n, frames, 0) for n, frames in self.pieces))

    def to_dict(self) -> JsonObject:
        """Lengths, and the FLOPs of the sounds of one request."""
        return {
            "seconds": self.sounds.seconds, "sounds": self.sounds.count,
            "frames": sum(n * frames for n, frames in self.pieces), "tokens_per_sound": self.tokens,
            "tokens": self.prompt_tokens, "flops": flops(self.graph()),
        }  # fmt: skip

    def graph(self, batch: Num = 1) -> Block:
        """The graph of the encoder."""
        from archsim.spec.tower import lower_tower

        return lower_tower(self.tower, self.step(batch))


def heard_source(model: Model, sounds: Sounds) -> int:
    """Vectors that an encoder-decoder's encoder makes of a sound. Raises UsageError where the rule is not known."""
    encoder = model.encoder
    if encoder is None or encoder.sounds is None:
        raise UsageError(f"`--audio`: {_why(model)}")
    pieces = encoder.sounds.pieces(sounds.seconds)
    if sounds.count > 1 or sum(n for n, _ in pieces) > 1:
        raise UsageError(f"`--audio`: {model.name} takes one audio clip at a time; `--batch` counts them")
    return int(tokens_after(encoder.front, Step.of(1, pieces[0][1])))


def _why(model: Model) -> str:
    """Why no tokens of sounds can be added to a prompt."""
    if model.encoder is not None and model.encoder.front:
        return f"{model.name} reads sounds in place of a prompt: `--source-len` counts the vectors of its encoder"
    if "audio" in model.tower_names:
        return f"{model.name} takes audio, but how its processor splits it is not known"
    return f"{model.name} has no audio encoder"
