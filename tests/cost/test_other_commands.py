"""Dollars in sweeps, simulations and training runs: those of `estimate`, and none without a price."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

import archsim as package
from archsim.base.errors import UsageError
from archsim.predict.priced_run import run_work

SWEEP = ("sweep", "llama3.1-8b", "--hw", "h100,l4", "--batch", "1,8", "--output-len", "64,256")


@pytest.mark.slow
def test_rows_of_a_sweep_are_estimates(archsim: Any) -> None:
    """Every column of dollars equals `estimate --price` at that point; each row names its price."""
    result = archsim(*SWEEP, "--price", "table", "--utilization", "0.5", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert len(rows) == 8 and "h100-sxm at $" in result.err
    for row in rows:
        e = package.estimate(
            "llama3.1-8b", row["hw"], batch=int(row["batch"]), output_len=int(row["output_len"]), price="table",
            utilization=0.5,
        )  # fmt: skip
        found = e.to_dict()["cost"]
        for name in ("usd_per_hour", "usd_per_m_output", "usd_per_m_input", "usd_per_m_output_all_in"):
            assert float(row[name]) == pytest.approx(found[name], rel=1e-12)
        assert float(row["usd_per_m_output_all_in_low"]) == pytest.approx(found["low"], rel=1e-12)
        assert (row["price_provider"], row["price_terms"]) == (found["price"]["provider"], found["price"]["terms"])


def test_a_sweep_without_a_price_has_no_dollars(archsim: Any) -> None:
    """Neither columns nor objectives; a device without a price has empty cells."""
    assert "usd" not in archsim(*SWEEP, "--format", "csv").out
    refused = archsim(*SWEEP, "--pareto", "usd_per_m_output,tpot")
    assert refused.code == 2 and "needs a price" in refused.err
    front = archsim(*SWEEP, "--price", "2", "--pareto", "usd_per_m_output,tpot", "--format", "csv").out
    assert front.count("\n") > 1
    found = archsim("sweep", "llama3.1-8b", "--hw", "h100,arc-a770", "--price", "table", "--format", "json")
    rows = {row["hw"]: row for row in json.loads(found.out)["rows"]}
    assert rows["arc-a770"]["usd_per_hour"] is None and rows["h100-sxm"]["usd_per_hour"] > 0
    assert "no price of arc-a770" in found.err


@pytest.mark.slow
def test_a_simulated_load_pays_for_idle_time(archsim: Any) -> None:
    """Dollars of an hour over the requests of an hour, at any rate; at a service level, those of the load found."""
    args = ("simulate", "llama3.1-8b", "--hw", "h100", "--requests", "150", "--replications", "2", "--expected-only")
    few, many = (json.loads(archsim(*args, "--rate", rate, "--price", "2.5", "--json").out) for rate in ("0.5", "4"))
    for found in (few, many):
        rate = found["throughput"]["requests_per_s"]["value"]
        assert found["cost"]["per_request"]["usd"] == pytest.approx(2.5 / 3600 / rate)
        parts = found["cost"]["per_request"]
        assert parts["input_usd"] + parts["cached_input_usd"] + parts["output_usd"] == pytest.approx(parts["usd"])
    assert few["cost"]["usd_per_m_output"] > many["cost"]["usd_per_m_output"]
    assert "cost" not in json.loads(archsim(*args, "--rate", "4", "--json").out)
    assert "\nCost" in archsim(*args, "--rate", "4", "--price", "2.5").out
    assert archsim(*args, "--rates", "1,2", "--price", "2").code == 2


def test_a_run_whose_requests_end_after_all_arrivals_has_a_price(archsim: Any) -> None:
    """A load far beyond what is served, of few requests: their rate is that of the whole run."""
    found = archsim("simulate", "gpt2-small", "--hw", "t4", "--replications", "1", "--requests", "30", "--rate", "100",
                    "--price", "2", "--json")  # fmt: skip
    answer = json.loads(found.out)
    rate = answer["throughput"]["output_tokens_per_s"]["value"]
    assert found.code == 0 and answer["cost"]["usd_per_m_output_all_in"] == pytest.approx(
        2 / 3600 / rate * 1e6, rel=1e-3
    )


def test_a_run_in_which_no_request_ends_has_no_price() -> None:
    """Nothing is divided by a rate of zero, nor by one that its interval begins with."""

    class Run:
        """What is asked of a simulation first."""

        def throughput(self) -> dict[str, SimpleNamespace]:
            """None end with the longest steps."""
            return {"requests_per_s": SimpleNamespace(low=0.0, value=1.0, high=2.0)}

    with pytest.raises(UsageError, match="no request ends in the measured time"):
        run_work(Run())  # type: ignore[arg-type]


def test_training_runs_at_named_prices(archsim: Any) -> None:
    """Device-hours times the price, with its provider and date; no dollars unasked."""
    args = ("train", "llama3-8b", "--hw", "h100", "--dp", "8", "--zero", "1", "--recompute", "none", "--tokens", "1B")
    run = json.loads(archsim(*args, "--price", "crusoe", "--json").out)["run"]
    assert run["usd"] == run["device_hours"] * run["price"]["usd_per_device_hour"]
    assert run["price"]["provider"] == "crusoe" and run["price"]["as_of"] in run["price_from"]
    plain = json.loads(archsim(*args, "--json").out)["run"]
    assert plain["usd"] is None and plain["tco2e"] is None
    watts = plain["energy"]["power_w_per_device"]
    assert 300 < watts <= 735 and plain["mwh"] == pytest.approx(plain["device_hours"] * watts / 1e6)
    green = json.loads(archsim(*args, "--grid", "100", "--pue", "1.1", "--json").out)["run"]
    assert green["tco2e"] == pytest.approx(plain["mwh"] * 1.425 * 1.1 * 0.1)


def test_candidates_of_a_comparison_have_dollars(archsim: Any) -> None:
    """Those of `estimate` at the price of each device; none without a price."""
    args = ("compare", "llama3.1-8b", "--hw", "h100,l40s", "--batch", "4")
    found = json.loads(archsim(*args, "--price", "table", "--json").out)["candidates"]
    for candidate in found:
        own = candidate["estimate"]["cost"]
        assert candidate["figures"]["usd_per_m_output"] == own["usd_per_m_output"]
        assert own["price"]["as_of"] or own["price"]["source"]
    assert found[1]["ratios"]["usd_per_hour"] == pytest.approx(
        found[1]["figures"]["usd_per_hour"] / found[0]["figures"]["usd_per_hour"]
    )
    page = archsim(*args, "--price", "2").out
    assert "$/M in" in page and "$2 per device-hour" in page and "$" not in archsim(*args).out


def test_a_sweep_states_prices_without_a_warning(archsim: Any) -> None:
    """What a device costs is a note; a warning is what to mind about the price."""
    found = archsim("sweep", "llama3.1-8b", "--hw", "l40s", "--price", "1.5", "--columns", "hw,usd_per_hour")
    assert found.code == 0 and "note: l40s at $1.5" in found.err and "warning: l40s" not in found.err
    assert "usd_per_hour" in found.out and "1.5" in found.out
    cheap = archsim("sweep", "llama3.1-8b", "--hw", "l40s", "--price", "cheapest", "--json")
    assert any("l40s at" in line for line in json.loads(cheap.out)["notes"])
