"""Which price is meant: a number, a provider, the cheapest, or the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.cost.price import Price
from archsim.cost.price_table import prices_of
from archsim.spec.hardware import Hardware

USUAL = "on-demand"
"""Terms that are taken first where none are asked for."""

CHEAPEST, TABLE = "cheapest", "table"


class PriceChoice(NamedTuple):
    """The price that figures are given at, and all that were asked for, the lowest first."""

    price: Price
    others: tuple[Price, ...] = ()

    @property
    def everything(self) -> tuple[Price, ...]:
        """All prices that were asked for."""
        return self.others or (self.price,)

    def range_in_words(self) -> list[str]:
        """The range over providers, one text for each kind of terms, which are never mixed."""
        said = []
        for terms in dict.fromkeys(price.terms for price in sorted(self.others, key=lambda p: p.terms != USUAL)):
            asked = [price for price in self.others if price.terms == terms]
            low, high = asked[0], asked[-1]
            count = len({price.provider for price in asked})
            span = f"${low.usd_per_device_hour:,.4g}" + (
                f" ({low.provider}) to ${high.usd_per_device_hour:,.4g} ({high.provider})"
                if high.usd_per_device_hour != low.usd_per_device_hour else f" ({low.provider})"
            )  # fmt: skip
            said.append(f"{terms} {span}, {count} provider{'s' if count != 1 else ''}")
        return said


def choose_price(asked: str | float, hardware: Hardware) -> PriceChoice:
    """The price that `--price` means on a device.

    A number is dollars per device and hour. `cheapest` is the lowest row of the table on any terms, `table` all rows,
    of which the lowest on demand gives the figures; a provider's name is its lowest, on demand if it rents so. Terms
    may follow a colon: `runpod:spot`, `table:on-demand`. Raises UsageError for a name or terms without a price.
    """
    number = _number(asked)
    if number is not None:
        return PriceChoice(Price(number))
    name, _, terms = str(asked).strip().lower().partition(":")
    listed = prices_of(hardware)
    if not listed:
        hint = "give --price in dollars per device and hour; `archsim list prices` has the devices with prices"
        raise UsageError(f"no price of {hardware.id} is on file", hints=(hint,))
    rows = [
        price for price in listed
        if (name in (CHEAPEST, TABLE) or _spelt(price.provider) == _spelt(name)) and (not terms or price.terms == terms)
    ]  # fmt: skip
    if not rows:
        raise _no_price(str(asked), hardware, listed)
    if name == CHEAPEST:
        return PriceChoice(rows[0])
    usual = next((price for price in rows if price.terms == USUAL), rows[0])
    return PriceChoice(usual, tuple(rows) if name == TABLE else ())


def _number(asked: str | float) -> float | None:
    """Dollars, where a number is asked for. Raises UsageError for one below zero or without end."""
    try:
        value = float(str(asked).strip().removeprefix("$"))
    except ValueError:
        return None
    if not 0 <= value < float("inf"):
        raise UsageError(f"`--price` is dollars per device and hour, not {asked}", hints=("for example --price 2.5",))
    return value


def _spelt(provider: str) -> str:
    return "".join(letter for letter in provider.lower() if letter.isalnum())


def _no_price(asked: str, hardware: Hardware, listed: Sequence[Price]) -> UsageError:
    offers = "; ".join(f"{price.provider}:{price.terms} ${price.usd_per_device_hour:,.4g}" for price in listed[:8])
    hints = (f"on file: {offers}", "or `cheapest`, `table`, or a number in dollars per device and hour")
    return UsageError(f"no price of {hardware.id} at {quote(asked)} is on file", hints=hints)
