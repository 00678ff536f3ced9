"""What a load costs: the price that is asked for, dollars per million tokens, the range over providers."""

from __future__ import annotations

from typing import NamedTuple, Unpack

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.options import CostArguments
from archsim.cost.break_even import BreakEven, TokenPrice
from archsim.cost.ownership import Ownership
from archsim.cost.price import Price
from archsim.cost.price_choice import PriceChoice, choose_price
from archsim.cost.served_cost import ServedCost, ServedWork, cost_of
from archsim.spec.hardware import Hardware


class PricedWork(NamedTuple):
    """Dollars of a load at the price that is asked for, and at every other one that was asked for with it."""

    cost: ServedCost
    choice: PriceChoice
    break_even: BreakEven | None = None

    @property
    def offers(self) -> tuple[ServedCost, ...]:
        """The cost at every price of the table, the lowest first; none unless the table was asked for."""
        return tuple(self.cost.at(price) for price in self.choice.others)

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What to mind about the price."""
        return self.choice.price.warnings

    @property
    def assumptions(self) -> tuple[Note, ...]:
        """What the dollars are of."""
        return (
            Note("A49", f"{self.cost.use_in_words}; a prompt is charged the time that it adds to the steps it runs in"),
        )

    def to_dict(self) -> JsonObject:
        """The contract's `cost`. offers: with `table`, one object for each price on file."""
        found = self.cost.to_dict()
        if self.choice.others:
            found["offers"] = [_offer(cost) for cost in self.offers]
        if self.break_even is not None:
            found["break_even"] = self.break_even.to_dict()
        return found


def _offer(cost: ServedCost) -> JsonObject:
    kept = ("usd_per_hour", "usd_per_m_output", "usd_per_m_input", "usd_per_m_output_all_in", "low", "high", "price")
    whole = cost.to_dict()
    return {key: whole[key] for key in kept}


def priced_work(
    work: ServedWork, hardware: Hardware, watts: float | None = None, **asked: Unpack[CostArguments]
) -> PricedWork:
    """The dollars of any load. watts: of one device, for the electricity of a machine of one's own. Raises
    UsageError for a price that there is not, and for options that go with a price alone.
    """
    choice = price_choice(hardware, watts, **asked)
    cost = cost_of(work, choice.price, share_asked(asked))
    against = asked.get("break_even")
    even = None if against is None else BreakEven(cost, TokenPrice.parse(against))
    return PricedWork(cost, choice, even)


def share_asked(asked: CostArguments) -> float:
    """The share of paid hours that options state; all of them where they do not."""
    share = asked.get("utilization")
    return 1.0 if share is None else share


def price_choice(hardware: Hardware, watts: float | None = None, **asked: Unpack[CostArguments]) -> PriceChoice:
    """The price that options ask for. Raises UsageError without one, and for two."""
    price, capex = asked.get("price"), asked.get("capex")
    if price is not None and capex is not None:
        raise UsageError("a device is rented or owned: give `--price` or `--capex`")
    if price is not None:
        _only_owned(asked)
        return choose_price(price, hardware)
    if capex is None:
        name = next(iter(asked)).replace("_", "-")
        raise UsageError(f"`--{name}` goes with a price", hints=("give --price 2.5, --price table or --capex 30000",))
    return PriceChoice(owned_price(capex, watts, asked))


OWNED = ("years", "host_share", "power_price")
"""Options of a machine of one's own."""


def _only_owned(asked: CostArguments) -> None:
    for name in OWNED:
        if asked.get(name) is not None:
            hint = "rental prices include it; give --capex for a machine of your own"
            raise UsageError(f"`--{name.replace('_', '-')}` goes with `--capex`", hints=(hint,))


def owned_price(capex: float, watts: float | None, asked: CostArguments) -> Price:
    """The price of a machine of one's own."""
    names = (*OWNED, "pue")
    given = {name: float(asked[name]) for name in names if asked.get(name) is not None}  # type: ignore[literal-required]
    return Ownership(capex=float(capex), **given).price(watts)
