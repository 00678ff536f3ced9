"""Pipeline schedules: closed forms for equal stages, laws for unequal ones, and the steady phase that is skipped."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.base.errors import InvalidPlan
from archsim.training.pipeline import ends_in_turn, most_alive, pass_ends, play, timeline
from archsim.training.pipeline_waves import ends_in_waves
from archsim.training.schedules import (
    BACKWARD,
    FORWARD,
    INPUTS,
    SCHEDULES,
    WEIGHTS,
    PipelineShape,
    directions,
    stages_per_rank,
)
from archsim.training.stage_times import StageTimes

UNIT = 1000
EQUAL = StageTimes(UNIT, 2 * UNIT, UNIT)
PAIRS = [(2, 8), (4, 8), (4, 16), (8, 64)]


def bubble(name: str, p: int, m: int, vpp: int = 1) -> int:
    """Units that every rank waits."""
    run = play(name, p, m, [EQUAL] * (p * stages_per_rank(name, vpp)), vpp=vpp)
    waits = {(run.total - busy) // UNIT for busy in run.busy}
    assert len(waits) == 1
    return waits.pop()


@pytest.mark.parametrize(("p", "m"), PAIRS)
def test_bubbles_of_equal_stages(p: int, m: int) -> None:
    forward, backward, weights = 1, 2, 1
    assert bubble("gpipe", p, m) == bubble("1f1b", p, m) == (p - 1) * (forward + backward)
    assert bubble("interleaved", p, m, vpp=2) == (p - 1) * (forward + backward)  # of stages half as long
    assert bubble("zb-h1", p, m) == (p - 1) * (forward + backward - 2 * weights)  # F + B - W of the split backward
    if m >= 2 * p - 1:
        assert bubble("zbv", p, m) == p - 1  # of stages half as long: the last rank starts so much later


def test_dualpipe_waits_no_longer_than_published() -> None:
    for p, m in ((2, 8), (4, 16), (8, 64)):  # (p/2 - 1)(F&B + B - 3W), arXiv:2412.19437 table 2
        assert 0 <= bubble("dualpipe", p, m) <= max(1, (p // 2 - 1) * (3 + 2 - 3))


def test_saved_tensors_in_flight() -> None:
    def alive(name: str, p: int, m: int, vpp: int = 1) -> list[int]:
        return [most_alive(order) for order in SCHEDULES[name](p, m, vpp).orders]

    assert alive("gpipe", 4, 16) == [16] * 4
    assert alive("1f1b", 4, 16) == [4, 3, 2, 1]
    assert alive("zb-h1", 4, 16) == [4] * 4  # as much as the first rank of 1F1B
    assert alive("zbv", 4, 16, 2) == [8] * 4  # stages half as large
    assert alive("interleaved", 4, 16, 2)[0] == 4 * 2 + 4 - 1  # p·v·(1 + (p - 1)/(p·v))
    assert alive("dualpipe", 4, 16) == [5] * 4  # p + 1
    assert most_alive(SCHEDULES["1f1b"](4, 16, 1).orders[0], {0: 7}) == 28


def drawn_stages(draw: random.Random, count: int) -> list[StageTimes]:
    """Equal stages, a slow one among equal ones, or all unequal."""
    kind = draw.choice(["equal", "one", "all"])
    stages = [StageTimes(100, 200 + draw.choice([0, 20]), 100)] * count
    if kind == "one":
        stages[draw.randrange(count)] = StageTimes(130, 280, 90)
    if kind == "all":
        stages = [StageTimes(draw.randint(0, 9), draw.randint(5, 19), draw.randint(0, 5)) for _ in range(count)]
    return stages


@pytest.mark.parametrize("name", SCHEDULES)
def test_skipping_the_steady_phase_changes_nothing(name: str) -> None:
    draw = random.Random(7)
    for _ in range(12):
        p = draw.choice([2, 4, 6])
        vpp = stages_per_rank(name, draw.choice([2, 3]))
        stages = drawn_stages(draw, p * vpp)
        m, send = 2 * p * draw.choice([4, 7, 10, 25]), draw.choice([0, 7, 30])
        whole = pass_ends(PipelineShape(name, p, m, vpp), stages * directions(name), send)
        assert play(name, p, m, stages, send, vpp).total == max(row[-1] for row in whole)


def blocks_of_passes(name: str, p: int, m: int, vpp: int) -> tuple[dict[tuple[str, int, int], int], int]:
    """In which block of the steady phase of its rank every pass is, which others may wait for; how many there are."""
    schedule, found = SCHEDULES[name](p, m, vpp), {}
    for order, head in zip(schedule.orders, schedule.heads, strict=True):
        for at, (kind, stage, i) in enumerate(order.slots()):
            block = min((at - head) // schedule.steady, schedule.blocks)
            if kind != WEIGHTS:
                found["F" if kind == FORWARD else "B", stage, i] = block
    return found, schedule.blocks


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"gpipe"}))
@pytest.mark.parametrize("p", [2, 4, 10])
def test_passes_of_a_block_wait_for_no_later_and_no_much_earlier_one(name: str, p: int) -> None:
    """What skipping rests on."""
    vpp, m = stages_per_rank(name, 3), 8 * p
    schedule = SCHEDULES[name](p, m, vpp)
    block_of, blocks = blocks_of_passes(name, p, m, vpp)
    assert blocks >= 3
    steady = [
        order.codes[head:][: schedule.steady * blocks]
        for order, head in zip(schedule.orders, schedule.heads, strict=True)
    ]
    assert all(codes == codes[: schedule.steady] * blocks for codes in steady)
    for (kind, stage, i), block in block_of.items():
        other = schedule.before[stage] if kind == "F" else schedule.after[stage]
        if kind == "B" and other < 0:
            kind, other = "F", stage
        if block >= 1 and other >= 0:
            assert block - 1 <= block_of[kind, other, i] <= block


def plain_ends(shape: PipelineShape, stages: list[StageTimes], send: int) -> list[list[int]]:
    """When each pass of each rank ends, by going over all ranks until nothing more can run."""
    schedule, p = SCHEDULES[shape.name](*shape[1:]), shape.ranks
    orders = [list(order.slots()) for order in schedule.orders]
    ends: dict[tuple[str, int, int], int] = {}
    clock, rows = [0] * p, [list[int]() for _ in range(p)]
    while any(len(row) < len(order) for row, order in zip(rows, orders, strict=True)):
        for r, order in enumerate(orders):
            while len(rows[r]) < len(order):
                kind, stage, i = order[len(rows[r])]
                t = stages[stage]
                other = schedule.before[stage] if kind == FORWARD else schedule.after[stage]
                key = ("F" if kind == FORWARD or other < 0 else "B", other if other >= 0 else stage, i)
                free = kind == WEIGHTS or (kind == FORWARD and other < 0)
                if not free and key not in ends:
                    break
                away = not free and other >= 0 and schedule.home[other] != r
                lasting = {FORWARD: t.forward, BACKWARD: t.backward, INPUTS: t.backward - t.weights, WEIGHTS: t.weights}
                clock[r] = max(clock[r], 0 if free else ends[key] + send * away) + lasting[kind]
                if kind != WEIGHTS:
                    ends["F" if kind == FORWARD else "B", stage, i] = clock[r]
                rows[r].append(clock[r])
    return rows


@given(
    st.sampled_from(sorted(SCHEDULES)), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32), st.integers(0, 9)
)
@settings(max_examples=60, deadline=None)
def test_both_players_end_every_pass_when_a_plain_one_says(
    name: str, half: int, vpp: int, seed: int, send: int
) -> None:
    p, vpp = 2 * half, stages_per_rank(name, vpp)
    draw, shape = random.Random(seed), PipelineShape(name, p, 2 * p * draw_count(seed), vpp)
    stages = drawn_stages(draw, p * vpp) * directions(name)
    expected = plain_ends(shape, stages, send)
    assert ends_in_turn(shape, stages, send) == expected
    assert ends_in_waves(shape, stages, send) == expected


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1"])
def test_a_wide_pipeline_of_equal_stages_waits_as_the_closed_form_says(name: str) -> None:
    p, m, vpp = 64, 1024, stages_per_rank(name, 2)
    run = play(name, p, m, [EQUAL] * (p * vpp), vpp=vpp)
    assert run.total == ((m * vpp + p - 1) * 3 - (p - 1) * 2 * (name == "zb-h1")) * UNIT


def draw_count(seed: int) -> int:
    """Twice so many micro-batches as ranks."""
    return 1 + seed % 3


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_pass_runs_once_and_in_turn(name: str) -> None:
    p, m, vpp = 4, 16, stages_per_rank(name, 2)
    passes = timeline(name, p, m, [EQUAL] * (p * vpp), send=3, vpp=vpp)
    seen = [(each.kind, each.stage, each.micro_batch) for each in passes]
    assert len(seen) == len(set(seen))
    work = sum(each.end - each.start for each in passes)
    assert work == m * p * vpp * 3 * UNIT
    for rank in range(p):
        own = [each for each in passes if each.rank == rank]
        assert all(a.end <= b.start for a, b in pairwise(own))


def test_a_slow_stage_sets_the_rate() -> None:
    stages = [EQUAL] * 3 + [StageTimes(2 * UNIT, 4 * UNIT)]
    run = play("1f1b", 4, 64, stages)
    assert run.busiest == 3
    assert run.total == (64 * 6 + 3 * 3) * UNIT  # the last stage always works once it has begun


def test_one_rank_waits_for_nothing() -> None:
    run = play("1f1b", 1, 10, [EQUAL])
    assert run.total == 10 * 3 * UNIT and run.bubble_s(0) == 0


def test_sends_make_a_run_longer() -> None:
    runs = [play("1f1b", 4, 16, [EQUAL] * 4, send=send).total for send in (0, 10, 100)]
    assert runs == sorted(runs) and runs[0] < runs[-1]


def test_numbers_that_a_schedule_cannot_run() -> None:
    with pytest.raises(InvalidPlan, match="multiples of 4"):
        SCHEDULES["interleaved"](4, 6, 2)
    with pytest.raises(InvalidPlan, match="DualPipe"):
        SCHEDULES["dualpipe"](4, 6, 1)
