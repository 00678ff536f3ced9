"""What a processor sustains: bandwidth of each level of its memory, products of each number format, one operator.

Probes take turns, round after round, so that what disturbs the machine for a while meets all of them. What disturbs
only ever slows, so a figure is the median of the quicker half of its rounds, and of the best of several kernels, since
it serves as a bound; the spread is that of all rounds.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from archsim.measure.bench import pinned
from archsim.measure.here import MachineFacts

ROUNDS = 6
BLOCK_S = 0.03
"""Seconds of one probe in one round."""
BEYOND = 8
"""Memory is read in pieces of so many times the last cache."""
LARGEST = 512 << 20
SIDES = (512, 1024, 2048)
"""Rows and columns of the products that are tried."""
PRODUCTS = {"fp32": (), "bf16": (), "fp16": ("avx512_fp16", "asimdhp"), "int8": ()}
"""Formats of products, and the instruction sets that they need to be worth a probe; none: any processor will do."""
LAUNCHES = 200

QUIET_SPREAD = 0.05
"""Spread of the rounds, and drift from the first to the last, up to which a machine counts as quiet."""
QUIET_LOAD = 0.25
"""Load for each core up to which it does."""
QUIET_STEAL = 0.01
"""Share of the time that a hypervisor gave to others up to which it does."""
QUIET_OTHERS = 0.03
"""Share of the processors' time that other processes used up to which it does."""


class Probe(NamedTuple):
    """One kernel that is timed in every round. amount: bytes, FLOP or operators of a call. what: the figure that it is
    a candidate for: `bandwidth/memory`, `peak/bf16`, `operator`; threads: that run it.
    """

    what: str
    kernel: str
    threads: int
    amount: float
    call: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A figure: amount per second. spread: half the width of the middle 80 % of all rounds, as a share of it. kernel:
    that gave it. drift: of the last rounds over the first.
    """

    what: str
    threads: int
    value: float
    spread: float
    drift: float
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What else went on. load: average before the first probe, of processes that want to run. others, stolen: shares of
    the processors' time that other processes used meanwhile, and that a hypervisor gave away; None where the system
    does not tell. spread, drift: of the middle figure.
    """

    load: float | None
    cores: int
    others: float | None
    stolen: float | None
    spread: float
    drift: float
    reasons: tuple[str, ...] = field(default=())

    @property
    def quiet(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def probe_machine(facts: MachineFacts) -> tuple[list[Rate], Noise]:
    """Every figure, and what disturbed them."""
    load, before = _load(), ticks()
    with torch.no_grad():
        probes = list(_probes(facts))
        rounds = [[_rate(probe) for probe in probes] for _ in range(ROUNDS)]
    rates = _best(probes, list(zip(*rounds, strict=True)))
    return rates, noise_of(rates, load, facts.cores, meanwhile(before, ticks()))


def _probes(facts: MachineFacts) -> Iterator[Probe]:
    for threads in dict.fromkeys((1, facts.threads)):
        for name, size in levels(facts):
            own = size if name in ("llc", "memory") else size * threads // facts.threads
            yield from _streams(f"bandwidth/{name}", threads, max(own, 1 << 16))
        for dtype, needs in PRODUCTS.items():
            if not needs or any(word in facts.sets for word in needs):
                yield from _products(dtype, threads)
    x = torch.randn(64)
    yield Probe("operator", "add_", 1, LAUNCHES, partial(_repeat, partial(x.add_, 1)))


def levels(facts: MachineFacts) -> list[tuple[str, int]]:
    """Names of the levels and the bytes that are streamed through each: half of a cache, many times the last one."""
    inner = [(f"l{c.level}", c.size // 2) for c in facts.caches[:-1] if c.level > 1]
    last = [("llc", facts.last_cache // 2)] if facts.last_cache else []
    far = min(max(BEYOND * facts.last_cache, 128 << 20), LARGEST, facts.memory // 8)
    return [*inner, *last, ("memory", far)]


def _streams(what: str, threads: int, size: int) -> Iterator[Probe]:
    """Reading, copying, and changing in place; bytes read and written count."""
    whole = torch.randn(size // 4)
    half, other = whole[: size // 8], whole[size // 8 : 2 * (size // 8)]
    yield Probe(what, "sum", threads, whole.nbytes, whole.sum)
    yield Probe(what, "copy_", threads, 2 * half.nbytes, partial(half.copy_, other))
    yield Probe(what, "mul_", threads, 2 * whole.nbytes, partial(whole.mul_, 1.0))


def _products(dtype: str, threads: int) -> Iterator[Probe]:
    """Square products; a format that torch has no product for is left out."""
    for n in SIDES:
        x, w = _operand(n, dtype), _operand(n, dtype)
        call: Callable[[], object]
        call = partial(torch._int_mm, x, w) if dtype == "int8" else partial(torch.nn.functional.linear, x, w)
        try:
            call()
        except (RuntimeError, NotImplementedError):
            return
        yield Probe(f"peak/{dtype}", f"{n} x {n} x {n}", threads, 2.0 * n**3, call)


def _operand(n: int, dtype: str) -> Tensor:
    if dtype == "int8":
        return torch.randint(-9, 9, (n, n), dtype=torch.int8)
    return torch.randn(n, n).to({"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype])


def _repeat(call: Callable[[], object]) -> None:
    for _ in range(LAUNCHES):
        call()


def _rate(probe: Probe) -> float:
    """Amount per second of the quickest call in one round."""
    with pinned(probe.threads):
        probe.call()
        least, began = float("inf"), time.perf_counter()
        while True:
            start = time.perf_counter()
            probe.call()
            now = time.perf_counter()
            least = min(least, now - start)
            if now - began > BLOCK_S:
                return probe.amount / least


def _best(probes: Sequence[Probe], rounds: Sequence[Sequence[float]]) -> list[Rate]:
    """Of the kernels of each figure the one with the highest rate."""
    found: dict[tuple[str, int], Rate] = {}
    for probe, values in zip(probes, rounds, strict=True):
        middle = statistics.median(sorted(values)[len(values) // 2 :])
        tenths = statistics.quantiles(values, n=10)
        third = max(1, len(values) // 3)
        drift = statistics.fmean(values[-third:]) / statistics.fmean(values[:third]) - 1
        rate = Rate(
            what=probe.what, threads=probe.threads, value=middle, spread=(tenths[-1] - tenths[0]) / 2 / middle,
            drift=drift, kernel=probe.kernel,
        )  # fmt: skip
        before = found.get((probe.what, probe.threads))
        if before is None or before.value < rate.value:
            found[probe.what, probe.threads] = rate
    return list(found.values())


def noise_of(rates: Sequence[Rate], load: float | None, cores: int, between: Meanwhile) -> Noise:
    """What disturbed the probes. The load average stands only where the system does not tell what others used, since it
    looks back over a minute.
    """
    spread = statistics.median(rate.spread for rate in rates)
    drift = statistics.median(abs(rate.drift) for rate in rates)
    reasons = []
    if between.others is None and load is not None and load > QUIET_LOAD * cores:
        reasons.append(f"load average {load:.2f} on {cores} cores before the first probe")
    if between.others is not None and between.others > QUIET_OTHERS:
        reasons.append(f"other processes used {between.others:.1%} of the processors")
    if between.stolen is not None and between.stolen > QUIET_STEAL:
        reasons.append(f"a hypervisor gave {between.stolen:.1%} of the time to others")
    if spread > QUIET_SPREAD:
        reasons.append(f"rounds of the same probe spread by ±{spread:.1%}")
    if drift > QUIET_SPREAD:
        reasons.append(f"rates drifted by {drift:.1%} from the first rounds to the last")
    return Noise(load=load, cores=cores, spread=spread, drift=drift, reasons=tuple(reasons), **between._asdict())


def _load() -> float | None:
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


class Ticks(NamedTuple):
    """Seconds of all processors so far: in all, at work, given away by a hypervisor, and at work for this process."""

    whole: float
    busy: float
    stolen: float
    own: float


class Meanwhile(NamedTuple):
    """Shares of the processors' time between two readings; None where the system does not tell."""

    others: float | None = None
    stolen: float | None = None


def ticks() -> Ticks | None:
    """A reading of the system's counters; None where there are none."""
    with suppress(OSError, ValueError, IndexError):
        each = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        user, nice, system, idle, wait, irq, soft, stolen = (n / second for n in each)
        busy = user + nice + system + irq + soft
        return Ticks(busy + idle + wait + stolen, busy, stolen, time.process_time())
    return None


def meanwhile(before: Ticks | None, after: Ticks | None) -> Meanwhile:
    """What others used between two readings."""
    if before is None or after is None or after.whole <= before.whole:
        return Meanwhile()
    whole, busy, stolen, own = (b - a for a, b in zip(before, after, strict=True))
    return Meanwhile(max(busy - own, 0.0) / whole, stolen / whole)
