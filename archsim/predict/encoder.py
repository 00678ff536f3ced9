"""The time that vision and audio encoders add before a prompt's prefill."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from archsim.base.data_class import dataclass
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.number import Num, ceil_div
from archsim.counts.formats import choose_formats
from archsim.counts.images import Images, ImageWork
from archsim.counts.sounds import Sounds, SoundWork
from archsim.counts.towers import tower_tp
from archsim.engines.overhead import EngineOverheads
from archsim.graph.step import Step
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model, Tower
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store
from archsim.timing.step_pricer import StepPricer
from archsim.timing.step_time import StepTime


class EncoderWork(Protocol):
    """What the images or sounds of a request ask of an encoder. noun: what they are; tokens: of one of them; count: of
    a request.
    """

    @property
    def noun(self) -> str: ...

    @property
    def tower(self) -> Tower: ...

    @property
    def tokens(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens that they add to the prompt."""

    def step(self, batch: Num = 1) -> Step:
        """The encoder's step for so many requests."""

    def step_of(self, count: Num) -> Step:
        """The encoder's step for so many images or sounds."""


def encoder_works(model: Model, image: str | None, audio: str | None) -> tuple[EncoderWork, ...]:
    """What encoders do before a prompt: of the images of a request, as in `1024x768x4`, and of its sounds, as in
    `30x4`. Raises UsageError for a model without them, or whose processor's rule is not known.
    """
    seen: list[EncoderWork] = [ImageWork.of(model, Images.parse(image))] if image is not None else []
    return (*seen, SoundWork.of(model, Sounds.parse(audio))) if audio is not None else tuple(seen)


@dataclass(frozen=True, slots=True)
class EncoderTime:
    """What images or sounds ask of their encoder, and how long it takes for them. served: those of each request in its
    own turn; else those of a batch in one step.
    """

    work: EncoderWork
    time: StepTime
    tp: int
    served: bool = False

    def to_dict(self) -> JsonObject:
        """Sizes and seconds."""
        return {
            **self.time.to_dict(),
            f"tokens_per_{self.work.noun}": self.work.tokens,
            "tokens": self.work.prompt_tokens,
        }

    @property
    def notes(self) -> tuple[Note, ...]:
        """What its time rests on."""
        cut = (
            f"cut over {self.tp} devices"
            if self.tp > 1
            else f"whole on each device, which encodes all {self.work.noun}s"
        )
        noun = self.work.noun
        turns = (
            "with every prompt, for one request at a time"
            if self.served
            else f"before the prefill, all {noun}s of the batch in one step"
        )
        tokens = f"{self.work.tokens:,} tokens each, which are part of the prompt"
        text = f"{noun}s: {tokens}; their encoder runs {turns}, {cut}"
        return (Note("A48", text),)


def encoder_time(
    model: Model,
    hardware: Hardware,
    overheads: EngineOverheads,
    plan: Plan,
    work: EncoderWork,
    batch: int | None,
    store: Store,
) -> EncoderTime:
    """The time of the encoder over the images or sounds of a batch, which the plan's replicas share, on the devices
    that its heads divide. batch: None for those of one request at a time.
    """
    pricer = encoder_pricer(model, hardware, overheads, plan, work, store)
    each = 1 if batch is None else ceil_div(batch, plan.dp)
    return EncoderTime(work, pricer.price(work.step(each)).called("encoder"), pricer.plan.tp, served=batch is None)


def encoder_pricer(
    model: Model, hardware: Hardware, overheads: EngineOverheads, plan: Plan, work: EncoderWork, store: Store
) -> StepPricer:
    """What prices the steps of an encoder, on the devices of a replica that its heads divide."""
    from archsim.spec.tower import TowerModel

    own = TowerModel.of(model, work.tower)
    cut = replace(plan, tp=tower_tp(work.tower, plan.tp), pp=1, ep=1, dp=1)
    return StepPricer.of(own, hardware, choose_formats(own, None, None), overheads, cut, store=store)
