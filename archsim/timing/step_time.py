"""One forward pass priced launch by launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from archsim.base.number import Num, absent, maximum, where
from archsim.graph.graph import Block
from archsim.graph.kernels import Kernel, Traffic, kernels_with_edges, traffic
from archsim.graph.step import Step
from archsim.timing.defaults import DATASHEET, UNFITTED
from archsim.timing.kernel_calls import FusedCall, lower_to_calls
from archsim.timing.kernel_timer import Evidence, Timed, Timer
from archsim.timing.roofline import Bound, Machine, Work, bound, seconds, times, work

WEAKEST: tuple[Evidence, ...] = ("datasheet", "transferred", "calibrated", "measured")
"""Evidence from the weakest."""

LEAST = 1e-30
"""Seconds that are nothing, where one must not divide by nothing."""

WEIGHTY = 0.25
"""Share of the time from which on weak evidence speaks for the whole."""


class OpTime(NamedTuple):
    """A kernel's share of a step, all its executions together. Bytes and FLOP are of one device."""

    path: str
    kind: str
    count: Num
    flops: Num
    weight_bytes: Num
    state_bytes: Num
    act_bytes: Num
    comm_bytes: Num
    ideal_s: Num
    expected_s: Num
    compute_s: Num
    memory_s: Num
    comm_s: Num

    @property
    def bytes(self) -> Num:
        """HBM bytes."""
        return self.weight_bytes + self.state_bytes + self.act_bytes

    @property
    def bound(self) -> Bound:
        """What the kernel's speed of light is limited by."""
        return bound(self.compute_s, self.memory_s, self.comm_s)

    @property
    def intensity(self) -> float | None:
        """FLOP per HBM byte; None where no byte moves."""
        return self.flops / self.bytes if self.bytes else None


class Share(NamedTuple):
    """What all calls of one class and evidence take together, with their interval's ends. op: the class."""

    op: str
    evidence: Evidence
    seconds: Num
    low: Num
    high: Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Prefill (the whole batch's prompts) or decode (one step at the mean context).

    shares: the expected time by class of kernels, which the interval is composed of. stages: of the pipeline. pieces:
    parts that a prefill is cut into, which the stages work on at the same time; 0 where they work one after another.
    launches: kernels that the host starts.
    """

    name: str
    ops: tuple[OpTime, ...]
    shares: tuple[Share, ...] = ()
    stages: int = 1
    pieces: Num = 0
    launches: Num = 0

    def total(self, field: str) -> Num:
        """Sum of a field over all kernels."""
        return sum(getattr(op, field) for op in self.ops)

    @property
    def ideal_s(self) -> Num:
        """Speed of light: kernels one after another, each at its roofline; stages of a prefill never idle."""
        return self.total("ideal_s") / (1 if absent(self.pieces) else self.stages)

    @property
    def expected_s(self) -> Num:
        """With the efficiencies of the evidence at hand; a pipeline fills and drains once."""
        return self.total("expected_s") * self.busy

    @property
    def busy(self) -> Num:
        """Time of a pipeline over the sum of its stages' times."""
        return 1 if absent(self.pieces) else (self.pieces + self.stages - 1) / (self.pieces * self.stages)

    @property
    def low_s(self) -> Num:
        """Lower end of the 80 % interval, never below the speed of light."""
        return maximum(self.ideal_s, self.expected_s - self.busy * self.spread("low"))

    @property
    def high_s(self) -> Num:
        """Upper end of the 80 % interval."""
        return self.expected_s + self.busy * self.spread("high")

    def spread(self, end: str) -> Num:
        """Seconds from the expected time to an end of the interval: errors of one class are wholly correlated, those
        of different classes independent."""
        off: dict[str, Num] = {}
        for share in self.shares:
            off[share.op] = off.get(share.op, 0) + abs(getattr(share, end) - share.seconds)
        return sum(seconds**2 for seconds in off.values()) ** 0.5

    @property
    def evidence(self) -> Evidence:
        """The weakest evidence that, with all weaker, stands behind a good part of the time."""
        total = sum(share.seconds for share in self.shares)
        seen: Num = 0
        for name in WEAKEST:
            seen += sum(share.seconds for share in self.shares if share.evidence == name)
            if seen > WEIGHTY * total:
                return name
        return "datasheet"

    @property
    def bound(self) -> Bound:
        """What most of the time is limited by."""
        shares: dict[Bound, Num] = {}
        for op in self.ops:
            shares[op.bound] = shares.get(op.bound, 0) + op.ideal_s
        return max(shares, key=lambda name: shares[name])

    @property
    def flops(self) -> Num:
        """FLOP that one device computes (pipeline stages share the work)."""
        return self.total("flops") / self.stages if self.stages > 1 else self.total("flops")

    @property
    def bytes(self) -> Num:
        """HBM bytes that one device moves."""
        return self.total("bytes") / self.stages if self.stages > 1 else self.total("bytes")

    @property
    def comm_bytes(self) -> Num:
        """Bytes that one device sends."""
        return self.total("comm_bytes") / self.stages if self.stages > 1 else self.total("comm_bytes")

    def to_dict(self) -> dict[str, Any]:
        """The contract's object."""
        return {
            "ideal_s": self.ideal_s, "expected_s": self.expected_s, "low_s": self.low_s, "high_s": self.high_s,
            "bound": self.bound, "flops": self.flops, "bytes": self.bytes, "comm_bytes": self.comm_bytes,
            "evidence": self.evidence,
        }  # fmt: skip


def price(
    name: str,
    graph: Block,
    timer: Timer,
    step: Step,
    *,
    merged: bool = True,
    stages: int = 1,
    pieces: Num = 0,
) -> Phase:
    """Every kernel of one rank's graph, timed. merged: whether products of one activation run as one."""
    found = kernels_with_edges(graph)
    machine = timer.machine
    costs = [Cost.of(kernel, traffic(crossing, machine.cache_bytes), machine) for kernel, crossing in found]
    expected: list[Num] = [0.0] * len(costs)
    tally = Tally()
    for launch in lower_to_calls([kernel for kernel, _ in found], step, machine, merged):
        members = [costs[i] for i in launch.members]
        total = tally.add(launch, members, timer)
        for i, part in zip(launch.members, _split(total, members), strict=True):
            expected[i] = part
    ops = [op_time(c.kernel.name, kind_of(c.kernel), c, e) for c, e in zip(costs, expected, strict=True)]
    kept = tuple(
        op
        for op in ops
        if not (absent(op.expected_s) and absent(op.ideal_s) and absent(op.flops) and absent(op.comm_bytes))
    )
    return Phase(
        name=name, ops=kept, shares=tally.shares, stages=stages, pieces=pieces, launches=tally.launches
    )


class Cost(NamedTuple):
    """One execution of a kernel: its work, seconds of each unit at its peak, and the speed of light of the whole."""

    kernel: Kernel
    work: Work
    compute: Num
    memory: Num
    comm: Num
    ideal: Num
    count: Num

    @classmethod
    def of(cls, kernel: Kernel, moved: Traffic, machine: Machine) -> Cost:
        """What the roofline says of a kernel."""
        done = work(kernel, moved, machine)
        parts = times(done, machine)
        return cls(kernel, done, *parts, seconds(*parts), kernel.times)


class Tally:
    """Sums times by class and evidence."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, Evidence], list[Num]] = {}
        self.launches: Num = 0

    def add(self, launch: FusedCall, members: list[Cost], timer: Timer) -> Num:
        """The time of all executions of a launch, never below its kernels' speed of light."""
        count, ideal = members[0].count, sum([cost.ideal for cost in members])
        found = [(call.kernel_class, timer.once(call)) for call in launch.calls] or [
            ("other", unmodelled(members[0]))
        ]
        self.launches += count * len(found)
        total = sum([timed.seconds for _, timed in found])
        lift = 1.0 if absent(total) else maximum(1.0, ideal / maximum(total, LEAST))
        for op, timed in found:
            sums = self.sums.setdefault((op, timed.evidence), [0, 0, 0])
            for i, value in enumerate(timed[:3]):
                sums[i] = sums[i] + value * count * lift
        return total * count * lift

    @property
    def shares(self) -> tuple[Share, ...]:
        """What was added up."""
        return tuple(Share(op, evidence, *sums) for (op, evidence), sums in self.sums.items())


def unmodelled(cost: Cost) -> Timed:
    """One execution of a kernel without a time model of its own: a roofline with the usual efficiencies."""
    if absent(cost.ideal):
        return Timed(0.0, 0.0, 0.0, "datasheet")
    expected = seconds(cost.compute, cost.memory, cost.comm, DATASHEET)
    if kind_of(cost.kernel) == "elementwise":
        expected = expected - DATASHEET.launch_s  # residuals ride with the norm or the product beside them
    expected = where(cost.ideal > 0, expected, 0.0)
    return Timed(expected, expected * UNFITTED.low, expected * UNFITTED.high, "datasheet")


def _split(total: Num, members: list[Cost]) -> list[Num]:
    """A launch's time over its kernels, by their speed of light."""
    if len(members) == 1:
        return [total]
    whole = sum([cost.ideal for cost in members])
    return [total * (cost.ideal / whole if whole else 1 / len(members)) for cost in members]


def op_time(path: str, kind: str, cost: Cost, expected: Num) -> OpTime:
    """All executions of one kernel. expected: seconds of all together."""
    w, count = cost.work, cost.count
    moved = w.traffic
    return OpTime(
        path=path, kind=kind, count=count, flops=w.flops * count, weight_bytes=moved.weight * count,
        state_bytes=moved.state * count, act_bytes=moved.act * count, comm_bytes=w.comm_bytes * count,
        ideal_s=cost.ideal * count, expected_s=expected, compute_s=cost.compute * count,
        memory_s=cost.memory * count, comm_s=cost.comm * count,
    )  # fmt: skip


def sent(path: str, size: Num, rate: float, count: int) -> OpTime:
    """A transfer of `size` bytes to a neighbour over a link of `rate` B/s, `count` times; its expected time is open."""
    return OpTime(
        path=path, kind="send", count=count, flops=0, weight_bytes=0, state_bytes=0, act_bytes=0,
        comm_bytes=size * count, ideal_s=size / rate * count, expected_s=0.0, compute_s=0.0, memory_s=0.0,
        comm_s=size / rate * count,
    )  # fmt: skip


def with_extra(phase: Phase, op: OpTime, timed: Timed, cls: str) -> Phase:
    """The phase with something beside its graph: a pipeline's transfers, the engine's own work."""
    total = op._replace(expected_s=timed.seconds)
    share = Share(cls, timed.evidence, timed.seconds, timed.low, timed.high)
    return replace(phase, ops=(*phase.ops, total), shares=(*phase.shares, share))


def with_share(phase: Phase, share: Share) -> Phase:
    """The phase with one more source of error."""
    return replace(phase, shares=(*phase.shares, share))


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


def group(ops: Iterable[OpTime], by: str) -> dict[str, list[OpTime]]:
    """Kernels by op path, by block (the path less its repetition prefix) or by kind."""
    found: dict[str, list[OpTime]] = {}
    for op in ops:
        found.setdefault(_key(op, by), []).append(op)
    return found


def _key(op: OpTime, by: str) -> str:
    if by == "op":
        return op.path
    if by == "kind":
        return op.kind
    return op.path.rsplit(".", 1)[0]
