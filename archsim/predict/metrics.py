"""Unqueued figures of a batch, from the expected times of its prefill and of a decode step; arrays alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from archsim.base.number import Num
from archsim.counts.workload import Workload

Metric = Callable[[Workload, Num, Num, Num], Num]

METRICS: Mapping[str, Metric] = {
    "ttft_s": lambda load, ttft, tpot, devices: ttft,
    "tpot_s": lambda load, ttft, tpot, devices: tpot,
    "e2e_s": lambda load, ttft, tpot, devices: ttft + tpot * (load.output_len - 1),
    "tokens_per_s_per_user": lambda load, ttft, tpot, devices: 1 / tpot,
    "tokens_per_s": lambda load, ttft, tpot, devices: load.batch / tpot,
    "tokens_per_s_per_device": lambda load, ttft, tpot, devices: load.batch / tpot / devices,
}
"""Each from the workload, TTFT and TPOT (without the first token) in seconds, and the number of devices."""


def metrics(
    load: Workload, ttft: Num, tpot: Num | None, devices: Num, wanted: Iterable[str] = tuple(METRICS)
) -> dict[str, Num | None]:
    """The figures that are wanted. tpot: None of a model that does not decode, whose answer is its prefill."""
    if tpot is None:
        return {name: ttft if name in ("ttft_s", "e2e_s") else None for name in wanted}
    return {name: METRICS[name](load, ttft, tpot, devices) for name in wanted}
