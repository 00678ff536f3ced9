"""Stages of a pipeline: as many batches in flight as there are stages, from one queue and one cache.

A batch is scheduled when there are fewer in flight than stages; those that decode in it stay together, and are
scheduled again when it has left the last stage. The next chunk of a long prompt may go with the batch behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from archsim.serving.cache import Cache
from archsim.serving.engine import Arriving
from archsim.serving.expected_answers import ExpectedRoom
from archsim.serving.policy import Policy
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler

if TYPE_CHECKING:
    from archsim.serving.step_times import StepTimes


class StageScheduler(Scheduler):
    """Schedules one of the batches in flight; the queue, those that run and partial prompts are common to all.

    seats: requests of this batch at most; 0: as many as may run in all batches.
    """

    __slots__ = ("_batches", "_seats")

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord, seats: int = 0) -> None:
        super().__init__(policy, cache, record)
        self._seats = seats
        self._batches: Sequence[StageScheduler] = (self,)

    @classmethod
    def batches(
        cls, policy: Policy, cache: Cache, record: RunRecord, stages: int, *, split: bool = False
    ) -> list[StageScheduler]:  # fmt: skip
        """Those of a pipeline. split: whether each has an equal part of the sequences, not all together."""
        rules, seats = replace(policy, ahead=0), max(1, policy.max_seqs // stages) if split else 0
        found = [cls(rules, cache, record, seats) for _ in range(stages)]
        first = found[0]
        for other in found:
            other._batches = found
            other.waiting, other.running, other.partial = first.waiting, first.running, first.partial
            other._computed, other._made, other._paused_s = first._computed, first._made, first._paused_s
            if not isinstance(first._admission, ExpectedRoom):
                other._admission = first._admission
        return found

    @property
    def idle(self) -> bool:
        """Whether it has no requests of its own."""
        return not self.n

    def steps_to_end(self) -> int:
        """As of `Scheduler`; a prompt in flight may end with its step."""
        return 1 if self._full else super().steps_to_end()

    def _most_running(self) -> int:
        if not self._seats:
            return self.policy.max_seqs
        return len(self.running) + self._seats - self.n - len(self.prompts)

    def _open(self, room: ExpectedRoom) -> None:
        super()._open(room)
        if self.idle:
            room.leave(-1)  # a batch of nobody is not full

    def _owner(self, request: int) -> Scheduler:
        for batch in self._batches:
            if request in batch._joined or request in batch._full:
                return batch
        return self


class Pipeline:
    """One replica of several stages. A step takes as long on each of them, and waits for the step before it there.

    now_s: when a batch last left the pipeline, or a request arrived at an idle one. since_s: when the oldest batch in
    flight entered it.
    """

    __slots__ = ("_flying", "_free_s", "_idle", "_next_sample", "arrivals", "now_s", "record", "schedulers", "times")

    def __init__(self, batches: Sequence[StageScheduler], times: StepTimes, arrivals: Arriving) -> None:
        self.schedulers, self.times, self.arrivals = batches, times, arrivals
        self.record: RunRecord = batches[0].record
        self.now_s, self._next_sample = 0.0, self.record.samples.first
        self._free_s = [0.0] * len(batches)  # when each stage has nothing to do
        self._flying: deque[tuple[float, float, StageScheduler]] = deque()  # (end, beginning, batch)
        self._idle = list(batches)
        if self.record.warmup:
            for batch in batches:
                batch.gaps = self.record.warmup_gaps

    @property
    def since_s(self) -> float:
        """As of `Engine`."""
        return self._flying[0][1] if self._flying else self.now_s

    def idle_until(self, to_s: float) -> None:
        """As of `Replica`."""
        if self.now_s < to_s and not self._flying:
            self.now_s = to_s

    def run(self, until_s: float = inf) -> None:
        """As of `Replica`."""
        arrivals = self.arrivals
        while self.now_s < until_s:
            while arrivals.next_s <= self.now_s:
                self._take_arrival()
            self._fill()
            if self._flying:
                self._complete()
            elif arrivals.next_s < until_s:
                self.now_s = arrivals.next_s
            else:
                return

    def _take_arrival(self) -> None:
        """The next request joins the queue."""
        record, ready_s, first = self.record, self.arrivals.next_s, self.schedulers[0]
        request = self.arrivals.pop()
        record.ready_s[request] = ready_s
        if record.arrival_s[request] < 0:
            record.arrival_s[request] = ready_s
        if request == record.warmup:
            for batch in self.schedulers:
                batch.gaps = record.gaps
        reason = first.add(request)
        if reason is None:
            record.join_queue(ready_s, self.now_s, len(first.waiting))
        else:
            record.refused[request] = reason
            self.arrivals.complete(request, ready_s)

    def _fill(self) -> None:
        """Schedule batches until none has anything to do, or all are in flight; the one that ended last comes first."""
        idle, first = self._idle, self.schedulers[0]
        for batch in tuple(idle):
            if (not batch.idle or first.waiting or first.partial) and batch.schedule():
                idle.remove(batch)
                self._send(batch)

    def _send(self, batch: StageScheduler) -> None:
        """A batch enters the first stage as soon as that is free."""
        record, stages = self.record, self._free_s
        each = self.times.seconds(batch.decodes, batch.context, batch.chunks) / len(stages)
        end_s = self.now_s
        for stage, free_s in enumerate(stages):
            end_s = stages[stage] = max(end_s, free_s) + each
        self._flying.append((end_s, self.now_s, batch))
        for request in batch.started:
            record.start_s[request] = self.now_s
        record.steps += 1
        record.prompt_steps += bool(batch.prompts)

    def _complete(self) -> None:
        """The oldest batch leaves the pipeline."""
        end_s, _, batch = self._flying.popleft()
        used = self._count(end_s - self.now_s)
        self.now_s = self.record.end_s = end_s
        for request in batch.complete(end_s):
            self.arrivals.complete(request, end_s)
        self._idle.insert(0, batch)
        if self.record.steps >= self._next_sample:
            self.record.samples.add(end_s, self.record, len(batch.running), len(batch.waiting), used)
            self._next_sample = self.record.steps + self.record.samples.stride

    def _count(self, seconds: float) -> int:
        """What the record keeps of a stretch in which nothing ends; blocks in use."""
        record, first = self.record, self.schedulers[0]
        used = record.total_blocks - first.cache.free
        record.busy_s += seconds
        record.running_s += len(first.running) * seconds
        record.used_block_s += used * seconds
        record.most_running = max(record.most_running, len(first.running))
        record.most_used_blocks = max(record.most_used_blocks, used)
        if first.waiting:
            record.waiting_s += len(first.waiting) * seconds
            record.most_waiting = max(record.most_waiting, len(first.waiting))
            blocked = next((batch.blocked for batch in self.schedulers if batch.blocked), "")
            record.limits[blocked] = record.limits.get(blocked, 0.0) + seconds
        return used
