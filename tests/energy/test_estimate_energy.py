"""`estimate --energy`: watts and joules of an estimate, under limits, as data and as a page."""

from __future__ import annotations

import json
from typing import Any

import pytest

import archsim as package

SERVED = {"concurrency": 32, "input_len": 1024, "output_len": 256}


def test_joules_are_watts_and_time() -> None:
    """Power x time / tokens, for all devices; bounded by idle and limit."""
    e = package.estimate("llama3.1-8b", "h100", devices=2, energy=True, grid=400, **SERVED)
    found, carbon = e.to_dict()["energy"], e.to_dict()["carbon"]
    assert e.serving is not None
    assert found["j_per_output_token"] == pytest.approx(found["power_w"] / e.serving.tokens_per_s)
    assert found["power_w"] == 2 * found["power_w_per_device"] and 200 < found["power_w_per_device"] <= 735
    assert found["low_w"] < found["power_w"] < found["high_w"]
    assert found["j_low"] < found["j_per_output_token"] < found["j_high"]
    assert found["kwh"] == pytest.approx(found["j_per_output_token"] / 3.6)
    assert carbon["g_per_m_tokens"] == pytest.approx(found["kwh"] * 1.425 * 1.2 * 400)
    assert "energy" not in package.estimate("llama3.1-8b", "h100", **SERVED).to_dict()


def test_a_limit_takes_time_and_saves_power() -> None:
    """Never faster, never above the limit; a limit that does not bind changes nothing."""
    free = package.estimate("llama3.1-8b", "h100", energy=True, **SERVED).to_dict()
    tight = package.estimate("llama3.1-8b", "h100", power_limit=350, **SERVED).to_dict()
    loose = package.estimate("llama3.1-8b", "h100", power_limit=10_000, **SERVED).to_dict()
    assert tight["serving"]["tpot_s"] > free["serving"]["tpot_s"] == loose["serving"]["tpot_s"]
    assert tight["energy"]["power_w"] <= 350 < free["energy"]["power_w"]
    assert tight["phases"]["prefill"]["expected_s"] > free["phases"]["prefill"]["expected_s"]
    priced = package.estimate("llama3.1-8b", "h100", power_limit=350, price=2, **SERVED).to_dict()
    dearer = priced["cost"]["usd_per_m_output"]
    assert dearer > package.estimate("llama3.1-8b", "h100", price=2, **SERVED).to_dict()["cost"]["usd_per_m_output"]


def test_the_page_names_scopes(archsim: Any) -> None:
    """Devices, nodes and facility; a device that nobody measured is answered with a wide interval."""
    out = archsim("estimate", "llama3.1-8b", "--hw", "h100", "--energy", "--grid", "50", "--pue", "1.1").out
    assert "devices, per output token" in out and "facility, per output token" in out and "PUE 1.1" in out
    assert "CO2" in out and "g/kWh" in out
    other = package.estimate("llama3.1-8b", "mi300x", energy=True).to_dict()["energy"]
    assert other["evidence"] == "datasheet" and other["high_w"] / other["low_w"] > 1.5


def test_electricity_of_an_own_machine() -> None:
    """On top of the capital: watts of the node, PUE and the price of a kWh."""
    free, paid = (
        package.estimate("llama3.1-8b", "h100", capex=30000, **extra, **SERVED).to_dict()["cost"]
        for extra in ({}, {"power_price": 0.12, "pue": 1.3})
    )
    power = paid["usd_per_hour"] - free["usd_per_hour"]
    assert 0.3 * 1.25 * 1.3 * 0.12 < power < 0.735 * 1.6 * 1.3 * 0.12 and "kWh" in paid["price"]["source"]


@pytest.mark.parametrize(
    "args", [("--power-limit", "20"), ("--pue", "0.5", "--energy"), ("--grid", "-1"), ("--pue", "1.1")]
)
def test_factors_that_cannot_be_are_refused(archsim: Any, args: tuple[str, ...]) -> None:
    """With exit code 2."""
    assert archsim("estimate", "gpt2-small", "--hw", "h100", *args).code == 2


def test_power_of_a_table_is_validated(archsim: Any, tmp_path: Any) -> None:
    """Both metrics of each row; what was measured does not change the prediction; a row without a load is refused."""
    head = "id,device,n_devices,model,weights,engine,task,tp,ep,avg_batch,avg_output_len,power_w,j_per_output_token\n"
    row = "{},h100-sxm,1,meta-llama/Llama-3.1-8B-Instruct,bf16,vllm 0.11.1,lm-arena-chat,1,1,{},600,{},{}\n"
    (tmp_path / "a.csv").write_text(head + row.format("x", 32, 500, 0.2) + row.format("y", "", 500, 0.2))
    (tmp_path / "b.csv").write_text(head + row.format("x", 32, 100, 9.9))
    found, other = (json.loads(archsim("validate", str(tmp_path / n), "--json").out) for n in ("a.csv", "b.csv"))
    assert found["kind"] == "energy" and {r["metric"] for r in found["rows"]} == {"power_w", "j_per_output_token"}
    assert [r["predicted"] for r in found["rows"]] == [r["predicted"] for r in other["rows"]]
    assert len(found["refused"]) == 2 and "avg_batch" in found["refused"][0]["reason"]
    assert all(r["low"] < r["predicted"] < r["high"] for r in found["rows"])
