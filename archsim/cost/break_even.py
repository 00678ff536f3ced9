"""Own devices against a price per token: the volume at which both cost as much."""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.cost.served_cost import HOUR, MILLION, ServedCost

HOURS_PER_MONTH = 730.5
"""A twelfth of 365.25 days."""


class TokenPrice(NamedTuple):
    """Dollars per million tokens that a provider asks."""

    usd_per_m_input: float
    usd_per_m_output: float

    @classmethod
    def parse(cls, text: str | float) -> TokenPrice:
        """`0.60` for all tokens, or `0.15,0.60` for those of prompts and of answers. Raises UsageError."""
        try:
            parts = [float(part) for part in str(text).split(",")]
        except ValueError:
            parts = []
        if len(parts) not in (1, 2) or not all(0 <= part < float("inf") for part in parts) or not sum(parts):
            hint = "write 0.60, or 0.15,0.60 for tokens in and out, in dollars per million"
            raise UsageError(f"{str(text)[:40]!r} is not a price of tokens", hints=(hint,))
        return cls(parts[0], parts[-1])


class BreakEven(NamedTuple):
    """The volume at which the devices of a cost are as cheap as a price per token. They are paid for whole months,
    whatever they serve, so below it the price per token is cheaper.
    """

    cost: ServedCost
    against: TokenPrice

    @property
    def usd_per_month(self) -> float:
        """What the devices cost a month."""
        return float(self.cost.usd_per_hour) * HOURS_PER_MONTH

    @property
    def usd_per_request(self) -> float:
        """What one request costs at the price per token."""
        work, price = self.cost.work, self.against
        return float(work.input_len * price.usd_per_m_input + work.output_len * price.usd_per_m_output) / MILLION

    @property
    def requests_per_month(self) -> float:
        """Requests that cost as much at the price per token."""
        return self.usd_per_month / self.usd_per_request

    @property
    def tokens_per_month(self) -> float:
        """Their tokens, of prompts and answers."""
        return self.requests_per_month * float(self.cost.work.input_len + self.cost.work.output_len)

    @property
    def utilization(self) -> float:
        """Share of the hours in which the devices must serve this load to be as cheap; above 1 they never are."""
        return self.requests_per_month * float(self.cost.work.request_s) / (HOURS_PER_MONTH * HOUR)

    @property
    def pays(self) -> bool:
        """Whether the devices can be the cheaper choice."""
        return self.utilization <= 1

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "against": self.against._asdict(), "usd_per_month": self.usd_per_month,
            "requests_per_month": self.requests_per_month, "tokens_per_month": self.tokens_per_month,
            "utilization": self.utilization, "pays": self.pays,
        }  # fmt: skip
