"""Calibrations: constants and surfaces that were fitted to measured kernels, as data beside the hardware catalog.

`hardware/calibration/<device>/<stack>/calibration.yaml` states the constants of each class of kernels, their errors
on unseen shapes and what they were fitted to; surfaces lie beside it as JSON and are read when first asked for.
An `index.json` in the folder repeats all constants, since YAML takes forty times longer to read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from archsim.base.errors import SpecError
from archsim.spec.catalog import data_roots

FILE = "calibration.yaml"
ABOUT = ("errors", "warnings")
"""What a file says of a fit beyond what a prediction needs."""


class Entry(NamedTuple):
    """One fit: a class of kernels in one number format on one device, by one engine.

    kernel: the implementation, empty where all of an engine's are fitted together. local: says nothing of other
    devices. usual: the implementation that stands for an engine where none is named. interval: by regime of the class,
    or under "all", the log-residuals measured/predicted that a tenth of unseen shapes lie below and above. peak,
    bandwidth, sustained, memory, family, vendor: of the device, by which the nearest is found where nothing was fitted.
    """

    device: str
    engine: str
    version: str
    op: str
    dtype: str
    constants: Mapping[str, float]
    kv_dtype: str = ""
    kernel: str = ""
    local: bool = False
    usual: bool = False
    surfaces: str | None = None
    interval: Mapping[str, tuple[float, float]] = MappingProxyType({})
    vendor: str = ""
    family: str = ""
    peak: float = 0.0
    bandwidth: float = 0.0
    sustained: float = 0.0
    memory: str = ""


class Level(NamedTuple):
    """How far off a class of kernels is when the entry used was fitted on something else. interval: as of an entry.
    surfaces: carry them over.
    """

    interval: Mapping[str, tuple[float, float]]
    surfaces: bool = True
    median: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All entries that can be found; what borrowing an entry costs, by class and level; the engines' own part."""

    entries: tuple[Entry, ...]
    levels: Mapping[str, Mapping[str, Level]]
    engines: Mapping[str, Mapping[str, Any]]
    by_op: dict[str, list[Entry]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.op, []).append(entry)
        object.__setattr__(self, "by_op", found)


def store() -> Store:
    """The calibrations in use: those of the data folders, unless `using` has put others in their place."""
    return _IN_USE[-1] if _IN_USE else _found()


_IN_USE: list[Store] = []


@contextmanager
def using(other: Store) -> Iterator[None]:
    """Puts another store in place, for fits that try values and for tests. What was chosen before is forgotten."""
    _IN_USE.append(other)
    forget()
    try:
        yield
    finally:
        _IN_USE.pop()
        forget()


FORGETTING: list[Callable[[], None]] = []
"""Caches of other modules that depend on the store."""


GENERATION = [0]
"""How often another store was put in place, for caches that keep what belongs to one."""


def forget() -> None:
    """Drops whatever was derived from the store in use."""
    GENERATION[0] += 1
    for clear in FORGETTING:
        clear()


@cache
def _found() -> Store:
    """Every calibration of the data folders; a user's own come before those that archsim brings."""
    entries: list[Entry] = []
    levels: dict[str, dict[str, Level]] = {}
    engines: dict[str, Mapping[str, Any]] = {}
    for folder in folders():
        data = _index(folder)
        entries += _entries(folder, data)
        for op, found in data.get("levels", {}).items():
            for name, level in found.items():
                levels.setdefault(op, {}).setdefault(name, Level(**level))
        for name, profile in data.get("engines", {}).items():
            engines.setdefault(name, profile)
    return Store(entries=tuple(entries), levels=levels, engines=engines)


def _entries(folder: Path, data: Mapping[str, Any]) -> list[Entry]:
    """The entries of an index, with paths to their surfaces."""
    found = []
    for item in data["entries"]:
        surfaces = item.get("surfaces")
        found.append(Entry(**{**item, "surfaces": os.path.join(folder, surfaces) if surfaces else None}))
    return found


def read_entries(folder: Path) -> Store:
    """What the files of one folder say, without what borrowing costs."""
    read_surfaces.cache_clear()
    return Store(entries=tuple(_entries(folder, build_index(folder))), levels={}, engines={})


def folders() -> Iterator[Path]:
    """The calibration folders that exist, in the order in which names are looked up."""
    seen: set[str] = set()
    for root in data_roots("hardware"):
        real = os.path.realpath(root / "calibration")
        if real not in seen and os.path.isdir(real):
            seen.add(real)
            yield Path(real)


def _index(folder: Path) -> Mapping[str, Any]:
    """The folder's index, or what it would be."""
    path = folder / "index.json"
    if not path.is_file():
        return build_index(folder)
    try:
        data: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        data["entries"]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise SpecError(
            f"cannot use {path}: not a valid index", code="E109", hints=["remove it; it is built again"]
        ) from err
    return data


def build_index(folder: Path) -> dict[str, Any]:
    """The index of a calibration folder, from the YAML files in it."""
    from archsim.spec.catalog import resolve
    from archsim.spec.hardware import load
    from archsim.spec.loader import read

    entries = []
    for path in sorted(folder.glob(f"*/*/{FILE}")):
        document = read(path)
        hardware = load(resolve("hw", str(document["device"])).path)
        shared = {
            "device": hardware.id, "engine": str(document["engine"]), "version": str(document["version"]),
            "vendor": hardware.vendor, "family": hardware.arch.family,
            "peak": hardware.peak_flops("bf16").flops, "bandwidth": hardware.bandwidth,
            "memory": hardware.memory.kind,
            "sustained": hardware.compute.sustained.get("bf16", 0.0),
        }  # fmt: skip
        for fit in document["fits"]:
            entry = {**shared, **json.loads(json.dumps(fit))}
            entry = {name: value for name, value in entry.items() if name not in ABOUT}
            if entry.get("surfaces"):
                entry["surfaces"] = f"{path.parent.relative_to(folder).as_posix()}/{entry['surfaces']}"
            entries.append(entry)
    beside: dict[str, Any] = {}
    for name, file in (("levels", "transfer.yaml"), ("engines", "engines.yaml")):
        path = folder / file
        beside[name] = json.loads(json.dumps(read(path)[name])) if path.is_file() else {}
    for engine, profile in beside["engines"].items():
        profile.pop("overhead_errors", None)
        entries += _of_runs(engine, profile.pop("fits", ()))
    path = folder / "engines.yaml"
    beside["engines"]["composition"] = (
        json.loads(json.dumps(read(path).get("composition", {}))) if path.is_file() else {}
    )
    return {"entries": entries, **beside}


def _of_runs(engine: str, fits: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries of an engine whose kernels were fitted to whole runs, on any device of a vendor. A vendor without runs
    may be priced `like` another.
    """
    for one in fits:
        same = [
            f for f in fits if f["vendor"] == one.get("like") and f["op"] == one["op"] and "dtype" not in f
        ]
        source = same[0] if same else one
        if "constants" in source:
            yield {
                "device": "", "engine": engine, "version": "", "vendor": one["vendor"], "op": one["op"],
                "dtype": one.get("dtype", ""), "constants": source["constants"],
                "interval": source.get("interval", {}),
            }  # fmt: skip


@cache
def read_surfaces(path: str) -> tuple[Mapping[str, Any], ...]:
    """The surfaces of one entry as stored."""
    with open(path, encoding="utf-8") as stream:
        return tuple(json.load(stream)["surfaces"])
