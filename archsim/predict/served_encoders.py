"""The encoders of a server whose requests all carry images or sounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from archsim.base.notes import Note
from archsim.engines.overhead import EngineOverheads
from archsim.predict.encoder import EncoderWork, encoder_pricer
from archsim.predict.encoder_steps import EncodedItems
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store
from archsim.timing.duration import Duration
from archsim.timing.step_pricer import StepPricer


def encoded_items(
    model: Model, hardware: Hardware, overheads: EngineOverheads, plan: Plan, works: Sequence[EncoderWork], store: Store
) -> tuple[EncodedItems, ...]:
    """The images and sounds of every prompt that a server gets, the first of which stand at its beginning."""
    found: list[EncodedItems] = []
    for work in works:
        pricer = encoder_pricer(model, hardware, overheads, plan, work, store)
        first = sum(items.prompt_tokens for items in found)
        found.append(EncodedItems(work.noun, work.count, max(work.tokens, 1), first, _timed(pricer, work)))
    return tuple(found)


def _timed(pricer: StepPricer, work: EncoderWork) -> Callable[[int], Duration]:
    """Times of so many images or sounds at once, each priced when it is first asked for."""
    known: dict[int, Duration] = {}

    def time(count: int) -> Duration:
        if count not in known:
            known[count] = pricer.price(work.step_of(count)).duration
        return known[count]

    return time


def carried(items: Sequence[EncodedItems]) -> tuple[Note, ...]:
    """Where the images and sounds of prompts stand, and when they are encoded."""
    when = "before its text; one is encoded in the step whose chunk of the prompt holds its first token"
    texts = [f"{one.noun}s: {one.count:,} in every prompt, of {one.tokens:,} tokens each, {when}" for one in items]
    return tuple(Note("A48", text) for text in texts)
