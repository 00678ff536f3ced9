"""Seconds of one micro-batch on one rank, layer by layer, with its communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from archsim.spec.stack import StackFactors
from archsim.timing.classes.call import KernelCall
from archsim.timing.duration import EVIDENCE, Duration, Evidence, prevailing_evidence
from archsim.training.pass_times import NOTHING, CommKind, PassKernel, PassRules, forward_pass, pass_kernels
from archsim.training.processor_passes import processor_passes
from archsim.training.rank import FIRST, LAST, RankGraphs

PassName = Literal["forward", "backward", "recompute"]
PASSES: tuple[PassName, ...] = ("forward", "backward", "recompute")


class Comm(NamedTuple):
    """Communication of one kind: seconds in all, those that nothing hides, and bytes that one rank sends."""

    total_s: float = 0.0
    exposed_s: float = 0.0
    sent: float = 0.0

    def plus(self, other: Comm, times: float = 1.0) -> Comm:
        """Both, the other so many times."""
        return Comm(*(a + b * times for a, b in zip(self, other, strict=True)))


class PieceTime(NamedTuple):
    """Seconds of one layer, or of one end of the model, for one micro-batch. weights_s: the part of the backward that
    gives gradients of weights. comm: by kind, those that run in the forward and in the backward apart.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    recompute_s: float = 0.0
    weights_s: float = 0.0
    ideal_s: float = 0.0
    forward_comm: Mapping[CommKind, Comm] = {}
    backward_comm: Mapping[CommKind, Comm] = {}

    @property
    def forward_total_s(self) -> float:
        """With the communication that nothing hides."""
        return self.forward_s + sum(comm.exposed_s for comm in self.forward_comm.values())

    @property
    def backward_total_s(self) -> float:
        """With what is recomputed, and the communication that nothing hides."""
        return self.backward_s + self.recompute_s + sum(comm.exposed_s for comm in self.backward_comm.values())


class MicroBatch(NamedTuple):
    """One micro-batch: pieces by layer name and by end, what the times rest on, and the kernels of each pass, all
    repetitions of a layer together.
    """

    pieces: Mapping[str, PieceTime]
    evidence: Evidence
    kernels: Mapping[PassName, Sequence[PassKernel]]


def micro_batch_times(rank: RankGraphs, rules: PassRules) -> MicroBatch:
    """Forward, backward and recomputation of every piece; collectives exposed as the stack overlaps them."""
    if rules.form:
        forward, backward = processor_passes(rank.forward, rules)
        again, _ = processor_passes(rank.recompute, rules)
    else:
        forward, times = forward_pass(rank.forward, rules)
        backward = pass_kernels(rank.backward, rules, times)
        again = pass_kernels(rank.recompute, rules, NOTHING)
    runs = {name: rank.order.count(name) for name in set(rank.order)}
    sums = {home: _Sums() for home in (*runs, FIRST, LAST)}
    kernels: dict[PassName, Sequence[PassKernel]] = {"forward": forward, "backward": backward, "recompute": again}
    for part in PASSES:
        for kernel in kernels[part]:
            home = rank.layer_of(kernel.name)
            sums[home].add(kernel, part, runs.get(home, 1), rules.factors)
    parts = [Duration(k.seconds, 0, 0, evidence=k.evidence) for k in (*forward, *backward, *again)]
    evidence = EVIDENCE[int(prevailing_evidence(parts))]
    return MicroBatch({home: each.piece() for home, each in sums.items()}, evidence, kernels)


class _Sums:
    """Adds the kernels of one piece up."""

    def __init__(self) -> None:
        self.seconds: dict[PassName, float] = dict.fromkeys(PASSES, 0.0)
        self.weights_s = self.ideal_s = 0.0
        self.comm: dict[str, dict[CommKind, Comm]] = {"forward": {}, "backward": {}}

    def add(self, kernel: PassKernel, part: PassName, runs: int, factors: StackFactors) -> None:
        """One kernel of a pass, of which all repetitions of the piece together run `runs` times as many."""
        seconds = kernel.seconds / runs
        self.ideal_s += kernel.ideal_s / runs
        if kernel.comm:
            comm = self.comm["forward" if part == "forward" else "backward"]
            own = Comm(seconds, seconds * factors.exposed[kernel.comm], kernel.sent / runs)
            comm[kernel.comm] = comm.get(kernel.comm, Comm()).plus(own)
            return
        self.seconds[part] += seconds
        if kernel.weights:
            self.weights_s += seconds

    def piece(self) -> PieceTime:
        """What was added up."""
        return PieceTime(
            self.seconds["forward"], self.seconds["backward"], self.seconds["recompute"], self.weights_s, self.ideal_s,
            self.comm["forward"], self.comm["backward"],
        )  # fmt: skip


def group_call(kernel_class: str, ranks: int, stride: int, whole_bytes: float) -> KernelCall:
    """A collective over `ranks` devices that stand `stride` apart. whole_bytes: as kernel tables state them."""
    return KernelCall(kernel_class, dims={"n_gpus": ranks, "bytes": whole_bytes, "stride": stride})
