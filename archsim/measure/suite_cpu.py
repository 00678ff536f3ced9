"""Suites of a processor: calls in layers, and products alone, each on one of several copies of its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from archsim.measure.bench import DTYPES, Bench, Call, pinned
from archsim.measure.cpu_layers import SUITE as LAYERS
from archsim.measure.cpu_shapes import ITEM
from archsim.measure.point import Point, Result, Skip
from archsim.measure.suite_layers import in_layer
from archsim.measure.suite_ops import INT4_GROUP
from archsim.measure.suite_training import in_training
from archsim.measure.trained_layers import SUITE as TRAINING


def product(bench: Bench, point: Point) -> Result:
    """A linear layer in fp32, bf16, with activations quantised on the way (int8), or with 4-bit weights."""
    m, n, k = point["m"], point["n"], point["k"]
    weight = WEIGHTS.get(point.dtype, _plain)
    size = int(n * k * ITEM[point.dtype])
    count = point["bytes"] // size
    x = bench.rand(m, k, dtype=torch.bfloat16 if point.dtype == "int4_wo" else DTYPES.get(point.dtype, torch.float32))
    calls = [weight(bench, x, n, k) for _ in range(count)]
    with pinned(point.dims.get("threads")):
        timing = bench.time(calls)
    return Result(timing=timing, moved=size)


def _plain(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    return partial(functional.linear, x, _copy(bench, n, k, dtype=x.dtype))


def _copy(bench: Bench, *shape: int, dtype: torch.dtype) -> Tensor:
    """One more copy of the same random numbers: drawing them takes longer than the timing."""
    drawn = bench.held.get("drawn")
    if drawn is None or drawn[0] != (shape, dtype):
        drawn = bench.held["drawn"] = ((shape, dtype), bench.rand(*shape, dtype=dtype))
    copied: Tensor = drawn[1].clone()
    return copied


def _dynamic_int8(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    """fbgemm or oneDNN with the activations' scale found in each call."""
    try:
        layer = torch.ao.nn.quantized.dynamic.Linear(k, n)  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError) as error:
        raise Skip(f"no dynamic int8 linear layer in this torch: {error}") from None
    return partial(layer, x)


def _int4(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    if k % INT4_GROUP or n % 32:
        raise Skip(f"4-bit products need k in multiples of {INT4_GROUP} and n in multiples of 32")
    values = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
    scales = torch.rand(k // INT4_GROUP, n, 2).to(torch.bfloat16)
    return partial(torch.ops.aten._weight_int4pack_mm_for_cpu, x, packed, INT4_GROUP, scales)


WEIGHTS: dict[str, Callable[[Bench, Tensor, int, int], Call]] = {"int8": _dynamic_int8, "int4_wo": _int4}


CPU_RUNS: dict[str, Callable[[Bench, Point], Result]] = {
    "cpu_gemm": product, LAYERS: in_layer, TRAINING: in_training,
}  # fmt: skip
"""From a suite to the function that times its points."""
