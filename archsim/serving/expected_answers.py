"""Admission by how much of their answers requests are expected to use: SGLang's new-token ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from archsim.serving.cache import Cache

Answer = tuple[int, int]
"""Tokens of an answer that are still to come, and those of prompt and answer that its request holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAnswers:
    """Share of what is left of the answers, for which requests that decode are expected to need room: `start` at first
    and when the engine idles, less in each decode step until it is `least` after `steps` of them. When requests gave
    way it becomes the share that the others have made so far, with `ahead` tokens more for each. longest: tokens of an
    answer that count at most.
    """

    start: float = 0.7
    least: float = 0.098
    steps: int = 600
    ahead: int = 20
    longest: int = 4096

    @property
    def whole(self) -> ExpectedAnswers:
        """Of requests that ignore the end of a sequence: all of what is left is expected."""
        return replace(self, start=1.0, least=1.0)


class ExpectedRoom:
    """Room for a prompt and its whole answer beside what is expected of those that decode.

    share: expected of the answers now. A batch that had no room for a request is full until one leaves it: nobody is
    tried before.
    """

    def __init__(
        self,
        rule: ExpectedAnswers,
        cache: Cache,
        output_len: Sequence[int],
        made: dict[int, int],
        answers: Callable[[], Iterable[Answer]],
    ) -> None:
        self.rule, self.cache, self._output_len, self.share = rule, cache, output_len, rule.start
        self._made, self._answers = made, answers
        self._promised = 0.0
        self._full = False

    def open(self, continues: Iterable[tuple[int, bool]]) -> None:
        """A step's prompts are chosen. continues: requests whose prompts go on, and whether to their end."""
        self._promised = self.share * sum(min(left, self.rule.longest) for left, _ in self._answers())
        for request, ends in continues:
            self._promised += self.cache.block + (self._answer(request) if ends else 0)

    def fits(self, request: int, hit: int, tokens: int) -> bool:
        """Whether prompt, answer and a block for rounding leave a token."""
        if self._full:
            return False
        free = self.cache.free * self.cache.block - self._promised
        self._full = not (free > 0 and tokens - hit + self._answer(request) + self.cache.block < free)
        return not self._full

    def admit(self, request: int, ends: bool = True) -> None:
        """It has started; ends: with all of its prompt."""
        self._promised += self.cache.block + (self._answer(request) if ends else 0)

    def leave(self, request: int) -> None:
        """A request has left the batch."""
        self._full = False

    def decode(self, steps: int) -> None:
        """So many steps of decodes had room."""
        self.share = max(self.share - steps * (self.rule.start - self.rule.least) / self.rule.steps, self.rule.least)

    def preempt(self, made: Sequence[int], answers: Sequence[int]) -> None:
        """Requests gave way; made, answers: tokens of those that stay."""
        self.share = min(1.0, (sum(made) + self.rule.ahead * len(made)) / (sum(answers) + 1))

    def empty(self, idle: bool) -> None:
        """Nothing runs; idle: nor waits."""
        self._full = False
        if idle:
            self.share = self.rule.start

    def _answer(self, request: int) -> int:
        """Tokens that its answer may still take."""
        return min(max(self._output_len[request] - self._made.get(request, 0), 0), self.rule.longest)
