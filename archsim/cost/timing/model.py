"""What every time model has: its extents, constants, formula and the grid of its correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from archsim.base.number import Num, exp, maximum
from archsim.cost.roofline import Machine
from archsim.cost.timing.call import Call
from archsim.cost.timing.surface import Axis, Surface


class Constant(NamedTuple):
    """A fitted number: where nothing has been fitted `usual`, and the physical range that a fit may not leave."""

    usual: float
    low: float
    high: float


class Least(NamedTuple):
    """What a call cannot do without: FLOP on the units of `compute`, bytes of memory, seconds of the links."""

    flops: Num = 0
    bytes: Num = 0
    link_s: Num = 0
    compute: str = "bf16"


class Model:
    """One class of kernels. Subclasses are stateless and registered once each in `MODELS`.

    op: name in tables. dims: extents that a call must have. constants: what the formula leaves open. grids: each a
    surface's axes over `coordinates`; the correction is the sum of all surfaces. families: the extents that make
    up a shape family: errors are quoted on families that the fit has not seen.
    """

    op: ClassVar[str]
    dims: ClassVar[tuple[str, ...]]
    optional: ClassVar[Mapping[str, float]] = {}
    constants: ClassVar[Mapping[str, Constant]]
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ()
    families: ClassVar[tuple[str, ...]]

    def least(self, call: Call, machine: Machine) -> Least:
        """The least work, for the bound that no prediction may pass."""
        raise NotImplementedError

    def formula(self, call: Call, machine: Machine, constants: Mapping[str, float]) -> Num:
        """Seconds by the formula alone."""
        raise NotImplementedError

    def coordinates(self, call: Call, machine: Machine) -> Mapping[str, Num]:
        """Where a call lies on the grids."""
        return {}

    def bound(self, call: Call, machine: Machine) -> tuple[Num, Num, Num]:
        """Seconds of arithmetic, of memory and of the links at their peaks."""
        least = self.least(call, machine)
        return least.flops / machine.matrix_flops(least.compute), least.bytes / machine.bandwidth, least.link_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fit left behind for one class of kernels in one number format.

    low, high: log-residuals below and above which a tenth of unseen shapes lie. Without surfaces the formula stands
    alone.
    """

    constants: Mapping[str, float]
    surfaces: tuple[Surface, ...] = ()
    low: float = 0.0
    high: float = 0.0
    about: Mapping[str, float | str] = field(default_factory=dict)


def seconds(model: Model, call: Call, machine: Machine, fitted: Fitted) -> Num:
    """The formula times its correction, never below the physical bound."""
    time = model.formula(call, machine, fitted.constants)
    if fitted.surfaces:
        at = model.coordinates(call, machine)
        time = time * exp(sum(surface(at) for surface in fitted.surfaces))
    compute, memory, link = model.bound(call, machine)
    return maximum(time, maximum(maximum(compute, memory), link))


def usual(model: Model) -> Fitted:
    """The constants of a device that nothing is known about."""
    return Fitted(constants={name: constant.usual for name, constant in model.constants.items()})
