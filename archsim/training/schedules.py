"""Pipeline schedules: the order in which every rank runs forward and backward passes of its stages.

Stages are numbered along the path of a micro-batch. A rank of an interleaved schedule holds `vpp` of them, of a
V-shaped one two; in DualPipe two copies of the model run through the same ranks in opposite directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from archsim.base.errors import InvalidPlan

Pass = Literal["F", "B", "I", "W"]
"""F: forward. B: the whole backward. I: gradients of inputs alone. W: gradients of weights."""

FORWARD, BACKWARD, INPUTS, WEIGHTS = 0, 1, 2, 3
"""The passes by number, as slots hold them."""

Slot = tuple[int, int, int]
"""Pass, stage, micro-batch."""

Order = list[Slot]
"""What one rank runs, first to last."""


class Schedule(NamedTuple):
    """Orders of all ranks for a number of micro-batches.

    before: the stage whose forward a stage waits for; after: the stage whose backward it waits for; -1: none.
    home: the rank of each stage. prefix: micro-batches at the end whose forwards come in another order than those of a
    longer run. unit: micro-batches by which a longer run differs from a shorter one.
    """

    orders: list[Order]
    before: list[int]
    after: list[int]
    home: list[int]
    prefix: int = 0
    unit: int = 1


def gpipe(p: int, m: int, vpp: int = 1) -> Schedule:
    """All forwards, then all backwards (Huang et al., arXiv:1811.06965)."""
    orders = [[(FORWARD, r, i) for i in range(m)] + [(BACKWARD, r, i) for i in range(m)] for r in range(p)]
    return _chain(orders, list(range(p)))


def one_f_one_b(p: int, m: int, vpp: int = 1) -> Schedule:
    """One forward, one backward after a warm-up of p - 1 - rank forwards (Narayanan et al., arXiv:2006.09503)."""
    orders = []
    for r in range(p):
        warm = min(p - 1 - r, m)
        order = [(FORWARD, r, i) for i in range(warm)]
        for i in range(m - warm):
            order += [(FORWARD, r, warm + i), (BACKWARD, r, i)]
        orders.append(order + [(BACKWARD, r, i) for i in range(m - warm, m)])
    return _chain(orders, list(range(p)))


def interleaved(p: int, m: int, vpp: int = 2) -> Schedule:
    """1F1B over `vpp` stages a rank (Narayanan et al., arXiv:2104.04473); Megatron-LM's order."""
    if m % p:
        raise InvalidPlan(
            f"the interleaved schedule needs micro-batches in multiples of {p} pipeline stages, not {m}",
            hints=("change --global-batch or --micro-batch, or take --schedule 1f1b",),
        )
    each, count = p * vpp, m * vpp

    turns = [(k % each // p, k // each * p + k % p) for k in range(count)]  # stages of a rank, micro-batches
    orders = []
    for r in range(p):
        warm = count if m == p else min((p - r - 1) * 2 + (vpp - 1) * p, count)
        forwards = [(FORWARD, own * p + r, i) for own, i in turns]
        backwards = [(BACKWARD, (vpp - 1 - own) * p + r, i) for own, i in turns]
        both = [slot for pair in zip(forwards[warm:], backwards, strict=False) for slot in pair]
        orders.append(forwards[:warm] + both + backwards[count - warm :])
    return _chain(orders, [s % p for s in range(each)], unit=p)


def zb_h1(p: int, m: int, vpp: int = 1) -> Schedule:
    """1F1B whose gradients of weights fill the bubbles, at the same memory (Qi et al., arXiv:2401.10241): a rank puts
    as many of them off as ranks lie before it.
    """
    orders = []
    for r in range(p):
        warm, done = min(p - 1 - r, m), 0
        order = [(FORWARD, r, i) for i in range(warm)]
        for i in range(m):
            if warm + i < m:
                order.append((FORWARD, r, warm + i))
            order.append((INPUTS, r, i))
            if i >= r:
                order.append((WEIGHTS, r, done))
                done += 1
        orders.append(order + [(WEIGHTS, r, i) for i in range(done, m)])
    return _chain(orders, list(range(p)))


def zbv(p: int, m: int, vpp: int = 2) -> Schedule:
    """Two stages a rank in the shape of a V (Qi et al., arXiv:2401.10241); the order of PyTorch's
    ScheduleZBVZeroBubble.
    """
    orders = [_zbv_order(p, r, max(m, 2 * p - 1)) for r in range(p)]
    kept = [[slot for slot in order if slot[2] < m] for order in orders]
    return _chain(kept, [min(s, 2 * p - 1 - s) for s in range(2 * p)])._replace(prefix=2 * p)


def _zbv_order(p: int, r: int, m: int) -> Order:
    """One rank's order for at least 2p - 1 micro-batches."""
    stages, order = (r, 2 * p - 1 - r), Order()
    done = {(kind, chunk): 0 for kind in (FORWARD, INPUTS, WEIGHTS) for chunk in (0, 1)}

    def run(kind: int, chunk: int) -> None:
        order.append((kind, stages[chunk], done[kind, chunk]))
        done[kind, chunk] += 1

    for _ in range(2 * (p - r) - 1):
        run(FORWARD, 0)
    for _ in range(r):
        run(FORWARD, 1)
        run(FORWARD, 0)
    for _ in range(p - r):
        run(FORWARD, 1)
        run(INPUTS, 1)
        run(WEIGHTS, 1)
    while done[FORWARD, 1] < done[FORWARD, 0] or done[FORWARD, 0] < m:
        if done[FORWARD, 0] < m:
            run(FORWARD, 0)
        for chunk in (0, 1):
            if chunk:
                run(FORWARD, 1)
            run(INPUTS, chunk)
            run(WEIGHTS, chunk)
    for _ in range(r):
        run(INPUTS, 0)
        run(INPUTS, 1)
    for _ in range(p - r):
        run(INPUTS, 0)
        run(WEIGHTS, 0)
    for chunk in (1, 0):
        while done[WEIGHTS, chunk] < done[INPUTS, chunk]:
            run(WEIGHTS, chunk)
    return order


def dualpipe(p: int, m: int, vpp: int = 1) -> Schedule:
    """Micro-batches from both ends through two copies of the model (DeepSeek-V3, arXiv:2412.19437; the order of
    DeepSeek's DualPipe).
    """
    if p % 2 or m % 2 or m < 2 * p:
        raise InvalidPlan(
            f"DualPipe needs an even number of stages and an even number of at least twice as many micro-batches, not "
            f"{p} stages and {m} micro-batches",
            hints=("change --pp, --global-batch or --micro-batch, or take --schedule 1f1b",),
        )
    orders = [_dualpipe_order(p, r, m // 2) for r in range(p)]
    before = [-1 if s % p == 0 else s - 1 for s in range(2 * p)]
    after = [-1 if s % p == p - 1 else s + 1 for s in range(2 * p)]
    home = [s if s < p else 2 * p - 1 - s for s in range(2 * p)]
    return Schedule(orders, before, after, home, prefix=p, unit=2)


def _dualpipe_order(p: int, r: int, m: int) -> Order:
    """One rank's order; m: micro-batches of each direction."""
    near, half, order = min(r, p - 1 - r), p // 2, Order()
    later = half - near - 1
    own = r >= half
    stages = {0: (2 * p - 1 - r) if own else r, 1: r if own else (2 * p - 1 - r)}
    done = {(kind, way): 0 for kind in (FORWARD, BACKWARD) for way in (0, 1)}
    waiting: list[Slot] = []

    def run(kind: int, way: int, put_off: bool = False) -> None:
        i = done[kind, way]
        done[kind, way] += 1
        order.append((INPUTS if put_off else kind, stages[way], i))
        if put_off:
            waiting.append((WEIGHTS, stages[way], i))

    def weights() -> None:
        order.append(waiting.pop(0))

    for _ in range(2 * later):
        run(FORWARD, 0)
    for _ in range(near + 1):
        run(FORWARD, 0)
        run(FORWARD, 1)
    for _ in range(later):
        run(BACKWARD, 1, put_off=True)
        weights()
        run(FORWARD, 1)
    for _ in range(m - p + near + 1):
        run(FORWARD, 0)
        run(BACKWARD, 1)
        run(FORWARD, 1)
        run(BACKWARD, 0)
    for _ in range(later):
        run(BACKWARD, 1)
        run(FORWARD, 1)
        run(BACKWARD, 0)
    put_off = False
    for i in range(near + 1):
        put_off = put_off or (i == (near + 1) // 2 and near % 2 == 1)
        run(BACKWARD, 1, put_off)
        put_off = put_off or (i == (near + 1) // 2 and near % 2 == 0)
        run(BACKWARD, 0, put_off)
    for _ in range(later):
        weights()
        run(BACKWARD, 0, put_off=True)
    while waiting:
        weights()
    return order


def _chain(orders: list[Order], home: list[int], unit: int = 1) -> Schedule:
    """Stages one after another."""
    n = len(home)
    return Schedule(orders, list(range(-1, n - 1)), [*range(1, n), -1], home, unit=unit)


SCHEDULES: Mapping[str, Callable[[int, int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "zbv": zbv,
    "dualpipe": dualpipe,
}
"""Schedules by name; each takes ranks, micro-batches and stages a rank."""


def directions(name: str) -> int:
    """Directions that micro-batches run in, each through stages of its own."""
    return 2 if name == "dualpipe" else 1


def stage_homes(name: str, ranks: int, vpp: int = 1) -> list[int]:
    """The rank of each stage."""
    if name in ("zbv", "dualpipe"):
        return [min(s, 2 * ranks - 1 - s) for s in range(2 * ranks)]
    return [s % ranks for s in range(ranks * stages_per_rank(name, vpp))]


def stages_per_rank(name: str, vpp: int = 1) -> int:
    """Stages that a rank holds: those of another direction are copies of the same layers."""
    return {"interleaved": vpp, "zbv": 2}.get(name, 1)
