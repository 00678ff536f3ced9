"""A gated MLP timed as a whole (`mlp`): the shared expert of a layer of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped, exponent
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates


class Mlp(Overlapped):
    """Gate and up, activation, down: three matrices of hidden x inter, read once.

    It is composed of kernels with models of their own, from which a graph is priced; the rows test that composition.
    """

    kernel_class: ClassVar[str] = "mlp"
    dims: ClassVar[tuple[str, ...]] = ("m", "hidden", "inter")
    constants: ClassVar[Mapping[str, Constant]] = {**TERMS, "floor_us": Constant(25.0, 2.0, 200.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("m", 0, 2, 9),),)
    families: ClassVar[tuple[str, ...]] = ("m",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 18),)

    def flops(self, call: KernelCall) -> Num:
        """2 for each token and element of the three matrices."""
        return 2 * call.dims["m"] * self._elements(call)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The three matrices."""
        return self._elements(call) * call.storage.weight

    def activation_bytes(self, call: KernelCall) -> Num:
        """Tokens in and out, gate and up out, their product in; twice where they are quantised first."""
        inner = 3 * call.dims["inter"] * (2 + 2 * call.storage.quantises)
        return call.dims["m"] * (call.dims["hidden"] * (4 + 2 * call.storage.quantises) + inner)

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The weights, but for what a repeated run finds in the cache, and tokens in and out beyond it."""
        moved = self.operand_bytes(call) + 4 * call.dims["m"] * call.dims["hidden"]
        return (moved - machine.cache_bytes) * (moved > machine.cache_bytes)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens."""
        return {"m": exponent(call.dims["m"])}

    def _elements(self, call: KernelCall) -> Num:
        return 3 * call.dims["hidden"] * call.dims["inter"]
