"""Collectives between devices: NCCL's, and the all-reduce kernels that serving engines bring along.

`bytes` is the buffer that NCCL's tests quote: of an all-gather what every rank holds after it, of a reduce-scatter
what every rank holds before it, else the one buffer that each rank passes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from archsim.base.number import Num, log2, maximum, minimum, product, where
from archsim.graph.kernels import Traffic
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant, KernelModel
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates, Hop
from archsim.timing.roofline import Work, sent_bytes

Hops = tuple[Hop, ...]

CHAIN = 8
"""Ranks up to which latency grows by a step a rank; beyond, trees take over and it grows with the logarithm."""

LN2 = 0.6931

MOVED = "fp16"
"""Name of the number format that fits of collectives without arithmetic go by."""

SWITCHED = frozenset({"bf16", "fp16", "fp32"})
"""What NVLink switches add up: an int8 all-reduce on 8 H100 shows the bandwidth of a ring."""

LEVELS = 2.0
"""How far levels of the fabric overlap, as the exponent of a p-norm: 4 x 8 B200 need 22 ms for 4 GiB, where the
levels one after another would take 26 ms and side by side 16 ms."""


CAP_SHARP = 6
"""How sharply an engine's kernel gives way above its largest message; any large power will do."""

HOST_NORM = 4
"""Exponent of the p-norm of the host's time and the GPU's: the longer of the two, nearly."""


class Collective(KernelModel):
    """t = base + steps·step + Σ_p levels of (wire + 2·√(fill·wire)), wire = sent bytes / (efficiency · link rate).

    The square root is what a message split into the best number of chunks waits for its pipeline to fill. Ring
    efficiency on links grows with the group, e(g) = link·(1 - pair/g); two ranks under one PCIe tree reach `host` of
    it, more share what crosses it, host·cross·further^log2(g/4).

    Usual constants: links as fits of H100, 2 to 8 ranks; PCIe as published nccl-tests curves of RTX PRO 6000, 0.62,
    0.42 and 0.42 of the rate on 2, 4 and 8 ranks; network as 4 x 8 B200 over 50 GB/s a device, 5.7 ms for 1 GiB.
    """

    fn: ClassVar[str]
    dims: ClassVar[tuple[str, ...]] = ("n_gpus", "bytes")
    optional: ClassVar[Mapping[str, float]] = {"stride": 1}
    families: ClassVar[tuple[str, ...]] = ("bytes",)
    rising: ClassVar[str] = "bytes"
    few: ClassVar[int] = 24
    growths: ClassVar[tuple[Axis, ...]] = (Axis("bytes", 0, 1, 33),)
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("bytes", 8, 1, 23), Axis("span", 1, 1, 4)),)
    options: ClassVar[Mapping[str, Any]] = {"free": ("span",)}
    constants: ClassVar[Mapping[str, Constant]] = {
        "base_us": Constant(4.0, 0.5, 40.0),
        "step_us": Constant(0.9, 0.02, 10.0),
        "fill_us": Constant(3.5, 0.01, 100.0),
        "link": Constant(0.80, 0.05, 1.0),
        "pair": Constant(0.45, 0.05, 1.0),
        "host": Constant(0.60, 0.05, 1.0),
        "cross": Constant(0.70, 0.05, 1.0),
        "further": Constant(0.90, 0.1, 1.0),
        "network": Constant(0.85, 0.1, 1.0),
        "network_step_us": Constant(10.0, 1.0, 50.0),
        "network_fill_us": Constant(14.0, 1.0, 200.0),
    }

    def local(self, call: KernelCall, machine: DeviceRates) -> bool:
        """Over a PCIe tree the host decides: one without peer access reaches a tenth of another."""
        return any(hop.medium == "host" for n, stride in groups(call) if n > 1 for hop in machine.hops(n, stride))

    def minimum_work(self, call: KernelCall, machine: DeviceRates) -> Work:
        """What one rank must send over each level, at the same time, and a graph's buffers beyond the cache."""

        def slowest(size: Num, hops: Hops) -> Num:
            longest: Num = size * 0.0
            for level, hop in enumerate(hops):
                longest = maximum(longest, self.sent(size, hops, level) / hop.rate)
            return longest

        def sent(size: Num, hops: Hops) -> Num:
            return sum([self.sent(size, hops, level) for level in range(len(hops))], size * 0.0)

        moved = Traffic(act=call.dims.get("hbm_bytes", 0))
        return Work(traffic=moved, comm_bytes=by_group(call, machine, sent), comm_s=by_group(call, machine, slowest))

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds over the levels that the group spans."""
        return by_group(call, machine, lambda size, hops: self.over(size, hops, constants))

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of the payload and of the devices from first to last: what was measured on 2 to 8 neighbours is not
        carried over to 16 devices and more.
        """
        span = call.dims["n_gpus"] * call.dims.get("stride", 1)
        return {"bytes": log2(maximum(call.dims["bytes"], 1)), "span": log2(maximum(span, 1))}

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """Groups of neighbours; pairs where a grid does not say."""
        ranks = 2 ** at.get("span", 1 + 0 * at["bytes"])
        return like._replace(dims={"n_gpus": ranks, "bytes": 2 ** at["bytes"]})

    def sent(self, size: Num, hops: Hops, level: int) -> Num:
        """Bytes that one rank sends over a level; `size` as tables quote it."""
        return sent_bytes(self.fn, size, hops, level)

    def steps(self, hop: Hop) -> Num:
        """Messages that follow one another in a group that one level joins."""
        return chain(hop)

    def over(self, size: Num, hops: Hops, constants: Mapping[str, float]) -> Num:
        """Seconds for one group; none for a group of one."""
        if not hops:
            return size * 0.0
        total, wait = 0.0, constants["base_us"]
        for level, hop in enumerate(hops):
            step, fill = waits(hop, constants)
            wait += self.steps(hop) * step
            joined = product(inner.ranks for inner in hops[: level + 1])
            wire = self.sent(size, hops, level) / (hop.rate * efficiency(hop, constants, joined))
            total = total + (wire + 2 * (fill * 1e-6 * wire) ** 0.5) ** LEVELS
        return wait * 1e-6 + total ** (1 / LEVELS)


def chain(hop: Hop) -> Num:
    """Steps from the first rank to the last: a tree over a network, a ring inside a server up to `CHAIN` ranks; from
    there on the ring's slope, but over the logarithm.
    """
    if hop.medium == "network":
        return log2(hop.ranks)
    if hop.ranks <= CHAIN:
        return hop.ranks - 1
    return CHAIN - 1 + CHAIN * LN2 * log2(hop.ranks / CHAIN)


def waits(hop: Hop, constants: Mapping[str, float]) -> tuple[float, float]:
    """Microseconds from one rank to the next, and the wait of one chunk."""
    if hop.medium == "network":
        return constants["network_step_us"], constants["network_fill_us"]
    return constants["step_us"], constants["fill_us"]


def efficiency(hop: Hop, constants: Mapping[str, float], joined: int) -> float:
    """Part of a level's rate that a large message reaches. joined: ranks on this level and below it."""
    if hop.medium == "network":
        return constants["network"]
    if hop.medium == "host":
        more = constants["cross"] * constants["further"] ** log2(joined / 4) if joined > 2 else 1.0
        return constants["host"] * more
    return constants["link"] * (1 - constants["pair"] / hop.ranks)


def plain(hops: Hops) -> Hops:
    """The same levels without reduction in their switches."""
    return tuple(hop._replace(reduces=False) for hop in hops)


def by_group(call: KernelCall, machine: DeviceRates, rule: Callable[[Num, Hops], Num]) -> Num:
    """A rule over payloads and levels, applied to each kind of group among the calls."""
    size, found = call.dims["bytes"], None
    for ranks, stride in groups(call):
        value = rule(size, machine.hops(ranks, stride) if ranks > 1 else ())
        chosen = (call.dims["n_gpus"] == ranks) & (call.dims.get("stride", 1) == stride)
        found = value if found is None else where(chosen, value, found)
    return found


def groups(call: KernelCall) -> Iterator[tuple[int, int]]:
    """Every pair of group size and stride among the calls."""
    ranks, stride = call.dims["n_gpus"], call.dims.get("stride", 1)
    if isinstance(ranks, (int, float)) and isinstance(stride, (int, float)):
        yield int(ranks), int(stride)
        return
    pairs = (ranks + 0 * stride, stride + 0 * ranks)
    yield from sorted({(int(n), int(s)) for n, s in zip(*(part.ravel().tolist() for part in pairs), strict=True)})


class AllReduce(Collective):
    """Sum over all ranks: a ring, or the switch where it adds and that is faster."""

    kernel_class: ClassVar[str] = "nccl_all_reduce"
    fn: ClassVar[str] = "all_reduce"
    constants: ClassVar[Mapping[str, Constant]] = {
        **Collective.constants,
        "switch": Constant(0.57, 0.3, 1.0),
        "switch_us": Constant(20.0, 1.0, 60.0),
    }

    def steps(self, hop: Hop) -> Num:
        """Once around to reduce, once more to gather."""
        return 2 * chain(hop)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The faster of ring and switch."""
        adds = self.adds(call)
        return by_group(call, machine, lambda size, hops: self.best(size, hops, constants, adds))

    def adds(self, call: KernelCall) -> bool:
        """Whether a switch that adds can add this number format."""
        return call.dtype in SWITCHED

    def best(self, size: Num, hops: Hops, constants: Mapping[str, float], adds: bool) -> Num:
        """NCCL's choice for one group."""
        ring = self.over(size, plain(hops), constants)
        if not (adds and hops and hops[0].reduces):
            return ring
        return minimum(ring, self.switched(size, hops, constants))

    def switched(self, size: Num, hops: Hops, constants: Mapping[str, float]) -> Num:
        """Reduction in the switch of the innermost level, a ring over the levels beyond."""
        inner = (constants["base_us"] + constants["switch_us"]) * 1e-6
        inner = inner + self.sent(size, hops, 0) / (hops[0].rate * constants["switch"])
        if len(hops) == 1:
            return inner
        outer = self.over(size / hops[0].ranks, plain(hops[1:]), constants)
        return (inner**LEVELS + outer**LEVELS) ** (1 / LEVELS)


class ReduceScatter(Collective):
    """Sums of which every rank keeps a part: the bytes of an all-gather, in the other direction."""

    kernel_class: ClassVar[str] = "nccl_reduce_scatter"
    fn: ClassVar[str] = "reduce_scatter"


class AllGather(Collective):
    """Every rank's part to all ranks."""

    kernel_class: ClassVar[str] = "nccl_all_gather"
    fn: ClassVar[str] = "all_gather"

    def sent(self, size: Num, hops: Hops, level: int) -> Num:
        """`size` is the whole; all-gathers are counted by the part that a rank brings."""
        return sent_bytes(self.fn, size / product(hop.ranks for hop in hops), hops, level)

    def prepare(self, call: KernelCall) -> KernelCall:
        """Bytes are moved, whatever they mean."""
        return call._replace(dtype=MOVED)


class AllToAll(Collective):
    """A part from every rank to every other, all at once."""

    kernel_class: ClassVar[str] = "nccl_alltoall"
    fn: ClassVar[str] = "all_to_all"

    def prepare(self, call: KernelCall) -> KernelCall:
        """Bytes are moved, whatever they mean."""
        return call._replace(dtype=MOVED)

    def steps(self, hop: Hop) -> Num:
        """Measured latencies of 2, 4 and 8 ranks rise evenly."""
        return log2(hop.ranks)


class SendRecv(Collective):
    """One rank to one other, as between pipeline stages."""

    kernel_class: ClassVar[str] = "nccl_send_recv"
    fn: ClassVar[str] = "send"
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("bytes", 8, 1, 23),),)

    def steps(self, hop: Hop) -> Num:
        """One message."""
        return 1


class EngineAllReduce(AllReduce):
    """One-shot or two-shot over peer memory up to `cap_mib`, NCCL beyond; the faster of those that can run.

    One-shot, every rank reads all peers: direct_us + (g-1)·hand_us + (g-1)·S/(direct·rate). Two-shot, each reduces
    its share and then reads the others': second_us more, 2(g-1)/g·S. Without links between more than two ranks
    there is no peer memory to read, and the engines fall back to NCCL. host_us: what one call costs the host, which
    hides the GPU's time unless a CUDA graph is replayed.
    """

    kernel_class: ClassVar[str] = "engine_all_reduce"
    constants: ClassVar[Mapping[str, Constant]] = {
        **AllReduce.constants,
        "direct_us": Constant(2.6, 0.5, 40.0),
        "hand_us": Constant(0.2, 0.01, 10.0),
        "second_us": Constant(2.0, 0.1, 20.0),
        "direct": Constant(0.70, 0.1, 1.0),
        "cap_mib": Constant(12.0, 0.25, 64.0),
        "host_us": Constant(1.0, 0.1, 200.0),
    }

    def variant(self, kernel: str) -> str:
        """Calls launched one by one, or replayed in a CUDA graph, which is what an unnamed kernel is taken for."""
        return "eager" if kernel.endswith("eager") else "graph"

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The faster kernel, never less than the host needs to launch it."""
        adds = self.adds(call)

        def rule(size: Num, hops: Hops) -> Num:
            time = self.best(size, hops, constants, adds)
            if direct_reads(hops):
                time = minimum(time, direct(size, hops[0], constants))
            return (time**HOST_NORM + (constants["host_us"] * 1e-6 * bool(hops)) ** HOST_NORM) ** (1 / HOST_NORM)

        return by_group(call, machine, rule)


def direct_reads(hops: Hops) -> bool:
    """Whether ranks read each other's memory: one level of links, or two ranks under one PCIe tree."""
    most = {"link": CHAIN, "host": 2, "network": 0}
    return len(hops) == 1 and hops[0].ranks <= most[hops[0].medium]


def direct(size: Num, hop: Hop, constants: Mapping[str, float]) -> Num:
    """Seconds of the better of one-shot and two-shot, out of reach above the cap."""
    ranks = hop.ranks
    rate = hop.rate * (constants["direct"] if hop.medium == "link" else efficiency(hop, constants, ranks))
    wait = constants["direct_us"] + (ranks - 1) * constants["hand_us"]
    once = (ranks - 1) * size / rate
    twice = constants["second_us"] * 1e-6 + 2 * (ranks - 1) / ranks * size / rate
    beyond = 1 + (size / (constants["cap_mib"] * 2**20)) ** CAP_SHARP
    return (wait * 1e-6 + minimum(once, twice)) * beyond
