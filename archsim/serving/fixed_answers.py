"""Admission of requests that ignore the end-of-sequence token: their answers are as long as they may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from archsim.serving.cache import Cache
from archsim.serving.expected_answers import Answer, ExpectedAnswers, ExpectedRoom

RESERVED = 1
"""Tokens that each request keeps free beside its own (`IGNORE_EOS_RESERVE_TOKENS`)."""


class FixedRoom(ExpectedRoom):
    """SGLang's `add_one_req_ignore_eos` (`managers/schedule_policy.py` of 0.5.23), of servers without a prefix cache.

    All answers are expected whole. Requests end in the order of what they have left, and each gives its room back; a
    request is admitted where at every one of these ends those that still run have room to come so far.

    clock: (tokens left, tokens held) of those that run and of those that the step admits, the next to end first; None
    until the step's first request is tried.
    """

    def __init__(
        self, rule: ExpectedAnswers, cache: Cache, input_len: Sequence[int], output_len: Sequence[int],
        made: dict[int, int], answers: Callable[[], Iterable[Answer]],
    ) -> None:  # fmt: skip
        super().__init__(rule, cache, output_len, made, answers)
        self._input_len = input_len
        self.share = 1.0
        self._clock: list[Answer] | None = None
        self._admitted: list[int] = []

    def open(self, continues: Iterable[tuple[int, bool]]) -> None:
        """As of `ExpectedRoom`."""
        goes_on = list(continues)
        super().open(goes_on)
        self._clock, self._admitted = None, [request for request, _ in goes_on]

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether the prompt has room now, and nobody runs out of it before others end."""
        if self._full:
            return False
        block = self.cache.block
        paged = -(-(tokens - hit) // block) * block + block
        free = self.cache.free * block
        self._full = paged > free - self._promised or not self._lasts(request, free - paged)
        return not self._full

    def _lasts(self, request: int, free: float) -> bool:
        """Whether the tokens that are free beside a request's prompt last until it and all others have ended."""
        own = self._state(request)
        if self._clock is None:
            self._clock = sorted([own, *self._answers(), *map(self._state, self._admitted)])
        else:  # before the first that ends no earlier; at least before the last one
            ends = [i for i, (left, _) in enumerate(self._clock) if own[0] <= left]
            self._clock.insert(ends[0] if ends else max(len(self._clock) - 1, 0), own)
        free -= self.cache.block * len(self._admitted)
        for i, (left, held) in enumerate(self._clock):
            running = len(self._clock) - i
            if free - left * running <= RESERVED * running:
                return False
            free += held
        return True

    def admit(self, request: int, ends: bool = True) -> None:
        """As of `ExpectedRoom`."""
        super().admit(request, ends)
        self._admitted.append(request)

    def decode(self, steps: int) -> None:
        """All of the answers are expected, whatever has been decoded."""

    def preempt(self, made: Sequence[int], answers: Sequence[int]) -> None:
        """As of `decode`."""

    def empty(self, idle: bool) -> None:
        """As of `decode`; the batch has room again."""
        self._full = False

    def _state(self, request: int) -> Answer:
        """Tokens that a request which does not decode has left, and those that it holds."""
        made = self._made.get(request, 0)
        return self._output_len[request] - made, self._input_len[request] + made
