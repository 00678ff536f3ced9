"""The common form of kernels with one main loop: arithmetic, memory and a serial chain that overlap in part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2, maximum
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant, KernelModel, l2_hit_fraction, resident
from archsim.timing.device import DeviceRates

TERMS: Mapping[str, Constant] = {
    "matrix": Constant(0.40, 0.01, 1.0),
    "memory": Constant(0.70, 0.05, 1.0),
    "cached": Constant(2.0, 1.0, 8.0),
    "overlap": Constant(2.0, 1.0, 8.0),
    "floor_us": Constant(5.0, 0.5, 100.0),
}
"""Constants of the form: shares of the peaks that are reached, how much faster the last-level cache is than memory,
the exponent of the p-norm, and the floor of one launch."""


class Overlapped(KernelModel):
    """t = t0 + |arithmetic, memory, chain|_p.

    Arithmetic at the share `matrix` of the peak, traffic at the share `memory` of the bandwidth, `cached` times faster
    where the last-level cache holds it: activations always, since the kernel before has just written them; weights,
    caches and states only where one call is timed over and over (`warm`). A subclass states the work of a call, and
    what it does one thing after another, if anything.
    """

    optional: ClassVar[Mapping[str, float]] = {"warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = TERMS
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    few: ClassVar[int] = 20

    def prepare(self, call: KernelCall) -> KernelCall:
        """A row of a table, which names its kernel, was timed over and over on the same operands."""
        if not call.kernel:
            return call
        return call._replace(dims={"warm": call.dims[self.dims[0]] * 0 + 1.0, **call.dims})

    @abstractmethod
    def activation_bytes(self, call: KernelCall) -> Num:
        """Bytes of activations that are read and written."""

    def computed_flops(self, call: KernelCall, machine: DeviceRates) -> Num:
        """FLOP that kernels do, which may be more than a call cannot do without."""
        return self.flops(call)

    def held_bytes(self, call: KernelCall) -> Num:
        """Bytes that the last-level cache must hold for a call that is timed over and over to find all it works on."""
        return self.operand_bytes(call) + self.activation_bytes(call)

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of the longest chain of steps that wait for one another."""
        return 0.0

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """What does not fit into the last-level cache."""
        return maximum(self.operand_bytes(call) + self.activation_bytes(call) - machine.cache_bytes, 0)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The three terms over the floor."""
        p = constants["overlap"]
        peak = machine.matrix_flops(self.compute_dtype(call)) * constants["matrix"]
        busy = (self.computed_flops(call, machine) / peak) ** p + self._memory_s(call, machine, constants) ** p
        busy = busy + self.chain_s(call, machine, constants) ** p
        return constants["floor_us"] * 1e-6 + busy ** (1 / p)

    def _memory_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of traffic."""
        operands, moved = self.operand_bytes(call), self.activation_bytes(call)
        footprint = self.held_bytes(call)
        held, hit = resident(call, footprint, machine), l2_hit_fraction(footprint, machine)
        slow = operands * (1 - held) + moved * (1 - hit) + (operands * held + moved * hit) / constants["cached"]
        return slow / (machine.bandwidth * constants["memory"])


def exponent(value: Num) -> Num:
    """log2, of at least 1."""
    return log2(maximum(value, 1))
