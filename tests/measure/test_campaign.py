"""The unattended campaign, end to end on this machine's processor at toy size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from archsim.measure import runs, table

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "device" / "campaign.sh"
RESULTS = {
    "blind.json", "kernels.csv", "runs.yaml", "skipped.csv", "device.json", "report.md", "campaign.log", "rest.tar.gz"
}  # fmt: skip


def campaign(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """One run of the script."""
    env = {**os.environ, "OUT": str(out), "PYTHON": sys.executable}
    command = ["bash", str(SCRIPT), "--device", "cpu", "--size", "small", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)


def test_end_to_end(tmp_path: Path) -> None:
    """Predictions first, then measurements, then a report that joins them; all within the total.

    The device is given a catalog name that it is not, so that every prediction is made.
    """
    done = campaign(tmp_path, "--total", "100", "--models", "llama3-8b", "--hw", "h100-sxm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {p.name for p in tmp_path.iterdir()} == RESULTS
    blind = json.loads((tmp_path / "blind.json").read_text())
    assert len(blind["constants_sha256"]) == 64
    predicted = {tuple(row["key"]) for row in blind["kernels"]}
    measured = {table.key_of(row) for row in table.read(tmp_path / "kernels.csv")}
    assert predicted & measured
    timed = runs.keys(runs.read(tmp_path / "runs.yaml"))
    assert {tuple(run["key"]) for run in blind["runs"]} & timed
    report = (tmp_path / "report.md").read_text()
    assert "| gemm | bf16 | held |" in report
    assert "llama3-8b-tiny tpot_ms" in report
    assert (tmp_path / "blind.json").stat().st_mtime <= (tmp_path / "kernels.csv").stat().st_mtime


def test_a_second_run_keeps_the_predictions(tmp_path: Path) -> None:
    """Predictions made before a measurement are not made again after it."""
    (tmp_path / "blind.json").write_text('{"kernels": [], "runs": []}')
    done = campaign(tmp_path, "--total", "12", "--models", "llama3-8b")
    assert "blind.json is kept" in done.stdout
    assert (tmp_path / "blind.json").read_text() == '{"kernels": [], "runs": []}'


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    """A misspelt option ends the script before anything runs."""
    assert campaign(tmp_path / "out", "--totl", "9").returncode == 2
    assert not (tmp_path / "out").exists()
