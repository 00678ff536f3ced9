"""Peaks, fallbacks and links of catalog devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.base.errors import InvalidPlan, UsageError
from archsim.spec import hardware
from archsim.spec.hardware import WIDER, Hardware

CATALOG = Path(__file__).parents[2] / "hardware"
HARDWARE = {path.stem: hardware.load(path) for path in sorted((CATALOG / "devices").glob("*.yaml"))}


def test_lacking_dtypes_are_absent() -> None:
    """A dtype without units is missing from the peaks instead of borrowing another's."""
    assert "fp8" not in HARDWARE["a100-sxm-80gb"].to_dict()["peaks_flops"]
    assert "bf16" not in HARDWARE["v100-sxm2"].to_dict()["peaks_flops"]
    assert "fp64_matrix" not in HARDWARE["h800-sxm"].to_dict()["peaks_flops"]


def test_accumulators_stay_apart() -> None:
    """GeForce peaks are those with fp32 accumulation; the narrower accumulator has keys of its own."""
    found = HARDWARE["rtx-4090"].to_dict()
    assert found["peaks_flops"]["fp16"] == pytest.approx(165.2e12)
    assert found["peaks_fp16_accumulate_flops"]["fp16"] == pytest.approx(330.3e12)


def test_vector_and_matrix_stay_apart() -> None:
    """fp32 is the vector rate; the matrix rate of fp32 is another key, and matrix products get the faster."""
    device = HARDWARE["mi250x"]
    assert device.to_dict()["peaks_flops"]["fp32"] == pytest.approx(47.9e12)
    assert device.to_dict()["peaks_flops"]["fp32_matrix"] == pytest.approx(95.7e12)
    assert device.peak_flops("fp32").flops == pytest.approx(95.7e12)
    assert device.vector_flops == pytest.approx(47.9e12)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
@pytest.mark.parametrize("dtype", WIDER)
def test_no_silent_fallback(device: Hardware, dtype: str) -> None:
    """A dtype is answered from its own units, or with a fallback that says so, or refused."""
    try:
        peak = device.peak_flops(dtype)
    except UsageError:
        assert not {dtype, *WIDER[dtype]} & set(device.compute.peak)
        return
    assert peak.fallback == (dtype not in device.compute.peak) == (peak.note is not None)
    assert peak.dtype_used in device.compute.peak
    assert peak.dtype_used == dtype or peak.dtype_used in WIDER[dtype]


@pytest.mark.parametrize(
    ("name", "dtype", "used"),
    [
        ("a100-sxm-80gb", "fp8", "bf16"),
        ("a100-sxm-80gb", "fp4", "bf16"),
        ("h100-sxm", "fp4", "fp8"),
        ("h100-sxm", "int4", "int8"),
        ("v100-sxm2", "bf16", "fp16"),
        ("v100-sxm2", "int8", "fp16"),
        ("tpu-v7-ironwood", "fp16", "bf16"),
        ("generic-ddr5-desktop", "bf16", "fp32"),
    ],
)
def test_fallback_is_the_next_wider(name: str, dtype: str, used: str) -> None:
    """A missing dtype is computed in the next wider one."""
    assert HARDWARE[name].peak_flops(dtype).dtype_used == used


def test_unknown_dtype_is_refused() -> None:
    """A dtype nobody knows is an error, not a guess."""
    with pytest.raises(UsageError, match="no dtype named"):
        HARDWARE["h100-sxm"].peak_flops("fp7")


def test_vector_rate() -> None:
    """The vector rate is the listed one, or a sixteenth of the matrix peak that calls itself a fallback."""
    assert HARDWARE["h100-sxm"].vector_flops == pytest.approx(67e12)
    peak = HARDWARE["tpu-v5e"].vector_peak
    assert peak.fallback and peak.note
    assert peak.flops == pytest.approx(197e12 / 16)


def test_link_is_per_direction() -> None:
    """NVLink 4 is 450 GB/s each way, not the 900 of both ways; larger groups go over the network."""
    h100 = HARDWARE["h100-sxm"]
    assert h100.link(8).bytes_per_s_per_direction == 450e9
    assert h100.link(16).bytes_per_s_per_direction == 50e9
    assert (h100.link(2).name, h100.link(16).name) == ("nvlink4", "ndr-infiniband")


@pytest.mark.parametrize(("devices", "gb_per_s"), [(2, 64), (4, 192), (8, 448)])
def test_mesh_uses_its_own_links(devices: int, gb_per_s: float) -> None:
    """In a full mesh of eight, n devices use n - 1 of the seven links."""
    assert HARDWARE["mi300x"].link(devices).bytes_per_s_per_direction == pytest.approx(gb_per_s * 1e9)


def test_mesh_of_several_ports_per_peer() -> None:
    """Gaudi 2 reaches each peer over three of its 21 ports."""
    assert HARDWARE["gaudi-2"].link(2).bytes_per_s_per_direction == pytest.approx(37.5e9)


def test_torus_pair_has_one_link() -> None:
    """Two neighbours in a torus share one link."""
    assert HARDWARE["tpu-v5p"].link(2).bytes_per_s_per_direction == pytest.approx(100e9)
    assert HARDWARE["tpu-v5p"].link(64).bytes_per_s_per_direction == pytest.approx(600e9)


def test_pcie_only_devices_use_the_host_link() -> None:
    """Without a fabric, the devices of a server meet over PCIe."""
    link = HARDWARE["rtx-4090"].link(4)
    assert (link.name, link.bytes_per_s_per_direction) == ("PCIe 4.0 x16", 31.5e9)


def test_bridges_are_optional() -> None:
    """A bridge counts only when asked for, and only for the pair that it joins."""
    card = HARDWARE["h100-pcie"]
    assert card.link(2).bytes_per_s_per_direction == 63e9
    assert card.link(2, bridges=True).bytes_per_s_per_direction == 300e9
    assert card.link(4, bridges=True).bytes_per_s_per_direction == 63e9


@pytest.mark.parametrize(
    ("name", "devices"), [("h100-sxm", 1), ("l4", 16), ("tpu-v2", 4), ("groq-lpu", 2), ("strix-halo", 2)]
)
def test_unknown_links_are_refused(name: str, devices: int) -> None:
    """A group that no level joins, or over a link of unpublished rate, is an error."""
    with pytest.raises(InvalidPlan):
        HARDWARE[name].link(devices)


def test_shared_memory_has_a_working_set() -> None:
    """Apple GPUs may use only part of the memory by default; elsewhere the two are the same."""
    m3 = HARDWARE["apple-m3-max"]
    assert (m3.memory.unified, m3.memory_bytes, m3.working_set_bytes) == (True, 128 * 2**30, 96 * 2**30)
    assert HARDWARE["h100-sxm"].working_set_bytes == HARDWARE["h100-sxm"].memory_bytes
