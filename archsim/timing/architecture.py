"""What whole runs say of an engine on an architecture whose kernels nobody has tabulated.

A few constants per engine and architecture, fitted to runs of one or two models: the share of the peak that narrow
products sustain, the gap between kernels of a captured step by version of the engine's software, and the host's time
for a launch of a step with prompts, which no graph holds, by device, since hosts differ. They hold for devices of that
architecture alone: a poor implementation on one generation is no evidence about the next.
"""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.json_types import JsonMapping
from archsim.base.number import Num
from archsim.base.version import newest_until
from archsim.engines.overhead import ANY_DEVICE, Span
from archsim.timing.calibration import Store
from archsim.timing.duration import Duration

BORROWED = 2.0
"""Factor on the interval, in log, of an engine that stands in for another on the architecture (a judgement)."""


class ArchitectureFit(NamedTuple):
    """An engine on one architecture. narrow: share of the peak that products in less than 16 bits sustain, 0 where the
    device's own stands. gap_s: between launches of a captured step. interval: logarithms of measured over predicted of
    unseen devices. prompt_launch_s: as `HostWork.launch_s`; 0: the engine's own stands.
    """

    narrow: float
    gap_s: float
    interval: tuple[float, float]
    prompt_launch_s: Span = (0.0, 0.0, 0.0)

    def gaps(self, launches: Num) -> Duration:
        """The gaps of a step of so many launches."""
        expected, (low, high) = launches * self.gap_s, self.interval
        return Duration(expected, expected * (1 + low), expected * (1 + high), evidence="transferred")


def architecture_fit(store: Store, engine: str, version: str, family: str, device: str = "") -> ArchitectureFit | None:
    """The fit of an engine on an architecture; else the gaps of another engine on it, twice as uncertain: its products
    and its host are its own. None where no run says anything, and for engines that have fits of their own for all
    devices. device: its catalog name, for what depends on its host.
    """
    own = _stated(store, engine, family)
    if own is not None:
        launches = own.get("prompt_launch_us", {})
        value, low, high = launches.get(device) or launches.get(ANY_DEVICE, (0.0, 0.0, 0.0))
        return _at(own, version, 1.0)._replace(prompt_launch_s=(value * 1e-6, low * 1e-6, high * 1e-6))
    if any(not entry.device and entry.engine == engine for entry in store.by_op.get("gemm", ())):
        return None
    other = next((found for name in store.engines if (found := _stated(store, name, family)) is not None), None)
    return None if other is None else _at(other, "", BORROWED)._replace(narrow=0.0)


def _stated(store: Store, engine: str, family: str) -> JsonMapping | None:
    found: JsonMapping | None = store.engines.get(engine, {}).get("architectures", {}).get(family)
    return found


def _at(found: JsonMapping, version: str, wider: float) -> ArchitectureFit:
    low, high = found["interval"]
    gap = newest_until(found.get("launch_gap_us", {}), version)
    return ArchitectureFit(found.get("sustained_narrow", 0.0), gap * 1e-6, (low * wider, high * wider))
