"""Attention by each back end of torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from archsim.measure.bench import Bench
from archsim.measure.point import Point, Result
from archsim.measure.skip import Skip

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
