"""A sweep is `estimate` at many points: the same numbers, selected, streamed and written whole."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import models

import archsim
from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.ranges import parse_range
from archsim.predict.estimate import Estimate, estimate
from archsim.spec.load import load_hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import tp_degrees
from archsim.sweeps.chunk import Axes
from archsim.sweeps.columns import COLUMNS
from archsim.sweeps.grid import BlockPricer, block_load
from archsim.sweeps.pareto import front
from archsim.sweeps.sweep import sweep
from archsim.sweeps.where import Condition

ROOT = Path(__file__).resolve().parents[2]
NAMES = [column.name for column in COLUMNS]
EXACT = {"text", "truth"}


def line_of(e: Estimate) -> dict[str, Any]:
    """An estimate as a row of a sweep."""
    plan, load, held = e.plan, e.workload, e.memory
    line: dict[str, Any] = {
        "model": e.model.name, "hw": e.hardware.id, "devices": plan.devices, "tp": plan.tp, "pp": plan.pp,
        "ep": plan.ep, "dp": plan.dp, "weights": e.formats.name, "kv_cache": e.formats.kv.name,
        "engine": plan.engine, "batch": load.batch, "input_len": load.input_len, "output_len": load.output_len,
        "fits": held.fits, "memory_bytes_per_device": held.needed, "weights_bytes_per_device": held.weights,
        "kv_cache_bytes_per_device": held.kv_cache, "activation_bytes_per_device": held.activations,
        "free_bytes_per_device": held.free,
    }  # fmt: skip
    ends = ("ideal_s", "expected_s", "low_s", "high_s", "bound", "evidence")
    for name, phase in (("prefill", e.prefill), ("decode", e.decode)):
        line |= {f"{name}_{end}": None if phase is None else getattr(phase, end) for end in ends}
    return line | e.metrics


def assert_equal(row: dict[str, Any], line: dict[str, Any]) -> None:
    """Every column: words and truths exactly, numbers to 1e-12."""
    assert list(row) == NAMES
    for column in COLUMNS:
        wanted, found = line[column.name], row[column.name]
        if column.kind in EXACT or wanted is None:
            assert found == wanted, column.name
        else:
            assert found == pytest.approx(wanted, rel=1e-12, abs=0), column.name


CASES = {
    "dense": ("llama2-70b", "h100", {"tp": 4}),
    "pipeline": ("llama2-70b", "a100", {"tp": 2, "pp": 3, "weights": "awq_int4", "kv_cache_dtype": "q8_0"}),
    "replicas": ("llama3-8b", "mi300x", {"tp": 2, "dp": 3, "kv_cache_dtype": "fp8", "engine": "hf"}),
    "experts": ("mixtral-8x7b", "h100", {"tp": 2, "dp": 2, "ep": 4, "engine": "vllm"}),
    "latent": ("deepseek-v3", "h200", {"tp": 8, "dp": 2, "ep": 16, "engine": "sglang"}),
    "windowed": ("gemma3-27b", "rtx-4090", {"tp": 2, "pp": 2, "weights": "gguf_q4_k_m"}),
    "chunked": ("llama4-scout", "b200", {"tp": 8}),
    "encoder": ("bert-large", "l40s", {"tp": 2}),
    "both stacks": ("t5-large", "tpu-v5p", {"tp": 2}),
    "sound": ("whisper-large-v3", "h100", {}),
    "both stacks, replicas": ("switch-base-8", "gaudi-3", {"dp": 2, "pp": 3, "kv_cache_dtype": "int8"}),
    "replicas beyond a link": ("qwen3-1.7b", "a10g", {"tp": 8, "dp": 8}),
    "compressed cache": ("kimi-k2.5", "b200", {"engine": "trtllm"}),
    "recurrent": ("mamba-2.8b", "rx-7900-xtx", {}),
    "sinks": ("gpt-oss-120b", "gaudi-3", {"tp": 2, "dp": 2}),
    "layers split": ("llama2-13b", "rtx-4090", {"devices": 3, "engine": "llamacpp"}),
    "auto": ("llama2-70b", "h100", {"weights": "fp8"}),
    "auto experts": ("deepseek-v3", "mi300x", {"engine": "vllm"}),
    "auto replicas": ("qwen3-235b-a22b", "h200", {"dp": 2}),
}
"""What is varied: kinds of models, plans and formats, devices with and without kernels that were measured on them."""


def axes_of(seed: str) -> tuple[list[int], list[int], list[int]]:
    """A few lengths each, one-token prompts and answers among them."""
    draw = random.Random(seed)
    batch = [1, draw.randint(2, 9), draw.randint(10, 400)]
    return batch, [1, draw.randint(2, 900), draw.randint(900, 40_000)], [1, draw.randint(2, 3000)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equals_estimate(name: str) -> None:
    """Every column at every point, one estimate each."""
    model, hw, options = CASES[name]
    batch, inputs, outputs = axes_of(name)
    lists = {key: [options[key]] for key in ("weights", "kv_cache_dtype", "engine") if key in options}
    rest = {key: value for key, value in options.items() if key not in lists}
    swept = archsim.sweep(model, hw, batch=batch, input_len=inputs, output_len=outputs, **lists, **rest)
    rows = [row for chunk in swept.chunks() for row in chunk.rows()]
    points = [(b, i, o) for b in batch for i in inputs for o in outputs]
    assert [(row["batch"], row["input_len"], row["output_len"]) for row in rows] == points
    for row, (b, i, o) in zip(rows, points, strict=True):
        try:
            answer = archsim.estimate(model, hw, batch=b, input_len=i, output_len=o, **options)
        except AnswerNo:
            assert not row["fits"] and row["ttft_s"] is None and row["prefill_ideal_s"] is None
            continue
        assert_equal(row, line_of(answer))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.integers(1, 40), st.integers(2, 60), st.integers(1, 50), st.integers(0, 3), st.data())
def test_any_model_equals_estimate(
    model: Model, batch: int, length: int, out: int, plan: int, data: st.DataObject
) -> None:
    """Any architecture that can be written down, with tensor parallelism or replicas."""
    hw = load_hardware(data.draw(st.sampled_from(["h100", "mi300x", "rtx-3060-12gb", "tpu-v5e"])))
    tp, dp = data.draw(st.sampled_from(tp_degrees(model, 4))), plan or 1
    if tp * dp > hw.max_domain:
        tp = dp = 1
    axes: dict[str, Any] = {
        "batch": [1, batch + 1], "input_len": [length, length + 7], "output_len": [out, out + 1],
    }  # fmt: skip
    chunks = sweep([(model, None)], [hw], tp=tp, dp=dp, **axes).chunks()
    for row in (row for chunk in chunks for row in chunk.rows()):
        load = {name: row[name] for name in ("batch", "input_len", "output_len")}
        assert_equal(row, line_of(estimate(model, hw, tp=tp, dp=dp, **load)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_sampled_points_equal_estimate(seed: int) -> None:
    """Any model, device, format, engine and plan of the catalogue, refusals included."""
    draw = random.Random(f"sampled {seed}")
    kinds = [
        sorted(path.stem for path in (ROOT / part).glob("*.yaml")) for part in ("specs/models", "hardware/devices")
    ]
    model, hw = map(draw.choice, kinds)
    options: dict[str, Any] = {"engine": draw.choice(["generic", "vllm", "llamacpp", "hf", "trtllm"])}
    options |= draw.choice([{}, {"weights": "fp8"}, {"weights": "gguf_q4_k_m"}, {"kv_cache_dtype": "int8"}])
    options |= draw.choice([{}, {}, {"dp": 2}, {"tp": 2, "pp": 3}, {"tp": 2, "dp": 4}, {"pp": 2, "dp": 3}])
    axes = axes_of(f"sampled {seed}")
    lists = {key: [options[key]] for key in ("weights", "kv_cache_dtype", "engine") if key in options}
    rest = {key: value for key, value in options.items() if key not in lists}
    try:
        swept = archsim.sweep(model, hw, **dict(zip(AXES, axes, strict=True)), **lists, **rest)
    except UsageError:
        with pytest.raises(UsageError):
            archsim.estimate(model, hw, **options)
        return
    for row in (row for chunk in swept.chunks() for row in chunk.rows()):
        try:
            answer = archsim.estimate(model, hw, **{name: row[name] for name in AXES}, **options)
        except AnswerNo:
            assert row["fits"] is False and row["ttft_s"] is None
            continue
        assert_equal(row, line_of(answer))


AXES = ("batch", "input_len", "output_len")


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["auto", "8"])
def test_points_priced_together_equal_points_alone(devices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many plans a block's points need, and wherever their prompts are cut into pieces."""
    asked: dict[str, Any] = {
        "batch": "1-400+37",
        "input_len": "64-60000+2311",
        "weights": "bf16,int4",
        "devices": devices,
    }
    together = archsim.sweep("llama2-70b", "h100", **asked).to_dict()["rows"]
    assert len({(row["tp"], row["pp"]) for row in together}) >= (5 if devices == "auto" else 1)
    monkeypatch.setattr("archsim.sweeps.sweep.BLOCK", 1)
    for row, alone in zip(together, archsim.sweep("llama2-70b", "h100", **asked).to_dict()["rows"], strict=True):
        assert_equal(row, alone)


@pytest.mark.slow
def test_one_phase_alone_changes_no_number() -> None:
    """What only one phase is priced for."""
    asked: dict[str, Any] = {"batch": "1-256*4", "input_len": "1,100-9000+900"}
    whole = archsim.sweep("llama2-70b", "h100", **asked).to_dict()["rows"]
    for names in (
        ("ttft_s",),
        ("tpot_s", "tokens_per_s_per_device"),
        ("prefill_bound",),
        ("e2e_s",),
        ("decode_ideal_s",),
    ):
        rows = archsim.sweep("llama2-70b", "h100", columns=names, **asked).to_dict()["rows"]
        assert rows == [{name: full[name] for name in names} for full in whole]


@pytest.mark.slow
def test_core_columns_are_the_same_without_the_rest() -> None:
    """Asking for less changes no number."""
    asked: dict[str, Any] = {"batch": "1-64*2", "input_len": "100-9000+900", "weights": "fp8,bf16"}
    some = ("devices", "fits", "memory_bytes_per_device", "prefill_ideal_s", "decode_ideal_s", "decode_high_s")
    whole = archsim.sweep("llama2-70b", "h100", **asked).to_dict()["rows"]
    for columns in (some[:3], some[:5], some):
        rows = archsim.sweep("llama2-70b", "h100", columns=columns, **asked).to_dict()["rows"]
        assert len(rows) == len(whole) == 7 * 10 * 2
        for row, full in zip(rows, whole, strict=True):
            assert row == pytest.approx({name: full[name] for name in columns}, rel=1e-14)


# ---------------------------------------------------------------------- ranges
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,8,32", (1, 8, 32)), ("1-5+1", (1, 2, 3, 4, 5)), ("1-5", (1, 2, 3, 4, 5)), ("1-256*4", (1, 4, 16, 64, 256)),
        ("8,1-3", (1, 2, 3, 8)), ("1k-4k*2", (1024, 2048, 4096)), ("10-31+10", (10, 20, 30)), ("3-20*3", (3, 9)),
        ("7", (7,)), (7, (7,)), ([4, 2, 4], (2, 4)),
    ],
)  # fmt: skip
def test_ranges(text: Any, values: tuple[int, ...]) -> None:
    """llama-bench's grammar; values ascend and occur once."""
    assert parse_range(text, "batch") == values


@pytest.mark.parametrize(
    "text", ["", "0", "0-4", "a", "1-", "-1", "8-1", "1-8*1", "1-8+0", "1-2-3", "1e3", "1,,2", [1.5], [True], [],
             "1-99999999999", "9" * 15 + "k", "１", "1;2"],
)  # fmt: skip
def test_what_is_no_range(text: Any) -> None:
    """Refused with the option's name, never expanded without end."""
    with pytest.raises(UsageError, match="--batch"):
        parse_range(text, "batch")


def test_blocks_cover_the_grid_in_order() -> None:
    """However small the blocks, the points come once each and in the order of nested loops."""
    axes = Axes((1, 2, 3), (4, 5, 6, 7), (8, 9))
    wanted = [(b, i, o) for b in axes.batch for i in axes.input_len for o in axes.output_len]
    for most in (1, 2, 3, 5, 8, 9, 16, 100):
        blocks = list(axes.blocks(most))
        found = [(b, i, o) for x in blocks for b in x.batch for i in x.input_len for o in x.output_len]
        assert found == wanted
        assert all(block.points <= most for block in blocks)


# ---------------------------------------------------------------------- conditions
ROWS = {
    "fits": np.array([True, True, False]), "ttft_s": np.array([0.2, np.nan, 0.7]), "batch": np.array([1.0, 2.0, 4.0]),
    "hw": "h100-sxm", "decode_bound": np.array(["memory", None, "compute"], dtype=object), "tpot_s": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("fits", [1, 1, 0]), ("not fits", [0, 0, 1]), ("ttft_s < 0.5", [1, 0, 0]), ("ttft < 0.5", [1, 0, 0]),
        ("ttft_s > 0", [1, 0, 1]), ("not ttft_s < 0.5", [0, 1, 1]), ("0.1 < ttft_s < 0.3", [1, 0, 0]),
        ("fits and batch >= 2", [0, 1, 0]), ("batch == 1 or batch == 4", [1, 0, 1]), ("batch in (1, 4)", [1, 0, 1]),
        ("batch not in [1]", [0, 1, 1]), ("hw == 'h100-sxm'", [1, 1, 1]), ("hw in ('a', 'b')", [0, 0, 0]),
        ("decode_bound == 'memory'", [1, 0, 0]), ("decode_bound != 'memory'", [0, 0, 1]),
        ("batch * 2 - 1 > 3 / 1", [0, 0, 1]), ("tpot_s < 1", [0, 0, 0]), ("-batch < -1", [0, 1, 1]),
        ("fits == True", [1, 1, 0]), ("batch / 0 > 1", [1, 1, 1]),
    ],
)  # fmt: skip
def test_conditions(text: str, kept: list[int]) -> None:
    """Comparisons, arithmetic, and, or, not, in; a number that does not exist compares false."""
    assert np.broadcast_to(Condition.of(text)(ROWS), (3,)).tolist() == [bool(x) for x in kept]


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "fits.__class__", "(lambda: 1)()", "fits[0]", "[x for x in hw]", "f'{hw}'",
     "ttft_s", "1", "batch + 1", "hw < 'z'", "hw == 3", "fits and batch", "batch ** 9 > 1", "batch if fits else 1",
     "fits := True", "fits; fits", "fits and", "nothing < 1", "", "batch in batch", "hw in 'h100'", "not batch",
     "(" * 500 + "fits" + ")" * 500, "fits and " * 999 + "fits", "fits\x00", "batch @ 2 > 1", "b'x' == hw",
     "1j < batch"],
)  # fmt: skip
def test_what_is_no_condition(text: str) -> None:
    """Anything else is refused before it is looked at, and never run."""
    with pytest.raises(UsageError):
        Condition.of(text)


@pytest.mark.slow
def test_where_keeps_what_the_condition_says() -> None:
    """The rows of a sweep under a condition are those that satisfy it among all."""
    asked: dict[str, Any] = {"batch": "1-512*2", "input_len": "128-32k*2", "devices": "2,4"}
    rows = archsim.sweep("llama2-70b", "h100,a100", **asked).to_dict()["rows"]
    text = "fits and ttft_s < 0.5 and hw == 'h100-sxm'"
    kept = archsim.sweep("llama2-70b", "h100,a100", where=text, **asked).to_dict()["rows"]
    assert kept == [r for r in rows if r["fits"] and r["ttft_s"] < 0.5 and r["hw"] == "h100-sxm"]
    assert 0 < len(kept) < len(rows)


# ---------------------------------------------------------------------- Pareto sets
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_front_against_all_pairs(columns: int, seed: int) -> None:
    """No kept point is beaten; every other one is, or equals a kept one."""
    costs = np.random.default_rng(seed).integers(0, 12, (60, columns)).astype(float)
    kept = front(costs)
    beaten = [bool((np.all(costs <= c, axis=1) & np.any(costs < c, axis=1)).any()) for c in costs]
    assert not any(beaten[i] for i in kept)
    assert {tuple(costs[i]) for i in kept} == {tuple(c) for c, lost in zip(costs, beaten, strict=True) if not lost}


@pytest.mark.slow
def test_pareto_over_all_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set is that of all rows that fit, however the points are cut into blocks."""
    monkeypatch.setattr("archsim.sweeps.sweep.BLOCK", 7)
    asked: dict[str, Any] = {"batch": "1-512*2", "input_len": "512,4k", "weights": "bf16,fp8", "devices": "2,8"}
    rows = archsim.sweep("llama2-70b", "h100,mi300x", **asked).to_dict()["rows"]
    fit = [row for row in rows if row["fits"]]
    better = [
        row for row in fit
        if not any(o["tpot_s"] <= row["tpot_s"] and o["tokens_per_s_per_device"] >= row["tokens_per_s_per_device"]
                   and o != row for o in fit)
    ]  # fmt: skip
    swept = archsim.sweep("llama2-70b", "h100,mi300x", pareto="tokens_per_s_per_device,tpot", **asked)
    assert swept.to_dict()["rows"] == sorted(better, key=lambda row: -row["tokens_per_s_per_device"])


@pytest.mark.parametrize("names", ["hw", "fits", "tpotts", "most:tpot"])
def test_what_is_no_objective(names: str) -> None:
    """Words and unknown columns are refused."""
    with pytest.raises(UsageError):
        archsim.sweep("llama2-70b", "h100", pareto=names)


# ---------------------------------------------------------------------- what cannot be
def test_impossible_plans_are_left_out_and_said() -> None:
    """A degree that one model cannot have does not spoil the others."""
    swept = archsim.sweep("llama2-70b", "h100", tp="1-8")
    assert [s.plans[0].tp for s in swept.structures] == [1, 2, 4, 8]
    assert len(swept.notes) == 4 and all("does not divide" in note for note in swept.notes)
    with pytest.raises(InvalidPlan):
        archsim.sweep("llama2-70b", "h100", tp="3,5")


def test_a_model_that_fits_nowhere_has_no_times() -> None:
    """Where `estimate` says no, a row says so and holds no time."""
    (row,) = archsim.sweep("llama3.1-405b", "t4", batch=4096, input_len="128k").to_dict()["rows"]
    assert row["fits"] is False and row["ttft_s"] is None and row["memory_bytes_per_device"] > 0


def test_what_fits_nowhere_is_null_beside_what_fits() -> None:
    """One-token prompts are priced apart; where those fit and others do not, the others have no times."""
    axes: dict[str, Any] = {"batch": "100,50000", "input_len": "1,40000", "output_len": 1}
    rows = archsim.sweep("vicuna-7b", "apple-m2", **axes).to_dict()["rows"]
    assert [row["fits"] for row in rows] == [True, False, False, False]
    assert [row["ttft_s"] is None for row in rows] == [False, True, True, True]


def test_where_no_link_allows_any_plan_nothing_fits() -> None:
    """Replicas that no link joins: `estimate` says no, and so do all rows."""
    rows = archsim.sweep("nemotron-4-15b", "generic-ddr5-desktop", dp=8, batch="1,2").to_dict()["rows"]
    assert [(row["fits"], row["ttft_s"]) for row in rows] == [(False, None)] * 2


def test_a_device_without_the_format_is_left_out_and_said() -> None:
    """It does not spoil the others; alone it is the error of `estimate`."""
    swept = archsim.sweep("tinyllama-1.1b", ["cerebras-wse-2", "h100"])
    assert [s.hardware.id for s in swept.structures] == ["h100-sxm"]
    assert len(swept.notes) == 1 and "no peak" in swept.notes[0]
    with pytest.raises(UsageError, match="no peak"):
        archsim.sweep("tinyllama-1.1b", "cerebras-wse-2")


@pytest.mark.parametrize(
    ("text", "said"), [("hw == 'h100'", "h100-sxm"), ("fits and weights in ('bf16', 'fp4')", "bf16")]
)
def test_names_that_no_point_has_are_said(text: str, said: str) -> None:
    """A condition on an alias keeps nothing; the note lists the names that there are."""
    (note,) = archsim.sweep("llama2-70b", "h100", where=text).notes
    assert "no point has" in note and said in note
    assert not archsim.sweep("llama2-70b", "h100", where="hw == 'h100-sxm' and decode_bound == 'memory'").notes


def test_memory_of_arrays_is_given_back() -> None:
    """Nothing that remembers graphs or steps keeps a block's arrays."""
    swept = archsim.sweep("llama2-70b", "h100", batch="1-64+1", input_len="1-2000+10")
    worker = BlockPricer(swept.structures[0], block_load(swept.axes))
    plan = swept.structures[0].plans[0]
    assert worker.memory.on(plan).needed.shape == (64, 200, 1)
    assert worker.columns("prefill", plan, "bound")["prefill_expected_s"].shape == (64, 200, 1)
    graph = weakref.ref(worker.graphs.rank(worker.steps.prefill, plan))
    assert graph() is not None
    del worker
    assert graph() is None


# ---------------------------------------------------------------------- files
def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, as Python has them."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        assert document["schema"] == "archsim.sweep/1"
        return list(document["rows"])
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        return list(parquet.read_table(path).to_pylist())
    kinds: dict[str, Callable[[str], Any]] = {
        "text": str, "whole": int, "number": float, "truth": lambda x: {"true": True, "false": False}[x]
    }  # fmt: skip
    kind = {column.name: kinds[column.kind] for column in COLUMNS}
    with path.open(newline="") as stream:
        return [{k: kind[k](v) if v else None for k, v in row.items()} for row in csv.DictReader(stream)]


MANY = (
    "sweep", "llama2-70b", "bert-large", "--hw", "h100,a100", "--batch", "1-8*2,500", "--input-len", "1,100,128k",
    "--output-len", "1,64",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("more", [(), ("--where", "fits and batch > 1"), ("--pareto", "tokens_per_s,tpot")])
def test_files_hold_the_rows(archsim: Any, tmp_path: Path, suffix: str, more: tuple[str, ...]) -> None:
    """All three formats give back every number exactly, nulls included."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"sweep{suffix}"
    result = archsim(*MANY, *more, "--out", str(path))
    assert (result.code, result.out) == (0, "")
    options = dict(zip(more[::2], more[1::2], strict=True))
    rows = _rows(where=options.get("--where"), pareto=options.get("--pareto"))
    assert read(path) == rows
    assert len(rows) < 120 if more else len(rows) == 120
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def _rows(**options: Any) -> list[dict[str, Any]]:
    axes = {"batch": "1-8*2,500", "input_len": "1,100,128k", "output_len": "1,64"}
    return list(archsim.sweep(["llama2-70b", "bert-large"], ["h100", "a100"], **axes, **options).to_dict()["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["json", "csv"])
def test_stdout_holds_the_rows(archsim: Any, tmp_path: Path, layout: str) -> None:
    """Without a file, `--format` writes the same documents to stdout."""
    result = archsim(*MANY, "--format", layout)
    path = tmp_path / f"out.{layout}"
    path.write_text(result.out)
    assert result.code == 0
    assert read(path) == _rows()


@pytest.mark.slow
def test_files_are_not_written_over(archsim: Any, tmp_path: Path) -> None:
    """A file that exists stays, unless told."""
    path = tmp_path / "out.csv"
    path.write_text("mine")
    assert archsim(*MANY, "--out", str(path)).code == 2
    assert path.read_text() == "mine"
    assert archsim(*MANY, "--out", str(path), "--force").code == 0


@pytest.mark.parametrize("name", ["out.xlsx", "out", "missing/out.csv"])
def test_files_that_cannot_be(archsim: Any, tmp_path: Path, name: str) -> None:
    """Unknown endings and missing folders are refused before anything is priced, and nothing is left behind."""
    result = archsim(*MANY, "--out", str(tmp_path / name))
    assert result.code in (2, 3) and "Traceback" not in result.err
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow(archsim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = archsim(*MANY, "--out", str(tmp_path / "out.parquet"))
    assert result.code == 2 and "archsim[parquet]" in result.err
    assert not list(tmp_path.iterdir())


HOSTILE = '=cmd|" /C calc"!A1,</script><script>alert(1)</script>\\"' + "x" * 3000


def test_hostile_names_are_inert(archsim: Any, tmp_path: Path) -> None:
    """A name that is a formula, a tag and 3 kB long breaks no format."""
    spec = tmp_path / "spec.yaml"
    text = (ROOT / "specs/models/llama2-7b.yaml").read_text()
    lines = [f"name: {json.dumps(HOSTILE)}" if line.startswith("name:") else line for line in text.splitlines()]
    spec.write_text("\n".join(lines))
    for suffix in (".csv", ".json"):
        path = tmp_path / f"out{suffix}"
        result = archsim("sweep", str(spec), "--hw", "h100", "--batch", "1,2", "--out", str(path))
        if result.code == 3:
            pytest.skip("such names are refused by the spec itself")
        names = {row["model"] for row in read(path)}
        assert len(names) == 1
        assert not next(iter(names)).startswith("=") or suffix == ".json"
    assert archsim("sweep", str(spec), "--hw", "h100", "--batch", "1-99").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_interrupted_sweeps_keep_what_is_complete(tmp_path: Path, suffix: str) -> None:
    """Ctrl-C: exit code 130, every row of the file whole, and the first ones of the sweep."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    command = [sys.executable, "-m", "archsim", "sweep", "llama2-70b", "--hw", "h100", "--batch", "1-4000",
               "--input-len", "1-9000+30", "--columns", "batch,input_len,fits,tpot_s", "--out", str(path)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, cwd=tmp_path)
    for _ in _until(lambda: any(part.stat().st_size > 1000 for part in tmp_path.glob(".*.part"))):
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130 and b"the first" in err and b"Traceback" not in err
    assert list(tmp_path.iterdir()) == [path] and (suffix == ".parquet" or path.read_text().endswith("\n"))
    rows = read(path)
    assert 0 < len(rows) < 4000 * 300 and all(len(row) == 4 and row["fits"] is not None for row in rows)
    assert [row["input_len"] for row in rows[:3]] == [1, 31, 61]


def _until(condition: Callable[[], bool], seconds: float = 600) -> Iterator[None]:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
        yield


# ---------------------------------------------------------------------- the page
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "more",
    [(), ("--batch", "1-512+1"), ("--pareto", "tokens_per_s_per_device,tpot"), ("--where", "batch > 1"),
     ("--format", "md"), ("--columns", "batch,fits"), ("--batch", "1-512", "--columns", "tpot_s")],
)  # fmt: skip
def test_page(archsim: Any, more: tuple[str, ...]) -> None:
    """Few points are all shown, of many the best; nothing is left out of the heading."""
    result = archsim("sweep", "llama2-70b", "--hw", "h100,b200", "--weights", "fp8,bf16", *more)
    assert result.code == 0 and not result.err
    assert "points" in result.out and "estimate" in result.out


@pytest.mark.slow
def test_nothing_of_arrays_is_loaded_by_estimate(archsim_process: Any) -> None:
    """`archsim estimate` stays free of NumPy."""
    code = "import sys; from archsim.cli.main import main; main(['estimate', 'llama2-70b', '--hw', 'h100', '-q']);"
    done = subprocess.run(
        [sys.executable, "-c", code + "print('numpy' in sys.modules)"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "False"


def test_a_sweep_that_nobody_would_wait_for_is_refused(archsim: Any) -> None:
    ranges = [part for name in ("batch", "input-len", "output-len") for part in (f"--{name}", "1-10000+1")]
    result = archsim("sweep", "llama2-70b", "--hw", "h100", *ranges)
    assert result.code == 2 and not result.out
    assert "1,000,000,000,000 points" in result.err and "10,000 of --batch" in result.err
