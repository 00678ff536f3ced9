"""One forward pass priced kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from archsim.base.number import Num
from archsim.cost.efficiency import DATASHEET, UNFITTED
from archsim.cost.kernels import Kernel, launches, traffic
from archsim.cost.roofline import Bound, Machine, Work, bound, seconds, times, work
from archsim.graph.graph import Block
from archsim.graph.tensor import Use


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Prefill (the whole batch's prompts) or decode (one step at the mean context).

    stages: of the pipeline. pieces: parts that a prefill is cut into, which the stages work on at the same time;
    0 where they work one after another.
    """

    name: str
    ops: tuple[OpTime, ...]
    stages: int = 1
    pieces: int = 0

    def total(self, field: str) -> Num:
        """Sum of a field over all kernels."""
        return sum(getattr(op, field) for op in self.ops)

    @property
    def ideal_s(self) -> Num:
        """Speed of light: kernels one after another, each at its roofline; stages of a prefill never idle."""
        return self.total("ideal_s") / (self.stages if self.pieces else 1)

    @property
    def expected_s(self) -> Num:
        """With the efficiencies of the evidence at hand; a pipeline fills and drains once."""
        busy = (self.pieces + self.stages - 1) / (self.pieces * self.stages) if self.pieces else 1
        return self.total("expected_s") * busy

    @property
    def low_s(self) -> Num:
        """Lower end of the 80 % interval, never below the speed of light."""
        return max(self.ideal_s, self.expected_s * UNFITTED.low)

    @property
    def high_s(self) -> Num:
        """Upper end of the 80 % interval."""
        return self.expected_s * UNFITTED.high

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
            "evidence": "datasheet",
        }  # fmt: skip


def price(
    name: str, graph: Block, machine: Machine, stages: int = 1, hop: OpTime | None = None, pieces: int = 0
) -> Phase:
    """Every kernel of one rank's graph, timed. hop: what handing over to the next pipeline stage costs."""
    ops = [_timed(kernel, crossing, machine) for kernel, crossing in launches(graph)]
    ops = [op for op in ops if op.ideal_s or op.flops or op.comm_bytes]
    return Phase(name=name, ops=(*ops, *([hop] if hop else [])), stages=stages, pieces=pieces)


def _timed(kernel: Kernel, crossing: list[Use], machine: Machine) -> OpTime:
    w = work(kernel, traffic(crossing, machine.cache_bytes), machine)
    return op_time(kernel.name, kind_of(kernel), kernel.times, w, machine)


def op_time(path: str, kind: str, count: Num, w: Work, machine: Machine) -> OpTime:
    """All `count` executions of one kernel."""
    compute, memory, comm = times(w, machine)
    expected = seconds(compute, memory, comm, DATASHEET) if compute or memory or comm else 0.0
    moved = w.traffic
    return OpTime(
        path=path, kind=kind, count=count, flops=w.flops * count, weight_bytes=moved.weight * count,
        state_bytes=moved.state * count, act_bytes=moved.act * count, comm_bytes=w.comm_bytes * count,
        ideal_s=seconds(compute, memory, comm) * count, expected_s=expected * count,
        compute_s=compute * count, memory_s=memory * count, comm_s=comm * count,
    )  # fmt: skip


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
