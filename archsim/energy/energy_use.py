"""Joules, kilowatt-hours and grams of what devices draw, each with the scope that it is of."""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.number import Num
from archsim.timing.duration import Evidence

NODE = (1.25, 1.6)
"""A node over its devices: processors, fans, network cards. An 8-GPU node draws up to 8.4 kW in training (arXiv
2412.08602), of which its devices are 5.2 to 5.6."""

JOULES_PER_KWH = 3.6e6
USUAL_PUE = 1.2


class Span(NamedTuple):
    """A figure and the ends of its range."""

    expected: float
    low: float
    high: float

    def times(self, factor: float) -> Span:
        """The same in another unit."""
        return Span(self.expected * factor, self.low * factor, self.high * factor)


class EnergyUse(NamedTuple):
    """What devices draw for a load. watts: of one device. joules: of all devices, for each output token (of models that
    do not decode: each input token). kwh: of all devices, for a million such tokens or a whole run. pue: facility over
    machines. grid: grams of CO2 per kWh, where stated.
    """

    devices: int
    watts: Span
    joules: Span
    kwh: Span
    pue: float = USUAL_PUE
    grid: float | None = None
    evidence: Evidence = "datasheet"

    def in_scope(self, figure: Span, scope: str) -> Span:
        """A figure of the devices alone (`gpu`), with their nodes, or of the facility."""
        if scope == "gpu":
            return figure
        low, high = NODE
        node = Span(figure.expected * (low + high) / 2, figure.low * low, figure.high * high)
        return node if scope == "node" else node.times(self.pue)

    @property
    def grams(self) -> Span | None:
        """CO2 of the facility, for as much as `kwh` is of; None without a grid."""
        return None if self.grid is None else self.in_scope(self.kwh, "facility").times(self.grid)

    def to_dict(self) -> JsonObject:
        """The contract's `energy`."""
        all_w = self.watts.times(self.devices)
        scopes = [(name, self.in_scope(self.joules, name), self.in_scope(self.kwh, name)) for name in SCOPES]
        return {
            "power_w_per_device": self.watts.expected, "power_w": all_w.expected, "low_w": all_w.low,
            "high_w": all_w.high, "j_per_output_token": self.joules.expected, "j_low": self.joules.low,
            "j_high": self.joules.high, "scope": "gpu", "kwh": self.kwh.expected, "pue": self.pue,
            "evidence": self.evidence,
            "scopes": [
                {"scope": name, "j_per_output_token": joules._asdict(), "kwh": kwh._asdict()}
                for name, joules, kwh in scopes
            ],
        }  # fmt: skip

    def carbon_dict(self) -> JsonObject:
        """The contract's `carbon`."""
        grams = self.grams
        return {
            "g_per_kwh": self.grid, "g_per_m_tokens": grams.expected if grams else None,
            "low": grams.low if grams else None, "high": grams.high if grams else None, "scope": "facility",
        }  # fmt: skip


SCOPES = ("gpu", "node", "facility")


def checked_factors(pue: float | None, grid: float | None) -> None:
    """Raises UsageError for a PUE below one and a grid of negative emissions."""
    if pue is not None and not 1 <= pue < 10:
        raise UsageError(f"`--pue` is what a facility draws over what its machines draw, at least 1, not {pue:g}")
    if grid is not None and not 0 <= grid < 1e5:
        hint = "20 (hydro) to 900 (coal) in the literature"
        raise UsageError(f"`--grid` is grams of CO2 per kWh, not {grid:g}", hints=(hint,))


def joules_per_token(watts: Num, devices: Num, seconds: Num, tokens: Num) -> Num:
    """What all devices draw for each token of a request that takes the whole system so many seconds. watts: of one."""
    return watts * (devices * seconds) / tokens


def run_kwh(device_hours: float, watts: float) -> float:
    """Kilowatt-hours of so many hours of one device."""
    return device_hours * watts / 1000


def run_tonnes(kwh: float, grid: float) -> float:
    """Tonnes of CO2 at grams per kWh."""
    return kwh * grid / 1e6
