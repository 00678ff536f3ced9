"""A machine of one's own as a price per hour: what it cost over its years, and its electricity."""

from __future__ import annotations

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.cost.price import OWNED, Price

HOURS_PER_YEAR = 8766.0
"""365.25 days."""

YEARS, HOST_SHARE, PUE = 3.0, 0.3, 1.2
"""Where nothing is said: the usual years of depreciation, what hosts, network and racks cost beside a device, and the
electricity of a data centre over that of its machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A device that is bought. capex: dollars for one. years: over which it is written off. host_share: what its share
    of host, network and rack costs, over the device. power_price: dollars per kWh; None leaves electricity out. pue:
    electricity of the facility over that of its machines. Raises UsageError for a figure that cannot be.
    """

    capex: float
    years: float = YEARS
    host_share: float = HOST_SHARE
    power_price: float | None = None
    pue: float = PUE

    def __post_init__(self) -> None:
        least = {"capex": 0.0, "host_share": 0.0, "power_price": 0.0, "pue": 1.0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not bound <= value < float("inf"):
                raise UsageError(f"`--{name.replace('_', '-')}` is at least {bound:g}, not {value:g}")
        if not 0 < self.years < float("inf"):
            raise UsageError(f"`--years` is above 0, not {self.years:g}")

    @property
    def hourly_capex(self) -> float:
        """Dollars per hour of the machine itself, used or not."""
        return self.capex * (1 + self.host_share) / (self.years * HOURS_PER_YEAR)

    def hourly_power(self, watts: float | None) -> float:
        """Dollars per hour of its electricity, at so many watts on average of the device and its share of the host."""
        if self.power_price is None:
            return 0.0
        if watts is None:
            raise UsageError("the power of the device is not known", hints=("leave out `--power-price`",))
        return watts / 1000 * self.pue * self.power_price

    def price(self, watts: float | None = None) -> Price:
        """The price of one device and hour. watts: as in `hourly_power`."""
        parts = f"${self.capex:,.0f} a device + {self.host_share:.0%} for the host, over {self.years:g} years"
        power = self.hourly_power(watts)
        if self.power_price is not None:
            parts += f", {watts:,.0f} W x PUE {self.pue:g} at ${self.power_price:g}/kWh"
        return Price(self.hourly_capex + power, provider="own machine", terms=OWNED, source=parts)
