"""Time of a kernel against the roofline: the larger of arithmetic, memory and link time.

With the ideal efficiency nothing can be faster: every peak is the datasheet's, every tensor is moved once, no
launch costs anything (Williams et al., "Roofline", CACM 2009).
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

from archsim.base.number import Num, absent, maximum, where
from archsim.counts.graph_counts import op_flops
from archsim.graph.collectives import COLLECTIVES, NARROWEST, Level, exchanged_at_least
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, Traffic, weight_of
from archsim.graph.tensor import nbytes, numel
from archsim.timing.device import DeviceRates, Hop

Bound = Literal["compute", "memory", "communication"]

BOUNDS: tuple[Bound, ...] = ("compute", "memory", "communication")
"""What a kernel can be limited by."""


class Efficiency(NamedTuple):
    """Fractions of the peaks that kernels reach, and the fixed cost of one launch. Ideal: 1, 1, 1 and 0."""

    matrix: float = 1.0
    memory: float = 1.0
    link: float = 1.0
    launch_s: float = 0.0
    link_latency_s: float = 0.0


IDEAL = Efficiency()

DATASHEET = Efficiency(matrix=0.80, memory=0.85, link=0.75, launch_s=3e-6, link_latency_s=8e-6)
"""Of a device that nothing has been fitted on: CUDA-graph launches, NCCL-like latency, and the usual planning values.
Sustained products reach 0.73 to 0.87 of the dense peak on data-centre GPUs of 2020 to 2025, copies 0.83 to 0.90 of
the listed bandwidth, large collectives 0.69 to 0.81 of the link (public measurements; see docs/concepts.md).
"""


class Work(NamedTuple):
    """What one execution of a kernel does.

    matrix: FLOP of contractions on the matrix units, by the dtype that they multiply in. conv_flops: of the depthwise
    ones that the vector unit runs. vector_flops: elementwise. comm_bytes: what one rank sends; comm_s: that at the
    links' rates.
    """

    matrix: tuple[tuple[str, Num], ...] = ()
    conv_flops: Num = 0
    vector_flops: Num = 0
    traffic: Traffic = Traffic()
    comm_bytes: Num = 0
    comm_s: Num = 0

    @property
    def flops(self) -> Num:
        """FLOP of contractions, as `count` states them; elementwise work is counted separately."""
        return sum([flops for _, flops in self.matrix]) + self.conv_flops


def work(kernel: Kernel, traffic: Traffic, machine: DeviceRates) -> Work:
    """The kernel's arithmetic by unit, its traffic and its communication."""
    matrix: dict[str, Num] = {}
    conv: Num = 0
    vector: Num = 0
    comm: tuple[Num, Num] = (0, 0)
    for op in kernel.ops:
        if op.kind == "collective":
            comm = communication(op, machine)
        elif op.kind != "contract":
            vector = vector + op_flops(op)
        elif op.cls == "conv":
            conv = conv + op_flops(op)
        else:
            dtype = compute_dtype(op)
            matrix[dtype] = matrix.get(dtype, 0) + op_flops(op)
    return Work(tuple(matrix.items()), conv, vector, traffic, *comm)


def compute_dtype(op: Op) -> str:
    """The dtype that a contraction multiplies in: its weight's compute format, else its result's."""
    read = weight_of(op) or op.writes[0]
    return read.tensor.format.compute


def communication(op: Op, machine: DeviceRates) -> tuple[Num, Num]:
    """Bytes that one rank sends in a collective, and the least seconds it takes: levels work at the same time."""
    n, stride = op.attrs["group"], op.attrs.get("stride", 1)
    hops = machine.hops(n, stride)
    if "picks" in op.attrs:
        picks = op.attrs["picks"]
        tokens = numel(op.reads[0]) / picks * exchanged_bytes(op)
        return exchanged_at_least(tokens, picks, [(hop.ranks, hop.rate) for hop in hops])
    size = nbytes(op.reads[0])
    sent = [sent_bytes(op.fn, size, hops, level) for level in range(len(hops))]
    slowest: Num = 0
    for amount, hop in zip(sent, hops, strict=True):
        slowest = maximum(slowest, amount / hop.rate)
    return sum(sent), slowest


def exchanged_bytes(op: Op) -> float:
    """Bytes of one element at the least where tokens go to their experts, which may take them in 4 bits, or results
    come back.
    """
    own = op.reads[0].tensor.format.bits / 8
    return min(own, NARROWEST) if op.attrs["exchange"] == "dispatch" else own


def sent_bytes(fn: str, size: Num, hops: tuple[Hop, ...], level: int) -> Num:
    """Bytes that one rank sends over one level of the fabric in a collective of buffers of `size` bytes.

    Raises KeyError for a collective that `graph.collectives` does not know.
    """
    sent = COLLECTIVES[fn].sent
    if hops[level].ranks == 1:
        return 0
    inside, outside = prod(hop.ranks for hop in hops[:level]), prod(hop.ranks for hop in hops[level + 1 :])
    return sent(size, Level(hops[level].ranks, inside, outside, hops[level].reduces, level == len(hops) - 1))


def times(w: Work, machine: DeviceRates) -> tuple[Num, Num, Num]:
    """Seconds of arithmetic, of memory and of communication for one execution, each at its peak.

    Matrix and vector units work side by side; where products run on the vector unit, they queue there.
    """
    matrix: Num = 0
    vector = (w.vector_flops + w.conv_flops) / machine.vector_flops
    for dtype, flops in w.matrix:
        if _none(flops):
            continue
        if machine.separate(dtype):
            matrix = matrix + flops / machine.matrix_flops(dtype)
        else:
            vector = vector + flops / machine.matrix_flops(dtype)
    compute = vector if _none(matrix) else maximum(matrix, vector)
    return compute, w.traffic.total / machine.bandwidth, w.comm_s


def _none(value: Num) -> bool:
    return isinstance(value, int) and value == 0


def seconds(compute: Num, memory: Num, comm: Num, e: Efficiency = IDEAL) -> Num:
    """Time of one execution: work overlaps inside a kernel, and kernels follow one another."""
    if e is IDEAL:
        busy = maximum(compute, memory)
        return busy if _none(comm) else busy + comm
    busy = maximum(compute / e.matrix, memory / e.memory) + e.launch_s
    return busy if _none(comm) else busy + comm / e.link + e.link_latency_s


def limit(compute: Num, memory: Num, comm: Num) -> Num:
    """Position in `BOUNDS` of which of the three takes longest; of equals communication, then compute."""
    longest = where(memory > compute, 1, 0)
    if absent(comm):
        return longest
    return where((comm > 0) & (comm >= maximum(compute, memory)), 2, longest)
