"""What is timed on a processor: calls in layers, and products that no layer has, alone on weights from memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from archsim.measure.cpu_layers import SUITE as LAYERS
from archsim.measure.cpu_layers import layer_points
from archsim.measure.point import Point
from archsim.measure.trained_layers import SUITE as TRAINING
from archsim.measure.trained_layers import training_points
from archsim.spec.hardware import Hardware
from archsim.timing.device import DeviceRates

Sites = tuple[tuple[int, int], ...]

SITES: Sites = (
    (768, 768), (2304, 768), (3072, 768), (768, 3072), (50257, 768), (2048, 2048), (8192, 2048), (2048, 8192),
    (4096, 1024), (1024, 3072), (1152, 6912), (1536, 576), (576, 1536), (3840, 1280),
)  # fmt: skip
"""(n, k) of products that constants are fitted on: widths of models with 0.1 to 1.5 billion parameters."""
HELD_SITES: Sites = ((1024, 1024), (5120, 1280), (1280, 5120), (6144, 1024), (49152, 576), (960, 2560), (13824, 1152))
"""(n, k) that no fit sees."""

COLD = 3
"""Operands are rotated over so many times the last cache."""
MOST = 1 << 30
ITEM = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "int4_wo": 0.5}


def cold_copies(nbytes: int, cache_bytes: int) -> int:
    """Copies of an operand that make each come from memory when its turn comes."""
    return max(2, min(ceil(COLD * cache_bytes / nbytes) + 1, MOST // nbytes, 256))


def products(cache_bytes: int) -> Iterator[Point]:
    """Weights in narrow formats, from memory; in fp32 one thread on a few."""
    for n, k in SITES[:8:2]:
        for m in (1, 128):
            yield _product("fp32", m, n, k, cache_bytes, 2, False, threads=1)
    for dtype in ("int8", "int4_wo"):
        for held, sites in ((False, SITES[:8]), (True, HELD_SITES[:4])):
            for n, k in sites:
                for m in (1, 16, 128):
                    yield _product(dtype, m, n, k, cache_bytes, 1 if m == 1 else 2, held)


def _product(dtype: str, m: int, n: int, k: int, cache_bytes: int, rank: int, held: bool, threads: int = 0) -> Point:
    """cache_bytes: 0 for weights that stay in a cache from call to call."""
    size = int(n * k * ITEM[dtype])
    count = cold_copies(size, cache_bytes) if cache_bytes else 1
    dims = {"m": m, "n": n, "k": k, "bytes": count * size} | ({"threads": threads} if threads else {})
    seconds = 0.08 + 3e-11 * 2 * m * n * k * 4
    return Point(
        suite="cpu_gemm", op="cpu_gemm", kernel="linear", dims=dims, dtype=dtype, l2="cold" if cache_bytes else "warm",
        rank=rank, held=held,
        seconds=seconds,
    )  # fmt: skip


def cpu_points(cache_bytes: int, hardware: Hardware) -> dict[str, list[Point]]:
    """Every point by suite. cache_bytes: of the last cache, beyond which operands are rotated."""
    return {
        LAYERS: list(layer_points(DeviceRates(hardware))), "cpu_gemm": list(products(cache_bytes)),
        TRAINING: list(training_points(hardware)),
    }  # fmt: skip


CPU_SUITES = (LAYERS, "cpu_gemm", TRAINING)
