"""Watts of a device from how busy it is, by constants fitted on measured power.

    P / TDP = idle + host · (waiting for the host) + busy · (kernels at their roofline) + collective · (collectives)
              + compute · sqrt(arithmetic at its peak)

each a share of the time, and P at most 1.05 TDP. Constants are those of the device, of its architecture, or the mean of
all devices; `hardware/calibration/power.yaml` has them with their errors on architectures that no fit had seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import exp
from typing import Annotated, NamedTuple

from archsim.base.errors import UsageError
from archsim.base.lazy_model import Field, LazyModel
from archsim.base.number import Num, maximum, minimum
from archsim.base.version import version_of
from archsim.energy.activity import Activity
from archsim.spec import loader
from archsim.spec.catalog import data_roots
from archsim.spec.hardware import Hardware
from archsim.timing.duration import Evidence

MOST = 1.05
"""Power over the limit of the board at most: what is measured stays below."""

Share = Annotated[float, Field(ge=0, le=3)]


class PowerConstants(LazyModel):
    """Power over TDP: with nothing to do, and what each kind of activity adds. off: logs of the ends of the 80 %
    interval.
    """

    idle: Share
    host: Share
    busy: Share
    compute: Share
    collective: Share
    off: tuple[float, float]

    def share(self, active: Activity) -> Num:
        """Power over TDP."""
        seconds = active.seconds
        shares = (
            self.host * active.host_s + self.busy * active.busy_s + self.collective * active.collective_s
        ) / seconds + self.compute * (active.compute_s / seconds) ** 0.5
        return minimum(MOST, self.idle + maximum(0.0, shares))


class DevicePower(PowerConstants):
    """Constants of one device. before: of an engine's versions below one, whose host kept devices waiting longer than
    predicted times say. rows, architectures: that were fitted. left_out: mean and median error of watts on
    architectures left out of the fit.
    """

    device: str
    family: str
    engine: str = ""
    before: str = ""
    rows: int
    architectures: int
    left_out: tuple[float, float]


class PowerFits(LazyModel):
    """All fits; `any` for devices of other architectures."""

    fits: tuple[DevicePower, ...]
    any: PowerConstants


class DevicePowerModel(NamedTuple):
    """Watts of one device. tdp_w: its power limit."""

    tdp_w: float
    constants: PowerConstants
    evidence: Evidence

    def watts(self, active: Activity) -> Num:
        """On average over the activity."""
        return self.tdp_w * self.constants.share(active)

    @property
    def idle_w(self) -> float:
        """Of a device that runs an engine with nothing to do."""
        return self.tdp_w * self.constants.idle

    def interval(self, watts: Num) -> tuple[Num, Num]:
        """Ends of the 80 % interval of predicted watts; not beyond what a device can draw."""
        low, high = (watts * exp(end) for end in self.constants.off)
        return maximum(low, min(self.constants.idle, 0.1) * self.tdp_w), minimum(high, MOST * self.tdp_w)


@cache
def load_power_fits() -> PowerFits:
    """The fitted constants."""
    path = data_roots("hardware")[-1] / "calibration" / "power.yaml"
    return loader.validate(loader.read(path), PowerFits)


def power_model(
    hardware: Hardware, engine: str = "", version: str = "", fits: PowerFits | None = None
) -> DevicePowerModel:
    """The model of a device under an engine. Raises UsageError where the power limit of the device is not known."""
    if hardware.tdp_w is None:
        raise UsageError(f"the power of {hardware.id} is not known", hints=("its document has no `power: {tdp: ...}`",))
    known = fits or load_power_fits()
    own = _of(known.fits, engine, version, device=hardware.id)
    alike = own or _of(known.fits, "", "", family=hardware.arch.family)
    evidence: Evidence = "calibrated" if own else "transferred" if alike else "datasheet"
    return DevicePowerModel(float(hardware.tdp_w), own or alike or known.any, evidence)


def _of(
    fits: Iterable[DevicePower], engine: str, version: str, device: str = "", family: str = ""
) -> DevicePower | None:
    """The fit of a device or family: of old versions where the engine is one, else the current one."""
    listed = [fit for fit in fits if fit.device == device or (family and fit.family == family)]
    old = [fit for fit in listed if fit.before and fit.engine == engine and _older(version, fit.before)]
    return next(iter(old), None) or next((fit for fit in listed if not fit.before), None)


def _older(version: str, than: str) -> bool:
    """Whether a version is below another; an unknown one is not."""
    stated, bound = version_of(version), version_of(than)
    return stated is not None and bound is not None and stated < bound
