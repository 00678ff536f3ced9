"""Starts of engines that are published with what they printed: every case of the file goes through `fit`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("engine_logs", ROOT / "benchmarks/accuracy/engine_logs.py")
assert SPEC is not None and SPEC.loader is not None
engine_logs: Any = importlib.util.module_from_spec(SPEC)
sys.modules["engine_logs"] = engine_logs
SPEC.loader.exec_module(engine_logs)

CASES = yaml.safe_load((ROOT / "tests/facts/engine_logs.yaml").read_text("utf-8"))["cases"]
STARTS = engine_logs.read_starts(CASES)


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.id)
def test_published_start(start: Any) -> None:
    """The verdict is that of the log, and what is left for the cache within 7 % of it, in bytes and in tokens."""
    if start.refused:
        assert start.id in ("V07", "V11")
        return
    assert start.agrees
    assert all(abs(error) <= 0.07 for error in start.errors.values()), start.errors


def test_errors_together() -> None:
    """The median over all figures that the logs state."""
    sizes = [abs(error) for start in STARTS for error in start.errors.values()]
    assert len(sizes) >= 10 and median(sizes) <= 0.02


def test_every_field_is_read() -> None:
    """A field that means nothing to `fit` is refused, not skipped."""
    (case,) = (case for case in CASES if case["id"] == "V07")
    stated = {**case, "runnable": True, "gpu": "RTX5090-32"}
    assert "layer_partition" in engine_logs.read_start(stated).refused
    assert engine_logs.options(CASES[7])["visible_memory"] == 8 * 2**30
    assert engine_logs.options(CASES[8])["enforce_eager"] is True
    assert engine_logs.options(CASES[2])["engine"] == "vLLM@0.2.0"


def test_a_start_that_contradicts() -> None:
    """A log that states the opposite is seen as one that differs, and the error is that of its own figures."""
    case = {**CASES[3], "expect": {"fits": False, "kv_gib": 100.0}}
    start = engine_logs.read_start(case)
    assert start.agrees is False and start.errors["kv_gib"] == pytest.approx(-0.486, abs=0.01)
    assert "DIFFERS" in engine_logs.table([start])
