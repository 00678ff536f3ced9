"""The energy counter of a device: joules so far, where the device tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

POWER_S = 2.0
"""Seconds over which the watts of a point are measured: the counter of a GPU moves in steps of about 0.1 s."""

RAPL = Path("/sys/class/powercap")
"""Where Linux has the counters of CPU packages; often readable by root alone."""

Counter = Callable[[], float]


def energy_counter(device: str) -> Counter | None:
    """A function that reads joules: of the GPU through NVML, of the CPU packages through RAPL; None where nothing
    tells.
    """
    counter = _nvml() if device == "cuda" else _rapl(RAPL)
    if counter is None:
        return None
    try:
        counter()
    except Exception:  # whatever a driver's library raises where the counter is not there
        return None
    return counter


def _nvml() -> Counter | None:
    try:
        import torch

        pynvml = import_module("pynvml")
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except Exception:  # no library, no driver, or a device that NVML does not know
        return None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3


def _rapl(folder: Path) -> Counter | None:
    files = [path / "energy_uj" for path in sorted(folder.glob("intel-rapl:*")) if path.name.count(":") == 1]
    return (lambda: sum(int(path.read_text()) for path in files) / 1e6) if files else None


def mean_watts(run: Callable[[], object], wait: Callable[[], object], counter: Counter, seconds: float) -> float | None:
    """Watts while `run` is repeated for so many seconds; None where the counter went backwards, as it does at its end.

    wait: returns when all that was issued has run.
    """
    run()
    wait()
    began, first = time.monotonic(), counter()
    while time.monotonic() - began < seconds:
        run()
        wait()
    joules, passed = counter() - first, time.monotonic() - began
    return joules / passed if joules > 0 else None
