"""The calibrations that archsim brings: whole, indexed, and honest about what they rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archsim.spec.loader import read
from archsim.timing.calibration import build_index, default_store, read_surfaces
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.surface import Surface

FOLDER = Path(__file__).resolve().parents[2] / "hardware" / "calibration"
FILES = sorted(FOLDER.glob("*/*/calibration.yaml"))


def test_the_index_has_every_fit() -> None:
    """Whether it comes from a wheel, from the cache or was just made."""
    stated = [
        (path.parent.parent.name, fit["op"], fit["dtype"]) for path in FILES for fit in read(path)["fits"]
    ]
    made = [(e["device"], e["op"], e["dtype"]) for e in build_index(FOLDER)["entries"] if e["device"]]
    used = [(e.device, e.op, e.dtype) for e in default_store().entries if e.device]
    assert sorted(stated) == sorted(made) == sorted(used)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "@" + path.parent.parent.name)
def test_every_fit_is_complete(path: Path) -> None:
    """Constants of its class inside their ranges, errors on unseen families, an interval, its surfaces, its source."""
    document = read(path)
    assert document["schema"] == "archsim.calibration/1"
    assert document["measured"]["title"]
    for fit in document["fits"]:
        model = MODELS[fit["op"]]
        assert set(fit["constants"]) == set(model.constants)
        for name, value in fit["constants"].items():
            assert model.constants[name].low * 0.999 <= value <= model.constants[name].high * 1.001, (
                fit["op"],
                name,
            )
        assert fit["errors"]["rows"] >= 8
        if "surfaces" in fit:
            assert (path.parent / fit["surfaces"]).is_file()
            assert fit["errors"]["unseen"]["median"] < fit["errors"]["roofline"]["median"]
        low, high = fit["interval"]["all"]
        assert low < high


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "@" + path.parent.parent.name)
def test_no_surface_lies_idle(path: Path) -> None:
    """Every JSON beside a calibration belongs to one of its fits."""
    named = {fit.get("surfaces") for fit in read(path)["fits"]}
    assert {file.name for file in path.parent.glob("*.json")} <= named


def test_surfaces_are_corrections() -> None:
    """A surface bends a formula; it does not replace it. Surfaces that are summed may offset each other in part."""
    for entry in default_store().entries:
        for data in read_surfaces(entry.surfaces) if entry.surfaces else ():
            values = Surface.of(data).values
            assert max(map(abs, values)) < 3.0, (entry.device, entry.engine, entry.op, entry.dtype)


def figures(op: str, device: str, dtype: str) -> list[Any]:
    """Error figures of the fits of one class."""
    fits = [fit for path in FILES if path.parent.parent.name == device for fit in read(path)["fits"]]
    return [
        fit["errors"]["unseen"]
        for fit in fits
        if (fit["op"], fit["dtype"]) == (op, dtype) and "kernel" not in fit
    ]


@pytest.mark.parametrize(
    ("op", "device", "dtype", "bar"),
    [
        ("gemm", "h100-sxm", "bf16", 0.06), ("gemm", "a100-sxm-80gb", "bf16", 0.06), ("gemm", "h100-sxm", "fp8", 0.08),
        ("gemm", "h100-sxm", "fp8_block", 0.08), ("attn_decode", "h100-sxm", "bf16", 0.08),
        ("attn_prefill", "h100-sxm", "bf16", 0.08), ("attn_decode", "a100-sxm-80gb", "bf16", 0.08),
        ("mla_decode", "h100-sxm", "bf16", 0.08), ("mla_prefill", "h100-sxm", "bf16", 0.08),
        ("moe", "h100-sxm", "bf16", 0.20), ("nccl_all_reduce", "h100-sxm", "fp16", 0.08),
    ],
)  # fmt: skip
def test_fits_are_as_good_as_promised(op: str, device: str, dtype: str, bar: float) -> None:
    """Median errors on shape families that the fit has not seen, as the files state them."""
    found = figures(op, device, dtype)
    assert found and all(unseen["median"] <= bar for unseen in found)
