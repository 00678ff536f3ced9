"""A device of the catalog as the rates that kernels are priced with, and what had to be assumed for them."""

from __future__ import annotations

from copy import copy
from dataclasses import field
from typing import Literal, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.base.notes import Note
from archsim.base.number import Num, everywhere
from archsim.base.units import parse_quantity
from archsim.spec.hardware import Hardware, Peak
from archsim.spec.hardware_schema import Level

LANE_FLOPS = 256
"""FLOP in a cycle of one unit with 128 lanes, as GPUs of the 2020s have."""


Accumulator = Literal["fp16", "fp32"]
"""What a product adds up in."""

PRODUCTS = ("bf16", "fp8", "fp4", "int8")
"""Dtypes that the matrix units of GPUs multiply in."""

SIXTEEN = ("bf16", "fp16")
"""Dtypes of the 16-bit matrix units."""


class Hop(NamedTuple):
    """One level of the fabric inside a group: how many ranks it joins, B/s per direction of one rank, whether its
    switch adds up an all-reduce, and what it is made of: links between devices, a server's PCIe tree, a network.
    """

    ranks: int
    rate: float
    reduces: bool = False
    medium: Literal["link", "host", "network"] = "link"


class Stream(NamedTuple):
    """A level of memory that kernels stream from. size: bytes of a cache, 0 of memory itself. rate: B/s."""

    size: int
    rate: float


@dataclass(slots=True, eq=False)
class DeviceRates:
    """The rates that kernels of a device are priced with. Peaks are looked up once each, fallbacks are noted.

    accumulate: what the engine's products in 16 bits add up in; fp16 is twice as fast as fp32 on GeForce cards.
    vector_flops: of the vector unit, in FLOP/s. bandwidth: HBM in B/s. cache_bytes: last-level cache. units: SMs, CUs
    or cores that tiles are spread over, 0 where unlisted. cycles: clock cycles of all units in a second. streams: of a
    processor, its caches from the innermost on, as far as their rates are listed, and memory.
    """

    hardware: Hardware
    notes: list[Note] = field(default_factory=list)
    accumulate: Accumulator = "fp32"
    peaks: dict[str, Peak] = field(default_factory=dict)
    levels: dict[tuple[int, int], tuple[Hop, ...]] = field(default_factory=dict)
    vector_flops: float = field(init=False)
    bandwidth: float = field(init=False)
    cache_bytes: int = field(init=False)
    units: int = field(init=False)
    cycles: float = field(init=False)
    streams: tuple[Stream, ...] = field(init=False)

    def __post_init__(self) -> None:
        vector, units = self.hardware.vector_peak, self.hardware.compute.units
        self._note(vector.note)
        self.vector_flops, self.bandwidth = vector.flops, self.hardware.bandwidth
        self.cache_bytes, self.units = self.hardware.l2_bytes or 0, units.count if units else 0
        self.cycles = cycles(self.hardware)
        caches = [(level.size, level.bandwidth) for level in self.hardware.cache.levels]
        found = [Stream(int(parse_quantity(size, "B")), parse_quantity(rate, "B/s")) for size, rate in caches]
        self.streams = (*found, Stream(0, self.bandwidth))

    @property
    def is_processor(self) -> bool:
        """Whether kernels run on the cores of a CPU."""
        units = self.hardware.compute.units
        return self.hardware.per == "socket" and units is not None and units.kind == "core"

    @property
    def has_cache_rates(self) -> bool:
        """Whether the rates of its caches are listed, so that what stays in one can be priced."""
        return len(self.streams) > 1

    def holding(self, held: Num) -> DeviceRates:
        """The same processor while a step touches `held` bytes before it comes to the same ones again: what fits into a
        cache comes back at that cache's rate, and activations that fit do not go to memory.
        """
        rates = copy(self)
        fitting = [level for level in self.streams if everywhere(held < level.size)]
        rates.bandwidth = fitting[0].rate if fitting else self.bandwidth
        rates.cache_bytes = max(level.size for level in self.streams)
        return rates

    def accumulating(self, accumulator: Accumulator) -> DeviceRates:
        """The same device under an engine whose 16-bit products add up in `accumulator`; notes are shared."""
        if accumulator == self.accumulate:
            return self
        return DeviceRates(self.hardware, notes=self.notes, accumulate=accumulator)

    def matrix_flops(self, dtype: str) -> float:
        """Dense peak of products with weights in FLOP/s, by the engine's accumulator. A dtype without units is computed
        in the next wider one, which is noted.
        """
        if self.accumulate == "fp16" and self.computes(dtype) in SIXTEEN:
            return max(self.peak(dtype).flops, self._fp16_accumulate())
        return self.peak(dtype).flops

    def attention_flops(self, dtype: str) -> float:
        """Dense peak of attention in FLOP/s: its kernels add up in fp32 in every engine."""
        return self.peak(dtype).flops

    def _fp16_accumulate(self) -> float:
        """The 16-bit peak with fp16 accumulation in FLOP/s; 0 where it is not a rate of its own."""
        listed = self.hardware.compute.peak.get("fp16")
        return float(parse_quantity(listed.fp16_accumulate, "FLOP/s")) if listed and listed.fp16_accumulate else 0.0

    def computes(self, dtype: str) -> str:
        """The dtype whose units products of `dtype` run on."""
        return self.peak(dtype).dtype_used

    def separate(self, dtype: str) -> bool:
        """Whether products of a dtype run on matrix units, beside the vector unit."""
        return self.peak(dtype).unit == "matrix"

    def peak(self, dtype: str) -> Peak:
        """The device's peak for a dtype, each looked up once."""
        if dtype not in self.peaks:
            self.peaks[dtype] = self._peak(dtype)
        return self.peaks[dtype]

    def _peak(self, dtype: str) -> Peak:
        try:
            peak = self.hardware.peak_flops(dtype)
        except UsageError:
            if dtype != "fp32":
                raise
            peak = self.hardware.peak_flops("bf16")
            text = f"{self.hardware.id} lists no fp32 peak: fp32 products run at its bf16 peak"
            self._note(Note("A14", text))
        self._note(peak.note)
        return peak

    def hops(self, ranks: int, stride: int = 1) -> tuple[Hop, ...]:
        """The levels that join `ranks` devices standing `stride` apart; a group beyond the innermost domain is
        split over the domains, whose members then reach the others over the next level.
        """
        key = ranks, stride
        if key not in self.levels:
            inside = max(1, min(ranks, self.hardware.max_domain // stride))
            found = [self._hop(inside, inside * stride)] if inside > 1 else []
            if inside < ranks:
                found.append(self._hop(-(-ranks // inside), ranks * stride))
            self.levels[key] = tuple(found)
        return self.levels[key]

    def _hop(self, ranks: int, devices: int) -> Hop:
        link = self.hardware.link(devices)
        reduction = link.fabric.in_network_reduction
        reduces = reduction is not None and ranks >= reduction.min_ranks
        return Hop(ranks, link.bytes_per_s_per_direction, reduces, _medium(link.fabric))

    def _note(self, note: Note | None) -> None:
        if note and note not in self.notes:
            self.notes.append(note)


def cycles(hardware: Hardware) -> float:
    """Unit cycles in a second; without a listed clock those of units of 128 lanes that add and multiply."""
    units, clock = hardware.compute.units, hardware.compute.clock_mhz
    rate = clock.peak or clock.max
    return units.count * rate * 1e6 if units and rate else hardware.vector_peak.flops / LANE_FLOPS


FED = "memory"
"""What the bytes that memory gives a unit in a cycle go by, beside the dtypes of its products."""


def rates_per_cycle(hardware: Hardware) -> tuple[tuple[str, float], ...]:
    """Of one unit in one cycle: dense FLOP of its matrix units, for every dtype of products that has a peak of its own,
    and bytes of memory's bandwidth.
    """
    listed = [name for name in PRODUCTS if name in hardware.compute.peak]
    products = tuple((name, hardware.peak_flops(name).flops / cycles(hardware)) for name in listed)
    return (*products, (FED, hardware.bandwidth / cycles(hardware)))


def _medium(level: Level) -> Literal["link", "host", "network"]:
    if level.level == "cluster":
        return "network"
    return "host" if level.topology == "host" else "link"
