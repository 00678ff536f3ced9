"""The front end of a server: HTTP, templates and tokenizer, which requests pass before they reach the engine."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from archsim.base.errors import UsageError
from archsim.serving.engine import Arriving
from archsim.serving.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """CPU seconds of a request and of each of its prompt tokens, and how many workers share them. wait_s: that each
    request waits beside that while nobody works. line_s: that each takes alone, one after the other.
    """

    request_s: float = 0.0
    token_s: float = 0.0
    workers: int = 1
    wait_s: float = 0.0
    line_s: float = 0.0

    def __post_init__(self) -> None:
        if not (min(self.request_s, self.token_s, self.wait_s, self.line_s) >= 0 and self.workers >= 1):
            raise UsageError(f"a front end takes no negative time and has at least one worker, not {self!r}")

    @property
    def nothing(self) -> bool:
        """Whether it takes no time."""
        return not (self.request_s or self.token_s or self.wait_s or self.line_s)

    def seconds(self, prompt: int) -> float:
        """Of one request with a prompt of so many tokens, where no other is before it."""
        return self.request_s + self.token_s * prompt + self.wait_s + self.line_s


NO_FRONT_END = FrontEnd()
"""Requests reach the engine when they arrive."""


class FrontQueue:
    """Requests in order of arrival, each served by the first worker that is free, then one after the other; they reach
    the engine when that is done. next_s, pop, complete: as of `Arriving`, at the engine.
    """

    __slots__ = ("_arrivals", "_front", "_line_s", "_ready", "_record", "_workers")

    def __init__(self, arrivals: Arriving, front: FrontEnd, record: RunRecord) -> None:
        self._arrivals, self._front, self._record = arrivals, front, record
        self._workers = [0.0] * front.workers  # when each is free, as a heap
        self._line_s = 0.0  # when the line is empty
        self._ready: list[tuple[float, int]] = []

    @property
    def next_s(self) -> float:
        """When the next request reaches the engine."""
        self._serve()
        return self._ready[0][0] if self._ready else inf

    def pop(self) -> int:
        """The request that reaches the engine at `next_s`."""
        self._serve()
        return heappop(self._ready)[1]

    def complete(self, index: int, now_s: float) -> None:
        """A request has ended, or was refused: others may arrive."""
        self._arrivals.complete(index, now_s)

    def _serve(self) -> None:
        """All that arrive before the next one is done."""
        arrivals, ready, front = self._arrivals, self._ready, self._front
        while arrivals.next_s < inf and (not ready or arrivals.next_s <= ready[0][0]):
            arrived_s = arrivals.next_s
            request = arrivals.pop()
            if self._record.arrival_s[request] < 0:  # no router has noted an earlier time
                self._record.arrival_s[request] = arrived_s
            seconds = front.request_s + front.token_s * self._record.input_len[request]
            done_s = max(arrived_s, heappop(self._workers)) + seconds
            heappush(self._workers, done_s)
            if front.line_s:
                done_s = self._line_s = max(done_s, self._line_s) + front.line_s
            heappush(ready, (done_s + front.wait_s, request))
