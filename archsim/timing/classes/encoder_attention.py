"""Attention of encoders (`attn_encoder`): all tokens of a sequence see each other, and nothing is cached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, everywhere
from archsim.timing.classes.attention import AttnPrefill
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

NARROWEST, WIDEST = 64, 80
"""Widths of heads that tables hold."""


class AttnEncoder(AttnPrefill):
    """As prefill without the causal mask; `seq_kv` is the length of a sequence."""

    kernel_class: ClassVar[str] = "attn_encoder"
    general: ClassVar[str] = "attn_prefill"
    optional: ClassVar[Mapping[str, float]] = {"causal": 0}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 0, 1, 12), Axis("seq", 0, 1, 15)),
        (Axis("dim", 64, 8, 3), Axis("seq", 0, 1, 15)),
        (Axis("dim", 64, 8, 3), Axis("rows", 0, 2, 6), Axis("seq", 0, 3, 6)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads", "head_dim")

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """As of prefill, and the width of heads as it is: kernels differ in which widths they are built for."""
        return {**super().coordinates(call, machine), "dim": call.dims["head_dim"]}

    def covers(self, call: KernelCall) -> bool:
        """Tables hold the heads of image encoders."""
        dim = call.dims["head_dim"]
        return everywhere((dim >= NARROWEST) & (dim <= WIDEST))

    def prepare(self, call: KernelCall) -> KernelCall:
        """Rows of a table do not state that there is no mask."""
        return call._replace(dims={"causal": call.dims["batch"] * 0, **call.dims})
