"""The whole run that a step belongs to: days, dollars, energy, and what a scaling law says of its tokens."""

from __future__ import annotations

from typing import Protocol

from archsim.base.amounts import amount
from archsim.cost.price import Price
from archsim.cost.price_choice import choose_price
from archsim.energy.activity import Activity
from archsim.energy.energy_use import USUAL_PUE, EnergyUse, Span, checked_factors
from archsim.energy.power import power_model
from archsim.spec.hardware import Hardware
from archsim.training.laws import DEFAULT_LAW, NamedLaw, Shape, law_named
from archsim.training.pricer import Priced, TrainingPricer
from archsim.training.scaling import REFUSED_BEYOND
from archsim.training.train import Outcome, TrainingRun, tokens_of


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
        """Share of the time spent in steps."""

    @property
    def pue(self) -> float | None:
        """Electricity of the facility over that of its machines."""

    @property
    def grid(self) -> float | None:
        """Grams of CO2 per kWh."""


def run_of(pricer: TrainingPricer, priced: Priced, asked: RunRequest, outcome: Outcome | None) -> TrainingRun | None:
    """The whole run, where its tokens are given. Raises UsageError for a price that there is not."""
    if asked.tokens is None:
        return None
    layout = priced.choice.layout
    run = TrainingRun(
        tokens_asked(asked.tokens), layout.tokens, priced.step.expected_s, layout.devices, asked.goodput,
        price_asked(asked, pricer.hardware), outcome=outcome,
    )  # fmt: skip
    return run._replace(energy=run_energy(pricer, priced, asked, run))


def run_energy(pricer: TrainingPricer, priced: Priced, asked: RunRequest, run: TrainingRun) -> EnergyUse | None:
    """What the devices of a run draw, by how busy its steps keep them; None where their power limit is not known."""
    checked_factors(asked.pue, asked.grid)
    span = step_watts(pricer, priced)
    if span is None:
        return None
    return EnergyUse(
        devices=run.devices, watts=span, joules=span.times(run.device_hours * 3600 / run.tokens),
        kwh=span.times(run.device_hours / 1000), pue=asked.pue or USUAL_PUE, grid=asked.grid,
        evidence=power_model(pricer.hardware).evidence,
    )  # fmt: skip


def step_watts(pricer: TrainingPricer, priced: Priced) -> Span | None:
    """What one device draws during a step, by how busy it is; None where its power limit is not known."""
    if pricer.hardware.tdp_w is None:
        return None
    model, step, layout = power_model(pricer.hardware), priced.step, priced.choice.layout
    seconds = step.expected_s
    arithmetic = float(priced.graph.flops.executed) / tokens_of(priced) * layout.tokens / layout.devices
    active = Activity(
        seconds, 0.0, min(step.ideal_s, seconds), min(arithmetic / pricer.timer.machine.peak("bf16").flops, seconds),
        sum(comm.exposed_s for comm in step.comm.values()),
    )  # fmt: skip
    watts = float(model.watts(active))
    return Span(watts, *(float(end) for end in model.interval(watts)))


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
