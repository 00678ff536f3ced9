"""A device of the catalog as the plain rates that the roofline needs, and what had to be assumed for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from archsim.base.errors import UsageError
from archsim.cost.roofline import Machine
from archsim.spec.hardware import Hardware


@dataclass(slots=True)
class Rates:
    """Looks up peaks once each, and collects every fallback in words."""

    hardware: Hardware
    notes: list[str] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)
    links: dict[int, float] = field(default_factory=dict)

    def machine(self) -> Machine:
        """The device as the roofline sees it."""
        vector = self.hardware.vector_peak
        self._note(vector.note)
        return Machine(
            matrix_flops=self.matrix,
            vector_flops=vector.flops,
            bandwidth=self.hardware.bandwidth,
            cache_bytes=self.hardware.l2_bytes or 0,
            link=self.link,
            reduces=self.reduces,
        )

    def matrix(self, dtype: str) -> float:
        """Dense peak in FLOP/s; a dtype without units is computed in the next wider one, which is noted."""
        if dtype not in self.peaks:
            peak = self._peak(dtype)
            self.peaks[dtype] = peak
        return self.peaks[dtype]

    def _peak(self, dtype: str) -> float:
        try:
            peak = self.hardware.peak_flops(dtype)
        except UsageError:
            if dtype != "fp32":
                raise
            peak = self.hardware.peak_flops("bf16")
            self._note(f"{self.hardware.id} lists no fp32 peak: fp32 products are priced at its bf16 peak")
        self._note(peak.note)
        return peak.flops

    def link(self, devices: int) -> float:
        """B/s per direction that each of `devices` has inside their group."""
        if devices not in self.links:
            self.links[devices] = self.hardware.link(devices).bytes_per_s_per_direction
        return self.links[devices]

    def reduces(self, devices: int) -> bool:
        """Whether the switch adds up an all-reduce over that many devices."""
        fabric = self.hardware.link(devices).fabric
        reduction = fabric.in_network_reduction
        return reduction is not None and devices >= reduction.min_ranks

    def _note(self, text: str | None) -> None:
        if text and text not in self.notes:
            self.notes.append(text)
