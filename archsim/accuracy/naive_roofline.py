"""The naive roofline of a kernel call, max(F / peak, Q / bandwidth, sent / link): the yardstick beside each prediction.

All operands come from memory, nothing overlaps badly, no launch costs anything. For the common classes it stands apart
from the time models, so that a mistake in one of them does not move the yardstick; the others' is their own bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from archsim.accuracy.table import EXTENTS
from archsim.base.number import Num, maximum, minimum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.device import DeviceRates

SIXTEEN = 2
"""Bytes of an activation."""

LATENT = (128, 64, 128, 512)
"""Widths of latent attention as in DeepSeek-V2: query and key without position, with it, value, and the latent."""


class Naive(NamedTuple):
    """FLOP, bytes of memory and seconds of the link, and the units that multiply."""

    flops: Num = 0
    bytes: Num = 0
    link_s: Num = 0
    compute: str = "bf16"


class Class(NamedTuple):
    """A class of kernels in tables: its work, the extents it needs, and what others are where they are empty."""

    work: Callable[[KernelCall, DeviceRates], Naive]
    dims: tuple[str, ...]
    usual: Mapping[str, float | str] = {}


def _gemm(call: KernelCall, machine: DeviceRates) -> Naive:
    m, n, k, stored = call.dims["m"], call.dims["n"], call.dims["k"], call.storage
    return Naive(2 * m * n * k, n * k * stored.weight + m * (k * stored.read + n * SIXTEEN), 0, stored.compute)


def pairs(call: KernelCall) -> Num:
    """Query-key pairs of causal self-attention over `seq_q` new of `seq_kv` tokens, inside the window."""
    new, all_ = call.dims["seq_q"], call.dims["seq_kv"]
    full = new * (all_ - new) + new * (new + 1) / 2
    window = call.dims["window"]
    cut = minimum(full, new * window)
    return where(window > 0, cut, full)


def _prefill(call: KernelCall, machine: DeviceRates) -> Naive:
    b, h, kv, d = (call.dims[name] for name in ("batch", "heads", "kv_heads", "head_dim"))
    moved = b * d * (2 * h * call.dims["seq_q"] * SIXTEEN + 2 * kv * call.dims["seq_kv"] * call.cache_bytes)
    return Naive(4 * b * h * d * pairs(call), moved, 0, call.storage.compute)


def _decode(call: KernelCall, machine: DeviceRates) -> Naive:
    b, h, kv, d, window = (call.dims[name] for name in ("batch", "heads", "kv_heads", "head_dim", "window"))
    context = where(window > 0, minimum(call.dims["seq_kv"], window), call.dims["seq_kv"])
    moved = b * d * (2 * kv * context * call.cache_bytes + 2 * h * SIXTEEN)
    return Naive(4 * b * h * d * context, moved, 0, call.storage.compute)


def _mla_prefill(call: KernelCall, machine: DeviceRates) -> Naive:
    plain, rope, value, _ = LATENT
    b, h, s = call.dims["batch"], call.dims["heads"], call.dims["seq_q"]
    moved = b * h * (s * (plain + rope + value) + call.dims["seq_kv"] * (plain + rope + value)) * SIXTEEN
    return Naive(2 * b * h * pairs(call) * (plain + rope + value), moved, 0, call.storage.compute)


def _mla_decode(call: KernelCall, machine: DeviceRates) -> Naive:
    _, rope, _, latent = LATENT
    b, h, context = call.dims["batch"], call.dims["heads"], call.dims["seq_kv"]
    flops = 2 * b * h * context * (2 * latent + rope)
    return Naive(flops, b * context * (latent + rope) * call.cache_bytes, 0, call.storage.compute)


def _moe(call: KernelCall, machine: DeviceRates) -> Naive:
    """Each rank's share of the routed tokens, and the distinct experts that they pick evenly."""
    m, width, inner = call.dims["m"], call.dims["hidden"], call.dims["inter"] / call.dims["tp"]
    matrices = 2 if "nongated" in call.kernel else 3
    held = call.dims["experts"] / call.dims["ep"]
    picked = m * call.dims["topk"] / call.dims["ep"]
    distinct = held * (1 - (1 - call.dims["topk"] / call.dims["experts"]) ** m)
    size = matrices * width * inner
    moved = distinct * size * call.storage.weight + 2 * m * width * SIXTEEN
    return Naive(2 * picked * size, moved, 0, call.storage.compute)


def _sent_bytes(share: Callable[[Num], Num]) -> Callable[[KernelCall, DeviceRates], Naive]:
    def work(call: KernelCall, machine: DeviceRates) -> Naive:
        n, size = call.dims["n_gpus"], call.dims["bytes"]
        return Naive(link_s=share(n) * size / _link(n, machine))

    return work


def _link(counts: Num, machine: DeviceRates) -> Num:
    """B/s per direction that each of so many devices can use; of an array, of each entry."""
    if isinstance(counts, (int, float)):
        return min(hop.rate for hop in machine.hops(int(counts), 1))
    import numpy

    sizes, index = numpy.unique(counts, return_inverse=True)
    rates = numpy.array([min(hop.rate for hop in machine.hops(max(int(n), 2), 1)) for n in sizes])
    return rates[index.ravel()]


def _moved_bytes(per_element: float) -> Callable[[KernelCall, DeviceRates], Naive]:
    def work(call: KernelCall, machine: DeviceRates) -> Naive:
        return Naive(bytes=call.dims["m"] * call.dims["n"] * per_element)

    return work


_SELF: Mapping[str, float | str] = {"window": 0, "kv_heads": "heads", "seq_kv": "seq_q"}
_GROUP = ("n_gpus", "bytes")
_REDUCED = Class(_sent_bytes(lambda n: 2 * (n - 1) / n), _GROUP)

CLASSES: Mapping[str, Class] = {
    "gemm": Class(_gemm, ("m", "n", "k")),
    "attn_prefill": Class(_prefill, ("batch", "seq_q", "heads", "head_dim"), _SELF),
    "attn_decode": Class(_decode, ("batch", "seq_kv", "heads", "head_dim"), {"window": 0, "kv_heads": "heads"}),
    "mla_prefill": Class(_mla_prefill, ("batch", "seq_q", "heads"), {"window": 0, "seq_kv": "seq_q"}),
    "mla_decode": Class(_mla_decode, ("batch", "seq_kv", "heads")),
    "moe": Class(_moe, ("m", "experts", "topk", "hidden", "inter"), {"tp": 1, "ep": 1}),
    "nccl_all_reduce": _REDUCED,
    "engine_all_reduce": _REDUCED,
    "nccl_all_gather": Class(_sent_bytes(lambda n: (n - 1) / n), _GROUP),
    "nccl_reduce_scatter": Class(_sent_bytes(lambda n: (n - 1) / n), _GROUP),
    "nccl_alltoall": Class(_sent_bytes(lambda n: (n - 1) / n), _GROUP),
    "nccl_send_recv": Class(_sent_bytes(lambda n: 1), _GROUP),
    "norm": Class(_moved_bytes(2 * SIXTEEN), ("m", "n")),
    "rope": Class(_moved_bytes(2 * SIXTEEN), ("m", "n")),
    "add": Class(_moved_bytes(3 * SIXTEEN), ("m", "n")),
    "act": Class(_moved_bytes(1.5 * SIXTEEN), ("m", "n")),
}
"""Classes of kernels with a yardstick of their own, by their names in tables; any other's is its model's bound."""


class Needs(NamedTuple):
    """Extents that rows of a class must state, and what others are where they are empty."""

    dims: tuple[str, ...]
    usual: Mapping[str, float | str]

    @property
    def positive(self) -> tuple[str, ...]:
        """Extents that must be above zero where a row states them: all but those that are usually zero."""
        return (*self.dims, *(name for name, usual in self.usual.items() if usual))


def needs(kernel_class: str) -> Needs | None:
    """What rows of a class must state; None for a class that is not known."""
    if kernel_class in CLASSES:
        return Needs(CLASSES[kernel_class].dims, CLASSES[kernel_class].usual)
    model = MODELS.get(kernel_class)
    if model is None:
        return None
    return Needs(model.dims, {name: usual for name, usual in model.optional.items() if name in EXTENTS})


def bounds(call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
    """Seconds of arithmetic, of memory and of the link, each at its peak."""
    if call.kernel_class not in CLASSES:
        return MODELS[call.kernel_class].bound(call, machine)
    work = CLASSES[call.kernel_class].work(call, machine)
    compute = work.flops / machine.matrix_flops(work.compute) if _any(work.flops) else 0.0
    return compute, work.bytes / machine.bandwidth, work.link_s


def naive(call: KernelCall, machine: DeviceRates) -> Num:
    """Seconds of the naive roofline."""
    compute, memory, link = bounds(call, machine)
    return maximum(maximum(compute, memory), link)


def _any(value: object) -> bool:
    return not (isinstance(value, (int, float)) and value == 0)
