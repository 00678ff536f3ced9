"""Kernels by the part of the model that they belong to, under the names that people use."""

from __future__ import annotations

from archsim.blocks.layer import SCORES
from archsim.graph.collectives import COLLECTIVES
from archsim.timing.step_time import KernelTime, StepTime

JOINTS = "norms and residuals"
"""What joins the parts of a model belongs to none of them."""


def part_of(op: KernelTime, phase: str = "decode") -> str:
    """The part of the model that a kernel belongs to, as the op that names it says; collectives and the attention
    kernel stand apart.
    """
    if op.kind in COLLECTIVES:
        return COLLECTIVES[op.kind].label
    if op.kind == "attention" or op.part == SCORES:
        return "attention over cache" if phase == "decode" else SCORES
    return op.part or JOINTS


def seconds_by_part(phase: StepTime) -> dict[str, float]:
    """Expected seconds of each part of the model; they add up to the phase's."""
    sums: dict[str, float] = {}
    for op in phase.ops:
        name = part_of(op, phase.name)
        sums[name] = sums.get(name, 0.0) + float(op.expected_s) * phase.busy
    return sums
