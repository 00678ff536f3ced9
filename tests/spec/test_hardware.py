"""The device catalog and the rules that its documents obey."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import InvalidPlan
from archsim.spec import hardware
from archsim.spec.hardware import Hardware, System
from archsim.spec.hardware_schema import covers

CATALOG = Path(__file__).parents[2] / "hardware"
DEVICES = sorted((CATALOG / "devices").glob("*.yaml"))
SYSTEMS = sorted((CATALOG / "systems").glob("*.yaml"))
HARDWARE = {path.stem: hardware.load(path) for path in DEVICES}

MIB = 2**20
# id: bf16 TFLOP/s (fp16 where there is no bf16), memory MiB, memory GB/s, link GB/s per direction, domain, W
KNOWN: dict[str, tuple[float, int, float, float, int, int]] = {
    "a100-sxm-80gb": (312, 81920, 2039, 300, 8, 400),
    "a100-sxm-40gb": (312, 40960, 1555, 300, 8, 400),
    "a800-sxm-80gb": (312, 81920, 2039, 200, 8, 400),
    "h100-sxm": (989.4, 81559, 3352, 450, 8, 700),
    "h100-pcie": (756.5, 81559, 2039, 300, 2, 350),
    "h800-sxm": (989.4, 81559, 3352, 200, 8, 700),
    "h200-sxm": (989.4, 143771, 4800, 450, 8, 700),
    "h20": (148, 97871, 4022, 450, 8, 500),
    "b200-sxm": (2250, 183359, 8000, 900, 8, 1000),
    "gb200": (2500, 189471, 8000, 900, 72, 1200),
    "b300-sxm": (2250, 275040, 7750, 900, 8, 1100),
    "l4": (121, 23034, 300, 31.5, 8, 72),
    "l40s": (362.05, 46068, 864, 31.5, 8, 350),
    "rtx-3090": (71.2, 24576, 936, 56.25, 2, 350),
    "rtx-4090": (165.2, 24564, 1008, 31.5, 8, 450),
    "rtx-5090": (209.5, 32607, 1792, 63, 8, 575),
    "t4": (65, 15360, 320, 15.75, 8, 70),
    "mi300x": (1307.4, 196608, 5300, 448, 8, 750),
    "mi325x": (1307.4, 262144, 6000, 448, 8, 1000),
    "l40": (181.03, 46068, 864, 31.5, 8, 300),
    "rtx-pro-5000": (267.75, 48935, 1344, 63, 8, 300),
}
NAMES = {
    "A100-80GB": "a100-sxm-80gb",
    "A100-PCIe": "a100-pcie-80gb",
    "H100-PCIe-80GB": "h100-pcie",
    "h100_sxm": "h100-sxm",
    "h100-sxm5-80gb": "h100-sxm",
    "H20-96GB": "h20",
    "b200_sxm": "b200-sxm",
    "GB10-DGX-Spark": "dgx-spark",
    "Apple-M1-7c-8GB": "apple-m1-7core",
    "Jetson-AGX-Orin-64GB": "jetson-agx-orin",
    "MI250X-1GCD": "mi250x-1gcd",
    "RTX-3060-12GB": "rtx-3060",
    "RTX-PRO-6000-Server": "rtx-pro-6000",
    "tpu7x-ironwood": "tpu-v7-ironwood",
    "RTX-5060-Ti": "rtx-5060-ti-16gb",
    "Vera-Rubin-NVL72": "rubin-r200",
    "MI450": "mi455x",
    "Orin-Nano": "jetson-orin-nano",
}
CONTRACT = {
    "schema",
    "id",
    "peaks_flops",
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "link_bytes_per_s_per_direction",
    "max_domain",
    "tdp_w",
    "sources",
}


def fold(name: str) -> str:
    """The spelling under which names are compared."""
    return re.sub(r"[-_. ]", "", name.lower())


def spellings() -> list[tuple[str, str]]:
    """Every id and alias of the catalog with the device it stands for."""
    return [(fold(name), device.id) for device in HARDWARE.values() for name in (device.id, *device.aliases)]


def test_catalog_is_complete() -> None:
    """The catalog has the 129 devices and 13 systems it is meant to have."""
    assert (len(DEVICES), len(SYSTEMS)) == (129, 13)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", DEVICES, ids=lambda path: path.stem)
def test_device_document(path: Path) -> None:
    """A device file is named after its id, points editors at its schema and leaves no doubt unmentioned."""
    device = HARDWARE[path.stem]
    assert device.id == path.stem
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=../../specs/schemas/")
    assert [note.code for note in device.warnings] == (["W11"] if device.announced else [])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
def test_every_number_has_a_source(device: Hardware) -> None:
    """Each number is covered by a source; what only an unverified source covers is listed as unverified."""
    assert device.uncovered == ()
    verified = tuple(p for s in device.sources.values() if s.kind != "unverified" for p in s.covers)
    weak = [p for s in device.sources.values() if s.kind == "unverified" for p in s.covers]
    assert all(covers(verified, p) or covers(device.unverified, p) or _part(device, p) for p in weak)


def _part(device: Hardware, path: str) -> bool:
    return any(field.startswith(path + ".") for field in device.unverified)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
def test_sources_are_public(device: Hardware) -> None:
    """Sources have web addresses, and neither they nor the notes name files of one machine."""
    for source in device.sources.values():
        assert source.url is None or source.url.startswith(("https://", "http://"))
    assert not re.search(r"(\.\./|/home/|/tmp/|file:)", device.model_dump_json())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
def test_unverified_fields_exist(device: Hardware) -> None:
    """`unverified` names fields that the document has."""
    for path in device.unverified:
        value: Any = device.model_dump(exclude_none=True)
        for key in path.split("."):
            assert key in value, path
            value = value[key]


def test_spellings_belong_to_one_device() -> None:
    """No id or alias is shared, and none is given twice, once case and punctuation are dropped."""
    names = [name for name, _ in spellings()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(("spelling", "device"), NAMES.items())
def test_spellings_of_measured_files(spelling: str, device: str) -> None:
    """Spellings used by benchmark files stand for the right device."""
    assert dict(spellings())[fold(spelling)] == device


@pytest.mark.parametrize(("name", "facts"), KNOWN.items())
def test_known_devices(name: str, facts: tuple[float, int, float, float, int, int]) -> None:
    """Well-known devices have their dense peak, driver-reported memory and per-direction link."""
    tflops, mib, gb_per_s, link, domain, watts = facts
    found = HARDWARE[name].to_dict()
    assert found["peaks_flops"].get("bf16", found["peaks_flops"]["fp16"]) == pytest.approx(tflops * 1e12)
    assert found["memory_bytes"] == mib * MIB
    assert found["bandwidth_bytes_per_s"] == pytest.approx(gb_per_s * 1e9)
    assert found["link_bytes_per_s_per_direction"] == pytest.approx(link * 1e9)
    assert (found["max_domain"], found["tdp_w"]) == (domain, watts)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
def test_peaks_follow_from_the_clock(device: Hardware) -> None:
    """Where units, clock and FLOP per clock are given, they reproduce the peak within 3 %."""
    assert all(ratio == pytest.approx(1, abs=0.03) for ratio in device.formula_ratios.values())


def test_most_gpus_have_a_formula() -> None:
    """The self-check is in force for more than half of the catalog."""
    assert sum(bool(device.formula_ratios) for device in HARDWARE.values()) >= 56


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HARDWARE.values(), ids=HARDWARE)
def test_contract(device: Hardware) -> None:
    """`to_dict` has the keys of `archsim.hardware/1`, raw numbers, and is JSON."""
    found = json.loads(json.dumps(device.to_dict(), allow_nan=False))
    assert found.keys() >= CONTRACT
    assert found["schema"] == "archsim.hardware/1"
    assert all(isinstance(flops, float) and flops > 0 for flops in found["peaks_flops"].values())
    assert isinstance(found["memory_bytes"], int)
    assert all({"id", "url", "covers"} <= source.keys() and source["covers"] for source in found["sources"])


@pytest.mark.parametrize("name", ["a100-sxm-40gb", "h200-sxm", "h800-sxm", "mi325x", "inferentia-2"])
def test_variants_differ_from_their_base(name: str) -> None:
    """A variant shares what it does not restate, and never the aliases of its base."""
    variant = HARDWARE[name]
    base = HARDWARE[str(variant.variant_of)]
    assert variant.compute.peak["bf16"] == base.compute.peak["bf16"]
    assert not set(variant.aliases) & set(base.aliases)


@pytest.mark.parametrize("path", SYSTEMS, ids=lambda path: path.stem)
def test_system_document(path: Path) -> None:
    """A system is named after its id, built of a known device, sourced, and its levels grow outwards."""
    system = hardware.load_system(path)
    assert system.id == path.stem
    assert system.device in HARDWARE
    assert system.uncovered == ()
    assert not {fold(name) for name in (system.id, *system.aliases)} & {name for name, _ in spellings()}
    domains = [level.domain for level in system.fabric if level.domain]
    assert domains == sorted(domains)
    assert system.link(2).bytes_per_s_per_direction > 0


def test_device_in_its_system() -> None:
    """A device takes over the fabric of a machine built of it, and of no other."""
    system: System = hardware.load_system(CATALOG / "systems" / "trn2-ultra.yaml")
    placed = HARDWARE["trainium-2"].in_system(system)
    assert placed.link(64).bytes_per_s_per_direction == 128e9
    assert placed.uncovered == ()
    with pytest.raises(InvalidPlan):
        HARDWARE["h100-sxm"].in_system(system)
