"""Devices of one architecture, and what a fit on one of them says of another.

The kernels are the same machine code, so the constants and surfaces of a fit hold; what differs is how many units
there are, their clock, and the rates of matrix units, memory and links, all of which the formulas know. One thing they
do not know: beyond the products themselves a unit spends cycles on other instructions, and these take no less time
where the matrix units of a part are slower or faster (an H20 multiplies at 15 % of an H100's rate on units that are
alike, and reaches 95 % of its peak where the H100 reaches 75).
"""

from __future__ import annotations

from collections.abc import Mapping

from archsim.timing.calibration import DeviceTraits, Entry, FitQuery
from archsim.timing.classes.call import STORED

STACKED = "HBM"
"""Memory beside the die, with several times the bandwidth for each FLOP; kernels are laid out for one or the other."""

MATRIX = ("matrix", "chain", "linear")
"""Constants that are shares of the matrix units' peak."""


def related(entry: Entry, device: DeviceTraits) -> bool:
    """Whether a fit is of a device of the same architecture and class: a workstation's part is laid out for other
    memory than a data centre's, and runs other kernels.
    """
    return entry.family == device.family and (entry.memory == STACKED) == (device.memory == STACKED)


def on_relative(constants: Mapping[str, float], entry: Entry, query: FitQuery) -> dict[str, float]:
    """Constants of a fit on another device of its architecture.

    A share s of the peak means 1/s - 1 of other work beside each second of products: on a device that multiplies r
    times as much in a cycle it takes r times the share of the products' time. What both devices were publicly seen to
    sustain is the clock that their power allows.
    """
    here, there = entry.per_cycle, dict(query.device.per_cycle)
    used = STORED.get(query.dtype, STORED["bf16"]).compute
    faster = there[used] / here[used] if used in here and used in there else 1.0
    slower = query.device.sustained / entry.sustained if query.device.sustained and entry.sustained else 1.0
    found = dict(constants)
    for name in MATRIX:
        if name in constants:
            share = constants[name]
            found[name] = min(share / (share + max(1 - share, 0.0) * faster) * slower, max(1.0, share))
    return found
