"""Devices of one architecture, and what a fit on one of them says of another.

The kernels are the same machine code, so the constants and surfaces of a fit hold; what differs is how many units
there are, their clock, and the rates of matrix units, memory and links, all of which the formulas know. One thing they
do not know: beyond the products themselves a unit spends cycles on other instructions, and these take no less time
where the matrix units of a part are slower or faster (an H20 multiplies at 15 % of an H100's rate on units that are
alike, and reaches 95 % of its peak where the H100 reaches 75), or where its memory feeds them less or more. Of chips on
a board that does not hold: an L40S pays for error correction within its memory, which an RTX 4090 does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from archsim.timing.calibration import DeviceTraits, Entry, FitQuery
from archsim.timing.classes.call import STORED
from archsim.timing.classes.catalog import MODELS
from archsim.timing.device import FED

STACKED = "HBM"
"""Memory beside the die, with several times the bandwidth for each FLOP; kernels are laid out for one or the other."""

MATRIX = ("matrix", "chain", "linear")
"""Constants that are shares of the matrix units' peak."""

SLOWER, MUCH_SLOWER = 0.5, 0.4
"""How much as fast products must be in a cycle for what memory hid where it was measured to show: a variant with a
little less power shows nothing of it. From the first to the second it shows more and more, so that a device with
a little more power never takes longer.
"""

FEEDING = ("memory", "stream")
"""Constants that are shares of memory's bandwidth."""

CACHES = ("warm", "cached", "faster")
"""Constants that are rates of the last-level cache over memory's, which are the cache's own: as much faster as memory
is read elsewhere, as much less faster than memory is the cache."""

FAST_MEMORY = 10.0
"""Bytes that memory gives a unit in a cycle from which on it is about as quick as a cache."""

CACHE_RATE = 14.0
"""Bytes that the last-level cache gives a unit in a cycle. Fits of an L40S, whose memory gives 2.4, say 10 to 19 in the
middle of each class; those of A100, H100 (both 14) and B200 (29) that caches are hardly faster than memory there.
"""


def related(entry: Entry, device: DeviceTraits) -> bool:
    """Whether a fit is of a device of the same architecture and class: a workstation's part is laid out for other
    memory than a data centre's, and runs other kernels.
    """
    return entry.family == device.family and (entry.memory == STACKED) == (device.memory == STACKED)


def at_cache_rate(
    op: str, constants: Mapping[str, float], device: DeviceTraits, entries: Iterable[Entry]
) -> dict[str, float]:
    """Constants with rates of a device's last-level cache over its memory's: a cache gives a unit about as many bytes
    in a cycle on one device as on another, so that it is the faster beside memory the less memory gives. Where memory
    gives as much as a cache, fits of other devices like that say what is left of it.
    """
    fed, found = dict(device.per_cycle).get(FED), dict(constants)
    if not fed:
        return found
    others = [e for e in entries if e.device not in ("", device.id) and dict(e.per_cycle).get(FED, 0.0) > FAST_MEMORY]
    for name, known in MODELS[op].constants.items():
        if name in CACHES and name in found and known.low >= 1.0:
            seen = [e.constants[name] for e in others if name in e.constants and name not in e.unused and not e.kernel]
            found[name] = min(max(CACHE_RATE / fed, median(seen) if seen else known.low), known.high)
    return found


def on_relative(constants: Mapping[str, float], entry: Entry, query: FitQuery) -> dict[str, float]:
    """Constants of a fit on another device of its architecture.

    A share s of the peak means 1/s - 1 of other work beside each second of products: on a device that multiplies r
    times as much in a cycle it takes r times the share of the products' time. What both devices were publicly seen to
    sustain is the clock that their power allows. A share at the end of its range was hidden by memory where it was
    fitted: on a device of other balance the usual one of the class stands for it. So was padding: padded products take
    as long as they were seen to take there, and longer only where the finest padding does.
    """
    return _with_products(constants, entry, query, products_faster(entry, query))


def at_own_balance(constants: Mapping[str, float], entry: Entry, query: FitQuery) -> dict[str, float]:
    """Constants at which the query's device makes products as fast as one that just keeps the fit's balance: shares of
    its own peak, which exceed 1 where such a device does.
    """
    found = _with_products(constants, entry, query, SLOWER)
    faster = SLOWER / products_faster(entry, query)
    return {name: value * faster if name in MATRIX else value for name, value in found.items()}


def _with_products(constants: Mapping[str, float], entry: Entry, query: FitQuery, faster: float) -> dict[str, float]:
    """Constants where products are so many times as fast in a cycle as where the fit was made."""
    here, there = entry.per_cycle, dict(query.device.per_cycle)
    slower = query.device.sustained / entry.sustained if query.device.sustained and entry.sustained else 1.0
    stacked = entry.memory == query.device.memory == STACKED
    fed = there[FED] / here[FED] if stacked and FED in here and FED in there else 1.0
    found, kept = dict(constants), balance_kept(faster)
    for name in MATRIX:
        if name in constants:
            share, range_of = constants[name], MODELS[entry.op].constants[name]
            if share >= range_of.high:
                share = share**kept * range_of.usual ** (1 - kept)
            found[name] = min(beside_other_work(share, faster) * slower, max(1.0, share))
    for name in FEEDING:
        if name in constants:
            found[name] = beside_other_work(constants[name], fed)
    more = there[FED] / here[FED] if FED in here and FED in there else 1.0
    quicker = min((more * found[name] / constants[name] for name in FEEDING if name in constants), default=more)
    for name in CACHES:
        if name in constants and MODELS[entry.op].constants[name].low >= 1.0:
            found[name] = max(constants[name] / quicker, 1.0)
    for name, (usual, finest) in MODELS[entry.op].finest.items():
        measured = found.get(name, usual)
        found[name] = min(measured, max(finest, measured * faster))
    return found


def products_faster(entry: Entry, query: FitQuery) -> float:
    """How many times as many products a unit of the query's device makes in a cycle as one of the entry's."""
    here, there = entry.per_cycle, dict(query.device.per_cycle)
    used = STORED.get(query.dtype, STORED["bf16"]).compute
    return there[used] / here[used] if used in here and used in there else 1.0


def balance_kept(faster: float) -> float:
    """How far products and memory bound the same calls as where a fit was made, 0 to 1. Where products are so much
    slower that they bound what memory bounds there, the fit's surfaces are of the other bound. faster: how many times
    as many products a unit makes in a cycle.
    """
    return min(max((faster - MUCH_SLOWER) / (SLOWER - MUCH_SLOWER), 0.0), 1.0)


def beside_other_work(share: float, faster: float) -> float:
    """The share of a peak that a unit reaches where it is `faster` times as fast, and its other work takes as long; a
    share above 1 is of a cache's rate.
    """
    return share / (share + (1 - share) * faster) if share < 1 else share
