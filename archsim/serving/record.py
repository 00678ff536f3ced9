"""What a simulated run leaves: columns of its requests, gaps between tokens, counters, and samples over time."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from math import ceil, exp, inf, log

BINS_PER_LOG = 100
"""Bins of a histogram of gaps per factor e: each is 1 % wide."""

LEAST_GAP_S = 1e-7
"""Gaps below this are zero: tokens that arrive together."""

OFFSET = 1 - int(log(LEAST_GAP_S) * BINS_PER_LOG)
"""Bin of a gap of one second."""

_BINS = int(log(1e5) * BINS_PER_LOG) + OFFSET + 2

_INSIDE = 1e-12
"""How far from the ends of a bin rounding cannot change the bin."""


@cache
def _ends(index: int) -> tuple[float, float]:
    """The ends of a bin, a little inside."""
    if not index:
        return 0.0, LEAST_GAP_S
    low, high = (exp((end - OFFSET) / BINS_PER_LOG) for end in (index, index + 1))
    return low * (1 + _INSIDE), high * (1 - _INSIDE)


class Gaps:
    """Seconds between tokens of one request, of all requests together, in bins of 1 %; bin 0 holds zeros.

    weights: gaps in each bin. least, largest, total_s: exact. like: a bin, and an interval in it: gaps between its ends
    are added without a logarithm.
    """

    __slots__ = ("largest", "least", "like", "total_s", "weights")

    def __init__(self) -> None:
        self.weights = [0] * _BINS
        self.least, self.largest, self.total_s = inf, 0.0, 0.0
        self.like: tuple[int, float, float] = (0, 0.0, -1.0)

    def add(self, seconds: float, count: int = 1) -> None:
        """So many gaps of equal length."""
        index, low, high = self.like
        if not low <= seconds <= high:
            index = int(log(seconds) * BINS_PER_LOG + OFFSET) if seconds > LEAST_GAP_S else 0
            index = index if index < _BINS else _BINS - 1
            if seconds < self.least:
                self.least = seconds
            if seconds > self.largest:
                self.largest = seconds
        self.weights[index] += count
        self.total_s += seconds * count

    def find(self, seconds: float) -> tuple[int, float, float]:
        """The bin of a gap that will be added, and an interval in it, within the least and largest gap so far."""
        index = min(int(log(seconds) * BINS_PER_LOG + OFFSET), _BINS - 1) if seconds > LEAST_GAP_S else 0
        if seconds < self.least:
            self.least = seconds
        if seconds > self.largest:
            self.largest = seconds
        low, high = _ends(index)
        self.like = (index, low if low > self.least else self.least, high if high < self.largest else self.largest)
        return self.like

    @property
    def count(self) -> int:
        """All gaps."""
        return sum(self.weights)

    @property
    def mean(self) -> float:
        """Seconds of a gap on average; 0 without any."""
        return self.total_s / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The gap that `share` of all do not exceed: the middle of its bin, within the exact ends; 0 without any."""
        if not self.count:
            return 0.0
        sums = list(accumulate(self.weights))
        if share >= 1:
            return self.largest
        index = bisect_left(sums, max(1, ceil(share * sums[-1])))
        middle = exp((index - OFFSET + 0.5) / BINS_PER_LOG) if index else 0.0
        return min(max(middle, self.least), self.largest)


State = tuple[float, int, int, int, int, int, int, float, float]
"""What `Samples` keep of one moment, in the order of their columns."""


def _column(at: int) -> property:
    """One number of every sample."""
    return property(lambda samples: [state[at] for state in samples.states])


@dataclass(slots=True)
class Samples:
    """The state at the end of some steps, at most `most` of them: rarer ones where a run has more steps.

    Columns: t_s, running, waiting, used_blocks; sums since the start: output_tokens, prompt_tokens (computed),
    finished, running_s and waiting_s (requests x seconds), busy_s. The means of any window follow from the differences
    of its ends.
    """

    MOST = 2048

    most: int = MOST
    states: list[State] = field(default_factory=list)
    waiting_s: list[float] = field(default_factory=list)
    stride: int = 1

    t_s, running, waiting, used_blocks = (_column(at) for at in range(4))
    output_tokens, prompt_tokens, finished, running_s, busy_s = (_column(at) for at in range(4, 9))

    @property
    def first(self) -> float:
        """The step after which the state is kept for the first time; infinite where it never is."""
        return 1 if self.most else inf

    def add(self, t_s: float, record: RunRecord, running: int, waiting: int, used_blocks: int) -> None:
        """The state after a step that ended at `t_s`."""
        self.states.append(
            (t_s, running, waiting, used_blocks, record.output_tokens, record.prompt_tokens, record.finished,
             record.running_s, record.busy_s)
        )  # fmt: skip
        self.waiting_s.append(record.waiting_s)
        if len(self.states) >= self.most:
            self._thin_out()

    def wait_since(self, ready_s: float) -> None:
        """A request that joins the queue now has waited since then: what was sampled meanwhile did not know of it."""
        at = len(self.states) - 1
        while at >= 0 and (t_s := self.states[at][0]) > ready_s:
            self.waiting_s[at] += t_s - ready_s
            at -= 1

    def _thin_out(self) -> None:
        """Every second sample stays, and half as many are taken from now on."""
        self.stride *= 2
        del self.states[::2], self.waiting_s[::2]


def _floats(count: int) -> array[float]:
    return array("d", [-1.0]) * count


def _numbers(count: int) -> array[int]:
    return array("q", [0]) * count


@dataclass(slots=True)
class RunRecord:
    """One replica's run. Columns have an entry for each request; a time that has not come is -1.

    input_len, output_len: tokens of prompt and answer, as they were sent.
    Times of a request: arrival_s at the server, ready_s at the engine (the front end's work is between), start_s when
    its first step starts, first_s and last_s when its first and last token are made. preemptions: how often it lost
    its cache. prefix_hit: prompt tokens that the cache held when it was first admitted. refused: requests that can
    never run, with the reason.

    gaps: between tokens, from the arrival of request `warmup` on; warmup_gaps: before. Sums over the run: steps,
    prompt_steps (those with a prompt), busy_s (seconds of steps), output_tokens, decode_tokens (of these the ones that
    decodes made; prompts made the others), prompt_tokens (computed, those of preempted requests again),
    verified (sequences x steps in which they verified drafts),
    recomputed_tokens (of these the ones that had been computed before), hit_tokens (the sum of prefix_hit; what a
    request that gave way finds again is in neither), finished, running_s and waiting_s
    (requests x seconds, waiting from ready_s on), used_block_s (blocks x seconds); limits: seconds in which requests
    waited, by what kept the first of them out. end_s: of the last step. most_running, most_used_blocks: largest
    in any step; most_waiting: when a step is scheduled.

    Of a fleet: replica: where each request went. transfer_s: from the first token of a request until its cache was
    where it decodes; -1 where it was not sent, None without two pools. parts: the record of each replica, whose
    columns, gaps and refusals are the fleet's; name, number: of its pool, and in it; from_s, until_s: when it began and
    ceased to be there.
    """

    input_len: Sequence[int]
    output_len: Sequence[int]
    arrival_s: array[float]
    ready_s: array[float]
    start_s: array[float]
    first_s: array[float]
    last_s: array[float]
    preemptions: array[int]
    prefix_hit: array[int]
    replica: array[int]
    total_blocks: int = 0
    block_size: int = 1
    warmup: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    gaps: Gaps = field(default_factory=Gaps)
    warmup_gaps: Gaps = field(default_factory=Gaps)
    samples: Samples = field(default_factory=Samples)
    steps: int = 0
    prompt_steps: int = 0
    busy_s: float = 0.0
    output_tokens: int = 0
    decode_tokens: int = 0
    prompt_tokens: int = 0
    verified: int = 0
    recomputed_tokens: int = 0
    hit_tokens: int = 0
    finished: int = 0
    running_s: float = 0.0
    waiting_s: float = 0.0
    used_block_s: float = 0.0
    limits: dict[str, float] = field(default_factory=dict)
    end_s: float = 0.0
    most_running: int = 0
    most_waiting: int = 0
    most_used_blocks: int = 0
    transfer_s: array[float] | None = None
    parts: tuple[RunRecord, ...] = ()
    name: str = ""
    number: int = 0
    from_s: float = 0.0
    until_s: float = inf

    @classmethod
    def of(
        cls, input_len: Sequence[int], output_len: Sequence[int], *, warmup: int = 0, samples: int = Samples.MOST
    ) -> RunRecord:
        """An empty record of requests with these prompts and answers. warmup: the first request that is measured.
        samples: of the state over time, at most.
        """
        count = len(input_len)
        arrival_s, ready_s, start_s, first_s, last_s = (_floats(count) for _ in range(5))
        return cls(
            input_len=input_len, output_len=output_len, arrival_s=arrival_s, ready_s=ready_s, start_s=start_s,
            first_s=first_s, last_s=last_s, preemptions=_numbers(count), prefix_hit=_numbers(count),
            replica=_numbers(count), warmup=warmup, samples=Samples(samples),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.arrival_s)

    def join_queue(self, ready_s: float, now_s: float, queue: int) -> None:
        """A request that was ready joins a queue, then of so many."""
        self.waiting_s += now_s - ready_s
        if queue > self.most_waiting:
            self.most_waiting = queue
        states = self.samples.states
        if states and states[-1][0] > ready_s:
            self.samples.wait_since(ready_s)

    def part(self, name: str = "") -> RunRecord:
        """An empty record of one replica of the fleet that this is the record of."""
        return RunRecord(
            input_len=self.input_len, output_len=self.output_len, arrival_s=self.arrival_s, ready_s=self.ready_s,
            start_s=self.start_s, first_s=self.first_s, last_s=self.last_s, preemptions=self.preemptions,
            prefix_hit=self.prefix_hit, replica=self.replica, warmup=self.warmup, refused=self.refused, gaps=self.gaps,
            warmup_gaps=self.warmup_gaps, samples=Samples(self.samples.most), name=name or self.name,
        )  # fmt: skip

    def add_up(self, parts: Sequence[RunRecord]) -> None:
        """The sums of a fleet's replicas; what runs and waits at once is at most the sum of their largest."""
        self.parts = tuple(parts)
        for name in SUMS:
            setattr(self, name, sum(getattr(part, name) for part in parts))
        self.end_s, self.block_size = max(part.end_s for part in parts), parts[0].block_size
        for part in parts:
            for reason, seconds in part.limits.items():
                self.limits[reason] = self.limits.get(reason, 0.0) + seconds


SUMS = (
    "steps", "prompt_steps", "busy_s", "output_tokens", "decode_tokens", "prompt_tokens", "recomputed_tokens",
    "hit_tokens", "finished", "running_s", "waiting_s", "used_block_s", "verified", "most_running", "most_waiting",
    "most_used_blocks", "total_blocks",
)  # fmt: skip
"""What of a fleet is the sum over its replicas."""
