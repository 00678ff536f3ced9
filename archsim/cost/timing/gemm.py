"""Matrix products y[m, n] = x[m, k] w[k, n], in every weight format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2
from archsim.cost.roofline import Machine
from archsim.cost.timing.call import Call
from archsim.cost.timing.model import Constant, Least, Model
from archsim.cost.timing.surface import Axis

OUT = 2
"""Bytes of one output element."""


class Gemm(Model):
    """Arithmetic and memory traffic overlap in part: t = t0 + ((F / e_c P)^p + (Q / e_m W)^p)^(1/p).

    A large p is a hard roofline. t0 is the ramp of one launch inside a captured graph.
    """

    op: ClassVar[str] = "gemm"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.80, 0.2, 1.0),
        "memory": Constant(0.83, 0.2, 1.0),
        "overlap": Constant(2.4, 1.0, 8.0),
        "floor_us": Constant(3.0, 0.5, 60.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 16), Axis("n", 5, 1.5, 9), Axis("k", 5, 1.5, 9)),
    )
    families: ClassVar[tuple[str, ...]] = ("n", "k")

    def least(self, call: Call, machine: Machine) -> Least:
        """2mnk FLOP, the weights once, and operands beyond the last-level cache."""
        m, n, k = call["m"], call["n"], call["k"]
        moved = m * (k * call.storage.read + n * OUT)
        return Least(
            flops=2 * m * n * k,
            bytes=n * k * call.storage.weight + moved * (moved > machine.cache_bytes),
            compute=call.storage.compute,
        )

    def formula(self, call: Call, machine: Machine, constants: Mapping[str, float]) -> Num:
        """Two-term roofline with partial overlap and a floor."""
        m, n, k, stored = call["m"], call["n"], call["k"], call.storage
        peak = machine.matrix_flops(stored.compute)
        compute = 2 * m * n * k / (peak * constants["matrix"])
        traffic = n * k * stored.weight + m * (k * stored.read + n * OUT)
        if stored.quantises:
            traffic = traffic + m * k * (2 + stored.read)
        memory = traffic / (machine.bandwidth * constants["memory"])
        p = constants["overlap"]
        return constants["floor_us"] * 1e-6 + (compute**p + memory**p) ** (1 / p)

    def coordinates(self, call: Call, machine: Machine) -> Mapping[str, Num]:
        """log2 of the three extents."""
        return {"m": log2(call["m"]), "n": log2(call["n"]), "k": log2(call["k"])}
