"""A device of the catalog as the plain rates that the roofline needs, and what had to be assumed for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from archsim.base.errors import UsageError
from archsim.base.notes import Note
from archsim.spec.hardware import Hardware, Peak
from archsim.spec.hardware_schema import Level
from archsim.timing.roofline import Hop, Machine

LANE_FLOPS = 256
"""FLOP in a cycle of one unit with 128 lanes, as GPUs of the 2020s have."""


@dataclass(slots=True)
class Rates:
    """Looks up peaks once each, and collects a note for every fallback."""

    hardware: Hardware
    notes: list[Note] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)
    levels: dict[tuple[int, int], tuple[Hop, ...]] = field(default_factory=dict)

    def machine(self) -> Machine:
        """The device as the roofline sees it."""
        vector = self.hardware.vector_peak
        self._note(vector.note)
        return Machine(
            matrix_flops=self.matrix,
            separate=self.separate,
            vector_flops=vector.flops,
            bandwidth=self.hardware.bandwidth,
            cache_bytes=self.hardware.l2_bytes or 0,
            hops=self.hops,
            units=self.hardware.compute.units.count if self.hardware.compute.units else 0,
            cycles=self._cycles(vector.flops),
            computes=self.computes,
        )

    def _cycles(self, vector_flops: float) -> float:
        """Unit cycles in a second; without a listed clock those of units of 128 lanes that add and multiply."""
        units, clock = self.hardware.compute.units, self.hardware.compute.clock_mhz
        rate = clock.peak or clock.max
        return units.count * rate * 1e6 if units and rate else vector_flops / LANE_FLOPS

    def matrix(self, dtype: str) -> float:
        """Dense peak in FLOP/s; a dtype without units is computed in the next wider one, which is noted."""
        return self.peak(dtype).flops

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
            text = f"{self.hardware.id} lists no fp32 peak: fp32 products are priced at its bf16 peak"
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


def _medium(level: Level) -> Literal["link", "host", "network"]:
    if level.level == "cluster":
        return "network"
    return "host" if level.topology == "host" else "link"
