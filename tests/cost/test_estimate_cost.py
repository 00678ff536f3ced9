"""`estimate --price`: the dollars of an estimate, as data and as a page; nothing without a price."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import archsim as package
from archsim.base.errors import UsageError

SERVED = {"concurrency": 16, "input_len": 1024, "output_len": 256}


def cost(**options: Any) -> dict[str, Any]:
    """The `cost` of a small model."""
    return dict(package.estimate("llama3.1-8b", "h100", **{**SERVED, **options}).to_dict()["cost"])


def test_nothing_is_priced_unasked(archsim: Any) -> None:
    """Neither as data nor on the page."""
    assert "cost" not in package.estimate("llama3.1-8b", "h100", **SERVED).to_dict()
    assert "$" not in archsim("estimate", "llama3.1-8b", "--hw", "h100").out


def test_the_bill_of_a_steady_state() -> None:
    """Cost times throughput is the price, the shares are the bill, and the interval is that of the time."""
    e = package.estimate("llama3.1-8b", "h100", devices=2, price=2.5, utilization=0.5, **SERVED)
    found = e.to_dict()["cost"]
    assert e.serving is not None and found["usd_per_hour"] == 5.0
    served = found["usd_per_m_output_all_in"] / 1e6 * e.serving.tokens_per_s * 3600 * 0.5
    assert math.isclose(served, found["usd_per_hour"])
    bill = found["usd_per_m_input"] * 1024 + found["usd_per_m_output"] * 256
    assert math.isclose(bill / 1e6, found["per_request"]["usd"])
    assert math.isclose(found["usd_per_m_total"] * 1280, found["usd_per_m_output_all_in"] * 256)
    assert found["low"] < found["usd_per_m_output_all_in"] < found["high"]
    ratio = found["high"] / found["usd_per_m_output_all_in"]
    assert math.isclose(ratio, e.serving.request.high / e.serving.request.expected)
    assert found["price"] == {
        "usd_per_device_hour": 2.5, "provider": "given", "terms": "given", "as_of": None, "source": "--price",
        "region": None,
    }  # fmt: skip


def test_a_single_batch_is_priced_too() -> None:
    """Without a steady state the batch pays for its own time; an encoder has input alone."""
    e = package.estimate("llama3.1-8b", "h100", batch=4, price=2.5)
    found, m = e.to_dict()["cost"], e.metrics
    assert m["e2e_s"] is not None and m["ttft_s"] is not None
    assert math.isclose(found["per_request"]["usd"], 2.5 / 3600 * m["e2e_s"] / 4)
    assert math.isclose(found["per_request"]["input_usd"], 2.5 / 3600 * m["ttft_s"] / 4)
    encoder = package.estimate("bert-base", "h100", input_len=512, price=2.5).to_dict()["cost"]
    assert encoder["usd_per_m_output"] is None and encoder["usd_per_m_input"] == encoder["usd_per_m_total"]


@pytest.mark.slow
def test_cached_tokens_cost_their_reading() -> None:
    """Cheaper than computed ones, the more of them the cheaper the prompt, and shares add up."""
    none, half, most = (cost(price=1, cached_input=n) for n in (0, 512, 1000))
    assert 0 < none["usd_per_m_cached_input"] < none["usd_per_m_input"] / 10
    assert none["usd_per_m_input"] > half["usd_per_m_input"] > most["usd_per_m_input"]
    parts = half["per_request"]
    assert math.isclose(parts["input_usd"] + parts["cached_input_usd"] + parts["output_usd"], parts["usd"])
    assert parts["cached_input_usd"] > 0 and none["per_request"]["cached_input_usd"] == 0
    for bad in ({"cached_input": 1024}, {"concurrency": None, "cached_input": 5}):
        with pytest.raises(UsageError, match="cache"):
            cost(price=1, **bad)


def test_the_table_gives_a_range_over_providers(archsim: Any) -> None:
    """One line for each kind of terms before the figures, every offer as data with provider, terms and date."""
    found = cost(price="table")
    offers = found["offers"]
    assert [o["usd_per_hour"] for o in offers] == sorted(o["usd_per_hour"] for o in offers) and len(offers) > 5
    assert all({"provider", "terms", "as_of", "source"} <= set(o["price"]) for o in offers)
    ratios = {round(o["usd_per_m_output_all_in"] / o["usd_per_hour"], 12) for o in offers}
    assert len(ratios) == 1 and found["price"]["terms"] == "on-demand"
    page = archsim("estimate", "llama3.1-8b", "--hw", "h100", "--price", "table").out
    assert page.index("on-demand, all in") < page.index("output, all in") and "providers" in page
    assert "spot, all in" in page


def test_owned_machines_and_break_even(archsim: Any) -> None:
    """Written off over years; the volume from which on they beat a price per token."""
    args = ("estimate", "llama3.1-8b", "--hw", "h100", "--concurrency", "64", "--capex", "30000", "--years", "4")
    result = archsim(*args, "--break-even", "0.1,0.4", "--json")
    found = json.loads(result.out)["cost"]
    assert found["price"]["terms"] == "owned" and found["usd_per_hour"] == pytest.approx(30000 * 1.3 / 4 / 8766)
    even = found["break_even"]
    tokens = 0.1 * 2048 + 0.4 * 256
    assert even["requests_per_month"] * tokens / 1e6 == pytest.approx(even["usd_per_month"])
    assert "tokens a month" in archsim(*args, "--break-even", "0.1,0.4").out
    assert "at any volume" in archsim(*args, "--break-even", "0.0001").out


@pytest.mark.parametrize(
    "args",
    [("--utilization", "0.5"), ("--price", "2", "--capex", "5"), ("--price", "2", "--years", "5"),
     ("--price", "nobody"), ("--price", "2", "--utilization", "2"), ("--break-even", "1")],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(archsim: Any, args: tuple[str, ...]) -> None:
    """With exit code 2 and a hint, before anything is printed."""
    result = archsim("estimate", "gpt2-small", "--hw", "h100", *args)
    assert result.code == 2 and not result.out and "error" in result.err
