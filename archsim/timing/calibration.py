"""Calibrations: constants and surfaces that were fitted to measured kernels, as data beside the hardware catalog.

`hardware/calibration/<device>/<stack>/calibration.yaml` states the constants of each class of kernels, their errors
on unseen shapes and what they were fitted to; surfaces lie beside it, packed, and are read when first asked for.
An index of all constants comes with a wheel or is kept in the cache, since YAML takes forty times longer to read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.derived import derived
from archsim.base.errors import SpecError
from archsim.base.input_file import parse_json, read_text
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.plugins import data_folders
from archsim.spec.catalog import data_roots, resolve
from archsim.spec.hardware import load
from archsim.spec.loader import read
from archsim.timing.classes.model import Fitted
from archsim.timing.device import rates_per_cycle
from archsim.timing.surface_file import FILE as SURFACES

FILE = "calibration.yaml"
ABOUT = ("errors", "warnings")
"""What a file says of a fit beyond what a prediction needs."""
LARGEST = 256 * 2**20
"""Bytes of an index."""


class Entry(NamedTuple):
    """One fit: a class of kernels in one number format on one device, by one engine.

    kernel: the implementation, empty where all of an engine's are fitted together. local: says nothing of other
    devices. measured: of an implementation, the range of extents by which they differ in what they can do. interval:
    by regime of the class, or under "all", the log-residuals measured/predicted that a tenth of unseen shapes lie below
    and above. released, sustained, memory, family, vendor: of the device, by which the nearest is found where nothing
    was fitted; `released` is a year and its fraction, 0 where unknown; `family` is its lineage. per_cycle: of one
    unit in a cycle, FLOP by dtype and bytes of memory. cache: bytes of the last level, 0 where unknown. unused:
    constants that no row of the fit depends on.
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
    measured: Mapping[str, tuple[float, float]] = MappingProxyType({})
    surfaces: tuple[str, str] | None = None
    interval: Mapping[str, tuple[float, float]] = MappingProxyType({})
    vendor: str = ""
    family: str = ""
    released: float = 0.0
    sustained: float = 0.0
    memory: str = ""
    per_cycle: Mapping[str, float] = MappingProxyType({})
    cache: int = 0
    unused: Sequence[str] = ()


class TransferError(NamedTuple):
    """Error of a class of kernels when the entry used was fitted on another engine, format or device.

    interval: as of an entry. surfaces: whether the entry's surfaces lower the error. trust: how far the entry's
    constants stand, in log, between the class's usual ones (0) and its own (1): what one architecture's kernels reach
    is a sample of what kernels reach, no law for the next. middle: whether the usual ones are the middle of all fits
    of the class, where there are any, not those that its formula states. median: of the absolute error.
    """

    interval: Mapping[str, tuple[float, float]]
    surfaces: bool = True
    trust: float = 1.0
    middle: bool = False
    median: float | None = None


Grade = Literal["fitted", "engine", "format", "family", "relative", "device", "class", "far", "datasheet"]
"""What a fit shares with the call that it prices: "fitted": engine, format and device; "engine", "format": all but that
one; "family": another device of the same architecture; "relative": such a device, but another engine or format;
"device": a device of another architecture with the same kind of memory; "class": with another kind of memory; "far":
nor the format; "datasheet": there is no fit."""


class DeviceTraits(NamedTuple):
    """What decides which device's fit stands for another: descent and kind of memory, not its rates, so that a faster
    device of one kind never takes other kernels' constants. family, released, per_cycle, cache: as of an entry.
    sustained: share of the peak that the best large product was measured at, 0 where unknown; narrow: the same of
    products in less than 16 bits, where it is known apart. runs: the interval, in log, that whole runs of the engine on
    the architecture showed, where they are all that is known.
    """

    id: str
    vendor: str
    family: str
    released: float = 0.0
    sustained: float = 0.0
    memory: str = ""
    narrow: float = 0.0
    runs: tuple[float, float] | None = None
    per_cycle: tuple[tuple[str, float], ...] = ()
    cache: int = 0


class FitQuery(NamedTuple):
    """The kernel, device and engine that a fit is wanted for. own: the engine whose runs say something of it, where
    the tables of another stand for the rest. also: further formats whose fits are as good as those of `dtype`.
    int8_alone: whether quantised weights are never widened to 16 bits.
    """

    device: DeviceTraits
    engine: str
    version: str
    op: str
    dtype: str
    kv_dtype: str
    kernel: str
    own: str = ""
    also: tuple[str, ...] = ()
    int8_alone: bool = False


class KernelFit(NamedTuple):
    """The fit that prices a class of calls. level: its transfer error. interval: of its own, by regime.

    dtype: the table's format that the fit is of, where a call's kernels may be of several; else empty. measured: as
    of an entry.
    """

    fitted: Fitted
    grade: Grade
    level: TransferError
    interval: Mapping[str, tuple[float, float]]
    dtype: str = ""
    measured: Mapping[str, tuple[float, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Store:
    """Calibrations as one immutable value, handed to whoever times kernels.

    entries: all fits. levels: the transfer error by class and grade. engines: overheads by engine. fits: the
    nearest fits of every query so far; own_class: whether these say more than those of a wider class. A store equals
    only itself, so that it can key caches of what follows from it.
    """

    entries: tuple[Entry, ...]
    levels: Mapping[str, Mapping[str, TransferError]]
    engines: Mapping[str, JsonMapping]
    by_op: dict[str, list[Entry]] = field(init=False, repr=False)
    fits: dict[FitQuery, tuple[KernelFit, ...]] = field(init=False, repr=False)
    own_class: dict[FitQuery, bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_op: dict[str, list[Entry]] = {}
        for entry in self.entries:
            by_op.setdefault(entry.op, []).append(entry)
        object.__setattr__(self, "by_op", by_op)
        object.__setattr__(self, "fits", {})
        object.__setattr__(self, "own_class", {})


@cache
def default_store() -> Store:
    """The calibrations of the data folders, read once; a user's own come before those that archsim brings."""
    entries: list[Entry] = []
    levels: dict[str, dict[str, TransferError]] = {}
    engines: dict[str, JsonMapping] = {}
    for folder in folders():
        data = _index(folder)
        entries += _entries(folder, data)
        for op, found in data.get("levels", {}).items():
            for name, level in found.items():
                levels.setdefault(op, {}).setdefault(name, TransferError(**level))
        for name, profile in data.get("engines", {}).items():
            engines.setdefault(name, profile)
    return Store(entries=tuple(entries), levels=levels, engines=engines)


def _entries(folder: Path, data: JsonMapping) -> list[Entry]:
    """The entries of an index, with the files that hold their surfaces, and the names there."""
    found = []
    for item in data["entries"]:
        stack, _, name = item.get("surfaces", "").rpartition("/")
        surfaces = (os.path.join(folder, stack, SURFACES), name) if name else None
        found.append(Entry(**{**item, "surfaces": surfaces}))
    return found


def read_entries(folder: Path) -> Store:
    """What the files of one folder say, without transfer errors."""
    return Store(entries=tuple(_entries(folder, build_index(folder))), levels={}, engines={})


def folders() -> Iterator[Path]:
    """The calibration folders that exist, in the order in which names are looked up."""
    seen: set[str] = set()
    for root in (*data_roots("hardware"), *(folder for folder, _ in data_folders("hardware"))):
        real = os.path.realpath(root / "calibration")
        if real not in seen and os.path.isdir(real):
            seen.add(real)
            yield Path(real)


def _index(folder: Path) -> JsonMapping:
    """The folder's index, or what it would be."""
    path = folder / "index.json"
    if not path.is_file():
        return derived(folder, _sources(folder), lambda: build_index(folder))
    try:
        data: JsonMapping = parse_json(path, read_text(path, LARGEST))
        data["entries"]
    except (SpecError, KeyError, TypeError) as err:
        raise SpecError(
            f"cannot use {path}: not a valid index", code="E109", hints=["remove it; it is built again"]
        ) from err
    return data


def _sources(folder: Path) -> list[str]:
    """What an index is made from: the folder's documents and the devices that they name."""
    roots = (*data_roots("hardware"), *(folder for folder, _ in data_folders("hardware")))
    devices = [path for root in roots for path in (root / "devices").glob("*.yaml")]
    return [__file__, *map(str, folder.rglob("*.yaml")), *map(str, devices)]


def build_index(folder: Path) -> JsonObject:
    """The index of a calibration folder, from the YAML files in it."""
    entries = []
    for path in sorted(folder.glob(f"*/*/{FILE}")):
        document = read(path)
        hardware = load(resolve("hw", str(document["device"])).path)
        shared = {
            "device": hardware.id, "engine": str(document["engine"]), "version": str(document["version"]),
            "vendor": hardware.vendor, "family": hardware.lineage,
            "released": hardware.release, "memory": hardware.memory.kind,
            "sustained": hardware.compute.sustained.get("bf16", 0.0), "per_cycle": dict(rates_per_cycle(hardware)),
            "cache": hardware.l2_bytes or 0,
        }  # fmt: skip
        for fit in document["fits"]:
            entry = {**shared, **json.loads(json.dumps(fit))}
            entry = {name: value for name, value in entry.items() if name not in ABOUT}
            if entry.get("surfaces"):
                entry["surfaces"] = f"{path.parent.relative_to(folder).as_posix()}/{entry['surfaces']}"
            entries.append(entry)
    beside: JsonObject = {}
    for name, file in (("levels", "transfer.yaml"), ("engines", "engines.yaml")):
        path = folder / file
        beside[name] = json.loads(json.dumps(read(path)[name])) if path.is_file() else {}
    for by_grade in beside["levels"].values():
        for level in by_grade.values():
            level.pop("errors", None)
    for engine, measured in beside["engines"].items():
        measured.pop("host_errors", None)
        entries += _of_runs(engine, measured.pop("fits", ()))
    beside["engines"] = {name: measured for name, measured in beside["engines"].items() if measured}
    path = folder / "engines.yaml"
    whole = read(path).get("composition") if path.is_file() else None
    if whole:  # a folder of one's own says nothing of it, and must not stand before what is shipped
        beside["engines"]["composition"] = json.loads(json.dumps(whole))
    return {"entries": entries, **beside}


def _of_runs(engine: str, fits: Sequence[JsonMapping]) -> Iterator[JsonObject]:
    """Entries of an engine whose kernels were fitted to whole runs, on any device of a vendor. A vendor without runs
    may be priced `like` another, as the engine's document says. Experts without a fit run on the engine's products.
    """
    from archsim.spec.engine import load_engine

    alike = [prior for prior in load_engine(engine).time.fits if prior.like is not None]
    own = {(fit["vendor"], fit.get("dtype", "")) for fit in fits if fit["op"] == "moe"}
    products = [fit for fit in fits if fit["op"] == "gemm" and (fit["vendor"], fit.get("dtype", "")) not in own]
    experts = [{**fit, "op": "moe", "constants": experts_like(fit["constants"])} for fit in products]
    for fit in (*fits, *experts):
        dtype = fit.get("dtype", "")
        op = "gemm" if fit in experts else fit["op"]
        same = [p.vendor for p in alike if (p.like, p.kernel_class, p.dtype) == (fit["vendor"], op, dtype)]
        for vendor in (fit["vendor"], *same):
            yield {
                "device": "", "engine": engine, "version": "", "vendor": vendor, "op": fit["op"], "dtype": dtype,
                "constants": fit["constants"], "interval": fit.get("interval", {}),
            }  # fmt: skip


EXPERT_LAUNCHES = 3
"""Launches of an expert layer where its products are kernels of their own: gate, up and down."""

VECTOR_ROWS = 8.0
"""Rows of an expert that run as matrix-vector products, and are padded no further."""


def experts_like(products: Mapping[str, float]) -> dict[str, float]:
    """Constants of expert layers that run as products over the experts hit, one launch for each of their matrices."""
    shared = {name: products[name] for name in ("matrix", "memory", "unpack") if name in products}
    floor = {"floor_us": EXPERT_LAUNCHES * products["floor_us"]} if "floor_us" in products else {}
    return {**shared, **floor, "rereads": 1.0, "tile": VECTOR_ROWS}
