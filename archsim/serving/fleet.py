"""Several replicas behind a router. Each runs by itself; it is run up to a moment only when something that happens then
depends on it: a router that looks, a request that arrives when another has ended, a scaling rule.

Nothing of a replica can be seen from outside before one of its requests ends. Its earliest such moment is bounded from
below by the steps that are left and the shortest step; replicas stand in a heap by that bound, and one that is not at
its head is not touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, nextafter
from typing import Protocol

from archsim.base.errors import UsageError
from archsim.serving.engine import Arriving
from archsim.serving.record import RunRecord, Samples
from archsim.serving.routers import Loads, Router, Routing
from archsim.serving.scheduler import Scheduler

ENDED = 0
"""Kind of event: a request has ended. Of equal times the lower kind comes first."""


FEWEST_SAMPLES = 16
"""Of the state of a replica over time, in a large fleet."""

ROUND_ROBIN = Routing()

SHORTEST = 0.9
"""Of the time of a step with one short request, that no step takes less than."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRule:
    """How many replicas there are (see `autoscaling.py`): within least..most as keeps a signal at its target."""

    least: int
    most: int
    signal: str
    target: float
    delay_s: float = 0.0
    every_s: float = 15.0
    down_s: float = 300.0

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,} by {self.signal} = {self.target:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """How many replicas, and how requests get to them. decode_replicas: those that make answers alone; the others then
    compute prompts alone. delay_s: of the router, for each request. scaling: where their number changes; replicas are
    then the fewest.
    """

    replicas: int = 1
    decode_replicas: int = 0
    routing: Routing = ROUND_ROBIN
    delay_s: float = 0.0
    scaling: ScalingRule | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MOST_REPLICAS or not 0 <= self.decode_replicas <= MOST_REPLICAS:
            raise UsageError(f"`--replicas` is a number from 1 to {MOST_REPLICAS:,}, not {self.replicas!r}")
        if not 0 <= self.delay_s < inf:
            raise UsageError(f"`--router-delay` is a number of seconds, not {self.delay_s!r}")

    @property
    def alone(self) -> bool:
        """Whether it is one replica, as if there were no router."""
        return self.replicas == 1 and not (self.delay_s or self.decode_replicas or self.scaling)


MOST_REPLICAS = 10_000


class Engine(Protocol):
    """One replica, or ranks that step together."""

    now_s: float
    record: RunRecord

    @property
    def arrivals(self) -> Arriving: ...
    @property
    def schedulers(self) -> Sequence[Scheduler]: ...
    @property
    def since_s(self) -> float:
        """When the oldest step that is under way began; `now_s` where none is."""
        ...

    def run(self, until_s: float = inf) -> None: ...
    def idle_until(self, to_s: float) -> None: ...


class Inbox:
    """Requests that a replica has been sent, as of `Arriving`. ended: is called with each that has ended."""

    __slots__ = ("_ended", "_sent", "next_s")

    def __init__(self, ended: Callable[[int, float], None]) -> None:
        self._ended = ended
        self._sent: deque[tuple[float, int]] = deque()
        self.next_s = inf

    def send(self, request: int, at_s: float) -> None:
        """A request arrives at a time, not before those that were sent earlier."""
        if not self._sent:
            self.next_s = at_s
        self._sent.append((at_s, request))

    def pop(self) -> int:
        """The request that arrives at `next_s`."""
        request = self._sent.popleft()[1]
        self.next_s = self._sent[0][0] if self._sent else inf
        return request

    def complete(self, index: int, now_s: float) -> None:
        """A request has ended, or was refused."""
        self._ended(index, now_s)


EngineOf = Callable[[RunRecord, Arriving], Engine]
"""Makes a replica that writes a record and takes what arrives."""


class Member:
    """A replica of a fleet. entry: its place among those that take requests; -1: it takes none. in_flight, tokens:
    requests sent and not ended, and those of their prompts. wake_s: before it nothing of the replica can be seen.
    """

    __slots__ = ("engine", "entry", "in_flight", "inbox", "number", "pool", "record", "tokens", "wake_s")

    def __init__(self, pool: Pool, number: int, engine: Engine, inbox: Inbox) -> None:
        self.pool, self.number, self.engine, self.inbox, self.record = pool, number, engine, inbox, engine.record
        self.entry, self.in_flight, self.tokens, self.wake_s = -1, 0, 0, inf

    def steps_to_end(self) -> int:
        """Steps of which only the last can end a request; 0 where there is none."""
        counts = [steps for one in self.engine.schedulers if (steps := one.steps_to_end())]
        return min(counts, default=0)


class Pool:
    """Replicas that are alike behind a router. shortest_s: no step of theirs takes less. record: of the whole pool;
    every replica has a part of it. samples: of the state of a replica over time, at most.
    """

    def __init__(self, record: RunRecord, engine: EngineOf, router: Router, shortest_s: float) -> None:
        self.record, self.router, self.shortest_s = record, router, shortest_s
        self._engine = engine
        self.samples = Samples.MOST
        self.members: list[Member] = []
        self.loads = Loads(hit=self.hit)

    def add(self, member: Member) -> None:
        """A replica takes requests from now on."""
        member.entry = len(self.loads)
        self.loads.replicas.append(member.number)
        self.loads.entries[member.number] = member.entry
        self.loads.in_flight.append(member.in_flight)
        self.loads.tokens.append(member.tokens)

    def remove(self, member: Member) -> None:
        """It takes no more."""
        loads = self.loads
        for column in (loads.replicas, loads.in_flight, loads.tokens):
            del column[member.entry]
        member.entry = -1
        loads.entries = {number: entry for entry, number in enumerate(loads.replicas)}
        for number, entry in loads.entries.items():
            self.members[number].entry = entry

    def build(self, ended: Callable[[int, float, Member], None], from_s: float = 0.0) -> Member:
        """One replica more, which takes no requests yet."""
        inbox = Inbox(lambda request, now_s: ended(request, now_s, member))
        part = self.record.part()
        part.samples.most = min(self.samples, part.samples.most)
        part.from_s, part.number = from_s, len(self.members)
        member = Member(self, len(self.members), self._engine(part, inbox), inbox)
        self.members.append(member)
        return member

    def first_sign_s(self, member: Member, request: int, at_s: float) -> float:
        """Before when nothing can be seen of a request that arrives at a time."""
        steps = self.record.output_len[request]
        return max(at_s, member.engine.now_s) + steps * self.shortest_s

    def next_sign_s(self, member: Member, until_s: float) -> float:
        """Before when nothing can be seen of a replica that has run up to a moment."""
        engine = member.engine
        sign_s = max(engine.arrivals.next_s, engine.now_s) + self.shortest_s
        if engine.now_s >= until_s and (steps := member.steps_to_end()):
            end_s = engine.since_s + steps * self.shortest_s
            sign_s = min(sign_s, max(end_s, nextafter(engine.now_s, inf)))
        return sign_s

    def choose(self, request: int) -> Member:
        """The replica that a request is sent to."""
        number = self.loads.replicas[self.router.choose(request, self.loads)]
        member = self.members[number]
        self._count(member, 1, self.record.input_len[request])
        return member

    def ended(self, request: int, member: Member) -> None:
        """A request has left its replica."""
        self._count(member, -1, -self.record.input_len[request])

    def _count(self, member: Member, requests: int, tokens: int) -> None:
        member.in_flight += requests
        member.tokens += tokens
        if member.entry >= 0:
            self.loads.in_flight[member.entry] = member.in_flight
            self.loads.tokens[member.entry] = member.tokens

    def hit(self, entry: int, request: int) -> int:
        """Tokens of a prompt that the cache of a replica holds."""
        schedulers = self.members[self.loads.replicas[entry]].engine.schedulers
        prompt = self.record.input_len[request]
        return max(scheduler.cache.prefix(request, prompt) for scheduler in schedulers)


class Fleet:
    """Runs requests on the replicas of a pool. delay_s: of the router, for each request. waits: whether arrivals depend
    on requests that have ended.

    Of equal times, replicas run first, then requests end, then they arrive.
    """

    def __init__(
        self, arrivals: Arriving, pool: Pool, count: int, *, delay_s: float = 0.0, waits: bool = False
    ) -> None:
        self.arrivals, self.pool, self.record, self.delay_s = arrivals, pool, pool.record, delay_s
        self.watched = waits or (pool.router.looks and count > 1)
        self.now_s, self.measuring = 0.0, False
        self._events: list[tuple[float, int, int, int, Member]] = []
        self._wakes: list[tuple[float, int, Member]] = []  # by time; those that were changed since stay in it
        self._drawn = 0
        pool.samples = max(FEWEST_SAMPLES, 2 * Samples.MOST // count)
        for _ in range(count):
            pool.add(pool.build(self.note_end))

    # ------------------------------------------------------------------------------------------ the loop
    def run(self) -> None:
        """Until all requests have ended."""
        while True:
            wake_s, event_s, arrival_s = (
                self._wake_s(),
                self._events[0][0] if self._events else inf,
                self.next_arrival_s,
            )
            if wake_s <= event_s and wake_s <= arrival_s and wake_s < inf:
                self.now_s, _, member = heappop(self._wakes)
                member.wake_s = inf
                self.advance(member, wake_s)
            elif event_s <= arrival_s and event_s < inf:
                self.now_s, kind, _, request, member = heappop(self._events)
                self.happen(kind, request, member)
            elif arrival_s < inf:
                self.now_s = arrival_s
                self.route()
            else:
                break
        self.finish()

    def finish(self) -> None:
        """What nobody looked at runs, and the sums are made."""
        for member in self.everyone():
            member.engine.run()
        self.record.add_up([member.record for member in self.everyone()])

    @property
    def next_arrival_s(self) -> float:
        """When the next request arrives."""
        return self.arrivals.next_s

    def everyone(self) -> Sequence[Member]:
        """All replicas, those that are gone among them."""
        return self.pool.members

    def happen(self, kind: int, request: int, member: Member) -> None:
        """An event, now."""
        self.end(request, member)

    def end(self, request: int, member: Member) -> None:
        """A request has ended, or was refused."""
        self.pool.ended(request, member)
        self.arrivals.complete(request, self.now_s)

    def route(self) -> None:
        """The request that arrives now goes to a replica."""
        request, record = self.arrivals.pop(), self.record
        record.arrival_s[request] = self.now_s
        if request == record.warmup and request:
            self.measuring = True
            self._measure_from_here()
        self.dispatch(request, self.now_s + self.delay_s)

    def dispatch(self, request: int, at_s: float) -> None:
        """A request is sent to a replica, where it arrives at a time."""
        member = self.pool.choose(request)
        self.record.replica[request] = member.number
        self.send(request, member, at_s)

    def send(self, request: int, member: Member, at_s: float) -> None:
        """A request arrives at a replica."""
        member.inbox.send(request, at_s)
        if self.watched:
            self.wake(member, min(member.wake_s, member.pool.first_sign_s(member, request, at_s)))

    # ------------------------------------------------------------------------------------------ replicas over time
    def note_end(self, request: int, at_s: float, member: Member) -> None:
        """A replica says that a request ends at a time."""
        if self.watched:
            self.note(at_s, ENDED, request, member)

    def note(self, at_s: float, kind: int, request: int, member: Member) -> None:
        """Something will happen."""
        self._drawn += 1
        heappush(self._events, (at_s, kind, self._drawn, request, member))

    def advance(self, member: Member, until_s: float) -> None:
        """Run a replica up to a moment."""
        engine = member.engine
        engine.run(until_s)
        if self.watched:
            self.wake(member, member.pool.next_sign_s(member, until_s))

    def wake(self, member: Member, at_s: float) -> None:
        """Look at a replica at a time, and not before."""
        if at_s != member.wake_s:
            member.wake_s = at_s
            if at_s < inf:
                self._drawn += 1
                heappush(self._wakes, (at_s, self._drawn, member))

    def _wake_s(self) -> float:
        """When the next replica must be looked at."""
        wakes = self._wakes
        while wakes and wakes[0][0] != wakes[0][2].wake_s:
            heappop(wakes)
        return wakes[0][0] if wakes else inf

    def look(self) -> None:
        """Every replica runs up to now."""
        for member in self.everyone():
            self.advance(member, self.now_s)

    def _measure_from_here(self) -> None:
        """Gaps between tokens count from now on, at all replicas; the one that gets the request sees to itself."""
        if len(self.everyone()) > 1:
            self.look()
            for member in self.everyone():
                self.measured(member)

    def measured(self, member: Member) -> None:
        """Gaps of a replica count."""
        for scheduler in member.engine.schedulers:
            scheduler.gaps = member.record.gaps
