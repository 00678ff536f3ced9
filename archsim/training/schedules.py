"""Pipeline schedules: the order in which every rank runs forward and backward passes of its stages.

Stages are numbered along the path of a micro-batch. A rank of an interleaved schedule holds `vpp` of them, of a
V-shaped one two; in DualPipe two copies of the model run through the same ranks in opposite directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from archsim.base.errors import InvalidPlan

Pass = Literal["F", "B", "I", "W"]
"""F: forward. B: the whole backward. I: gradients of inputs alone. W: gradients of weights."""

FORWARD, BACKWARD, INPUTS, WEIGHTS = 0, 1, 2, 3
"""The passes by number, as slots hold them."""

Slot = tuple[int, int, int]
"""Pass, stage, micro-batch."""


class Order(NamedTuple):
    """What one rank runs, first to last. codes: one byte a pass, `code` of its kind and of which of the rank's stages
    it is. stages: those that the rank holds. Each stage takes micro-batches in turn, so a pass's own is how many of
    its kind came before it.
    """

    codes: bytes
    stages: tuple[int, ...]

    def slots(self) -> Iterator[Slot]:
        """Every pass with its stage and micro-batch."""
        begun, ended = [0] * len(self.stages), [0] * len(self.stages)
        put_off: list[list[int]] = [[] for _ in self.stages]
        for each in self.codes:
            own, kind = divmod(each, len(KINDS))
            if kind == WEIGHTS:
                i = put_off[own].pop(0)
            else:
                seen = begun if kind == FORWARD else ended
                i = seen[own]
                seen[own] += 1
                if kind == INPUTS:
                    put_off[own].append(i)
            yield kind, self.stages[own], i


KINDS = (FORWARD, BACKWARD, INPUTS, WEIGHTS)


def code(kind: int, own: int = 0) -> bytes:
    """A pass of the rank's stage number `own`."""
    return bytes((len(KINDS) * own + kind,))


F, B, GI, GW = (code(kind) for kind in KINDS)
"""Passes of a rank's only stage."""


class PipelineShape(NamedTuple):
    """What the orders of a schedule follow from. name: of `SCHEDULES`. vpp: stages a rank."""

    name: str
    ranks: int
    micro_batches: int
    vpp: int = 1


class Schedule(NamedTuple):
    """Orders of all ranks for a number of micro-batches.

    before: the stage whose forward a stage waits for; after: the stage whose backward it waits for; -1: none.
    home: the rank of each stage. heads: passes of each rank before its steady phase. blocks: how often the same
    `steady` passes come again in it on every rank, each time for another `unit` of micro-batches. A pass waits for
    nothing outside its own block and the one before.
    """

    orders: list[Order]
    before: list[int]
    after: list[int]
    home: list[int]
    heads: list[int]
    blocks: int = 0
    steady: int = 1
    unit: int = 1


def gpipe(p: int, m: int, vpp: int = 1) -> Schedule:
    """All forwards, then all backwards (Huang et al., arXiv:1811.06965)."""
    return _chain([Order(F * m + B * m, (r,)) for r in range(p)], list(range(p)))


def one_f_one_b(p: int, m: int, vpp: int = 1) -> Schedule:
    """One forward, one backward after a warm-up of p - 1 - rank forwards (Narayanan et al., arXiv:2006.09503)."""
    warm = [min(p - 1 - r, m) for r in range(p)]
    orders = [Order(F * w + (F + B) * (m - w) + B * w, (r,)) for r, w in enumerate(warm)]
    return _chain(orders, list(range(p)))._replace(heads=warm, blocks=m - p + 1, steady=2)


def interleaved(p: int, m: int, vpp: int = 2) -> Schedule:
    """1F1B over `vpp` stages a rank (Narayanan et al., arXiv:2104.04473); Megatron-LM's order."""
    if m % p:
        raise InvalidPlan(
            f"the interleaved schedule needs micro-batches in multiples of {p} pipeline stages, not {m}",
            hints=("change --global-batch or --micro-batch, or take --schedule 1f1b",),
        )
    count = m * vpp
    forwards = b"".join(code(FORWARD, own) * p for own in range(vpp)) * (m // p)
    backwards = b"".join(code(BACKWARD, own) * p for own in reversed(range(vpp))) * (m // p)
    orders = []
    for r in range(p):
        warm = count if m == p else min((p - r - 1) * 2 + (vpp - 1) * p, count)
        both = bytearray(2 * (count - warm))
        both[::2], both[1::2] = forwards[warm:], backwards[: count - warm]
        codes = forwards[:warm] + bytes(both) + backwards[count - warm :]
        orders.append(Order(codes, tuple(range(r, p * vpp, p))))
    head = 2 * (p - 1) + (vpp - 1) * p
    found = _chain(orders, [s % p for s in range(p * vpp)])
    return found._replace(heads=[head] * p, blocks=(count - head) // (p * vpp), steady=2 * p * vpp, unit=p)


def zb_h1(p: int, m: int, vpp: int = 1) -> Schedule:
    """1F1B whose gradients of weights fill the bubbles, at the same memory (Qi et al., arXiv:2401.10241): a rank puts
    as many of them off as ranks lie before it.
    """
    orders = []
    for r in range(p):
        warm, put_off = min(p - 1 - r, m), min(r, m)
        first, last = sorted((m - warm, put_off))  # until there are no more forwards; until none is put off
        middle = F + GI + GW if put_off < m - warm else GI
        codes = F * warm + (F + GI) * first + middle * (last - first) + (GI + GW) * (m - last) + GW * put_off
        orders.append(Order(codes, (r,)))
    return _chain(orders, list(range(p)))._replace(heads=[p - 1 + r for r in range(p)], blocks=m - p + 1, steady=3)


def zbv(p: int, m: int, vpp: int = 2) -> Schedule:
    """Two stages a rank in the shape of a V (Qi et al., arXiv:2401.10241); the order of PyTorch's
    ScheduleZBVZeroBubble.
    """
    orders = [Order(_zbv_codes(p, r, max(m, 2 * p - 1)), (r, 2 * p - 1 - r)) for r in range(p)]
    if m < 2 * p - 1:
        orders = [_first(order, m) for order in orders]
    home = [min(s, 2 * p - 1 - s) for s in range(2 * p)]
    heads = [2 * (p - r) - 1 + 2 * r + 3 * (p - r) for r in range(p)]
    return _chain(orders, home)._replace(heads=heads, blocks=m - 2 * p + 1, steady=6)


def _zbv_codes(p: int, r: int, m: int) -> bytes:
    """One rank's order for at least 2p - 1 micro-batches."""
    f0, f1, i0, i1, w0, w1 = (code(kind, own) for kind in (FORWARD, INPUTS, WEIGHTS) for own in (0, 1))
    head = f0 * (2 * (p - r) - 1) + (f1 + f0) * r + (f1 + i1 + w1) * (p - r)
    steady = (f0 + i0 + w0 + f1 + i1 + w1) * (m - 2 * p + r + 1) + (i0 + w0 + f1 + i1 + w1) * (p - r - 1)
    return head + steady + (i0 + i1) * r + (i0 + w0) * (p - r) + w1 * r + w0 * r


def _first(order: Order, m: int) -> Order:
    """The passes of the first m micro-batches."""
    own = {stage: i for i, stage in enumerate(order.stages)}
    return Order(b"".join(code(kind, own[s]) for kind, s, i in order.slots() if i < m), order.stages)


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
    near = [min(r, p - 1 - r) for r in range(p)]
    stages = [(r, 2 * p - 1 - r) if r < p // 2 else (2 * p - 1 - r, r) for r in range(p)]
    orders = [Order(_dualpipe_codes(p, near[r], m // 2), stages[r]) for r in range(p)]
    before = [-1 if s % p == 0 else s - 1 for s in range(2 * p)]
    after = [-1 if s % p == p - 1 else s + 1 for s in range(2 * p)]
    home = [s if s < p else 2 * p - 1 - s for s in range(2 * p)]
    heads = [5 * (p // 2 - n - 1) + 2 * (n + 1) for n in near]
    return Schedule(orders, before, after, home, heads, m // 2 - p + 1, 4, unit=2)


def _dualpipe_codes(p: int, near: int, m: int) -> bytes:
    """The order of a rank with `near` others between it and the nearer end; m: micro-batches of each direction."""
    later = p // 2 - near - 1
    f0, f1, b0, b1, i0, i1, w0, w1 = (code(kind, way) for kind in KINDS for way in (0, 1))
    head = f0 * (2 * later) + (f0 + f1) * (near + 1) + (i1 + w1 + f1) * later
    steady = (f0 + b1 + f1 + b0) * (m - p + near + 1) + (b1 + f1 + b0) * later
    whole, odd = divmod(near + 1, 2)  # backwards of both directions before gradients of weights are put off
    split = near + 1 - whole
    if odd:
        end, waiting = (b1 + b0) * whole + b1 + i0 + (i1 + i0) * (split - 1), w0 + (w1 + w0) * (split - 1)
    else:
        end, waiting = (b1 + b0) * whole + (i1 + i0) * split, (w1 + w0) * split
    for _ in range(later):
        end, waiting = end + waiting[:1] + i0, waiting[1:] + w0
    return head + steady + end + waiting


def _chain(orders: list[Order], home: list[int]) -> Schedule:
    """Stages one after another, without a steady phase."""
    n = len(home)
    return Schedule(orders, list(range(-1, n - 1)), [*range(1, n), -1], home, [len(order.codes) for order in orders])


SCHEDULES: Mapping[str, Callable[[int, int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "zbv": zbv,
    "dualpipe": dualpipe,
}
"""Schedules by name; each takes ranks, micro-batches and stages a rank."""


@lru_cache(maxsize=32)
def schedule_of(shape: PipelineShape) -> Schedule:
    """The orders of a schedule, which layouts with as many stages share. Raises InvalidPlan."""
    return SCHEDULES[shape.name](shape.ranks, shape.micro_batches, shape.vpp)


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
