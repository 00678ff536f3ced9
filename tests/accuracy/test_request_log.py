"""Logs of single requests: replayed on the server that options describe."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError

SERVER: dict[str, Any] = {"model": "llama3.1-8b", "hw": "h100", "engine": "vllm"}


def log(path: Path, rows: list[dict[str, object]]) -> Path:
    """A log of these requests."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def own_log(path: Path, scale: float = 1.0) -> Path:
    """What the simulator itself says of a trace, with all times multiplied."""
    trace = log(path.with_name("trace.csv"), [{"t_s": 0.05 * i, "input": 100 + 37 * (i % 11), "output": 5 + i % 17}
                                               for i in range(60)])  # fmt: skip
    seen = archsim.simulate("llama3.1-8b", "h100", engine="vllm", trace=str(trace)).record
    return log(path, [
        {"t_s": seen.arrival_s[i], "input": seen.input_len[i], "output": seen.output_len[i],
         "ttft_ms": scale * 1e3 * (seen.first_s[i] - seen.arrival_s[i]),
         "e2e_ms": scale * 1e3 * (seen.last_s[i] - seen.arrival_s[i])}
        for i in range(60)
    ])  # fmt: skip


@pytest.mark.slow
def test_a_log_of_the_simulator_has_no_error(tmp_path: Path) -> None:
    """Each metric of each request once; predictions never see what was measured."""
    answer = archsim.validate(own_log(tmp_path / "log.csv"), **SERVER).to_dict()
    assert answer["kind"] == "requests" and len(answer["rows"]) == 120 and not answer["refused"]
    assert answer["summary"]["median_ape"] < 1e-9
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in answer["rows"])
    slower = archsim.validate(own_log(tmp_path / "slow.csv", 2.0), **SERVER).to_dict()
    assert [row["predicted"] for row in slower["rows"]] == [row["predicted"] for row in answer["rows"]]
    assert slower["summary"]["median_ape"] == pytest.approx(0.5)


@pytest.mark.slow
def test_a_sample_is_of_the_whole_load(tmp_path: Path) -> None:
    """`limit` reports fewer requests, of the same run; rows out of order are put in order."""
    path = own_log(tmp_path / "log.csv")
    whole = {row["id"] + row["metric"]: row for row in archsim.validate(path, **SERVER).to_dict()["rows"]}
    some = archsim.validate(path, limit=7, **SERVER).to_dict()["rows"]
    assert len(some) == 14 and all(whole[row["id"] + row["metric"]] == row for row in some)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[1:])]))
    assert archsim.validate(path, **SERVER).to_dict()["summary"]["median_ape"] < 1e-9


@pytest.mark.slow
def test_rows_that_cannot_be_answered_are_refused(tmp_path: Path) -> None:
    """Each with its reason, and the others are answered."""
    good = {"t_s": 0, "input": 100, "output": 10, "ttft_ms": 20, "e2e_ms": 90}
    rows = [good, {**good, "t_s": "nan"}, {**good, "output": 0}, {**good, "input": 10**7}, {**good, "ttft_ms": ""}]
    answer = archsim.validate(log(tmp_path / "log.csv", rows), **SERVER).to_dict()
    assert {row["id"] for row in answer["refused"]} == {"1", "2", "3"}
    assert {row["id"] for row in answer["rows"]} == {"0", "4"}
    assert any("KV cache" in row["reason"] for row in answer["refused"])


def test_a_log_needs_its_server(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """Usage errors that say what to add."""
    path = own_log(tmp_path / "log.csv")
    asked = archsim("validate", str(path))
    assert asked.code == 2 and "--model" in asked.err
    assert archsim("validate", str(path), "--model", "llama3.1-8b").code == 2
    told = archsim("validate", str(path), "--model", "llama3.1-8b", "--hw", "h100", "--engine", "vllm")
    assert told.code == 0 and "ttft_ms" in told.out
    with pytest.raises(UsageError):
        import archsim as package

        package.validate(path, hw="h100")
