"""Times the calls of a stack of layers one by one, in their order."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from archsim.backend import fused
from archsim.backend.compile.parts import Shape as StepShape
from archsim.backend.compile.program import Program
from archsim.backend.int8 import Int8Packed
from archsim.backend.module import build
from archsim.backend.packed import Packed
from archsim.measure.bench import CPU_WAITED, DTYPES, Bench, waited_ns
from archsim.measure.cpu_layers import FEWEST, ROUNDS, SHORT_S, Pass, model_of
from archsim.measure.point import Point, Result, Skip, Timing
from archsim.measure.resident import freed_memory_kept

PATIENCE = 4
"""Times the rounds that may be disturbed before a pass is given up as disturbed."""
PACKED: dict[str, type[Packed]] = {"int8": Int8Packed}
"""Number formats whose weights are made of those of a module in fp32."""
Timed = dict[frozenset[str], Timing]


class Round(NamedTuple):
    """One pass: seconds of each part, and whether its threads had their processors."""

    seconds: list[float]
    clean: bool


def in_layer(bench: Bench, point: Point) -> Result:
    """A call's time from the pass that it belongs to, which is timed once for all its calls."""
    one = point.within
    assert isinstance(one, Pass)
    done = bench.held.setdefault("layers", {})
    if one.id not in done:
        done[one.id] = _timed(bench, one)
    timed, bench.disturbed = done[one.id]
    found = [(timing.calls, timing) for paths, timing in timed.items() if paths & point.ops]
    if not found or _is_split(timed, point):
        raise Skip(f"{one.id}: no call of its own for {', '.join(sorted(point.ops))}")
    return Result(timing=max(found, key=lambda each: each[0])[1])  # the first layer's neighbours may differ


def _is_split(timed: Timed, point: Point) -> bool:
    """Whether the ops of one call run as several."""
    parts = [paths for paths in timed if paths & point.ops]
    return len(parts) > 1 and not frozenset.intersection(*parts)


def _timed(bench: Bench, one: Pass) -> tuple[Timed, bool]:
    """Times of every part of a pass, over all layers, and whether each round was disturbed."""
    rounds: list[Round] = []
    with torch.no_grad():
        program = _program(bench, one)
    with torch.no_grad(), freed_memory_kept():
        each = sum(_round(program).seconds)
        wanted = ROUNDS if each < SHORT_S else FEWEST
        while sum(r.clean for r in rounds) < wanted and len(rounds) < PATIENCE * wanted:
            rounds.append(_round(program))
    clean = [r for r in rounds if r.clean]
    found: dict[frozenset[str], list[float]] = {}
    for r in clean or rounds:
        for part, seconds in zip(program.parts, r.seconds, strict=True):
            found.setdefault(frozenset(part.paths), []).append(seconds)
    return {paths: _timing(values) for paths, values in found.items()}, not clean


def _timing(seconds: Sequence[float]) -> Timing:
    """The median, since what a cache gives differs from pass to pass; spread: of the middle half."""
    middle = statistics.median(seconds)
    low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else (middle, middle, middle)
    return Timing(us=1e6 * middle, spread_pct=100 * (high - low) / middle, calls=len(seconds))


def _program(bench: Bench, one: Pass) -> Program:
    """The pass as a program; the weights of the last stack are kept for the next pass through it."""
    stack = one.layer.name, one.depth, one.dtype
    if bench.held.get("stack", (None,))[0] != stack:
        bench.held.pop("stack", None)
        gc.collect()
        wide = DTYPES.get(one.dtype, torch.float32)
        net = build(model_of(one.layer, one.depth, one.dtype), "cpu", wide).requires_grad_(False)
        net.fused = net.fast = True
        bench.held["stack"] = stack, net, PACKED.get(one.dtype, Packed)(net, release=True)
    _, net, packed = bench.held["stack"]
    net.absorbed = one.shape[2] > 0
    functions = fused.compile_functions() if one.form == "compiled" else fused.EAGER
    return Program(net, StepShape(*one.shape), functions, packed)


def _round(program: Program) -> Round:
    """Every part of the program once."""
    stamps: list[int] = []
    now, before = time.perf_counter_ns, waited_ns()
    began = now()
    program(watch=lambda part: stamps.append(now()))
    seconds = [(b - a) / 1e9 for a, b in zip([began, *stamps], stamps, strict=False)]
    return Round(seconds, waited_ns() - before < CPU_WAITED * (now() - began))
