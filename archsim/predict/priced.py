"""What an estimate costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from archsim.base.options import CostArguments
from archsim.cost.priced_work import priced_work
from archsim.predict.estimate import Estimate
from archsim.predict.served_work import served_work


def with_cost(e: Estimate, **asked: Unpack[CostArguments]) -> Estimate:
    """The estimate with what its load costs, where a price or a machine of one's own is stated.

    Raises UsageError for a price that there is not, and for options that go with a price alone.
    """
    if not asked:
        return e
    priced = priced_work(served_work(e), e.hardware, **asked)
    return replace(
        e, cost=priced, assumptions=(*e.assumptions, *priced.assumptions), warnings=(*e.warnings, *priced.warnings)
    )
