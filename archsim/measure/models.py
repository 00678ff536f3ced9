"""What is timed of whole models: prefill and decode over lengths and batches."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.measure.point import Point
from archsim.measure.shapes import Size

DEFAULT = ("llama3-8b", "gpt-oss-20b")
FORMS = ("triton+graph", "compile+graph", "eager+graph", "eager")
"""Row-wise functions by Triton, by torch.compile or by plain torch; replayed as a graph or issued one by one."""
BUILD_S = 8.0
"""Seconds that instantiating a model takes, charged to its first point."""


def points(models: tuple[str, ...], size: Size) -> Iterator[Point]:
    """Every model's points; the first of each model carries the cost of making it."""
    for i, model in enumerate(models):
        found = _small(model) if size == "small" else _full(model, first=i == 0)
        for j, point in enumerate(found):
            yield point if j else _dearer(point, size)


def _dearer(point: Point, size: Size) -> Point:
    from dataclasses import replace

    return replace(point, seconds=point.seconds + (BUILD_S if size == "full" else 0.2))


def _small(model: str) -> Iterator[Point]:
    for kernel in (FORMS[0], "eager"):
        yield _point("decode_step", model, kernel, 1, 1, 32, 0)
        yield _point("decode_step", model, kernel, 4, 1, 16, 0)
    for s in (16, 48):
        yield _point("prefill", model, "eager", 1, s, s, 0)


def _full(model: str, first: bool) -> Iterator[Point]:
    """Batches 1 to 256; every form at few points, the fused one everywhere."""
    for batch in (1, 32):
        for kernel in FORMS:
            rank = 0 if kernel == FORMS[0] else 1 if first else 2
            yield _point("decode_step", model, kernel, batch, 1, 2048, rank)
    for past in (512, 2048, 8192):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            if past == 2048 and batch in (1, 32):
                continue
            rank = 0 if past == 512 and batch in (1, 8, 64) else 1 if batch in (1, 8, 64, 256) else 2
            yield _point("decode_step", model, FORMS[0], batch, 1, past, rank)
    for s in (128, 512, 1024, 2048, 4096, 8192, 16384):
        rank = 0 if s in (512, 2048, 8192) else 1
        yield _point("prefill", model, FORMS[0], 1, s, s, rank)
        if s in (128, 2048):
            yield _point("prefill", model, "eager", 1, s, s, 2)
    for batch in (4, 16):
        yield _point("prefill", model, FORMS[0], batch, 1024, 1024, 2)


def _point(op: str, model: str, kernel: str, batch: int, new: int, length: int, rank: int) -> Point:
    """seq_kv: cached tokens before the step in decode, the prompt in prefill."""
    dims = {"batch": batch, "seq_q": new, "seq_kv": length}
    cost = 1.0 if kernel != "compile+graph" else 12.0
    return Point(suite="model", op=op, kernel=kernel, dims=dims, kv_dtype="bf16", rank=rank, seconds=cost, model=model)
