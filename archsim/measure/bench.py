"""How a call is timed: graph replays between CUDA events on a GPU, on a CPU the least of undisturbed rounds."""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from archsim.base.json_types import JsonObject
from archsim.graph.graph import Node
from archsim.measure.energy_meter import POWER_S, energy_counter, mean_watts
from archsim.measure.point import Timing

Call = Callable[[], object]

L2_MULTIPLE = 3
"""Copies are rotated until they are this many times the last-level cache."""
MOST_COPIES = 128
COPY_BUDGET = 6 << 30
"""Bytes that the rotated copies of one point may take."""
SHORT_US = 100.0
"""Calls below this are put into a graph many at a time."""
GRAPH_CALLS = 100
WARM_S, MEASURE_S = 0.025, 0.080
LEAST_ROUNDS, MOST_ROUNDS = 7, 400
LONG_S, LEAST_LONG = 1.0, 3
"""After so many seconds so few rounds are enough."""
CPU_L2 = 32 << 20
CPU_MEASURE_S = 0.03
CPU_ROUNDS = 7
CPU_LONG_S = 0.8
CPU_PATIENCE_S = 1.2
"""Seconds of rounds, each of them disturbed, after which a point is given up as disturbed."""
CPU_WAITED = 0.05
"""Share of a round that its threads may wait for a processor before the round counts as disturbed."""
CPU_ALIKE = 0.03
"""Rounds that differ from the least by less agree with it."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8": torch.float8_e4m3fn}


class Bench:
    """Times calls on one device. quick: shorter, for points of toy size. watts: also what the device draws meanwhile,
    where it tells, over `POWER_S` more seconds for each point.
    """

    def __init__(self, device: str, quick: bool = False, watts: bool = False) -> None:
        self.device, self.quick = device, quick
        self.cuda = device == "cuda"
        self.cache_bytes = CPU_L2
        if self.cuda:
            self.cache_bytes = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 50 << 20)
        self.held: JsonObject = {}
        self.disturbed = False
        self.rotated: int | None = None
        self.counter = energy_counter(device) if watts else None
        self.drawn: float | None = None
        torch.manual_seed(0)

    # ------------------------------------------------------------------ data
    def rand(self, *shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> Tensor:
        """Normal numbers; formats that torch cannot draw are cast from bf16."""
        narrow = dtype.itemsize == 1
        x = torch.randn(shape, device=self.device, dtype=torch.bfloat16 if narrow else dtype)
        return (x * scale if scale != 1.0 else x).to(dtype)

    def copies(self, nbytes: int) -> int:
        """How many copies of a working set make every one come from memory when its turn comes."""
        if self.quick and not self.cuda:
            return 2
        wanted = math.ceil(L2_MULTIPLE * self.cache_bytes / max(nbytes, 1)) + 1
        count = max(1, min(wanted, MOST_COPIES, max(COPY_BUDGET // max(nbytes, 1), 1)))
        self.rotated = count * nbytes
        return count

    def remark(self) -> str:
        """Whether the last point's copies were too small to come from memory, and its watts; forgets them."""
        rotated, self.rotated = self.rotated, None
        drawn, self.drawn = self.drawn, None
        small = self.cuda and rotated is not None and rotated <= self.cache_bytes
        said = [f"{(rotated or 0) / 1e6:.1f} MB of copies stay in the cache"] if small else []
        return " ".join([*said, *([f"{drawn:.1f} W"] if drawn is not None else [])])

    def _draw(self, run: Call) -> None:
        """Measure what the device draws while a call is repeated."""
        if self.counter is not None:
            wait = torch.cuda.synchronize if self.cuda else _nothing
            self.drawn = mean_watts(run, wait, self.counter, POWER_S)

    def free_bytes(self) -> int:
        """Device memory that is left; on a CPU as much as anyone asks for here."""
        if not self.cuda:
            return 1 << 34
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())

    def release(self) -> None:
        """Give back what the last point left."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    # ------------------------------------------------------------------ time
    def time(self, calls: Sequence[Call], graph: bool = True, middle: bool = False) -> Timing:
        """Time per call of `calls`, which are run one after another; each works on its own copy of the data. middle: on
        a CPU too the median, for whole passes: what a cache gives to hundreds of calls differs from round to round.
        """
        with torch.no_grad():
            return self._on_gpu(calls, graph) if self.cuda else self._on_cpu(calls, middle)

    def _on_cpu(self, calls: Sequence[Call], middle: bool) -> Timing:
        """The least, or the median, over rounds in which no processor was taken away: whatever else runs only ever
        adds.
        """
        for call in calls[:2]:
            call()
        got: list[float] = []
        clean: list[float] = []
        began = time.perf_counter()
        while more_rounds(len(got), clean, time.perf_counter() - began):
            before, start = waited_ns(), time.perf_counter_ns()
            for call in calls:
                call()
            took = time.perf_counter_ns() - start
            got.append(took / 1e3 / len(calls))
            if waited_ns() - before < CPU_WAITED * took:
                clean.append(got[-1])
        self.disturbed = not clean
        self._draw(_sequence(calls))
        least = max(min(clean or got), 1e-3)
        median = statistics.median(clean or got)
        spread = 100 * (median - least) / least
        return Timing(us=max(median, least) if middle else least, spread_pct=spread, calls=len(got) * len(calls))

    def _on_gpu(self, calls: Sequence[Call], graph: bool) -> Timing:
        """The median over replays, with the middle half's width as spread."""
        run, count, mode = self._prepared(calls, graph)
        start, stop = event(), event()
        began = time.monotonic()
        warmed = 0
        while (warmed < 3 and time.monotonic() - began < LONG_S) or time.monotonic() - began < WARM_S:
            run()
            torch.cuda.synchronize()
            warmed += 1
        got: list[float] = []
        began = time.monotonic()
        while _go_on(len(got), time.monotonic() - began):
            start.record()
            run()
            stop.record()
            stop.synchronize()
            got.append(start.elapsed_time(stop) * 1e3 / count)
        self._draw(run)
        low, middle, high = statistics.quantiles(got, n=4)
        spread = 100 * (high - low) / max(middle, 1e-9)
        return Timing(us=statistics.median(got), spread_pct=spread, calls=len(got) * count, mode=mode)

    def _prepared(self, calls: Sequence[Call], graph: bool) -> tuple[Call, int, str]:
        """One callable that runs them all, how many calls that is, and how they are issued."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set up and kernels compile outside the capture
            for call in calls[:3]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        if len(calls) == 1:
            torch.cuda.empty_cache()  # a whole model's activations are not to be held beside the graph's own
        if not graph:
            return _sequence(calls), len(calls), "eager"
        rounds = self._rounds(calls)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for _ in range(rounds):
                for call in calls:
                    call()
        return captured.replay, rounds * len(calls), "graph"

    def _rounds(self, calls: Sequence[Call]) -> int:
        """How often the calls are captured: short ones until a replay takes long enough to be timed."""
        start, stop = event(), event()
        start.record()
        for call in calls:
            call()
        stop.record()
        stop.synchronize()
        each = start.elapsed_time(stop) * 1e3 / len(calls)
        if each > SHORT_US:
            return 1
        return max(1, round(GRAPH_CALLS / len(calls)))

    def alive(self) -> bool:
        """Whether the device still answers: after some errors a CUDA context is lost for good."""
        if not self.cuda:
            return True
        try:
            torch.cuda.synchronize()
            torch.zeros(1, device="cuda").add_(1)
            torch.cuda.synchronize()
        except Exception:
            return False
        return True


def _nothing() -> None:
    """What a CPU has to wait for."""


def waited_ns() -> int:
    """Nanoseconds that threads of this process were ready to run and had no processor, so far; 0 where the system does
    not tell (Linux does, by `schedstat`).
    """
    waited = 0
    with suppress(OSError, ValueError, IndexError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                waited += int(file.read().split()[1])
    return waited


def more_rounds(rounds: int, clean: Sequence[float], elapsed: float) -> bool:
    """Whether the least of the rounds on a CPU is not yet to be trusted: a few that nothing disturbed come as close to
    it, or time is up. Calls that take long need few rounds.
    """
    if elapsed > CPU_LONG_S and (clean or elapsed > CPU_PATIENCE_S):
        return rounds < LEAST_LONG
    if rounds < CPU_ROUNDS or rounds >= MOST_ROUNDS:
        return rounds < CPU_ROUNDS
    alike = sum(each < min(clean) * (1 + CPU_ALIKE) for each in clean)
    return elapsed < CPU_MEASURE_S or alike < LEAST_LONG


def event() -> torch.cuda.Event:
    """A point in the device's time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _go_on(rounds: int, elapsed: float) -> bool:
    """Whether a median needs more rounds: seven and a fair time, or three where a round takes long."""
    if elapsed > LONG_S:
        return rounds < LEAST_LONG
    return rounds < LEAST_ROUNDS or (elapsed < MEASURE_S and rounds < MOST_ROUNDS)


def _sequence(calls: Sequence[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


@contextmanager
def pinned(threads: int | None) -> Iterator[None]:
    """So many threads of torch on as many fixed processors, where the system allows it; None changes nothing."""
    if threads is None:
        yield
        return
    before, own = torch.get_num_threads(), _affinity()
    torch.set_num_threads(threads)
    _set_affinity(sorted(own)[:threads])
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _set_affinity(own)


def _affinity() -> Collection[int]:
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return ()


def _set_affinity(processors: Collection[int]) -> None:
    if processors:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(0, processors)


SLEEP_CYCLES = 200_000_000
"""The device waits so long while a step's calls are issued, so that its own time is seen and not the host's."""


class Stamps:
    """Times between one call of a step and the next."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda
        self.paths: list[tuple[str, ...]] = []
        self.depth = 0
        if cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
        self.stamps: list[Any] = [self._now()]

    def add(self, paths: tuple[str, ...]) -> None:
        """A call is over."""
        self.paths.append(paths)
        self.stamps.append(self._now())

    @contextmanager
    def around(self, node: Node) -> Iterator[None]:
        """Stamp the end of a node; of one inside another only the outer."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
        if not self.depth:
            self.add((node.name,))

    def seconds(self) -> list[tuple[tuple[str, ...], float]]:
        """Paths and seconds of every call."""
        if self.cuda:
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) / 1e3 for a, b in zip(self.stamps, self.stamps[1:], strict=False)]
        else:
            times = [(b - a) / 1e9 for a, b in zip(self.stamps, self.stamps[1:], strict=False)]
        return list(zip(self.paths, times, strict=True))

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter_ns()
        stamp = event()
        stamp.record()
        return stamp
