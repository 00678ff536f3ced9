"""The predicted step as a timeline: whole, in order, without overlaps, and loadable."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one device": ("llama3-8b", "h100", {}),
    "tensor parallel": ("llama2-70b", "h100", {"tp": 4}),
    "experts": ("deepseek-v3", "h200", {"tp": 8, "dp": 2, "ep": 16, "engine": "vllm"}),
    "pattern of layers": ("gemma3-27b", "a100", {"tp": 2}),
    "stages": ("llama2-70b", "a100", {"tp": 2, "pp": 4, "batch": 3}),
    "layers split": ("llama2-13b", "rtx-4090", {"devices": 3, "engine": "llamacpp"}),
    "both stacks": ("t5-large", "l40s", {}),
    "an engine's own work": ("llama3-8b", "h100", {"engine": "hf"}),
}


@pytest.fixture(params=[(name, phase) for name in CASES for phase in ("prefill", "decode")], ids="-".join)
def drawn(request: pytest.FixtureRequest) -> Any:
    """A trace of each case and phase."""
    name, phase = request.param
    model, hw, options = CASES[name]
    return archsim.trace(model, hw, phase=phase, **options)


@pytest.mark.sampled(4)
def test_a_trace_lasts_as_long_as_its_phase(drawn: Any) -> None:
    """The last slice ends when the expected time is over."""
    end = max(s.start + s.duration for s in drawn.slices)
    assert end == pytest.approx(drawn.phase.expected_s, rel=1e-9)
    assert min(s.start for s in drawn.slices) == 0.0


@pytest.mark.sampled(6)
def test_kernels_add_up(drawn: Any) -> None:
    """Every execution of every kernel is there: counts, and times where stages do not share the work."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for s in drawn.slices:
        if s.track != "layers":
            counts[s.name] += 1
            seconds[s.name] += s.duration
    pieces = drawn.phase.pieces if drawn.phase.stages > 1 and drawn.phase.pieces else 1
    for op in drawn.phase.ops:
        assert counts[op.path] == op.count * pieces, op.path
        if drawn.phase.stages == 1:
            assert seconds[op.path] == pytest.approx(op.expected_s, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1000.0, 0.001], ids=["as it stands", "whole nanoseconds", "milliseconds"])
def test_slices_of_a_track_nest_or_follow(drawn: Any, unit: float) -> None:
    """Within a track nothing overlaps in part in the arithmetic of viewers, which add a duration to a beginning in
    floating point (speedscope), cut both to whole nanoseconds (Perfetto) or scale both to milliseconds first (Chrome).
    """
    cut = int if unit == 1000 else float
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in drawn.to_dict()["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((cut(event["ts"] * unit), cut(event["dur"] * unit)))
    for slices in tracks.values():
        open_: list[float] = []
        for start, took in sorted(slices, key=lambda s: (s[0], -s[1])):
            slack = 1e-9 if unit == 0.001 else 0.0  # Chrome's own, to a picosecond
            while open_ and open_[-1] <= start + slack:
                open_.pop()
            assert not open_ or start + took <= open_[-1] + slack
            open_.append(start + took)


@pytest.mark.sampled(6)
def test_events_are_of_the_format(drawn: Any) -> None:
    """Complete events and names of tracks, as the Trace Event Format states them: microseconds, whole numbers for
    processes and threads. No process is 0, threads differ between processes, and nothing is of no length.
    """
    document = drawn.to_dict()
    events = document["traceEvents"]
    assert document["displayTimeUnit"] in ("ms", "ns")
    slices = [event for event in events if event["ph"] == "X"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    groups = [e["pid"] for e in events if e["name"] == "process_name"]
    assert len(slices) == len(drawn.slices) and {e["ph"] for e in events} == {"M", "X"}
    assert sorted(set(groups)) == groups == list(range(1, len(groups) + 1))
    assert len({tid for _, tid in named}) == len(named) and all(pid != tid for pid, tid in named)
    for e in slices:
        assert type(e["pid"]) is type(e["tid"]) is int and named[e["pid"], e["tid"]] == e["cat"]
        assert e["ts"] >= 0 and e["dur"] > 0 and e["name"] and isinstance(e["args"], dict)
    end = max(e["ts"] + e["dur"] for e in slices)
    assert end == pytest.approx(drawn.phase.expected_s * 1e6, abs=0.01)


def test_layers_come_in_order() -> None:
    """Eighty layers, each with all its kernels before the next begins."""
    drawn = archsim.trace("llama2-70b", "h100", tp=4)
    layers = [s for s in drawn.slices if s.track == "layers"]
    assert sorted(layers, key=lambda s: s.start) == layers
    assert [s.name for s in layers] == [f"layers[{i}]" for i in range(80)]
    inside = [s.name for s in drawn.slices if layers[7].start <= s.start < layers[8].start and s.track != "layers"]
    assert sum("all_reduce" in name for name in inside) == 2
    assert inside.index("layers.attention.q") < inside.index("layers.ffn.down")


def test_stages_follow_one_another() -> None:
    """A decode step passes through all stages; each has its own process and hands on once."""
    drawn = archsim.trace("llama2-70b", "a100", tp=2, pp=4)
    ends = [
        (min(s.start for s in own), max(s.start + s.duration for s in own))
        for own in ([s for s in drawn.slices if s.stage == stage] for stage in range(4))
    ]
    assert all(one[1] == pytest.approx(two[0]) for one, two in pairwise(ends))
    assert [s.stage for s in drawn.slices if s.name == "pipeline.send"] == [0, 1, 2]


def test_tracks_are_named() -> None:
    """Viewers show names: the device and rank, and kernels, collectives, layers and the engine."""
    events = archsim.trace("deepseek-v3", "h200", tp=8, dp=2, ep=16, engine="vllm").to_dict()["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"layers", "kernels", "collectives"} <= names <= {"layers", "kernels", "collectives", "engine"}
    (process,) = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert "one of 16 ranks" in process
    collectives = {e["name"] for e in events if e.get("cat") == "collectives"}
    assert any("all_to_all" in name for name in collectives)


def test_file_is_a_trace(archsim: Any, tmp_path: Path) -> None:
    """The command writes one JSON object, the same each time, and nothing over a file that exists."""
    path = tmp_path / "step.json"
    command = ("trace", "llama3-8b", "--hw", "h100", "--phase", "prefill", "--input-len", "4k")
    result = archsim(*command, "--out", str(path))
    assert (result.code, result.out) == (0, "") and "events" in result.err
    document = json.loads(path.read_text())
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["otherData"]["input_len"] == 4096
    for event in document["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert event["ph"] in "MX" and (event["ph"] == "M" or event["dur"] >= 0)
    assert archsim(*command).out == path.read_text()
    assert archsim(*command, "--out", str(path)).code == 2
    assert archsim(*command, "--out", str(path), "--force").code == 0
    assert archsim(*command, "--out", str(tmp_path / "missing" / "x.json")).code == 2


def test_large_pipelines_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what viewers take, a stage's piece is one slice."""
    monkeypatch.setattr("archsim.predict.timeline.MOST", 1000)
    drawn = archsim.trace("llama2-70b", "a100", phase="prefill", tp=2, pp=2, batch=16)
    assert len(drawn.slices) == 2 * 16


@pytest.mark.parametrize(("model", "phase"), [("bert-large", "decode"), ("llama3-8b", "training")])
def test_what_has_no_trace(model: str, phase: str) -> None:
    """An encoder has no decode step, and there are two phases."""
    with pytest.raises(UsageError):
        archsim.trace(model, "h100", phase=phase)
