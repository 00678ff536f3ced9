"""Changes as text: with a sign, and nothing where nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from archsim.base.units import format_bytes, format_count, format_flops, format_seconds
from archsim.report.page import Cell

NOTHING = "·"
"""What stands for no change."""

SHOWN: Mapping[str, Callable[[float], str]] = {
    "params": lambda n: scaled(n),
    "active_params": lambda n: scaled(n),
    "weight_bytes": format_bytes,
    "flops_per_token": format_flops,
    "kv_bytes": format_bytes,
    "state_bytes": format_bytes,
    "decode_s": format_seconds,
    "prefill_s": format_seconds,
}
"""Figure -> how it is written."""


def scaled(n: float) -> str:
    """A number of parameters: 8.03 B, 137.6 M."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= size:
            return f"{n / size:.4g} {unit}"
    return format_count(round(n))


def absolute(metric: str, value: float | None) -> str:
    """A figure itself."""
    return "–" if value is None else SHOWN[metric](value)


def signed(metric: str, value: float | None) -> Cell:
    """A change of a figure; changes too small to be more than rounding are none."""
    if value is None:
        return Cell("–", "dim")
    if not value or (metric.endswith("_s") and abs(value) < 1e-15):
        return Cell(NOTHING, "dim")
    return Cell(("+" if value > 0 else "−") + SHOWN[metric](abs(value)))


def times(value: float | None) -> str:
    """A ratio: ×1.23."""
    if value is None:
        return ""
    return (
        f"×{value:,.0f}"
        if value >= 1000
        else f"×{value:.3g}"
        if value < 0.1 or value >= 10
        else f"×{value:.2f}"
    )
