"""What a load draws and emits, as sections of a page."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.energy.energy_use import SCOPES, EnergyUse, Span
from archsim.render.page import Section, row

SCOPE_NAMES = {"gpu": "devices", "node": "nodes", "facility": "facility"}


def energy_sections(use: EnergyUse, of: str = "per output token") -> Iterator[Section]:
    """Watts and joules of the devices, then of nodes and facility, with their ranges."""
    rows = [row("power per device", _watts(use.watts.expected), _span(use.watts, "W"), "devices alone")]
    if use.devices > 1:
        whole = use.watts.times(use.devices)
        rows.append(row("power", _watts(whole.expected), _span(whole, "W"), f"{use.devices:,} devices alone"))
    for scope in SCOPES:
        joules, kwh = use.in_scope(use.joules, scope), use.in_scope(use.kwh, scope)
        remark = f"{kwh.expected:,.3g} kWh per million"
        if scope == "node":
            remark += "; 1.25 to 1.6 x the devices"
        elif scope == "facility":
            remark += f"; PUE {use.pue:g}"
        rows.append(row(f"{SCOPE_NAMES[scope]}, {of}", f"{joules.expected:,.3g} J", _span(joules, "J"), remark))
    if use.grams is not None:
        remark = f"per million, facility at {use.grid:g} g/kWh"
        rows.append(row("CO2", f"{use.grams.expected:,.3g} g", _span(use.grams, "g"), remark))
    below = (f"power: {use.evidence}, {POWER_EVIDENCE[use.evidence]}",)
    yield Section(title="Energy", rows=tuple(rows), align="lrrl", header=("expected", "80 % interval", ""), below=below)


POWER_EVIDENCE = {
    "calibrated": "from watts measured on this device", "transferred": "from watts measured on its architecture",
    "datasheet": "from watts measured on other devices, over the power limit of this one",
}  # fmt: skip


def _watts(value: float) -> str:
    return f"{value:,.0f} W" if value < 10_000 else f"{value / 1000:,.1f} kW"


def _span(span: Span, unit: str) -> str:
    low, high = (f"{end:,.0f}" if end >= 1000 else f"{end:.3g}" for end in (span.low, span.high))
    return f"{low} – {high} {unit}"
