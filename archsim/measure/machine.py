"""What the present device is: its name in the catalog, versions, clocks, power. Everything is read, nothing set."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from contextlib import suppress
from importlib import metadata
from itertools import count
from pathlib import Path

from archsim.base.errors import ArchsimError, SpecError, UsageError
from archsim.base.input_file import read_text
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, failures_of, write_text
from archsim.base.version import VERSION
from archsim.measure.table import LARGEST

QUERY = (
    "name", "driver_version", "memory.total", "memory.used", "clocks.sm", "clocks.mem", "clocks.max.sm",
    "clocks.max.mem", "power.draw", "power.limit", "temperature.gpu", "clocks_throttle_reasons.active",
    "pstate",
)  # fmt: skip
"""Fields that nvidia-smi is asked for."""
NAMED_ALIKE = 11
"""So many of them have had the same name in all versions of the driver."""
SMI_TIMEOUT_S = 10
VENDOR_WORDS = ("NVIDIA GeForce ", "NVIDIA ", "AMD ", "Intel(R) ")
CLOCK_EVERY_S = 5.0
"""Where only nvidia-smi tells the clock, it is asked no more often than this."""


def need_torch() -> None:
    """UsageError that says how to install torch, where it is missing."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UsageError(
            "measuring needs torch, which is not installed",
            hints=("pip install 'archsim[torch]'", "`--plan FILE` and `--list` work without it"),
        )  # fmt: skip


def choose_device(asked: str | None) -> str:
    """`cpu` or `cuda`: what was asked for, else what there is."""
    need_torch()
    import torch

    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "no CUDA device is visible to torch",
            notes=(f"torch {torch.__version__}, built for CUDA {torch.version.cuda or '-'}",),
            hints=("`--device cpu` runs the same suites on the processor, at toy size with `--size small`",),
        )  # fmt: skip
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def driver_name(device: str) -> str:
    """What the driver or the system calls the device."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                return text.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def catalog_name(name: str) -> str:
    """The catalog's name for what a driver reports, or the report itself, joined by dashes."""
    from archsim.spec.catalog import resolve

    bare = name
    for words in VENDOR_WORDS:
        bare = bare.removeprefix(words)
    for spelling in (name, bare):
        try:
            return resolve("hw", spelling).name
        except ArchsimError:
            continue
    return "-".join(name.split())


def engine() -> str:
    """`torch` and its version without the build's suffix."""
    try:
        return "torch " + metadata.version("torch").split("+")[0]
    except metadata.PackageNotFoundError:
        return "torch"


def nvidia_smi() -> dict[str, str] | None:
    """What nvidia-smi reports of the first visible device; None where it is missing or fails."""
    return _query_fields(QUERY) or _query_fields(QUERY[:NAMED_ALIKE])


def _query_fields(fields: tuple[str, ...]) -> dict[str, str] | None:
    """The values of some fields; None where nvidia-smi does not know one of them."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if visible:
        command.append(f"--id={visible}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    first = done.stdout.strip().splitlines()[:1]
    if done.returncode or not first:
        return None
    values = [value.strip() for value in first[0].split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else None


class Clock:
    """The present clock of the compute units in MHz, None on a CPU or where nothing tells it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._read_at = float("-inf")
        self._last: int | None = None
        self._direct = device == "cuda"

    def __call__(self) -> int | None:
        """Read now through NVML, or at most every few seconds through nvidia-smi."""
        if self.device != "cuda":
            return None
        if self._direct:
            try:
                import torch

                return int(torch.cuda.clock_rate())
            except Exception:
                self._direct = False
        if time.monotonic() - self._read_at > CLOCK_EVERY_S:
            found = nvidia_smi()
            self._read_at = time.monotonic()
            text = (found or {}).get("clocks.sm", "")
            self._last = int(text) if text.isdigit() else None
        return self._last


def environment(device: str) -> JsonObject:
    """Versions, the device's facts and a reading of its sensors."""
    packages = {name: _version(name) for name in ("torch", "triton", "numpy")}
    found: JsonObject = {
        "archsim": VERSION, "python": platform.python_version(), "platform": platform.platform(),
        "packages": packages, "cpus": os.cpu_count(), "driver_name": driver_name(device),
    }  # fmt: skip
    if device == "cuda":
        found |= _cuda_facts()
    return found | {"sensors": sensors(device)}


def sensors(device: str) -> JsonObject:
    """A dated reading: nvidia-smi's on a GPU, the load on a CPU."""
    now = {"utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if device == "cuda":
        return now | {"nvidia_smi": nvidia_smi()}
    try:
        return now | {"load": os.getloadavg()[0]}
    except OSError:
        return now


def _cuda_facts() -> JsonObject:
    import torch

    p = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "sm_count": p.multi_processor_count,
        "capability": f"{p.major}.{p.minor}", "l2_bytes": getattr(p, "L2_cache_size", None),
        "memory_bytes": total, "memory_free_bytes": free,
    }  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class DeviceFile:
    """`device.json`: one entry for each session, with sensors read before and after."""

    def __init__(self, path: Path, device: str, name: str, threads: int | None) -> None:
        self.path, self.device = path, device
        self.data = _existing(path) or {"schema": "archsim.device/1", "sessions": []}
        start = {"device": device, "name": name, "threads": threads, "before": environment(device), "after": None}
        self.data["sessions"].append(start)

    def start(self) -> None:
        """Write that a session has begun."""
        self._write()

    def finish(self, **facts: object) -> None:
        """Record the sensors as they are now."""
        self.data["sessions"][-1] |= {"after": sensors(self.device), **facts}
        self._write()

    def _write(self) -> None:
        write_text(self.path, json.dumps(self.data, indent=1, default=str) + "\n", force=True)


def _existing(path: Path) -> JsonObject | None:
    """What earlier sessions wrote. A file that they did not write is kept under another name."""
    if not os.path.lexists(path):
        return None
    check_output(path, force=True)
    with suppress(ValueError, RecursionError, SpecError):
        found = json.loads(read_text(path, LARGEST))
        if isinstance(found, dict) and isinstance(found.get("sessions"), list):
            return found
    with failures_of(path):
        path.rename(next(p for n in count(1) if not os.path.lexists(p := path.with_name(f"{path.name}.{n}"))))
    return None
