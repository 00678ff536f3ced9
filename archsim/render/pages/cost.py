"""What a load costs, as sections of a page."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.base.amounts import short_amount
from archsim.cost.break_even import BreakEven
from archsim.cost.priced_work import PricedWork
from archsim.cost.served_cost import ServedCost
from archsim.render.page import Row, Section, percent, row


def cost_sections(priced: PricedWork) -> Iterator[Section]:
    """Dollars per million tokens; with the table of prices the range over providers first."""
    cost = priced.cost
    rows = [*_range_rows(priced), *_token_rows(cost)]
    yield Section(
        title="Cost", rows=tuple(rows), align="lrrl", header=("$ per M tokens", "80 % interval", ""),
        below=(paid_text(cost), *_even_text(priced.break_even)),
    )  # fmt: skip


def usd(value: float | None) -> str:
    """Dollars in three digits, or more where they are hundreds."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def paid_text(cost: ServedCost) -> str:
    """What is paid for, at which price, and how much of it is used."""
    assert cost.price is not None
    whole = f"${usd(cost.usd_per_hour)} an hour for {cost.work.devices:,} devices, " if cost.work.devices > 1 else ""
    owned = f" ({cost.price.source})" if cost.price.terms == "owned" else ""
    return f"{whole}{cost.price.in_words}{owned}; {cost.use_in_words}"


def _token_rows(cost: ServedCost) -> list[Row]:
    """The bill by what causes it. The shares of a request add up to its bill."""
    whole = cost.usd_per_request or 1.0  # of a bill of nothing every share is 0
    span = f"{usd(cost.low)} – {usd(cost.high)}" if cost.low is not None else ""
    if cost.usd_per_m_output is None:
        return [row("input", usd(cost.usd_per_m_input), "", "the whole bill")]
    fresh = cost.input_usd - cost.cached_input_usd
    rows = [
        row("output, all in", usd(cost.usd_per_m_output_all_in), span, "the whole bill by output tokens"),
        row("output", usd(cost.usd_per_m_output), "", f"{percent(cost.output_usd / whole)} of the bill"),
        row("input", usd(cost.usd_per_m_input), "", f"{percent(cost.input_usd / whole)} of the bill"),
    ]
    if cost.work.cached_len:
        share = f"{percent(cost.cached_input_usd / whole)} of the bill; the rest of the input {percent(fresh / whole)}"
        rows.append(row("  cached input", usd(cost.usd_per_m_cached_input), "", share))
    elif cost.work.cached_token_s:
        rows.append(row("  cached input", usd(cost.usd_per_m_cached_input), "", "what a token in the cache would cost"))
    rows.append(row("input and output", usd(cost.usd_per_m_total), "", "the whole bill by all tokens"))
    return rows


def _range_rows(priced: PricedWork) -> list[Row]:
    """The all-in figure over providers, apart for each kind of terms."""
    offers, rows = priced.offers, []
    for terms, said in zip(_terms(offers), priced.choice.range_in_words(), strict=True):
        asked = [cost for cost in offers if cost.price is not None and cost.price.terms == terms]
        low, high = asked[0].usd_per_m_output_all_in, asked[-1].usd_per_m_output_all_in
        span = usd(low) if low == high else f"{usd(low)} – {usd(high)}"
        rows.append(row(f"{terms}, all in", span, "", said))
    return rows


def _terms(offers: tuple[ServedCost, ...]) -> list[str]:
    """Kinds of terms, in the order of `PriceChoice.range_in_words`."""
    found = dict.fromkeys(cost.price.terms for cost in offers if cost.price is not None)
    return sorted(found, key=lambda terms: terms != "on-demand")


def _even_text(even: BreakEven | None) -> list[str]:
    """From which volume on the devices are cheaper than tokens at a price."""
    if even is None:
        return []
    a, b = even.against
    price = f"${a:g} per M tokens" if a == b else f"${a:g} in and ${b:g} out per M tokens"
    if not even.pays:
        return [
            f"{price} is cheaper at any volume: at full use these devices cost {even.utilization:.3g} times as much"
        ]
    volume = f"{short_amount(even.tokens_per_month)} tokens a month ({short_amount(even.requests_per_month)} requests)"
    return [f"against {price}: cheaper from {volume} on, {percent(even.utilization)} of what they can serve"]
