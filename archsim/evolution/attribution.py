"""Orders of decisions, and the average over many of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from math import factorial

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.number import Num
from archsim.evolution.figures import ArchitectureFigures
from archsim.evolution.path import EvolutionPath

Shares = dict[str, dict[str, Num | None]]
"""Decision -> its part of the change in each figure."""

ORDERS = ("story", "reverse", "random", "random:SEED")
"""Orders with a name; a list of decisions is an order too, whose rest follows as in the story."""


def order_decisions(decisions: Sequence[str], order: str) -> tuple[str, ...]:
    """The decisions in an order given by name, or by those that come first. Raises UsageError."""
    if order == "story":
        return tuple(decisions)
    if order == "reverse":
        return tuple(reversed(decisions))
    name, _, seed = order.partition(":")
    if name == "random" and (seed.isdecimal() or not seed):
        found = list(decisions)
        random.Random(int(seed or 0)).shuffle(found)
        return tuple(found)
    first = [word.strip() for word in order.split(",") if word.strip()]
    unknown = [word for word in first if word not in decisions]
    if unknown or not first:
        hints = (f"orders: {', '.join(ORDERS)}", f"decisions here: {', '.join(decisions)}")
        raise UsageError(f"`--order`: {quote(unknown[0] if unknown else order)} does not differ here", hints=hints)
    first = list(dict.fromkeys(first))
    return (*first, *(name for name in decisions if name not in first))


def sample_orders(decisions: Sequence[str], count: int, seed: int) -> tuple[list[tuple[str, ...]], bool]:
    """Orders to average over, and whether they are all there are. Each sampled order comes with its reverse."""
    if factorial(min(len(decisions), 20)) <= count:
        return list(permutations(decisions)), True
    draw = random.Random(seed)
    found: list[tuple[str, ...]] = []
    while len(found) < count:
        order = tuple(draw.sample(list(decisions), len(decisions)))
        found += [order, order[::-1]]
    return found[:count], False


def attribute(path: EvolutionPath, orders: Sequence[Sequence[str]]) -> Shares:
    """The mean change that each decision brings over the orders (Shapley's value where they are all orders).

    What several decisions can only change together is shared out equally among them. Whole numbers stay whole:
    means are rounded so that they still add up.
    """
    sums: dict[str, dict[str, Num]] = {}
    for order in orders:
        for step in path.steps(order):
            for name in step.decisions:
                _add(sums.setdefault(name, {}), step.delta, len(step.decisions))
    names = [name for name in path.decisions if name in sums]
    shares: Shares = {name: dict.fromkeys(ArchitectureFigures._fields) for name in names}
    for figure in ArchitectureFigures._fields:
        known = [name for name in names if figure in sums[name]]
        means = _whole([sums[name][figure] / len(orders) for name in known])
        for name, mean in zip(known, means, strict=True):
            shares[name][figure] = mean
    return shares


def _add(sums: dict[str, Num], delta: Mapping[str, Num | None], parts: int) -> None:
    """Adds one of so many equal parts of a step's change."""
    for figure, value in delta.items():
        if value is not None:
            part = Fraction(value, parts) if isinstance(value, int) else value / parts
            sums[figure] = sums.get(figure, 0) + part


def _whole(means: list[Num]) -> list[Num]:
    """Fractions rounded to whole numbers whose sum is theirs (largest remainders first); floats stay as they are."""
    if not means or not all(isinstance(mean, Fraction) for mean in means):
        return [float(mean) if isinstance(mean, Fraction) else mean for mean in means]
    low = [mean.numerator // mean.denominator for mean in means]
    missing = round(sum(means)) - sum(low)
    rest = sorted(range(len(means)), key=lambda i: (low[i] - means[i], i))
    for i in rest[:missing]:
        low[i] += 1
    return low
