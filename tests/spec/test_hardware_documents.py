"""What a device document may say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError
from archsim.spec import hardware
from archsim.spec.hardware import Hardware, System
from archsim.spec.hardware_schema import UnitPeaks

CATALOG = Path(__file__).parents[2] / "hardware"


def document(**changes: Any) -> dict[str, Any]:
    """A complete small device document with some top-level fields changed."""
    source = {"title": "t", "url": "https://example.org", "kind": "vendor", "covers": ["compute", "memory"]}
    base: dict[str, Any] = {
        "schema": "archsim.hardware/1",
        "id": "toy",
        "name": "Toy",
        "vendor": "Toy",
        "arch": {"family": "toy"},
        "compute": {"peak": {"fp16": "100 TFLOP/s", "fp32": {"vector": "10 TFLOP/s"}}},
        "memory": {"type": "HBM", "capacity": "10 GiB", "bandwidth": "1 TB/s"},
        "sources": {"vendor": source},
    }
    return base | changes


def write(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """Write a document as YAML (JSON is YAML)."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def refused(folder: Path, **changes: Any) -> SpecError:
    """The error that loading the changed document raises."""
    with pytest.raises(SpecError) as caught:
        hardware.load(write(folder, "toy", document(**changes)))
    return caught.value


def test_explicit_fallback(tmp_path: Path) -> None:
    """A document may name the substitute itself."""
    compute = {"peak": {"fp16": "2 TFLOP/s", "bf16": "1 TFLOP/s"}, "fallback": {"fp8": "fp16"}}
    device = hardware.load(write(tmp_path, "toy", document(compute=compute)))
    assert device.peak_flops("fp8").dtype_used == "fp16"
    assert device.peak_flops("int8").fallback


@pytest.mark.parametrize("value", ["989.4 TFLOP/s", {"value": "989.4 TFLOP/s", "accumulate": "fp32"}])
def test_peak_spellings(value: Any) -> None:
    """A plain quantity is the matrix unit with fp32 accumulation, and the long form says the same."""
    assert UnitPeaks.model_validate(value) == UnitPeaks(matrix="989.4 TFLOP/s")


def test_long_peak_form_places_the_unit() -> None:
    """`unit` and `accumulate` choose which rate a value is."""
    assert UnitPeaks.model_validate({"value": "1 TFLOP/s", "unit": "vector"}).vector == "1 TFLOP/s"
    narrow = {"value": "2 TFLOP/s", "accumulate": "fp16", "vector": "1 TFLOP/s"}
    assert UnitPeaks.model_validate(narrow).fp16_accumulate == "2 TFLOP/s"


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": {"type": "HBM", "capacity": 80, "bandwidth": "1 TB/s"}},
        {"memory": {"type": "HBM", "capacity": "80", "bandwidth": "1 TB/s"}},
        {"memory": {"type": "HBM", "capacity": "80 GB", "bandwidth": 3352}},
        {"memory": {"type": "HBM", "capacity": "80 GB", "bandwidth": "3352 GB"}},
        {"memory": {"type": "HBM", "capacity": "0 GB", "bandwidth": "1 TB/s"}},
        {"compute": {"peak": {"bf16": 989.4}}},
        {"compute": {"peak": {"bf16": {"matrix": "989.4 GB/s"}}}},
        {"host": {"link": "PCIe", "per_direction": 63}},
        {"fabric": [{"name": "x", "level": "node", "topology": "switch", "per_direction": 450}]},
        {"power": {"tdp": 700}},
    ],
)
def test_bare_numbers_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A capacity, rate, peak or power without its unit, or with another's, is E108."""
    assert refused(tmp_path, **changes).code == "E108"


def clocked(peak: str) -> dict[str, Any]:
    """A compute section of the H100's shape with some bf16 peak."""
    return {
        "units": {"kind": "SM", "count": 132},
        "clock_mhz": {"peak": 1830},
        "flop_per_clk_per_unit": {"bf16": 4096},
        "peak": {"bf16": peak},
    }


@pytest.mark.parametrize("peak", ["1979 TFLOP/s", "494.7 TFLOP/s", "1200 TFLOP/s"])
def test_sparse_and_half_peaks_are_refused(tmp_path: Path, peak: str) -> None:
    """A peak more than 15 % off units x FLOP/clk x clock is E113."""
    assert refused(tmp_path, compute=clocked(peak)).code == "E113"


def test_small_deviation_is_a_warning(tmp_path: Path) -> None:
    """A peak between 3 % and 15 % off its formula is kept and mentioned."""
    device = hardware.load(write(tmp_path, "toy", document(compute=clocked("1070 TFLOP/s"))))
    assert any(note.code == "W04" and "bf16 peak is 1.08" in note.text for note in device.warnings)


def test_numbers_without_source_are_a_warning(tmp_path: Path) -> None:
    """A user's document may lack sources, and says so."""
    device = hardware.load(write(tmp_path, "toy", document(sources={})))
    assert "no source covers memory.capacity" in map(str, device.warnings)


def test_source_needs_an_address(tmp_path: Path) -> None:
    """A vendor source without a URL is refused."""
    source = {"title": "t", "kind": "vendor", "covers": ["memory"]}
    assert refused(tmp_path, sources={"a": source}).code == "E104"


def test_cost_needs_its_source(tmp_path: Path) -> None:
    """A price that names no listed source is refused."""
    cost = {"provider": "p", "usd_per_hour": 1.0, "date": "2026", "source": "nowhere"}
    assert "nowhere" in refused(tmp_path, cost=[cost]).message


def test_links_must_add_up(tmp_path: Path) -> None:
    """Links x rate per link that differs from the stated total is E113."""
    level = {"name": "x", "level": "node", "topology": "switch", "links": 18}
    rates = {"per_link": "25 GB/s", "per_direction": "900 GB/s"}
    assert refused(tmp_path, fabric=[level | rates]).code == "E113"


def test_peak_needs_a_unit_with_fp32_accumulation(tmp_path: Path) -> None:
    """A dtype listed only with the narrow accumulator is refused."""
    assert refused(tmp_path, compute={"peak": {"fp16": {"fp16_accumulate": "1 TFLOP/s"}}}).code == "E104"


def test_variant_of_a_missing_device(tmp_path: Path) -> None:
    """A variant without its base is refused."""
    assert refused(tmp_path, variant_of="nothing").code == "E109"


def test_variant_of_itself(tmp_path: Path) -> None:
    """A circle of variants is refused."""
    write(tmp_path, "other", document(id="other", variant_of="toy"))
    assert refused(tmp_path, variant_of="other").code == "E109"


def test_variant_found_elsewhere(tmp_path: Path) -> None:
    """A user's variant of a catalog device is found through `find`, and null removes a field."""
    memory = {"capacity": "40 GiB"}
    mine = {"schema": "archsim.hardware/1", "id": "mine", "name": "Mine", "variant_of": "h100-sxm"}
    path = write(tmp_path, "mine", mine | {"memory": memory, "power": None})
    device = hardware.load(path, lambda name: CATALOG / "devices" / f"{name}.yaml")
    assert (device.memory_bytes, device.bandwidth, device.tdp_w) == (40 * 2**30, 3352e9, None)
    assert (device.aliases, device.cost) == ((), ())


def test_schema_can_be_published() -> None:
    """The document classes have JSON schemas, which editors use."""
    assert "schema" in Hardware.model_json_schema()["properties"]
    assert "fabric" in System.model_json_schema()["properties"]
