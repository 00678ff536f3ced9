"""Which replica of a fleet a request is sent to: one class per rule.

A router knows what a proxy in front of the replicas knows: which requests it sent where and which of them have ended,
how long their prompts are (not how long their answers will be), and, with `prefix`, what the replicas' caches hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.serving.load import Requests
from archsim.serving.random_numbers import Stream


@dataclass(slots=True)
class Loads:
    """What a router sees, one entry for each replica that takes requests. replicas: their numbers; entries: the entry
    of each number. in_flight: requests sent and not ended; tokens: of their prompts. hit: tokens of a request's prompt
    that a replica's cache holds, by (entry, request).
    """

    replicas: list[int] = field(default_factory=list)
    entries: dict[int, int] = field(default_factory=dict)
    in_flight: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    hit: Callable[[int, int], int] = lambda entry, request: 0

    def __len__(self) -> int:
        return len(self.replicas)


class Router(Protocol):
    """Sends requests to replicas. looks: whether the choice depends on what has become of earlier requests."""

    looks: bool

    def choose(self, request: int, loads: Loads) -> int:
        """The entry of `loads` that gets a request. Requests come in order of arrival, each once."""
        ...


class RoundRobin:
    """Each in turn."""

    looks = False

    def __init__(self) -> None:
        self._sent = -1

    def choose(self, request: int, loads: Loads) -> int:
        """The one after the last."""
        self._sent += 1
        return self._sent % len(loads)


class Random:
    """Any, with equal chances."""

    looks = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def choose(self, request: int, loads: Loads) -> int:
        """By the request's own number."""
        return int(self._stream.uniform(request) * len(loads))


class LeastRequests:
    """The one with the fewest requests in flight; of equals, each in turn."""

    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: int, loads: Loads) -> int:
        """The first with the fewest, from the one after the last choice on."""
        chosen = least(loads.in_flight, self._next)
        self._next = chosen + 1
        return chosen


class LeastTokens:
    """The one with the fewest prompt tokens of requests in flight; of equals, each in turn."""

    looks = True

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: int, loads: Loads) -> int:
        """The first with the fewest, from the one after the last choice on."""
        chosen = least(loads.tokens, self._next)
        self._next = chosen + 1
        return chosen


def least(values: Sequence[int], start: int) -> int:
    """The place of the least value, the first from `start` on, round the end."""
    smallest = min(values)
    try:
        return values.index(smallest, start)
    except ValueError:
        return values.index(smallest)


class TwoChoices:
    """Of two at random, the one with fewer requests in flight (Mitzenmacher, 2001); of equals the first."""

    looks = True

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def choose(self, request: int, loads: Loads) -> int:
        """The better of the request's own two."""
        count = len(loads)
        first = int(self._stream.uniform(2 * request) * count)
        if count == 1:
            return first
        second = int(self._stream.uniform(2 * request + 1) * (count - 1))
        second += second >= first
        return second if loads.in_flight[second] < loads.in_flight[first] else first


class Session:
    """A conversation stays where its first request went, which is any with equal chances; a hash of the session does
    the same. Where its replica is gone it moves.
    """

    looks = False

    def __init__(self, stream: Stream, after: Sequence[int] | None) -> None:
        self._stream, self._after = stream, after
        self._replica: dict[int, int] = {}  # of the last request of a conversation

    def choose(self, request: int, loads: Loads) -> int:
        """The replica of the turn before."""
        before = -1 if self._after is None else self._after[request]
        chosen = loads.entries.get(self._replica.pop(before, -1), -1)
        if chosen < 0:
            chosen = int(self._stream.uniform(request) * len(loads))
        if self._after is not None:
            self._replica[request] = loads.replicas[chosen]
        return chosen


class Prefix:
    """The one with the least work: prompt tokens in flight, and `weight` times those of this prompt that its cache does
    not hold. Only replicas that were sent a prompt which begins alike, and the one with the fewest tokens, can be it.
    """

    looks = True

    def __init__(self, weight: float, requests: Requests) -> None:
        self._weight, self._requests = weight, requests
        self._sent: dict[int, dict[int, None]] = {}  # identity of a prompt's first run -> replicas
        self._next = 0

    def choose(self, request: int, loads: Loads) -> int:
        """The first with the least cost; of equals, the one with the fewest tokens in flight."""
        chosen = least(loads.tokens, self._next)
        self._next = chosen + 1
        first = self._first_run(request)
        if first < 0:
            return chosen
        sent = self._sent.setdefault(first, {})
        lowest = self._cost(chosen, request, loads)
        for replica in sent:
            entry = loads.entries.get(replica, -1)
            if entry >= 0 and (cost := self._cost(entry, request, loads)) < lowest:
                chosen, lowest = entry, cost
        sent[loads.replicas[chosen]] = None
        return chosen

    def _first_run(self, request: int) -> int:
        prompts = self._requests.prompts
        return -1 if prompts is None or not prompts.runs[request] else prompts.runs[request][0][0]

    def _cost(self, entry: int, request: int, loads: Loads) -> float:
        new = self._requests.input_len[request] - loads.hit(entry, request)
        return loads.tokens[entry] + self._weight * new


@dataclass(frozen=True, slots=True)
class Routing:
    """The rule that `--router` names, with its weight."""

    name: str = "round-robin"
    weight: float = 1.0

    def __str__(self) -> str:
        return self.name if self.weight == 1 else f"{self.name}:{self.weight:g}"

    def router(self, requests: Requests, stream: Stream) -> Router:
        """A router for one run."""
        return ROUTERS[self.name](self, requests, stream)


ROUTERS: Mapping[str, Callable[[Routing, Requests, Stream], Router]] = {
    "round-robin": lambda rule, requests, stream: RoundRobin(),
    "random": lambda rule, requests, stream: Random(stream),
    "least-requests": lambda rule, requests, stream: LeastRequests(),
    "least-tokens": lambda rule, requests, stream: LeastTokens(),
    "two-choices": lambda rule, requests, stream: TwoChoices(stream),
    "prefix": lambda rule, requests, stream: Prefix(rule.weight, requests),
    "session": lambda rule, requests, stream: Session(stream, requests.after),
}
"""Name of a rule -> its router."""


def parse_router(text: str) -> Routing:
    """What `--router` says. Raises UsageError."""
    name, _, weight = str(text).strip().partition(":")
    if name not in ROUTERS or (weight and name != "prefix"):
        raise UsageError(f"`--router`: {quote(text)} is no rule", hints=(f"one of {', '.join(ROUTERS)}; prefix:W",))
    if not weight:
        return Routing(name)
    try:
        value = float(weight)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and 0 <= value <= 1e6):
        raise UsageError(f"`--router`: the weight of {quote(text)} is not a number from 0 to 1,000,000")
    return Routing(name, value)
