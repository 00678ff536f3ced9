"""Runs under load: answered where the closed form can, refused with the reason where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accuracy import tables as t

import archsim

ROW: dict[str, Any] = {
    "id": "a", "engine": "vllm", "engine_version": "0.12.0", "model": "llama3-8b", "device": "h100-sxm", "n_devices": 1,
    "tp": 1, "disaggregated": "no", "speculative": "none", "arrival": "closed loop", "concurrency": 16, "isl": 1024,
    "osl": 1024, "lengths": "", "ttft_mean_ms": 100.0, "ttft_p99_ms": 500.0, "tpot_mean_ms": 10.0,
    "output_tok_s": 1500.0,
}  # fmt: skip


def answer(path: Path, **changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = archsim.validate(t.write(path / "f.csv", [ROW | changes])).to_dict()
    return told


def test_means_are_answered_and_percentiles_refused(tmp_path: Path) -> None:
    """Each metric once, in `rows` or `refused`; throughput is what TTFT, TPOT and the requests that run say."""
    told = answer(tmp_path)
    assert told["kind"] == "loaded"
    found = {row["metric"]: row["predicted"] for row in told["rows"]}
    assert set(found) == {"ttft_mean_ms", "tpot_mean_ms", "output_tok_s"}
    assert [row["metric"] for row in told["refused"]] == ["ttft_p99_ms"]
    cycle_ms = found["ttft_mean_ms"] + 1023 * found["tpot_mean_ms"]
    assert found["output_tok_s"] == pytest.approx(16 * 1024 / cycle_ms * 1e3)


def test_shorter_requests_are_quicker(tmp_path: Path) -> None:
    """Lengths between 0.8 and 1 of the nominal are 0.9 of it in the mean."""
    spread = answer(tmp_path, lengths="random, uniform 0.8..1 of nominal")["rows"]
    whole = answer(tmp_path, isl=922, osl=922)["rows"]
    assert [row["predicted"] for row in spread] == [row["predicted"] for row in whole]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"disaggregated": "yes"}, "not modelled"),
        ({"speculative": "mtp"}, "speculative"),
        ({"arrival": "open loop (Poisson)"}, "steady state"),
        ({"concurrency": ""}, "concurrency"),
        ({"model": "deepseek-v3"}, "of weights on each device"),
    ],
)
def test_what_no_closed_form_answers_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    told = answer(tmp_path, **changes)
    assert not told["rows"] and len(told["refused"]) == 4
    assert all(reason in row["reason"] for row in told["refused"])
