"""Experts over many ranks: one rank of a wide group (`moe_wideep`), and one kernel for dispatch, products and combine
(`moe_mega`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2, maximum, minimum
from archsim.timing.classes.call import KernelCall, Storage
from archsim.timing.classes.expert_exchange import copies
from archsim.timing.classes.model import Constant, resident
from archsim.timing.classes.moe import BALANCED, SERVED, Moe, Share, share
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

REPLICATED = 0.05
"""The `skew` that is left where experts are placed by their load and the busiest have replicas (EPLB)."""

BLOCKS: Mapping[str, float] = {"context/uniform": 128}
"""Rows that a table gives to one expert before it goes on to the next, by the end of the kernel's name: the context
layout is filled in whole blocks of 128 (times follow the number of blocks up to all experts that a rank holds).
"""

WEIGHTS4 = Storage(0.5 + 1 / 32, 1 + 1 / 32, "fp8", quantises=True)
"""MXFP4 weights and MXFP8 activations."""


def skew_of(kernel: str) -> float:
    """What the end of a kernel's name says of the loads of experts."""
    stated = re.search(r"power_law_(?:sampled_)?([0-9.]+)", kernel)
    if kernel.endswith("_eplb"):
        return REPLICATED
    if stated:
        return float(stated.group(1))
    return BALANCED if kernel.endswith(("balanced", "uniform")) else SERVED


class MoeWideEp(Moe):
    """As `moe`, with replicas of the busiest experts in further slots; m: tokens of the whole group, of which a rank
    combines its own alone. block: rows that go to one expert at once.
    """

    kernel_class: ClassVar[str] = "moe_wideep"
    optional: ClassVar[Mapping[str, float]] = {**Moe.optional, "block": 1}
    constants: ClassVar[Mapping[str, Constant]] = {**Moe.constants, "floor_us": Constant(25.0, 1.0, 400.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 18), Axis("local", 0, 1, 9)),
        (Axis("dense", 0, 1, 14), Axis("inter", 10, 2, 2)),
        (Axis("m", 0, 2, 10), Axis("skew", 0, 0.6, 3)),
    )
    families: ClassVar[tuple[str, ...]] = ("experts", "hidden", "ep")
    general: ClassVar[str] = "moe"

    def prepare(self, call: KernelCall) -> KernelCall:
        """The loads and the slots that the kernel's name states."""
        if not call.kernel:
            return call
        zero = call.dims["m"] * 0
        slots = re.search(r" slots(\d+)", call.kernel)
        stated = {"skew": zero + skew_of(call.kernel), "gated": zero + 1.0, "warm": zero + 1.0}
        held = {"experts": zero + float(slots.group(1))} if slots else {}
        block = sum(size for end, size in BLOCKS.items() if call.kernel.endswith(end))
        return call._replace(dims={**stated, "block": zero + (block or 1), **call.dims, **held})

    def part(self, call: KernelCall) -> Share:
        """Rows that come in blocks hit as many experts as there are blocks."""
        found = super().part(call)
        return found._replace(hits=minimum(found.hits, _blocks(call, found.rows)))

    def even_hits(self, call: KernelCall) -> Num:
        """One for each block."""
        rows = call.dims["m"] * call.dims["topk"] / call.dims.get("ep", 1)
        return minimum(super().even_hits(call), _blocks(call, rows))

    def own_tokens(self, call: KernelCall) -> Num:
        """Those of one rank."""
        return call.dims["m"] / call.dims.get("ep", 1)

    def variant(self, kernel: str) -> str:
        """The implementation and its layout; slots and loads are extents."""
        return kernel.partition("/")[0].partition(" slots")[0]


def _blocks(call: KernelCall, rows: Num) -> Num:
    """Blocks of rows that go to one expert at once."""
    return maximum(rows / call.dims.get("block", 1), 1.0)


class MoeMega(Moe):
    """Dispatch, products and combine overlap in one kernel: t = t0 + |arithmetic, weights, wire|_p + moves.

    m: tokens of one rank, which the busiest rank of `ep` shares with the others. link: share of the link's rate.
    """

    kernel_class: ClassVar[str] = "moe_mega"
    dims: ClassVar[tuple[str, ...]] = ("m", "experts", "topk", "hidden", "inter", "ep")
    optional: ClassVar[Mapping[str, float]] = {"skew": SERVED, "warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.50, 0.05, 1.0),
        "memory": Constant(0.70, 0.1, 1.0),
        "link": Constant(0.50, 0.05, 1.0),
        "overlap": Constant(2.0, 1.0, 8.0),
        "tile": Constant(16.0, 1.0, 256.0),
        "floor_us": Constant(40.0, 3.0, 200.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("m", 0, 1.5, 11), Axis("skew", 0, 1, 3)),)
    families: ClassVar[tuple[str, ...]] = ("m",)
    few: ClassVar[int] = 20

    def prepare(self, call: KernelCall) -> KernelCall:
        """The loads that the kernel's name states."""
        if not call.kernel:
            return call
        zero = call.dims["m"] * 0
        return call._replace(dims={"skew": zero + skew_of(call.kernel), "warm": zero + 1.0, **call.dims})

    def variant(self, kernel: str) -> str:
        """The layout; loads are an extent."""
        return kernel.partition("/")[0]

    def compute_dtype(self, call: KernelCall) -> str:
        """Products of the wider of both operands."""
        return WEIGHTS4.compute

    def flops(self, call: KernelCall) -> Num:
        """The rows of one rank's tokens, which an even router gives to every rank."""
        return 2 * call.dims["m"] * call.dims["topk"] * self._matrix(call)

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The weights of as few experts as can take the rows, beyond the cache."""
        fewest = call.dims["topk"] / call.dims["ep"] * self._matrix(call) * WEIGHTS4.weight
        return maximum(fewest - machine.cache_bytes, 0)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights of the experts hit."""
        return self._part(call).hits * self._matrix(call) * WEIGHTS4.weight

    def _part(self, call: KernelCall) -> Share:
        """What the busiest rank gets of all ranks' tokens."""
        ep, skew = call.dims["ep"], call.dims.get("skew", SERVED)
        return share(call.dims["m"] * ep, call.dims["experts"], call.dims["topk"], ep, skew)

    def _matrix(self, call: KernelCall) -> Num:
        return 3 * call.dims["hidden"] * call.dims["inter"]

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Arithmetic of padded rows, weights and wire, with partial overlap."""
        part, p = self._part(call), constants["overlap"]
        rows = part.rows + part.hits * constants["tile"]
        compute = 2 * rows * self._matrix(call) / (machine.matrix_flops(WEIGHTS4.compute) * constants["matrix"])
        read = self.operand_bytes(call)
        read = read * (1 - resident(call, read, machine) / 2)
        weights = read / (machine.bandwidth * constants["memory"])
        token = call.dims["m"] * call.dims["hidden"] * (WEIGHTS4.read + 2)
        wire = token * copies(call, call.dims["ep"]) / (machine.hops(2)[0].rate * constants["link"])
        return constants["floor_us"] * 1e-6 + (compute**p + weights**p + wire**p) ** (1 / p)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens, and the loads."""
        return {"m": log2(maximum(call.dims["m"], 1)), "skew": call.dims.get("skew", SERVED)}
