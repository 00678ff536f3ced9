"""A price table from a provider's catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.base.errors import SpecError
from archsim.cost.price_table import parse_table, price_table
from archsim.cost.refresh import main, read_catalogue, table_text

SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
    "a,H100-SXM,8,24,8,us\nb,H100-SXM,1,3.5,,us\nc,Unobtainium,1,1,,us\nd,,,0.1,,us\n"
)
GPUHUNT = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot\n"
    "x,eu,4.0,1,1,2,A100,80,False\ny,eu,1.0,1,1,1,A100,80,True\nz,eu,0,1,1,1,L4,24,False\n"
)


def test_catalogues_of_both_kinds() -> None:
    """Per device, the lowest of each region and terms; names of no device are counted."""
    found, unknown = read_catalogue(SKYPILOT, "p", "2026-11", "s")
    assert [(x.device, x.terms, x.usd_per_device_hour) for x in found] == [
        ("h100-sxm", "on-demand", 3.0), ("h100-sxm", "spot", 1.0),
    ]  # fmt: skip
    assert unknown == {"Unobtainium": 1}
    found, _ = read_catalogue(GPUHUNT, "p", "2026-11", "s")
    assert {(x.terms, x.usd_per_device_hour) for x in found} == {("on-demand", 2.0), ("spot", 1.0)}
    assert {x.device for x in found} == {"a100-sxm-80gb"} or {x.device for x in found} == {"a100-pcie-80gb"}
    with pytest.raises(SpecError, match="no catalogue"):
        read_catalogue("a,b\n", "p", "2026-11", "s")


def test_a_table_is_written_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of the provider are replaced, all others stay; the own table reads as it is written."""
    own = price_table()
    assert sorted(parse_table(table_text(own), "t"), key=str) == sorted(own, key=str)
    (tmp_path / "c.csv").write_text(SKYPILOT)
    out = tmp_path / "prices.csv"
    args = [str(tmp_path / "c.csv"), "--provider", "verda", "--as-of", "2026-11-01", "--source", "x", "--out", str(out)]
    assert main(args) == 0 and main(args) == 2 and main([*args, "--force"]) == 0
    found = parse_table(out.read_text(), "t")
    assert {p.as_of for p in found if p.provider == "verda"} == {"2026-11-01"}
    assert [p for p in found if p.provider != "verda"] == sorted(
        (p for p in own if p.provider != "verda"),
        key=lambda p: (p.device, p.provider, p.terms, p.region, p.as_of or ""),
    )
    assert "Unobtainium" in capsys.readouterr().out
    assert main([*args[:3], "--as-of", "soon", *args[5:]]) == 2
