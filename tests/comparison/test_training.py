"""Training runs beside each other."""

from __future__ import annotations

from math import hypot, log

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.comparison.training import TrainingComparison


@pytest.mark.slow
def test_ratios_are_of_the_time_of_a_token() -> None:
    found = archsim.compare_training("llama3-8b", "h100,b200", devices=8, zero=1, micro_batch=1, recompute="none")
    first, other = found.rows
    ratio = found.ratio(1)
    assert ratio is not None
    assert ratio.value == pytest.approx(first["tokens_per_s"] / other["tokens_per_s"])
    assert ratio.low < ratio.value < ratio.high and ratio.faster > 0.9
    itself = found.ratio(0)
    assert itself is not None and (itself.value, itself.low, itself.high) == (1, 1, 1)
    assert found.order == [1, 0] and found.fits
    data = found.to_dict()
    assert data["schema"] == "archsim.compare-training/1" and len(data["candidates"]) == 2
    text = str(found)
    assert "b200-sxm trains" in text and "Memory per device" in text and "vs first" in text


@pytest.mark.slow
def test_runs_with_the_same_errors_are_told_apart_better() -> None:
    """On one device with one stack a part of the error is common to both."""
    asked = {"devices": 8, "zero": "1,3", "micro_batch": 1, "recompute": "none"}
    same = archsim.compare_training("llama3-8b", "h100", **asked).ratio(1)  # type: ignore[arg-type]
    stacks = {**asked, "zero": 1, "stack": "megatron-core,torchtitan"}
    others = archsim.compare_training("llama3-8b", "h100", **stacks).ratio(1)  # type: ignore[arg-type]
    assert same is not None and others is not None
    rows = archsim.compare_training("llama3-8b", "h100", **stacks).rows  # type: ignore[arg-type]
    one, two = (log(row["step_high_s"] / row["step_expected_s"]) for row in rows)
    assert log(others.high / others.value) == pytest.approx(hypot(one, two))
    generic = archsim.train("llama3-8b", "h100", devices=8, micro_batch=1).interval
    assert log(same.high / same.value) == pytest.approx(generic)


def test_none_that_fits_and_none_that_can_be() -> None:
    large = archsim.compare_training("llama3-70b", "h100", devices=1, recompute="none,full")
    assert not large.fits and "none of the runs fits" in str(large)
    impossible: TrainingComparison = archsim.compare_training("llama3-8b", "h100", devices=8, tp="3,5")
    assert impossible.order == [] and impossible.ratio(1) is None and "no answer" not in impossible.to_dict()
    assert "none of the runs has an answer" in str(impossible)
    with pytest.raises(UsageError, match="nothing to compare"):
        archsim.compare_training("llama3-8b", "h100", devices=8)


@pytest.mark.slow
def test_the_report_has_its_charts() -> None:
    found = archsim.report_training("llama3-8b", "h100", devices=8, zero="1,3", recompute="none", plotlyjs="cdn")
    assert "trains" in found.verdict
    assert "Memory per device" in found.html and 'id="chart-memory"' in found.html
    assert found.comparison.figure("step").data


def test_memory_is_in_one_unit() -> None:
    """The numbers at the bars, in the sentence and in the table are in the unit of the axis."""
    answer = archsim.compare_training(
        "gpt2-small", "h100", zero="0,1", devices=1, micro_batch=1, global_batch=1, seq_len=256
    )
    figure = answer.figure("memory")
    assert figure.layout.xaxis.title.text == "GiB"
    shown = [note.text for note in figure.layout.annotations if note.text]
    assert any("GiB" in text for text in shown) and not any(" GB" in text for text in shown)
