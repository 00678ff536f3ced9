"""Suites of single kernels: bandwidth and launches, products in 16, 8 and 4 bits, experts, attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from archsim.measure.bench import DTYPES, Bench
from archsim.measure.point import Point, Result, Skip

LAUNCHES = 500
INT4_GROUP = 128
INNER_TILES = 8
ZIPF = 1.0


def copy(bench: Bench, point: Point) -> Result:
    """Device to device; bytes read plus written are counted."""
    elements = point["bytes"] // 4
    count = bench.copies(point["bytes"])
    pairs = [(bench.rand(elements), bench.rand(elements)) for _ in range(count)]
    timing = bench.time([partial(a.copy_, b) for a, b in pairs])
    return Result(timing=timing, moved=4 * elements)


def read(bench: Bench, point: Point) -> Result:
    """A sum over all elements: reading alone."""
    elements = point["bytes"] // 2
    tensors = [bench.rand(elements) for _ in range(bench.copies(point["bytes"]))]
    return Result(timing=bench.time([x.sum for x in tensors]), moved=2 * elements)


def launch(bench: Bench, point: Point) -> Result:
    """What one trivial kernel costs in a row of them: issued by Python, or replayed."""
    graph = point.kernel == "graph"
    if graph and not bench.cuda:
        raise Skip("a CPU has no graphs to replay")
    x = bench.rand(point["n"])
    return Result(timing=bench.time([partial(x.add_, 1)] * (50 if bench.quick else LAUNCHES), graph=graph))


def gemm(bench: Bench, point: Point) -> Result:
    """y = x wᵀ in 16 bits, the weights rotated; on zeros, which take less power, for `gemm_zeros`."""
    m, n, k = point["m"], point["n"], point["k"]
    dtype = DTYPES[point.dtype]
    weights = [bench.rand(n, k, dtype=dtype) for _ in range(bench.copies(2 * n * k))]
    x = bench.rand(m, k, dtype=dtype)
    if point.op == "gemm_zeros":
        x.zero_()
        for w in weights:
            w.zero_()
    timing = bench.time([partial(functional.linear, x, w) for w in weights])
    return Result(timing=timing, moved=2 * (m * k + n * k + m * n))


def fp8(bench: Bench, point: Point) -> Result:
    """e4m3 times e4m3 with a scale per row and per column, 16-bit result; quantising x is not in it."""
    if not hasattr(torch, "_scaled_mm"):
        raise Skip("this torch has no _scaled_mm")
    m, n, k = point["m"], point["n"], point["k"]
    x = bench.rand(m, k, dtype=torch.float8_e4m3fn)
    weights = [bench.rand(n, k, dtype=torch.float8_e4m3fn) for _ in range(bench.copies(n * k))]
    left = torch.ones(m, 1, device=bench.device)
    right = torch.ones(1, n, device=bench.device)

    options = {"scale_a": left, "scale_b": right, "out_dtype": torch.bfloat16, "use_fast_accum": bench.cuda}

    def call(w: Tensor) -> Callable[[], Tensor]:
        return lambda: torch._scaled_mm(x, w.t(), **options)  # type: ignore[arg-type]

    timing = bench.time([call(w) for w in weights])
    return Result(timing=timing, moved=m * k + n * k + 2 * m * n)


def int4(bench: Bench, point: Point) -> Result:
    """16-bit x times 4-bit weights that the kernel unpacks."""
    m, n, k = point["m"], point["n"], point["k"]
    count = bench.copies(n * k // 2)
    x = bench.rand(m, k)
    weights = [_pack_int4(bench, n, k) for _ in range(count)]
    scales = torch.rand(k // INT4_GROUP, n, 2, device=bench.device).to(torch.bfloat16)
    product: Any = torch._weight_int4pack_mm
    if not bench.cuda:
        product = getattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu", product)
    timing = bench.time([partial(product, x, w, INT4_GROUP, scales) for w in weights])
    return Result(timing=timing, moved=n * k // 2 + 4 * n * k // INT4_GROUP + 2 * m * (n + k))


def _pack_int4(bench: Bench, n: int, k: int) -> Tensor:
    """Random 4-bit weights in the layout of the device's kernel."""
    if not bench.cuda:
        values = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
        return packed
    pairs = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=bench.device)
    return torch._convert_weight_to_int4pack(pairs, INNER_TILES)


def moe(bench: Bench, point: Point) -> Result:
    """up|gate, SwiGLU, down over rows sorted by expert, and their weighted sum; no router product."""
    tokens, experts, topk = point["m"], point["experts"], point["topk"]
    hidden, inter = point["hidden"], point["inter"]
    each = 2 * experts * 3 * hidden * inter
    if each > bench.free_bytes() * 0.8:
        raise Skip(f"needs {each / 1e9:.0f} GB for the experts")
    if not hasattr(torch, "_grouped_mm"):
        raise Skip("this torch has no _grouped_mm")
    count = min(bench.copies(each), max(int(bench.free_bytes() * 0.5 / each), 1))
    weights = [
        (bench.rand(experts, hidden, 2 * inter, scale=hidden**-0.5),
         bench.rand(experts, inter, hidden, scale=inter**-0.5))
        for _ in range(count)
    ]  # fmt: skip
    expert, order = routing(tokens, experts, topk, point.kernel, bench.device).flatten().sort()
    offsets = torch.bincount(expert.cpu(), minlength=experts).cumsum(0).to(bench.device, torch.int32)
    token, x = order // topk, bench.rand(tokens, hidden)
    share = torch.full((tokens * topk, 1), 1 / topk, device=bench.device, dtype=x.dtype)

    def call(up: Tensor, down: Tensor) -> Callable[[], Tensor]:
        def layer() -> Tensor:
            gate, value = torch._grouped_mm(x[token], up, offs=offsets).chunk(2, -1)
            y = torch._grouped_mm(functional.silu(gate) * value, down, offs=offsets)
            return torch.zeros_like(x).index_add(0, token, y * share)

        return layer

    timing = bench.time([call(up, down) for up, down in weights])
    hit = int(torch.unique(expert).numel())
    return Result(timing=timing, moved=2 * hit * 3 * hidden * inter, note=f"{hit} experts hit")


def routing(tokens: int, experts: int, topk: int, kernel: str, device: str) -> Tensor:
    """Distinct experts (tokens, topk) of each token: all alike, or expert i with odds 1/i^s."""
    odds = torch.ones(experts)
    if "zipf" in kernel:
        odds = torch.arange(1, experts + 1).float() ** -ZIPF
    generator = torch.Generator().manual_seed(0)
    return torch.multinomial(odds.expand(tokens, -1), topk, generator=generator).to(device)


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH,
}  # fmt: skip


def attention(bench: Bench, point: Point) -> Result:
    """softmax(q kᵀ) v, causal in a prefill, over rotated caches laid out (batch, tokens, heads, d)."""
    batch, new, keys = point["batch"], point["seq_q"], point["seq_kv"]
    heads, kv_heads, d = point["heads"], point["kv_heads"], point["head_dim"]
    cache = 4 * batch * keys * kv_heads * d
    if 2 * cache > bench.free_bytes():
        raise Skip(f"needs {2 * cache / 1e9:.0f} GB for the cache")
    count = max(1, min(bench.copies(cache), int(bench.free_bytes() * 0.5 / max(cache, 1))))
    stored = [[_heads(bench, batch, keys, kv_heads, d) for _ in "kv"] for _ in range(count)]
    q = _heads(bench, batch, new, heads, d)
    calls = [_call(q, k, v, point) for k, v in stored]
    with sdpa_kernel(BACKENDS[point.kernel]):
        timing = bench.time(calls)
    return Result(timing=timing, moved=cache + 4 * batch * new * heads * d)


def _heads(bench: Bench, batch: int, tokens: int, heads: int, d: int) -> Tensor:
    return bench.rand(batch, tokens, heads, d).transpose(1, 2)


def _call(q: Tensor, k: Tensor, v: Tensor, point: Point) -> Callable[[], Tensor]:
    grouped = point["heads"] != point["kv_heads"]
    if point["window"]:
        return _windowed_flash(q, k, v, point["window"])
    causal = point.op == "attn_prefill"
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def _windowed_flash(q: Tensor, k: Tensor, v: Tensor, window: int) -> Callable[[], Tensor]:
    """FlashAttention with a band: scaled_dot_product_attention has no argument for it."""
    if not q.is_cuda:
        raise Skip("a window needs CUDA's FlashAttention")
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def call() -> Tensor:
        y: Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False, window_size_left=window - 1,
            window_size_right=0,
        )[0]  # fmt: skip
        return y

    return call


OPS: dict[str, Callable[[Bench, Point], Result]] = {
    "copy": copy, "read": read, "launch": launch, "gemm_zeros": gemm, "moe": moe,
}  # fmt: skip
GEMMS: dict[str, Callable[[Bench, Point], Result]] = {"fp8": fp8, "int4_wo": int4}
"""Products by number format; 16-bit ones are `gemm`."""
