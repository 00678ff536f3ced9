"""Kernels under the names that people use for the parts of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from archsim.base.data_class import dataclass
from archsim.base.json_types import JsonObject
from archsim.graph.collectives import COLLECTIVES
from archsim.predict.model_parts import part_of
from archsim.timing.step_time import KernelTime, StepTime, group


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Kernels that belong together. Times are of one step, bytes and FLOP of one device."""

    name: str
    count: int
    ideal_s: float
    expected_s: float
    flops: float
    bytes: float
    comm_bytes: float
    bound: str

    def to_dict(self) -> JsonObject:
        """Raw numbers."""
        return asdict(self)


def by_part(phase: StepTime) -> list[Group]:
    """The phase's kernels by part of the model, the longest first."""
    return _sort_groups(_parts(phase), collective_counts=True)


def _parts(phase: StepTime) -> dict[str, list[KernelTime]]:
    found: dict[str, list[KernelTime]] = {}
    for op in phase.ops:
        found.setdefault(part_of(op, phase.name), []).append(op)
    return found


def by(phase: StepTime, what: str) -> list[Group]:
    """The phase's kernels by part of the model, op, block, kind or phase, the longest first."""
    if what == "part":
        return _sort_groups(_parts(phase))
    if what == "phase":
        return [_sum_group(phase.name, list(phase.ops))]
    return _sort_groups(group(phase.ops, what))


def _sort_groups(found: dict[str, list[KernelTime]], collective_counts: bool = False) -> list[Group]:
    groups = [_sum_group(name, ops) for name, ops in found.items()]
    if collective_counts:
        names = {kind.label for kind in COLLECTIVES.values()}
        groups = [_sum_group(f"{g.name} ×{g.count:,}", found[g.name]) if g.name in names else g for g in groups]
    return sorted(groups, key=lambda g: (-g.expected_s, g.name))


def _sum_group(name: str, ops: Iterable[KernelTime]) -> Group:
    ops = list(ops)
    shares: dict[str, float] = {}
    for op in ops:
        shares[op.bound] = shares.get(op.bound, 0.0) + float(op.ideal_s)
    return Group(
        name=name, count=round(sum(op.count for op in ops)), ideal_s=float(sum(op.ideal_s for op in ops)),
        expected_s=float(sum(op.expected_s for op in ops)), flops=sum(op.flops for op in ops),
        bytes=sum(op.bytes for op in ops), comm_bytes=sum(op.comm_bytes for op in ops),
        bound=max(shares, key=lambda key: shares[key]) if any(shares.values()) else "",
    )  # fmt: skip
