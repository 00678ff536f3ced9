"""One replica of an engine: its clock and its loop of steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from archsim.serving.decoding import Decoding, step_after_step
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler

if TYPE_CHECKING:
    from archsim.serving.step_times import StepTimes


class Arriving(Protocol):
    """Requests as they reach the engine. next_s: when the next one does; infinite where that depends on one that still
    runs, or none is left.
    """

    @property
    def next_s(self) -> float: ...

    def pop(self) -> int:
        """The request that arrives at `next_s`."""
        ...

    def complete(self, index: int, now_s: float) -> None:
        """A request has ended, or was refused."""
        ...


class Replica:
    """Runs the requests that arrive, step after step. now_s: end of the last step.

    Of equal times a completion comes first, then an arrival, then the next step is scheduled. An engine that schedules
    ahead (`Policy.ahead`) decides a step when the one before it starts: requests that arrive later, and places of
    requests that end with it, wait for the step after.

    one_by_one: ask the scheduler for every step, also where it could only say that the same requests decode on.
    """

    __slots__ = ("_ahead", "_decoding", "_horizon_s", "_next_sample", "_one_by_one", "_queued", "arrivals", "now_s",
                 "record", "scheduler", "times")  # fmt: skip

    def __init__(self, scheduler: Scheduler, times: StepTimes, arrivals: Arriving, *, one_by_one: bool = False) -> None:
        self.scheduler, self.times, self.arrivals, self._one_by_one = scheduler, times, arrivals, one_by_one
        self.record: RunRecord = scheduler.record
        self._decoding = times.decoding if isinstance(times, Decoding) else partial(step_after_step, times)
        self._ahead = scheduler.policy.ahead
        self.now_s = self._horizon_s = 0.0
        self._next_sample = self.record.samples.first
        self._queued = 0  # requests that waited when the last step was scheduled
        if self.record.warmup:
            scheduler.gaps = self.record.warmup_gaps

    @property
    def schedulers(self) -> Sequence[Scheduler]:
        """The one."""
        return (self.scheduler,)

    @property
    def since_s(self) -> float:
        """As of `Engine`: steps are run to their ends."""
        return self.now_s

    def idle_until(self, to_s: float) -> None:
        """Nothing could run up to a time: it goes on from there."""
        if self.now_s < to_s:
            self._wait(to_s)

    def _wait(self, to_s: float) -> None:
        """Nothing runs up to a time; requests may wait for room that others outside still take."""
        self.record.waiting_s += len(self.scheduler.waiting) * (to_s - self.now_s)
        self.now_s = self._horizon_s = to_s

    def run(self, until_s: float = inf) -> None:
        """Steps until all requests have ended, or up to the first one that would start at `until_s` or later."""
        scheduler, arrivals = self.scheduler, self.arrivals
        while self.now_s < until_s:
            if arrivals.next_s <= self._horizon_s:
                self._take_arrivals()
            if scheduler.steady and not self._one_by_one and self._decode_on(until_s):
                continue
            self._queued = len(scheduler.waiting)
            if scheduler.schedule():
                self._step()
            elif scheduler.release() or self._horizon_s < self.now_s:
                self._horizon_s = self.now_s
            elif arrivals.next_s < until_s:
                self._wait(arrivals.next_s)
            else:
                return

    def _take_arrivals(self) -> None:
        """Requests that have arrived by the time that the step is scheduled join the queue."""
        scheduler, arrivals, record, late = self.scheduler, self.arrivals, self.record, 0
        while (ready_s := arrivals.next_s) <= self._horizon_s:
            request = arrivals.pop()
            record.ready_s[request] = ready_s
            if record.arrival_s[request] < 0:  # no front end has noted an earlier time
                record.arrival_s[request] = ready_s
            if request == record.warmup:
                scheduler.gaps = record.gaps
            reason = scheduler.add(request)
            if reason is None:
                # of a step that was scheduled ahead, it waited beside those that were admitted to the next one
                late = late + 1 if self._ahead else 0
                record.join_queue(ready_s, self.now_s, max(len(scheduler.waiting), self._queued + late))
            else:
                record.refused[request] = reason
                arrivals.complete(request, ready_s)

    def _step(self) -> None:
        """The step that was scheduled."""
        scheduler, record, start_s = self.scheduler, self.record, self.now_s
        seconds = self.times.seconds(scheduler.decodes, scheduler.context, scheduler.chunks)
        used = record.total_blocks - scheduler.cache.free
        self._count(1, seconds, used * seconds, used)
        if scheduler.prompts:
            record.prompt_steps += 1
            for request in scheduler.started:
                record.start_s[request] = start_s
        self.now_s = record.end_s = end_s = start_s + seconds
        self._horizon_s = start_s if self._ahead else end_s
        for request in scheduler.complete(end_s):
            self.arrivals.complete(request, end_s)
        if record.steps >= self._next_sample:
            self._sample(used)

    def _decode_on(self, until_s: float) -> bool:
        """Steps in which the requests that run decode on and nothing else happens, in stretches: each until some of
        them end, a request arrives that could change the step, blocks run out, or the next sample is due. False where
        there is none.
        """
        scheduler, record, cache, gaps = self.scheduler, self.record, self.scheduler.cache, self.scheduler.gaps
        need, ending, block, total, ahead = scheduler.need, scheduler.ending, cache.block, cache.total, self._ahead
        weights, arrivals, n, before = gaps.weights, self.arrivals, 0, record.steps
        while True:
            if n != scheduler.n:
                n = scheduler.n
                step_s = self._decoding(n, scheduler.cached).__next__
            tick, free, due, next_s = scheduler.tick, cache.free, scheduler.due, arrivals.next_s
            begin_s = now_s = self.now_s
            start_s, (index, low, high), used_s = self._horizon_s, gaps.like, 0.0
            first_tick, most = tick, tick + self._next_sample - record.steps
            while tick < most and now_s < until_s and next_s > (start_s if ahead else now_s):
                blocks = need[-tick % block]
                if blocks > free:
                    break
                start_s = now_s
                now_s += step_s()
                free -= blocks
                used = total - free
                tick += 1
                gap = now_s - start_s
                used_s += used * gap
                if not low <= gap <= high:
                    index, low, high = gaps.find(gap)
                weights[index] += n
                if due:  # they leave with this step
                    cache.take(cache.free - free)
                    scheduler.release(tick)
                    free, due = cache.free, False
                if tick in ending:
                    break
            steps, span_s = tick - first_tick, now_s - begin_s
            if not steps:
                break
            gaps.total_s += n * span_s
            cache.take(cache.free - free)
            self._count(steps, span_s, used_s, used)
            self.now_s = record.end_s = now_s
            self._horizon_s = start_s if ahead else now_s
            for request in scheduler.pass_steps(steps, now_s):
                arrivals.complete(request, now_s)
            if record.steps >= self._next_sample:
                self._sample(used)
            if not scheduler.steady:
                break
        if record.steps == before:
            return False
        self._queued = len(scheduler.waiting)
        return True

    def _count(self, steps: int, seconds: float, used_block_s: float, used: int) -> None:
        """Steps of the same running and waiting requests."""
        scheduler, record = self.scheduler, self.record
        running = scheduler.active
        record.steps += steps
        record.busy_s += seconds
        record.running_s += running * seconds
        record.used_block_s += used_block_s
        if scheduler.waiting:
            waiting = len(scheduler.waiting)
            record.waiting_s += waiting * seconds
            if waiting > record.most_waiting:  # some gave way
                record.most_waiting = waiting
            record.limits[scheduler.blocked] = record.limits.get(scheduler.blocked, 0.0) + seconds
        if running > record.most_running:
            record.most_running = running
        if used > record.most_used_blocks:
            record.most_used_blocks = used

    def _sample(self, used: int) -> None:
        """The state now."""
        record = self.record
        record.samples.add(self.now_s, record, self.scheduler.active, len(self.scheduler.waiting), used)
        self._next_sample = record.steps + record.samples.stride
