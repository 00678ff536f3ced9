"""Products of one small matrix per head (`mla_bmm`): latent attention's absorption of keys, and of values after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, ceil_div, everywhere, log2, maximum, minimum
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

TILE = 128
"""Rows and columns of one tile of a result."""

UNITS = 100
"""Units of a device that lists none."""


class MlaBmm(Overlapped):
    """x[m, k] w[k, n] for every head; tiles start at `tile_us` each, spread over the device's units.

    Kernels whose name ends in `dequant_bf16` unpack 8-bit weights and multiply in 16 bits.
    """

    kernel_class: ClassVar[str] = "mla_bmm"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k", "heads")
    constants: ClassVar[Mapping[str, Constant]] = {**TERMS, "tile_us": Constant(1.0, 0.05, 20.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 16), Axis("heads", 0, 1.75, 5), Axis("turn", -2, 4, 2)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 17),)
    general: ClassVar[str] = "gemm"

    def as_general(self, call: KernelCall) -> KernelCall:
        """One product as wide as all heads are together."""
        wide = {name: value for name, value in call.dims.items() if name != "heads"}
        return call._replace(kernel_class=self.general, dims={**wide, "n": call.dims["n"] * call.dims["heads"]})

    def flops(self, call: KernelCall) -> Num:
        """2mnk for each head."""
        return 2 * call.dims["heads"] * call.dims["m"] * call.dims["n"] * call.dims["k"]

    def compute_dtype(self, call: KernelCall) -> str:
        """As stored, unless the kernel's name says that it unpacks."""
        return "bf16" if call.kernel.endswith("dequant_bf16") else call.storage.compute

    def covers(self, call: KernelCall) -> bool:
        """Tables hold the two products of DeepSeek-V3."""
        sides = call.dims["n"], call.dims["k"]
        return everywhere((minimum(*sides) == 128) & (maximum(*sides) == 512))

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights of every head."""
        return call.dims["heads"] * call.dims["n"] * call.dims["k"] * call.storage.weight

    def activation_bytes(self, call: KernelCall) -> Num:
        """Rows in and out, in 16 bits; once more in the narrower format where the kernel quantises them first."""
        stored = call.storage
        read = 2 + (2 * stored.read if stored.quantises else 0)
        return call.dims["heads"] * call.dims["m"] * (call.dims["k"] * read + 2 * call.dims["n"])

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The start of tiles, wave after wave."""
        tiles = call.dims["heads"] * ceil_div(call.dims["m"], TILE) * ceil_div(call.dims["n"], TILE)
        return tiles / (machine.units or UNITS) * constants["tile_us"] * 1e-6

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of rows and heads, and which of the two products it is."""
        turn = log2(call.dims["n"] / call.dims["k"])
        return {"m": log2(call.dims["m"]), "heads": log2(call.dims["heads"]), "turn": turn}
