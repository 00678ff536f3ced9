"""Kernels of a processor: products, attention, passes, experts, scans, and the level of memory that feeds them.

A processor differs from a GPU in what decides: weights that a step leaves in a cache come back at that level's rate,
every operator costs the dispatcher's time, small tensors run on one thread, and what is serial does not shrink with
threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, log2, maximum, minimum
from archsim.timing.classes.call import BYTES, KernelCall
from archsim.timing.classes.model import Constant, KernelModel
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

KEPT = 0.75
"""Share of a cache that serves what is read over and over: the rest holds what else a step touches."""

FADE = 4
"""How fast hits fade once what is read again outgrows a cache."""

GONE = 4
"""Sizes of the last cache after whose traffic nothing is left in it; more changes nothing."""

GRAIN = 32768
"""Elements of a tensor up to which PyTorch runs an elementwise operator on one thread (at::internal::GRAIN_SIZE)."""

PAGE = 4096
"""Bytes of a page of memory: a processor's prefetchers stop at its end."""

KEY_BLOCK = 512
"""Keys that attention works on at a time; a block that the diagonal crosses is computed whole."""

GRADIENT = " gradient"
"""What a kernel's name ends in that runs an operator's backward."""

OPTIMIZER = "optimizer"
"""The kernel of an update: a pass over all weights, gradients and moments."""

PRODUCT_SIDES = 2
"""Products of a linear layer's backward: with the weight, and with the input for the weight's own gradient."""
ATTENTION_SIDES = 2.5
"""Five products over every pair in the backward of attention, scores once more among them, for two."""

FLOOR = Constant(5.0, 0.5, 200.0)
NEAR = Constant(10.0, 0.1, 400.0)
FAR = Constant(20.0, 0.1, 800.0)
PAGE_NS = Constant(5.0, 0.01, 200.0)
MEMORY = Constant(0.6, 0.1, 1.0)
CACHED = Constant(0.5, 0.03, 1.0)
SERIAL = Constant(0.05, 0.001, 0.5)


class CpuKernel(KernelModel):
    """What kernels of a processor share. held: bytes that are touched before an operand is read again, which decide the
    cache that it comes from. threads: that run it, 0 for all that the device's rates are of.

    between: bytes that are touched before the same code runs again.

    floor_us: an operator's way through the interpreter and the dispatcher, and its results' allocation, with all of it
    in the caches nearest to the cores. near_us, far_us: what is added where it has gone from those, and where it has
    gone from the last cache too. memory, cached: shares of the rates of memory and of the caches. serial: share of the
    work that one thread does alone (Amdahl).
    """

    optional: ClassVar[Mapping[str, float]] = {"threads": 0, "bytes": 0, "between": 0}
    shares: ClassVar[tuple[str, ...]] = ("memory",)

    def local(self, call: KernelCall, machine: DeviceRates) -> bool:
        """Libraries and caches of one processor say little of another's."""
        return True

    def streamed_bytes(self, call: KernelCall) -> Num:
        """Bytes of weights or caches that are read once."""
        return 0

    sides: ClassVar[float] = 1.0
    """Times the work of the forward that a backward does."""

    def work(self, call: KernelCall) -> float:
        """1, or of a backward how many times its forward's products it runs."""
        return self.sides if call.kernel.endswith(GRADIENT) else 1.0

    def fixed_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of a call that does nothing: from the caches nearest to the cores, from the last one, from memory."""
        between, time = call.dims.get("between", 0), constants["floor_us"]
        caches = [level.size for level in machine.streams if level.size]
        for size, name in zip((caches[0], caches[-1]) if caches else (), ("near_us", "far_us"), strict=False):
            time = time + constants[name] * (1 - _hit(between, size))
        return time * 1e-6

    def held_bytes(self, call: KernelCall) -> Num:
        """Bytes that lie between two reads of an operand: stated, or the operand itself."""
        return maximum(call.dims.get("bytes", 0), self.streamed_bytes(call))

    def bound(self, call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
        """Arithmetic at the peak, operands at the rate of the level that they come from."""
        compute = self.flops(call) / machine.matrix_flops(self.compute_dtype(call))
        return compute, stream_s(self.streamed_bytes(call), self.held_bytes(call), machine), 0.0

    def regime(self, call: KernelCall, share: Num) -> Num:
        """Of dispatch, of cache and memory, of arithmetic: by the share of the bound in the time."""
        return (share > 0.15) * 1 + (share > 0.4) * 1 + (share > 0.7) * 1


def _hit(held: Num, size: float) -> Num:
    """Share of what is read again after `held` bytes that a cache of `size` bytes still holds."""
    return 1 / (1 + (held / (KEPT * size)) ** FADE)


def stream_s(size: Num, held: Num, machine: DeviceRates, memory: float = 1.0, cached: float = 1.0) -> Num:
    """Seconds of reading `size` bytes that come from the caches as far as `held` bytes fit into them."""
    rest: Num = 1.0
    time: Num = 0.0
    for level in machine.streams:
        hit = _hit(held, level.size) if level.size else 1.0
        share = cached if level.size else memory
        time = time + size * rest * hit / (level.rate * share)
        rest = rest * (1 - hit)
    return time


def pages_of_row(size: Num) -> Num:
    """Pages that a row of `size` bytes touches on average, of rows that lie one behind another from a page's start on:
    those that end where a page does touch no further one.
    """
    shared: Num = 1.0
    for power in range(1, 13):
        step = 2.0**power
        shared = maximum(shared, step * (size % step == 0))
    return (size + PAGE - shared) / PAGE


def fewer_threads(call: KernelCall, machine: DeviceRates, serial: float) -> Num:
    """Factor on the time of arithmetic and traffic where fewer threads run than the device's rates are of."""
    whole = max(machine.units, 1)
    threads = call.dims.get("threads", 0)
    some = threads + (threads == 0) * whole
    return _speedup(whole, serial) / _speedup(some, serial)


def _speedup(threads: Num, serial: float) -> Num:
    return threads / (1 + serial * (threads - 1))


class CpuGemm(CpuKernel):
    """t = floor + |2nk(m + half_rows)/(matrix · peak), streams + n · pages · page_ns|_p.

    half_rows: rows that a product's set-up is worth: weights are packed or reordered for each call. page_ns: one
    thread's time to enter a page of a row of weights, where the prefetchers start anew. overlap: p, how far arithmetic
    and streams overlap.
    """

    kernel_class: ClassVar[str] = "cpu_gemm"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    families: ClassVar[tuple[str, ...]] = ("n", "k")
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": FLOOR, "near_us": NEAR, "far_us": FAR, "matrix": Constant(0.85, 0.1, 1.0),
        "half_rows": Constant(2.0, 0.02, 64.0), "memory": MEMORY, "cached": CACHED, "serial": SERIAL,
        "page_ns": PAGE_NS, "overlap": Constant(2.0, 1.0, 8.0),
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 13), Axis("k", 7, 3, 4)), (Axis("m", 0, 1, 13), Axis("held", 18, 3, 4)),
    )  # fmt: skip
    options: ClassVar[Mapping[str, float]] = {"ridge": 0.2, "bend": 0.5}
    few: ClassVar[int] = 40
    sides: ClassVar[float] = PRODUCT_SIDES

    def flops(self, call: KernelCall) -> Num:
        """2mnk; twice that for both gradients."""
        return 2 * self.work(call) * call.dims["m"] * call.dims["n"] * call.dims["k"]

    def streamed_bytes(self, call: KernelCall) -> Num:
        """The weights, and of a backward their gradients."""
        return self.work(call) * call.dims["n"] * call.dims["k"] * call.storage.weight

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """A floor, and arithmetic and streams that overlap in part."""
        m, n, k, p = call.dims["m"], call.dims["n"], call.dims["k"], constants["overlap"]
        peak = machine.matrix_flops(call.storage.compute) * constants["matrix"]
        compute = 2 * self.work(call) * n * k * (m + constants["half_rows"]) / peak
        weights = stream_s(
            self.streamed_bytes(call), self.held_bytes(call), machine, constants["memory"], constants["cached"]
        )
        moved = m * (k + n) * call.storage.read
        pages = n * pages_of_row(k * call.storage.weight) * constants["page_ns"] * 1e-9 / max(machine.units, 1)
        streams = weights + pages + stream_s(moved, moved, machine, constants["memory"], constants["cached"])
        busy = (compute**p + streams**p) ** (1 / p)
        return self.fixed_s(call, machine, constants) + busy * fewer_threads(call, machine, constants["serial"])

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of rows, of the sum's length, and of what is touched between two reads of the weights, as far as it
        empties the caches.
        """
        last = max((level.size for level in machine.streams), default=0)
        held = minimum(self.held_bytes(call), GONE * last) if last else self.held_bytes(call)
        return {"m": log2(call.dims["m"]), "k": log2(call.dims["k"]), "held": log2(held)}


class CpuExperts(CpuKernel):
    """The product of rows with their own experts' matrices, one expert after another; m: (token, expert) pairs.

    t = floor + hits · each + |arithmetic, streams|_p + rows that are sorted, cut and put back (`moved` passes).
    """

    kernel_class: ClassVar[str] = "cpu_experts"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k", "experts")
    families: ClassVar[tuple[str, ...]] = ("n", "k", "experts")
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(40.0, 5.0, 400.0), "near_us": NEAR, "far_us": FAR, "each_us": Constant(5.0, 0.5, 60.0),
        "matrix": Constant(0.7, 0.1, 1.0), "half_rows": Constant(2.0, 0.02, 64.0), "memory": MEMORY, "cached": CACHED,
        "overlap": Constant(2.0, 1.0, 8.0), "moved": Constant(3.0, 1.0, 20.0),
    }  # fmt: skip

    sides: ClassVar[float] = PRODUCT_SIDES

    def hits(self, call: KernelCall) -> Num:
        """Experts with at least one row: expected where rows fall evenly, or stated."""
        if "hits" in call.dims:
            return call.dims["hits"]
        experts = call.dims["experts"]
        return experts * (1 - (1 - 1 / experts) ** call.dims["m"])

    def flops(self, call: KernelCall) -> Num:
        """2mnk: each row meets one matrix; twice that for both gradients."""
        return 2 * self.work(call) * call.dims["m"] * call.dims["n"] * call.dims["k"]

    def streamed_bytes(self, call: KernelCall) -> Num:
        """The matrices of the experts that are hit, and of a backward their gradients."""
        return self.work(call) * self.hits(call) * call.dims["n"] * call.dims["k"] * call.storage.weight

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """One product for each expert that is hit."""
        m, n, k, p, hit = call.dims["m"], call.dims["n"], call.dims["k"], constants["overlap"], self.hits(call)
        peak = machine.matrix_flops(call.storage.compute) * constants["matrix"]
        compute = 2 * self.work(call) * n * k * (m + hit * constants["half_rows"]) / peak
        shares = constants["memory"], constants["cached"]
        streams = stream_s(self.streamed_bytes(call), self.held_bytes(call), machine, *shares)
        rows = m * (n + k) * call.storage.read * constants["moved"]
        fixed = self.fixed_s(call, machine, constants) + hit * constants["each_us"] * 1e-6
        return fixed + (compute**p + streams**p) ** (1 / p) + stream_s(rows, rows, machine, *shares)


class CpuAttention(CpuKernel):
    """scaled_dot_product_attention: t = floor + |products and softmax, keys and values|_p.

    matrix: share of the peak of its products. pair_ns: one thread's time for the softmax of one query-key pair of a
    head. head_us: of setting up one head's block of queries, by one thread.
    """

    kernel_class: ClassVar[str] = "cpu_attention"
    dims: ClassVar[tuple[str, ...]] = ("batch", "heads", "kv_heads", "head_dim", "seq_q", "seq_kv")
    families: ClassVar[tuple[str, ...]] = ("heads", "kv_heads", "head_dim")
    optional: ClassVar[Mapping[str, float]] = {"threads": 0, "bytes": 0, "window": 0, "between": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(12.0, 1.0, 200.0), "near_us": NEAR, "far_us": FAR, "matrix": Constant(0.4, 0.02, 1.0),
        "pair_ns": Constant(0.4, 0.01, 20.0), "head_us": Constant(0.5, 0.01, 20.0),
        "memory": MEMORY, "cached": CACHED, "overlap": Constant(1.5, 1.0, 8.0),
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 0, 2, 7), Axis("keys", 4, 2, 6)), (Axis("rows", 0, 6, 3), Axis("dim", 5, 1, 4)),
    )  # fmt: skip
    options: ClassVar[Mapping[str, float]] = {"ridge": 0.2, "bend": 0.5}
    few: ClassVar[int] = 20
    sides: ClassVar[float] = ATTENTION_SIDES

    def pairs(self, call: KernelCall) -> Num:
        """Query-key pairs of one head that are computed: stated, else those below the diagonal, in whole blocks of keys
        (kvSplitSize of aten/src/ATen/native/cpu/FlashAttentionKernel.cpp); a window is a mask over all of them.
        """
        if "pairs" in call.dims:
            return call.dims["pairs"]
        new, keys = call.dims["seq_q"], call.dims["seq_kv"]
        return call.dims["batch"] * new * minimum(keys, keys - (new - 1) / 2 + KEY_BLOCK / 2)

    def flops(self, call: KernelCall) -> Num:
        """Two products over every pair, five in a backward."""
        width = call.dims["head_dim"] + call.dims.get("head_dim_v", call.dims["head_dim"])
        return 2 * self.work(call) * call.dims["heads"] * width * self.pairs(call)

    def streamed_bytes(self, call: KernelCall) -> Num:
        """Keys and values."""
        width = call.dims["head_dim"] + call.dims.get("head_dim_v", call.dims["head_dim"])
        return call.dims["batch"] * call.dims["seq_kv"] * call.dims["kv_heads"] * width * BYTES.get(call.dtype, 4)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """A floor, a part for each head, and arithmetic beside the streams."""
        p, units = constants["overlap"], max(machine.units, 1)
        heads = call.dims["batch"] * call.dims["heads"]
        compute = self.flops(call) / (machine.matrix_flops(call.storage.compute) * constants["matrix"])
        softmax = self.pairs(call) * call.dims["heads"] * constants["pair_ns"] * 1e-9 / units
        streams = stream_s(
            self.streamed_bytes(call), self.held_bytes(call), machine, constants["memory"], constants["cached"]
        )
        fixed = self.fixed_s(call, machine, constants) + heads * constants["head_us"] / units * 1e-6
        return fixed + ((compute + softmax) ** p + streams**p) ** (1 / p)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of the rows that meet a key head at once, of keys, and of a head's width. The heads of one token that
        share a key head are rows of one head (archsim.backend.attention).
        """
        dims = call.dims
        shared = 1 + (dims["seq_q"] < 2) * (dims["heads"] / dims["kv_heads"] - 1)
        return {"rows": log2(dims["seq_q"] * shared), "keys": log2(dims["seq_kv"]), "dim": log2(dims["head_dim"])}


class CpuElementwise(CpuKernel):
    """A function of rows, as one operator or as a sequence of them: t = floor + passes · bytes / rate.

    Extents: m rows of n elements; bytes: operands and results of the whole function. floor_us: the way of all its
    operators through the dispatcher. passes: bytes that they move between them, over those of the function. Tensors
    that fit in a cache are still there from what wrote them; small ones run on one thread.
    """

    kernel_class: ClassVar[str] = "cpu_elementwise"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "bytes")
    optional: ClassVar[Mapping[str, float]] = {"threads": 0, "between": 0}
    families: ClassVar[tuple[str, ...]] = ("n",)
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(10.0, 0.5, 400.0), "near_us": NEAR, "far_us": FAR, "passes": Constant(2.0, 0.2, 60.0),
        "memory": MEMORY, "cached": CACHED,
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 3, 5), Axis("between", 16, 3, 5)), (Axis("bytes", 12, 3, 6),),
    )  # fmt: skip
    options: ClassVar[Mapping[str, float]] = {"ridge": 1.0, "bend": 1.0}
    few: ClassVar[int] = 12

    def streamed_bytes(self, call: KernelCall) -> Num:
        """Nothing that has to come from anywhere: what a pass reads has just been written."""
        return 0

    def bound(self, call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
        """Its bytes at the rate of the cache that holds them."""
        moved = call.dims["bytes"]
        return 0.0, stream_s(moved, moved, machine) * 0.5, 0.0

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """A floor, and all passes at the rate of the cache that holds a pass."""
        moved = call.dims["bytes"]
        time = stream_s(moved, moved, machine, constants["memory"], constants["cached"]) * constants["passes"]
        elements = moved / BYTES.get(call.dtype, 4)
        alone = minimum(maximum(2 - elements / GRAIN, 0.0), 1.0)  # one thread below the grain, all of them at twice it
        return self.fixed_s(call, machine, constants) + time * (1 + alone * (max(machine.units, 1) - 1))

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of rows, of bytes, and of what is touched before the same code runs again, as far as it empties the
        caches: rows that other cores wrote are fetched from there, and more so where the code is cold.
        """
        last = max((level.size for level in machine.streams), default=0)
        between = maximum(minimum(call.dims.get("between", 0), GONE * max(last, 1)), 1)
        return {"m": log2(call.dims["m"]), "bytes": log2(call.dims["bytes"]), "between": log2(between)}


class CpuScan(CpuKernel):
    """A recurrence that PyTorch runs token by token: t = floor + tokens · step + passes over the states of all tokens.

    Extents: batch, seq_q tokens, heads channels of head_dim states each.
    """

    kernel_class: ClassVar[str] = "cpu_scan"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "heads", "head_dim")
    families: ClassVar[tuple[str, ...]] = ("heads", "head_dim")
    constants: ClassVar[Mapping[str, Constant]] = {
        "floor_us": Constant(40.0, 5.0, 400.0), "near_us": NEAR, "far_us": FAR, "step_us": Constant(10.0, 1.0, 200.0),
        "passes": Constant(8.0, 1.0, 80.0), "state_passes": Constant(4.0, 0.5, 40.0),
        "memory": MEMORY, "cached": CACHED,
    }  # fmt: skip

    def streamed_bytes(self, call: KernelCall) -> Num:
        """The states of all tokens, once."""
        return 4 * call.dims["batch"] * call.dims["seq_q"] * call.dims["heads"] * call.dims["head_dim"]

    def bound(self, call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
        """The states at the rate of the cache that holds them."""
        moved = self.streamed_bytes(call)
        return 0.0, stream_s(moved, moved, machine), 0.0

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Operators of each token on one state, and operators on all of them at once; states are in fp32."""
        tokens, shares = call.dims["seq_q"], (constants["memory"], constants["cached"])
        state = 4 * call.dims["batch"] * call.dims["heads"] * call.dims["head_dim"]
        alone = 1 + (state / 4 < GRAIN) * (max(machine.units, 1) - 1)
        each = (
            constants["step_us"] * 1e-6 + constants["state_passes"] * stream_s(state, state, machine, *shares) * alone
        )
        whole = tokens * state * constants["passes"]
        return (
            self.fixed_s(call, machine, constants) + tokens * each + stream_s(whole, tokens * state, machine, *shares)
        )
