"""A scheduler whose decodes verify drafts: each makes between 1 and `drafts` + 1 tokens in a step.

What a request will accept in each of its steps is drawn when it begins to decode, so that a step again needs sums
only: by step, the tokens that all requests make, the blocks that they need, and the requests that end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise

from archsim.base.errors import UsageError
from archsim.serving.acceptance import AcceptedDrafts
from archsim.serving.cache import Cache
from archsim.serving.policy import Policy
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler


@dataclass(slots=True)
class Course:
    """What a request does while it decodes. begin: the tick before its first step. held: its cached tokens then.
    made: tokens after each step, from 0 on. blocks: that it holds in each step, from those of its prompt on.
    """

    begin: int
    held: int
    made: list[int]
    blocks: list[int]


class SpeculativeScheduler(Scheduler):
    """Every decode takes `drafts` + 1 tokens of the step and has room for as many, whatever is accepted."""

    __slots__ = ("_accepts", "_blocks_due", "_courses", "_drafts", "_steps", "_tokens_due")

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord, accepts: AcceptedDrafts, drafts: int) -> None:
        self._drafts = drafts
        super().__init__(policy, cache, record)
        if policy.mixes and policy.budget < policy.max_seqs * (drafts + 1):
            raise UsageError(
                f"a step of {policy.budget:,} tokens has no room for {policy.max_seqs:,} sequences of {drafts + 1}",
                hints=("lower --max-num-seqs, raise --max-num-batched-tokens, or draft less",),
            )
        self._accepts, self._per_decode = accepts, drafts + 1
        self._courses: dict[int, Course] = {}
        self._steps: Counter[int] = Counter()  # of a request, before it gave way
        self._tokens_due: Counter[int] = Counter()  # by tick: tokens that requests make in the step that ends there
        self._blocks_due: Counter[int] = Counter()  # and blocks that it takes

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
        return self._made[request] + course.made[self.tick - course.begin]

    def _begin_decode(self, request: int, held: int, left: int) -> None:
        """Draws how many steps its last tokens take."""
        done, made = self._steps[request], [0]
        while made[-1] < left:
            count = 1 + (left - made[-1]) // self._per_decode
            made += list(accumulate((n + 1 for n in self._accepts.of(request, done + len(made) - 1, count)),
                                    initial=made[-1]))[1:]  # fmt: skip
        made = made[: next(i for i, n in enumerate(made) if n >= left) + 1]
        made[-1] = left
        blocks = [-(-held // self._block)]
        for before in made[:-1]:
            blocks.append(max(blocks[-1], -(-(held + before + self._per_decode) // self._block)))
        course = self._courses[request] = Course(self.tick, held, made, blocks)
        self.ending.setdefault(self.tick + len(made) - 1, []).append(request)
        self._count_course(course, 0, 1)
        self.n += 1
        self.cached += held

    def _count_course(self, course: Course, steps: int, sign: int) -> None:
        """Add what a request does after so many steps, or take it away."""
        for (tick, (before, after)), (less, more) in zip(
            enumerate(pairwise(course.made), course.begin + 1), pairwise(course.blocks), strict=True
        ):
            if tick > course.begin + steps:
                self._tokens_due[tick] += sign * (after - before)
                self._blocks_due[tick] += sign * (more - less)

    def _advance_decodes(self) -> tuple[int, list[int]]:
        """The tokens that were accepted, and the requests that have ended."""
        self.tick += 1
        tokens = self._tokens_due.pop(self.tick, 0)
        self._blocks_due.pop(self.tick, None)
        self.cached += tokens
        if tokens > self.n:  # they arrive together
            self.gaps.add(0.0, tokens - self.n)
        self.record.verified += self.n
        finished = self.ending.pop(self.tick, [])
        for request in finished:
            course = self._courses[request]
            self.n -= 1
            self.cached -= course.held + course.made[-1]
        return tokens, finished

    def _end_decode(self, request: int, joined: int) -> tuple[int, int]:
        """A request gives way: tokens that it has made since it began, and those whose blocks it holds."""
        course = self._courses.pop(request)
        steps = self.tick - joined
        self._count_course(course, steps, -1)
        self._steps[request] += steps
        self.ending[course.begin + len(course.made) - 1].remove(request)
        made = course.made[steps]
        self.n -= 1
        self.cached -= course.held + made
        return made, course.blocks[steps + self.runs_decodes] * self._block

    def _held_at_end(self, request: int) -> int:
        """As of the drafts of its last step."""
        course = self._courses.pop(request, None)
        return super()._held_at_end(request) if course is None else course.blocks[-1] * self._block
