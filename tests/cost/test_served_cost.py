"""Dollars: identities, published arithmetic, machines of one's own, and the volume at which buying tokens is dearer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.base.errors import UsageError
from archsim.cost.break_even import HOURS_PER_MONTH, BreakEven, TokenPrice
from archsim.cost.ownership import HOURS_PER_YEAR, Ownership
from archsim.cost.served_cost import ServedWork, cost_of

positive = st.floats(1e-6, 1e6)
works = st.builds(
    lambda devices, sizes, times, shares: ServedWork(
        devices, sizes[0], sizes[1], times[1], times[0], times[2], shares[1], sizes[0] // 2,
        shares[0] * times[1] / sizes[0],
    ),
    st.integers(1, 64), st.tuples(st.integers(2, 10**6), st.integers(1, 10**5)),
    st.tuples(positive, positive, positive).map(sorted),
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)  # fmt: skip


@settings(deadline=None)
@given(works, positive, st.floats(0.01, 1))
def test_shares_add_up_to_the_bill(work: ServedWork, price: float, share: float) -> None:
    """Prompt, cached prompt and answer; per request and per million tokens."""
    cost = cost_of(work, price, share)
    parts = cost.to_dict()["per_request"]
    assert math.isclose(parts["input_usd"] + parts["cached_input_usd"] + parts["output_usd"], parts["usd"])
    assert cost.usd_per_m_output is not None and cost.usd_per_m_output_all_in is not None
    by_token = cost.usd_per_m_input * work.input_len + cost.usd_per_m_output * work.output_len
    assert math.isclose(by_token / 1e6, cost.usd_per_request)
    assert math.isclose(cost.usd_per_m_output_all_in * work.output_len / 1e6, cost.usd_per_request)
    assert math.isclose(cost.usd_per_m_total * (work.input_len + work.output_len) / 1e6, cost.usd_per_request)


@pytest.mark.slow
@settings(deadline=None)
@given(works, positive, st.floats(0.01, 1))
def test_cost_times_throughput_is_the_price(work: ServedWork, price: float, share: float) -> None:
    """Dollars per token x tokens of a paid hour = dollars of the hour; half the utilisation doubles them."""
    cost, half = cost_of(work, price, share), cost_of(work, price, share / 2)
    tokens = 3600 / work.request_s * work.output_len * share
    assert cost.usd_per_m_output_all_in is not None
    assert math.isclose(cost.usd_per_m_output_all_in / 1e6 * tokens, price * work.devices)
    assert half.usd_per_m_output_all_in == 2 * cost.usd_per_m_output_all_in
    assert half.usd_per_hour == cost.usd_per_hour
    assert cost.low is not None and cost.high is not None
    assert cost.low <= cost.usd_per_m_output_all_in * (1 + 1e-12) and cost.usd_per_m_output_all_in <= cost.high * (
        1 + 1e-12
    )


def test_a_share_is_a_share() -> None:
    """Neither more than all hours nor none."""
    work = ServedWork(1, 1, 1, 1.0, 1.0, 1.0, 0.5)
    for share in (0.0, -1.0, 1.01, math.nan):
        with pytest.raises(UsageError, match="utilization"):
            cost_of(work, 1.0, share)


def test_an_own_machine() -> None:
    """Capital over its hours, and electricity at the meter of the facility."""
    machine = Ownership(capex=30_000, years=4, host_share=0.25, power_price=0.1, pue=1.3)
    assert machine.hourly_capex * 4 * HOURS_PER_YEAR == pytest.approx(37_500)
    assert machine.hourly_power(500) == pytest.approx(0.5 * 1.3 * 0.1)
    price = machine.price(500)
    assert price.usd_per_device_hour == machine.hourly_capex + machine.hourly_power(500)
    assert price.terms == "owned" and "$30,000" in price.source and "500 W" in price.source
    assert Ownership(capex=30_000).price().usd_per_device_hour == Ownership(capex=30_000).hourly_capex
    for bad in ({"capex": -1.0}, {"years": 0.0}, {"pue": 0.9}, {"host_share": -0.1}, {"power_price": math.inf}):
        with pytest.raises(UsageError):
            Ownership(**{"capex": 1.0, **bad})


@settings(deadline=None)
@given(works, positive, st.tuples(positive, positive))
def test_break_even_is_where_both_cost_as_much(work: ServedWork, price: float, tokens: tuple[float, float]) -> None:
    """Volume x price per token = cost of the devices; at that utilisation a million tokens cost the same."""
    even = BreakEven(cost_of(work, price), TokenPrice(*tokens))
    assert math.isclose(even.requests_per_month * even.usd_per_request, even.usd_per_month)
    assert even.usd_per_month == price * work.devices * HOURS_PER_MONTH
    if even.pays:
        assert math.isclose(cost_of(work, price, even.utilization).usd_per_request, even.usd_per_request)


def test_token_prices() -> None:
    """One for all tokens, or one for each direction."""
    assert TokenPrice.parse("0.6") == TokenPrice(0.6, 0.6) and TokenPrice.parse("0.15,0.60") == TokenPrice(0.15, 0.6)
    for bad in ("", "a", "1,2,3", "-1", "0", "inf"):
        with pytest.raises(UsageError):
            TokenPrice.parse(bad)
