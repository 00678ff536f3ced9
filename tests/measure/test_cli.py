"""`archsim measure` as a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archsim.measure import table
from archsim.measure.plan import NAMES

Archsim = Callable[..., Any]


def test_list(archsim: Archsim) -> None:
    """Every suite with its points, as a table and as data."""
    shown = archsim("measure", "--list")
    assert shown.code == 0
    assert all(name in shown.out for name in NAMES)
    data = json.loads(archsim("measure", "--list", "--device", "cpu", "--json").out)
    assert data["size"] == "small"
    assert set(data["suites"]) == set(NAMES)


def test_a_plan_needs_no_device(archsim: Archsim, tmp_path: Path) -> None:
    """For a device by name, without torch or the device; what can be predicted is."""
    path = tmp_path / "plan.csv"
    done = archsim("measure", "--plan", str(path), "--hw", "h100", "--suite", "gemm,attention", "--budget", "60s")
    assert done.code == 0, done.err
    rows = list(table.read(path))
    assert {row["device"] for row in rows} == {"h100-sxm"}
    assert f"{len(rows)} kernels" in done.out
    answer = json.loads(archsim("validate", str(path), "--json").out)
    assert len(answer["rows"]) == len(rows)
    assert {row["measured"] for row in answer["rows"]} == {None}


def test_a_plan_needs_a_name(archsim: Archsim, tmp_path: Path) -> None:
    """Without a device there is nothing to plan for."""
    done = archsim("measure", "--plan", str(tmp_path / "plan.csv"))
    assert done.code == 2
    assert "--hw" in done.err


def test_planning_imports_no_torch(archsim_process: Any, tmp_path: Path) -> None:
    """Lists and plans are answered without torch, which takes seconds to import."""
    code = (
        "import sys; from archsim.cli.main import main; main(['measure', '--list']); "
        "main(['measure', '--plan', sys.argv[1], '--hw', 'h100']); assert 'torch' not in sys.modules"
    )
    import os
    import subprocess
    import sys

    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "p.csv")], env=env, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--suite", "gem"), "no suite named"),
        (("--budget", "soon"), "no budget"),
        (("--model", "no-such-model", "--suite", "model"), "no model named"),
    ],
)
def test_refused_before_anything_runs(archsim: Archsim, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """A misspelt suite, budget or model is a usage error, and no folder is made."""
    out = tmp_path / "out"
    done = archsim("measure", "--device", "cpu", "--out", str(out), *options)
    assert done.code == 2
    assert said in done.err
    assert not out.exists()


def test_measured_and_resumed(archsim: Archsim, tmp_path: Path) -> None:
    """A session prints a table; the second one finds everything done; --no-resume refuses to mix."""
    command = ("measure", "--device", "cpu", "--suite", "gemm,moe", "--out", str(tmp_path), "--no-color")
    first = archsim(*command)
    assert first.code == 0, first.err
    assert "gemm" in first.out
    assert "points measured" in first.out
    second = json.loads(archsim(*command, "--json").out)
    assert second["schema"] == "archsim.measure/1"
    assert second["suites"] == {}
    assert second["resumed"] == 11
    third = archsim(*command, "--no-resume")
    assert third.code == 2
    assert "holds results already" in third.err
