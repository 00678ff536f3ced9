"""The paths of a GPU, walked on a processor: torch.cuda is replaced by a clock, all other lines are the real ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from archsim.importers.opening import load_model
from archsim.measure import machine, runs, session, suites, table
from archsim.measure import model_run as loop
from archsim.measure.bench import Bench
from archsim.measure.plan import make, points_of
from archsim.measure.point import Point
from archsim.measure.session import Session
from archsim.measure.shapes import MODEL_FORMS
from archsim.measure.suite_model import unload

DEVICE = "h100-sxm"
MIB = 1 << 20


class Event:
    """A point in time."""

    at = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self) -> None:
        """Now."""
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing runs beside."""

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return (other.at - self.at) * 1e3


class Graph:
    """What was captured is not run again: a replay takes a known time."""

    seconds = 2e-3

    def replay(self) -> None:
        """Take that time."""
        time.sleep(self.seconds)


def constant(value: Any) -> Any:
    """A function of anything."""
    return lambda *_, **__: value


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench that believes to be on a GPU, its tensors in main memory."""
    replaced = {
        "Event": Event, "CUDAGraph": Graph, "Stream": lambda: SimpleNamespace(wait_stream=constant(None)),
        "current_stream": constant(SimpleNamespace(wait_stream=constant(None))), "clock_rate": constant(1980),
        "stream": constant(contextlib.nullcontext()), "graph": constant(contextlib.nullcontext()),
        "synchronize": constant(None), "empty_cache": constant(None), "_sleep": constant(None),
        "mem_get_info": constant((1 << 36, 1 << 36)), "memory_reserved": constant(0),
        "memory_allocated": constant(0), "max_memory_allocated": constant(3 << 30),
        "max_memory_reserved": constant(4 << 30), "reset_peak_memory_stats": constant(None),
        "get_device_name": constant("NVIDIA H100 80GB HBM3"),
        "get_device_properties": constant(
            SimpleNamespace(L2_cache_size=50 * MIB, multi_processor_count=132, major=9, minor=0)
        ),
    }  # fmt: skip
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    plain = Bench.__init__

    def init(self: Bench, device: str, quick: bool = False, watts: bool = False) -> None:
        plain(self, "cpu", quick=True)
        self.cuda, self.cache_bytes = True, 50 * MIB

    monkeypatch.setattr(Bench, "__init__", init)
    monkeypatch.setattr(Bench, "alive", constant(True))
    monkeypatch.setattr("archsim.measure.bench.MOST_COPIES", 3)
    monkeypatch.setattr("archsim.measure.bench.MEASURE_S", 0.005)
    bench = Bench("cuda")
    yield bench
    unload(bench)


def test_short_calls_are_captured_together(gpu: Bench) -> None:
    """The time of a replay is divided by the calls in it, and a call is captured often where it is short."""
    timing = gpu.time([lambda: None])
    assert timing.mode == "graph"
    assert timing.calls % 100 == 0
    assert timing.us == pytest.approx(Graph.seconds * 1e6 / 100, rel=1)


def test_long_calls_are_captured_once(gpu: Bench) -> None:
    """A call above 100 µs stands alone; without a graph it is issued as it is."""
    slow = gpu.time([lambda: time.sleep(3e-3)])
    assert slow.us == pytest.approx(Graph.seconds * 1e6, rel=1)
    issued = gpu.time([lambda: time.sleep(3e-3)], graph=False)
    assert issued.mode == "eager"
    assert issued.us > slow.us


def test_copies_leave_the_cache(gpu: Bench) -> None:
    """Copies are as many as three caches hold, and where the limit is lower the row says so."""
    assert gpu.copies(100 * MIB) == 3
    assert gpu.remark() == ""
    assert gpu.copies(1 * MIB) == 3
    assert "stay in the cache" in gpu.remark()
    assert gpu.remark() == ""


def test_a_session(gpu: Bench, tmp_path: Path) -> None:
    """Kernels, models and training at toy size: rows with a clock, runs with their peak memory."""
    names = ("probe", "gemm", "attention", "fused", "fp8", "moe", "model", "train")
    points = points_of(names, "small", ("llama3-8b", "gpt-oss-20b"))
    plan = make(points, 1e6, (), DEVICE, "small")
    outcome = Session(plan, tmp_path, "cpu", DEVICE, "torch 0", constant(None)).run(1e6, True, None)
    reasons = {row["reason"] for row in table.read(tmp_path / session.SKIPS)}
    assert all("triton" in reason.lower() for reason in reasons)
    assert sum(outcome.skipped.values()) <= 4
    assert {row["mode"] for row in table.read(tmp_path / session.KERNELS)} == {"graph", "eager"}
    found = runs.read(tmp_path / session.RUNS)
    assert {run["value"] for run in found if run["metric"] == "peak_mem_gb"} == {3.0}
    assert {run["reserved_gib"] for run in found if "reserved_gib" in run} == {4.0}


@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-20b", "deepseek-v3", "qwen3-8b"])
def test_forms_of_a_model(gpu: Bench, model: str) -> None:
    """A decode step as a graph and without one; the model stays until another is needed, then makes room."""
    for form in ("eager+graph", "eager"):
        assert form in MODEL_FORMS
        dims = {"batch": 2, "seq_q": 1, "seq_kv": 16}
        point = Point(suite="model", op="decode_step", kernel=form, dims=dims, model=model)
        found = suites.run(gpu, point)
        assert found.timing.mode == ("graph" if "graph" in form else "eager")
        assert (found.allocated, found.reserved) == (3 << 30, 4 << 30)
    loaded = gpu.held["model"]
    suites.run(gpu, Point(suite="gemm", op="gemm", kernel="linear", dims={"m": 1, "n": 16, "k": 16}))
    assert "model" not in gpu.held
    assert loaded.model.name == f"{model}-tiny"


def test_the_loop(gpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every op has a time between its events, and peaks are the device's."""
    monkeypatch.setattr(machine, "choose_device", constant("cuda"))
    monkeypatch.setattr("archsim.measure.model_run.triton_kernels", constant(loop.fused.EAGER))
    found = loop.measure_model(load_model("llama3-8b"), size="small", dtype="fp32", input_len=16)
    assert found.device == "cpu"  # where the tensors of this test are
    for phase in found.phases:
        assert (phase.mode, phase.allocated, phase.reserved) == ("graph", 3 << 30, 4 << 30)
        assert all(op.seconds > 0 for op in phase.ops)


def test_a_kernel_that_is_wrong_is_not_timed(gpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton kernels that differ from torch are skipped with the difference as reason."""
    from archsim.measure import suite_fused
    from archsim.measure.point import Skip

    monkeypatch.setattr(suite_fused, "_check_kernels", constant("a Triton kernel differs from torch"))
    with pytest.raises(Skip, match="differs from torch"):
        suite_fused.triton_kernels(gpu)
