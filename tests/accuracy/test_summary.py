"""Error figures against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from archsim.accuracy.rows import Refused, Rows
from archsim.accuracy.validation import Validation, join_validations


def rows(measured: list[float], predicted: list[float], metric: str = "time_us", **changes: Any) -> Rows:
    """Rows of one metric whose intervals are 0.8 to 1.25 times the prediction, and whose roofline is half of it."""
    count, said = len(measured), np.array(predicted, float)
    values: dict[str, Any] = {
        "ids": [str(i) for i in range(count)], "metrics": [metric] * count, "measured": np.array(measured, float),
        "predicted": said, "low": 0.8 * said, "high": 1.25 * said, "naive": 0.5 * said,
        "evidence": ["datasheet"] * count, "labels": {"op": ["a"] * count}, "counted": np.ones(count, bool),
        "titles": [f"row {i}" for i in range(count)], "peers": np.zeros(count, int),
    }  # fmt: skip
    return Rows(**{**values, **changes})


def test_figures_of_four_rows() -> None:
    """Errors +10 %, -20 %, +50 % and 0 of times 10, 20, 100 and 40."""
    summary = Validation(kind="kernels", rows=rows([10, 20, 100, 40], [11, 16, 150, 40])).summary
    assert summary["median_ape"] == pytest.approx(0.15)
    assert summary["mape"] == pytest.approx(0.2)
    assert summary["p90_ape"] == pytest.approx(0.41)
    assert summary["time_weighted_error"] == pytest.approx((1 + 4 + 50 + 0) / 170)
    assert summary["bias"] == pytest.approx(0.05)
    assert summary["coverage_80"] == pytest.approx(0.75)
    assert summary["within_10"] == pytest.approx(0.5)
    assert summary["median_high_over_low"] == pytest.approx(1.25 / 0.8)
    assert summary["naive"]["bias"] == pytest.approx(np.median([0.55, 0.4, 0.75, 0.5]) - 1)
    assert (summary["rows"], summary["refused"]) == (4, 0)


def test_rates_are_weighted_by_the_seconds_of_a_token() -> None:
    """5 tokens/s predicted as 10: 0.1 s where it was 0.2 s."""
    summary = Validation(kind="runs", rows=rows([5, 10], [10, 10], metric="decode_tok_s")).summary
    assert summary["time_weighted_error"] == pytest.approx(0.1 / 0.3)
    assert summary["bias"] == pytest.approx(0.5)


def test_nothing_measured_has_no_figures() -> None:
    """Null, never NaN."""
    summary = Validation(kind="kernels", rows=rows([float("nan")], [1.0])).summary
    assert summary["median_ape"] is summary["coverage_80"] is summary["naive"]["mape"] is None
    assert summary["pairs"] == {"count": 0, "ranked_right": None}


def test_groups_hold_all_rows() -> None:
    """Each dimension splits the rows; a row without a label is in none of its groups."""
    labels = {"op": ["a", "b", "b", ""], "device": ["x"] * 4}
    answer = Validation(kind="kernels", rows=rows([1, 2, 3, 4], [1, 2, 3, 4], labels=labels))
    by = answer.summary["by"]
    assert {name: found["rows"] for name, found in by["op"].items()} == {"b": 2, "a": 1}
    assert by["device"]["x"]["rows"] == by["evidence"]["datasheet"]["rows"] == 4


def test_pairs_of_the_same_work_are_ranked() -> None:
    """Three rows of one kind of work: of the pairs that differ by more than 5 %, one of two is in order."""
    answer = Validation(kind="kernels", rows=rows([10, 20, 10.2, 5], [5, 4, 6, 1], peers=np.array([0, 0, 0, 1])))
    assert answer.summary["pairs"] == {"count": 2, "ranked_right": 0.0}
    better = Validation(kind="kernels", rows=rows([10, 20, 30], [1, 5, 2], peers=np.zeros(3, int)))
    assert better.summary["pairs"] == {"count": 3, "ranked_right": pytest.approx(2 / 3)}


def test_worst_rows_are_those_off_by_the_largest_factor() -> None:
    """Ten times too slow is as bad as ten times too fast."""
    answer = Validation(kind="kernels", rows=rows([10, 10, 10, 10], [11, 1, 100, 50]))
    assert set(answer.worst(2)) == {1, 2}
    assert answer.worst(3)[2] == 3


def test_joined_answers_keep_ids_apart() -> None:
    """Ids that occur in two files are prefixed with the file's name; others stay."""
    first, second = (
        Validation(kind="kernels", rows=rows([1], [1]), files=(name,), refused=(Refused("7", "time_us", "why"),))
        for name in ("a.csv", "b.csv")
    )
    both = join_validations([first, second])
    assert list(both.rows.ids) == ["a.csv:0", "b.csv:0"]
    assert [refused.id for refused in both.refused] == ["a.csv:7", "b.csv:7"]
    assert both.summary["pairs"]["count"] == 0
    other = Validation(kind="kernels", rows=rows([1], [1], ids=["own"]), files=("c.csv",))
    assert list(join_validations([first, other]).rows.ids) == ["0", "own"]
