"""What an engine launches for a graph: kernels of the graph gathered into calls that a time model knows.

Three rules, none of which names a model. Products that read one activation run as one, since engines store their
weights side by side. Products with expert weights of one layer run as one grouped kernel. Elementwise ops ride with
the product before them but for norms, activations, rotations and the choice of experts, which are launches of their
own wherever they follow a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from archsim.base.number import Num, maximum, minimum, nearest
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel
from archsim.graph.step import Mask, Seqs, Step
from archsim.graph.tensor import Axes, Format, Tensor, Use, nbytes, numel
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.roofline import Machine

FREE = frozenset(
    {"add", "scale", "clip", "mul", "gate", "softcap", "sigmoid", "dispatch", "combine", "concat", "tanh"}
)
"""Maps that cost no launch of their own beside a product, a norm or the grouped kernel of experts."""

COLLECTIVES = {
    "all_reduce": "engine_all_reduce", "all_gather": "nccl_all_gather", "all_to_all": "nccl_alltoall",
    "reduce_scatter": "nccl_reduce_scatter", "send": "nccl_send_recv",
}  # fmt: skip
"""Collectives of a graph -> class of kernels."""


class FusedCall(NamedTuple):
    """Kernels of the graph (by position) that one implementation runs together, and the calls that it makes.

    A launch without calls is of a class that has no time model of its own: scans, convolutions.
    """

    members: list[int]
    calls: list[KernelCall]


def lower_to_calls(
    kernels: Sequence[Kernel], step: Step, machine: Machine, merged: bool = True
) -> list[FusedCall]:
    """The launches of one step. merged: whether products that read one activation run as one."""
    gathered: dict[object, list[int]] = {}
    for position, kernel in enumerate(kernels):
        gathered.setdefault(fusion_key(kernel, merged) or position, []).append(position)
    found = []
    for members in gathered.values():
        together = [kernels[i] for i in members]
        found.append(FusedCall(members, [*main_calls(together, step, machine), *elementwise_calls(together)]))
    return found


def fusion_key(kernel: Kernel, merged: bool) -> object | None:
    """What kernels that run as one have in common; None for a kernel that runs alone."""
    product = _product(kernel)
    if product is None or kernel.kind:
        return None
    weight = _weight(product)
    if weight is None:
        return None
    if weight.tensor.role == "expert":
        return ("experts", weight.tensor.name.rsplit(".", 1)[0])
    if not merged or weight.tensor.role != "linear":
        return None
    read = next(use for use in product.reads if use is not weight)
    return (kernel.loop, read.tensor.name, weight.tensor.format.name, _summed(product, weight))


def _product(kernel: Kernel) -> Op | None:
    """The contraction that a kernel is built around."""
    return next((op for op in kernel.ops if op.kind == "contract"), None)


def _weight(op: Op) -> Use | None:
    return next((use for use in op.reads if use.tensor.kind == "weight"), None)


def _summed(op: Op, weight: Use) -> tuple[str, ...]:
    """Axes that a product sums over."""
    return tuple(axis for axis in weight.axes if axis not in op.writes[0].axes and axis != "E")


# ---------------------------------------------------------------------- the main call
def main_calls(kernels: list[Kernel], step: Step, machine: Machine) -> list[KernelCall]:
    """The calls of the kernels' own work; none where no time model fits."""
    first = kernels[0]
    if first.kind == "attention":
        return _attention(first, step)
    opening = next((op for op in first.ops if op.kind == "collective"), None)
    if opening is not None:
        return [_collective(opening)]
    product = _product(first)
    if product is None or product.cls == "conv" or first.kind:
        return []
    weight = _weight(product)
    if weight is None:
        return []
    if weight.tensor.role == "expert":
        return [_experts(kernels, weight, machine)]
    return [_gemm(kernels, machine)]


def _gemm(kernels: list[Kernel], machine: Machine) -> KernelCall:
    """Products side by side: their outputs add up. Axes that input, weight and output share are a batch."""
    product = _product(kernels[0])
    assert product is not None
    weight = _weight(product)
    assert weight is not None
    read = next(use for use in product.reads if use is not weight)
    inner = _extent(weight.axes, _summed(product, weight))
    rows = prod([n for axis, n in read.axes.items() if axis not in weight.axes])
    outer = sum(numel(_weight(_product(k))) for k in kernels) / inner  # type: ignore[arg-type]
    stored = weight.tensor.format
    return _with_bytes(
        KernelCall("gemm", table_dtype(stored, machine), dims={"m": rows, "n": outer, "k": inner}), stored
    )


def _with_bytes(call: KernelCall, stored: Format) -> KernelCall:
    """The call with the bytes of its weights stated where the format's differ from the table's."""
    size = stored.bits / 8
    if abs(STORED[call.dtype].weight - size) < 0.01 * size:
        return call
    return call._replace(dims={**call.dims, "weight_bytes": size})


def _experts(kernels: list[Kernel], weight: Use, machine: Machine) -> KernelCall:
    """The grouped kernel of a layer's experts; m: tokens over all ranks that share the experts out."""
    product = _product(kernels[0])
    assert product is not None
    axes = weight.tensor.axes
    total, top_k = product.attrs["n_experts"], product.attrs["top_k"]
    ep = total / axes["E"]
    rows = product.writes[0].axes["M"]
    dims = {
        "m": rows * ep / top_k, "experts": total, "topk": top_k, "hidden": axes["D"], "inter": axes["F"],
        "tp": 1, "ep": ep, "gated": 1 if len(kernels) > 2 else 0,
    }  # fmt: skip
    stored = weight.tensor.format
    return _with_bytes(KernelCall("moe", table_dtype(stored, machine), dims=dims), stored)


def _collective(op: Op) -> KernelCall:
    """Tables state the bytes of the whole that is gathered, else of one rank's buffer."""
    ranks, read = op.attrs["group"], op.reads[0]
    size = nbytes(read) * (ranks if op.fn == "all_gather" else 1)
    dims = {"n_gpus": ranks, "bytes": size, "stride": op.attrs.get("stride", 1)}
    return KernelCall(
        COLLECTIVES[op.fn], read.tensor.format.name if read.tensor.format.bits < 12 else "bf16", dims=dims
    )


def _attention(kernel: Kernel, step: Step) -> list[KernelCall]:
    """One call for each kind of sequence in the step: prompts and single tokens run in different kernels."""
    scores = [op for op in kernel.ops if op.kind == "contract" and "P" in op.writes[0].axes]
    mixed = next(op for op in reversed(kernel.ops) if op.kind == "contract")
    query, key = (_operand(scores[0], side) for side in (0, 1))
    mask = next((op.attrs["mask"] for op in kernel.ops if "mask" in op.attrs), None)
    heads = _extent(query.axes, [a for a in query.axes if a in scores[0].writes[0].axes])
    depth = [_extent(_operand(op, 0).axes, [a for a in _operand(op, 0).axes if a not in (*op.writes[0].axes, "T")])
             for op in scores]  # fmt: skip
    shared = {
        "heads": heads, "kv_heads": _extent(key.axes, [a for a in key.axes if a in scores[0].writes[0].axes]),
        "head_dim": sum(depth), "causal": int(mask is not None and mask.causal),
        "window": (mask.window or mask.chunk or mask.top_k) if mask is not None else 0,
    }  # fmt: skip
    shared["head_dim_v"] = mixed.writes[0].axes.get("Hv", shared["head_dim"])
    latent = len(scores) > 1
    cache = table_cache(key.tensor)
    return [_one_attention(s, shared, latent, cache) for s in _sequences(query.axes, key.axes, step, mask)]


def _one_attention(s: Seqs, shared: dict[str, Num], latent: bool, cache: str) -> KernelCall:
    dims = {"batch": s.batch, "seq_q": s.new, "seq_kv": s.past + s.new, **shared}
    decoding = s.new <= 1 if isinstance(s.new, (int, float)) else bool((s.new <= 1).all())
    if latent:
        absorbed = shared["kv_heads"] == 1
        if absorbed and shared["window"]:  # of a sparse indexer: so many cached tokens are read
            dims["seq_kv"] = minimum(dims["seq_kv"], shared["window"] * maximum(s.new, 1))
        return KernelCall("mla_decode" if absorbed else "mla_prefill", "bf16", cache, dims={**dims, "tp": 1})
    return KernelCall("attn_decode" if decoding else "attn_prefill", "bf16", cache, dims=dims)


def _sequences(query: Axes, key: Axes, step: Step, mask: Mask | None) -> Iterable[Seqs]:
    """The step's sequences on this rank. Where source and target differ, equal ones of the kernel's own extents; an
    encoder beside a shorter target has no share to go by.
    """
    share = query["T"] / step.tokens
    if not step.source:
        return [Seqs(s.batch * share, s.new, s.past) for s in step.seqs]
    count = nearest(step.n_seqs * minimum(share, 1))
    new, length = query["T"] / count, key["C"] / count
    return [Seqs(count, new, length - new)]


def _operand(op: Op, side: int) -> Use:
    return op.reads[side]


def _extent(axes: Axes, names: Iterable[str]) -> Num:
    return prod([axes[name] for name in names])


# ---------------------------------------------------------------------- launches beside it
def elementwise_calls(kernels: list[Kernel]) -> list[KernelCall]:
    """Elementwise launches of their own: one for each function that does not ride along."""
    if kernels[0].kind:
        return []
    found: dict[str, dict[str, Use]] = {}
    sides: dict[str, list[Num]] = {}
    for op in [op for kernel in kernels for op in kernel.ops]:
        lone = op.kind == "gather"
        if not lone and (op.kind != "map" or op.fn in FREE):
            continue
        seen, sizes = found.setdefault(op.fn or op.kind, {}), sides.setdefault(op.fn or op.kind, [0, 0])
        for side, uses in enumerate((op.reads, op.writes)):
            for use in uses:
                if use.tensor.kind == "act" and use.tensor.name not in seen:
                    seen[use.tensor.name] = use
                    sizes[side] = sizes[side] + nbytes(use)
    return [KernelCall("elementwise", dims={"read_bytes": r, "write_bytes": w}) for r, w in sides.values()]


# ---------------------------------------------------------------------- formats
def table_dtype(stored: Format, machine: Machine) -> str:
    """The kernel tables' name for a weight format as this device computes it."""
    computed = machine.computes(stored.compute)
    if computed in ("fp32", "tf32", "fp64"):
        return "fp32"
    if computed in ("bf16", "fp16"):
        return "bf16" if stored.bits > 12 else "int8_wo" if stored.bits > 6.5 else _four_bits(stored)
    if computed == "int8":
        return "w8a8_sq"
    if computed == "fp8":
        return "fp8_block" if min(stored.block) > 1 else "fp8" if stored.bits > 6.5 else _four_bits(stored)
    return "nvfp4" if stored.block[0] == 16 else "mxfp4"


def _four_bits(stored: Format) -> str:
    return "w4a16_mxfp4" if stored.block[0] == 32 and stored.scales == 1 else "int4_wo"


def table_cache(cache: Tensor) -> str:
    """The tables' name for the format of a KV cache."""
    bits = cache.format.bits
    return "bf16" if bits > 12 else "fp8" if bits > 6.5 else "int4"
