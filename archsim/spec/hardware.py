"""Device and system documents: what a device can do at best, with the source of every figure.

A document holds vendor facts only; measured efficiencies are separate data. All results are raw SI numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from archsim.base.displayed import Displayed
from archsim.base.errors import InvalidPlan, InvalidValue, SpecError, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field, LazyModel, model_validator
from archsim.base.notes import Note
from archsim.base.units import parse_quantity
from archsim.spec import loader
from archsim.spec.hardware_schema import (
    Arch,
    Cache,
    Compute,
    Cost,
    Count,
    DeviceSource,
    Host,
    Level,
    Memory,
    Power,
    Section,
    UnitPeaks,
    covers,
    numeric_leaves,
)

__all__ = ["Hardware", "Link", "Peak", "System", "load", "load_system"]

TREE_DEVICES = 8
"""Devices assumed under the PCIe tree of one server."""


class Link(NamedTuple):
    """What joins a group of devices: the fabric level, and B/s per direction that each device can use."""

    devices: int
    fabric: Level
    bytes_per_s_per_direction: float

    @property
    def name(self) -> str:
        """Name of the fabric level."""
        return self.fabric.name


WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp6", "fp8", "bf16", "fp16", "tf32", "fp32"),
    "fp6": ("fp8", "bf16", "fp16", "tf32", "fp32"),
    "fp8": ("bf16", "fp16", "tf32", "fp32"),
    "int4": ("int8", "fp16", "bf16", "tf32", "fp32"),
    "int8": ("fp16", "bf16", "tf32", "fp32"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "tf32": ("fp32",),
    "fp32": ("fp64",),
    "fp64": (),
}
"""Where a dtype is computed when the device has no units for it: the first of these that it has."""

VECTOR_SHARE = 1 / 16
"""Assumed vector rate over the 16-bit matrix peak where no vector rate is listed (H100: 67 / 989 = 1/15)."""


class Peak(NamedTuple):
    """A dense peak in FLOP/s with at least fp32 accumulation, and the dtype that it belongs to.

    `fallback` says that the device lacks `dtype` and computes it as `dtype_used`; `note` says so in words.
    """

    dtype: str
    dtype_used: str
    flops: float
    unit: Literal["matrix", "vector"]
    fallback: bool
    note: Note | None


def _fastest(entry: UnitPeaks) -> tuple[float, Literal["matrix", "vector"], str]:
    matrix = parse_quantity(entry.matrix, "FLOP/s") if entry.matrix else 0
    vector = parse_quantity(entry.vector, "FLOP/s") if entry.vector else 0
    if matrix >= vector:
        return float(matrix), "matrix", str(entry.matrix)
    return float(vector), "vector", str(entry.vector)


SECTIONS = ("compute", "memory", "cache", "host", "fabric", "power", "cost", "software_devices")
OWN_FIELDS = ("aliases", "notes", "cost", "unverified")
"""Fields that a variant never takes over from the device it derives from."""


def _plain(value: object) -> object:
    """A section as mappings and lists, without what is not stated; pydantic's own way builds serializers first."""
    if isinstance(value, LazyModel):
        return {name: _plain(each) for name, each in value.__dict__.items() if each is not None}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


class Document(Section):
    """What device and system documents share."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    fabric: tuple[Level, ...] = ()
    notes: tuple[str, ...] = ()
    sources: dict[str, DeviceSource] = Field(default_factory=dict)

    @cached_property
    def uncovered(self) -> tuple[str, ...]:
        """Field paths of numbers that no source covers."""
        document = {name: _plain(value) for name in SECTIONS if (value := getattr(self, name, None)) is not None}
        patterns = tuple(path for source in self.sources.values() for path in source.covers)
        return tuple(leaf for leaf in numeric_leaves(document) if not covers(patterns, leaf))

    def _innermost(self, levels: tuple[Level, ...], devices: int, bridges: bool) -> Link:
        """The first level whose domain holds the group (see `Hardware.link`)."""
        if devices < 2:
            raise InvalidPlan(f"a link needs at least 2 devices, not {devices}")
        usable = [level for level in levels if bridges or not level.optional]
        level = next((item for item in usable if item.domain is None or item.domain >= devices), None)
        if level is None:
            largest = max((item.domain or 1 for item in usable), default=1)
            raise InvalidPlan(f"no fabric level of {self.id} joins {devices} devices: the largest holds {largest}")
        if level.per_direction is None:
            raise InvalidPlan(f"the bandwidth of {level.name} of {self.id} is not published")
        rate = parse_quantity(level.per_direction, "B/s") * level.share(devices)
        return Link(devices=devices, fabric=level, bytes_per_s_per_direction=float(rate))


class Hardware(Displayed, Document):
    """One device, the unit that holds a shard: a GPU, a die, a TPU chip, a CPU socket (`per` says which).

    announced: the figures are those of the announcement, from before anyone could measure.
    """

    schema_: Literal["archsim.hardware/1"] = Field(alias="schema")
    vendor: str
    per: Literal["gpu", "die", "package", "chip", "superchip", "soc", "socket"] = "gpu"
    software_devices: Count | None = None
    variant_of: str | None = None
    arch: Arch
    compute: Compute = Compute.model_construct()
    memory: Memory
    cache: Cache = Cache.model_construct()
    host: Host | None = None
    power: Power | None = None
    cost: tuple[Cost, ...] = ()
    confidence: Literal["high", "medium", "low"] = "low"
    announced: bool = False
    unverified: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _peaks_match_the_clock(self) -> Hardware:
        """E113 when a listed peak departs from units x FLOP/clk x clock by more than 15 %."""
        for dtype, ratio in self.formula_ratios.items():
            if abs(ratio - 1) > 0.15:
                hint = "; a factor of two is a 2:4-sparse figure or another accumulator" if ratio > 1.5 else ""
                message = f"{dtype} peak is {ratio:.2f} x units x FLOP/clk x clock of {self.id}{hint}"
                raise InvalidValue(message, code="E113", field="compute")
        return self

    @model_validator(mode="after")
    def _cost_has_source(self) -> Hardware:
        """Every price names an entry of `sources`."""
        for cost in self.cost:
            if cost.source not in self.sources:
                raise InvalidValue(f"cost names the source `{cost.source}`, absent from `sources`", field="cost")
        return self

    @cached_property
    def formula_ratios(self) -> dict[str, float]:
        """Listed peak over units x FLOP/clk x clock, for each dtype where the document gives all three."""
        units, clock = self.compute.units, self.compute.clock_mhz.peak
        if units is None or clock is None:
            return {}
        return {
            dtype: self.peak_flops(dtype).flops / (units.count * per_clock * clock * 1e6)
            for dtype, per_clock in self.compute.flop_per_clk_per_unit.items()
            if dtype in self.compute.peak
        }

    @cached_property
    def warnings(self) -> tuple[Note, ...]:
        """Doubts about the document: figures of an announcement, a peak 3 to 15 % off its formula, numbers without a
        source.
        """
        off = [
            Note("W04", f"{dtype} peak is {ratio:.3f} x units x FLOP/clk x clock")
            for dtype, ratio in self.formula_ratios.items()
            if abs(ratio - 1) > 0.03
        ]
        early = [Note("W11", f"figures of {self.name} are those of its announcement: nobody has measured them")]
        return (*early[: self.announced], *off, *(Note("W05", f"no source covers {path}") for path in self.uncovered))

    def peak_flops(self, dtype: str) -> Peak:
        """The dense peak for matrix products of a dtype, on the fastest unit that accumulates in fp32.

        A dtype that the device lacks goes to its `fallback`, then to the next wider dtype it has; the result
        says so. `fp8@fp4/bf16` is the first where the device has units for the second, which take operands as wide as
        the first too; else the third: weights that are unpacked there. Raises UsageError E121 for an unknown dtype or a
        device without any wide enough peak.
        """
        narrow, _, unpacked = dtype.partition("/")
        if unpacked:
            rate, _, units = narrow.partition("@")
            return self.peak_flops(rate if (units or rate) in map(str, self.compute.peak) else unpacked)
        if dtype not in WIDER:
            raise UsageError(f"no dtype named `{dtype}`", code="E121", hints=[f"known: {', '.join(WIDER)}"])
        entries: dict[str, UnitPeaks] = {str(name): entry for name, entry in self.compute.peak.items()}
        explicit = [str(wider) for name, wider in self.compute.fallback.items() if name == dtype]
        used = next((name for name in (dtype, *explicit, *WIDER[dtype]) if name in entries), None)
        if used is None:
            raise UsageError(f"{self.id} lists no peak for {dtype} nor for any wider dtype", code="E121")
        flops, unit, text = _fastest(entries[used])
        note = Note("A12", f"{self.id} has no {dtype} units: computed in {used} at {text}") if used != dtype else None
        return Peak(dtype=dtype, dtype_used=used, flops=flops, unit=unit, fallback=used != dtype, note=note)

    @cached_property
    def vector_peak(self) -> Peak:
        """The fp32 rate of the vector units; where unlisted, 1/16 of the 16-bit peak (`fallback` is set)."""
        fp32 = self.compute.peak.get("fp32")
        if fp32 and fp32.vector:
            flops = float(parse_quantity(fp32.vector, "FLOP/s"))
            return Peak(dtype="fp32", dtype_used="fp32", flops=flops, unit="vector", fallback=False, note=None)
        base = self.peak_flops("bf16")
        flops = base.flops * (VECTOR_SHARE if base.unit == "matrix" else 1.0)
        rate = f"{flops / 1e12:.3g} TFLOP/s"
        note = Note("A13", f"{self.id} lists no fp32 vector rate: taken as {rate}, from its {base.dtype_used} peak")
        return Peak(dtype="fp32", dtype_used=base.dtype_used, flops=flops, unit="vector", fallback=True, note=note)

    @property
    def vector_flops(self) -> float:
        """fp32 FLOP/s of the vector units (see `vector_peak` for the fallback)."""
        return self.vector_peak.flops

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes of device memory: what the driver reports where known."""
        return int(parse_quantity(self.memory.capacity, "B"))

    @cached_property
    def working_set_bytes(self) -> int:
        """Bytes that the device may use by default: less than `memory_bytes` where a CPU shares them."""
        return int(parse_quantity(self.memory.working_set or self.memory.capacity, "B"))

    @property
    def lineage(self) -> str:
        """Devices of one lineage run the same machine code: the architecture with the major number of its compute
        capability (CUDA's family-specific targets, as sm_100f for 10.0 and 10.3); else the architecture alone.
        """
        return f"{self.arch.family.split()[0]} {self.generation}" if self.generation else self.arch.family

    @property
    def generation(self) -> int:
        """The major number of its compute capability, 0 where it has none."""
        major = re.match(r"(\d+)\.\d+", self.arch.compute_capability or "")
        return int(major[1]) if major else 0

    @property
    def release(self) -> float:
        """When the device was released, as a year and its fraction to the month; 0 where unknown."""
        stated = re.match(r"(\d{4})(?:-(\d\d))?", self.arch.released or "")
        return int(stated[1]) + (int(stated[2] or 1) - 1) / 12 if stated else 0.0

    @cached_property
    def bandwidth(self) -> float:
        """Peak memory bandwidth in B/s."""
        return float(parse_quantity(self.memory.bandwidth, "B/s"))

    @cached_property
    def l2_bytes(self) -> int | None:
        """Bytes of the L2 shared by all units, if listed."""
        return int(parse_quantity(self.cache.l2, "B")) if self.cache.l2 else None

    @cached_property
    def tdp_w(self) -> float | None:
        """Power limit in watts, if listed; a whole number is an int."""
        return parse_quantity(self.power.tdp, "W") if self.power else None

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Fabric levels innermost first, with the PCIe tree of a server of 8 where no fixed inner level exists."""
        inner = tuple(level for level in self.fabric if level.level != "cluster")
        host = self._slot
        if host is None or any(not level.optional for level in inner):
            return self.fabric
        rate = host.per_direction
        tree = Level(name=host.link, level="node", topology="host", domain=TREE_DEVICES, per_direction=rate)
        return (*inner, tree, *(level for level in self.fabric if level.level == "cluster"))

    @property
    def _scale_up(self) -> tuple[Level, ...]:
        """The levels below the cluster network; the PCIe tree only where there is nothing else."""
        listed, whole = (tuple(x for x in found if x.level != "cluster") for found in (self.fabric, self.levels))
        return listed or whole

    def link(self, devices: int, *, bridges: bool = False) -> Link:
        """The innermost fabric level that holds a group of devices.

        A full mesh or torus serves a small group only with the links between its members. `bridges` counts
        levels marked optional. Raises InvalidPlan when no level holds the group or its rate is unknown.
        """
        return self._innermost(self.levels, devices, bridges)

    @property
    def _slot(self) -> Host | None:
        """The host link where it is a slot that devices share; a system on a chip is alone on its board."""
        return None if self.per == "soc" else self.host

    @cached_property
    def max_domain(self) -> int:
        """Devices in the largest scale-up domain; of a device without fabric, those of one PCIe tree, else 1."""
        return max((level.domain or 0 for level in self._scale_up), default=1)

    @cached_property
    def link_bytes_per_s(self) -> float | None:
        """B/s per direction of the innermost level with all its links in use; None where unpublished."""
        rate = next((level.per_direction for level in self._scale_up), None)
        return float(parse_quantity(rate, "B/s")) if rate else None

    @cached_property
    def memo(self) -> WeakKeyDictionary[Any, Any]:
        """What others computed for this very document, by the object that it also follows from."""
        return WeakKeyDictionary()

    def in_system(self, system: System) -> Hardware:
        """The same device with the fabric of the machine it sits in."""
        if system.device != self.id:
            raise InvalidPlan(f"{system.id} is built of {system.device}, not of {self.id}")
        document = self.model_dump(by_alias=True, exclude_none=True)
        document["sources"] |= {f"{system.id}/{key}": source for key, source in system.sources.items()}
        return Hardware.model_validate({**document, "fabric": system.fabric})

    def to_dict(self) -> JsonObject:
        """The `archsim.hardware/1` object: raw SI numbers, dense peaks, None for what is not known."""
        return describe(self)


class System(Document):
    """A machine or pod: how many of which device, and the fabric levels that join them."""

    schema_: Literal["archsim.system/1"] = Field(alias="schema")
    device: str
    count: int = Field(gt=1)

    def link(self, devices: int) -> Link:
        """The innermost level of this system that holds a group; raises InvalidPlan as `Hardware.link`."""
        return self._innermost(self.fabric, devices, bridges=True)


def load(
    path: Path | str, find: Callable[[str], Path] | None = None, read: Callable[[Path], loader.Node] = loader.read
) -> Hardware:
    """Read a device document, with the documents it is a `variant_of` merged underneath.

    `find` maps a device id to its file (default: `<id>.yaml` beside this one); `read` reads a file. In a variant,
    null removes an inherited field. Raises the loader's errors for a bad file, SpecError E109 for a missing or
    circular base.
    """
    node = _merge(Path(path), find or (lambda name: Path(path).parent / f"{name}.yaml"), read, ())
    return loader.validate(node, Hardware, document="hardware")


def load_system(path: Path, read: Callable[[Path], loader.Node] = loader.read) -> System:
    """Read a system document; errors as `load`."""
    return loader.validate(read(path), System, document="system")


def _merge(
    path: Path, find: Callable[[str], Path], read: Callable[[Path], loader.Node], seen: tuple[str, ...]
) -> loader.Node:
    """The document with its bases underneath."""
    node = read(path)
    base_id = node.get("variant_of")
    if not isinstance(base_id, str):
        return node
    base_path = find(base_id)
    if base_id in seen or not base_path.is_file():
        why = "is its own base" if base_id in seen else "has no file"
        raise SpecError(f"{path}: variant_of `{base_id}`, which {why}", code="E109")
    return loader.merge(_inherit(_merge(base_path, find, read, (*seen, base_id))), node)


def _inherit(base: loader.Node) -> loader.Node:
    """What a variant takes over: all but OWN_FIELDS and the sources that cover only these."""
    for field in OWN_FIELDS:
        base.pop(field, None)
    sources = base.get("sources")
    if not isinstance(sources, loader.Node):
        return base
    for key, source in list(sources.items()):
        stated = source.get("covers") if isinstance(source, loader.Node) else None
        left = [path for path in stated or () if path not in OWN_FIELDS]
        if stated and not left:
            del sources[key]
        elif stated:
            source["covers"] = left
    return base


# ---------------------------------------------------------------------- as plain data
def describe(hardware: Hardware) -> JsonObject:
    """The contract's keys, then what else the document says; a dtype that the device lacks is absent."""
    return {
        "schema": "archsim.hardware/1",
        "id": hardware.id,
        "name": hardware.name,
        "vendor": hardware.vendor,
        "per": hardware.per,
        "confidence": hardware.confidence,
        "announced": hardware.announced,
        "peaks_flops": peaks(hardware),
        "peaks_fp16_accumulate_flops": _narrow(hardware),
        "memory_bytes": hardware.memory_bytes,
        "working_set_bytes": hardware.working_set_bytes,
        "bandwidth_bytes_per_s": hardware.bandwidth,
        "link_bytes_per_s_per_direction": hardware.link_bytes_per_s,
        "max_domain": hardware.max_domain,
        "tdp_w": hardware.tdp_w,
        "l2_bytes": hardware.l2_bytes,
        "memory": hardware.memory.model_dump(),
        "arch": hardware.arch.model_dump(exclude_none=True),
        "compute": hardware.compute.model_dump(include={"units", "clock_mhz", "flop_per_clk_per_unit"}),
        "fabric": [_level(level) for level in hardware.levels],
        "cost": [cost.model_dump(exclude_none=True) for cost in hardware.cost],
        "aliases": list(hardware.aliases),
        "variant_of": hardware.variant_of,
        "notes": list(hardware.notes),
        "unverified": list(hardware.unverified),
        "warnings": [note.text for note in hardware.warnings],
        "sources": [_source(key, source) for key, source in hardware.sources.items()],
    }


def peaks(hardware: Hardware) -> dict[str, float]:
    """Dense FLOP/s by dtype with fp32 accumulation.

    `fp32` and `fp64` are the vector units' where these are listed, `fp32_matrix` and `fp64_matrix` the matrix
    units'; every narrower dtype has one figure, the matrix units' if there are any.
    """
    result: dict[str, float] = {}
    for dtype, entry in hardware.compute.peak.items():
        wide = dtype in ("fp32", "fp64")
        first = (entry.vector or entry.matrix) if wide else (entry.matrix or entry.vector)
        assert first is not None  # UnitPeaks refuses an entry with neither
        result[dtype] = float(parse_quantity(first, "FLOP/s"))
        if wide and entry.vector and entry.matrix:
            result[f"{dtype}_matrix"] = float(parse_quantity(entry.matrix, "FLOP/s"))
    return result


def _narrow(hardware: Hardware) -> dict[str, float]:
    found = {dtype: entry.fp16_accumulate for dtype, entry in hardware.compute.peak.items()}
    return {dtype: float(parse_quantity(text, "FLOP/s")) for dtype, text in found.items() if text}


def _level(level: Any) -> JsonObject:
    rate = float(parse_quantity(level.per_direction, "B/s")) if level.per_direction else None
    kept = level.model_dump(include={"name", "level", "topology", "domain", "links", "optional"})
    return {**kept, "bytes_per_s_per_direction": rate}


def _source(key: str, source: Any) -> JsonObject:
    return {"id": key, **source.model_dump(mode="json")}
