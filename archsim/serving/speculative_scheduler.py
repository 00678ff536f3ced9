"""A scheduler whose decodes verify drafts: each makes between 1 and `drafts` + 1 tokens in a step.

What a request will accept in each of its steps is drawn when it begins to decode, so that a step again needs sums
only: by step, the tokens that all requests make, the blocks that they need, and the requests that end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from archsim.base.errors import UsageError
from archsim.serving.acceptance import AcceptedDrafts
from archsim.serving.cache import Cache
from archsim.serving.policy import Policy
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler

Whole = npt.NDArray[np.int64]


@dataclass(slots=True)
class Course:
    """What a request does while it decodes. begin: the tick before its first step. held: its cached tokens then.
    made: tokens after each step, from 0 on. blocks: that it holds in each step, from those of its prompt on.
    """

    begin: int
    held: int
    made: Whole
    blocks: Whole


class Due:
    """Sums by tick of what is known ahead."""

    __slots__ = ("_first", "_sums")

    def __init__(self) -> None:
        self._first, self._sums = 0, np.zeros(1024, np.int64)

    def __getitem__(self, tick: int) -> int:
        at = tick - self._first
        return int(self._sums[at]) if at < len(self._sums) else 0

    def add(self, now: int, tick: int, amounts: Whole) -> None:
        """Amounts of a tick and of those after it. now: ticks before it are asked for no more."""
        if tick - self._first + len(amounts) > len(self._sums):
            kept = self._sums[max(0, now - self._first) :]
            self._first = max(self._first, now)
            more = max(len(kept), tick - self._first + len(amounts))
            self._sums = np.concatenate([kept, np.zeros(more, np.int64)])
        at = tick - self._first
        self._sums[at : at + len(amounts)] += amounts


class SpeculativeScheduler(Scheduler):
    """Every decode takes `drafts` + 1 tokens of the step and has room for as many, whatever is accepted."""

    __slots__ = ("_accepts", "_blocks_due", "_courses", "_drafts", "_steps", "_tokens_due")

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord, accepts: AcceptedDrafts, drafts: int) -> None:
        self._drafts = drafts
        super().__init__(policy, cache, record)
        if policy.mixes and policy.budget < policy.max_seqs * (drafts + 1):
            raise UsageError(
                f"a step of {policy.budget:,} tokens has no room for {policy.max_seqs:,} sequences of {drafts + 1}",
                hints=("lower --max-num-seqs, raise --max-num-batched-tokens, or use fewer drafts",),
            )
        self._accepts, self._per_decode = accepts, drafts + 1
        self._courses: dict[int, Course] = {}
        self._steps: Counter[int] = Counter()  # of a request, before it gave way
        self._tokens_due = Due()  # by tick: tokens that requests make in the step that ends there
        self._blocks_due = Due()  # and blocks that it takes

    @property
    def steady(self) -> bool:
        """Never: each step makes another number of tokens."""
        return False

    def _most_tokens(self, request: int) -> int:
        """With the drafts of the last step."""
        return super()._most_tokens(request) + self._drafts

    def _sure_room(self) -> int:
        """With the drafts of the last step."""
        return super()._sure_room() - self._drafts

    def _blocks_needed(self) -> int:
        """Blocks that the next verify step takes."""
        return self._blocks_due[self.tick + 1]

    def _made_now(self, request: int) -> int:
        """As drawn."""
        course = self._courses[request]
        return self._made[request] + int(course.made[self.tick - course.begin])

    def _begin_decode(self, request: int, held: int, left: int) -> None:
        """Draws how many steps its last tokens take."""
        made = np.zeros(left + 1, np.int64)
        np.cumsum(self._accepts.of(request, self._steps[request], left) + 1, out=made[1:])
        made = made[: int(np.searchsorted(made, left)) + 1]
        made[-1] = left
        blocks = np.empty_like(made)
        blocks[0] = -(-held // self._block)
        blocks[1:] = np.maximum(blocks[0], -(-(held + made[:-1] + self._per_decode) // self._block))
        course = self._courses[request] = Course(self.tick, held, made, blocks)
        self.ending.setdefault(self.tick + len(made) - 1, []).append(request)
        self._count_course(course, 0, 1)
        self.n += 1
        self.cached += held

    def _count_course(self, course: Course, steps: int, sign: int) -> None:
        """Add what a request does after so many steps, or take it away."""
        first = course.begin + steps + 1
        self._tokens_due.add(self.tick, first, sign * np.diff(course.made[steps:]))
        self._blocks_due.add(self.tick, first, sign * np.diff(course.blocks[steps:]))

    def _advance_decodes(self) -> tuple[int, list[int]]:
        """The tokens that were accepted, and the requests that have ended."""
        self.tick += 1
        tokens = self._tokens_due[self.tick]
        self.cached += tokens
        if tokens > self.n:  # they arrive together
            self.gaps.add(0.0, tokens - self.n)
        self.record.verified += self.n
        finished = self.ending.pop(self.tick, [])
        for request in finished:
            del self._joined[request]
            course = self._courses[request]
            self.n -= 1
            self.cached -= course.held + int(course.made[-1])
        return tokens, finished

    def _end_decode(self, request: int, joined: int) -> tuple[int, int]:
        """A request gives way: tokens that it has made since it began, and those whose blocks it holds."""
        course = self._courses.pop(request)
        steps = self.tick - joined
        self._count_course(course, steps, -1)
        self._steps[request] += steps
        self.ending[course.begin + len(course.made) - 1].remove(request)
        made = int(course.made[steps])
        self.n -= 1
        self.cached -= course.held + made
        return made, int(course.blocks[steps + self.runs_decodes]) * self._block

    def _held_at_end(self, request: int, ended: int) -> int:
        """As of the drafts of its last step."""
        course = self._courses.pop(request, None)
        return ended if course is None else int(course.blocks[-1]) * self._block
