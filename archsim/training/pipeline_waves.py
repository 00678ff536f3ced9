"""Plays wide pipelines: all passes that wait for nothing else are one wave, which arrays time at once.

Which passes make up a wave follows from the schedule alone, so it is worked out once for all layouts that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from archsim.training.schedules import BACKWARD, FORWARD, INPUTS, KINDS, PipelineShape, Schedule, code, schedule_of
from archsim.training.stage_times import Rows, StageTimes, pass_times

Numbers = npt.NDArray[np.int64]

PADDING = 255
"""A code that no pass has: the end of a rank's order."""


class Waves(NamedTuple):
    """Passes of all ranks, wave by wave. cuts: where each wave begins. before: the place of the pass that its rank
    runs before it, and waits_for: of the pass that it waits for; the place after the last stands for none, and is 0.
    far: whether that pass runs on another rank. places: of each rank's passes, in its order.
    """

    cuts: list[int]
    before: Numbers
    waits_for: Numbers
    far: npt.NDArray[np.bool_]
    stage: Numbers
    kind: Numbers
    places: list[Numbers]


def ends_in_waves(shape: PipelineShape, times: Sequence[StageTimes], send: int) -> Rows:
    """When every pass of every rank ends."""
    waves = waves_of(shape)
    lasting = np.array([pass_times(each) for each in times], dtype=np.int64)[waves.stage, waves.kind]
    way = waves.far * np.int64(send)
    ends = np.zeros(len(lasting) + 1, dtype=np.int64)
    for begin, end in pairwise(waves.cuts):
        ready = ends[waves.waits_for[begin:end]]
        ready += way[begin:end]
        np.maximum(ready, ends[waves.before[begin:end]], out=ready)
        ready += lasting[begin:end]
        ends[begin:end] = ready
    return [ends[places].tolist() for places in waves.places]


@lru_cache(maxsize=8)
def waves_of(shape: PipelineShape) -> Waves:
    """The waves of a schedule: every rank runs its next pass as soon as what it waits for has run."""
    schedule = schedule_of(shape)
    grid = _codes(schedule)
    stage, waits_for = _stages(schedule, grid), _waits_for(schedule, grid)
    ranks, width = grid.shape
    done = np.zeros(grid.size + 2, dtype=bool)
    done[grid.size] = True
    at, waves = np.arange(ranks) * width, list[Numbers]()
    while True:
        free = done[waits_for[at]]
        wave = at[free]
        if not wave.size:
            break
        done[wave] = True
        at += free
        waves.append(wave)
    order = np.concatenate(waves)
    place = np.full(grid.size + 2, len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    source, kinds = waits_for[order], grid.ravel()[order].astype(np.int64) % len(KINDS)
    far = (source < grid.size) & (source // width != order // width)
    before = np.where(order % width == 0, len(order), place[order - 1])
    places = [place[r * width : r * width + len(each.codes)] for r, each in enumerate(schedule.orders)]
    cuts = np.cumsum([0, *map(len, waves)]).tolist()
    return Waves(cuts, before, place[source], far, stage.ravel()[order], kinds, places)


def _codes(schedule: Schedule) -> npt.NDArray[np.uint8]:
    """The orders of all ranks, a row each, with an end that is no pass."""
    width = max(len(order.codes) for order in schedule.orders) + 1
    rows = [order.codes.ljust(width, bytes((PADDING,))) for order in schedule.orders]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), width)


def _stages(schedule: Schedule, grid: npt.NDArray[np.uint8]) -> Numbers:
    """The stage of every pass."""
    found = np.zeros(grid.shape, dtype=np.int64)
    for row, codes, order in zip(found, grid, schedule.orders, strict=True):
        row[:] = np.array([*order.stages, *[0] * (64 - len(order.stages))])[codes // len(KINDS)]
    return found


def _waits_for(schedule: Schedule, grid: npt.NDArray[np.uint8]) -> Numbers:
    """The pass that each waits for, as a place in the grid; the size of the grid: none; one more: ends of orders."""
    forwards, backwards = dict[int, Numbers](), dict[int, Numbers]()
    for rank, order in enumerate(schedule.orders):
        for own, stage in enumerate(order.stages):
            codes, begin = grid[rank], rank * grid.shape[1]
            whole, inputs = code(BACKWARD, own)[0], code(INPUTS, own)[0]
            forwards[stage] = np.flatnonzero(codes == code(FORWARD, own)[0]) + begin
            backwards[stage] = np.flatnonzero((codes == whole) | (codes == inputs)) + begin
    found = np.where(grid.ravel() == PADDING, grid.size + 1, grid.size)
    for stage, (before, after) in enumerate(zip(schedule.before, schedule.after, strict=True)):
        if before >= 0:
            found[forwards[stage]] = forwards[before]
        found[backwards[stage]] = backwards[after] if after >= 0 else forwards[stage]
    return found
