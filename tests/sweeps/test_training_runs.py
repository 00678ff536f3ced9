"""Training runs crossed: every row is an answer of `archsim train`."""

from __future__ import annotations

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.sweeps.training_runs import MEMORY_PARTS, STEP_PARTS, training_figures


@pytest.mark.slow
def test_rows_are_answers() -> None:
    found = archsim.sweep_training("llama3-8b", "h100", devices=8, zero="1,3", micro_batch="1,2", recompute="none")
    rows = found.rows()
    assert [(row["zero"], row["micro_batch"]) for row in rows] == [(1, 1), (3, 1), (1, 2), (3, 2)]
    for row in rows:
        alone = archsim.train(
            "llama3-8b", "h100", devices=8, zero=row["zero"], micro_batch=row["micro_batch"], recompute="none"
        )
        assert training_figures(alone).items() <= row.items()
        assert sum(row[f"memory_{part}_bytes"] for part in MEMORY_PARTS) == pytest.approx(
            row["memory_bytes_per_device"]
        )
        assert sum(row[f"step_{part}_s"] for part in STEP_PARTS) == pytest.approx(row["step_expected_s"])


@pytest.mark.slow
def test_conditions_columns_and_the_front() -> None:
    asked = {"devices": "8,16", "zero": "1,3", "micro_batch": 1, "recompute": "none"}
    everything = archsim.sweep_training("llama3-8b", "h100", **asked).rows()  # type: ignore[arg-type]
    kept = archsim.sweep_training("llama3-8b", "h100", **asked, where="mfu > 0.55", columns="zero,mfu").rows()  # type: ignore[arg-type]
    assert kept == [
        {"zero": row["zero"], "mfu_causal": row["mfu_causal"]} for row in everything if row["mfu_causal"] > 0.55
    ]
    front = archsim.sweep_training("llama3-8b", "h100", **asked, pareto="step,memory").rows()  # type: ignore[arg-type]
    for row in everything:
        beaten = any(
            other["step_expected_s"] <= row["step_expected_s"]
            and other["memory_bytes_per_device"] <= row["memory_bytes_per_device"]
            for other in everything
            if other is not row
        )
        assert (row in front) != beaten


def test_a_run_that_cannot_be_is_a_row_with_its_reason() -> None:
    rows = archsim.sweep_training("llama3-8b", "h100", devices=8, tp="1,3").rows()
    assert rows[0]["error"] is None and "tp" in str(rows[1]["error"]) and rows[1]["step_expected_s"] is None


def test_what_cannot_be_asked() -> None:
    with pytest.raises(UsageError, match="no column of training runs"):
        archsim.sweep_training("llama3-8b", "h100", columns="tpot")
    with pytest.raises(UsageError, match="is no objective"):
        archsim.sweep_training("llama3-8b", "h100", pareto="stack")
    with pytest.raises(UsageError, match="is no range"):
        archsim.sweep_training("llama3-8b", "h100", micro_batch="some")
    for zero in ("x", "4", "1-3"):
        with pytest.raises(UsageError, match="`--zero` is 0 to 3"):
            archsim.sweep_training("llama3-8b", "h100", zero=zero)
    with pytest.raises(UsageError, match="more than"):
        archsim.sweep_training("llama3-8b", "h100", global_batch="1-100000+1")
    with pytest.raises(UsageError, match="no option named 'batch'"):
        archsim.sweep_training("llama3-8b", "h100", batch=1)  # type: ignore[call-arg]
