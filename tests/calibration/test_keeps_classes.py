"""A calibration of some classes leaves the others of its stack as they were."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accuracy import tables as t

from archsim.spec.loader import read
from archsim.timing.surface_file import FILE, read_surfaces


def rows(op: str, **extents: list[float]) -> list[dict[str, object]]:
    """Made-up rows of one class, 20 us and up."""
    count = len(next(iter(extents.values())))
    shapes = [{name: values[i] for name, values in extents.items()} for i in range(count)]
    return [t.kernel(op, time_us=20.0 + i, engine="mine 1.0", **shape) for i, shape in enumerate(shapes)]


@pytest.mark.slow
def test_other_classes_stay(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """Their constants and surfaces, when a class is fitted that the first tables did not hold."""
    sizes = [float(2**i) for i in range(4, 14)]
    products = [r for n in range(7) for r in rows("gemm", m=sizes, n=[512.0 * (n + 1)] * 10, k=[1024.0] * 10)]
    out = tmp_path / "c"
    first = t.write(tmp_path / "a.csv", products)
    assert archsim("calibrate", "--from", str(first), "--out", str(out), "--json").code == 0
    (path,) = out.glob("*/*/calibration.yaml")
    before = read(path)["fits"]
    second = t.write(tmp_path / "b.csv", rows("add", m=sizes, n=[4096.0] * 10))
    done = archsim("calibrate", "--from", str(second), "--out", str(out), "--force", "--json")
    assert [fit["op"] for fit in json.loads(done.out)["stacks"][0]["fits"]] == ["add", "elementwise"]
    after = read(path)["fits"]
    assert [fit for fit in after if fit["op"] == "gemm"] == before
    assert {fit["op"] for fit in after} == {"gemm", "add", "elementwise"}
    assert read_surfaces(str(path.parent / FILE), before[0]["surfaces"])


def calibration_text(text: str, tmp_path: Path, archsim: Callable[..., Any], *more: str) -> tuple[Any, str]:
    """What `calibrate` says over a calibration file that holds some text, and the file's text after it."""
    sizes = [float(2**i) for i in range(4, 14)]
    table = t.write(tmp_path / "a.csv", rows("add", m=sizes, n=[4096.0] * 10))
    out = tmp_path / "c"
    assert archsim("calibrate", "--from", str(table), "--out", str(out), *more).code == 0
    (path,) = out.glob("*/*/calibration.yaml")
    path.write_text(text, "utf-8")
    done = archsim("calibrate", "--from", str(table), "--out", str(out), "--force", *more)
    return done, path.read_text("utf-8")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", ["mine", "a: [", "{}", ""])
def test_what_is_no_calibration_is_replaced(text: str, tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """A file of that name that states no such schema has no fits to keep."""
    done, after = calibration_text(text, tmp_path, archsim)
    assert (done.code, "archsim.calibration/1" in after) == (0, True), done.err


@pytest.mark.parametrize("text", ["schema: archsim.calibration/1\nfits: [{op: gemm", "archsim.calibration/1"])
def test_a_damaged_calibration_is_kept(text: str, tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """Fits of other classes may be in it: nothing is written, and the error says where it is."""
    done, after = calibration_text(text, tmp_path, archsim)
    assert (done.code, after, "calibration.yaml:" in done.err) == (3, text, True), done.err


def test_fits_without_a_list_are_none(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """A calibration that states only what it is."""
    done, after = calibration_text("schema: archsim.calibration/1\n", tmp_path, archsim)
    assert (done.code, "op: add" in after) == (0, True), done.err
