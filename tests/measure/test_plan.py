"""Which points are timed, and in which order."""

from __future__ import annotations

from itertools import pairwise

import pytest

from archsim.base.errors import UsageError
from archsim.measure.plan import NAMES, Plan, make, parse_budget, parse_suites, points_of
from archsim.measure.point import Point
from archsim.measure.shapes import DEFAULT, FIT_SITES, HELD_SITES, Size

DEVICE = "some-device"


def points(size: Size = "full") -> dict[str, list[Point]]:
    """All points."""
    return points_of(NAMES, size, DEFAULT)


def plan(budget: float, done: set[tuple[str, ...]] | None = None) -> Plan:
    """A plan of all suites."""
    return make(points(), budget, done or set(), DEVICE, "full")


@pytest.mark.parametrize(("text", "seconds"), [("480s", 480), ("8m", 480), ("480", 480), ("1.5h", 5400)])
def test_budgets(text: str, seconds: float) -> None:
    """Seconds, minutes and hours."""
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-5s", "8 weeks", "soon"])
def test_no_budgets(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageError, match="no budget"):
        parse_budget(text)


def test_suites_by_name() -> None:
    """Names in any order and case; `all` is every one; a wrong one lists the right ones."""
    assert parse_suites("MoE, gemm") == ("gemm", "moe")
    assert parse_suites("all") == NAMES
    with pytest.raises(UsageError) as raised:
        parse_suites("gem")
    assert "attention" in raised.value.hints[0]


def test_no_point_twice() -> None:
    """Every point has a key of its own, whatever suites it could belong to."""
    keys = [p.key(DEVICE) for listed in points().values() for p in listed]
    assert len(set(keys)) == len(keys)


def test_the_most_informative_first() -> None:
    """Every suite has a point among the first of the plan, and kernels of rank 0 come before those of rank 1."""
    order = [p for p in plan(1e6).points if not p.whole]
    ranks = [p.rank for p in order]
    assert ranks == sorted(ranks)
    first = {p.suite for p in order[: 2 * len(NAMES)]}
    assert first == set(NAMES) - {"model", "train"}


def test_a_model_is_made_once() -> None:
    """Points of one model stand together, those of the last rank apart; its first one carries the making."""
    order = [p for p in plan(1e6).points if p.suite == "model" and p.rank < 2]
    changes = sum(a.model != b.model for a, b in pairwise(order))
    assert changes == len(DEFAULT) - 1
    for name in DEFAULT:
        listed = [p for p in points()["model"] if p.model == name]
        assert listed[0].seconds > min(p.seconds for p in listed) + 1


def test_a_budget_is_kept() -> None:
    """What is chosen fits, more budget never chooses less, and eight minutes hold a good part of everything."""
    chosen = [plan(budget).chosen for budget in (1, 30, 120, 480, 1e6)]
    assert chosen == sorted(chosen)
    assert plan(120).seconds <= 120
    assert chosen[-1] == len(plan(1e6).points)
    assert {p.suite for p in plan(480).points[: chosen[3]]} == set(NAMES)


def test_what_is_done_is_left_out() -> None:
    """A point that was timed before does not come again."""
    everything = plan(1e6)
    done = {p.key(DEVICE) for p in everything.points[:100]}
    rest = plan(1e6, done)
    assert rest.done == 100
    assert not done & {p.key(DEVICE) for p in rest.points}


def test_held_out_shapes_are_whole_sites() -> None:
    """No (n, k) that a fit sees is held out, and every point of a held site is."""
    assert not set(FIT_SITES) & set(HELD_SITES)
    for p in points()["gemm"]:
        assert p.held == ((p["n"], p["k"]) in HELD_SITES)


def test_toy_size_is_small() -> None:
    """At toy size every suite has points, and none is large."""
    small = points("small")
    assert all(small[name] for name in NAMES)
    assert sum(len(listed) for listed in small.values()) < 100
