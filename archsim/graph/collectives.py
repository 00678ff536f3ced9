"""Collectives between ranks: what each moves over the fabric, the class of kernels that runs it, and its words.

To add one: an entry here, a time model of its class in `timing/classes/collective.py`,
and the pass that emits it (`passes/shard.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from archsim.base.number import Num, maximum

GROUPED = 0.5
"""Share of the copies of a token that is sure to be sent: routers may first pick few groups of experts
(arXiv:2412.19437), which lie on few ranks.
"""

NARROWEST = 0.5 + 1 / 16
"""Bytes of one element in the narrowest format that tokens travel to their experts in: 4 bits, a scale for 16."""


class Level(NamedTuple):
    """A level of the fabric as one collective sees it.

    ranks: joined by the level. inside, outside: ranks of the group below one of its ports, and groups beyond the
    level. reduces: whether its switch adds up an all-reduce. outermost: whether no level lies beyond it.
    """

    ranks: int
    inside: int
    outside: int
    reduces: bool
    outermost: bool


class Collective(NamedTuple):
    """sent: bytes that one rank sends over a level, by the bytes of its buffer. kernel_class: in kernel tables.
    label: in printed tables. gathers: tables state the bytes of the whole, which is `ranks` buffers.
    """

    sent: Callable[[Num, Level], Num]
    kernel_class: str
    label: str
    gathers: bool = False


def _all_reduce(size: Num, at: Level) -> Num:
    """2(g-1)/g of what levels below have reduced, or that once where the switch adds."""
    return size / at.inside if at.reduces else size * 2 * (at.ranks - 1) / (at.ranks * at.inside)


def _all_gather(size: Num, at: Level) -> Num:
    """The rank's part to the others of the level, for each of the parts beyond it."""
    return size * (at.ranks - 1) * at.outside


def _reduce_scatter(size: Num, at: Level) -> Num:
    """(g-1)/g of what levels below have left of the rank's whole buffer."""
    return size * (at.ranks - 1) / (at.ranks * at.inside)


def _all_to_all(size: Num, at: Level) -> Num:
    """The share of the ranks that are reached over this level."""
    return size * (at.ranks - 1) / (at.ranks * at.outside)


def _send(size: Num, at: Level) -> Num:
    """The buffer, over the outermost level."""
    return size if at.outermost else 0


COLLECTIVES: Mapping[str, Collective] = {
    "all_reduce": Collective(_all_reduce, "engine_all_reduce", "all-reduce"),
    "all_gather": Collective(_all_gather, "nccl_all_gather", "all-gather", gathers=True),
    "reduce_scatter": Collective(_reduce_scatter, "nccl_reduce_scatter", "reduce-scatter"),
    "all_to_all": Collective(_all_to_all, "nccl_alltoall", "all-to-all"),
    "send": Collective(_send, "nccl_send_recv", "send to the next stage"),
}
"""By the name that a graph's collective goes by (Thakur et al., IJHPCA 2005, level by level)."""


def copies_to_ranks(ranks: Num, picks: Num) -> Num:
    """How often a token leaves its rank where each of `ranks` that holds one of its `picks` experts gets it once."""
    return (ranks - 1) * (1 - (1 - 1 / ranks) ** picks)


def exchanged_at_least(token_bytes: Num, picks: Num, levels: Iterable[tuple[int, float]]) -> tuple[Num, Num]:
    """Bytes that one rank sends at least where its tokens go to their experts or come back, and the seconds it takes.

    token_bytes: of all its tokens, each once. levels: ranks and bytes/s of each level of the fabric; all work at the
    same time.
    """
    most: Num = token_bytes * 0.0
    slowest: Num = token_bytes * 0.0
    for ranks, rate in levels:
        sent = token_bytes * GROUPED * copies_to_ranks(ranks, picks)
        most, slowest = maximum(most, sent), maximum(slowest, sent / rate)
    return most, slowest
