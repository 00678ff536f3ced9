"""Replicas of the attention that share experts: each batches its own requests, and all of them step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol

from archsim.base.errors import UsageError
from archsim.serving.engine import Arriving
from archsim.serving.random_numbers import Stream
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
"""A request that waits counts as so many that run (vLLM's `DPLBAsyncMPClient`)."""


class RankLoads:
    """What an engine knows of its ranks. requests, tokens: of each rank, sent there and not ended, and those of their
    prompts.
    """

    __slots__ = ("ranks", "requests", "tokens")

    def __init__(self, ranks: Sequence[Scheduler]) -> None:
        self.ranks = ranks
        self.requests, self.tokens = [0] * len(ranks), [0] * len(ranks)

    def count(self, rank: int, requests: int, tokens: int) -> None:
        """A request joins a rank, or leaves it."""
        self.requests[rank] += requests
        self.tokens[rank] += tokens


class RankRule(Protocol):
    """Sends requests to ranks."""

    def choose(self, request: int, loads: RankLoads) -> int:
        """The rank of a request. Requests come in order of arrival, each once."""
        ...


class RanksInTurn:
    """Each in turn (`round_robin_scheduler` of SGLang's `data_parallel_controller.py`)."""

    def __init__(self) -> None:
        self._sent = -1

    def choose(self, request: int, loads: RankLoads) -> int:
        """The one after the last."""
        self._sent += 1
        return self._sent % len(loads.ranks)


class RandomRank:
    """Any, with equal chances: SGLang's `bootstrap_room`, a number that the proxy draws, modulo the ranks
    (`follow_bootstrap_room_scheduler`).
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def choose(self, request: int, loads: RankLoads) -> int:
        """By the request's own number."""
        return int(self._stream.uniform(request) * len(loads.ranks))


class FewestRequests:
    """The first with the fewest, those that wait counted four times (vLLM)."""

    def choose(self, request: int, loads: RankLoads) -> int:
        """By what runs and waits now."""
        counts = [WAITING_WEIGHT * rank.queued + rank.active for rank in loads.ranks]
        return counts.index(min(counts))


class FewestTokens:
    """Of the ranks with fewer requests than the fullest has, or any where all have as many, the one with the fewest
    prompt tokens (`_balance_requests_across_ranks` of TensorRT-LLM's `executor_request_queue.py`).
    """

    def choose(self, request: int, loads: RankLoads) -> int:
        """By what has been sent and has not ended."""
        requests, tokens = loads.requests, loads.tokens
        most = max(-(-(sum(requests) + 1) // len(requests)), max(requests))
        rows = [(tokens[rank], count, rank) for rank, count in enumerate(requests) if count < most]
        return min(rows)[2]


def rank_rule(name: str, stream: Stream) -> RankRule:
    """The rule that an engine document names, for one run."""
    return RandomRank(stream) if name == "random" else RULES[name]()


RULES: Mapping[str, type[RanksInTurn | FewestRequests | FewestTokens]] = {
    "round_robin": RanksInTurn, "fewest_requests": FewestRequests, "fewest_tokens": FewestTokens,
}  # fmt: skip
"""Name of a rule without draws -> its class."""


class Gang:
    """Data-parallel ranks of one engine. They wait for each other in every step; a rank without requests takes part. A
    request goes to the rank that a rule chooses when it arrives, and stays there.

    The ranks' schedulers write one record. now_s: end of the last step. one_by_one: ask every rank for every step, also
    where it could only say that the same requests decode on.
    """

    __slots__ = (
        "_horizon_s", "_late", "_loads", "_next_sample", "_one_by_one", "_queued", "_rank_of", "_rule",
        "arrivals", "now_s", "ranks", "record", "seconds",
    )  # fmt: skip

    def __init__(
        self, ranks: Sequence[Scheduler], seconds: GangSeconds, arrivals: Arriving, rule: RankRule | None = None, *,
        one_by_one: bool = False,
    ) -> None:  # fmt: skip
        if len({id(rank.record) for rank in ranks}) != 1:
            raise UsageError("the ranks of a gang write one record")
        self.ranks, self.seconds, self.arrivals, self.record = ranks, seconds, arrivals, ranks[0].record
        self._one_by_one = one_by_one
        self._rule, self._loads = rule or FewestRequests(), RankLoads(ranks)
        self._rank_of: dict[int, int] = {}
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
            if self._schedule():
                self._step()
            elif sum(rank.release() for rank in self.ranks) or self._horizon_s < self.now_s:
                self._horizon_s = self.now_s
            elif arrivals.next_s < until_s:
                self._wait(arrivals.next_s)
            else:
                return

    def _schedule(self) -> bool:
        """The next step of every rank; False where none has anything to compute. Ranks whose step is of the same
        requests as before are not asked.
        """
        found = False
        for rank in self.ranks:
            if (not self._one_by_one and rank.same and rank.decode_on()) or rank.schedule():
                found = True
        return found

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
        if request not in self._rank_of:  # else its cache arrives where it has room
            chosen = self._rank_of[request] = self._rule.choose(request, self._loads)
            self._loads.count(chosen, 1, record.input_len[request])
        reason = self.ranks[self._rank_of[request]].add(request)
        if reason is None:
            self._late += self.ranks[0].policy.ahead
            record.join_queue(ready_s, self.now_s, max(sum(map(_waiting, self.ranks)), self._queued + self._late))
        else:
            record.refused[request] = reason
            self._complete(request, ready_s)

    def _complete(self, request: int, now_s: float) -> None:
        """A request has left its rank."""
        self._loads.count(self._rank_of.pop(request), -1, -self.record.input_len[request])
        self.arrivals.complete(request, now_s)

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
                self._complete(request, end_s)
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
