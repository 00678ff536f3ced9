"""Service levels: targets of latency that requests must meet, and what share of them must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject

METRICS = ("ttft", "tpot", "itl", "e2e")

GOODPUT = 0.99
"""Share of requests that must meet every target, where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Targets in seconds by metric. share: of requests that must meet all of them at once. percentile: where it is
    given, each metric's own percentile must meet its target instead.
    """

    targets: Mapping[str, float]
    share: float = GOODPUT
    percentile: float | None = None

    @property
    def level(self) -> float:
        """The percentile of each metric that is compared with its target."""
        return 100 * self.share if self.percentile is None else self.percentile

    def to_dict(self) -> JsonObject:
        """Targets, as in the JSON of `simulate`."""
        targets: JsonObject = {f"{name}_s": target for name, target in self.targets.items()}
        return targets | ({"share": self.share} if self.percentile is None else {"percentile": self.percentile})


def parse_slo(text: str, goodput: float | None = None) -> Slo:
    """What `--slo ttft=0.5,tpot=0.03[,p=99]` and `--goodput` say. Raises UsageError."""
    targets: dict[str, float] = {}
    percentile: float | None = None
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        number, seconds = _number(value), _seconds(value)
        if name in ("p", "percentile") and 0 < number < 100 and percentile is None:
            percentile = number
        elif name in METRICS and seconds > 0 and name not in targets:
            targets[name] = seconds
        else:
            more = ", ".join(METRICS[2:])
            hint = f"write ttft=0.5,tpot=30ms (seconds where no unit stands; also {more}), and p=99 for percentiles"
            raise UsageError(f"`--slo`: {quote(part)} is not a target", hints=(hint,))
    if not targets:
        raise UsageError("`--slo` needs a target", hints=("write ttft=0.5,tpot=0.03",))
    if goodput is not None and percentile is not None:
        raise UsageError("`--goodput` is the share that meets all targets at once, p= a percentile of each: give one")
    if goodput is not None and not 0 < goodput <= 1:
        raise UsageError("`--goodput` is a share of requests, above 0 and at most 1")
    if "itl" in targets and percentile is None:
        raise UsageError("`--slo`: itl pools the gaps of all requests; say which percentile of them: itl=0.05,p=99")
    return Slo(targets=targets, share=GOODPUT if goodput is None else goodput, percentile=percentile)


UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6}
"""How many of a unit are a second."""


def _seconds(text: str) -> float:
    """A time such as 0.5, 2s or 50ms, or 0."""
    digits = text.rstrip("smuµ ")
    return _number(digits) / UNITS.get(text[len(digits) :].strip() or "s", float("inf"))


def _number(text: str) -> float:
    """A finite number, or 0."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0
