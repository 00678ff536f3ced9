"""Times the backward of every operator of a stack of layers, in whole steps of training."""

from __future__ import annotations

import gc
import statistics
import time

from torch import Tensor

from archsim.measure.bench import CPU_WAITED, Bench, waited_ns
from archsim.measure.point import Point, Result, Skip, Timing
from archsim.measure.resident import freed_memory_kept
from archsim.measure.trained_layers import ROUNDS, WARM, TrainedPass
from archsim.measure.trained_on_cpu import TrainedOnCpu
from archsim.timing.classes.cpu import OPTIMIZER

Steps = list[dict[str, float]]


def in_training(bench: Bench, point: Point) -> Result:
    """A backward's time from the step that it belongs to, which runs once for all its calls."""
    one = point.within
    assert isinstance(one, TrainedPass)
    done = bench.held.setdefault("training", {})
    if one.id not in done:
        done[one.id] = _steps(bench, one)
    steps, bench.disturbed = done[one.id]
    paths = {OPTIMIZER} if point.kernel == OPTIMIZER else _paths(steps[0], point)
    seconds = [sum(step[path] for path in paths) for step in steps]
    if not paths or not min(seconds):
        raise Skip(f"{one.id}: no backward of its own for {', '.join(sorted(point.ops))}")
    middle = statistics.median(seconds)
    return Result(timing=Timing(
        us=1e6 * middle, spread_pct=100 * (max(seconds) - min(seconds)) / middle, calls=len(seconds)
    ))  # fmt: skip


def _paths(step: dict[str, float], point: Point) -> set[str]:
    """The operators of a call, or the block that runs as a whole for it."""
    return {path for path in step for op in point.ops if op == path or op.startswith(path + ".")}


def _steps(bench: Bench, one: TrainedPass) -> tuple[Steps, bool]:
    """Seconds by operator of some steps, and whether each was disturbed."""
    name = one.layer.name, one.depth
    if bench.held.get("trained", (None,))[0] != name:
        bench.held.pop("trained", None)
        gc.collect()
        bench.held["trained"] = name, TrainedOnCpu(one.model)
    trained = bench.held["trained"][1]
    with freed_memory_kept():
        return _timed(trained, trained.tokens(1, one.length))


def _timed(trained: TrainedOnCpu, tokens: Tensor) -> tuple[Steps, bool]:
    for _ in range(WARM):
        trained.step(tokens)
    clean, every = Steps(), Steps()
    while len(clean) < ROUNDS and len(every) < 2 * ROUNDS:
        before, began = waited_ns(), time.perf_counter_ns()
        every.append(trained.backward_seconds(tokens))
        if waited_ns() - before < CPU_WAITED * (time.perf_counter_ns() - began):
            clean.append(every[-1])
    return clean or every, not clean
