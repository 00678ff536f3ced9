"""The whole loop on the processor that runs the tests, in two minutes at most: measure, fit, predict, time, compare.

Nothing is asked of a clock. A machine that others disturb gives too few rows, and says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

MODEL = """name: tiny
d_model: 576
vocab_size: 8192
max_context: 2048
final_norm: {kind: rmsnorm, eps: 1.0e-6}
head: {tied: true}
layers:
  - repeat: 4
    norm: {kind: rmsnorm, eps: 1.0e-6}
    attention: {kind: gqa, n_heads: 9, n_kv_heads: 3, d_head: 64, position: {kind: rope, theta: 10000}}
    ffn: {kind: swiglu, d_ff: 1536}
weights: {default: bf16}
"""
FEWEST = 6
"""Undisturbed cases without which nothing can be said."""


def _run(folder: Path, *arguments: str) -> Any:
    """The JSON answer of a command in a folder of its own."""
    command = [sys.executable, "-m", "archsim", *arguments, "--json", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_measure_fit_predict_and_compare(tmp_path: Path) -> None:
    measured = _run(tmp_path, "measure", "--here", "--budget", "55s")
    (device,) = (tmp_path / "hardware" / "devices").glob("*.yaml")
    assert (tmp_path / "measured" / device.stem / "kernels.csv").is_file()
    if not list((tmp_path / "hardware" / "calibration").rglob("calibration.yaml")):
        pytest.skip(f"too few kernels were timed undisturbed: {measured['suites']}")
    (tmp_path / "tiny.yaml").write_text(MODEL)
    found = _run(tmp_path, "validate", "tiny.yaml", "--device", "cpu", "--budget", "40s", "--out", "models")
    assert len(found["plan_sha256"]) == 64
    assert (tmp_path / found["plan"]).is_file()
    timed = [row for row in found["rows"] if row.get("measured_s")]
    if len(timed) < FEWEST:
        pytest.skip(f"only {len(timed)} cases were timed undisturbed")
    assert all(row["peak_bytes"] > row["weight_bytes"] for row in timed)
    within = [1 / 4 < row["predicted_s"] / row["measured_s"] < 4 for row in timed]
    assert sum(within) > len(within) / 2
