"""Prompts computed by some replicas, answers made by others: two pools, and the links that caches travel on.

A request's prompt is computed, with its first token, by a replica of the first pool. One of the second pool takes room
for the prompt's cache, in order, before or after that; the cache travels; and the request decodes. The replica that
decodes answers the client: it sends the first token on when it takes the request into its batch, between two steps.
Until the cache has arrived its blocks stay taken on the first side as well. A request that loses its cache on the
second side computes it again there.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter

from archsim.serving.acceptance import AcceptedDrafts
from archsim.serving.admission import DecodeRoom
from archsim.serving.cache import Cache
from archsim.serving.engine import Arriving
from archsim.serving.fleet import Fleet, Member, Pool
from archsim.serving.policy import Policy
from archsim.serving.record import Gaps, RunRecord
from archsim.serving.scheduler import Scheduler
from archsim.serving.speculative_scheduler import SpeculativeScheduler

RESERVED, ARRIVED = 1, 2
"""Kinds of events: the second side has room for a cache; a cache has arrived there."""


class PrefillScheduler(Scheduler):
    """Computes prompts and keeps their blocks until their caches have been sent.

    whole: requests whose answers are one token, which are sent nowhere.
    """

    __slots__ = ("_kept", "_sent", "whole")

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord, whole: Sequence[bool] = ()) -> None:
        super().__init__(policy, cache, record)
        self.whole = whole
        self._kept: set[int] = set()
        self._sent: set[int] = set()

    def _most_running(self) -> int:
        """Those whose caches have not been sent may hold places as well."""
        return self.policy.max_seqs - (len(self._kept) if self.policy.pools.sent_run else 0)

    def _leave(self, request: int) -> None:
        if self.whole[request] or request in self._sent:
            self._sent.discard(request)
            super()._leave(request)
            return
        self.running.pop(request, None)
        self._made.pop(request, None)
        self._kept.add(request)
        self.blocked = ""

    def holds(self, request: int) -> bool:
        """Whether its prompt was computed here and is still here."""
        return request in self._kept or request in self.running

    def sent(self, request: int) -> None:
        """Its cache has arrived where it decodes, or nobody takes it."""
        if request in self._kept:
            self._kept.discard(request)
            super()._leave(request)
        else:
            self._sent.add(request)


class DecodeScheduler(Scheduler):
    """Takes room for prompts that were computed elsewhere, and decodes them when their caches have arrived.

    incoming: those without room, in order. reserve: is called with each that gets it.
    """  # without __slots__: classes with slots of their own cannot be joined

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord) -> None:
        super().__init__(policy, cache, record)
        self._expect_none()

    def _expect_none(self) -> None:
        """Nothing is on its way."""
        self.incoming: deque[int] = deque()
        self.reserve: Callable[[int], None] = lambda request: None
        self._arrived: deque[int] = deque()
        self._reserved: set[int] = set()
        self._stuck = False
        self._room: DecodeRoom | None = None
        pools, record = self.policy.pools, self.record
        if pools.reserve is not None:
            self._admission = self._room = DecodeRoom(
                pools.reserve, pools.longest, self.cache, record.input_len, record.output_len, self._made
            )
            self._expected = None

    @property
    def queued(self) -> int:
        """With those that want room, and those whose caches travel."""
        return len(self.waiting) + len(self.incoming) + len(self._reserved) + len(self._arrived)

    def add(self, request: int) -> str | None:
        """A request comes twice: when it wants room, and when its cache has arrived."""
        if request in self._reserved:
            self._reserved.discard(request)
            self._arrived.append(request)
            return None
        reason = super().add(request)
        if reason is None:
            self.waiting.pop()
            self.incoming.append(request)
        return reason

    @property
    def same(self) -> bool:
        """As of `Scheduler`; requests that want room get none before another ends."""
        return super().same and not self._arrived and (not self.incoming or (self._stuck and self._settled))

    @property
    def _settled(self) -> bool:
        """Also whether what is kept for those that decode does not become less."""
        return super()._settled and (self._room is None or self._room.settled)

    def schedule(self) -> bool:
        """The next step; what room it leaves is for those that want it."""
        while self._arrived and len(self.running) + self._kept_places < self.policy.max_seqs:
            self._start(self._arrived.popleft())
        if self._room is not None and self.waiting:
            self._room.open(self._placed, 0, ())
        found = super().schedule()
        self._stuck = False
        if self.incoming:
            self._open_room()
        while self.incoming and not self._stuck:
            self._stuck = not self._take_room(self.incoming[0])
        return found

    @property
    def _placed(self) -> int:
        """Requests that have room."""
        return len(self.running) + len(self._reserved) + len(self._arrived)

    def _open_room(self) -> None:
        """What those that have room keep of it."""
        if self._room is not None:
            self._room.open(self._placed, self.cached + self.n, tuple(self._joined))
        elif self._expected is not None:
            self._expected.open([(request, True) for request in (*self._reserved, *self._arrived)])

    def _has_place(self) -> bool:
        """Whether one more may have room, whatever the cache holds."""
        places = self.policy.places
        return len(self.running) < self.policy.max_seqs if places is None else self._placed < places

    def withdraw(self, request: int) -> None:
        """It has room here, and its prompt was refused."""
        if request in self._reserved:
            self._reserved.discard(request)
            tokens = self.record.input_len[request]
            self.cache.give_way(request, tokens, 0)
            self._admission.leave(request)
            self._stuck = False

    def _leave(self, request: int) -> None:
        super()._leave(request)
        self._stuck = False  # what it held is free

    def _start(self, request: int) -> None:
        """A request whose prompt and first token are here decodes from the next step on; the client sees that token."""
        record = self.record
        record.first_s[request] = max(record.ready_s[request], self._token_s)
        self.running[request] = None
        self._made[request], self._joined[request] = 1, self.tick
        self._begin_decode(request, record.input_len[request], record.output_len[request] - 1)
        self._behind.append((record.first_s[request], 1))

    def _take_room(self, request: int) -> bool:
        """Blocks for a whole prompt; those that have lost theirs come first."""
        tokens = self.record.input_len[request]
        if self.waiting or not self._has_place() or not self._admission.fits(request, 0, tokens):
            return False
        if not self.cache.admit(request, 0, tokens):
            return False
        self._admission.admit(request)
        self.incoming.popleft()
        self._reserved.add(request)
        self.reserve(request)
        return True


class SpeculativeDecodeScheduler(DecodeScheduler, SpeculativeScheduler):
    """As `DecodeScheduler`; its decodes verify drafts."""

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord, accepts: AcceptedDrafts, drafts: int) -> None:
        SpeculativeScheduler.__init__(self, policy, cache, record, accepts, drafts)
        self._expect_none()


@dataclass(slots=True)
class Transfer:
    """A cache on its way. left: bytes at `since_s`; rate: bytes per second since then."""

    sender: int
    receiver: int
    left: float
    since_s: float
    rate: float = 0.0
    end_s: float = inf


class Links:
    """Transfers between two pools. A replica sends, and one receives, at most so many bytes per second, in equal shares
    for each of its transfers; a transfer is as fast as the smaller share. transfers: those under way.
    """

    def __init__(self, send: float, receive: float) -> None:
        self.send, self.receive = send, receive
        self.transfers: dict[int, Transfer] = {}
        self._of: dict[tuple[str, int], dict[int, None]] = {}

    def sending(self, sender: int) -> int:
        """Transfers of a replica that are under way."""
        return len(self._of.get(("send", sender), ()))

    def start(self, request: int, sender: int, receiver: int, size: float, now_s: float) -> list[int]:
        """A transfer begins: requests whose transfers end at another time than was known."""
        self.transfers[request] = Transfer(sender, receiver, size, now_s)
        for end in (("send", sender), ("receive", receiver)):
            self._of.setdefault(end, {})[request] = None
        return self._share(sender, receiver, now_s)

    def finish(self, request: int, now_s: float) -> list[int]:
        """A transfer has ended: as of `start`."""
        done = self.transfers.pop(request)
        for end in (("send", done.sender), ("receive", done.receiver)):
            del self._of[end][request]
        return self._share(done.sender, done.receiver, now_s)

    def _share(self, sender: int, receiver: int, now_s: float) -> list[int]:
        """The shares at both ends are divided anew."""
        touched = self._of["send", sender] | self._of["receive", receiver]
        for request in touched:
            one = self.transfers[request]
            if one.rate < inf:
                one.left = max(0.0, one.left - one.rate * (now_s - one.since_s))
            one.since_s = now_s
            one.rate = min(self.send / len(self._of["send", one.sender]),
                           self.receive / len(self._of["receive", one.receiver]))  # fmt: skip
            one.end_s = now_s + (one.left / one.rate if one.left else 0.0)
        return list(touched)


class DecodePool(Pool):
    """Replicas that decode: they show when they have room, at once."""

    def first_sign_s(self, member: Member, request: int, at_s: float) -> float:
        return nextafter(max(at_s, member.engine.now_s), inf)

    def next_sign_s(self, member: Member, until_s: float) -> float:
        engine = member.engine
        known = super().next_sign_s(member, until_s)
        pending = max(engine.arrivals.next_s, engine.now_s)
        if engine.now_s >= until_s and any(isinstance(s, DecodeScheduler) and s.incoming for s in engine.schedulers):
            pending = engine.now_s
        return min(known, nextafter(pending, inf))


class DisaggregatedFleet(Fleet):
    """Two pools. size: bytes of the cache of a prompt of so many tokens. layers: parts in which a cache is sent, each
    when it is computed; 1: all of it when the prompt is. room_first: whether room for a prompt's cache is taken before
    the prompt is sent to the first pool; else when it is computed. computed_s: when prompts were; transfer_s: from then
    until the cache has arrived; -1 where it was not sent.
    """

    def __init__(self, arrivals: Arriving, record: RunRecord, prefill: Pool, decode: Pool, counts: tuple[int, int],
                 links: Links, size: Callable[[int], float], *, layers: int = 1, room_first: bool = False,
                 delay_s: float = 0.0) -> None:  # fmt: skip
        super().__init__(arrivals, prefill, counts[0], delay_s=delay_s, waits=True)
        self.record, self.decode, self.links, self.size, self.layers = record, decode, links, size, layers
        self.computed_s = array("d", [-1.0]) * len(record)
        self.transfer_s = record.transfer_s = array("d", [-1.0]) * len(record)
        self.room_first = room_first
        self._prefilled_by: dict[int, Member] = {}
        self._receiver: dict[int, Member] = {}  # that has room, or is asked for it, before the prompt is computed
        decode.samples = self.pool.samples
        for _ in range(counts[1]):
            member = decode.build(self.note_end)
            decode.add(member)
            for scheduler in member.engine.schedulers:
                assert isinstance(scheduler, DecodeScheduler)
                scheduler.reserve = self._reservation(member)

    def _reservation(self, member: Member) -> Callable[[int], None]:
        return lambda request: self.note(member.engine.now_s, RESERVED, request, member)

    def everyone(self) -> Sequence[Member]:
        """Those that compute prompts, then those that decode."""
        return [*self.pool.members, *self.decode.members]

    def happen(self, kind: int, request: int, member: Member) -> None:
        """An event, now."""
        if kind == RESERVED and request in self._receiver:
            super().dispatch(request, self.now_s)
        elif kind == RESERVED:
            self._send_cache(request, member)
        elif kind == ARRIVED:
            self._arrive(request)
        elif member.pool is self.pool:
            self._go_on(request, member)
        else:
            if request in self._prefilled_by and request in self.record.refused:
                self._release(request)
            self.end(request, member)

    def dispatch(self, request: int, at_s: float) -> None:
        """A request goes to a replica for prompts, or first to one that takes room for its cache."""
        if not self.room_first or self.record.output_len[request] == 1:
            super().dispatch(request, at_s)
        else:
            self._receiver[request] = self._ask_room(request, at_s)

    def _ask_room(self, request: int, at_s: float) -> Member:
        """A replica for answers is asked for room."""
        receiver = self.decode.choose(request)
        self.decode.record.replica[request] = receiver.number
        self.send(request, receiver, at_s)
        return receiver

    def _send_cache(self, request: int, receiver: Member) -> None:
        """The prompt is computed, and there is room for its cache."""
        sender = self._prefilled_by[request]
        size = self._left_to_send(request, sender)
        self._note_ends(self.links.start(request, sender.number, receiver.number, size, self.now_s), receiver)

    def _left_to_send(self, request: int, sender: Member) -> float:
        """Bytes of a cache that are not sent yet when room for it is known. Layers are sent while the prompt runs where
        room is asked for as it begins: it is then known that much earlier. The last layer is never sent before.
        """
        record, size = self.record, self.size(self.record.input_len[request])
        done_s = self.computed_s[request]
        ahead_s = max(0.0, (done_s - record.start_s[request]) - (self.now_s - done_s)) if self.layers > 1 else 0.0
        rate = min(self.links.send / (1 + self.links.sending(sender.number)), self.links.receive)
        return max(size / self.layers, size - rate * ahead_s) if ahead_s else size

    def end(self, request: int, member: Member) -> None:
        """A request has ended, or was refused."""
        member.pool.ended(request, member)
        self.arrivals.complete(request, self.now_s)

    def _go_on(self, request: int, member: Member) -> None:
        """A prompt is computed."""
        self.computed_s[request] = self.record.first_s[request]
        receiver = self._receiver.pop(request, None)
        if request in self.record.refused:
            if receiver is not None:
                self._withdraw(request, receiver)
            self.end(request, member)
        elif self.record.output_len[request] == 1:
            self.record.last_s[request] = self.now_s
            self.end(request, member)
        else:
            member.pool.ended(request, member)
            self._prefilled_by[request] = member
            if receiver is None:
                self._ask_room(request, self.now_s)
            else:
                self._send_cache(request, receiver)

    def _withdraw(self, request: int, receiver: Member) -> None:
        """A request whose prompt was refused needs no room."""
        self.advance(receiver, self.now_s)
        for scheduler in receiver.engine.schedulers:
            assert isinstance(scheduler, DecodeScheduler)
            scheduler.withdraw(request)
        receiver.pool.ended(request, receiver)
        self.wake(receiver, receiver.pool.next_sign_s(receiver, self.now_s))

    def _note_ends(self, requests: Sequence[int], member: Member) -> None:
        """When transfers end; what was noted before is out of date."""
        for request in requests:
            self.note(self.links.transfers[request].end_s, ARRIVED, request, member)

    def _arrive(self, request: int) -> None:
        """A cache may have arrived: it decodes, and its blocks on the first side are free."""
        transfer = self.links.transfers.get(request)
        if transfer is None or transfer.end_s != self.now_s:
            return
        receiver = self.decode.members[transfer.receiver]
        self._note_ends(self.links.finish(request, self.now_s), receiver)
        self.transfer_s[request] = self.now_s - self.computed_s[request]
        self._release(request)
        self.send(request, receiver, self.now_s)

    def _release(self, request: int) -> None:
        """The blocks of a prompt on the first side."""
        sender = self._prefilled_by.pop(request)
        self.advance(sender, self.now_s)
        for scheduler in sender.engine.schedulers:
            assert isinstance(scheduler, PrefillScheduler)
            if scheduler.holds(request):
                scheduler.sent(request)
        sender.engine.idle_until(self.now_s)
        self.wake(sender, sender.pool.next_sign_s(sender, self.now_s))

    def finish(self) -> None:
        """The sums of both pools; what is sent on has not ended on the first side."""
        super().finish()
        self.record.finished = sum(1 for time in self.record.last_s if time >= 0)


def pool_records(record: RunRecord) -> tuple[RunRecord, RunRecord]:
    """The records of both pools of a run: the first makes one token of each answer. Columns that both would write are
    their own.
    """
    count = len(record)
    prefill = replace(
        record.part("prefill"), output_len=array("q", [1]) * count, last_s=array("d", [-1.0]) * count, gaps=Gaps(),
        warmup_gaps=Gaps(),
    )  # fmt: skip
    arrival_s, ready_s, start_s = (array("d", [-1.0]) * count for _ in range(3))
    decode = replace(record.part("decode"), arrival_s=arrival_s, ready_s=ready_s, start_s=start_s,
                     replica=array("q", [-1]) * count)  # fmt: skip
    return prefill, decode
