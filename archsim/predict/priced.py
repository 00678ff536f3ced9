"""What an estimate costs and draws."""

from __future__ import annotations

from dataclasses import replace

from archsim.base.errors import UsageError
from archsim.base.options import CostArguments, EnergyArguments
from archsim.cost.priced_work import priced_work, share_asked
from archsim.predict.energy import owned_watts, with_energy
from archsim.predict.estimate import Estimate
from archsim.predict.served_work import served_work


def with_costs(e: Estimate, costs: CostArguments, energy: EnergyArguments) -> Estimate:
    """The estimate with its dollars, where a price is stated, and what it draws, where that is asked for.

    Raises UsageError for a price that there is not, for options that go with another alone, and for a device whose
    power is not known where it is asked for.
    """
    draws = {name: value for name, value in energy.items() if value is not None and value is not False}
    wanted = bool(draws.keys() & {"energy", "power_limit", "grid"})
    pays = {name: value for name, value in costs.items() if value is not None}
    if "pue" in draws and not wanted and not pays.keys() - {"pue"}:
        raise UsageError("`--pue` goes with `--energy`, or with `--capex` and `--power-price`")
    if wanted:
        e = with_energy(e, **energy)
    if not pays.keys() - {"pue"}:
        return e
    return with_cost(e, costs)


def with_cost(e: Estimate, asked: CostArguments) -> Estimate:
    """The estimate with what its load costs. Raises as `with_costs`."""
    share = share_asked(asked)
    watts = owned_watts(e, share) if asked.get("power_price") is not None else None
    priced = priced_work(served_work(e), e.hardware, watts, **asked)
    return replace(
        e, cost=priced, assumptions=(*e.assumptions, *priced.assumptions), warnings=(*e.warnings, *priced.warnings)
    )
