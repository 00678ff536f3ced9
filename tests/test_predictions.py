"""No predicted number changes unseen."""

from __future__ import annotations

import predictions
import pytest

REMAKE = "if this is meant: `make golden` writes the table anew; say in CHANGELOG.md why the numbers moved"


@pytest.mark.slow
@pytest.mark.parametrize("device", predictions.DEVICES)
def test_predictions_are_those_of_the_table(device: str) -> None:
    """TTFT, TPOT, memory, KV tokens and device count of every model of the catalog on a device."""
    _assert_unmoved(device, predictions.model_names())


def test_a_sample_of_predictions_is_that_of_the_table() -> None:
    """A twenty-fourth of the models, a device each: what the fast tests have time for."""
    for number, device in enumerate(predictions.DEVICES):
        _assert_unmoved(device, predictions.model_names()[number :: 24 * len(predictions.DEVICES)])


def _assert_unmoved(device: str, models: list[str]) -> None:
    golden = {key: row for key, row in predictions.golden().items() if key[0] in models and key[1] == device}
    moved = predictions.changes(golden, predictions.predicted(device, models))
    assert not moved, f"\n{predictions.summary(moved)}\n{REMAKE}"


def test_the_table_is_sorted_and_has_every_pair_once() -> None:
    """A merge may have left rows of both sides in it."""
    lines = predictions.TABLE.read_text("utf-8").splitlines()
    keys = [tuple(line.split(",")[:2]) for line in lines[1:]]
    wanted = sorted((model, device) for model in predictions.model_names() for device in predictions.DEVICES)
    assert keys == wanted, REMAKE


def test_a_change_is_seen() -> None:
    """A number that moves by 0.1 %, one that disappears and a row that is missing are each reported."""
    key = ("a", "x")
    row = {"devices": "1", "ttft_ms": "10.000", "tpot_ms": "2", "memory_gb": "3", "kv_tokens": "4"}
    assert predictions.changes({key: row}, {key: dict(row)}) == []
    assert predictions.changes({key: row}, {key: {**row, "ttft_ms": "10.0005"}}) == []
    moved = predictions.changes({key: row}, {key: {**row, "ttft_ms": "10.01", "tpot_ms": ""}})
    assert [change.column for change in moved] == ["tpot_ms", "ttft_ms"]
    assert "+0.10%" in predictions.summary(moved)
    assert len(predictions.changes({key: row}, {})) == len(predictions.NUMBERS)
