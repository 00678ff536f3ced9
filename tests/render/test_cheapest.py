"""Which answer is the cheapest, and how sure that is: the ranking by time, at exact prices."""

from __future__ import annotations

import pytest

from archsim import api
from archsim.comparison.compare import cost_ratio
from archsim.predict.estimate import Estimate
from archsim.render.cheapest import bill, cheapest


def priced(model: str, device: str, usd: float, output_len: int = 64) -> Estimate:
    """An estimate at a price."""
    return api.estimate(model, device, price=usd, output_len=output_len)


def test_the_ratio_of_bills() -> None:
    """It is that of the figures on the page; twice the price is twice the bill and half as likely to be the least."""
    one, other = priced("gpt2-small", "t4", 0.5), priced("gpt2-small", "h100-sxm", 2.5)
    found = cost_ratio(one, other)
    bills = [bill(e, True) for e in (one, other)]
    assert found is not None and found.value == pytest.approx((bills[0] or 0) / (bills[1] or 1))
    assert found.low < found.value < found.high
    back = cost_ratio(other, one)
    assert back is not None and back.faster == pytest.approx(1 - found.faster, abs=0.02)
    twice = cost_ratio(priced("gpt2-small", "t4", 1.0), other)
    assert twice is not None and twice.value == pytest.approx(2 * found.value) and twice.faster <= found.faster
    assert cost_ratio(one, api.estimate("gpt2-small", "t4")) is None


def test_the_sentence() -> None:
    """One alone, the fastest that is also the cheapest, another that is, and the same at two prices."""
    slow, fast = priced("gpt2-small", "t4", 0.01), priced("gpt2-small", "h100-sxm", 2.5)
    assert cheapest([("A", slow)], True).startswith("It costs $")
    assert cheapest([("A", fast), ("B", slow)], True).startswith("B is the cheapest, $")
    assert cheapest([("A", fast), ("B", priced("gpt2-small", "t4", 50.0))], True).startswith("It is also the cheapest")
    dearer = priced("gpt2-small", "h100-sxm", 2.51)  # the same kernels: all errors cancel
    assert cheapest([("A", fast), ("B", dearer)], True).endswith("B costs 0.4 % more, > 99 % sure.")
    even = (bill(fast, True) or 0) / (bill(priced("gpt2-medium", "t4", 1.0), True) or 1)
    assert "too close to call" in cheapest([("A", fast), ("B", priced("gpt2-medium", "t4", even))], True)
    assert cheapest([("A", api.estimate("gpt2-small", "t4"))], True) == ""


def test_a_comparison_has_the_ratio() -> None:
    """In its JSON, where a price is asked for."""
    answer = api.compare(["gpt2-small", "gpt2-medium"], "t4", price=0.5).to_dict()["candidates"]
    assert answer[1]["cost_ratio"]["value"] == pytest.approx(answer[1]["ratios"]["usd_per_m_output_all_in"])
    assert "cost_ratio" not in api.compare(["gpt2-small", "gpt2-medium"], "t4").to_dict()["candidates"][1]
