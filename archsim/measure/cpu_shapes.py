"""What is timed on a processor: the kernels that models of a laptop's size run, the most telling first."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from archsim.measure.point import Point

Sites = tuple[tuple[int, int], ...]

SITES: Sites = (
    (768, 768), (2304, 768), (3072, 768), (768, 3072), (50257, 768), (2048, 2048), (8192, 2048), (2048, 8192),
    (4096, 1024), (1024, 3072), (1152, 6912), (1536, 576), (576, 1536), (3840, 1280),
)  # fmt: skip
"""(n, k) of products that constants are fitted on: widths of models with 0.1 to 1.5 billion parameters."""
HELD_SITES: Sites = ((1024, 1024), (5120, 1280), (1280, 5120), (6144, 1024), (49152, 576), (960, 2560), (13824, 1152))
"""(n, k) that no fit sees."""
ROWS = (1, 4, 8, 16, 32, 128, 512, 2048)
HELD_ROWS = (1, 6, 24, 128, 1024)
LARGEST_PRODUCT = 2.5e10
"""FLOP of the largest product that is timed in fp32; narrower formats are several times quicker."""
WARM = (1 << 25) * 0.5
"""Bytes of weights up to which products are also timed on weights that stay in a cache."""

HEADS = ((12, 12, 64), (32, 8, 64), (16, 8, 128), (4, 1, 256), (9, 3, 64))
"""Heads, heads of keys and values, and their width."""
HELD_HEADS = ((20, 20, 64), (14, 2, 64), (8, 8, 128))

FUNCTIONS = ("rmsnorm", "layernorm", "swiglu", "gelu_tanh", "geglu_tanh", "rope", "add", "append", "gather")
"""Row-wise functions as the op graph names them."""
COMPILED = ("rmsnorm", "add_rmsnorm", "swiglu", "geglu_tanh", "rope")
"""Those that torch.compile turns into one kernel."""
WIDTHS = (576, 2048, 6144)
HELD_WIDTHS = (1024,)
TOKENS = (1, 32, 512, 2048)
HELD_TOKENS = (1, 128, 1024)


COLD = 3
"""Operands are rotated over so many times the last cache."""
MOST = 1 << 30
ITEM = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "int4_wo": 0.5}
TENSORS = {"add_rmsnorm": 4, "swiglu": 3, "geglu_tanh": 3, "add": 3}
"""Operands and results of a function, each as large as its rows; two where nothing is said."""


def cold_copies(nbytes: int, cache_bytes: int) -> int:
    """Copies of an operand that make each come from memory when its turn comes."""
    return max(2, min(ceil(COLD * cache_bytes / nbytes) + 1, MOST // nbytes, 256))


def products(cache_bytes: int) -> Iterator[Point]:
    """Weights from memory and from a cache; one thread on a few."""
    parts: tuple[tuple[bool, Sites, tuple[int, ...]], ...] = ((False, SITES, ROWS), (True, HELD_SITES, HELD_ROWS))
    narrow: tuple[tuple[bool, Sites], ...] = ((False, SITES[:8]), (True, HELD_SITES[:4]))
    for dtype in ("fp32", "bf16"):
        for held, sites, rows in parts:
            for i, (n, k) in enumerate(sites):
                for m in rows:
                    if 2.0 * m * n * k > LARGEST_PRODUCT * (1 if dtype == "fp32" else 4):
                        continue
                    rank = (0 if m in (1, 128) else 1) + (dtype != "fp32")
                    yield _product(dtype, m, n, k, cache_bytes, rank, held)
                    if 4 * n * k < WARM and m in (1, 16, 8) and i % 2 == 0:
                        yield _product(dtype, m, n, k, 0, 1 + (dtype != "fp32"), held)
    for n, k in SITES[:8:2]:
        for m in (1, 128):
            yield _product("fp32", m, n, k, cache_bytes, 2, False, threads=1)
    for dtype in ("int8", "int4_wo"):
        for held, sites in narrow:
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


def attention(cache_bytes: int) -> Iterator[Point]:
    """Prompts of 16 to 2,048 tokens, and one token after up to 4,096."""
    for dtype in ("fp32", "bf16"):
        for held, shapes in ((False, HEADS), (True, HELD_HEADS)):
            for i, shape in enumerate(shapes):
                for s in (16, 64, 128, 512, 2048):
                    if i < 3 or s in (64, 512):
                        yield _attend(
                            dtype, 1, s, s, shape, cache_bytes, 0 if s in (128, 512) and dtype == "fp32" else 1, held
                        )
                for batch, s in ((1, 128), (1, 1024), (1, 4096), (8, 512), (32, 256)):
                    rank = (0 if batch == 1 and s == 1024 else 1) + (dtype != "fp32")
                    yield _attend(dtype, batch, 1, s, shape, cache_bytes, rank, held)


def _attend(
    dtype: str, batch: int, new: int, keys: int, shape: tuple[int, int, int], cache_bytes: int, rank: int, held: bool
) -> Point:
    heads, kv_heads, head_dim = shape
    size = int(2 * batch * keys * kv_heads * head_dim * ITEM[dtype])
    dims = {
        "batch": batch, "seq_q": new, "seq_kv": keys, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
        "bytes": size * (cold_copies(size, cache_bytes) if new == 1 else 1),
    }  # fmt: skip
    return Point(
        suite="cpu_attention", op="cpu_attention", kernel="sdpa", dims=dims, dtype=dtype, kv_dtype=dtype, rank=rank,
        held=held, seconds=0.12,
    )  # fmt: skip


def functions(cache_bytes: int) -> Iterator[Point]:
    """Row-wise functions, operator by operator and compiled; operands are in a cache as far as they fit."""
    for prefix, names in (("", FUNCTIONS), ("compiled ", COMPILED)):
        for name in names:
            sizes = [(w, t) for w in WIDTHS for t in TOKENS] + [(w, t) for w in HELD_WIDTHS for t in HELD_TOKENS]
            for width, tokens in sizes:
                for dtype in ("fp32", "bf16"):
                    rank = 0 if dtype == "fp32" and tokens in (1, 512) and width == 2048 else 1
                    yield Point(
                        suite="cpu_elementwise", op="cpu_elementwise", kernel=prefix + name, dtype=dtype, l2="warm",
                        dims={"m": tokens, "n": width, "bytes": function_bytes(name, tokens, width, dtype)},
                        rank=rank if dtype == "fp32" else 2, held=width in HELD_WIDTHS, seconds=0.06,
                    )  # fmt: skip


def function_bytes(name: str, tokens: int, width: int, dtype: str) -> int:
    """Bytes of a function's operands and results, without what broadcasts over the rows."""
    return int(TENSORS.get(name, 2) * tokens * width * ITEM[dtype])


def expert_copies(size: int) -> int:
    """Copies of all experts' matrices that are rotated."""
    return max(1, MOST // size // 4)


def experts(cache_bytes: int) -> Iterator[Point]:
    """One product of rows with their own experts' matrices."""
    for held, shapes in ((False, ((8, 1024, 2048), (32, 512, 1024), (64, 1024, 2048))), (True, ((16, 768, 2048),))):
        for count, n, k in shapes:
            size = 4 * count * n * k
            for m in (4, 32, 256, 1024):
                yield Point(
                    suite="cpu_experts", op="cpu_experts", kernel="one by one", dtype="fp32", seconds=0.3, held=held,
                    dims={"m": m, "n": n, "k": k, "experts": count, "bytes": size * expert_copies(size)},
                    rank=0 if m == 32 else 1,
                )  # fmt: skip


def scans(cache_bytes: int) -> Iterator[Point]:
    """Mamba's recurrence, token by token."""
    for held, shapes in ((False, ((1536, 16), (2048, 16), (5120, 16))), (True, ((3072, 16),))):
        for heads, states in shapes:
            for batch, tokens in ((1, 1), (1, 16), (1, 128), (8, 1)):
                yield Point(
                    suite="cpu_scan", op="cpu_scan", kernel="selective_scan", dtype="fp32", seconds=0.2, held=held,
                    dims={"batch": batch, "seq_q": tokens, "heads": heads, "head_dim": states}, l2="warm",
                    rank=0 if tokens == 128 else 1,
                )  # fmt: skip


CPU_SUITES = {
    "cpu_gemm": products, "cpu_attention": attention, "cpu_elementwise": functions, "cpu_experts": experts,
    "cpu_scan": scans,
}  # fmt: skip


def cpu_points(cache_bytes: int) -> dict[str, list[Point]]:
    """Every point by suite. cache_bytes: of the last cache, beyond which operands are rotated."""
    return {name: list(suite(cache_bytes)) for name, suite in CPU_SUITES.items()}
