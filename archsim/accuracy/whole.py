"""What whole runs are off beyond the steps that they consist of: arrival, batches in flux, what an allocator keeps.

A throughput over the wall clock and a peak of memory hold more than kernels. How much more is taken from runs: for
each of these two the spread that, joined with the interval of the parts, reaches 80 % of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, hypot, log

from archsim.accuracy.times import Prediction
from archsim.timing.calibration import Store

KINDS: Mapping[str, str] = {
    "out_system": "throughput", "gen_over_wall": "throughput", "all_over_wall": "throughput", "peak_mem": "peak_mem",
}  # fmt: skip
"""By the name of a definition, what it is fitted with."""


def widened(span: Prediction, definition: str, store: Store) -> Prediction:
    """The span with what whole runs of its definition are off."""
    found = store.engines.get("composition", {}).get(KINDS.get(definition, ""))
    return span if found is None else joined(span, *found["interval"])


def joined(span: Prediction, below: float, above: float) -> Prediction:
    """The span with an independent error from `below` to `above`, in log."""
    low = hypot(log(span.expected / span.low), below)
    high = hypot(log(span.high / span.expected), above)
    return span._replace(low=span.expected * exp(-low), high=span.expected * exp(high))
