"""A training step by kernel, block or class of kernel: what of its time each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.training.costs import PASSES, PassName
from archsim.training.pass_times import PassKernel
from archsim.training.pricer import Priced, TrainingPricer
from archsim.training.rank import FIRST, LAST, RankGraphs
from archsim.training.schedules import directions, stage_homes
from archsim.training.stages import stage_layers

GROUPINGS = ("op", "block", "kind")
"""By what a step is taken apart: every kernel, what it belongs to in the model, or its class of kernels."""


class StepPart(NamedTuple):
    """Seconds of one group of kernels over a step, on the rank that works longest; communication before any of it is
    hidden.
    """

    name: str
    forward_s: float
    backward_s: float
    recompute_s: float
    ideal_s: float
    flops: float
    communication: bool

    @property
    def total_s(self) -> float:
        """All passes."""
        return self.forward_s + self.backward_s + self.recompute_s

    def to_dict(self) -> JsonObject:
        """A row of `parts`."""
        return self._asdict() | {"total_s": self.total_s}


def step_parts(pricer: TrainingPricer, priced: Priced, by: str) -> tuple[StepPart, ...]:
    """The kernels of a priced step in groups, the longest first.

    Kernels add up to forward, backward, recomputation, head and loss of the step; rows of communication to what runs in
    these passes, of which a part is hidden. Raises UsageError for an unknown grouping.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot group by {by!r}", hints=(f"--by {' | '.join(GROUPINGS)}",))
    rank, micro = pricer.rank(priced.choice)[0], priced.micro
    runs = _runs_on_the_busiest(rank, priced)
    groups: dict[tuple[bool, str], dict[PassName, list[PassKernel]]] = {}
    for name in PASSES:
        for kernel in micro.kernels[name]:
            group = (kernel.comm is not None, _group(kernel, rank, by))
            groups.setdefault(group, {one: [] for one in PASSES})[name].append(kernel)
    found = [_part(name, comm, kernels, rank, runs) for (comm, name), kernels in groups.items()]
    return tuple(sorted((part for part in found if part.total_s), key=lambda part: -part.total_s))


def _runs_on_the_busiest(rank: RankGraphs, priced: Priced) -> Mapping[str, float]:
    """How often the rank that works longest runs each piece of the model in a step, for each time that a micro-batch
    does.
    """
    layout = priced.choice.layout
    stages = stage_layers(rank.order, layout.stages)
    home, busiest = stage_homes(layout.schedule, layout.pp, layout.vpp), priced.step.run.busiest
    own = [stages[s % len(stages)] for s, at in enumerate(home) if at == busiest]
    share = layout.micro_batches / directions(layout.schedule)
    times = dict.fromkeys((*rank.order, FIRST, LAST), 0.0)
    for stage in own:
        for name, n in stage.pieces.items():
            times[name] += n * share / max(rank.order.count(name), 1)
    return times


def _group(kernel: PassKernel, rank: RankGraphs, by: str) -> str:
    if by == "kind":
        return kernel.kernel_class
    if by == "block":
        home = rank.layer_of(kernel.name)
        inside = kernel.name.removeprefix(f"{home}.").split(".")
        return home if home in (FIRST, LAST) else ".".join([home, inside[0]])
    return kernel.name


def _part(
    name: str, comm: bool, kernels: Mapping[PassName, Sequence[PassKernel]], rank: RankGraphs, runs: Mapping[str, float]
) -> StepPart:
    def total(of: PassName, value: Callable[[PassKernel], float]) -> float:
        return sum(value(kernel) * runs[rank.layer_of(kernel.name)] for kernel in kernels[of])

    forward, backward, recompute = (total(one, lambda kernel: kernel.seconds) for one in PASSES)
    ideal = sum(total(one, lambda kernel: kernel.ideal_s) for one in PASSES)
    flops = sum(total(one, lambda kernel: kernel.flops) for one in PASSES)
    return StepPart(name, forward, backward, recompute, ideal, flops, comm)
