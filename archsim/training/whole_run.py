"""The whole run that a step belongs to: days, dollars, energy, and what a scaling law says of its tokens."""

from __future__ import annotations

from typing import Protocol

from archsim.base.amounts import amount
from archsim.cost.price import Price
from archsim.cost.price_choice import choose_price
from archsim.spec.hardware import Hardware
from archsim.training.laws import DEFAULT_LAW, NamedLaw, Shape, law_named
from archsim.training.pricer import Priced, TrainingPricer
from archsim.training.scaling import REFUSED_BEYOND
from archsim.training.train import Outcome, TrainingRun


class RunRequest(Protocol):
    """What is asked of a run. price: dollars per device and hour, or what names a price."""

    @property
    def tokens(self) -> float | str | None:
        """Tokens of the whole run."""

    @property
    def price(self) -> float | str | None:
        """Dollars per device and hour, a provider, `cheapest` or `table`."""

    @property
    def goodput(self) -> float:
        """Share of the time that steps take."""


def run_of(pricer: TrainingPricer, priced: Priced, asked: RunRequest, outcome: Outcome | None) -> TrainingRun | None:
    """The whole run, where its tokens are given. Raises UsageError for a price that there is not."""
    if asked.tokens is None:
        return None
    layout = priced.choice.layout
    return TrainingRun(
        tokens_asked(asked.tokens), layout.tokens, priced.step.expected_s, layout.devices, asked.goodput,
        price_asked(asked, pricer.hardware), pricer.hardware.tdp_w, outcome,
    )  # fmt: skip


def price_asked(asked: RunRequest, hardware: Hardware) -> Price | None:
    """The price that is asked for on a device."""
    return None if asked.price is None else choose_price(asked.price, hardware).price


def tokens_asked(tokens: float | str) -> int:
    """The tokens of a run as a number."""
    return round(amount(tokens, "number of tokens"))


def outcome_of(asked: RunRequest, total: int, active: int, trained: int) -> Outcome | None:
    """What the default scaling law says of pre-training so many tokens. None where it does not apply: to adapters, and
    to models of which a token uses only some parameters.
    """
    if asked.tokens is None or total != trained or active < SPARSE * total:
        return None
    shape, law = Shape(float(total), float(tokens_asked(asked.tokens))), law_named(DEFAULT_LAW)
    named, fitted = NamedLaw(DEFAULT_LAW, law), law.fitted
    best = named.optimum.of_params(shape.params).tokens
    far = fitted is not None and max(fitted.outside(shape).values(), default=1.0) >= REFUSED_BEYOND
    loss = None if far else named.loss(shape)
    return Outcome(DEFAULT_LAW, shape.tokens / shape.params, best, shape.tokens / best, loss)


SPARSE = 0.8
"""Share of the parameters below which a token uses too few for a law of dense models."""
