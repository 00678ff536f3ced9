"""Whether a model can be checked on the present processor: only one that `archsim measure --here` has measured."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.options import TimingArguments

if TYPE_CHECKING:
    from archsim.measure.cpu_check import CpuCheck


def check_here(
    name: str, options: TimingArguments, progress: Callable[[str], None] = lambda text: None
) -> CpuCheck | None:
    """The check of a model at its own size on this processor; None for another device, for toy size, and for a machine
    that has not been measured.
    """
    if options.get("device") != "cpu" or options.get("size") == "small" or find_spec("torch") is None:
        return None
    from archsim.measure.cpu_check import check_on_cpu, measured_machine

    hardware = measured_machine()
    if hardware is None:
        return None
    out = options.get("out")
    return check_on_cpu(
        name, hardware, dtype=options.get("dtype") or "fp32", out=Path(out) if out else None,
        budget=options.get("budget", 120.0), progress=progress,
    )  # fmt: skip
