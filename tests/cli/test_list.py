"""`archsim list`: the figures that people choose by, sorted and filtered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim import api


def listed(archsim: Any, *args: str) -> list[Any]:
    """The entries as data."""
    result = archsim("list", *args, "--json")
    assert result.code == 0, result.err
    return list(json.loads(result.out)["entries"])


@pytest.mark.parametrize("name", ["llama2-70b", "deepseek-v3", "bert-base", "mamba-2.8b"])
def test_figures_of_models_are_counted(name: str, archsim: Any) -> None:
    """Parameters and cache are what `count` says."""
    (entry,) = [e for e in listed(archsim, "models", "--grep", name) if e["name"] == name]
    counted = api.count(name, input_len=1).to_dict()
    assert entry["params"] == counted["params"]["total"] and entry["active"] == counted["params"]["active"]
    assert entry["kv_bytes_per_token"] == counted["kv_cache"]["bytes_per_token"]


def test_figures_of_devices_and_formats(archsim: Any) -> None:
    """Memory, bandwidth, peak and the range of prices; bits with their scales."""
    (h100,) = [e for e in listed(archsim, "hw") if e["name"] == "h100-sxm"]
    shown = json.loads(archsim("show", "h100", "--json").out)
    assert h100["memory_bytes"] == shown["memory_bytes"] and h100["peak_flops"] == shown["peaks_flops"]["bf16"]
    rents = [e for e in listed(archsim, "prices", "--grep", "h100-sxm") if e["terms"] == "on-demand"]
    prices = [e["usd_per_device_hour"] for e in rents if e["name"] == "h100-sxm"]
    assert (h100["usd_per_hour_low"], h100["usd_per_hour_high"]) == (min(prices), max(prices))
    bits = {e["name"]: e["bits_per_weight"] for e in listed(archsim, "formats")}
    assert (bits["bf16"], bits["fp8"], bits["gguf_q8_0"]) == (16, 8, 8.5)
    assert "Prices" in archsim("show", "h100").out


def test_sorting_and_filtering(archsim: Any) -> None:
    """Figures have short names, numbers suffixes; the largest come first."""
    found = listed(archsim, "models", "--where", "params < 10B and context >= 32k", "--sort", "params")
    sizes = [e["params"] for e in found]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] < 10e9
    assert min(e["context"] for e in found) >= 32 * 1024
    memory = [e["memory_bytes"] for e in listed(archsim, "hw", "--sort", "memory", "--reverse")]
    known = [n for n in memory if n is not None]
    assert known == sorted(known)
    assert all(e["memory_bytes"] >= 24e9 for e in listed(archsim, "hw", "--where", "memory >= 24GB"))


@pytest.mark.parametrize("condition", ["memory = 24", "memory >= 24", "24 < memory", "memory != 24.5"])
def test_a_memory_of_a_few_bytes_is_refused(condition: str, archsim: Any) -> None:
    """A bare number may be meant as gigabytes: it says how these are written."""
    result = archsim("list", "hw", "--where", condition)
    assert result.code == 2 and re.search(r"write 24(\.5)?GB", result.err)


@pytest.mark.parametrize("condition", ["memory >", "nothing > 1", "__import__('os') > 1", "memory.real > 1"])
def test_conditions_that_are_none(condition: str, archsim: Any) -> None:
    """They are refused with what there is."""
    result = archsim("list", "hw", "--where", condition)
    assert result.code == 2 and "hint" in result.err
    assert archsim("list", "hw", "--sort", "nothing").code == 2


def test_a_memory_is_its_size_as_sold(archsim: Any) -> None:
    """24 GB are 24 GiB too: such cards equal it, are not above it, and every device is below, equal or above."""
    every = {e["name"] for e in listed(archsim, "hw") if e.get("memory_bytes")}
    parts = [{e["name"] for e in listed(archsim, "hw", "--where", f"memory {sign} 24e9")} for sign in ("<", "=", ">")]
    assert {"rtx-4090", "rtx-3090", "l4", "a10"} <= parts[1] and "rtx-4080" in parts[0] and "rtx-5090" in parts[2]
    assert set.union(*parts) == every and sum(map(len, parts)) == len(every)
    at_most = {e["name"] for e in listed(archsim, "hw", "--where", "memory <= 24GB")}
    assert at_most == parts[0] | parts[1]


def test_files_are_shown_where_asked_for(archsim: Any) -> None:
    """Paths and other names come with `-v`; a model without a spec says why."""
    assert "specs/models/llama2-70b.yaml" not in archsim("list").out
    assert "specs/models/llama2-70b.yaml" in archsim("list", "-v").out
    assert "undisclosed" in archsim("list").out


def test_own_files_are_counted_at_once(archsim: Any, tmp_path: Path) -> None:
    """A spec in ./specs has its figures, and a broken one is still listed."""
    models = tmp_path / "specs" / "models"
    models.mkdir(parents=True)
    base = {"extends": "llama2-7b", "name": "mine"}
    (models / "mine.yaml").write_text(yaml.safe_dump(base), "utf-8")
    (models / "broken.yaml").write_text("name: broken\nd_model: none\n", "utf-8")
    result = archsim("list", "--json", cwd=tmp_path)
    found = {e["name"]: e for e in json.loads(result.out)["entries"]}
    assert found["mine"]["params"] == 6_738_415_616 and "params" not in found["broken"]


def test_announced_devices_say_so(archsim: Any) -> None:
    """In the line of those whose document says so, and of no other; as a condition too."""
    lines = archsim("list", "hw").out.splitlines()
    marked = {line.split()[0] for line in lines if line.rstrip().endswith("announced")}
    assert "rubin-r200" in marked and "h100-sxm" not in marked
    found = json.loads(archsim("list", "hw", "--where", "announced == 1", "--json").out)["entries"]
    assert {e["name"] for e in found} == marked
    assert all(json.loads(archsim("show", name, "--json").out)["announced"] for name in marked)
