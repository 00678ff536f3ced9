"""From a point to the function that times it. Importing this imports torch."""

from __future__ import annotations

from archsim.measure.bench import Bench
from archsim.measure.point import Point, Result
from archsim.measure.suite_cpu import CPU_RUNS
from archsim.measure.suite_fused import row_wise
from archsim.measure.suite_model import train_step, unload, whole
from archsim.measure.suite_ops import GEMMS, OPS, attention, gemm


def run(bench: Bench, point: Point) -> Result:
    """Time one point; Skip or any exception where it does not run. A model that it does not use makes room."""
    if bench.held.get("model name") not in (None, point.model):
        unload(bench)
    if point.suite in CPU_RUNS:
        return CPU_RUNS[point.suite](bench, point)
    if point.suite == "train":
        return train_step(bench, point)
    if point.whole:
        return whole(bench, point)
    if point.suite == "attention":
        return attention(bench, point)
    if point.suite == "fused":
        return row_wise(bench, point)
    if point.op == "gemm":
        return GEMMS.get(point.dtype, gemm)(bench, point)
    return OPS[point.op](bench, point)
