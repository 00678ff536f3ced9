"""Watts and joules in sweeps and comparisons: those of `estimate`, and none unasked."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import archsim as package
from archsim.spec import catalog

NAMES = ("power_w_per_device", "j_per_output_token")


@pytest.mark.slow
def test_rows_of_a_sweep_are_estimates() -> None:
    """On one device and several, with one token and many, of models that decode and that do not."""
    swept = package.sweep(
        ["llama3.1-8b", "bert-base", "mixtral-8x7b"], ["h100", "l40s"], batch="1,64", input_len="1,500",
        output_len="1,64", columns=["model", "hw", "batch", "input_len", "output_len", "devices", *NAMES],
    )  # fmt: skip
    rows: list[Any] = swept.to_dict()["rows"]
    assert len(rows) == 48 and len({row["devices"] for row in rows}) > 1
    for row in rows:
        asked = {name: row[name] for name in ("batch", "input_len", "output_len", "devices")}
        found = package.estimate(row["model"], row["hw"], energy=True, **asked).to_dict()["energy"]
        for name in NAMES:
            assert row[name] == pytest.approx(found[name], rel=1e-12)


def test_a_sweep_by_joules(archsim: Any) -> None:
    """Least joules are an objective; a device whose power limit is not known has empty cells, and a note."""
    front = archsim(
        "sweep", "llama3.1-8b", "--hw", "h100", "--batch", "1,8,64", "--pareto", "j_per_output_token,tokens_per_s",
        "--columns", "batch,j_per_output_token", "--format", "csv",
    )  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(front.out))
    assert row["batch"] == "64" and float(row["j_per_output_token"]) < 1
    assert "j_per_output_token" not in archsim("sweep", "llama3.1-8b", "--hw", "h100", "--format", "csv").out


def test_a_device_of_unknown_power(archsim: Any, tmp_path: Path) -> None:
    """Empty cells and a note beside a device that is known; alone, a refusal."""
    path = tmp_path / "quiet-card.yaml"
    known = (catalog.data_roots("hardware")[-1] / "devices" / "l40s.yaml").read_text()
    lines = [line for line in known.splitlines(keepends=True) if not line.startswith(("power:", "aliases:"))]
    path.write_text("".join(lines).replace("id: l40s", "id: quiet-card").replace(", power]", "]"))
    args = ("sweep", "llama3.1-8b", "--columns", "hw,j_per_output_token", "--json")
    found = archsim(*args, "--hw", f"h100,{path}")
    a, b = json.loads(found.out)["rows"]
    assert a["j_per_output_token"] > 0 and b["j_per_output_token"] is None
    assert "the power of quiet-card is not known" in found.err
    assert archsim(*args, "--hw", str(path)).code == 2


def test_candidates_of_a_comparison_have_joules(archsim: Any) -> None:
    """Those of `estimate --energy`, with their ratios; none unasked, and none of simulated loads."""
    args = ("compare", "llama3.1-8b", "--hw", "h100,l40s", "--batch", "4")
    a, b = json.loads(archsim(*args, "--energy", "--json").out)["candidates"]
    for candidate in (a, b):
        for name in NAMES:
            assert candidate["figures"][name] == candidate["estimate"]["energy"][name] > 0
            assert name not in candidate["estimate"]
    joules = "j_per_output_token"
    assert b["ratios"][joules] == pytest.approx(b["figures"][joules] / a["figures"][joules])
    assert "J/token" in archsim(*args, "--energy").out and "J/token" not in archsim(*args).out
    slow = json.loads(archsim(*args, "--power-limit", "300", "--json").out)["candidates"][0]
    assert slow["figures"]["power_w_per_device"] <= 300 and slow["figures"]["tpot_s"] > a["figures"]["tpot_s"]
    refused = archsim(*args, "--energy", "--rate", "2")
    assert refused.code == 2 and "`--energy` does not go with simulated loads" in refused.err
