"""Architectures that only whole runs know: versions, borrowing, and what a poor generation says of the next."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.base.version import newest_until
from archsim.calibration.architecture_fits import (
    LoadedRun,
    alike,
    fit_architecture,
    loaded_runs,
    pooled,
    profile,
    prompt_launch_us,
    put_profile,
)  # fmt: skip
from archsim.counts.formats import choose_formats
from archsim.graph.step import Step
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.architecture import architecture_fit
from archsim.timing.calibration import default_store
from archsim.timing.step_pricer import StepPricer, engine_overheads

MEASURED = (
    # device, engine version, requests in flight, prompt, answer, mean TPOT in ms: DeepSeek-R1-0528, TP 8, no MTP
    ("mi300x", "0.5.12", 4, 1024, 1024, 14.86), ("mi300x", "0.5.12", 16, 1024, 1024, 21.01),
    ("mi300x", "0.5.9", 8, 1024, 8192, 27.53), ("mi300x", "0.5.9", 64, 1024, 8192, 52.80),
    ("mi325x", "0.5.12", 4, 8192, 1024, 18.42), ("mi325x", "0.5.9", 32, 1024, 8192, 35.96),
    ("mi355x", "0.5.9", 16, 1024, 8192, 13.04), ("mi355x", "0.5.12", 8, 1024, 1024, 11.46),
)  # fmt: skip
"""SemiAnalysis InferenceX, as stored in vngcloud/InferenceX-app at 7fe6d62 (figures only)."""


def run(device: str, version: str, concurrency: int, isl: int, osl: int, tpot_ms: float) -> LoadedRun:
    """One of the rows."""
    return LoadedRun(
        model="deepseek-r1", device=device, engine="sglang", version=version, weights=None, tp=8,
        concurrency=concurrency, isl=round(0.9 * isl), osl=round(0.9 * osl), tpot_s=tpot_ms / 1e3,
    )  # fmt: skip


@pytest.mark.parametrize("row", MEASURED)
def test_deepseek_on_amd(row: tuple[str, str, int, int, int, float]) -> None:
    """Within a quarter; from datasheets alone the CDNA3 rows are 25 to 65 % too fast."""
    asked = run(*row)
    assert asked.predict(default_store()) == pytest.approx(asked.tpot_s, rel=0.25)


def without(family: str) -> object:
    """The store without what runs say of an architecture."""
    known = default_store()
    engines = {
        name: {**measured, "architectures": {k: v for k, v in measured.get("architectures", {}).items() if k != family}}
        for name, measured in known.engines.items()
    }
    return replace(known, engines=engines)


def test_a_poor_generation_says_nothing_of_the_next() -> None:
    """Left out, CDNA4 is priced from its datasheet, not with the gaps of CDNA3."""
    left = without("CDNA4")
    assert architecture_fit(left, "sglang", "0.5.9", "CDNA4") is None  # type: ignore[arg-type]
    asked = run(*MEASURED[6])
    assert asked.predict(left) == pytest.approx(asked.tpot_s, rel=0.2)  # type: ignore[arg-type]


def test_other_engines_borrow_the_gaps_alone() -> None:
    """Twice as uncertain; engines with fits of their own for all devices borrow nothing."""
    known = default_store()
    own, other = (architecture_fit(known, name, "", "CDNA3") for name in ("sglang", "vllm"))
    assert own is not None and other is not None
    assert (other.gap_s, other.narrow) == (own.gap_s, 0.0)
    assert other.interval == pytest.approx(tuple(2 * end for end in own.interval))
    assert architecture_fit(known, "llamacpp", "", "CDNA3") is None
    assert architecture_fit(known, "sglang", "", "Hopper") is None


@pytest.mark.parametrize(("version", "gap"), [("", 3.0), ("0.6", 3.0), ("0.5.10", 2.0), ("0.5.9", 2.0), ("0.4", 2.0)])
def test_the_newest_version_not_above_stands(version: str, gap: float) -> None:
    """Versions count as numbers."""
    assert newest_until({"0.5.12": 3.0, "0.5.9": 2.0}, version) == gap


def test_versions_with_nearly_the_same_gap_share_it() -> None:
    """From the oldest of them on, their mean; versions are in the order of their numbers."""
    runs = {"0.5.6": 9, "0.5.9": 5, "0.5.10": 5, "0.5.12": 9}
    gaps = {"0.5.9": 16.0, "0.5.12": 4.0, "0.5.10": 12.5, "0.5.6": 6.0}
    assert alike(gaps, 1.2) == [["0.5.6"], ["0.5.9"], ["0.5.10"], ["0.5.12"]]
    found = pooled(gaps, runs, alike(gaps))
    assert found == {"0.5.6": 6.0, "0.5.9": pytest.approx(200**0.5, rel=1e-3), "0.5.12": 4.0}


def test_gaps_are_a_part_of_the_step() -> None:
    """One for every launch, with an interval, and none on a device without a fit."""
    spec = load_model("llama3.1-8b")
    steps = {}
    for device in ("mi300x", "h100"):
        pricer = StepPricer.of(
            spec, load_hardware(device), choose_formats(spec), engine_overheads("sglang"), Plan(engine="sglang")
        )
        steps[device] = pricer.price(Step.decode(4, 1024))
    gaps = {name: [t for t in step.by_class if t.kernel_class == "launch gaps"] for name, step in steps.items()}
    assert not gaps["h100"]
    (found,) = gaps["mi300x"]
    fit = architecture_fit(default_store(), "sglang", "", "CDNA3")
    assert fit is not None and found.time.expected == pytest.approx(steps["mi300x"].rank.launches * fit.gap_s)
    assert found.time.low < found.time.expected < found.time.high


@pytest.mark.slow
def test_a_gap_is_found_again() -> None:
    """Runs made with a known gap and share give both back."""
    known = put_profile(default_store(), "sglang", "CDNA3", {
        "launch_gap_us": {"0.5.9": 8.0}, "sustained_narrow": 0.3, "interval": [0.0, 0.0],
    })  # fmt: skip
    asked = [run("mi300x", "0.5.9", c, 8192, osl, 1.0) for c in (4, 64) for osl in (256, 1024)]
    made = [replace(one, tpot_s=one.predict(known)) for one in asked]
    found = fit_architecture("sglang", "CDNA3", made, default_store())
    assert found["launch_gap_us"]["0.5.9"] == pytest.approx(8.0, rel=0.15)
    assert found["sustained_narrow"] == pytest.approx(0.3, rel=0.25)
    assert profile(default_store(), "sglang", "Hopper")["launch_gap_us"] == {}


def test_launches_of_prompts_are_told_by_the_longest_gaps() -> None:
    """By device, of short prompts alone; other devices of the architecture have the mean, as uncertain as all are."""
    known, made = default_store(), []
    for device, prompt_s in (("mi300x", 0.120), ("mi325x", 0.060)):
        for share in (0.9, 1.0, 1.0, 1.0, 1.2):
            made.append(replace(run(device, "0.5.9", 16, 1024, 1024, 20.0), prompt_s=share * prompt_s))
        made.append(replace(run(device, "0.5.9", 16, 8192, 1024, 30.0), prompt_s=1.0))  # its kernels take as long
        made.append(run(device, "0.5.9", 4, 1024, 1024, 15.0))
    found = prompt_launch_us(made, known)
    first, second, other = found["mi300x"], found["mi325x"], found["any"]
    assert first[0] == pytest.approx(2 * second[0], rel=1e-3) and first[1] < first[0] < first[2]
    assert other == pytest.approx([(first[0] * second[0]) ** 0.5, second[1], first[2]], rel=1e-3)
    assert prompt_launch_us(made[-1:], known) == {}


@pytest.mark.parametrize(("change", "seconds"), [
    ({}, 0.100), ({"concurrency": "4"}, 0.0), ({"concurrency": "64"}, 0.0), ({"itl_p99_ms": ""}, 0.0),
])  # fmt: skip
def test_gaps_hold_a_prompt_where_a_hundredth_of_them_do(change: dict[str, str], seconds: float) -> None:
    """Fewer requests in flight leave none in the last hundredth, more of them several in a step."""
    row = {
        "model": "deepseek-ai/DeepSeek-R1-0528", "device": "mi300x", "engine": "sglang", "engine_version": "0.5.9",
        "weights": "fp8", "tp": "8", "concurrency": "16", "isl": "1000", "osl": "1000", "tpot_mean_ms": "20",
        "lengths": "fixed", "speculative": "none", "disaggregated": "no", "arrival": "closed loop",
        "itl_p50_ms": "20", "itl_p99_ms": "120",
    }  # fmt: skip
    (found,) = loaded_runs([{**row, **change}])
    assert found.prompt_s == pytest.approx(seconds)


@pytest.mark.slow
def test_gaps_that_unseen_devices_tell_apart_stay_two() -> None:
    """They are less apart than those that are taken as one."""
    gaps = {"0.5.9": 8.0, "0.5.12": 12.0}
    assert alike(gaps) == [["0.5.9", "0.5.12"]]
    known = put_profile(default_store(), "sglang", "CDNA3", {
        "launch_gap_us": gaps, "sustained_narrow": 0.3, "interval": [0.0, 0.0],
    })  # fmt: skip
    asked = [run(device, version, c, 1024, 1024, 1.0) for device in ("mi300x", "mi325x") for version in gaps
             for c in (4, 64)]  # fmt: skip
    made = [replace(one, tpot_s=one.predict(known)) for one in asked]
    found = fit_architecture("sglang", "CDNA3", made, default_store())
    assert found["launch_gap_us"] == pytest.approx(gaps, rel=0.1)
    assert found["errors"]["median"] < 0.02


def test_rows_that_do_not_say_what_ran_are_left_out() -> None:
    """Speculation, disaggregation, a missing version, an engine that nobody knows."""
    row = {
        "model": "deepseek-ai/DeepSeek-R1-0528", "device": "mi300x", "engine": "sglang", "engine_version": "0.5.9",
        "weights": "fp8", "tp": "8", "concurrency": "4", "isl": "1000", "osl": "1000", "tpot_mean_ms": "20",
        "lengths": "random, uniform 0.8..1 of nominal", "speculative": "none", "disaggregated": "no",
        "arrival": "closed loop",
    }  # fmt: skip
    (found,) = loaded_runs([row])
    assert (found.isl, found.osl, found.family) == (900, 900, "CDNA3")
    for change in ({"speculative": "mtp"}, {"disaggregated": "yes"}, {"engine_version": ""}, {"engine": "nobody"},
                   {"tpot_mean_ms": ""}, {"dp_attention": "yes", "ep": "8"}, {"ep": "8"}, {"pp": "2"},
                   {"arrival": "Poisson, 4 requests a second"}):  # fmt: skip
        assert not list(loaded_runs([{**row, **change}]))


@pytest.mark.slow
def test_calibrate_takes_runs_under_load(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """A table of them is told by its columns; NVIDIA's devices, whose kernels are tabulated, are left out."""
    row = {
        "model": "deepseek-ai/DeepSeek-R1-0528", "engine": "sglang", "engine_version": "0.5.9", "weights": "fp8",
        "tp": 8, "isl": 1000, "osl": 1000, "lengths": "fixed", "speculative": "none", "disaggregated": "no",
        "arrival": "closed loop",
    }  # fmt: skip
    rows = [
        {**row, "device": device, "concurrency": n, "tpot_mean_ms": 20 + n / 2}
        for device in ("mi300x", "h100") for n in (4, 8, 16, 32)
    ]  # fmt: skip
    table = tmp_path / "loaded.csv"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = archsim("calibrate", "--from", str(table), "--out", str(tmp_path / "c"), "--json")
    answer = json.loads(done.out)
    assert done.code == 0 and len(answer["engines"]) == 1 and "sglang on CDNA3: 4 runs" in answer["engines"][0]
    document = yaml.safe_load((tmp_path / "c" / "engines.yaml").read_text("utf-8"))
    assert set(document["engines"]["sglang"]["architectures"]["CDNA3"]["launch_gap_us"]) == {"0.5.9"}
