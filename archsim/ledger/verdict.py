"""The rule for verdicts: what an article states beside what archsim computes.

true: right at the precision printed. approximately: within 3 %, or right for some of the models named, or right with
one named qualification. uncheckable: undisclosed, or no baseline or setup given. false: everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from archsim.base.errors import InvalidValue

Verdict = Literal["true", "approximately", "false", "uncheckable"]
VERDICTS: tuple[Verdict, ...] = ("true", "approximately", "false", "uncheckable")
WORST: tuple[Verdict, ...] = ("false", "uncheckable", "approximately", "true")
"""From the worst to the best: what several checks of one claim amount to."""

TOLERANCE = 0.03
"""How far a figure that is approximately right may be from the computed one, as a share of it."""

UNITS = {
    "": 1.0, "x": 1.0, "%": 0.01, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "Ki": 2.0**10, "KB": 1e3, "MB": 1e6,
    "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip
_FIGURE = re.compile(r"~?\s*(-?[0-9]+(?:,[0-9]{3})*)(\.[0-9]+)?(?:e([0-9]{1,3}))?\s*([A-Za-z%]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure as printed: its value, half a unit of its last printed digit, and the unit and power of ten it is
    written in."""

    value: float
    half: float
    unit: str
    power: int

    def verdict(self, computed: float) -> Verdict:
        """What a computed value says of it."""
        if abs(computed - self.value) <= self.half * (1 + 1e-9):
            return "true"
        return "approximately" if near(computed, self.value) else "false"


def near(computed: float, stated: float) -> bool:
    """Whether two values are within the tolerance of the larger one."""
    return abs(computed - stated) <= TOLERANCE * max(abs(computed), abs(stated))


def scale_value(computed: float, unit: str, power: int = 0) -> str:
    """A value in a unit, to four digits."""
    space = "" if len(unit) < 2 and unit != "%" else " "
    exponent = f"e{power}" if power else ""
    return f"{plain(computed / (UNITS[unit] * 10.0**power))}{exponent}{space}{unit}"


def figure(text: str) -> Figure:
    """A printed figure: `16.7M`, `33.5 MB`, `128 Ki`, `41e9`, `6.25 %`.

    The last printed digit counts, except that a whole number of three digits or more that ends in 0 (140, 400) is
    read as rounded to ten. Raises InvalidValue for a text that is none.
    """
    match = _FIGURE.fullmatch(text.strip())
    if match is None or match[4] not in UNITS:
        raise InvalidValue(f"{text[:40]!r} is not a figure; write it as printed, such as 16.7M or 33.5 MB")
    whole, decimals = match[1].replace(",", ""), match[2] or ""
    scale = 10.0 ** int(match[3] or 0) * UNITS[match[4]]
    step = 10.0 ** -len(decimals[1:])
    if not decimals and len(whole) >= 3 and whole.endswith("0"):
        step = 10.0
    value = float(whole + decimals) * scale
    return Figure(value=value, half=step * scale / 2, unit=match[4], power=int(match[3] or 0))


def compare_values(stated: int | str, computed: object) -> Verdict:
    """What a computed value says of a stated one.

    Text that is a figure is right at its precision, a count if it is equal, and both approximately within the
    tolerance; other text is right if it is the same.
    """
    if isinstance(computed, bool) or not isinstance(computed, (int, float)):
        return "true" if stated == computed else "false"
    if isinstance(stated, str):
        return figure(stated).verdict(float(computed))
    if stated == computed:
        return "true"
    return "approximately" if near(computed, stated) else "false"


def over_models(verdicts: Iterable[Verdict]) -> Verdict:
    """One statement about several models: right for some of them is approximately right."""
    found = list(verdicts)
    known = [v for v in found if v != "uncheckable"]
    if not known:
        return "uncheckable"
    if all(v == "true" for v in found):
        return "true"
    return "false" if all(v == "false" for v in known) else "approximately"


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """All statements of one claim: it is as good as its worst."""
    found = set(verdicts)
    return next((v for v in WORST if v in found), "uncheckable")


def plain(value: float) -> str:
    """A number as people read it: whole ones below a million in full, others to four digits."""
    if 1e4 <= abs(value) < 1e6 or (float(value).is_integer() and abs(value) < 1e6):
        return f"{value:,.0f}"
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def value_text(value: object, stated: int | str | None = None, unit: str | None = None) -> str:
    """A computed value in words: in the unit given, else in that of what was stated."""
    if isinstance(value, (tuple, list)):
        joint = " and " if len(value) == 2 else ", "
        return joint.join(value_text(item, stated, unit) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value) or "none"
    if unit is None and isinstance(stated, str):
        printed = figure(stated)
        return scale_value(value, printed.unit, printed.power)
    return scale_value(value, unit or "")
