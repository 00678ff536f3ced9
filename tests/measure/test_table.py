"""Result files: complete lines, keys that survive a round trip, healing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from archsim.base.errors import UsageError
from archsim.measure import runs, table
from archsim.measure.plan import NAMES, points_of
from archsim.measure.point import Point, Result, Timing
from archsim.measure.table import Lines

TIMING = Timing(us=12.5, spread_pct=3.0, calls=70, mode="graph")
DEVICE, ENGINE = "h100-sxm", "torch 2.11.0"


def points() -> list[Point]:
    """All points of toy size, and all of full size."""
    both = [points_of(NAMES, size, ("llama3-8b",)) for size in ("small", "full")]  # type: ignore[arg-type]
    return [p for found in both for listed in found.values() for p in listed]


def test_keys_survive_the_file(tmp_path: Path) -> None:
    """A point that was written is found again under its own key."""
    path = tmp_path / "kernels.csv"
    lines = Lines(path, table.line(table.COLUMNS))
    kernels = [p for p in points() if not p.whole]
    for p in kernels:
        row = table.measured_row(p, Result(timing=TIMING), DEVICE, ENGINE, 1980)
        lines.write(table.line(row[c] for c in table.COLUMNS))
    lines.close()
    assert [table.key_of(row) for row in table.read(path)] == [p.key(DEVICE) for p in kernels]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_line_is_healed(tmp_path: Path, cut: int) -> None:
    """Whatever is missing of the last line, only that row is lost, and the next one stands on a line of its own."""
    path = tmp_path / "x.csv"
    lines = Lines(path, "a,b\n")
    for i in range(3):
        lines.write(f"{i}," + "x" * 50)
    lines.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert [row["a"] for row in table.read(path)] == ["0", "1"]
    more = Lines(path, "a,b\n")
    more.write("9,y")
    more.close()
    assert [row["a"] for row in table.read(path)] == ["0", "1", "9"]


def test_reasons_stay_on_one_line(tmp_path: Path) -> None:
    """A message of several lines, with commas and quotes, is one row."""
    path = tmp_path / "skipped.csv"
    lines = Lines(path, table.line(table.SKIPPED))
    point = points()[0]
    row = table.skipped_row(point, DEVICE, 'no,\n "such"\nkernel')
    lines.write(table.line(row[c] for c in table.SKIPPED))
    lines.close()
    assert len(path.read_text().splitlines()) == 2
    (found,) = table.read(path)
    assert found["reason"] == 'no, "such" kernel'
    assert table.key_of(found) == point.key(DEVICE)


def test_a_plan_is_a_kernel_table_without_times(tmp_path: Path) -> None:
    """Every kernel, no whole model, no time; what a fit may not see is marked."""
    path = tmp_path / "plan.csv"
    count = table.write_plan(path, points(), DEVICE, ENGINE)
    rows = list(table.read(path))
    assert len(rows) == count == sum(not p.whole for p in points())
    assert {row["time_us"] for row in rows} == {""}
    assert {row["split"] for row in rows} == {table.FIT, table.HELD}


def test_runs_are_yaml_and_known_again(tmp_path: Path) -> None:
    """The run list parses as a whole, its ids are distinct, and its points need not be timed again."""
    path = tmp_path / "runs.yaml"
    lines = Lines(path, runs.HEADER)
    whole = [p for p in points() if p.whole]
    result = Result(timing=TIMING, allocated=2**34, reserved=2**35)
    for p in whole:
        lines.write("\n".join(runs.line(run) for run in runs.rows(p, result, DEVICE, ENGINE, None)))
    lines.close()
    document = yaml.safe_load(path.read_text())
    ids = [run["id"] for run in document["rows"]]
    assert len(set(ids)) == len(ids) == 2 * len(whole)
    assert {run["definition"] for run in document["rows"]} <= set(document["definitions"])
    assert runs.keys(runs.read(path)) == {p.key(DEVICE) for p in whole}
    memory = next(run for run in document["rows"] if run["metric"] == "peak_mem_gb")
    assert memory["value"] == 16.0


def test_runs_can_be_validated(tmp_path: Path) -> None:
    """`archsim validate` takes the file for what it is, and predicts every time and every memory figure in it."""
    from archsim.api import validate

    path = tmp_path / "runs.yaml"
    lines = Lines(path, runs.HEADER)
    found = [p for p in points() if p.suite == "model" and p["batch"] == 1]
    result = Result(timing=TIMING, allocated=2**34, reserved=2**35)
    for p in found:
        lines.write("\n".join(runs.line(run) for run in runs.rows(p, result, DEVICE, ENGINE, None)))
    lines.close()
    answer = validate(path)
    assert answer.kind == "runs"
    assert answer.summary["rows"] == 2 * len(found)


def test_nothing_is_half_written(tmp_path: Path) -> None:
    """A plan that cannot be written says so and leaves no file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no folder"):
        table.write_plan(tmp_path / "file" / "plan.csv", (), DEVICE, ENGINE)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
