"""Hyper-connections (arXiv:2409.19606): several residual streams, mixed into a block's input and out of its result.

A layer has two such sites, around attention and around the experts, and tables time both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped, exponent
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

SITES = 2
"""Sites of a layer, which a row of a table times together; a graph's call is of one."""

WORD = 2
"""Bytes of an activation."""


class MhcPre(Overlapped):
    """k streams of `hidden` are read for the mixing weights and again to be mixed into one; the products with the
    2k + k² columns of weights are little work on the matrix units, but done in 32 bits.
    """

    kernel_class: ClassVar[str] = "mhc_pre"
    dims: ClassVar[tuple[str, ...]] = ("m", "k", "hidden")
    constants: ClassVar[Mapping[str, Constant]] = {**TERMS, "floor_us": Constant(15.0, 1.0, 100.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("m", 0, 1, 20), Axis("hidden", 12, 0.81, 2)),)
    families: ClassVar[tuple[str, ...]] = ("m",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 20),)
    in_step: ClassVar[Mapping[str, tuple[str, ...]]] = {"m": ("flops",)}

    def flops(self, call: KernelCall) -> Num:
        """Each token's streams times the columns that give its mixing weights."""
        k = call.dims["k"]
        if "flops" in call.dims:  # as the graph counts them
            return call.dims["flops"]
        return self.sites(call) * 2 * call.dims["m"] * k * call.dims["hidden"] * (2 * k + k * k)

    def activation_bytes(self, call: KernelCall) -> Num:
        """All streams in, one out."""
        return self.sites(call) * call.dims["m"] * call.dims["hidden"] * (call.dims["k"] + 1) * WORD

    def sites(self, call: KernelCall) -> Num:
        """Sites that the call stands for."""
        return call.dims.get("sites", SITES)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Of one site the share of what those of a layer take."""
        share = self.sites(call) / SITES
        layer = {name: value for name, value in call.dims.items() if name not in ("sites", "flops")}
        return super().formula(call._replace(dims=layer), machine, constants) * share

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens and width."""
        return {"m": exponent(call.dims["m"]), "hidden": log2(call.dims["hidden"])}


class MhcPost(MhcPre):
    """The block's result and all streams in, all streams out."""

    kernel_class: ClassVar[str] = "mhc_post"
    constants: ClassVar[Mapping[str, Constant]] = {**TERMS, "floor_us": Constant(6.0, 0.5, 100.0)}

    def flops(self, call: KernelCall) -> Num:
        """Sums on the vector units."""
        return 0

    def activation_bytes(self, call: KernelCall) -> Num:
        """The block's result and all streams in, all streams out."""
        return self.sites(call) * call.dims["m"] * call.dims["hidden"] * (2 * call.dims["k"] + 1) * WORD
