"""What the best layout is: fastest, smallest, cheapest, or the one that draws least."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.training.pricer import Choice, Held, Priced, TrainingPricer

Score = tuple[float, ...]
"""Less is better; later numbers decide between equals."""


class Objective(NamedTuple):
    """score: of a layout. least: what no layout of a choice goes below, before it is priced; 0 where nothing is known.
    fewer: whether fewer devices than there are may be used. words: of the best, on the page.
    """

    score: Callable[[TrainingPricer, Priced], Score]
    least: Callable[[TrainingPricer, Choice, Held], float]
    words: str
    fewer: bool = False


def device_seconds(pricer: TrainingPricer, priced: Priced) -> float:
    """Seconds of all devices for a token."""
    layout = priced.choice.layout
    return priced.step.expected_s * layout.devices / layout.tokens


def joules(pricer: TrainingPricer, priced: Priced) -> float:
    """Joules of all devices for a token. Raises UsageError where a device's power is not on file."""
    from archsim.training.whole_run import step_watts  # energy is looked at where it decides

    watts = step_watts(pricer, priced)
    if watts is None:
        raise UsageError(f"the power limit of {pricer.hardware.id} is not on file", hints=("`--objective time`",))
    return watts.expected * device_seconds(pricer, priced)


def _time(pricer: TrainingPricer, priced: Priced) -> Score:
    return (priced.step.expected_s, priced.memory.most.allocated)


def _memory(pricer: TrainingPricer, priced: Priced) -> Score:
    return (priced.memory.most.allocated, priced.step.expected_s)


def _cost(pricer: TrainingPricer, priced: Priced) -> Score:
    return (device_seconds(pricer, priced), priced.step.expected_s)


def _energy(pricer: TrainingPricer, priced: Priced) -> Score:
    return (joules(pricer, priced), priced.step.expected_s)


OBJECTIVES: Mapping[str, Objective] = {
    "time": Objective(_time, lambda pricer, choice, _: pricer.least_seconds(choice), "is the fastest"),
    "memory": Objective(_memory, lambda pricer, choice, held: held.most.allocated, "needs the least memory"),
    "cost": Objective(
        _cost, lambda pricer, choice, _: pricer.least_seconds(choice) * choice.layout.devices / choice.layout.tokens,
        "takes the fewest device-hours per token", fewer=True,
    ),
    "energy": Objective(_energy, lambda *_: 0.0, "uses the least energy per token", fewer=True),
}  # fmt: skip
"""By name. Dollars of a token are device-hours at one price, so that `cost` needs none."""


def objective_named(name: str) -> Objective:
    """Raises UsageError for a name that there is not."""
    if name not in OBJECTIVES:
        raise UsageError(f"no objective is named {quote(name)}", hints=(f"one of {', '.join(OBJECTIVES)}",))
    return OBJECTIVES[name]
