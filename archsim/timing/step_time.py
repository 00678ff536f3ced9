"""The time of one step: its kernels, its classes of kernels, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import Num, absent, as_array, ceil_div, maximum, total, where
from archsim.graph.kernels import Kernel, Traffic
from archsim.timing.classes.gemm import TILE
from archsim.timing.device import DeviceRates
from archsim.timing.duration import EVIDENCE, Duration, Evidence, prevailing_evidence
from archsim.timing.roofline import BOUNDS, Bound, limit, seconds, times, work

LEAST = 1e-30
"""Seconds that are nothing, where one must not divide by nothing."""

PIECE = 2048
"""Tokens of one piece of a prefill that a pipeline works on stage by stage: enough to hide that each reads weights."""

LIFT_TOLERANCE = 1e-6
"""Relative distance within which a time counts as clamped to its roofline."""


class KernelCost(NamedTuple):
    """One execution of a kernel at the device's peaks, and how often it runs in a step.

    Bytes and FLOP are of one device. compute_s, memory_s, comm_s: seconds of each unit; ideal_s: of the whole. part: of
    the model, as its ops say.
    """

    path: str
    kind: str
    count: Num
    flops: Num
    traffic: Traffic
    comm_bytes: Num
    compute_s: Num
    memory_s: Num
    comm_s: Num
    ideal_s: Num
    part: str = ""

    @classmethod
    def of(cls, kernel: Kernel, moved: Traffic, machine: DeviceRates) -> KernelCost:
        """What the roofline says of a kernel."""
        done = work(kernel, moved, machine)
        parts = times(done, machine)
        return cls(
            kernel.name, kind_of(kernel), kernel.times, done.flops, moved, done.comm_bytes, *parts, seconds(*parts),
            kernel.main.part,
        )  # fmt: skip

    def moving(self, moved: Traffic, machine: DeviceRates) -> KernelCost:
        """The same arithmetic with other traffic."""
        memory_s = moved.total / machine.bandwidth
        ideal_s = seconds(self.compute_s, memory_s, self.comm_s)
        return self._replace(traffic=moved, memory_s=memory_s, ideal_s=ideal_s)

    def time(self, expected_s: Num) -> KernelTime:
        """All executions of the kernel; expected_s: seconds of all of them."""
        n, moved = self.count, self.traffic
        return KernelTime(
            path=self.path, kind=self.kind, count=n, flops=self.flops * n, weight_bytes=moved.weight * n,
            state_bytes=moved.state * n, act_bytes=moved.act * n, comm_bytes=self.comm_bytes * n,
            ideal_s=self.ideal_s * n, expected_s=expected_s, compute_s=self.compute_s * n,
            memory_s=self.memory_s * n, comm_s=0.0 if absent(self.comm_s) else self.comm_s * n, part=self.part,
        )  # fmt: skip


class KernelTime(NamedTuple):
    """A kernel's part of a step, all its executions together. Bytes and FLOP are of one device."""

    path: str
    kind: str
    count: Num = 1
    flops: Num = 0
    weight_bytes: Num = 0
    state_bytes: Num = 0
    act_bytes: Num = 0
    comm_bytes: Num = 0
    ideal_s: Num = 0.0
    expected_s: Num = 0.0
    compute_s: Num = 0.0
    memory_s: Num = 0.0
    comm_s: Num = 0.0
    part: str = ""

    @property
    def bytes(self) -> Num:
        """HBM bytes."""
        return self.weight_bytes + self.state_bytes + self.act_bytes

    @property
    def bound(self) -> Bound:
        """What the kernel's speed of light is limited by."""
        return BOUNDS[int(limit(self.compute_s, self.memory_s, self.comm_s))]

    @property
    def intensity(self) -> float | None:
        """FLOP per HBM byte; None where no byte moves."""
        return self.flops / self.bytes if self.bytes else None

    def scaled(self, factor: Num) -> KernelTime:
        """So many of these one after another."""
        return self._replace(**{name: getattr(self, name) * factor for name in AMOUNTS})

    def joined(self, other: KernelTime) -> KernelTime:
        """This and another of the same kernel, one after another."""
        return self._replace(**{name: getattr(self, name) + getattr(other, name) for name in AMOUNTS})

    @property
    def nothing(self) -> bool:
        """Whether the kernel does nothing and takes no time."""
        return all(absent(x) for x in (self.expected_s, self.ideal_s, self.flops, self.comm_bytes))


AMOUNTS = ("count", "flops", "weight_bytes", "state_bytes", "act_bytes", "comm_bytes", "ideal_s", "expected_s",
           "compute_s", "memory_s", "comm_s")  # fmt: skip
"""What adds up of a kernel that runs several times."""


class ClassTime(NamedTuple):
    """What all calls of one class of kernels with one kind of evidence take together."""

    kernel_class: str
    time: Duration

    @property
    def evidence(self) -> Evidence:
        """What the time rests on."""
        return self.time.evidence


class FusedTime(NamedTuple):
    """Kernels of a step (by position) that run as one, seconds of one execution, and executions."""

    members: Sequence[int]
    each_s: Num
    count: Num

    @property
    def expected_s(self) -> Num:
        """Seconds of all executions."""
        return self.each_s * self.count


@dataclass(frozen=True, kw_only=True)
class RankTime:
    """All kernels of one rank's graph, the stages of a pipeline one after another.

    costs: of every kernel at the device's peaks; fused: their expected times; by_class: those by class of kernels.
    launches: kernels that the host starts. repeated: whether kernels of several steps stand one after another, which
    are one row each.
    """

    costs: tuple[KernelCost, ...] = ()
    fused: tuple[FusedTime, ...] = ()
    by_class: tuple[ClassTime, ...] = ()
    launches: Num = 0
    repeated: bool = False

    @cached_property
    def ops(self) -> tuple[KernelTime, ...]:
        """Every kernel that does anything."""
        expected: list[Num] = [0.0] * len(self.costs)
        for call in self.fused:
            for i, part in zip(call.members, self._split(call), strict=True):
                expected[i] = part
        rows = [cost.time(part) for cost, part in zip(self.costs, expected, strict=True)]
        kept = tuple(row for row in rows if not row.nothing)
        return one_row_each(kept) if self.repeated else kept

    def _split(self, call: FusedTime) -> list[Num]:
        """A fused call's time over its kernels, by their speed of light."""
        if len(call.members) == 1:
            return [call.expected_s]
        parts = [self.costs[i].ideal_s for i in call.members]
        whole = sum(parts)
        if not isinstance(whole, (int, float)):
            return [call.expected_s * part / maximum(whole, LEAST) for part in parts]
        return [call.expected_s * (part / whole if whole else 1 / len(parts)) for part in parts]

    @cached_property
    def _lifted(self) -> tuple[tuple[Num, Num], ...]:
        """Executions and seconds of each fused call that stands at the bound of its kernels."""
        rows = []
        for call in self.fused:
            count = self.costs[call.members[0]].count
            ideal = count * sum(self.costs[i].ideal_s for i in call.members)
            below = (call.expected_s <= ideal * (1 + LIFT_TOLERANCE)) & (ideal > 0)
            rows.append((count * below, where(below, ideal, 0.0)))
        return tuple(rows)

    @property
    def lifted(self) -> Num:
        """Launches whose time model says less than the graph's own bound, which are priced at it."""
        return sum(count for count, _ in self._lifted)

    @property
    def lifted_s(self) -> Num:
        """Seconds of those launches."""
        return sum(time for _, time in self._lifted)

    @cached_property
    def ideal_s(self) -> Num:
        """Speed of light."""
        return total(cost.ideal_s * cost.count for cost in self.costs)

    @cached_property
    def expected_s(self) -> Num:
        """Expected time."""
        return total(part.time.expected for part in self.by_class)

    @cached_property
    def ideal_by_bound(self) -> tuple[Num, ...]:
        """Seconds at the speed of light by what limits the kernels, in the order of `BOUNDS`."""
        sums: list[Num] = [0.0] * len(BOUNDS)
        for cost in self.costs:
            limited = limit(cost.compute_s, cost.memory_s, cost.comm_s)
            if isinstance(limited, int):
                sums[limited] = sums[limited] + cost.ideal_s * cost.count
                continue
            ideal = cost.ideal_s * cost.count
            for i in range(len(BOUNDS) - 1 if absent(cost.comm_s) else len(BOUNDS)):
                sums[i] = sums[i] + ideal * (limited == i)
        return tuple(map(as_array, sums))


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The time of one step on the rank that has most to do; numbers or arrays.

    rank: the kernels of its graph. beside: what is not in the graph: a pipeline's transfers, the engine's host; extra:
    their times, and sources of error without a time. stages: of the pipeline. pieces: parts that a prefill is cut into,
    which the stages work on at the same time; 0 where stages work one after another. piece_s: seconds of one piece
    through all stages, 0 where there is none. name: what pages call the step.
    """

    rank: RankTime = RankTime()
    beside: tuple[KernelTime, ...] = ()
    extra: tuple[ClassTime, ...] = ()
    stages: int = 1
    pieces: Num = 0
    piece_s: Num = 0
    name: str = "step"

    @classmethod
    def of(cls, whole: Duration, name: str = "step") -> StepTime:
        """A step known only as a whole, as a synthetic timer states it."""
        row = KernelTime(name, "step", ideal_s=whole.ideal, expected_s=whole.expected)
        return cls(beside=(row,), extra=(ClassTime("step", whole),), name=name)

    def called(self, name: str, prompt_tokens: Num = 0, piece_s: Num = 0) -> StepTime:
        """The same step under a name. prompt_tokens: of a prefill that is handed through the pipeline in pieces, so
        that all stages work at once; a single step cannot be cut. piece_s: as of a step.
        """
        return replace(self, name=name, pieces=pieces_of(prompt_tokens), piece_s=piece_s)

    @property
    def ops(self) -> tuple[KernelTime, ...]:
        """Every kernel that does anything, then what is beside the graph."""
        return (*self.rank.ops, *self.beside)

    @property
    def by_class(self) -> tuple[ClassTime, ...]:
        """The expected time by class of kernels, which the interval is composed of."""
        return (*self.rank.by_class, *self.extra)

    def total(self, field: str) -> Num:
        """Sum of a field over all kernels."""
        return total(getattr(op, field) for op in self.ops)

    @property
    def ideal_s(self) -> Num:
        """Speed of light: kernels one after another, each at its roofline; stages of a prefill never idle."""
        whole = self.rank.ideal_s + sum(row.ideal_s for row in self.beside)
        return whole / (1 if absent(self.pieces) else self.stages)

    @property
    def in_turn_s(self) -> Num:
        """Expected time of all stages, one after another."""
        return self.rank.expected_s + sum(part.time.expected for part in self.extra)

    @property
    def expected_s(self) -> Num:
        """With the efficiencies of the evidence at hand; a pipeline fills and drains once."""
        return self.in_turn_s * self.busy

    @property
    def busy(self) -> Num:
        """Time of a pipeline over the sum of its stages' times.

        Each piece reads the weights again, so that a part of a prefill may take more than its share of the time of the
        whole: never less than a piece alone.
        """
        if absent(self.pieces):
            return 1
        filled = (self.pieces + self.stages - 1) / (self.pieces * self.stages)
        return filled if absent(self.piece_s) else filled * maximum(1.0, self.pieces * self.piece_s / self.in_turn_s)

    @property
    def low_s(self) -> Num:
        """Lower end of the 80 % interval, never below the speed of light."""
        return maximum(self.ideal_s, self.expected_s - self.busy * self._half_width("low"))

    @property
    def high_s(self) -> Num:
        """Upper end of the 80 % interval."""
        return self.expected_s + self.busy * self._half_width("high")

    def _half_width(self, end: str) -> Num:
        """Seconds from the expected time to an end of the 80 % interval. Errors within a class of kernels add linearly,
        those of different classes in quadrature.
        """
        off: dict[str, Num] = {}
        for name, time in self.by_class:
            off[name] = off.get(name, 0) + abs(getattr(time, end) - time.expected)
        return sum(width**2 for width in off.values()) ** 0.5

    @property
    def duration(self) -> Duration:
        """The step's time without its parts, of numbers."""
        return Duration(self.expected_s, self.low_s, self.high_s, self.ideal_s, self.evidence)

    @property
    def evidence_index(self) -> Num:
        """Position in `EVIDENCE` of what a good part of the time rests on, at the least."""
        return prevailing_evidence(part.time for part in self.by_class)

    @property
    def evidence(self) -> Evidence:
        """The weakest evidence that, with all weaker, stands behind a good part of the time."""
        return EVIDENCE[int(self.evidence_index)]

    @property
    def bound_index(self) -> Num:
        """Position in `BOUNDS` of what most of the time is limited by."""
        compute, memory, comm = self.rank.ideal_by_bound
        return limit(compute, memory, comm + sum(row.comm_s for row in self.beside))

    @property
    def bound(self) -> Bound:
        """What most of the time is limited by."""
        return BOUNDS[int(self.bound_index)]

    @property
    def flops(self) -> Num:
        """FLOP that one device computes (pipeline stages share the work)."""
        return self._per_stage("flops")

    @property
    def bytes(self) -> Num:
        """HBM bytes that one device moves."""
        return self._per_stage("bytes")

    @property
    def comm_bytes(self) -> Num:
        """Bytes that one device sends."""
        return self._per_stage("comm_bytes")

    def _per_stage(self, field: str) -> Num:
        return self.total(field) / self.stages if self.stages > 1 else self.total(field)

    def plus(self, time: Duration, kernel_class: str, row: KernelTime | None = None) -> StepTime:
        """The step with something beside its graph, or without a row with one more source of error."""
        rows = () if row is None else (row._replace(expected_s=time.expected),)
        return replace(self, beside=(*self.beside, *rows), extra=(*self.extra, ClassTime(kernel_class, time)))

    def to_dict(self) -> dict[str, Any]:
        """The contract's object."""
        return {
            "ideal_s": self.ideal_s, "expected_s": self.expected_s, "low_s": self.low_s, "high_s": self.high_s,
            "bound": self.bound, "flops": self.flops, "bytes": self.bytes, "comm_bytes": self.comm_bytes,
            "evidence": self.evidence,
        }  # fmt: skip


def in_a_row(parts: Sequence[tuple[Num, StepTime]]) -> StepTime:
    """Several steps one after another, each so many times, as one; their errors go together."""
    costs, fused, extra = list[KernelCost](), list[FusedTime](), list[ClassTime]()
    by_class, beside, launches = list[ClassTime](), list[KernelTime](), 0
    for count, step in parts:
        first, rank = len(costs), step.rank
        costs += [cost._replace(count=cost.count * count) for cost in rank.costs]
        for call in rank.fused:
            fused.append(FusedTime([first + i for i in call.members], call.each_s, call.count * count))
        by_class += [ClassTime(name, time.scaled(count)) for name, time in rank.by_class]
        extra += [ClassTime(name, time.scaled(count)) for name, time in step.extra]
        beside += [row.scaled(count) for row in step.beside]
        launches += rank.launches * count
    whole = RankTime(
        costs=tuple(costs), fused=tuple(fused), by_class=tuple(by_class), launches=launches, repeated=True
    )  # fmt: skip
    return replace(parts[0][1], rank=whole, beside=one_row_each(beside), extra=tuple(extra))


def one_row_each(rows: Iterable[KernelTime]) -> tuple[KernelTime, ...]:
    """The rows with those of one kernel added up."""
    found: dict[tuple[str, str], KernelTime] = {}
    for row in rows:
        key = row.path, row.kind
        found[key] = row if key not in found else found[key].joined(row)
    return tuple(found.values())


def pieces_of(prompt_tokens: Num) -> Num:
    """Pieces that a prefill is cut into, on average, counted in whole tiles as its products are: at least one; none
    without a prompt.
    """
    return 0 if absent(prompt_tokens) else maximum(1.0, ceil_div(prompt_tokens, TILE) * (TILE / PIECE))


def kind_of(kernel: Kernel) -> str:
    """The kernel's class for grouping: attention, a scan, a matrix product, a collective, a lookup or other."""
    if kernel.kind:
        return kernel.kind
    kinds = {op.kind: op for op in kernel.ops}
    if "collective" in kinds:
        return kinds["collective"].fn
    if "contract" in kinds:
        return "conv" if kinds["contract"].cls == "conv" else "matmul"
    return "gather" if "gather" in kinds else "elementwise"


def group(ops: Iterable[KernelTime], by: str) -> dict[str, list[KernelTime]]:
    """Kernels by op path, by block (the path less its repetition prefix) or by kind."""
    found: dict[str, list[KernelTime]] = {}
    for op in ops:
        found.setdefault(_key(op, by), []).append(op)
    return found


def _key(op: KernelTime, by: str) -> str:
    if by == "op":
        return op.path
    if by == "kind":
        return op.kind
    return op.path.rsplit(".", 1)[0]
