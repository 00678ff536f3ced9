"""The calibrations that archsim brings: whole, indexed, and honest about what they rest on."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.spec.loader import read
from archsim.timing.calibration import build_index, default_store
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.surface import Axis, Surface
from archsim.timing.surface_file import FILE as SURFACES
from archsim.timing.surface_file import packed, read_surfaces

FOLDER = Path(__file__).resolve().parents[2] / "hardware" / "calibration"
FILES = sorted(FOLDER.glob("*/*/calibration.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "@" + path.parent.parent.name)
def test_every_value_is_written_out(path: Path) -> None:
    """No anchors: a reader sees every number where it belongs, and a diff is about one fit."""
    assert not re.search(r"[:\-] [&*]id\d", path.read_text("utf-8"))


@pytest.mark.slow
def test_the_index_has_every_fit() -> None:
    """Whether it comes from a wheel, from the cache or was just made."""
    stated = [(path.parent.parent.name, fit["op"], fit["dtype"]) for path in FILES for fit in read(path)["fits"]]
    made = [(e["device"], e["op"], e["dtype"]) for e in build_index(FOLDER)["entries"] if e["device"]]
    used = [(e.device, e.op, e.dtype) for e in default_store().entries if e.device]
    assert sorted(stated) == sorted(made) == sorted(used)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "@" + path.parent.parent.name)
def test_every_fit_is_complete(path: Path) -> None:
    """Constants of its class inside their ranges, errors on unseen families, an interval, its surfaces, its source."""
    document = read(path)
    assert document["schema"] == "archsim.calibration/1"
    assert document["measured"]["title"]
    for fit in document["fits"]:
        model = MODELS[fit["op"]]
        stated = model.constants_of(fit["dtype"])
        assert set(fit["constants"]) == set(stated)
        for name, value in fit["constants"].items():
            assert stated[name].low * 0.999 <= value <= stated[name].high * 1.001, (fit["op"], name)
        assert fit["errors"]["rows"] >= 8
        if "surfaces" in fit:
            assert read_surfaces(str(path.parent / SURFACES), fit["surfaces"])
            assert fit["errors"]["unseen"]["median"] < fit["errors"]["roofline"]["median"]
        low, high = fit["interval"]["all"]
        assert low < high


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "@" + path.parent.parent.name)
def test_no_surface_lies_idle(path: Path) -> None:
    """Every surface beside a calibration belongs to one of its fits, and nothing else lies there."""
    named = {fit["surfaces"] for fit in read(path)["fits"] if "surfaces" in fit}
    packed_file = path.parent / SURFACES
    text = gzip.decompress(packed_file.read_bytes()).decode() if packed_file.exists() else ""
    assert {line.split("\t")[0] for line in text.splitlines()} == named
    assert {file.name for file in path.parent.iterdir()} <= {path.name, SURFACES}


def test_surfaces_are_corrections() -> None:
    """A surface bends a formula; it does not replace it. Surfaces that are summed may offset each other in part."""
    for entry in default_store().entries:
        for surface in read_surfaces(*entry.surfaces) if entry.surfaces else ():
            assert max(map(abs, surface.values)) < 3.0, (entry.device, entry.engine, entry.op, entry.dtype)


def test_surfaces_come_back_as_they_were_packed(tmp_path: Path) -> None:
    """To four places; the same surfaces are the same bytes, in any order."""
    one = Surface((Axis("log_m", 3.0, 0.5, 2), Axis("log_n", 4, 1, 2)), [0.12344, -1.5, 0.0, 2.99999])
    other = Surface((Axis("log_bytes", 1.5, 2, 3),), [0.0001, 0.0002, -0.0003])
    path = tmp_path / SURFACES
    path.write_bytes(packed({"gemm-bf16": [one], "a\u00e9": [one, other]}))
    assert packed({"a\u00e9": [one, other], "gemm-bf16": [one]}) == path.read_bytes()
    (found,) = read_surfaces(str(path), "gemm-bf16")
    assert found.axes == one.axes and list(found.values) == [0.1234, -1.5, 0.0, 3.0]
    assert read_surfaces(str(path), "a\u00e9")[1] == other


def test_a_folder_of_ones_own_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of one's own machine stand beside what is shipped of engines and of carrying over, not before it."""
    shipped = default_store()
    own = tmp_path / "hardware" / "calibration"
    own.mkdir(parents=True)
    assert build_index(own) == {"entries": [], "levels": {}, "engines": {}}
    monkeypatch.setenv("ARCHSIM_PATH", str(tmp_path))
    found = default_store.__wrapped__()
    assert found.engines == shipped.engines and found.levels == shipped.levels


@pytest.mark.parametrize("data", [b"", b"no gzip", packed({"other": []}), packed({"mine": []})[:-4]])
def test_a_damaged_file_is_refused(data: bytes, tmp_path: Path) -> None:
    """With its name, as an invalid input file."""
    path = tmp_path / SURFACES
    path.write_bytes(data)
    with pytest.raises(SpecError, match=SURFACES):
        read_surfaces(str(path), "mine")


def figures(op: str, device: str, dtype: str) -> list[Any]:
    """Error figures of the fits of one class."""
    fits = [fit for path in FILES if path.parent.parent.name == device for fit in read(path)["fits"]]
    return [fit["errors"]["unseen"] for fit in fits if (fit["op"], fit["dtype"]) == (op, dtype) and "kernel" not in fit]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "device", "dtype", "bar"),
    [
        ("gemm", "h100-sxm", "bf16", 0.06), ("gemm", "a100-sxm-80gb", "bf16", 0.06), ("gemm", "h100-sxm", "fp8", 0.08),
        ("gemm", "h100-sxm", "fp8_block", 0.08), ("attn_decode", "h100-sxm", "bf16", 0.08),
        ("attn_prefill", "h100-sxm", "bf16", 0.08), ("attn_decode", "a100-sxm-80gb", "bf16", 0.08),
        ("mla_decode", "h100-sxm", "bf16", 0.08), ("mla_prefill", "h100-sxm", "bf16", 0.08),
        ("moe", "h100-sxm", "bf16", 0.20), ("nccl_all_reduce", "h100-sxm", "fp16", 0.08),
        ("gemm", "b200-sxm", "bf16", 0.07), ("gemm", "b200-sxm", "fp8", 0.07), ("gemm", "b200-sxm", "nvfp4", 0.07),
        ("attn_decode", "b200-sxm", "bf16", 0.07), ("attn_prefill", "b200-sxm", "bf16", 0.07),
        ("mla_decode", "b200-sxm", "bf16", 0.05), ("mla_prefill", "b200-sxm", "bf16", 0.05),
        ("nccl_all_reduce", "b200-sxm", "fp16", 0.05),
    ],
)  # fmt: skip
def test_fits_are_as_good_as_promised(op: str, device: str, dtype: str, bar: float) -> None:
    """Median errors on shape families that the fit has not seen, as the files state them."""
    found = figures(op, device, dtype)
    assert found and all(unseen["median"] <= bar for unseen in found)
