"""Changes as text: with a sign, and nothing where nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log10

from archsim.base.units import format_bytes, format_count, format_flops, format_seconds
from archsim.render.page import Cell

NOTHING = "·"
"""What stands for no change."""

SHOWN: Mapping[str, Callable[[float], str]] = {
    "params": lambda n: scaled_count(n),
    "active_params": lambda n: scaled_count(n),
    "weight_bytes": format_bytes,
    "flops_per_token": format_flops,
    "kv_bytes": format_bytes,
    "state_bytes": format_bytes,
    "decode_s": format_seconds,
    "prefill_s": format_seconds,
    "train_flops_per_token": format_flops,
    "train_bytes": format_bytes,
    "train_step_s": format_seconds,
}
"""Figure -> how it is written."""


def scaled_count(n: float) -> str:
    """A number of parameters with four significant digits: 8.030 B, 137.6 M."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= size:
            places = 3 - int(log10(abs(n) / size))
            return f"{n / size:,.{max(places, 0)}f} {unit}"
    return format_count(round(n))


def absolute(metric: str, value: float | None) -> str:
    """A figure itself."""
    return "–" if value is None else SHOWN[metric](value)


def signed_change(metric: str, value: float | None) -> Cell:
    """A change of a figure; changes too small to be more than rounding are none."""
    if value is None:
        return Cell("–", "dim")
    if not value or (metric.endswith("_s") and abs(value) < 1e-15):
        return Cell(NOTHING, "dim")
    return Cell(("+" if value > 0 else "−") + SHOWN[metric](abs(value)))


def times(value: float | None) -> str:
    """A ratio: ×1.23; a dash where there is none."""
    if value is None:
        return "–"
    if value < 0.1:
        return f"×{value:.3g}"
    return f"×{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def above(factor: float, more: str, same: str) -> str:
    """`6 % more than`, `2.05x as many as` from a factor of 1.5 on, `as many as` without a difference.

    more, same: the words for a share and for a factor (`more requests`, `many requests`).
    """
    if factor >= FACTOR:
        return f"{factor:.2f}x as {same} as"
    share = round(100 * (factor - 1))
    return f"{share} % {more} than" if share else f"as {same} as"


FACTOR = 1.5
"""From here on a ratio is said as a factor, below it in percent."""
