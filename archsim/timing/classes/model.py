"""What every time model has: its extents, constants, formula and the grid of its correction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from archsim.base.number import Num, exp, log, log2, maximum, minimum
from archsim.graph.kernels import Traffic
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.surface import Axis, Surface
from archsim.timing.device import DeviceRates
from archsim.timing.roofline import Work, times


class Constant(NamedTuple):
    """A fitted number: where nothing has been fitted `usual`, and the physical range that a fit may not leave.

    start: where a fit begins, 0 at `usual`; needed where the time hardly moves near it.
    """

    usual: float
    low: float
    high: float
    start: float = 0.0


HOST = Constant(0.1, 0.1, 400.0)
"""Microseconds of host work in one round of the loop that timed a table's rows; 0.1 where a graph was replayed."""

HOST_SHARP = 8
"""Exponent at which the slower of host and device decides."""


class KernelModel(ABC):
    """One class of kernels. Subclasses are stateless and registered once each in `MODELS`.

    kernel_class: its name in tables. dims: extents that a call must have. constants: what the formula leaves open;
    extra: more that some fits have. grids: each a surface's axes over `coordinates`; the correction is the sum of all
    surfaces. families: the extents that make up a shape family; errors are quoted on families unseen by the fit.
    rising: the coordinate of the first grid along which time never falls, where `probe` is given. growths: nodes along
    which calls of one kind grow, and on no device take less time (`rising`); in_step: extents that grow as much as one
    of them; only_raised: growths at whose start nearly all calls stand, along which the largest time below counts
    alone; halved: the growth along which two calls of half the extent do the same work. few: rows below which no
    surface is fitted. options: how surfaces are held, where not as usual.
    shared_by_formats: constants that a format which quantises takes from the stack's 16-bit fit. shares: constants that
    are shares of the device's rates and by which fits of several engines can be ranked. serial: constants that are
    times of work which units do not share; other engines do not take over a fit where it is slow. supports: extents
    that an implementation may not take at every value: it counts as able to where it was measured. common_floor: the
    floors of all implementations are alike in a captured step; what one has beyond their middle is its loop's. general:
    the wider class that prices a call where no device of the vendor was measured, or where the engine's own runs say
    something of that class alone. implied: extents that follow from the implementation (of `supports`, as measured),
    with what is wanted where it leaves a choice. finest: the usual and the least padding of products; what a fit
    pads beyond it memory may have hidden, so that relatives with slower matrix units do without.
    converts: whether kernels multiply what they read of a narrow cache in another format, so that their usual constants
    are those over caches as narrow: prompts do as many products as their cache has entries, decodes wait for its bytes.
    """

    kernel_class: ClassVar[str]
    dims: ClassVar[tuple[str, ...]]
    optional: ClassVar[Mapping[str, float]] = {}
    constants: ClassVar[Mapping[str, Constant]]
    extra: ClassVar[Mapping[str, Constant]] = {}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ()
    families: ClassVar[tuple[str, ...]]
    rising: ClassVar[str] = ""
    growths: ClassVar[tuple[Axis, ...]] = ()
    in_step: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    only_raised: ClassVar[tuple[str, ...]] = ()
    halved: ClassVar[str] = ""
    few: ClassVar[int] = 60
    options: ClassVar[Mapping[str, Any]] = {}
    shared_by_formats: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()
    serial: ClassVar[tuple[str, ...]] = ()
    supports: ClassVar[tuple[str, ...]] = ()
    common_floor: ClassVar[bool] = False
    general: ClassVar[str] = ""
    implied: ClassVar[Mapping[str, float]] = {}
    finest: ClassVar[Mapping[str, tuple[float, float]]] = {}
    converts: ClassVar[bool] = False

    def constants_of(self, dtype: str) -> Mapping[str, Constant]:
        """What a fit in one number format finds."""
        return self.constants

    def minimum_work(self, call: KernelCall, machine: DeviceRates) -> Work:
        """What the call cannot do without: of a graph's call the work of its kernels, as `roofline.work` states it.

        FLOP follow from the extents. `hbm_bytes` among the extents are the bytes that the graph's kernels move; a
        table's row has none, and its extents say them.
        """
        moved = call.dims.get("hbm_bytes")
        if moved is None:
            moved = self.row_bytes(call, machine)
        return Work(((self.compute_dtype(call), self.flops(call)),), traffic=Traffic(act=moved))

    def flops(self, call: KernelCall) -> Num:
        """FLOP of the call's products."""
        return 0

    def compute_dtype(self, call: KernelCall) -> str:
        """The dtype whose peak bounds the products."""
        return call.storage.compute

    def operand_bytes(self, call: KernelCall) -> Num:
        """Bytes of weights, or of cached keys and values, that the call reads once."""
        return 0

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Fewest bytes of a table's row: activations count only beyond the last-level cache."""
        return 0

    def covers(self, call: KernelCall) -> bool:
        """Whether fits of this class have measured shapes like the call's; others are carried over by the formula."""
        return True

    @abstractmethod
    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds by the formula alone."""

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """Where a call lies on the grids."""
        return {}

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """A call of the same kind that lies at these coordinates."""
        raise NotImplementedError

    def growth(self, call: KernelCall) -> Mapping[str, Num]:
        """Where a call stands along `growths`: log2 of the extents of these names, unless a class says otherwise."""
        return {axis.name: log2(call.dims[axis.name]) for axis in self.growths}

    def smallest(self, call: KernelCall) -> KernelCall:
        """The call of the same kind with 1 for each extent that grows, as far as its formula goes: without bounds."""
        dims = {name: value for name, value in call.dims.items() if name != "hbm_bytes"}
        for axis in self.growths:
            for name in self.in_step.get(axis.name, ()):
                if name in dims:
                    dims[name] = dims[name] / call.dims[axis.name]
            dims[axis.name] = 1.0
        return call._replace(dims=dims)

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """The call that has grown from the smallest of its kind to a place along `growths`."""
        dims = dict(smallest.dims)
        for axis in self.growths:
            extent = 2.0 ** at[axis.name]
            for name in (axis.name, *self.in_step.get(axis.name, ())):
                if name in dims:
                    dims[name] = dims[name] * extent
        return smallest._replace(dims=dims)

    def is_grown(self, call: KernelCall) -> bool:
        """Whether a call is what grows from the smallest of its kind, not one that is only like it."""
        return True

    def variant(self, kernel: str) -> str:
        """The implementation that a kernel's name stands for: names of one variant are fitted together."""
        return kernel

    def prepare(self, call: KernelCall) -> KernelCall:
        """The call with what its kernel's name says as extents."""
        return call

    def as_general(self, call: KernelCall) -> KernelCall:
        """The same work as a call of the class `general`."""
        return call._replace(kernel_class=self.general)

    def local(self, call: KernelCall, machine: DeviceRates) -> bool:
        """Whether these measurements say nothing of other devices, whatever these are."""
        return False

    def regime(self, call: KernelCall, share: Num) -> Num:
        """Which of the four intervals a call belongs to. share: its physical bound over its predicted time."""
        return (share > 0.1) * 1 + (share > 0.3) * 1 + (share > 0.6) * 1

    def bound(self, call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
        """Seconds of arithmetic, of memory and of the links at their peaks."""
        return times(self.minimum_work(call, machine), machine)


class Fitted(NamedTuple):
    """What a fit left behind for one class of kernels in one number format; without surfaces the formula alone.

    Where products are so much slower than where it was made that they bound other calls, it has constants `faster`, at
    which they would bound the same ones. kept: how much of what surfaces take off holds there, 0 to 1. What they add
    counts up to the time that a call takes at those constants: never less than there, so that no device takes longer
    for a higher peak. borrowed: whether it was made on a device with another last-level cache.
    """

    constants: Mapping[str, float]
    surfaces: tuple[Surface, ...] = ()
    kept: float = 1.0
    faster: Mapping[str, float] = {}
    borrowed: bool = False


def kernel_seconds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted) -> Num:
    """The formula times its correction."""
    time = model.formula(call, machine, fitted.constants)
    return time * exp(correction(model, call, machine, fitted, time)) if fitted.surfaces else time


def correction(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted, time: Num) -> Num:
    """What the surfaces add to the logarithm of the formula's time, which is given."""
    at = model.coordinates(call, machine)
    found: Num = sum(surface(at) for surface in fitted.surfaces)
    if not fitted.faster:
        return found
    sooner = log(time / model.formula(call, machine, fitted.faster))
    return maximum(minimum(fitted.kept * found, 0), found - sooner)


def bounded_kernel_seconds(model: KernelModel, call: KernelCall, machine: DeviceRates, fitted: Fitted) -> Num:
    """The estimate, never below the physical bound."""
    compute, memory, link = model.bound(call, machine)
    return maximum(kernel_seconds(model, call, machine, fitted), maximum(maximum(compute, memory), link))


def l2_hit_fraction(size: Num, machine: DeviceRates) -> Num:
    """Share of `size` bytes that the last-level cache still holds when they are read again: 1 below 0.75 of the
    cache, 0 above 1.25, linear between.
    """
    if machine.cache_bytes <= 0:
        return 0.0
    return minimum(maximum(2.5 - 2 * size / machine.cache_bytes, 0.0), 1.0)


def resident(call: KernelCall, size: Num, machine: DeviceRates) -> Num:
    """Share of weights or caches that a call timed over and over by itself finds in the last-level cache.

    Only tables of kernels say so, by the extent `warm` of 1; in a model other layers come between.
    """
    return call.dims.get("warm", 0) * l2_hit_fraction(size, machine)


def launched_from_host(call: KernelCall, device_s: Num, host_us: float) -> Num:
    """Seconds of a call that a loop may have launched from the host, which then waits for the slower of both.

    Only rows of tables (extent `warm`) know such a loop; a model's step is captured or has its launches beside it.
    """
    if "warm" not in call.dims:
        return device_s
    host: Num = call.dims["warm"] * host_us * 1e-6
    return (device_s**HOST_SHARP + host**HOST_SHARP) ** (1 / HOST_SHARP)


def default_constants(model: KernelModel) -> Fitted:
    """The constants of a device that nothing is known about."""
    return Fitted(constants={name: constant.usual for name, constant in model.constants.items()})
