"""What the present machine is: processor, cores, caches, memory, instruction sets. Everything is read, nothing set."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from archsim.measure.machine import driver_name

SETS = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "avx512_vnni", "avx512_fp16", "avx_vnni", "amx_tile",
    "amx_bf16", "amx_int8", "asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
"""Instruction sets that kernels of PyTorch tell processors apart by, as Linux names them."""

VENDORS = (("AMD", "AMD"), ("Intel", "Intel"), ("Apple", "Apple"), ("Ampere", "Ampere"), ("Graviton", "AWS"))
WORDS = r"\((R|TM)\)|CPU|Processor|\d+-Core|@.*$|with Radeon.*$"
"""What a system's name of a processor says beside its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFact:
    """One level of the cache hierarchy. size: bytes of all its parts that the allowed processors reach."""

    level: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """A machine as its system describes it.

    cores: processors that this process may run on, hyperthreads counted once. threads: that torch uses. memory: bytes
    that this process may use. numa: memory nodes. capability: the instruction set that torch's own kernels use. gpu:
    what the driver calls it, or "".
    """

    name: str
    vendor: str
    cores: int
    threads: int
    clock_mhz: int | None
    caches: tuple[CacheFact, ...]
    memory: int
    sets: tuple[str, ...]
    numa: int
    capability: str
    torch: str
    gpu: str = ""

    @property
    def id(self) -> str:
        """The device's name in the catalog: the processor's, and how many cores of it are here."""
        slug = re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")
        return f"{slug}-{self.cores}c"

    @property
    def last_cache(self) -> int:
        """Bytes of the last cache before memory; 0 where the system does not tell."""
        return self.caches[-1].size if self.caches else 0


def machine_facts() -> MachineFacts:
    """The present machine. Needs torch."""
    import torch

    name = re.sub(r"\s+", " ", re.sub(WORDS, " ", driver_name("cpu"))).strip()
    cores, allowed = _cores()
    return MachineFacts(
        name=name, vendor=next((short for word, short in VENDORS if word in name), platform.machine()), cores=cores,
        threads=torch.get_num_threads(), clock_mhz=_clock(), caches=tuple(_caches(allowed)), memory=_memory(),
        sets=tuple(word for word in SETS if word in _flags()), numa=_numa(),
        capability=torch.backends.cpu.get_cpu_capability(), torch=torch.__version__.split("+")[0],
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    )  # fmt: skip


def _text(path: Path | str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _sysctl(name: str) -> int:
    """A number that macOS states; 0 where there is none."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        return int(subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True).stdout)
    return 0


def _allowed() -> list[int]:
    """Processors that this process may run on."""
    with suppress(AttributeError, OSError):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cores() -> tuple[int, list[int]]:
    """Cores, siblings counted once, and the first processor of each."""
    found: dict[str, int] = {}
    for cpu in _allowed():
        siblings = _text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(siblings or str(cpu), cpu)
    here = _sysctl("hw.physicalcpu") if platform.system() == "Darwin" else 0
    return here or len(found), list(found.values())


def _caches(allowed: list[int]) -> Iterator[CacheFact]:
    """Data caches by level; parts that several processors share are counted once."""
    parts: dict[int, dict[str, int]] = {}
    for cpu in allowed:
        for folder in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            size = re.fullmatch(r"(\d+)([KM]?)", _text(folder / "size"))
            if size and _text(folder / "type") != "Instruction":
                scale = {"K": 1 << 10, "M": 1 << 20, "": 1}[size[2]]
                shared = _text(folder / "shared_cpu_list")
                parts.setdefault(int(_text(folder / "level")), {})[shared] = int(size[1]) * scale
    if not parts and (size2 := _sysctl("hw.perflevel0.l2cachesize") or _sysctl("hw.l2cachesize")):
        parts[2] = {"": size2}
    for level, sizes in sorted(parts.items()):
        yield CacheFact(level=level, size=sum(sizes.values()))


def _memory() -> int:
    """Bytes of memory, or of the control group's limit where that is less."""
    found = re.search(r"MemTotal:\s+(\d+) kB", _text("/proc/meminfo"))
    total = int(found[1]) * 1024 if found else _sysctl("hw.memsize") or 8 << 30
    limit = _text("/sys/fs/cgroup/memory.max") or _text("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return min(total, int(limit)) if limit.isdigit() else total


def _flags() -> frozenset[str]:
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _clock() -> int | None:
    """The highest clock in MHz where the system tells it."""
    text = _text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return int(text) // 1000 if text.isdigit() else None


def _numa() -> int:
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


def facts_data(facts: MachineFacts) -> Mapping[str, object]:
    """The facts as plain data."""
    plain = {name: getattr(facts, name) for name in facts.__dataclass_fields__ if name != "caches"}
    return {"id": facts.id, **plain, "caches": [{"level": c.level, "bytes": c.size} for c in facts.caches]}
