"""Money as compute: what a device does per dollar at a utilisation."""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.cost.price import GIVEN, Price
from archsim.cost.price_choice import TABLE, choose_price
from archsim.spec.hardware import Hardware

MFU = 0.4
"""Share of the dense bf16 peak that large runs reach, where nothing better is known (Llama 3 405B: 0.38 to 0.43)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Dollars for rented devices. price: of one device and hour. mfu: model FLOP over the dense bf16 peak."""

    usd: float
    hardware: Hardware
    price: Price
    mfu: float = MFU

    @property
    def device_hours(self) -> float:
        """Hours of one device that the money rents."""
        return self.usd / self.price.usd_per_device_hour

    @property
    def flops(self) -> float:
        """Training FLOP that the money buys."""
        return self.device_hours * 3600 * self.hardware.peak_flops("bf16").flops * self.mfu

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "usd": self.usd, "hardware": self.hardware.id, "usd_per_hour": self.price.usd_per_device_hour,
            "price_from": price_from(self.price), "price": self.price.to_dict(), "mfu": self.mfu,
            "device_hours": self.device_hours, "peak_flops": self.hardware.peak_flops("bf16").flops,
            "flops": self.flops,
        }  # fmt: skip


def budget(usd: float, hardware: Hardware, mfu: float | None = None, price: float | str | None = None) -> Budget:
    """Money on a device. price: as of `--price`; without one, the lowest rent on demand that is on file.

    Raises UsageError for a device without a rent, or an MFU that is no share.
    """
    share = MFU if mfu is None else mfu
    if not 0 < share <= 1:
        raise UsageError(f"an MFU is a share of the peak between 0 and 1, not {share:g}", hints=("40 % is 0.4",))
    return Budget(usd=usd, hardware=hardware, price=choose_price(TABLE if price is None else price, hardware).price,
                  mfu=share)  # fmt: skip


def price_from(price: Price) -> str:
    """Who asks a price, as `price_from` of the JSON says it."""
    return price.source if price.provider == GIVEN else price.origin
