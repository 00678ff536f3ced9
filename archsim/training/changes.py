"""Changes of one option of a training run, and what each does to memory and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from archsim.base.errors import InvalidPlan, UsageError
from archsim.training.layout import check_layout
from archsim.training.offload import KINDS, offload_text
from archsim.training.pricer import Choice, Priced, TrainingPricer
from archsim.training.train import Suggestion

SUGGESTIONS = 3
"""How many of the changes that help are shown."""


class Change(NamedTuple):
    """One change of a choice, as it would be typed."""

    text: str
    choice: Choice


def changes(choice: Choice) -> Iterator[Change]:
    """Changes of one option."""
    layout = choice.layout
    for recompute in ("none", "selective", "full"):
        if recompute != choice.recompute:
            yield Change(f"--recompute {recompute}", choice._replace(recompute=recompute))
    for zero in (1, 3):
        if zero != layout.zero and layout.data_ranks > 1 and not (zero == 3 and layout.pp > 1):
            yield Change(f"--zero {zero}", choice._replace(layout=replace(layout, zero=zero)))
    for micro in (layout.micro_batch * 2, layout.micro_batch // 2):
        if micro and layout.micro_batches * layout.micro_batch % micro == 0:
            yield Change(f"--micro-batch {micro}", choice._replace(layout=replace(layout, micro_batch=micro)))
    for name, other in (("tp", "dp"), ("pp", "dp")):
        yield from _shifts(choice, name, other)
    if layout.tp > 1 and not layout.sp:
        yield Change("--sp", choice._replace(layout=replace(layout, sp=True)))


def moved_out(choice: Choice) -> Iterator[Change]:
    """More that lies on the host: of use where memory is short."""
    for kind in KINDS:
        if kind not in choice.offload:
            offload = choice.offload | {kind}
            yield Change(f"--offload {offload_text(offload)}", choice._replace(offload=offload))


def _shifts(choice: Choice, name: str, other: str) -> Iterator[Change]:
    """Half of one degree and twice another, and the other way round."""
    layout = choice.layout
    here, there = getattr(layout, name), getattr(layout, other)
    for degree, rest in ((here * 2, there // 2), (here // 2, there * 2)):
        if degree and rest and degree * rest == here * there:
            made = replace(layout, **{name: degree, other: rest})
            zero = 0 if made.data_ranks == 1 else 1 if made.pp > 1 or not made.zero else made.zero
            made = replace(made, zero=zero, sp=layout.sp if name != "tp" else made.tp > 1)
            yield Change(f"--{name} {degree} --{other} {rest}", choice._replace(layout=made))


def effects(pricer: TrainingPricer, priced: Priced) -> tuple[Suggestion, ...]:
    """What each change of one option does to memory and time."""
    found = []
    more = () if priced.memory.fits else moved_out(priced.choice)
    for change in (*changes(priced.choice), *more):
        try:
            layout = check_layout(pricer.model, change.choice.layout)
            other = pricer.price(change.choice._replace(layout=layout))
        except (InvalidPlan, UsageError):  # no such layout, or no link to the host
            continue
        found.append(
            Suggestion(
                change.text, other.memory.most.allocated - priced.memory.most.allocated,
                other.step.expected_s - priced.step.expected_s, other.memory.fits,
            )
        )  # fmt: skip
    return tuple(found)


def suggestions(priced: Priced, found: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    """The changes that help most: where it does not fit those that need least, else those that are fastest and fit."""
    if priced.memory.fits:
        better = [each for each in found if each.fits and each.step_s < 0]
        return tuple(sorted(better, key=lambda each: each.step_s)[:SUGGESTIONS])
    smaller = [each for each in found if each.peak_bytes < 0]
    order = sorted(smaller, key=lambda each: (not each.fits, each.step_s if each.fits else each.peak_bytes))
    return tuple(order[:SUGGESTIONS])
