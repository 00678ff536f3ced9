"""Replicas of the attention that share experts: each batches its own requests, and all of them step together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from archsim.base.errors import UsageError
from archsim.serving.engine import Arriving
from archsim.serving.scheduler import Chunk, Scheduler

if TYPE_CHECKING:
    from archsim.serving.step_times import StepTimes

RankStep = tuple[int, int, Sequence[Chunk]]
"""What a rank does in a step: (decodes, their cached tokens, chunks); nothing, where it has no requests."""

GangSeconds = Callable[[Sequence[RankStep]], float]
"""Seconds of a step of all ranks."""


def slowest(times: StepTimes) -> GangSeconds:
    """Every rank waits for the slowest."""
    return lambda ranks: max(times.seconds(*rank) for rank in ranks if rank[0] or rank[2])


WAITING_WEIGHT = 4
"""A request that waits counts as so many that run, where the next one is sent (vLLM's `DPLBAsyncMPClient`)."""


class Gang:
    """Data-parallel ranks of one engine. They wait for each other in every step; a rank without requests takes part. A
    request goes to the rank with the fewest, those that wait counted four times, and stays there.

    The ranks' schedulers write one record. now_s: end of the last step.
    """

    __slots__ = ("_horizon_s", "_late", "_next_sample", "_queued", "arrivals", "now_s", "ranks", "record", "seconds")

    def __init__(self, ranks: Sequence[Scheduler], seconds: GangSeconds, arrivals: Arriving) -> None:
        if len({id(rank.record) for rank in ranks}) != 1:
            raise UsageError("the ranks of a gang write one record")
        self.ranks, self.seconds, self.arrivals, self.record = ranks, seconds, arrivals, ranks[0].record
        self.record.total_blocks = sum(rank.cache.total for rank in ranks)
        self.now_s = self._horizon_s = 0.0
        self._next_sample = self.record.samples.first
        self._queued = self._late = 0  # that waited when the last step was scheduled, and that have joined since
        if self.record.warmup:
            for rank in ranks:
                rank.gaps = self.record.warmup_gaps

    @property
    def schedulers(self) -> Sequence[Scheduler]:
        """Of all ranks."""
        return self.ranks

    @property
    def since_s(self) -> float:
        """As of `Engine`: steps are run to their ends."""
        return self.now_s

    def idle_until(self, to_s: float) -> None:
        """As of `Replica`."""
        if self.now_s < to_s:
            self._wait(to_s)

    def _wait(self, to_s: float) -> None:
        """Nothing runs up to a time; requests may wait for room that others outside still take."""
        self.record.waiting_s += sum(map(_waiting, self.ranks)) * (to_s - self.now_s)
        self.now_s = self._horizon_s = to_s

    def run(self, until_s: float = inf) -> None:
        """As of `Replica`."""
        arrivals = self.arrivals
        while self.now_s < until_s:
            while arrivals.next_s <= self._horizon_s:
                self._take_arrival()
            self._queued, self._late = sum(map(_waiting, self.ranks)), 0
            if sum(rank.schedule() for rank in self.ranks):
                self._step()
            elif sum(rank.release() for rank in self.ranks) or self._horizon_s < self.now_s:
                self._horizon_s = self.now_s
            elif arrivals.next_s < until_s:
                self._wait(arrivals.next_s)
            else:
                return

    def _take_arrival(self) -> None:
        """The next request joins the queue of a rank."""
        record, ready_s = self.record, self.arrivals.next_s
        request = self.arrivals.pop()
        record.ready_s[request] = ready_s
        if record.arrival_s[request] < 0:
            record.arrival_s[request] = ready_s
        if request == record.warmup:
            for rank in self.ranks:
                rank.gaps = record.gaps
        expecting = [rank for rank in self.ranks if rank.expects(request)]
        reason = min(expecting or self.ranks, key=_requests).add(request)
        if reason is None:
            self._late += self.ranks[0].policy.ahead
            record.join_queue(ready_s, self.now_s, max(sum(map(_waiting, self.ranks)), self._queued + self._late))
        else:
            record.refused[request] = reason
            self.arrivals.complete(request, ready_s)

    def _step(self) -> None:
        """The step that was scheduled, on all ranks."""
        record, start_s = self.record, self.now_s
        for rank in self.ranks:
            for request in rank.started:
                record.start_s[request] = start_s
        seconds = self.seconds([(rank.decodes, rank.context, rank.chunks) for rank in self.ranks])
        used = self._count(seconds)
        self.now_s = record.end_s = end_s = start_s + seconds
        self._horizon_s = start_s if self.ranks[0].policy.ahead else end_s
        for rank in self.ranks:
            for request in rank.complete(end_s):
                self.arrivals.complete(request, end_s)
        if record.steps >= self._next_sample:
            running, waiting = (sum(map(count, self.ranks)) for count in (_active, _waiting))
            record.samples.add(end_s, record, running, waiting, used)
            self._next_sample = record.steps + record.samples.stride

    def _count(self, seconds: float) -> int:
        """What the record keeps of a step; blocks in use."""
        record, ranks = self.record, self.ranks
        running, waiting = (sum(map(count, ranks)) for count in (_active, _waiting))
        used = record.total_blocks - sum(rank.cache.free for rank in ranks)
        record.steps += 1
        record.prompt_steps += any(rank.prompts for rank in ranks)
        record.busy_s += seconds
        record.running_s += running * seconds
        record.waiting_s += waiting * seconds
        record.most_waiting = max(record.most_waiting, waiting)
        record.used_block_s += used * seconds
        for rank in ranks:
            if rank.waiting:
                record.limits[rank.blocked] = record.limits.get(rank.blocked, 0.0) + seconds / len(ranks)
        record.most_running = max(record.most_running, running)
        record.most_used_blocks = max(record.most_used_blocks, used)
        return used


def _active(rank: Scheduler) -> int:
    return rank.active


def _waiting(rank: Scheduler) -> int:
    return len(rank.waiting)


def _requests(rank: Scheduler) -> int:
    """How full a rank is, for the next request."""
    return WAITING_WEIGHT * len(rank.waiting) + rank.active
