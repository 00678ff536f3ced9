"""What tokens cost: the seconds that requests take of all devices, times the price of those seconds.

All figures follow from one number, seconds of the whole system per answered request, and from who causes them. A prompt
is charged the time that it adds to the steps it runs in, its cached tokens the time of reading them, the answer the
rest; the three are the bill. Numbers and arrays alike.
"""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.number import Num
from archsim.cost.price import Price

MILLION = 1e6
HOUR = 3600.0


class ServedWork(NamedTuple):
    """What devices do for one request of a steady load. devices: that are paid. request_s, low_s, high_s: seconds of
    the whole system per answered request (its share of steps that requests have in common), and the 80 % interval.
    prompt_share: of these, what prompts cause. cached_len: of `input_len`, tokens that a prefix cache holds;
    cached_token_s: seconds of reading one of them.
    """

    devices: Num
    input_len: Num
    output_len: Num
    request_s: Num
    low_s: Num
    high_s: Num
    prompt_share: Num
    cached_len: Num = 0
    cached_token_s: Num = 0.0


class ServedCost(NamedTuple):
    """Dollars of a load. usd_per_device_hour: the price. utilization: share of the paid hours that serve this load."""

    work: ServedWork
    usd_per_device_hour: Num
    utilization: Num = 1.0
    price: Price | None = None

    @property
    def usd_per_hour(self) -> Num:
        """Of all devices, whether they serve or not."""
        return self.usd_per_device_hour * self.work.devices

    @property
    def usd_per_busy_s(self) -> Num:
        """Dollars per second of service: hours without load are paid too."""
        return self.usd_per_hour / HOUR / self.utilization

    @property
    def use_in_words(self) -> str:
        """How much of what is paid for serves this load."""
        if self.utilization == 1:
            return "every paid hour serves this load"
        return f"{100 * self.utilization:.3g} % of the paid hours serve this load"

    @property
    def usd_per_request(self) -> Num:
        """The bill of one request."""
        return self.usd_per_busy_s * self.work.request_s

    @property
    def input_usd(self) -> Num:
        """The prompt's share of the bill, cached tokens included."""
        return self.usd_per_request * self.work.prompt_share

    @property
    def cached_input_usd(self) -> Num:
        """The share of cached prompt tokens: their reading."""
        return self.usd_per_busy_s * self.work.cached_token_s * self.work.cached_len

    @property
    def output_usd(self) -> Num:
        """The answer's share: what the prompt does not cause."""
        return self.usd_per_request - self.input_usd

    @property
    def usd_per_m_input(self) -> Num:
        """Dollars per million prompt tokens, cached ones included."""
        return self.input_usd / self.work.input_len * MILLION

    @property
    def usd_per_m_cached_input(self) -> Num:
        """Dollars per million cached prompt tokens."""
        return self.usd_per_busy_s * self.work.cached_token_s * MILLION

    @property
    def usd_per_m_output(self) -> Num | None:
        """Dollars per million answer tokens, without the prompts; None of a model that does not decode."""
        return self._per_m_output(self.output_usd)

    @property
    def usd_per_m_output_all_in(self) -> Num | None:
        """The whole bill per million answer tokens."""
        return self._per_m_output(self.usd_per_request)

    @property
    def usd_per_m_total(self) -> Num:
        """The whole bill per million tokens, of prompts and answers."""
        return self.usd_per_request / (self.work.input_len + self.work.output_len) * MILLION

    @property
    def low(self) -> Num | None:
        """Lower end of the 80 % interval of `usd_per_m_output_all_in`: that of the time."""
        return self._per_m_output(self.usd_per_busy_s * self.work.low_s)

    @property
    def high(self) -> Num | None:
        """Its upper end."""
        return self._per_m_output(self.usd_per_busy_s * self.work.high_s)

    def _per_m_output(self, usd: Num) -> Num | None:
        tokens = self.work.output_len
        return None if isinstance(tokens, int) and tokens == 0 else usd / tokens * MILLION

    def at(self, price: Price) -> ServedCost:
        """The same work at another price."""
        return self._replace(usd_per_device_hour=price.usd_per_device_hour, price=price)

    def to_dict(self) -> JsonObject:
        """The contract's `cost`; `per_request` are the shares that add up to the bill of one request."""
        fresh = self.input_usd - self.cached_input_usd
        return {
            "usd_per_hour": self.usd_per_hour, "usd_per_m_output": self.usd_per_m_output,
            "usd_per_m_input": self.usd_per_m_input, "usd_per_m_cached_input": self.usd_per_m_cached_input,
            "usd_per_m_output_all_in": self.usd_per_m_output_all_in, "usd_per_m_total": self.usd_per_m_total,
            "low": self.low, "high": self.high, "utilization": self.utilization,
            "per_request": {
                "usd": self.usd_per_request, "input_usd": fresh, "cached_input_usd": self.cached_input_usd,
                "output_usd": self.output_usd,
            },
            "price": self.price.to_dict() if self.price else None,
        }  # fmt: skip


def cost_of(work: ServedWork, price: Price | float, utilization: float = 1.0) -> ServedCost:
    """What the work costs at a price of one device and hour. Raises UsageError for a utilisation that is no share."""
    share = checked_share(utilization, "--utilization")
    if isinstance(price, Price):
        return ServedCost(work, price.usd_per_device_hour, share, price)
    return ServedCost(work, float(price), share, Price(float(price)))


def checked_share(value: float, name: str) -> float:
    """A share above 0 and at most 1. Raises UsageError."""
    if not 0 < value <= 1:
        raise UsageError(f"`{name}` is a share above 0 and at most 1, not {value:g}", hints=("40 % is 0.4",))
    return float(value)
