"""Requests that a server is sent: when each arrives, how long its prompt and answer are, what its prompt shares.

`Requests` holds them as columns in order of arrival; `Arrivals` hands them out while a simulation runs, for open loops
(each at its time), closed loops (the next when one has finished) and conversations (the next turn after the answer
before it) alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

Run = tuple[int, int]
"""A run of tokens: its identity, and how many. Equal identities stand after equal runs and are equal tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What prompts share. runs: of each prompt, from its first token on; their tokens add up to the prompt's length.
    answers: the identity of each answer as a run of later prompts; -1 where none continues it. block: tokens of one
    run where prefixes were recorded in whole blocks; 0 where runs are exact.
    """

    runs: Sequence[tuple[Run, ...]]
    answers: Sequence[int]
    block: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Columns, one entry per request, in order of arrival. arrival_s: seconds from the start; with `concurrency` or a
    turn before, the earliest time. concurrency: requests (or conversations) in flight at most. after: the request
    whose answer must have ended, or -1; think_s: seconds between that end and the arrival. prompts: what they share;
    None where nothing is. ignore_eos: whether they ask for every token that they may make.
    """

    arrival_s: Sequence[float]
    input_len: Sequence[int]
    output_len: Sequence[int]
    concurrency: int | None = None
    after: Sequence[int] | None = None
    think_s: Sequence[float] | None = None
    prompts: Prompts | None = None
    ignore_eos: bool = False

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def waits(self) -> bool:
        """Whether some arrive when others have ended."""
        return self.concurrency is not None or self.after is not None


class Arrivals:
    """Hands out requests in order of time. `next_s` is when the next one arrives; infinite where that depends on one
    that still runs, or none is left. Equal times: the lower number first.
    """

    __slots__ = ("_due", "_free_s", "_next_turn", "_open", "_roots", "_sent", "_think", "_times", "_unused",
                 "next_s")  # fmt: skip

    def __init__(self, requests: Requests) -> None:
        after = requests.after
        self._times = requests.arrival_s
        self._roots: Sequence[int] = (
            range(len(requests)) if after is None else [i for i, a in enumerate(after) if a < 0]
        )
        self._next_turn = {} if after is None else {a: i for i, a in enumerate(after) if a >= 0}
        self._think = requests.think_s
        self._unused = requests.concurrency or len(requests) + 1  # places that no request has had
        self._free_s: list[float] = []  # when each of the others that is free became so
        self._sent = 0
        self._due: list[tuple[float, int]] = []
        self._open = requests.concurrency is None and after is None  # nobody waits for another
        self.next_s = self._root_s() if requests else inf

    def pop(self) -> int:
        """The number of the request that arrives at `next_s`. Raises IndexError where none does."""
        if self.next_s == inf:
            raise IndexError("no request arrives")
        if self._open:
            index = self._sent
            self._sent += 1
            self.next_s = self._times[self._sent] if self._sent < len(self._times) else inf
            return index
        first = self._root_s()
        if self._due and self._due[0] < (first, self._roots[self._sent] if first < inf else 0):
            index = heappop(self._due)[1]
        else:
            index = self._roots[self._sent]
            self._sent += 1
            if self._unused:
                self._unused -= 1
            else:
                heappop(self._free_s)
        self.next_s = min(self._root_s(), self._due[0][0]) if self._due else self._root_s()
        return index

    def complete(self, index: int, now_s: float) -> None:
        """The answer of a request has ended, or it was refused: its next turn, or another in its place, may come."""
        if self._open:
            return
        turn = self._next_turn.get(index)
        if turn is not None:
            think = 0.0 if self._think is None else self._think[turn]
            heappush(self._due, (max(now_s + think, self._times[turn]), turn))
        else:
            heappush(self._free_s, now_s)
        self.next_s = min(self._root_s(), self._due[0][0]) if self._due else self._root_s()

    def _root_s(self) -> float:
        """When the next request that follows no other arrives."""
        if self._sent == len(self._roots) or not (self._unused or self._free_s):
            return inf
        time = self._times[self._roots[self._sent]]
        return time if self._unused else max(time, self._free_s[0])
