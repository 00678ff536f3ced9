"""What each suite times: sizes that models of today have, the most telling first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from archsim.measure.point import Point

Size = Literal["small", "full"]

FIT_SITES = (
    (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096), (10240, 8192), (57344, 8192),
    (8192, 28672), (25600, 5120), (5120, 1536), (2880, 2880), (1024, 8192),
)  # fmt: skip
"""(n, k) of products that constants are fitted on."""
HELD_SITES = (
    (5120, 5120), (27648, 5120), (5120, 13824), (151936, 2560), (7168, 2048), (3072, 3072), (18432, 3072),
    (8192, 7168),
)  # fmt: skip
"""(n, k) that no fit sees."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)
HELD_ROWS = (1, 4, 16, 64, 128, 256, 1024, 4096, 8192)
FIRST_ROWS = (1, 16, 128, 1024, 8192)
SMALL_ROWS = (1, 8, 64)
LARGEST_ATTENTION = 40e12
"""FLOP of the largest prefill attention that is timed."""
LARGEST_CACHE = 20e9
"""Bytes of the largest cache that decode attention reads."""


def probe(size: Size) -> Iterator[Point]:
    """Bandwidth by size, launch cost, and what data the clock depends on."""
    mib = (1, 4) if size == "small" else (1, 4, 16, 64, 256, 1024, 4096)
    for i in mib:
        rank = 0 if i in (4, 64, 1024, 4096) else 1
        yield Point(suite="probe", op="copy", kernel="tensor.copy_", dims={"bytes": i << 20}, rank=rank)
        yield Point(suite="probe", op="read", kernel="sum", dims={"bytes": i << 20}, rank=1)
    for kernel in ("eager", "graph"):
        yield Point(suite="probe", op="launch", kernel=kernel, dims={"n": 256}, l2="warm")
    s = 128 if size == "small" else 8192
    dims = {"m": s, "n": s, "k": s}
    yield Point(suite="probe", op="gemm", kernel="linear", dims=dims)
    yield Point(suite="probe", op="gemm_zeros", kernel="linear", dims=dims)


def gemm(size: Size) -> Iterator[Point]:
    """Products with one weight: rows from a single token to a long prompt."""
    if size == "small":
        sites: Sequence[tuple[int, int]] = ((256, 128), (128, 512))
        for n, k in sites:
            for m in SMALL_ROWS:
                yield _gemm(m, n, k, 0 if m == 1 else 1)
        yield _gemm(8, 384, 256, 1, held=True)
        return
    for i, (n, k) in enumerate(FIT_SITES):
        for m in ROWS:
            rank = 0 if m in FIRST_ROWS and i < 8 else 1 if m in FIRST_ROWS or m in (4, 64, 512, 4096) else 2
            yield _gemm(m, n, k, rank)
    for n, k in HELD_SITES:
        for m in HELD_ROWS:
            yield _gemm(m, n, k, 1 if m in FIRST_ROWS else 2, held=True)


def _gemm(m: int, n: int, k: int, rank: int, held: bool = False) -> Point:
    return Point(suite="gemm", op="gemm", kernel="linear", dims={"m": m, "n": n, "k": k}, rank=rank, held=held)


def attention(size: Size) -> Iterator[Point]:
    """Prefill and decode, by the back ends of torch's scaled_dot_product_attention."""
    yield from _prefill(size)
    yield from _decode(size)


def _prefill(size: Size) -> Iterator[Point]:
    if size == "small":
        for kernel, s in (("flash", 32), ("math", 32), ("flash", 128)):
            yield _attend("attn_prefill", kernel, 1, s, s, (4, 2, 16), 0, 0)
        return
    heads = ((32, 8, 128), (64, 8, 128), (64, 8, 64), (16, 16, 64), (16, 8, 256))
    for i, shape in enumerate(heads):
        for batch in (1, 4):
            for s in (128, 256, 512, 1024, 2048, 4096, 8192, 16384):
                if 2 * batch * s * s * shape[0] * shape[2] > LARGEST_ATTENTION or batch * s > 32768:
                    continue
                rank = 0 if i == 0 and batch == 1 and s in (512, 2048, 8192) else 1 if i < 3 else 2
                held = i == 3
                yield _attend("attn_prefill", "flash", batch, s, s, shape, rank, 0, held=held)
                yield _attend("attn_prefill", "cudnn", batch, s, s, shape, max(rank, 1), 0, held=held)
    for s in (512, 2048):
        for kernel in ("efficient", "math"):
            yield _attend("attn_prefill", kernel, 1, s, s, heads[0], 2, 0)
    for s in (2048, 8192):
        yield _attend("attn_prefill", "flash", 1, s, s, (64, 8, 64), 1, 128)


def _decode(size: Size) -> Iterator[Point]:
    if size == "small":
        for kernel, s in (("flash", 64), ("math", 64), ("flash", 256)):
            yield _attend("attn_decode", kernel, 2, 1, s, (4, 2, 16), 0, 0)
        return
    for i, shape in enumerate(((32, 8, 128), (64, 8, 128), (64, 8, 64), (32, 32, 128))):
        for batch in (1, 4, 16, 64, 256):
            for s in (512, 2048, 8192, 32768):
                if 4 * batch * s * shape[1] * shape[2] > LARGEST_CACHE:
                    continue
                rank = 0 if i == 0 and s in (512, 8192) and batch in (1, 16, 64) else 1 if i < 2 else 2
                held = i == 2
                yield _attend("attn_decode", "flash", batch, 1, s, shape, rank, 0, held=held)
                if s in (2048, 8192):
                    yield _attend("attn_decode", "cudnn", batch, 1, s, shape, 2, 0, held=held)


def _attend(
    op: str, kernel: str, batch: int, new: int, keys: int, shape: tuple[int, int, int], rank: int, window: int,
    held: bool = False,
) -> Point:  # fmt: skip
    heads, kv_heads, head_dim = shape
    dims = {
        "batch": batch, "seq_q": new, "seq_kv": keys, "heads": heads, "kv_heads": kv_heads,
        "head_dim": head_dim, "window": window,
    }  # fmt: skip
    return Point(suite="attention", op=op, kernel=kernel, dims=dims, kv_dtype="bf16", rank=rank, seconds=0.2, held=held)


FORMS = ("eager", "torch.compile", "triton")
COMPILING_S = 1.5


def fused(size: Size) -> Iterator[Point]:
    """Row-wise functions in one kernel against one kernel per operation: `add` and `norm` against `add_norm`."""
    rows = (1, 16) if size == "small" else (1, 32, 256, 2048, 8192)
    width, inner, vocabulary = (64, 128, 512) if size == "small" else (4096, 14336, 128256)
    forms = ("eager",) if size == "small" else FORMS
    for kernel in forms:
        for m in rows:
            rank = 0 if m in (1, 2048, 16) and kernel != "torch.compile" else 1
            seconds = COMPILING_S if kernel == "torch.compile" else 0.2
            for op, n in (("norm", width), ("add_norm", width), ("act", 2 * inner), ("rope", width)):
                yield _row_wise(op, kernel, m, n, rank, seconds)
            if kernel == "eager":
                yield _row_wise("add", kernel, m, width, rank, seconds)
            if kernel != "triton":
                yield _row_wise("quantise", kernel, m, width, 1, seconds)
                if m <= 256:
                    yield _row_wise("logits", kernel, m, vocabulary, 1, seconds)


def _row_wise(op: str, kernel: str, m: int, n: int, rank: int, seconds: float) -> Point:
    return Point(suite="fused", op=op, kernel=kernel, dims={"m": m, "n": n}, rank=rank, seconds=seconds)


def fp8(size: Size) -> Iterator[Point]:
    """Products of e4m3 numbers with one scale per row and column."""
    sites = ((256, 128),) if size == "small" else (*FIT_SITES[:4], FIT_SITES[5], FIT_SITES[7], *HELD_SITES[:2])
    rows = (16,) if size == "small" else (1, 16, 64, 256, 1024, 4096, 8192)
    for n, k in sites:
        for m in rows:
            rank = 0 if m in (16, 1024) and n in (28672, 256) else 1 if m in (16, 256, 4096) else 2
            yield Point(
                suite="fp8", op="gemm", dtype="fp8", kernel="torch._scaled_mm rowwise",
                dims={"m": m, "n": n, "k": k}, rank=rank, held=(n, k) in HELD_SITES,
            )  # fmt: skip


def int4(size: Size) -> Iterator[Point]:
    """Weight-only 4-bit products, 128 weights to a scale."""
    sites = ((256, 128),) if size == "small" else FIT_SITES[:4]
    for n, k in sites:
        for m in (1, 4) if size == "small" else (1, 4, 16, 64, 256, 1024):
            rank = 0 if m == 1 and n in (28672, 256) else 1 if m in (1, 16) else 2
            yield Point(
                suite="int4", op="gemm", dtype="int4_wo", kernel="torch._weight_int4pack_mm g128",
                dims={"m": m, "n": n, "k": k}, rank=rank,
            )  # fmt: skip


ROUTINGS = ("uniform", "zipf_1.0")


def moe(size: Size) -> Iterator[Point]:
    """Expert layers: up and gate, activation, down, on sorted rows."""
    small = ((4, 2, 64, 32),)
    shapes = small if size == "small" else ((8, 2, 4096, 14336), (32, 4, 2880, 2880), (128, 8, 2048, 768))
    tokens = (1, 16) if size == "small" else (1, 4, 16, 64, 256, 1024, 4096)
    for experts, topk, hidden, inter in shapes:
        for m in tokens:
            for routing in ROUTINGS:
                rank = 0 if m in (1, 64, 1024) and experts == 32 and routing == ROUTINGS[0] else 1
                dims = {
                    "m": m, "experts": experts, "topk": topk, "hidden": hidden, "inter": inter, "tp": 1, "ep": 1
                }  # fmt: skip
                yield Point(
                    suite="moe", op="moe", kernel=f"torch._grouped_mm/{routing}", dims=dims, rank=rank,
                    seconds=0.3, held=experts == 128,
                )  # fmt: skip


TRAINED = "llama3.2-1b"
"""The model of about a billion parameters that the suite `train` takes a step of."""


def train(size: Size) -> Iterator[Point]:
    """One optimiser step of a model of about a billion parameters (on a CPU: of a toy)."""
    for m, rank in ((32, 1),) if size == "small" else ((2048, 1), (4096, 2)):
        yield Point(
            suite="train", op="train_step", kernel="eager adamw", dims={"batch": 1, "seq_q": m},
            model=TRAINED, rank=rank,
            seconds=8 if size == "full" else 0.5,
        )  # fmt: skip


SUITES: dict[str, Callable[[Size], Iterator[Point]]] = {
    "probe": probe, "gemm": gemm, "attention": attention, "fused": fused, "fp8": fp8, "int4": int4,
    "moe": moe, "train": train,
}  # fmt: skip
"""Suites whose points need no model; `models.points` gives those of the suite `model`."""


DEFAULT = ("llama3-8b", "gpt-oss-20b")
MODEL_FORMS = ("triton+graph", "compile+graph", "eager+graph", "eager")
"""Row-wise functions by Triton, by torch.compile or by plain torch; replayed as a graph or issued one by one."""
BUILD_S = 8.0
"""Seconds that instantiating a model takes, charged to its first point."""


def whole_models(models: tuple[str, ...], size: Size) -> Iterator[Point]:
    """Every model's points; the first of each model carries the cost of making it."""
    for i, model in enumerate(models):
        found = _small_model(model) if size == "small" else _full_model(model, first=i == 0)
        for j, point in enumerate(found):
            yield point if j else replace(point, seconds=point.seconds + (BUILD_S if size == "full" else 0.2))


def _small_model(model: str) -> Iterator[Point]:
    for kernel in (MODEL_FORMS[0], "eager"):
        yield _model_point("decode_step", model, kernel, 1, 1, 32, 0)
        yield _model_point("decode_step", model, kernel, 4, 1, 16, 0)
    for s in (16, 48):
        yield _model_point("prefill", model, "eager", 1, s, s, 0)


def _full_model(model: str, first: bool) -> Iterator[Point]:
    """Batches 1 to 256; every form at few points, the fused one everywhere."""
    for batch in (1, 32):
        for kernel in MODEL_FORMS:
            rank = 0 if kernel == MODEL_FORMS[0] else 1 if first else 2
            yield _model_point("decode_step", model, kernel, batch, 1, 2048, rank)
    for past in (512, 2048, 8192):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            if past == 2048 and batch in (1, 32):
                continue
            rank = 0 if past == 512 and batch in (1, 8, 64) else 1 if batch in (1, 8, 64, 256) else 2
            yield _model_point("decode_step", model, MODEL_FORMS[0], batch, 1, past, rank)
    for s in (128, 512, 1024, 2048, 4096, 8192, 16384):
        rank = 0 if s in (512, 2048, 8192) else 1
        yield _model_point("prefill", model, MODEL_FORMS[0], 1, s, s, rank)
        if s in (128, 2048):
            yield _model_point("prefill", model, "eager", 1, s, s, 2)
    for batch in (4, 16):
        yield _model_point("prefill", model, MODEL_FORMS[0], batch, 1024, 1024, 2)


def _model_point(op: str, model: str, kernel: str, batch: int, new: int, length: int, rank: int) -> Point:
    """seq_kv: cached tokens before the step in decode, the prompt in prefill."""
    dims = {"batch": batch, "seq_q": new, "seq_kv": length}
    cost = 1.0 if kernel != "compile+graph" else 12.0
    return Point(suite="model", op=op, kernel=kernel, dims=dims, kv_dtype="bf16", rank=rank, seconds=cost, model=model)
