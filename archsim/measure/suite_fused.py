"""Row-wise functions, fused and not: residual and norm, rotation, SwiGLU, quantising, the choice of a token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from archsim.backend import fused
from archsim.backend.fused import Kernels
from archsim.measure.bench import Bench
from archsim.measure.point import Point, Result, Skip

HEAD = 128
LARGEST_E4M3 = 448.0
EPS = 1e-5
BYTES = {
    "norm": (2, 2), "add": (4, 2), "add_norm": (4, 4), "act": (2, 1), "rope": (2, 2), "quantise": (2, 1),
    "logits": (2, 0),
}  # fmt: skip
"""Bytes read and written for every one of m·n numbers, when one kernel does it all."""


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 with one scale per row."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / LARGEST_E4M3
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def logits(x: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely token and its probability."""
    return x.float().softmax(-1).max(-1)


def kernels(form: str, bench: Bench) -> Kernels:
    """The functions in one form; Skip where the form is not to be had or wrong."""
    if form == "eager":
        return fused.EAGER
    if not bench.cuda:
        raise Skip(f"{form} is timed on a GPU only")
    if form == "torch.compile":
        return fused.compile_functions()
    return triton_kernels(bench)


def triton_kernels(bench: Bench) -> Kernels:
    """Our Triton kernels, compared with torch when first asked for."""
    found = bench.held.get("triton")
    if found is None:
        found = bench.held["triton"] = _check_kernels(bench)
    if isinstance(found, str):
        raise Skip(found)
    result: Kernels = found
    return result


def _check_kernels(bench: Bench) -> Kernels | str:
    """The kernels, or why they cannot be used."""
    try:
        from archsim.backend import triton_kernels as t
    except ImportError as error:
        return f"triton is not installed ({error})"
    try:
        t.check(bench.device)
    except AssertionError as error:
        return f"a Triton kernel differs from torch: {' '.join(str(error).split())[:160]}"
    except Exception as error:
        return f"Triton kernels do not run: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return t.KERNELS


def row_wise(bench: Bench, point: Point) -> Result:
    """One function over (m, n) numbers; `moved` are the bytes of its one-kernel form, in and out."""
    k = kernels(point.kernel, bench)
    moved = point["m"] * point["n"] * sum(BYTES[point.op])
    calls = MAKERS[point.op](bench, point, k, bench.copies(moved))
    return Result(timing=bench.time(calls), moved=moved)


Calls = list[Callable[[], object]]


def _norm(bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    weight = bench.rand(point["n"])
    data = [bench.rand(1, point["m"], point["n"]) for _ in range(count)]
    return [partial(k.norm, x, weight, EPS, False) for x in data]


def _add(bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    data = [[bench.rand(1, point["m"], point["n"]) for _ in range(2)] for _ in range(count)]
    return [partial(torch.add, x, y) for x, y in data]


def _add_norm(bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    weight = bench.rand(point["n"])
    data = [[bench.rand(1, point["m"], point["n"]) for _ in range(2)] for _ in range(count)]
    return [partial(k.add_norm, x, y, weight, EPS, False) for x, y in data]


def _act(bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    halves = [bench.rand(1, point["m"], point["n"]).chunk(2, -1) for _ in range(count)]
    return [partial(k.gated, "swiglu", {}, gate, up) for gate, up in halves]


def _rope(bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    head = min(HEAD, point["n"])
    turns = torch.randn(point["m"], 1, head // 2, device=bench.device)
    cos, sin = turns.cos(), turns.sin()
    data = [bench.rand(1, point["m"], point["n"] // head, head) for _ in range(count)]
    return [partial(k.rope, x, cos, sin, False) for x in data]


def _plain(function: Callable[..., object], bench: Bench, point: Point, k: Kernels, count: int) -> Calls:
    if k.name == "torch.compile":
        function = bench.held.setdefault(f"compiled {function.__name__}", torch.compile(function, dynamic=True))
    data = [bench.rand(point["m"], point["n"]) for _ in range(count)]
    return [partial(function, x) for x in data]


MAKERS: dict[str, Callable[[Bench, Point, Kernels, int], Calls]] = {
    "norm": _norm, "add": _add, "add_norm": _add_norm, "act": _act, "rope": _rope,
    "quantise": partial(_plain, quantise), "logits": partial(_plain, logits),
}  # fmt: skip
"""The calls to be timed, by op, each on its own copy of the data."""
