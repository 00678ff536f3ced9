"""Which points, in which order: the most informative first, suites in turn, as many as a budget holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from archsim.base.errors import UsageError
from archsim.measure.point import Key, Point
from archsim.measure.shapes import SUITES, Size, whole_models

NAMES = ("probe", "gemm", "attention", "fused", "fp8", "int4", "moe", "model", "train")
"""All suites, in the order of `--list`."""
SHARE = 0.9
"""Share of a budget that is planned for; the rest is for starting and for what takes longer than expected."""
SMALL_FACTOR = 0.4
"""Seconds of a point of toy size, as a share of the full size's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """points: in order of timing. chosen: how many of them the budget is expected to hold. done: had before."""

    points: tuple[Point, ...]
    chosen: int
    done: int = 0

    @property
    def seconds(self) -> float:
        """Expected time of the chosen points."""
        return sum(point.seconds for point in self.points[: self.chosen])


def parse_suites(text: str, names: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """`gemm,attention` or `all` as names; UsageError for one that is not among `names`."""
    wanted = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not wanted or wanted == ["all"]:
        return names
    for name in wanted:
        if name not in names:
            raise UsageError(f"no suite named `{name}`", hints=(f"suites: {', '.join(names)}",))
    return tuple(name for name in names if name in wanted)


def parse_budget(text: str) -> float:
    """`480s`, `8m` or `480` as seconds; UsageError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text.lower())
    seconds = float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, None: 1}[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"`{text[:40]}` is no budget", hints=("write 480s, 8m or 480 (seconds)",))
    return seconds


def points_of(suites: Iterable[str], size: Size, names: tuple[str, ...]) -> dict[str, list[Point]]:
    """Every point of the suites, by suite. A point that two suites share belongs to the first."""
    seen: set[Key] = set()
    found: dict[str, list[Point]] = {}
    for suite in suites:
        listed = whole_models(names, size) if suite == "model" else SUITES[suite](size)
        found[suite] = []
        for point in listed:
            if point.key("") not in seen:
                seen.add(point.key(""))
                found[suite].append(point)
    return found


def make(points: dict[str, list[Point]], budget: float, done: Collection[Key], device: str, size: Size) -> Plan:
    """The order of timing, less what is done already, and how far the budget is expected to reach."""
    rest = {suite: [p for p in listed if p.key(device) not in done] for suite, listed in points.items()}
    order = order_points(rest)
    factor = SMALL_FACTOR if size == "small" else 1.0
    left, chosen = budget * SHARE, 0
    for point in order:
        left -= point.seconds * factor
        if left < 0:
            break
        chosen += 1
    before = sum(map(len, points.values())) - len(order)
    return Plan(points=tuple(order), chosen=chosen, done=before)


def order_points(points: dict[str, list[Point]]) -> list[Point]:
    """By rank; inside a rank one of each suite in turn.

    A whole model's points of ranks 0 and 1 stay together, behind the kernels of the first rank, since making the
    model costs more than timing it; those of rank 2 come last.
    """
    kernels = {name: [p for p in listed if not p.whole] for name, listed in points.items()}
    whole = [p for listed in points.values() for p in listed if p.whole]
    order = _in_turn(kernels, 0)
    for name in dict.fromkeys(p.model for p in whole):
        order += sorted((p for p in whole if p.model == name and p.rank < 2), key=lambda p: p.rank)
        order += _in_turn(kernels, 1)
        kernels = {suite: [p for p in listed if p.rank != 1] for suite, listed in kernels.items()}
    order += _in_turn(kernels, 1) if not whole else []
    order += _in_turn(kernels, 2)
    return order + sorted((p for p in whole if p.rank >= 2), key=lambda p: p.model)


def _in_turn(points: dict[str, list[Point]], rank: int) -> list[Point]:
    columns: list[Sequence[Point]] = [[p for p in listed if p.rank == rank] for listed in points.values()]
    return [p for row in zip_longest(*columns) for p in row if p is not None]
