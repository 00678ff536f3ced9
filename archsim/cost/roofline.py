"""Time of a kernel against the roofline: the larger of arithmetic, memory and link time.

With the ideal efficiency nothing can be faster: every peak is the datasheet's, every tensor is moved once, no
launch costs anything (Williams et al., "Roofline", CACM 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from archsim.base.number import Num, maximum
from archsim.cost.count import op_flops
from archsim.cost.kernels import Kernel, Traffic
from archsim.graph.graph import Op

Bound = Literal["compute", "memory", "communication"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the roofline needs of a device, as plain rates.

    matrix_flops: dense peak of a compute dtype in FLOP/s. vector_flops: of the vector unit. bandwidth: HBM in
    B/s. cache_bytes: last-level cache. link: B/s per direction of one device into a group of n devices.
    reduces: whether the switch adds up an all-reduce over n devices.
    """

    matrix_flops: Callable[[str], float]
    vector_flops: float
    bandwidth: float
    cache_bytes: int
    link: Callable[[int], float]
    reduces: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Fractions of the peaks that kernels reach, and the fixed cost of one launch. Ideal: 1, 1, 1 and 0."""

    matrix: float = 1.0
    memory: float = 1.0
    link: float = 1.0
    launch_s: float = 0.0
    link_latency_s: float = 0.0


IDEAL = Efficiency()


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution of a kernel does. FLOP by unit, HBM bytes, and bytes one rank sends over its link."""

    matrix_flops: Num
    vector_flops: Num
    traffic: Traffic
    comm_bytes: Num
    compute: str
    group: int = 1

    @property
    def flops(self) -> Num:
        """All FLOP."""
        return self.matrix_flops + self.vector_flops


def work(kernel: Kernel, traffic: Traffic, machine: Machine) -> Work:
    """The kernel's arithmetic by unit, its traffic and its communication."""
    matrix: Num = 0
    vector: Num = 0
    comm: Num = 0
    group = 1
    for op in kernel.ops:
        if op.kind == "collective":
            group = op.attrs["group"]
            comm = comm + comm_bytes(op, machine.reduces(group))
        elif op.kind == "contract" and op.cls != "conv":
            matrix = matrix + op_flops(op)
        else:
            vector = vector + op_flops(op)
    return Work(matrix, vector, traffic, comm, compute_dtype(kernel), group)


def compute_dtype(kernel: Kernel) -> str:
    """The dtype that the kernel's contraction multiplies in: its weight's compute format, else the activations'."""
    fallback = "bf16"
    for op in kernel.ops:
        if op.kind == "contract":
            for use in op.reads:
                if use.tensor.kind == "weight":
                    return use.tensor.format.compute
            fallback = op.writes[0].tensor.format.compute
    return fallback


def comm_bytes(op: Op, reduced_in_switch: bool = False) -> Num:
    """Bytes that one rank must send for a collective over n ranks (Thakur et al., IJHPCA 2005).

    all-reduce 2(n-1)/n·S, or S where the switch adds; all-gather (n-1)·S of the rank's own part S;
    all-to-all (n-1)/n·S; point to point S.
    """
    from archsim.graph.tensor import nbytes

    n, size = op.attrs["group"], nbytes(op.reads[0])
    if op.fn == "all_reduce":
        return size if reduced_in_switch else size * 2 * (n - 1) / n
    if op.fn == "all_gather":
        return size * (n - 1)
    if op.fn == "all_to_all":
        return size * (n - 1) / n
    return size


def times(w: Work, machine: Machine) -> tuple[Num, Num, Num]:
    """Seconds of arithmetic, of memory and of communication for one execution, each at its peak."""
    compute: Num = 0
    if not _none(w.matrix_flops):
        compute = w.matrix_flops / machine.matrix_flops(w.compute)
    if not _none(w.vector_flops):
        compute = maximum(compute, w.vector_flops / machine.vector_flops)
    memory = w.traffic.total / machine.bandwidth
    return compute, memory, w.comm_bytes / machine.link(w.group) if w.group > 1 else 0


def _none(value: Num) -> bool:
    return isinstance(value, int) and value == 0


def seconds(compute: Num, memory: Num, comm: Num, e: Efficiency = IDEAL) -> Num:
    """Time of one execution: work overlaps inside a kernel, and kernels follow one another."""
    busy = maximum(compute / e.matrix, memory / e.memory) + e.launch_s
    return busy if _none(comm) else busy + comm / e.link + e.link_latency_s


def bound(compute: float, memory: float, comm: float) -> Bound:
    """Which of the three takes longest."""
    longest = max(compute, memory, comm)
    return "communication" if longest == comm and comm > 0 else "compute" if longest == compute else "memory"
