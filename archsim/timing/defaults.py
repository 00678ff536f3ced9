"""What kernels reach of the peaks where nothing has been fitted.

The fractions are the usual planning values: sustained matrix products reach 0.73 to 0.87 of the dense peak on
data-centre GPUs of 2020 to 2025, copies 0.83 to 0.90 of the listed bandwidth, large collectives 0.69 to 0.81 of
the link (public measurements; see docs/concepts.md). Small kernels reach less, which the interval must hold.
"""

from __future__ import annotations

from typing import NamedTuple

from archsim.timing.roofline import Efficiency

DATASHEET = Efficiency(matrix=0.80, memory=0.85, link=0.75, launch_s=3e-6, link_latency_s=8e-6)
"""Defaults for a device that nothing has been fitted on: CUDA-graph launches, NCCL-like latency."""


class IntervalFactors(NamedTuple):
    """Factors on an expected time. Not fitted: the upper one is where a naive roofline, 35 to 60 % low on real
    kernels, would put the truth; the lower end is never below the speed of light.
    """

    low: float = 0.75
    high: float = 2.0


DEFAULT_INTERVAL = IntervalFactors()
