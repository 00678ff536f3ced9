"""Kernels without a contraction: norms, activations, rotations, sums, and whatever a graph fuses into one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2, maximum
from archsim.timing.classes.call import BYTES, KernelCall
from archsim.timing.classes.model import Constant, KernelModel
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

FADE = 2
"""How fast hits in the last-level cache fade once a kernel's tensors outgrow it."""

FEW_ROWS = ((Axis("bytes", 12, 1, 19), Axis("row", 11.3, 0.7, 4)),)
"""The grid for classes measured at few lengths of rows, 2560 to 8192."""


class Elementwise(KernelModel):
    """t = floor + Q/(memory · W) · (1 - hit · (1 - 1/faster)), hit = 1/(1 + (Q/(kept · cache))²).

    Tensors that fit in the last-level cache are still there from the kernel that wrote them, and are read `faster`
    than memory is. Traffic between HBM and a cache that holds everything is no bound, so `row_bytes` counts
    only tensors larger than the cache. Extents of this class: read_bytes and write_bytes of one fused pass, for example
    residual + RMSNorm, SiLU · up, rotation + cache append, or an embedding's rows.
    """

    kernel_class: ClassVar[str] = "elementwise"
    dims: ClassVar[tuple[str, ...]] = ("read_bytes", "write_bytes")
    families: ClassVar[tuple[str, ...]] = ("read_bytes",)
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(2.0, 0.3, 30.0),
        "memory": Constant(0.80, 0.2, 1.0),
        "faster": Constant(1.6, 1.0, 6.0),
        "kept": Constant(0.7, 0.1, 3.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("bytes", 12, 2, 11),),)
    shares: ClassVar[tuple[str, ...]] = ("memory",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("bytes", 6, 1, 31),)

    def growth(self, call: KernelCall) -> Mapping[str, Num]:
        """log2 of all bytes moved."""
        return {"bytes": log2(maximum(sum(self.moved(call)), 1))}

    def smallest(self, call: KernelCall) -> KernelCall:
        """A byte that is read: what else is moved takes as long."""
        return call._replace(dims={"read_bytes": 1.0, "write_bytes": 0.0})

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many bytes."""
        return smallest._replace(dims={**smallest.dims, "read_bytes": 2.0 ** at["bytes"]})

    def is_grown(self, call: KernelCall) -> bool:
        """What memory has to do with is a part of its own."""
        return "hbm_bytes" not in call.dims

    def moved(self, call: KernelCall) -> tuple[Num, Num]:
        """Bytes read and bytes written."""
        return call.dims["read_bytes"], call.dims["write_bytes"]

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Every tensor once, where it is larger than the last-level cache."""
        read, written = self.moved(call)
        beyond = machine.cache_bytes
        return read * (read > beyond) + written * (written > beyond)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """A floor, and memory or cache time; what a graph says comes from memory or goes there does."""
        total = sum(self.moved(call))
        rate = machine.bandwidth * constants["memory"]
        time = constants["floor_us"] * 1e-6 + total / rate
        if not machine.cache_bytes:
            return time
        hit = 1 / (1 + (total / (constants["kept"] * machine.cache_bytes)) ** FADE)
        cached = maximum(total - call.dims.get("hbm_bytes", 0), 0)
        return time - cached / rate * hit * (1 - 1 / constants["faster"])

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of all bytes moved."""
        return {"bytes": log2(maximum(sum(self.moved(call)), 1))}


class Rowwise(Elementwise):
    """The same over m tokens of n elements; subclasses state what one element of a row costs in traffic.

    pass_of_its_own: rows are times of whole kernels, which say what any fused pass takes.
    """

    dims: ClassVar[tuple[str, ...]] = ("m", "n")
    families: ClassVar[tuple[str, ...]] = ("n",)
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("bytes", 12, 1, 19), Axis("row", 10, 1, 7)),)
    rising: ClassVar[str] = "bytes"
    reads: ClassVar[float] = 1
    writes: ClassVar[float] = 1
    pass_of_its_own: ClassVar[bool] = True

    def moved(self, call: KernelCall) -> tuple[Num, Num]:
        """Elements in and out, in the activations' format."""
        elements = call.dims["m"] * call.dims["n"] * BYTES.get(call.dtype, 2)
        return elements * self.reads, elements * self.writes

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of all bytes moved and of a row's length."""
        return {**super().coordinates(call, machine), "row": log2(call.dims["n"])}

    def smallest(self, call: KernelCall) -> KernelCall:
        """A byte of a row."""
        return self.grown(call, {"bytes": 0.0})

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """As many rows as make up the bytes."""
        n = smallest.dims["n"]
        row = n * BYTES.get(smallest.dtype, 2) * (self.reads + self.writes)
        return smallest._replace(dims={"m": 2.0 ** at["bytes"] / row, "n": n})

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """Rows of the length given, as many as make up the bytes."""
        row = 2 ** at["row"] * BYTES.get(like.dtype, 2) * (self.reads + self.writes)
        return like._replace(dims={"m": 2 ** at["bytes"] / row, "n": 2 ** at["row"]})


class Quantize(Rowwise):
    """16-bit activations to 8 bits with a scale that is given; its dtype is what it writes."""

    kernel_class: ClassVar[str] = "quantize"
    reads: ClassVar[float] = 2


class QuantizeScale(Rowwise):
    """What finding the scale of the activations adds to `Quantize`: they are read once more, and it is written."""

    kernel_class: ClassVar[str] = "quantize_scale"
    reads: ClassVar[float] = 2
    writes: ClassVar[float] = 0
    pass_of_its_own: ClassVar[bool] = False


class Norm(Rowwise):
    """RMSNorm or LayerNorm, one row in and one out.

    Errors are on unseen numbers of tokens: public tables hold four lengths of rows, the shortest by another kernel.
    """

    kernel_class: ClassVar[str] = "norm"
    families: ClassVar[tuple[str, ...]] = ("m",)
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = FEW_ROWS


class Rope(Rowwise):
    """Rotation of query and key in place."""

    kernel_class: ClassVar[str] = "rope"


class Act(Rowwise):
    """Activation of one half of a row times the other half."""

    kernel_class: ClassVar[str] = "act"
    writes: ClassVar[float] = 0.5


class Add(Rowwise):
    """Sum of two tensors; errors as with `Norm`."""

    kernel_class: ClassVar[str] = "add"
    families: ClassVar[tuple[str, ...]] = ("m",)
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = FEW_ROWS
    reads: ClassVar[float] = 2
