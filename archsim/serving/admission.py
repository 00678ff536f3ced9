"""How much of the cache must be free before a request is admitted: one class per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from archsim.serving.cache import Cache
from archsim.serving.expected_answers import Answer, ExpectedRoom
from archsim.serving.fixed_answers import FixedRoom
from archsim.serving.policy import Policy


class Admission(Protocol):
    """Decides whether the cache has room for the first request that waits, beyond the blocks of its next chunk."""

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether a request of `tokens` (its prompt, and the answer so far), `hit` of them cached, may start."""
        ...

    def admit(self, request: int, ends: bool = True) -> None:
        """It has started; ends: with all of its prompt."""
        ...

    def leave(self, request: int) -> None:
        """It has ended, or gave way."""
        ...


class ChunkRoom:
    """The blocks of the next chunk are enough; requests give way where they turn out not to be."""

    def __init__(self, cache: Cache, watermark: float = 0.0) -> None:
        self.cache = cache
        self.least = int(watermark * cache.total)

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Always: that of the chunk is seen to when its blocks are handed out."""
        return True

    def admit(self, request: int, ends: bool = True) -> None:
        """Nothing is kept."""

    def leave(self, request: int) -> None:
        """Nothing is kept."""


class PromptRoom(ChunkRoom):
    """The whole prompt, and a share of all blocks beyond it."""

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether so many blocks are free."""
        return self.cache.room(request, hit, tokens) + self.least <= self.cache.free


class AnswerRoom:
    """The whole prompt and answer of every request that runs: nothing ever gives way."""

    def __init__(self, cache: Cache, input_len: Sequence[int], output_len: Sequence[int]) -> None:
        self.input_len, self.output_len, self.block = input_len, output_len, cache.block
        self.left = cache.total

    def _blocks(self, request: int) -> int:
        return -(-(self.input_len[request] + self.output_len[request] - 1) // self.block)

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether so many blocks are promised to nobody."""
        return self._blocks(request) <= self.left

    def admit(self, request: int, ends: bool = True) -> None:
        """Its blocks are promised."""
        self.left -= self._blocks(request)

    def leave(self, request: int) -> None:
        """They are free again."""
        self.left += self._blocks(request)


class DecodeRoom:
    """Of servers that make answers alone: SGLang's `DecodePreallocQueue` (`disaggregation/decode.py`, 0.5.3 and 0.5.8).

    A prompt takes room for itself and `reserve` tokens, where as many are kept for each request that decodes or whose
    cache is on its way, and where the longest of those that decode could make its whole answer, at most `longest`
    tokens of it, if all others gave way.

    settled: a request that had no room has none before another leaves, however much others decode meanwhile.
    """

    def __init__(
        self,
        reserve: int,
        longest: int,
        cache: Cache,
        input_len: Sequence[int],
        output_len: Sequence[int],
        made: dict[int, int],
    ) -> None:
        self.reserve, self.longest, self.cache = reserve, longest, cache
        self._input_len, self._output_len, self._made = input_len, output_len, made
        self._left, self._held, self._alone = 0, 0, True
        self._shrinks, self.settled = False, True
        self._bound: int | None = None  # of `whole`, over all requests

    def whole(self, request: int) -> int:
        """Tokens of a request with its answer."""
        return self._input_len[request] + min(self._output_len[request], self.longest)

    def open(self, placed: int, held: int, running: Sequence[int]) -> None:
        """Room is given out. placed: requests that have some; held: tokens of those that decode (`running`)."""
        if self._bound is None:
            self._bound = max(map(self.whole, range(len(self._input_len))), default=0)
        kept, self._shrinks = self.reserve * placed, False
        if running and self._bound - held > kept:
            whole = max(map(self.whole, running)) - held
            kept, self._shrinks = max(kept, whole), whole > kept
        self._left = self.cache.free * self.cache.block - kept
        self._held, self._alone = held, not placed

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether prompt and reserve leave what is kept; a server without requests takes what its cache holds."""
        own, whole = tokens + self.reserve, self.whole(request) - self._held
        self.settled = not self._shrinks and (whole <= own or request in self._made)
        if request not in self._made:  # it has not given way before
            own = max(own, whole)
        return self._alone or own <= self._left

    def admit(self, request: int, ends: bool = True) -> None:
        """It has room."""
        self._left -= self._input_len[request] + self._made.get(request, 0) + self.reserve
        self._alone = False

    def leave(self, request: int) -> None:
        """Counted anew when room is given out next."""


def admission_of(
    policy: Policy, cache: Cache, input_len: Sequence[int], output_len: Sequence[int], made: dict[int, int],
    answers: Callable[[], Iterable[Answer]],
) -> Admission:  # fmt: skip
    """The rule of a policy. made: tokens of the answer when a request began to decode or gave way; answers: of each
    request that decodes.
    """
    if policy.room == "expected":
        if not policy.ignores_eos:
            return ExpectedRoom(policy.expected, cache, output_len, made, answers)
        if not policy.shares_prefixes:
            return FixedRoom(policy.expected, cache, input_len, output_len, made, answers)
        return ExpectedRoom(policy.expected.whole, cache, output_len, made, answers)
    if policy.room == "prompt_and_answer":
        return AnswerRoom(cache, input_len, output_len)
    return PromptRoom(cache, policy.watermark) if policy.room == "prompt" else ChunkRoom(cache)
