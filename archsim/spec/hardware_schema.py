"""The sections of a device document. Every quantity carries its unit; a bare number is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from archsim.base.errors import InvalidValue
from archsim.base.lazy_model import Check, Field, LazyModel, model_validator
from archsim.base.units import UnitError, parse_quantity

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4"]
"""Number formats that a device may list a peak for."""

Topology = Literal["switch", "full_mesh", "ring", "torus2d", "torus3d", "fat_tree", "bridge", "point_to_point", "host"]
"""How the devices of one fabric level are joined. `host` is the PCIe tree of one server."""


def _quantity(unit: str, example: str) -> Callable[[Any], str]:
    """A validator that accepts only positive quantities of `unit`, written with the unit."""

    def check(value: object) -> str:
        if parse_quantity(value, unit) <= 0:
            raise UnitError(f"`{value}` must be above zero", hints=[f"write it like `{example}`"])
        return str(value)

    return check


Flops = Annotated[str, Check("before", _quantity("FLOP/s", "989.4 TFLOP/s"))]
Rate = Annotated[str, Check("before", _quantity("B/s", "3352 GB/s"))]
Size = Annotated[str, Check("before", _quantity("B", "81559 MiB"))]
Watts = Annotated[str, Check("before", _quantity("W", "700 W"))]
Count = Annotated[int, Field(gt=0)]


class Section(LazyModel):
    """A frozen part of a document; unknown keys are errors.

    Defaults that are sections come from `model_construct`, since validating them would compile them at import.
    """


class DeviceSource(Section):
    """Where figures come from. `covers` lists field paths; `memory` covers everything under `memory`. spread: of
    measured figures, by field path: half the width of the middle 80 % of the repeats, as a share of the figure.
    """

    title: str
    url: str | None = None
    date: str | None = None
    kind: Literal["vendor", "secondary", "measured", "derived", "price", "unverified"]
    covers: tuple[str, ...] = Field(min_length=1)
    spread: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_address(self) -> DeviceSource:
        if self.url is None and self.kind in ("vendor", "secondary", "price"):
            raise InvalidValue(f"a source of kind {self.kind} needs a url", code="E104")
        return self


class Arch(Section):
    """What the device is: architecture, the compiler's name for it and its release date (ISO, may be short)."""

    family: str
    chip: str | None = None
    compute_capability: str | None = None
    isa: str | None = None
    released: str | None = None


class Units(Section):
    """The parallel units that the vendor counts: SMs, CUs, TensorCores, cores."""

    kind: str
    count: Count


class Clock(Section):
    """MHz. `peak` is the clock of the listed peaks, `max` the highest one the device runs at."""

    peak: Count | None = None
    max: Count | None = None


class UnitPeaks(Section):
    """Dense peaks of one dtype by execution unit.

    `matrix` and `vector` accumulate in fp32 (int32 for integers); `fp16_accumulate` is the matrix unit
    with a narrower accumulator, twice as fast on GeForce parts.
    """

    matrix: Flops | None = None
    vector: Flops | None = None
    fp16_accumulate: Flops | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: object) -> Any:
        """A plain quantity is the matrix unit; `{value, unit, accumulate}` is read as well."""
        if not isinstance(value, dict):
            return {"matrix": value}
        if "value" not in value:
            return value
        rest = {key: item for key, item in value.items() if key not in ("value", "unit", "accumulate")}
        narrow = value.get("accumulate", "fp32") == "fp16"
        return {**rest, "fp16_accumulate" if narrow else value.get("unit", "matrix"): value["value"]}

    @model_validator(mode="after")
    def _not_empty(self) -> UnitPeaks:
        if not (self.matrix or self.vector):
            raise InvalidValue("a dtype needs a `matrix` or a `vector` peak with fp32 accumulation", code="E104")
        return self


class Compute(Section):
    """Arithmetic: units, clock, and the dense peak of each dtype. `fallback` names substitutes by dtype. `sustained`:
    the share of the peak that the best large product was measured at.
    """

    units: Units | None = None
    clock_mhz: Clock = Clock.model_construct()
    flop_per_clk_per_unit: dict[Dtype, Count] = Field(default_factory=dict)
    peak: dict[Dtype, UnitPeaks] = Field(default_factory=dict)
    sustained: dict[Dtype, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    fallback: dict[Dtype, Dtype] = Field(default_factory=dict)


class Memory(Section):
    """The memory that holds weights. `label` is what the box says, `capacity` what the driver reports.

    `working_set` is the part that the device may use by default where it shares memory with a CPU. `one_thread`: of a
    processor, the part of the bandwidth that a single thread draws.
    """

    type: str
    label: str | None = None
    capacity: Size
    bandwidth: Rate
    unified: bool = False
    working_set: Size | None = None
    one_thread: Rate | None = None

    @property
    def kind(self) -> str:
        """The technology without its generation: HBM, GDDR, LPDDR, DDR."""
        found = re.match(r"[A-Z]+DR|HBM|[A-Za-z]+", self.type)
        return found[0] if found else self.type


class CacheLevel(Section):
    """One level of a processor's caches, all its parts together: size, bandwidth of all threads and of a single one."""

    name: str
    size: Size
    bandwidth: Rate
    one_thread: Rate | None = None


class Cache(Section):
    """On-chip memory: shared L2, scratchpad of one unit, last-level cache, large SRAM of accelerators. `levels`: of a
    processor, from the innermost on, with the bandwidth that was measured of each.
    """

    l2: Size | None = None
    smem_per_unit: Size | None = None
    llc: Size | None = None
    sram: Size | None = None
    levels: tuple[CacheLevel, ...] = ()


class Host(Section):
    """The link to the host, per direction."""

    link: str
    per_direction: Rate


class Reduction(Section):
    """Reduction inside the switch: its name, the fewest ranks that profit and the collectives it serves."""

    name: str
    min_ranks: Count
    collectives: tuple[str, ...]


class Level(Section):
    """One fabric level. `per_direction` is what one device sends over all its links, never both ways summed.

    `domain` is the number of devices joined (null: no limit stated), `optional` marks bridges bought
    separately, `wraparound_multiple` the axis lengths at which a torus axis closes to a ring.
    """

    name: str
    level: Literal["node", "rack", "cluster"]
    topology: Topology
    domain: Count | None = None
    links: Count | None = None
    per_link: Rate | None = None
    per_direction: Rate | None = None
    optional: bool = False
    shape: tuple[Count, ...] | None = None
    wraparound_multiple: Count | None = None
    in_network_reduction: Reduction | None = None

    @model_validator(mode="after")
    def _links_add_up(self) -> Level:
        if self.links and self.per_link and self.per_direction:
            total = self.links * parse_quantity(self.per_link, "B/s")
            if abs(total / parse_quantity(self.per_direction, "B/s") - 1) > 0.01:
                message = f"{self.links} links x {self.per_link} is not {self.per_direction}"
                raise InvalidValue(message, code="E113", field="per_direction")
        return self

    def share(self, devices: int) -> float:
        """Part of `per_direction` that a group of this size can use.

        A full mesh gives each peer its own links, so n devices use (n - 1)/(domain - 1) of them; in a torus
        n devices have at most n - 1 neighbours, each behind one link.
        """
        if self.topology == "full_mesh" and self.domain:
            return min(1.0, (devices - 1) / (self.domain - 1))
        if self.topology in ("torus2d", "torus3d") and self.links:
            return min(1.0, (devices - 1) / self.links)
        return 1.0


class Power(Section):
    """Board or package power limit."""

    tdp: Watts


class Cost(Section):
    """A price with provider and date: rented per hour, or bought once."""

    provider: str
    usd_per_hour: Annotated[float, Field(gt=0)] | None = None
    usd: Annotated[float, Field(gt=0)] | None = None
    date: str
    source: str


def numeric_leaves(value: object, path: str = "") -> list[str]:
    """Field paths of all numbers and quantities in a dumped section; list items go by their `name`.

    `label`, the text on the box, is not a number that anything is computed from.
    """
    if isinstance(value, dict):
        items = [(key, item) for key, item in value.items() if key != "label"]
        return [leaf for key, item in items for leaf in numeric_leaves(item, _join(path, key))]
    if isinstance(value, (list, tuple)):
        items = [(item.get("name", i) if isinstance(item, dict) else i, item) for i, item in enumerate(value)]
        return [leaf for key, item in items for leaf in numeric_leaves(item, _join(path, key))]
    if isinstance(value, str):
        return [path] if re.match(r"\d[\d.]* ?[A-Za-z]", value) else []
    return [path] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def covers(patterns: tuple[str, ...], path: str) -> bool:
    """Whether one of the patterns is the path or a section that holds it."""
    return any(path == pattern or path.startswith(pattern + ".") for pattern in patterns)
