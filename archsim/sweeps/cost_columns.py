"""Dollars of every point of a block, at the price of its device."""

from __future__ import annotations

from archsim.base.number import Num
from archsim.cost.price import Price
from archsim.cost.served_cost import ServedCost, ServedWork
from archsim.counts.workload import Workload
from archsim.sweeps.chunk import Values
from archsim.sweeps.columns import COST_COLUMNS

FIGURES = {
    "usd_per_m_output": "usd_per_m_output", "usd_per_m_input": "usd_per_m_input",
    "usd_per_m_output_all_in": "usd_per_m_output_all_in", "usd_per_m_output_all_in_low": "low",
    "usd_per_m_output_all_in_high": "high",
}  # fmt: skip
"""Column -> the figure of `ServedCost`."""


def cost_columns(price: Price | None, utilization: float, load: Workload, values: Values) -> Values:
    """The columns of a block from its times; None where there is no price, or no answer."""
    found: Values = dict.fromkeys(column.name for column in COST_COLUMNS)
    if price is None:
        return found
    found |= {
        "price_provider": price.provider, "price_terms": price.terms, "price_as_of": price.as_of,
        "usd_per_device_hour": price.usd_per_device_hour,
    }  # fmt: skip
    devices = values.get("devices")
    found["usd_per_hour"] = None if devices is None else devices * price.usd_per_device_hour
    work = batch_work(load, devices, values)
    if work is None:
        return found
    cost = ServedCost(work, price.usd_per_device_hour, utilization, price)
    return found | {name: getattr(cost, figure) for name, figure in FIGURES.items()}


def batch_work(load: Workload, devices: Num, values: Values) -> ServedWork | None:
    """What a single batch takes, as `estimate` prices it; None without times."""
    first = [values.get(f"prefill_{end}_s") for end in ENDS]
    step = [values.get(f"decode_{end}_s") for end in ENDS]
    if devices is None or any(value is None for value in first):
        return None
    decodes = all(value is not None for value in step)
    rest: list[Num] = [value * (load.output_len - 1) for value in step] if decodes else [0.0] * len(ENDS)
    whole, low, high = ((a + b) / load.batch for a, b in zip(first, rest, strict=True))
    share = first[0] / load.batch / whole
    return ServedWork(devices, load.input_len, load.output_len if decodes else 0, whole, low, high, share)


ENDS = ("expected", "low", "high")
