"""Rows of run lists and serving tables whose plan or workload is incomplete: inferred where one reading is possible,
refused with the reason otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accuracy import tables as t

import archsim

MOE: dict[str, Any] = {
    "model": "deepseek-v3", "device": "h200", "n_devices": 8, "tp": 1, "isl": 1024, "osl": 256, "batch": 64,
    "weights_dtype": "fp8_block",
}  # fmt: skip


def answer(path: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = archsim.validate(t.write(path / "f.csv", list(rows))).to_dict()
    return told


def test_attention_replicas_are_inferred_where_only_they_can_run(tmp_path: Path) -> None:
    """671 B parameters on one of eight devices are no replica: the devices share the experts."""
    rows = [t.run("tpot_ms", **MOE, ep=8, dp=8), t.run("tpot_ms", **MOE, ep=8), t.run("tpot_ms", **MOE)]
    told = answer(tmp_path, *rows)
    stated, *inferred = (row["predicted"] for row in told["rows"])
    assert inferred == [stated, stated]
    assert stated < 100
    assert any("dp 8" in note for note in told["notes"])


def test_a_serving_point_without_replicas_has_those_of_its_experts(tmp_path: Path) -> None:
    """tp x dp = moe_tp x moe_ep, so that tp 1 and moe_ep 8 are eight attention replicas."""
    point = t.point(model_path="deepseek-ai/DeepSeek-V3", system="h200_sxm", tp_size=1, moe_ep_size=8)
    told = answer(tmp_path, {**point, "attention_dp_size": 8}, {**point, "attention_dp_size": ""})
    found = [row["predicted"] for row in told["rows"] if row["metric"] == "tpot_ms"]
    assert len(found) == 2 and found[0] == found[1]


def test_replicas_that_fit_stay_replicas(tmp_path: Path) -> None:
    """Eight copies of a small model each do an eighth of the sum."""
    rates = answer(tmp_path, *(t.run("decode_tok_s", definition="decode_rate_sum", n_devices=n, tp=1) for n in (1, 8)))[
        "rows"
    ]
    assert rates[1]["predicted"] == pytest.approx(8 * rates[0]["predicted"])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (t.run("tpot_ms", **{**MOE, "model": "llama3.1-405b"}), "of weights on each device, which has"),
        (t.run("throughput_tok_s", **{**MOE, "n_devices": 1, "batch": None}), "of weights on each device"),
        (t.run("tpot_ms", **{**MOE, "tp": 4}, ep=3), "ep 3 does not divide"),
        (t.run("tpot_ms", **{**MOE, "n_devices": 1}, ep=8), "ep 8 does not divide"),
        (t.run("throughput_tok_s", model="llama3.1-405b", device="h100", n_devices=8, tp=8, weights_dtype="fp8",
               isl=900_000, osl=1000, batch=None), "no room for a request of 901,000 tokens"),
        (t.run("tpot_ms", batch=None), "no batch is stated"),
        (t.run("decode_tok_s", batch=None), "no batch is stated"),
        (t.run("latency_s", isl=None, osl=None), "neither isl nor osl is stated"),
        (t.run("throughput_tok_s", isl=None, osl=None, batch=None), "neither isl nor osl is stated"),
        (t.run("decode_tok_s", isl=None, osl=None, batch=256), "make a step"),
    ],
)  # fmt: skip
def test_what_is_not_stated_is_not_guessed(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    told = answer(tmp_path, row)
    assert not told["rows"]
    assert reason in told["refused"][0]["reason"]


def test_a_context_that_decides_little_need_not_be_stated(tmp_path: Path) -> None:
    """A step of one sequence without lengths lies between that of a short and that of a longer context."""
    lengths = ((None, None), (0, 1), (512, 1))
    rows = [t.run("decode_tok_s", isl=isl, osl=osl, batch=1) for isl, osl in lengths]
    unknown, short, long = answer(tmp_path, *rows)["rows"]
    assert long["predicted"] <= unknown["predicted"] <= short["predicted"]
    assert unknown["low"] <= long["predicted"] and short["predicted"] <= unknown["high"]
