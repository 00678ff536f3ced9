"""Sessions on this machine's processor: complete, resumable, and no failure costs more than its own point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archsim.measure import runs, session, suites, table
from archsim.measure.plan import NAMES, Plan, make, points_of
from archsim.measure.point import Point, Result, Timing
from archsim.measure.session import Outcome, Session, done_before

ROOT = Path(__file__).resolve().parents[2]
CPU = "a-cpu"
ON_GPU_ONLY = {"probe": 1, "model": 2}
"""Points of toy size that a processor skips: a graph replayed, a program with Triton kernels."""


def small(*names: str) -> Plan:
    """A plan of toy size."""
    points = points_of(names or NAMES, "small", ("llama3-8b",))
    return make(points, 1e6, (), CPU, "small")


def ran(plan: Plan, out: Path, budget: float = 1e6) -> Outcome:
    """One session of it on the processor."""
    return Session(plan, out, "cpu", CPU, "torch 0", lambda text: None).run(budget, True, 1)


def kernels(out: Path) -> list[dict[str, str]]:
    """Rows that were measured."""
    return list(table.read(out / session.KERNELS))


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Point], Result]], None]:
    """Puts a function in place of the suites."""

    def replace(function: Callable[[Point], Result]) -> None:
        monkeypatch.setattr(suites, "run", lambda bench, point: function(point))

    return replace


def result(us: float = 1.0) -> Result:
    """Something measured."""
    return Result(timing=Timing(us=us, spread_pct=0.0, calls=1))


def test_every_suite_runs(tmp_path: Path) -> None:
    """At toy size every point of every suite is timed on a processor, but those that need a GPU."""
    outcome = ran(small(), tmp_path)
    assert outcome.skipped == ON_GPU_ONLY
    assert set(outcome.measured) == set(NAMES)
    for row in kernels(tmp_path):
        assert float(row["time_us"]) > 0
        assert float(row["spread_pct"]) >= 0
    found = runs.read(tmp_path / session.RUNS)
    assert {run["metric"] for run in found} == {"ttft_ms", "tpot_ms", "train_step_ms"}
    assert {run["model"] for run in found} == {"llama3-8b-tiny", "llama3.2-1b-tiny"}


def test_a_second_session_has_nothing_to_do(tmp_path: Path) -> None:
    """What was measured, or skipped for good, is not tried again."""
    plan = small("gemm", "probe")
    ran(plan, tmp_path)
    assert done_before(tmp_path) == {p.key(CPU) for p in plan.points}


def test_one_failure_costs_one_point(tmp_path: Path, instant: Any) -> None:
    """An exception is a reason in `skipped.csv`, and the others go on."""

    def fail_on_gemm(point: Point) -> Result:
        if point.suite == "gemm":
            raise RuntimeError("CUDA error:\nsomething odd")
        return result()

    instant(fail_on_gemm)
    outcome = ran(small("gemm", "moe"), tmp_path)
    assert outcome.skipped["gemm"] == len(small("gemm").points)
    assert outcome.measured["moe"] == len(small("moe").points)
    reasons = {row["reason"] for row in table.read(tmp_path / session.SKIPS)}
    assert reasons == {"RuntimeError: CUDA error: something odd"}


def test_a_lost_device_ends_the_session(tmp_path: Path, instant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device no longer answers, the session stops and says so; the next goes on behind the point."""
    from archsim.measure.bench import Bench

    def fail(point: Point) -> Result:
        raise RuntimeError("illegal address")

    instant(fail)
    monkeypatch.setattr(Bench, "alive", lambda self: False)
    plan = small("gemm")
    outcome = ran(plan, tmp_path)
    assert "stopped answering" in outcome.stopped
    assert outcome.left == len(plan.points) - 1
    assert done_before(tmp_path) == {plan.points[0].key(CPU)}


def test_a_budget_ends_the_session(tmp_path: Path, instant: Any) -> None:
    """No point begins when the time is over, and what is left is counted."""

    def slow(point: Point) -> Result:
        time.sleep(0.05)
        return result()

    instant(slow)
    outcome = ran(small("gemm"), tmp_path, budget=0.12)
    assert 0 < outcome.measured["gemm"] < len(small("gemm").points)
    assert outcome.left + outcome.measured["gemm"] == len(small("gemm").points)


def test_a_point_that_kills_the_process_is_left_out(tmp_path: Path, instant: Any) -> None:
    """Ended twice by the same point, the third session skips it with that reason."""
    plan = small("moe")
    bad = plan.points[0]

    def die(point: Point) -> Result:
        if point is bad:
            raise SystemExit(9)  # stands for a crash: nothing of the session's own handling runs
        return result()

    instant(die)
    for _ in range(session.MOST_TRIES):
        with pytest.raises(SystemExit):
            ran(plan, tmp_path)
    outcome = ran(plan, tmp_path)
    assert outcome.measured["moe"] == len(plan.points) - 1
    assert "the process ended" in next(table.read(tmp_path / session.SKIPS))["reason"]


def test_killed_and_resumed(tmp_path: Path) -> None:
    """kill -9 at any moment: the files stay readable, and the next run does the rest and nothing twice."""
    command = [
        sys.executable, "-m", "archsim", "measure", "--device", "cpu", "--size", "small", "--suite",
        "probe,gemm,attention,fused", "--out", str(tmp_path), "--json",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(kernels(tmp_path)) < 5 and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = kernels(tmp_path)
    with (tmp_path / session.KERNELS).open("a") as file:
        file.write("gemm,torn")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    after = kernels(tmp_path)
    keys = [table.key_of(row) for row in after]
    assert after[: len(before)] == before
    assert len(set(keys)) == len(keys)
    assert answer["resumed"] >= len(before)
    assert len(after) == len(small("probe", "gemm", "attention", "fused").points) - 1
