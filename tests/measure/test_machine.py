"""What is read of the device, and what happens where nothing can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from archsim.base.errors import UsageError
from archsim.measure import machine

ANSWER = "NVIDIA H100 80GB HBM3, 580.1, 81559, 4, 1980, 2619, 1980, 2619, 350.2, 700.00, 41, 0x0, P0"


def fake(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi of our own, first and alone on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tool there is no reading, and no error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.nvidia_smi() is None


@pytest.mark.parametrize("script", ["exit 9", "echo", "echo 'a, b'", "kill -9 $$"])
def test_failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A tool that fails or answers something else is no reading."""
    fake(tmp_path, script, monkeypatch)
    assert machine.nvidia_smi() is None


def test_answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields by name, of the first device."""
    fake(tmp_path, f"echo '{ANSWER}'; echo '{ANSWER}'", monkeypatch)
    found = machine.nvidia_smi()
    assert found is not None
    assert (found["clocks.sm"], found["power.limit"]) == ("1980", "700.00")


def test_an_older_or_newer_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of the newer fields is unknown, the others are still read."""
    short = ", ".join(ANSWER.split(", ")[:11])
    fake(tmp_path, f"case \"$1\" in *throttle*) exit 2;; esac; echo '{short}'", monkeypatch)
    found = machine.nvidia_smi()
    assert found is not None
    assert found["temperature.gpu"] == "41"


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Some Unheard-of Chip", "Some-Unheard-of-Chip"),
    ],
)
def test_catalog_names(driver: str, name: str) -> None:
    """The catalog's name where it knows the driver's, else the driver's in one word."""
    assert machine.catalog_name(driver) == name


def test_a_gpu_that_is_not_there() -> None:
    """Asking for one says what torch is, and what to do instead."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError, match="no CUDA device") as raised:
        machine.choose_device("cuda")
    assert "--device cpu" in raised.value.hints[0]


def test_torch_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra that installs it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError) as raised:
        machine.choose_device(None)
    assert raised.value.hints[0] == "pip install 'archsim[torch]'"


def test_sessions_are_kept(tmp_path: Path) -> None:
    """Each session adds its readings before and after; a spoilt file is begun anew."""
    path = tmp_path / "device.json"
    path.write_text("{")
    for _ in range(2):
        session = machine.DeviceFile(path, "cpu", "a-cpu", 1)
        session.start()
        session.finish(seconds=1.0)
    sessions = json.loads(path.read_text())["sessions"]
    assert len(sessions) == 2
    assert all(one["after"] and one["before"]["sensors"]["utc"] for one in sessions)
