"""The load of a row of a table of runs under load, in the words of `simulate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf

from archsim.accuracy.question import real, text, whole
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping
from archsim.base.options import LoadOptions

ROUNDS, LEAST = 10, 16
"""Requests of a closed loop over its concurrency, and the fewest, where a row states none (the InferenceX harness)."""

REQUESTS = 1000
"""Requests of other loads, where a row states none."""

LEAST_SHARE = re.compile(r"uniform (0?\.[0-9]{1,6}|[01])\.\.1 of nominal")
"""Of lengths that are spread: the least, over the nominal."""

GAMMA = re.compile(r"gamma, CV ([0-9]{1,4}(?:\.[0-9]{1,6})?)")
"""Of arrivals in bursts: the coefficient of variation of the gaps between them."""


def mean_length(row: JsonMapping, name: str) -> int:
    """Mean tokens of a prompt or an answer."""
    return round((real(row, name) or 0.0) * (1 + _spread(row)) / 2)


def _spread(row: JsonMapping) -> float:
    """Least share of the nominal lengths."""
    found = LEAST_SHARE.search(text(row, "lengths") or "")
    return float(found[1]) if found else 1.0


def in_flight(row: JsonMapping) -> int | None:
    """Requests in flight at most; None where nothing limits them. Raises UsageError for a closed loop without."""
    arrival = text(row, "arrival") or ""
    limit = re.search(r"at most ([0-9]{1,9}) in flight", arrival)
    if limit:
        return int(limit[1])
    if not arrival.startswith("closed loop"):
        return None
    found = whole(row, "concurrency")
    if not found:
        raise UsageError("a closed loop needs a concurrency above 0")
    return found


def load_of(row: JsonMapping) -> LoadOptions:
    """The load of a row in the words of `simulate`. Raises UsageError where it is not stated."""
    shape = "sharegpt:" if text(row, "lengths") == "sharegpt" else ""
    load = LoadOptions(input_len=f"{shape}{text(row, 'isl')}", output_len=f"{shape}{text(row, 'osl')}",
                       length_spread=_spread(row))  # fmt: skip
    most, count, arrival = in_flight(row), whole(row, "n_requests"), text(row, "arrival") or ""
    if most is not None and not arrival.startswith("open loop"):
        usual = max(ROUNDS * most, LEAST) if arrival.startswith("closed loop") else REQUESTS
        return load | LoadOptions(concurrency=most, requests=count or usual)
    load |= LoadOptions(requests=count or REQUESTS)
    if arrival == "all at once":
        return load | LoadOptions(rate=inf)
    rate = stated_rate(row) if arrival.startswith("open loop") else None
    if not rate:
        raise UsageError(f"requests that arrive {arrival or 'in no stated way'} need a rate")
    bursts = GAMMA.search(arrival)
    kind = f"gamma:{bursts[1]}" if bursts else "poisson" if "Poisson" in arrival else "constant"
    load |= LoadOptions(rate=rate, arrival=kind)
    return load if most is None else load | LoadOptions(concurrency=most)


def requests_in_flight(measured: Mapping[str, float], answer: int) -> float | None:
    """Mean requests in flight by Little's law, of a row's own throughput and latencies; None where it lacks one.
    answer: mean tokens.
    """
    rate, first, each = (measured.get(name, 0.0) for name in ("output_tok_s", "ttft_mean_ms", "tpot_mean_ms"))
    if not (rate > 0 and first > 0 and each > 0 and answer):
        return None
    return rate / answer * (first + (answer - 1) * each) * 1e-3


CASE_RATE = re.compile(r"\s*rate\s+([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(?:$|[;,])", re.IGNORECASE)
"""A case that is named for its rate, at the start of a row's notes."""


def stated_rate(row: JsonMapping) -> float | None:
    """Requests a second. Benchmarks that vary the rate of one profile name each case for it: that rate is meant."""
    case = CASE_RATE.match(text(row, "notes") or "")
    return float(case[1]) if case else real(row, "request_rate")
