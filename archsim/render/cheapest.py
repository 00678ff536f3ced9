"""Which of several answers is the cheapest, in a sentence with its certainty."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.comparison.compare import cost_ratio
from archsim.predict.estimate import Estimate
from archsim.render.pages.compare import CHEAPER, verdict
from archsim.render.pages.cost import usd


def bill(e: Estimate, decodes: bool) -> float | None:
    """Dollars of the whole bill per million tokens of answers (decodes), or of prompts; None without a price."""
    if e.cost is None:
        return None
    value = e.cost.cost.usd_per_m_output_all_in if decodes else e.cost.cost.usd_per_m_input
    return None if value is None else float(value)


def cheapest(ranked: Sequence[tuple[str, Estimate]], decodes: bool) -> str:
    """The cheapest, how far the next is above it and how surely, as a sentence; empty without a price.

    ranked: names and answers that fit, the fastest first. decodes: whether dollars are per output token.
    """
    priced = sorted((dollars, i) for i, (_, e) in enumerate(ranked) if (dollars := bill(e, decodes)) is not None)
    if not priced:
        return ""
    dollars, place = priced[0]
    name, best = ranked[place]
    costs = f"${usd(dollars)} per million {'output' if decodes else 'prompt'} tokens"
    if len(priced) == 1:
        return f"{'It' if len(ranked) == 1 else name} costs {costs}."
    dearer, (other, next_best) = priced[1][0], ranked[priced[1][1]]
    found = cost_ratio(best, next_best)
    sure = verdict(found, CHEAPER) if found is not None else ""
    if sure.startswith("too close"):
        return f"By cost {name} ({costs}) and {other} (${usd(dearer)}) are too close to call."
    first = "It is also" if place == 0 else f"{name} is"
    parts = (f"{first} the cheapest, {costs}: {other} costs {_above(dearer / dollars)}", sure.rpartition(", ")[2])
    return f"{', '.join(filter(None, parts))}."


def _above(factor: float) -> str:
    """`12 % more`, or `2.4x as much` from a factor of 1.5 on."""
    return f"{factor:.3g}x as much" if factor >= 1.5 else f"{100 * (factor - 1):.2g} % more"
