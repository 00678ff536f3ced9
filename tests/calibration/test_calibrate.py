"""`archsim calibrate`: numbers that were put into measurements are found again, and nothing is half-written."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from accuracy import tables as t
from hypothesis import given
from hypothesis import strategies as st

import archsim
from archsim.accuracy import times as whole
from archsim.accuracy.checked import validate_files
from archsim.accuracy.files import read_table
from archsim.accuracy.table import Group, Key
from archsim.accuracy.times import Prediction
from archsim.calibration import engine_fits
from archsim.calibration.calibrate import prepare_rows
from archsim.calibration.engine_fits import overhead
from archsim.timing.calibration import default_store, folders, read_entries
from archsim.timing.classes.catalog import MODELS

OWN = Path(archsim.__file__).parent.parent / "hardware" / "calibration"


def products(memory: float = 0.6, matrix: float = 0.5, **changes: Any) -> list[dict[str, Any]]:
    """Products on an H100 that reach shares of its peaks, with 2 % of noise."""
    noise = np.random.default_rng(1)
    rows = []
    for m in (1, 8, 64, 512, 2048, 8192):
        for n, k in ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (1024, 5120)):
            sizes = 2 * (m * k + k * n + m * n) / (memory * 3.35e12)
            flops = 2 * m * n * k / (matrix * 989.4e12)
            time = (max(sizes, flops) + 3e-6) * 1e6 * noise.lognormal(sigma=0.02)
            rows.append(t.kernel("gemm", time_us=float(time), m=m, n=n, k=k, **changes))
    return rows


def test_constants_are_found_again(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """The shares of the peaks that the measurements were made with, and small errors on families that were held out."""
    table = t.write(tmp_path / "k.csv", products(engine="mine 1.0"))
    done = archsim("calibrate", "--from", str(table), "--out", str(tmp_path / "c"), "--json")
    (stack,) = json.loads(done.out)["stacks"]
    (fit,) = stack["fits"]
    assert (stack["device"], stack["engine"], fit["op"], fit["dtype"]) == ("h100-sxm", "mine", "gemm", "bf16")
    assert fit["constants"]["memory"] == pytest.approx(0.6, rel=0.15)
    assert fit["errors"]["unseen"]["median"] < 0.06
    folder = tmp_path / "c" / "h100-sxm"
    (document,) = folder.glob("*/calibration.yaml")
    assert yaml.safe_load(document.read_text("utf-8"))["fits"][0]["constants"] == fit["constants"]
    entries = read_entries(tmp_path / "c").entries
    assert [(e.device, e.engine, e.op) for e in entries] == [("h100-sxm", "mine", "gemm")]


@pytest.mark.slow
def test_what_is_held_is_not_fitted_to(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """Rows marked `held` may say anything: the file is the same without them."""
    rows = products(engine="mine 1.0", split="fit")
    held = [row | {"time_us": 1e6, "split": "held"} for row in products(engine="mine 1.0")[:20]]
    found = []
    for name, listed in (("a", rows), ("b", rows + held)):
        table = t.write(tmp_path / f"{name}.csv", listed)
        done = archsim("calibrate", "--from", str(table), "--out", str(tmp_path / name), "--json")
        found.append(json.loads(done.out)["stacks"])
    assert found[0] == found[1]


def test_a_dry_run_writes_nothing(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """It shows what it would."""
    table = t.write(tmp_path / "k.csv", products())
    done = archsim("calibrate", "--from", str(table), "--out", str(tmp_path / "c"), "--dry-run")
    assert done.code == 0 and "gemm" in done.out and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        ([t.kernel("gemm")], 3, "fewer than"),
        (products(device="card-of-nobody"), 3, "no device named `card-of-nobody`"),
        ([{"op": "dance", **row} for row in ({"device": "H100-SXM", "time_us": 1.0},)] * 30, 3, "dance"),
    ],
    ids=["too few", "unknown device", "unknown class"],
)
def test_nothing_to_fit(
    rows: list[dict[str, Any]], code: int, words: str, tmp_path: Path, archsim: Callable[..., Any]
) -> None:
    """Said with its reason, and no file is left."""
    table = t.write(tmp_path / "k.csv", rows)
    done = archsim("calibrate", "--from", str(table), "--out", str(tmp_path / "c"))
    assert (done.code, done.out) == (code, "") and words in done.err and not (tmp_path / "c").exists()


# ---------------------------------------------------------------------- whole runs
def steps(path: Path) -> Path:
    """Runs of an engine version at batch 1, without a measurement."""
    rows = [
        t.run(metric, batch=1, model=model, isl=isl, osl=256, engine_version="0.3.1", definition=definition)
        for model in ("llama3-8b", "llama2-7b", "llama2-13b")
        for isl in (128, 1024, 4096)
        for metric, definition in (("tpot_ms", "tpot_mean"), ("throughput_tok_s", "gen_over_wall"))
    ]
    return t.write(path, rows)


@pytest.mark.slow
def test_an_overhead_is_found_again(tmp_path: Path) -> None:
    """Runs that were predicted with 2 ms of host time per step give 2 ms, as times and as rates."""
    path = steps(tmp_path / "r.csv")
    slower = overhead("vllm", "v0").put(default_store(), 2000.0)
    told = validate_files(path, store=slower).to_dict()["rows"]
    rows = [row | {"value": found["predicted"]} for row, found in zip(_rows(path), told, strict=True)]
    document = yaml.safe_load((OWN / "engines.yaml").read_text("utf-8"))
    document["engines"] = {"vllm": document["engines"]["vllm"]}
    found = engine_fits.refit(document, [read_table(t.write(tmp_path / "m.csv", rows))], lambda _: None)
    value, low, high = found["engines"]["vllm"]["host"]["v0"]["step_us"]
    assert value == pytest.approx(2000, rel=0.05) and low <= value <= high
    seen = found["engines"]["vllm"]["host_errors"]["v0"]
    assert (seen["of"], seen["rows"]) == ("runs", len(rows)) and seen["median"] < 0.02


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_spreads_of_whole_runs_reach_80_percent(tmp_path: Path) -> None:
    """Throughputs that scatter by 30 % around predictions widen their interval until four of five lie inside."""
    noise = np.random.default_rng(3)
    rows = [t.run("throughput_tok_s", isl=isl, batch=b) for isl in range(100, 900, 20) for b in (2, 8)]
    path = t.write(tmp_path / "r.csv", rows)
    told = archsim.validate(path).to_dict()["rows"]
    rows = [
        row | {"value": found["predicted"] * noise.lognormal(sigma=0.3)} for row, found in zip(rows, told, strict=True)
    ]
    table = read_table(t.write(tmp_path / "m.csv", rows))
    document = yaml.safe_load((OWN / "engines.yaml").read_text("utf-8"))
    found = engine_fits.spreads(document, [table], default_store())
    assert set(found) == {"throughput"} and found["throughput"]["rows"] == len(rows)
    known = default_store().engines
    changed = {**known, "composition": {**known["composition"], **found}}
    fitted = replace(default_store(), engines=changed)
    summary = validate_files(tmp_path / "m.csv", store=fitted).to_dict()["summary"]
    assert 0.75 <= summary["coverage_80"] <= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("models", [("meta-llama/Llama-3.1-8B",), ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B")])
def test_composed_steps_of_a_stack_reach_80_percent(models: tuple[str, ...], tmp_path: Path) -> None:
    """Steps that scatter by 20 % around predictions: the engine that several models speak for gets their spread, one
    model's is of all engines alone.
    """
    known = {
        name: {k: v for k, v in own.items() if k != "composition"} for name, own in default_store().engines.items()
    }
    store = replace(default_store(), engines={**known, "composition": {}})
    asked = [{"model_path": model, "backend_version": "0.18.0", "isl": isl, "batch_size": batch, "concurrency": batch}
             for model in models for isl in range(128, 4096, 256) for batch in (1, 4, 16)]  # fmt: skip
    rows = [t.point(**each) for each in asked]
    told = validate_files(t.write(tmp_path / "s.csv", rows), store=store).to_dict()["rows"]
    steps = [each["predicted"] for each in told if each["metric"] == "tpot_ms"]
    assert len(steps) == len(rows)
    noise = np.random.default_rng(7)
    rows = [t.point(tpot=step * noise.lognormal(sigma=0.2), **each)
            for each, step in zip(asked, steps, strict=True)]  # fmt: skip
    table = read_table(t.write(tmp_path / "m.csv", rows))
    found = engine_fits.with_compositions({"engines": known, "composition": {}}, [table], store)
    assert found["composition"]["rows"] == len(rows)
    assert ("composition" in found["engines"]["vllm"]) == (len(models) > 1)
    fitted = replace(store, engines={**found["engines"], "composition": found["composition"]})
    seen = [each for each in validate_files(tmp_path / "m.csv", store=fitted).to_dict()["rows"]
            if each["metric"] == "tpot_ms"]  # fmt: skip
    inside = np.mean([each["low"] <= each["measured"] <= each["high"] for each in seen])
    assert 0.75 <= inside <= 0.88


@given(st.lists(st.floats(-2, 2), min_size=10, max_size=60), st.floats(0, 0.5))
def test_beyond_leaves_a_tenth(rest: list[float], reach: float) -> None:
    """At most a tenth of the residuals lie above the joined interval, and none is needed where reach is enough."""
    values, wide = np.array(rest), np.full(len(rest), reach)
    spread = engine_fits.beyond(values, wide)
    above = int((values > math.hypot(reach, spread) * (1 + 1e-9)).sum())
    assert above <= 0.1 * (len(rest) + 1) and (spread == 0 or (values > reach).any())


@given(st.floats(1e-3, 1e3), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_joined_is_never_narrower(middle: float, below: float, above: float, less: float, more: float) -> None:
    """Independent errors add in squares, on each side of the same middle."""
    span = Prediction(middle, middle * math.exp(-below), middle * math.exp(above), middle)
    wide = whole.joined(span, -less, more)
    assert wide.expected == span.expected
    assert wide.low <= span.low * (1 + 1e-9) and wide.high >= span.high * (1 - 1e-9)
    assert math.log(wide.high / middle) == pytest.approx(math.hypot(above, more), abs=1e-9)


def test_only_whole_runs_are_widened() -> None:
    """A step and a file size keep their intervals, and so do whole runs of a kind that too few were measured of."""
    span = Prediction(1.0, 0.9, 1.1, 0.5)
    assert all(
        whole.widened(span, name, default_store()) == span
        for name in ("tpot_mean", "file_gib", "kv_tokens", "ttft_mean")
    )
    known = default_store().engines["composition"]
    assert {"throughput", "peak_mem"} <= set(known)
    for name, kind in whole.KINDS.items():
        assert (whole.widened(span, name, default_store()) == span) == (kind not in known), name


@pytest.mark.slow
def test_a_dry_refit_leaves_the_file(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """Run lists are fitted too, and shown; what stood in the folder stays as it was."""
    path = steps(tmp_path / "r.csv")
    shutil.copy(next(iter(folders())) / "engines.yaml", tmp_path / "engines.yaml")
    before = (OWN / "engines.yaml").read_text("utf-8")
    done = archsim("calibrate", "--from", str(path), "--out", str(tmp_path), "--dry-run")
    assert done.code == 0 and (tmp_path / "engines.yaml").read_text("utf-8") == before


@pytest.mark.parametrize(
    "rows",
    [
        [t.point(0.0, 0.0), t.point(-1.0), t.point(isl=10**30)],
        [t.kernel("norm", m="", n="") for _ in range(20)],
        [t.kernel("gemm", m=1e300) for _ in range(20)],
        [t.run(value=0.0), t.run(value="x"), t.run(isl="many")],
    ],
)
def test_rows_that_nothing_can_be_fitted_to(rows: list[dict[str, Any]], tmp_path: Path, archsim: Any) -> None:
    """An answer or an error in words, and nothing written."""
    table = t.write(tmp_path / "t.csv", rows)
    done = archsim("calibrate", "--from", str(table), "--dry-run", "--out", str(tmp_path / "c"))
    assert done.code in (0, 3), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("command", [("validate",), ("calibrate", "--from")])
def test_a_name_that_is_no_path(command: tuple[str, ...], archsim: Any) -> None:
    """An error in words."""
    done = archsim(*command, "x" * 5000)
    assert done.code in (2, 3) and "error" in done.err, done.err


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_table_without_an_extent_has_no_rows(name: str) -> None:
    """Of any class of kernels: nothing of it can be fitted, and nothing goes wrong."""
    model = MODELS[name]
    for missing in model.dims:
        dims = {each: np.full(3, 64.0) for each in model.dims if each != missing}
        key = Key(name, "H100-SXM", "bf16", "bf16", "", "")
        assert len(prepare_rows(model, Group(key=key, rows=np.arange(3), dims=dims, seconds=np.ones(3))).seconds) == 0
