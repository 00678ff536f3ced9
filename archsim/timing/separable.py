"""What each kernel call of a step depends on: all tokens, all sequences, the decodes, or the chunks of prompts.

A step of continuous batching is `decodes` beside `chunks`. Nearly every call of its graph depends on one small part of
it: products with weights on the tokens, the output head on the sequences, attention of decodes on how many there are
and how long, attention of prompts on their chunks. So the time of any step is a sum of lookups in small tables, which
are made with arrays: nothing is fitted.

What a call depends on is read off its extents: they are compared among steps that agree in one quantity and differ in
all others. No rule names a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from archsim.base.number import Num, as_array
from archsim.graph.kernels import Kernel, Traffic, kernels_with_edges, traffics
from archsim.graph.step import Seqs, Step
from archsim.timing.duration import Duration, weakest
from archsim.timing.kernel_calls import FusedCall, lower_to_calls
from archsim.timing.roofline import work
from archsim.timing.step_pricer import StepPricer, launch_time
from archsim.timing.step_time import KernelCost, RankTime

Array = npt.NDArray[np.float64]

Part = Literal[
    "tokens", "sequences", "decodes", "cache", "chunk tokens", "chunk lengths", "chunks", "mix", "sums", "all"
]
"""What a call depends on. tokens: new ones of the whole step. sequences: all of them. decodes: how many there are.
cache: how many decodes, and their mean cached tokens. chunk tokens: new tokens of all chunks. chunk lengths: their new
and cached tokens. chunks: each chunk's new and cached tokens. mix: how many decodes and chunks, and the chunks' tokens.
sums: the arithmetic and the traffic of each sequence, of a kernel that its roofline times (scans in chunks). all:
everything, which is not separable.
"""

SAME = 1e-4
"""Relative difference below which two extents are equal: weights of attention itself (sinks) are shared by tokens."""

LOWER_BOUNDS = frozenset({"hbm_bytes", "flops"})
"""Extents that only bound a time from below."""


class Load(NamedTuple):
    """A step: `decodes` sequences after `cached` tokens each, and `chunks` prompts with `new` tokens after `past`."""

    decodes: Num
    cached: Num
    chunks: Num
    new: Num
    past: Num


class Unit(NamedTuple):
    """A kernel call: its launch's position among a step's launches, and its own in that launch."""

    launch: int
    call: int


class Works(NamedTuple):
    """What the kernels of a launch do. formats: those that each multiplies in. sums: FLOP in each of these,
    FLOP of convolutions and elementwise, bytes of weights and states, and seconds of links, of one kernel after the
    other. acts: bytes of activations of each kernel.
    """

    formats: tuple[tuple[str, ...], ...]
    sums: Array
    acts: Array


PROBES: tuple[tuple[Part, tuple[tuple[Load, Load], ...]], ...] = (
    ("tokens", (
        (Load(7, 1000, 1, 3000, 500), Load(57, 3000, 5, 590, 2000)),
        (Load(96, 300, 2, 20000, 0), Load(496, 9000, 30, 1320, 700)),
    )),
    ("sequences", (
        (Load(7, 1000, 1, 300, 500), Load(5, 2222, 3, 111, 77)),
        (Load(96, 300, 2, 2000, 0), Load(68, 9000, 30, 120, 700)),
    )),
    ("decodes", (
        (Load(7, 1000, 1, 300, 500), Load(7, 3333, 2, 77, 900)), (Load(96, 300, 2, 2000, 0), Load(96, 9000, 9, 90, 70)),
    )),
    ("cache", (
        (Load(7, 1000, 1, 300, 500), Load(7, 1000, 3, 450, 12)), (Load(96, 300, 2, 2000, 0), Load(96, 300, 9, 90, 70)),
    )),
    ("chunk tokens", (
        (Load(7, 1000, 1, 300, 500), Load(9, 800, 3, 100, 40)), (Load(96, 300, 2, 2000, 0), Load(6, 90, 50, 80, 70)),
    )),
    ("chunk lengths", (
        (Load(7, 1000, 1, 300, 500), Load(11, 90, 2, 250, 150)), (Load(96, 300, 2, 2000, 0), Load(6, 90, 4, 800, 200)),
    )),
    ("chunks", (
        (Load(7, 1000, 1, 300, 500), Load(31, 444, 1, 300, 500)), (Load(96, 300, 2, 2000, 0), Load(6, 90, 2, 2000, 0)),
    )),
    ("mix", (
        (Load(7, 1000, 1, 300, 500), Load(7, 444, 1, 300, 50)), (Load(96, 300, 2, 2000, 0), Load(96, 90, 2, 2000, 90)),
    )),
)  # fmt: skip
"""Pairs of steps that agree in one quantity and differ in all others (with one token a decode)."""


@dataclass(frozen=True)
class SeparableStep:
    """One plan's steps, in which each decode takes `new` tokens, taken apart. mixed: with chunks, else decodes alone.

    A step of a gang of data-parallel ranks has the same load on every rank.
    """

    pricer: StepPricer
    mixed: bool
    new: int = 1

    @cached_property
    def kernels_of_chunks(self) -> tuple[frozenset[Unit], ...]:
        """The calls that depend on chunks, those of equal extents together: layers of one kind have the same."""
        return self._calls[2]

    @cached_property
    def parts(self) -> Mapping[Part, frozenset[Unit]]:
        """The calls that depend on each part."""
        return self._calls[0]

    @cached_property
    def launches(self) -> Mapping[Part, float]:
        """How many kernels the host starts for the calls of each part."""
        return self._calls[1]

    def step(self, load: Load) -> Step:
        """The step of a load on every data-parallel rank."""
        ranks = self.pricer.plan.dp
        decodes = Seqs(load.decodes * ranks, self.new, load.cached, absorbed=True)
        chunks = (Seqs(load.chunks * ranks, load.new, load.past),) if self.mixed else ()
        return Step(seqs=(decodes, *chunks))

    def works(self, launch: int, load: Load, *more: Seqs) -> Works:
        """What the kernels of a launch do. more: sequences beside the load's."""
        step = self.step(load)
        kernels, moved, _, launches = self._kernels(replace(step, seqs=(*step.seqs, *more)))
        members = launches[launch].members
        done = [work(kernels[k], moved[k], self.pricer.timer.machine) for k in members]
        columns = [
            as_array(n) for w in done
            for n in (*(flops for _, flops in w.matrix), w.conv_flops, w.vector_flops,
                      w.traffic.weight + w.traffic.state, w.comm_s)
        ]  # fmt: skip
        acts = [as_array(w.traffic.act) for w in done]
        return Works(
            tuple(tuple(dtype for dtype, _ in w.matrix) for w in done),
            *(np.array(np.broadcast_arrays(*some), float) for some in (columns, acts)),
        )

    def of_sequence(self, launch: int, new: Num, past: Num, decodes: Num = 1, cached: Num = 1000) -> Array:
        """What a prompt of so many new tokens adds to the sums of `works`."""
        load = Load(decodes, cached, 1, 300, 500)
        one = Seqs(self.pricer.plan.dp, new, past)
        return np.asarray((self.works(launch, load, one).sums.T - self.works(launch, load).sums).T)

    def of_decode(self, launch: int, cached: Num) -> Array:
        """What a decode adds to them, beside a prompt."""
        one, many = (self.works(launch, Load(n, cached, 1, 300, 500)).sums for n in (7, 57))
        return np.asarray((many - one) / 50)

    def _is_sum(self, unit: Unit) -> bool:
        """Whether a kernel without a call does as much for each sequence whatever is beside it (from one position to
        another what a prompt from the beginning does more for the second one, and a constant), and reads and writes
        what other kernels do by the step's tokens.
        """
        i = unit.launch
        if not self.mixed or self.lowered(self.step(Load(7, 1000.0, 1, 300.0, 500.0)))[1][i].calls:
            return False
        at = {n: self.of_sequence(i, n, 0) for n in (90, 91, 500, 800, 1000, 1001, 9000, 9300)}
        near, far = (self.of_sequence(i, 300, past) for past in (500, 9000))
        one, other = (self.of_decode(i, cached) for cached in (90, 1000))
        pairs = [[self.works(i, load).acts for load in pair] for pair in dict(self._probes())["tokens"]]
        return (
            _alike(self.of_sequence(i, 300, 500, 57, 60), near) and all(_alike(*acts) for acts in pairs)
            and _alike(near - far, at[800] - at[500] - (at[9300] - at[9000]))
            and _alike(one - other, at[91] - at[90] - (at[1001] - at[1000]))
        )  # fmt: skip

    @cached_property
    def _calls(self) -> tuple[dict[Part, frozenset[Unit]], dict[Part, float], tuple[frozenset[Unit], ...]]:
        """Which calls depend on what, how many kernels each of those starts, and which of chunks are alike."""
        probes = self._probes()
        extents = self._extents([load for _, pairs in probes for pair in pairs for load in pair])
        units: dict[Part, set[Unit]] = {}
        launches: dict[Part, float] = {}
        for unit, (count, rows) in extents.items():
            part = self._depends(rows, probes)
            if part == "all" and self._is_sum(unit):
                part = "sums"
            units.setdefault(part, set()).add(unit)
            launches[part] = launches.get(part, 0) + count
        alike: dict[bytes, set[Unit]] = {}
        for unit in units.get("chunks", ()):
            alike.setdefault(np.round(extents[unit][1], 3).tobytes(), set()).add(unit)
        return (
            {part: frozenset(found) for part, found in units.items()},
            launches,
            tuple(map(frozenset, alike.values())),
        )

    def _probes(self) -> list[tuple[Part, list[tuple[Load, Load]]]]:
        """`PROBES`, also with equal tokens where decodes take several each."""
        more = self.new - 1
        found = [(part, list(pairs)) for part, pairs in PROBES]
        found[0] = ("tokens", [
            (a, b._replace(new=b.new + (a.decodes - b.decodes) * more / b.chunks)) for a, b in PROBES[0][1]
        ])  # fmt: skip
        return found

    @staticmethod
    def _depends(rows: Array, probes: Iterable[tuple[Part, list[tuple[Load, Load]]]]) -> Part:
        """The first quantity in which steps must agree to have equal extents. rows: extents, one row for each probe."""
        at = 0
        for part, pairs in probes:
            if all(_alike(rows[at + 2 * i], rows[at + 2 * i + 1]) for i in range(len(pairs))):
                return part
            at += 2 * len(pairs)
        return "all"

    def _extents(self, loads: list[Load]) -> dict[Unit, tuple[float, Array]]:
        """How often each call runs, and its extents in some steps, one row for each; of kernels without a call those of
        their roofline.
        """
        columns = Load(*(np.array(column, float) for column in zip(*loads, strict=True)))
        costs, launches = self.lowered(self.step(columns))
        found: dict[Unit, tuple[float, Array]] = {}
        for i, launch in enumerate(launches):
            values = [[n for name, n in call.dims.items() if name not in LOWER_BOUNDS] for call in launch.calls]
            if not values:
                values = [[n for k in launch.members for n in (costs[k].compute_s, costs[k].memory_s, costs[k].comm_s)]]
            for j, extents in enumerate(values):
                numbers = [np.broadcast_to(np.asarray(as_array(n), float), (len(loads),)) for n in extents]
                found[Unit(i, j)] = float(costs[launch.members[0]].count), np.stack(numbers, axis=1)
        return found

    def lowered(self, step: Step) -> tuple[list[KernelCost], list[FusedCall]]:
        """The kernels of a rank at the device's peaks, and its launches."""
        return self._kernels(step)[2:]

    def _kernels(self, step: Step) -> tuple[list[Kernel], list[Traffic], list[KernelCost], list[FusedCall]]:
        """The kernels of a rank, their traffic, both at the device's peaks, and the launches."""
        pricer = self.pricer
        graph, machine = pricer.graphs.rank(step, pricer.plan), pricer.timer.machine
        kernels, moved = [kernel for kernel, _ in kernels_with_edges(graph)], list(traffics(graph, machine.cache_bytes))
        costs = [KernelCost.of(kernel, each, machine) for kernel, each in zip(kernels, moved, strict=True)]
        with np.errstate(invalid="ignore", divide="ignore"):  # calls of no decodes, which nobody asks for
            return kernels, moved, costs, lower_to_calls(kernels, moved, pricer.call_rules(step))

    def times(self, load: Load, *parts: Part) -> dict[str, Duration]:
        """Seconds of all calls that depend on these parts, by class of kernels."""
        found = self.times_of(load, frozenset().union(*(self.parts.get(part, frozenset()) for part in parts)))
        gaps = self.pricer.timer.architecture
        if found and gaps is not None and gaps.gap_s:
            found["launch gaps"] = gaps.gaps(sum(self.launches.get(part, 0) for part in parts))
        return found

    def times_of(self, load: Load, wanted: frozenset[Unit]) -> dict[str, Duration]:
        """Seconds of some calls, by class of kernels."""
        found: dict[str, Duration] = {}
        if not wanted:
            return found
        costs, launches = self.lowered(self.step(load))
        for i in sorted({unit.launch for unit in wanted}):
            members = [costs[k] for k in launches[i].members]
            timed = launch_time(launches[i], members, self.pricer.timer.each(launches[i].calls))
            for j, ((kernel_class, _), count, time) in enumerate(timed.parts):
                if Unit(i, j) in wanted:
                    each = time.scaled(count)
                    found[kernel_class] = both(found[kernel_class], each) if kernel_class in found else each
        return found

    def calls(self, step: Step) -> int:
        """How many kinds of calls a step makes."""
        return sum(len(launch.calls) for launch in self.lowered(step)[1])

    def seconds_outside_graph(self, load: Load) -> dict[str, Duration]:
        """Seconds of what is not in the graph, by class: a pipeline's transfers, the engine's host."""
        time = self.pricer.with_kernels(self.step(load), RankTime())
        return {each.kernel_class: each.time for each in time.extra if each.kernel_class not in WHOLE}


WHOLE = ("launch gaps", "composition")
"""What follows from the whole of a step."""


def both(one: Duration, other: Duration) -> Duration:
    """One after another; of one class of kernels, so they err alike."""
    expected, low, high = (a + b for a, b in zip(one[:3], other[:3], strict=True))
    return Duration(expected, low, high, evidence=weakest((one.evidence, other.evidence)))


def _alike(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=SAME, atol=0))
