"""Plays a pipeline schedule: when every pass starts and ends, how long ranks wait, and what is alive meanwhile.

Times are whole picoseconds. Once all stages take in micro-batches at one steady rate, the rest of the run is that rate
times what is left; only the beginning and the end are played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from archsim.training.schedules import BACKWARD, FORWARD, INPUTS, SCHEDULES, WEIGHTS, Order, Pass, Schedule, Slot

PICOSECONDS = 10**12
"""Of one second."""


class StageTimes(NamedTuple):
    """Picoseconds of one micro-batch on one stage. weights: the part of the backward that gives gradients of weights,
    which some schedules put off.
    """

    forward: int
    backward: int
    weights: int = 0

    @classmethod
    def of(cls, forward_s: float, backward_s: float, weights_s: float = 0.0) -> StageTimes:
        """From seconds."""
        return cls(*(round(x * PICOSECONDS) for x in (forward_s, backward_s, weights_s)))


class Run(NamedTuple):
    """A schedule played to its end. total: picoseconds. busy: of every rank. orders: of every rank, of what was
    played.
    """

    total: int
    busy: tuple[int, ...]
    orders: list[Order]

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
    played = _enough(name, ranks, micro_batches, 4 * ranks if name == "interleaved" else 2 * ranks + 2)
    while True:
        schedule = schedule_of(name, ranks, played, vpp)
        times = list(stages) * (len(schedule.home) // len(stages))
        ends = _ends(schedule, times, send)
        left = (micro_batches - played) // schedule.unit
        rate = _steady_rate(schedule, ends.forward, ranks) if left else 0
        if rate is not None:
            return Run(max(ends.ranks) + left * rate, _busy(schedule, times, micro_batches), schedule.orders)
        played = _enough(name, ranks, micro_batches, 2 * played)


def timeline(
    name: str, ranks: int, micro_batches: int, stages: Sequence[StageTimes], send: int = 0, vpp: int = 1
) -> list[TimedPass]:
    """Every pass of a schedule, rank by rank."""
    schedule = SCHEDULES[name](ranks, micro_batches, vpp)
    times = list(stages) * (len(schedule.home) // len(stages))
    ends, lasting, found = _ends(schedule, times, send), _lasting(times), list[TimedPass]()
    for rank, order in enumerate(schedule.orders):
        now = 0
        for kind, stage, i in order:
            took = lasting[kind][stage]
            if kind != WEIGHTS:
                ended, sent = (
                    (ends.forward, ends.forward_sent) if kind == FORWARD else (ends.backward, ends.backward_sent)
                )
                now = ended[stage][i] - sent[stage] - took
            found.append(TimedPass(rank, PASSES[kind], stage, i, now, now + took))
            now += took
    return found


def most_alive(order: Order, bytes_of: Mapping[int, int] | Sequence[int] | None = None) -> int:
    """The most that a rank holds of what forwards have saved for backwards still to come: in bytes of each stage, else
    in stages times micro-batches. What gradients of weights need stays until they are done.
    """
    held = most = 0
    put_off = {(stage, i) for kind, stage, i in order if kind == WEIGHTS}
    for kind, stage, i in order:
        size = 1 if bytes_of is None else bytes_of[stage]
        if kind == FORWARD:
            held += size
            most = max(most, held)
        elif kind == WEIGHTS or (stage, i) not in put_off:
            held -= size
    return most


def _enough(name: str, ranks: int, m: int, least: int) -> int:
    """Micro-batches to play, at least `least` or all: as far from all as whole units are."""
    if name == "gpipe":  # no steady phase of both passes
        return m
    unit = {"interleaved": ranks, "dualpipe": 2}.get(name, 1)
    least = max(least, 6 * ranks if name in ("dualpipe", "zbv") else 0)
    return m if m <= least + unit else least + (m - least) % unit


class Ends(NamedTuple):
    """When what forwards and backwards of each stage give is where it is read, by micro-batch; how much later than
    their ends that is, for each stage; and when each rank is done.
    """

    forward: list[list[int]]
    backward: list[list[int]]
    forward_sent: list[int]
    backward_sent: list[int]
    ranks: list[int]


def _ends(schedule: Schedule, times: Sequence[StageTimes], send: int) -> Ends:
    """The times at which every pass ends; a rank runs its order as soon as what it waits for is there."""
    orders, before, after, home, _, _ = schedule
    p, lasting = len(orders), _lasting(times)
    count = max(slot[2] for slot in orders[0]) + 1
    forward, backward = [[-1] * count for _ in home], [[-1] * count for _ in home]
    there, unread = [0] * count, [0] * count
    inputs = [forward[s] if s >= 0 else there for s in before]
    gradients = [backward[s] if s >= 0 else forward[i] for i, s in enumerate(after)]
    sent = [_sending(before, home, send), _sending(after, home, send)]
    # By kind of pass (forward, whole backward, gradients of inputs, of weights): what it waits for, and what it gives.
    waits = (inputs, gradients, gradients, [there] * len(home))
    gives = (forward, backward, backward, [unread] * len(home))
    later = (sent[0], sent[1], sent[1], [0] * len(home))
    clock, left, held = [0] * p, [iter(order) for order in orders], [tuple[Slot, ...]()] * p
    work, listed, done = list(range(p - 1, -1, -1)), [True] * p, [False] * p
    while work:
        r = work.pop()
        listed[r] = False
        now, stuck = clock[r], tuple[Slot, ...]()
        for slot in chain(held[r], left[r]):
            kind, stage, i = slot
            ready = waits[kind][stage][i]
            if ready < 0:
                stuck = (slot,)
                break
            now = (ready if ready > now else now) + lasting[kind][stage]
            gives[kind][stage][i] = now + later[kind][stage]
        moved = stuck != held[r] or not (stuck or done[r])
        clock[r], held[r], done[r] = now, stuck, not stuck
        for other in ((r - 1) % p, (r + 1) % p) if moved else ():
            if not listed[other]:
                listed[other] = True
                work.append(other)
    return Ends(forward, backward, sent[0], sent[1], clock)


def _sending(waits_for: Sequence[int], home: Sequence[int], send: int) -> list[int]:
    """How long what each stage gives travels to the stage that waits for it: nothing on the same rank."""
    found = [0] * len(home)
    for stage, other in enumerate(waits_for):
        if other >= 0 and home[other] != home[stage]:
            found[other] = send
    return found


@lru_cache(maxsize=8)
def schedule_of(name: str, ranks: int, micro_batches: int, vpp: int) -> Schedule:
    """The orders of a schedule, which layouts with as many stages share. Raises InvalidPlan."""
    return SCHEDULES[name](ranks, micro_batches, vpp)


def _lasting(times: Sequence[StageTimes]) -> dict[int, list[int]]:
    """Picoseconds of each kind of pass on each stage."""
    return {
        FORWARD: [t.forward for t in times],
        BACKWARD: [t.backward for t in times],
        INPUTS: [t.backward - t.weights for t in times],
        WEIGHTS: [t.weights for t in times],
    }


def _steady_rate(schedule: Schedule, forward: list[list[int]], ranks: int) -> int | None:
    """Picoseconds by which one more unit of micro-batches makes the run longer; None where it is not steady yet.

    Forwards of the first micro-batches do not depend on how many follow; where the last forwards of all stages come at
    one rate for as many units as there are ranks, that rate stays.
    """
    unit = max(1, schedule.unit // _ways(schedule))
    last = len(forward[0]) - schedule.prefix
    window = range(max(unit, last - max(ranks, unit)), last)
    rates = {ends[i] - ends[i - unit] for ends in forward for i in window}
    return rates.pop() if len(rates) == 1 else None


def _ways(schedule: Schedule) -> int:
    """Directions that micro-batches run in."""
    return sum(1 for s in schedule.before if s < 0)


def _busy(schedule: Schedule, times: Sequence[StageTimes], micro_batches: int) -> tuple[int, ...]:
    """Picoseconds that every rank works."""
    busy = [0] * len(schedule.orders)
    for stage, rank in enumerate(schedule.home):
        busy[rank] += (times[stage].forward + times[stage].backward) * micro_batches // _ways(schedule)
    return tuple(busy)
