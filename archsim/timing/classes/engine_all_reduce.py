"""The all-reduce kernels that serving engines use in place of NCCL's for small messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, minimum
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.collective import CHAIN, AllReduce, Hops, by_group, efficiency
from archsim.timing.classes.model import Constant
from archsim.timing.roofline import Hop, Machine

SHARP = 6
"""How sharply an engine's kernel gives way above its largest message; any large power will do."""

HOST = 4
"""Exponent of the p-norm of the host's time and the GPU's: the longer of the two, nearly."""


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

    def formula(self, call: KernelCall, machine: Machine, constants: Mapping[str, float]) -> Num:
        """The faster kernel, never less than the host needs to launch it."""
        adds = self.adds(call)

        def rule(size: Num, hops: Hops) -> Num:
            time = self.best(size, hops, constants, adds)
            if direct_reads(hops):
                time = minimum(time, direct(size, hops[0], constants))
            return (time**HOST + (constants["host_us"] * 1e-6 * bool(hops)) ** HOST) ** (1 / HOST)

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
    beyond = 1 + (size / (constants["cap_mib"] * 2**20)) ** SHARP
    return (wait * 1e-6 + minimum(once, twice)) * beyond
