"""The table of prices: every row is one, and `--price` means what it says."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from archsim import load_hardware
from archsim.base.errors import SpecError, UsageError
from archsim.cost.price import Price, day_of
from archsim.cost.price_choice import choose_price
from archsim.cost.price_table import parse_table, price_table, prices_of
from archsim.spec.catalog import resolve

NO_DEVICE = {"quadro-rtx-6000"}
"""Devices with a price and without a document."""


def test_every_row_is_a_price_of_a_device() -> None:
    """By the catalog's own name, with terms, a source, and a date where it has one."""
    table = price_table()
    assert len(table) >= 83 and len({(p.device, p.provider) for p in table}) >= 57
    for price in table:
        assert price.usd_per_device_hour > 0 and price.source and price.terms in ("on-demand", "spot", "capacity-block")
        assert price.as_of is None or day_of(price.as_of) is not None
        assert price.device in NO_DEVICE or resolve("hw", price.device).name == price.device
    assert sum(price.as_of is not None for price in table) >= 54


def test_a_price_is_chosen_by_name_and_terms() -> None:
    """On demand first where terms are not named; the whole table, whose range is never mixed over terms."""
    h100 = load_hardware("h100-sxm")
    rows = prices_of(h100)
    assert choose_price("2.5", h100).price == Price(2.5) and choose_price(2.5, h100).price == Price(2.5)
    assert choose_price("cheapest", h100).price == rows[0] and rows[0].terms == "spot"
    on_demand = [price for price in rows if price.terms == "on-demand"]
    table = choose_price("table", h100)
    assert table.price == on_demand[0] and table.everything == rows
    assert len(table.range_in_words()) == len({price.terms for price in rows})
    assert choose_price("crusoe", h100).price.terms == "on-demand"
    assert choose_price("Crusoe:spot", h100).price.terms == "spot"
    assert {price.terms for price in choose_price("table:on-demand", h100).everything} == {"on-demand"}
    for bad in ("nobody", "crusoe:lease", "-1", "inf", ""):
        with pytest.raises(UsageError):
            choose_price(bad, h100)
    with pytest.raises(UsageError, match="no price of epyc-9654"):
        choose_price("table", load_hardware("epyc-9654"))


def test_prices_age() -> None:
    """More than 180 days, and catalogues without a date, are pointed out; so are spot devices."""
    price = Price(2.0, "someone", "on-demand", "2026-03-21", "page")
    assert price.age_days(date(2026, 3, 31)) == 10 and not price.warning(date(2026, 3, 31))
    assert "8 months old" in price.warning(date(2026, 11, 22))
    assert "no date" in price._replace(as_of=None).warning() and not Price(2.0).warning()
    assert "taken away" in price._replace(terms="spot").warning(date(2026, 3, 31))
    assert price.in_words == "$2 per device-hour, someone, on-demand, 2026-03-21"


def test_a_table_that_is_none_is_refused_with_its_line() -> None:
    """The column or the line that is wrong."""
    head = "device,provider,terms,usd_per_device_hour,region,as_of,source,notes\n"
    assert parse_table(head + "h100-sxm,a,spot,1.5,,2026-01,page,\n", "f")[0].usd_per_device_hour == 1.5
    for text, said in (("a,b\n", "lacks the column"), (head + "h100-sxm,a,spot,free,,,,\n", "line 2")):
        with pytest.raises(SpecError, match=said):
            parse_table(text, "prices.csv")


def test_a_table_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hardware/prices.csv` below the working folder is used instead of archsim's own."""
    (tmp_path / "hardware").mkdir()
    head = "device,provider,terms,usd_per_device_hour,region,as_of,source,notes\n"
    (tmp_path / "hardware" / "prices.csv").write_text(head + "h100-sxm,me,on-demand,0.5,,2026-11,bill,\n")
    monkeypatch.chdir(tmp_path)
    assert [price.provider for price in price_table()] == ["me"]
    assert choose_price("me", load_hardware("h100-sxm")).price.usd_per_device_hour == 0.5
