"""What one rank sends in each collective (Thakur et al., 2005), and that nobody makes one up."""

from __future__ import annotations

import pytest

from archsim.graph.collectives import COLLECTIVES
from archsim.timing.device import Hop
from archsim.timing.roofline import sent_bytes

HOP = Hop(ranks=8, rate=450e9)


@pytest.mark.parametrize(
    ("fn", "share"),
    [("all_reduce", 14 / 8), ("reduce_scatter", 7 / 8), ("all_to_all", 7 / 8), ("all_gather", 7.0), ("send", 1.0)],
)
def test_bytes_that_eight_ranks_send(fn: str, share: float) -> None:
    """Of a buffer on each of eight ranks behind one switch that adds nothing."""
    assert sent_bytes(fn, 800, (HOP,), 0) == pytest.approx(800 * share)


def test_a_collective_that_nobody_knows_is_an_error() -> None:
    """It is not taken for a send."""
    with pytest.raises(KeyError, match="broadcast"):
        sent_bytes("broadcast", 800, (HOP,), 0)
    assert "broadcast" not in COLLECTIVES
