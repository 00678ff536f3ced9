"""Plays a pipeline schedule: when every pass starts and ends, how long ranks wait, and what is alive meanwhile.

Times are whole picoseconds. In the steady phase every rank runs the same passes again and again. Once all of them end
later than some blocks ago by one and the same time, they always will (the times follow from one another by sums and
maxima alone), so the blocks in between need not be played.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import sub
from typing import NamedTuple

from archsim.training.schedules import (
    BACKWARD,
    FORWARD,
    INPUTS,
    KINDS,
    WEIGHTS,
    Order,
    Pass,
    PipelineShape,
    Schedule,
    Slot,
    directions,
    schedule_of,
    stage_homes,
)
from archsim.training.stage_times import PICOSECONDS, Rows, StageTimes, pass_times

MANY = 8_000
"""Passes of all ranks from which arrays are faster than one pass after another."""


class Run(NamedTuple):
    """A schedule played to its end. total: picoseconds. busy: of every rank."""

    total: int
    busy: tuple[int, ...]

    @property
    def total_s(self) -> float:
        """Seconds from the first forward to the last backward."""
        return self.total / PICOSECONDS

    def bubble_s(self, rank: int) -> float:
        """Seconds that a rank waits."""
        return (self.total - self.busy[rank]) / PICOSECONDS

    @property
    def busiest(self) -> int:
        """The rank that works longest."""
        return max(range(len(self.busy)), key=self.busy.__getitem__)


class TimedPass(NamedTuple):
    """One pass of a played schedule, in picoseconds."""

    rank: int
    kind: Pass
    stage: int
    micro_batch: int
    start: int
    end: int


PASSES: tuple[Pass, ...] = ("F", "B", "I", "W")
"""By number."""


def play(name: str, ranks: int, micro_batches: int, stages: Sequence[StageTimes], send: int = 0, vpp: int = 1) -> Run:
    """A schedule of `SCHEDULES` with the times of its stages, in order along a micro-batch's path.

    send: picoseconds from a stage to the next on another rank. Raises InvalidPlan for numbers that it cannot run.
    """
    times, whole = list(stages) * directions(name), PipelineShape(name, ranks, micro_batches, vpp)
    for shape in _prefixes(whole):
        schedule, rows = schedule_of(shape), pass_ends(shape, times, send)
        left = (micro_batches - shape.micro_batches) // schedule.unit
        cycle, longer = _cycle(schedule, rows) if left else (1, 0)
        if cycle and left % cycle:
            rest = shape.micro_batches + left % cycle * schedule.unit
            rows = pass_ends(shape._replace(micro_batches=rest), times, send)
        if cycle:
            break
    return Run(max(row[-1] for row in rows) + left // cycle * longer, _busy(whole, times))


def _prefixes(whole: PipelineShape) -> Iterator[PipelineShape]:
    """Runs to play, in turn until one is steady: with a few blocks, with as many as ranks (after which times of equal
    stages that send come again), with some more, and the whole.
    """
    schedule = schedule_of(whole)
    for blocks in (3, whole.ranks + 3, 4 * whole.ranks + 12):
        if 2 * blocks < schedule.blocks:
            fewer = whole.micro_batches - (schedule.blocks - blocks) * schedule.unit
            yield whole._replace(micro_batches=fewer)
    yield whole


def _cycle(schedule: Schedule, rows: Rows) -> tuple[int, int]:
    """After how many blocks all passes of the last one come again, and how much later; 0, 0: not yet."""
    last = schedule.blocks - 1
    for cycle in range(1, last + 1):
        shifts = set[int]()
        for head, row in zip(schedule.heads, rows, strict=True):
            begin = head + last * schedule.steady
            earlier = begin - cycle * schedule.steady
            shifts.update(map(sub, row[begin : begin + schedule.steady], row[earlier : earlier + schedule.steady]))
            if len(shifts) > 1:
                break
        else:
            return cycle, shifts.pop()
    return 0, 0


def timeline(
    name: str, ranks: int, micro_batches: int, stages: Sequence[StageTimes], send: int = 0, vpp: int = 1
) -> list[TimedPass]:
    """Every pass of a schedule, rank by rank."""
    shape, found = PipelineShape(name, ranks, micro_batches, vpp), list[TimedPass]()
    times = list(stages) * directions(name)
    for rank, (order, row) in enumerate(zip(schedule_of(shape).orders, pass_ends(shape, times, send), strict=True)):
        for (kind, stage, i), end in zip(order.slots(), row, strict=True):
            found.append(TimedPass(rank, PASSES[kind], stage, i, end - pass_times(times[stage])[kind], end))
    return found


def most_alive(order: Order, bytes_of: Mapping[int, int] | None = None) -> int:
    """The most that a rank holds of what forwards have saved for backwards still to come: in bytes of each stage, else
    in stages times micro-batches. What gradients of weights need stays until they are done.
    """
    change = {FORWARD: 1, BACKWARD: -1, INPUTS: 0, WEIGHTS: -1}
    sizes = [1 if bytes_of is None else bytes_of[stage] for stage in order.stages]
    changes = [size * change[kind] for size in sizes for kind in KINDS]
    return max(accumulate(map(changes.__getitem__, order.codes)), default=0)


def pass_ends(shape: PipelineShape, times: Sequence[StageTimes], send: int) -> Rows:
    """The times at which every pass ends; a rank runs its order as soon as what it waits for is there."""
    if sum(len(order.codes) for order in schedule_of(shape).orders) < MANY:
        return ends_in_turn(shape, times, send)
    from archsim.training.pipeline_waves import ends_in_waves

    return ends_in_waves(shape, times, send)


def ends_in_turn(shape: PipelineShape, times: Sequence[StageTimes], send: int) -> Rows:
    """The same, one pass after another: each rank as far as it comes, then those that waited for it."""
    schedule, p = schedule_of(shape), shape.ranks
    waits, gives, later = _between_stages(schedule, shape.micro_batches, send)
    lasting = [[passes[kind] for passes in map(pass_times, times)] for kind in KINDS]
    rows, left = [list[int]() for _ in range(p)], [order.slots() for order in schedule.orders]
    held = [tuple[Slot, ...]()] * p
    work, listed = list(range(p - 1, -1, -1)), [True] * p
    while work:
        r = work.pop()
        listed[r] = False
        row, stuck = rows[r], tuple[Slot, ...]()
        now, before = row[-1] if row else 0, len(row)
        for slot in chain(held[r], left[r]):
            kind, stage, i = slot
            ready = waits[kind][stage][i]
            if ready < 0:
                stuck = (slot,)
                break
            now = (ready if ready > now else now) + lasting[kind][stage]
            gives[kind][stage][i] = now + later[kind][stage]
            row.append(now)
        held[r] = stuck
        for other in ((r - 1) % p, (r + 1) % p) if len(row) > before else ():
            if not listed[other]:
                listed[other] = True
                work.append(other)
    return rows


Grids = tuple[list[list[int]], ...]
"""By kind of pass (forward, whole backward, gradients of inputs, of weights), stage and micro-batch."""


def _between_stages(schedule: Schedule, count: int, send: int) -> tuple[Grids, Grids, tuple[list[int], ...]]:
    """When what a pass waits for is there (-1: not yet); where it notes what it gives; how long that is on its way."""
    _, before, after, home, *_ = schedule
    forward, backward = [[-1] * count for _ in home], [[-1] * count for _ in home]
    there, unread = [0] * count, [0] * count
    inputs = [forward[s] if s >= 0 else there for s in before]
    gradients = [backward[s] if s >= 0 else forward[i] for i, s in enumerate(after)]
    ways = [[send if s >= 0 and home[s] != home[i] else 0 for i, s in enumerate(to)] for to in (after, before)]
    stages = len(home)
    return (
        (inputs, gradients, gradients, [there] * stages),
        (forward, backward, backward, [unread] * stages),
        (ways[0], ways[1], ways[1], [0] * stages),
    )


def _busy(shape: PipelineShape, times: Sequence[StageTimes]) -> tuple[int, ...]:
    """Picoseconds that every rank works."""
    busy = [0] * shape.ranks
    for stage, rank in enumerate(stage_homes(shape.name, shape.ranks, shape.vpp)):
        both = times[stage].forward + times[stage].backward
        busy[rank] += both * shape.micro_batches // directions(shape.name)
    return tuple(busy)
