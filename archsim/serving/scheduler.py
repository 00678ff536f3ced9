"""Which requests run in the next step, and what it computes: the loop of continuous batching over counters.

Requests that decode are a count, a sum of cached tokens, and how many of them need a new block in each of the next
steps; nothing is kept or visited for each one while it decodes. A step therefore costs as much as it has prompts,
whatever the batch. What differs between engines is data (`Policy`) and the rule of admission.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from archsim.serving.admission import admission_of
from archsim.serving.cache import Cache
from archsim.serving.expected_answers import Answer, ExpectedRoom
from archsim.serving.policy import Policy
from archsim.serving.record import RunRecord

Chunk = tuple[int, int]
"""Tokens of a prompt that a step computes, and those of the same request that are cached before."""


class Scheduler:
    """The requests of one replica. `schedule` decides the next step, `complete` ends it.

    Of the step: decodes, context: sequences that get one token, and the sum of their cached tokens; chunks: of prompts,
    those of one token counted as decodes; prompts: (request, tokens) of all of them.

    waiting: in order. running: in order of admission, prompts and decodes. n, cached: requests that decode, and their
    cached tokens. tick: decode steps so far. need: decodes that need a new block, by the tick, modulo the block size.
    ending: requests by the tick of their last token. blocked: what keeps the first that waits out (`sequences`,
    `cache`, `tokens` of the step, or nothing).
    """

    __slots__ = (
        "_admission", "_behind", "_block", "_computed", "_due", "_ended", "_ended_tick", "_expected", "_full",
        "_joined", "_leaving", "_made", "_opened", "_paused_s", "_per_decode", "_sure", "_token_s", "_waited",
        "blocked", "cache", "cached", "chunks", "context", "decodes", "ending", "gaps", "n", "need", "partial",
        "policy", "prompts", "record", "running", "runs_decodes", "started", "tick", "waiting",
    )  # fmt: skip

    def __init__(self, policy: Policy, cache: Cache, record: RunRecord) -> None:
        self.policy, self.cache, self.record = policy, cache, record
        record.total_blocks, record.block_size = cache.total, cache.block
        self._block = cache.block
        self._per_decode = 1  # tokens of a step that a decode takes
        self.waiting: deque[int] = deque()
        self.running: dict[int, None] = {}
        self.partial: list[int] = []
        self.n = self.cached = self.tick = self.decodes = self.context = 0
        self.need = [0] * self._block
        self.ending: dict[int, list[int]] = {}
        self.chunks: list[Chunk] = []
        self.prompts: list[tuple[int, int]] = []
        self.started: list[int] = []  # requests that run for the first time
        self.runs_decodes = False
        self.blocked = ""
        self.gaps = record.gaps
        self._full: list[int] = []  # prompts that the step computes to their end
        self._due: list[int] = []  # requests that have ended and still hold their places
        self._ended = self._ended_tick = 0  # requests that left at a tick, whose places are kept until the next one
        self._leaving: list[int] = []  # those of them that admission counts yet
        self._opened = False  # whether the step opens such places
        self._computed: dict[int, int] = {}  # tokens of partial prompts
        self._made: dict[int, int] = {}  # tokens of the answer when the request began to decode, or gave way
        self._joined: dict[int, int] = {}  # tick at which it began to decode
        self._paused_s: dict[int, float] = {}  # time of the last token of those that gave way
        self._waited = 0  # steps that prompts have let pass
        self._token_s = 0.0  # end of the last step that decoded
        self._behind: list[tuple[float, int]] = []  # (time, requests) that began to decode after it
        self._admission = admission_of(policy, cache, record.input_len, record.output_len, self._made, self._answers)
        self._expected = self._admission if isinstance(self._admission, ExpectedRoom) else None
        self._sure = self._sure_room()

    # ------------------------------------------------------------------------------------------ requests
    def add(self, request: int) -> str | None:
        """A request waits from now on; the reason where it can never run."""
        prompt, answer = self.record.input_len[request], self.record.output_len[request]
        if prompt + answer < self._sure:
            self.waiting.append(request)
            return None
        left_free = int(self.policy.watermark * self.cache.total) if self.policy.room == "prompt" else 0
        room = (self.cache.total - left_free) * self._block
        if -(-self._most_tokens(request) // self._block) > self.cache.total - left_free:
            return f"{prompt:,} prompt and {answer:,} answer tokens exceed the KV cache of {room:,}"
        if self._expected is not None and prompt + answer + self._block >= room:
            return f"{prompt:,} prompt and {answer:,} answer tokens leave nothing of the KV cache of {room:,}"
        if self.policy.longest(prompt, answer) > self.policy.budget:
            tokens = f"{prompt:,} prompt and {answer:,} answer tokens"
            return f"{tokens} exceed a step of {self.policy.budget:,}, and prompts are not split into chunks"
        self.waiting.append(request)
        return None

    def _sure_room(self) -> int:
        """Prompts and answers of fewer tokens can run, whatever else there is."""
        room = int((1 - self.policy.watermark) * self.cache.total - 1) * self._block
        return min(room - self._block, self.policy.budget if self.policy.longest(1, 1) else room)

    @property
    def queued(self) -> int:
        """Requests that are here and do not run."""
        return len(self.waiting)

    def _most_tokens(self, request: int) -> int:
        """Tokens whose blocks a request holds at most; its last token is never cached."""
        return self.record.input_len[request] + self.record.output_len[request] - 1

    @property
    def active(self) -> int:
        """Requests that run and have not made their last token."""
        return len(self.running) - len(self._due)

    @property
    def steady(self) -> bool:
        """Whether steps can be passed by (`pass_steps`) while they are of the same requests."""
        return self.same

    @property
    def same(self) -> bool:
        """Whether the next steps can only be of the requests that decode now, until one ends or another arrives: no
        prompt is cut, and none that waits could be admitted.
        """
        if not (self.n and self.runs_decodes) or self.partial or self._behind:
            return False
        return not self.waiting or (self.blocked in ("sequences", "cache") and self._settled)

    @property
    def _settled(self) -> bool:
        """Whether the last step has neither computed prompts, nor ended requests that still hold their places, nor
        opened places, nor may make room for the next chunk of a prompt.
        """
        if self.blocked == "cache" and self.policy.room == "chunk" and not self.cache.settled:
            return False
        return not (self.prompts or self._due or self._kept_places or self._opened)

    def decode_on(self) -> bool:
        """`schedule` where the next step is of the `same` requests; False, and nothing is done, where their blocks are
        not free.
        """
        blocks = self._blocks_needed()
        if blocks > self.cache.free:
            return False
        if blocks:
            self.cache.take(blocks)
        if self.prompts:
            self.chunks, self.prompts, self._full, self.started = [], [], [], []
        self.decodes, self.context = self.n, self.cached
        if self._expected is not None:
            self._expected.decode(1)
        return True

    def steps_to_end(self) -> int:
        """Steps of which only the last can be one in which a request ends; 0 where there is none."""
        if self.waiting or self.partial:
            return 1
        return min(self.ending) - self.tick if self.ending else 0

    def pass_steps(self, steps: int, now_s: float) -> list[int]:
        """So many steady steps have ended, the last one now, and their blocks are handed out already: requests that
        have made their last token, all of them with the last step.
        """
        record = self.record
        self.tick += steps
        self.cached += steps * self.n
        record.output_tokens += steps * self.n
        record.decode_tokens += steps * self.n
        if self._expected is not None:
            self._expected.decode(steps)
        self._token_s = now_s
        finished = self._end_decodes()
        for request in finished:
            record.last_s[request] = now_s
        record.finished += len(finished)
        self._due = finished
        if finished and not self.policy.ahead:
            self.release()
        return finished

    @property
    def due(self) -> bool:
        """Whether requests have ended that hold their places until the next step does."""
        return bool(self._due)

    def release(self, tick: int | None = None) -> bool:
        """Requests that have ended give up their places and blocks; False where there are none. tick: when, where it is
        not the present one.
        """
        due, self._due = self._due, []
        now = self.tick if tick is None else tick
        if due and self._ended_tick != now:  # decodes were scheduled after those before
            self._leave_batch()
            self._ended, self._ended_tick = 0, now
        for request in due:
            self._leave(request)
        return bool(due)

    @property
    def _kept_places(self) -> int:
        """Places of requests that have left, until a step of decodes is scheduled after that."""
        return self._ended if self._ended_tick == self.tick else 0

    def _leave(self, request: int) -> None:
        """The place and blocks of one that has ended."""
        self.running.pop(request, None)
        decoded = self._made.pop(request, None) is not None
        ended = self._ended_with(request)
        self.cache.release(request, self._held_at_end(request, ended), ended)
        if decoded and self.policy.places_until == "decodes":
            self._ended += 1
            self._leaving.append(request)
        else:
            self._admission.leave(request)
        self.blocked = ""

    # ------------------------------------------------------------------------------------------ the next step
    def schedule(self) -> bool:
        """Decide the next step; False where there is nothing to compute."""
        policy = self.policy
        if self.prompts:
            self.chunks, self.prompts, self._full, self.started = [], [], [], []
        self.decodes = self.context = 0
        self.runs_decodes, self.blocked = False, ""
        if self._expected is not None:
            self._open(self._expected)
        if policy.first == "prompts":
            budget = self._continue(policy.budget)[0]
            self._admit(budget)
            self._opened = self._kept_places > 0 and not self.prompts
            if self._opened and not self.n:
                self._open_places(budget)
            if self.prompts and not policy.mixes:
                return True
            self._decode()
            return bool(self.prompts or self.runs_decodes)
        gave_way = self._decode()
        if self.partial or self.waiting:
            budget, lost = policy.budget - self.decodes * self._per_decode, False
            if self.partial:
                budget, lost = self._continue(budget)
            if self.waiting and (policy.admit_after_preemption or not (gave_way or lost)) and not self._waits(budget):
                self._admit(budget)
        return self.runs_decodes or bool(self.prompts)

    def _decode(self) -> bool:
        """One token for every request that decodes; True where others had to give way for their blocks."""
        gave_way = False
        while (blocks := self._blocks_needed()) > self.cache.free:
            if self._due and self.policy.gives_way == "fewest_tokens":
                return False  # blocks of those that have ended are free at once
            self._give_way()
            gave_way = True
        if self.n:
            if self._expected is not None:
                self._expect(self._expected, gave_way)
            if blocks:
                self.cache.take(blocks)
            self.runs_decodes = True
            self.decodes += self.n
            self.context += self.cached
        return gave_way

    def _blocks_needed(self) -> int:
        """Blocks that the next step of those that decode takes."""
        return self.need[-self.tick % self._block]

    def _continue(self, budget: int) -> tuple[int, bool]:
        """The next chunks of prompts that have begun: (tokens left in the step, whether any request gave way)."""
        longest, lost = self.policy.longest_chunk, False
        for request in tuple(self.partial):
            if budget <= 0 or request not in self._computed:
                break
            before, tokens = self._computed[request], self._tokens(request)
            new = min(tokens - before, budget, longest or budget)
            held, needed = self._held(before, tokens), self._held(before + new, tokens)
            while request in self.running and not self.cache.extend(request, held, needed):
                self._give_way()
                lost = True
            if request not in self.running:
                break
            self._compute(request, before, new, tokens)
            budget -= new
        return budget, lost

    def _open_places(self, budget: int) -> None:
        """Decodes were to be scheduled and there are none: all places are open."""
        self._ended = 0
        self._leave_batch()
        if not self._due:
            if self._expected is not None:
                self._open(self._expected)
            self._admit(budget)

    def _leave_batch(self) -> None:
        """Admission counts those that have ended no more."""
        for request in self._leaving:
            self._admission.leave(request)
        self._leaving = []

    def _admit(self, budget: int) -> None:
        """Requests that wait, in order, until one has no room."""
        policy, waiting, running, cache = self.policy, self.waiting, self.running, self.cache
        longest, most, kept = policy.longest_chunk, self._most_running(), self._kept_places
        if self._leaving and not kept:
            self._leave_batch()
        while waiting:
            if len(running) + kept >= most or budget <= 0:
                self.blocked = "sequences" if budget > 0 else "tokens"
                return
            request = waiting[0]
            tokens = self._tokens(request)
            hit = cache.prefix(request, tokens)
            new = min(tokens - hit, longest or budget, budget)
            if (new < tokens - hit and not policy.chunked) or self._beyond(tokens - hit, budget):
                self.blocked = "tokens"
                return
            fits = self._admission.fits(request, hit, tokens)
            if not (fits and cache.admit(request, hit, self._held(hit + new, tokens))):
                self.blocked = "cache"
                return
            waiting.popleft()
            running[request] = None
            self._admission.admit(request, new == tokens - hit)
            self._count_start(request, hit)
            self._compute(request, hit, new, tokens)
            budget -= new

    def _waits(self, budget: int) -> bool:
        """Whether prompts that could start now wait for others to start with them (`_waiting_requests` in
        TensorRT-LLM's `py_executor.py`).
        """
        policy = self.policy
        if not policy.wait_steps or not self.n or self.partial:
            return False
        prompts = self._could_start(budget)
        if not prompts:
            return False
        scheduled = self.decodes * self._per_decode + prompts
        waits = self._waited < policy.wait_steps and scheduled < policy.wait_tokens
        self._waited = self._waited + 1 if waits else 0
        return waits

    def _could_start(self, budget: int) -> int:
        """Tokens of the prompts that a step has room for, in order."""
        tokens, places = 0, self._most_running() - len(self.running)
        for request in islice(self.waiting, max(places, 0)):
            new = self._tokens(request)
            if tokens + new > budget or not (tokens or self._admission.fits(request, 0, new)):
                break
            tokens += new
        return tokens

    def _beyond(self, tokens: int, budget: int) -> bool:
        """Whether a prompt waits for a step of its own: those before it leave less of `prompt_tokens`. budget: what is
        left of the step's tokens.
        """
        most = self.policy.prompt_tokens
        return most > 0 and bool(self.prompts) and tokens >= most - (self.policy.budget - budget)

    def _most_running(self) -> int:
        """Requests that run at most."""
        return self.policy.max_seqs

    def _tokens(self, request: int) -> int:
        """Tokens to cache before a request that does not decode makes its next one: prompt, and answer so far."""
        return self.record.input_len[request] + self._made.get(request, 0)

    def _held(self, computed: int, tokens: int) -> int:
        """Tokens whose blocks a prompt of `tokens` holds once `computed` are."""
        return computed if self.policy.first == "running" else tokens

    def _count_start(self, request: int, hit: int) -> None:
        """What the record keeps of an admission."""
        record = self.record
        if record.preemptions[request]:  # of what it had computed before
            record.recomputed_tokens -= hit
        else:
            self.started.append(request)
            record.hit_tokens += hit
            record.prefix_hit[request] = hit

    def _compute(self, request: int, before: int, new: int, tokens: int) -> None:
        """The step computes `new` tokens of a prompt after `before`, of `tokens` in all."""
        self.prompts.append((request, new))
        self.cache.store(request, before + new)
        self.record.prompt_tokens += new
        if new == 1 == self._per_decode:  # runs in the decode kernel
            self.decodes += 1
            self.context += before
        else:
            self.chunks.append((new, before))
        if before + new == tokens:
            self._full.append(request)
            if self._computed.pop(request, None) is not None:
                self.partial.remove(request)
        else:
            if request not in self._computed:
                self.partial.append(request)
            self._computed[request] = before + new

    # ------------------------------------------------------------------------------------------ expected answers
    def _made_now(self, request: int) -> int:
        """Tokens of its answer that a request that decodes has made."""
        return self._made[request] + self.tick - self._joined[request]

    def _answers(self) -> list[Answer]:
        """Of each request that decodes, tokens that are still to come, and those of prompt and answer so far."""
        prompt, answer, made = self.record.input_len, self.record.output_len, self._made_now
        return [(answer[one] - (now := made(one)), prompt[one] + now) for one in self._joined]

    def _open(self, room: ExpectedRoom) -> None:
        """What is expected of those that run, before others are admitted."""
        if not self.running and not self._kept_places:
            room.empty(not self.waiting)
        if not self.waiting:
            return
        budget, longest, goes_on = self.policy.budget, self.policy.longest_chunk, []
        for request in self.partial:
            left = self._tokens(request) - self._computed[request]
            goes_on.append((request, left <= min(budget, longest or budget)))
        room.open(goes_on)

    def _expect(self, room: ExpectedRoom, gave_way: bool) -> None:
        """What is expected after a step of decodes."""
        if gave_way:
            kept = list(self._joined)
            room.preempt([self._made_now(one) for one in kept], [self.record.output_len[one] for one in kept])
        else:
            room.decode(1)

    # ------------------------------------------------------------------------------------------ giving way
    def _give_way(self) -> None:
        """One request loses its cache and waits again."""
        if self.policy.gives_way == "last":
            request, _ = self.running.popitem()
        else:
            request = min(reversed(self._joined), key=lambda one: (self._made_now(one), -self.record.input_len[one]))
            del self.running[request]
        if request in self._due:  # its last token is under way
            self._due.remove(request)
            self._leave(request)
            return
        held = self._owner(request)._drop(request)
        self._admission.leave(request)
        if self.policy.requeue == "head":
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)
        self.record.preemptions[request] += 1
        self.record.recomputed_tokens += held
        self.blocked = ""

    def _owner(self, request: int) -> Scheduler:
        """Who schedules a request that runs."""
        return self

    def _drop(self, request: int) -> int:
        """Forget the cache of a request: tokens to compute again."""
        if request in self._computed:
            return self._drop_prompt(request)
        if request in self._joined:
            return self._drop_decode(request)
        self._full.remove(request)  # its prompt is under way
        tokens = self._tokens(request)
        self.cache.give_way(request, tokens, tokens)
        return tokens

    def _drop_prompt(self, request: int) -> int:
        """Forget a partial prompt: tokens to compute again."""
        held = self._computed.pop(request)
        self.partial.remove(request)
        self.cache.give_way(request, self._held(held, self._tokens(request)), held)
        return held

    def _drop_decode(self, request: int) -> int:
        """Forget the cache of a request that decodes: tokens to compute again, that of its last token among them."""
        record, joined, made = self.record, self._joined.pop(request), self._made[request]
        since, room = self._end_decode(request, joined)
        made_now = made + since
        held = record.input_len[request] + made_now - 1
        self._paused_s[request] = self._last_token_s(request, joined)
        self._made[request] = made_now
        if self.runs_decodes:  # its block of this step is handed out already
            self.decodes -= 1
            self.context -= held
        self.cache.give_way(request, room, held)
        return held + 1

    def _end_decode(self, request: int, joined: int) -> tuple[int, int]:
        """A request gives way: tokens that it has made since it began, and those whose blocks it holds."""
        record, made = self.record, self._made[request]
        since = self.tick - joined
        held = record.input_len[request] + made + since - 1
        self._remove_decode(request, held)
        self.ending[joined + record.output_len[request] - made].remove(request)
        return since, held + self.runs_decodes

    def _last_token_s(self, request: int, joined: int) -> float:
        """When a request that decodes made its last token; it leaves those that began after the last decode step."""
        if joined < self.tick or not self._behind:
            return self._token_s
        time, count = self._behind[-1]
        self._behind[-1:] = [(time, count - 1)] if count > 1 else []
        return time

    def _remove_decode(self, request: int, held: int) -> None:
        """One fewer decodes, which held so many tokens."""
        self.n -= 1
        self.cached -= held
        self.need[(held - self.tick) % self._block] -= 1

    # ------------------------------------------------------------------------------------------ the end of a step
    def complete(self, end_s: float) -> list[int]:
        """The step has ended: requests that have made their last token."""
        finished = self._advance(end_s) if self.runs_decodes else []
        if self._full:
            self._begin_decodes(end_s, finished)
        if finished:
            record = self.record
            for request in finished:
                record.last_s[request] = end_s
            record.finished += len(finished)
        if not self.policy.ahead:
            self._due = finished
        if self._due:
            self.release()
        self._due = finished if self.policy.ahead else []  # the step after this one was scheduled before its end
        return finished

    def _advance(self, end_s: float) -> list[int]:
        """One more token for every request that decodes; those that have ended."""
        others, record = self.n, self.record
        if self._behind:
            for time, count in self._behind:
                self.gaps.add(end_s - time, count)
                others -= count
            self._behind = []
        if others:
            self.gaps.add(end_s - self._token_s, others)
        self._token_s = end_s
        tokens, finished = self._advance_decodes()
        record.output_tokens += tokens
        record.decode_tokens += tokens
        return finished

    def _advance_decodes(self) -> tuple[int, list[int]]:
        """Tokens that decodes have made in the step, and the requests that have ended."""
        tokens = self.n
        self.cached += tokens
        self.tick += 1
        return tokens, self._end_decodes()

    def _end_decodes(self) -> list[int]:
        """The requests that have made their last token now: they decode no more."""
        finished = self.ending.pop(self.tick, None)
        if finished is None:
            return []
        for request in finished:
            del self._joined[request]
            self._remove_decode(request, self._ended_with(request))
        return finished

    def _ended_with(self, request: int) -> int:
        """Cached tokens of a request that has ended."""
        return self.record.input_len[request] + self.record.output_len[request] - 1

    def _held_at_end(self, request: int, ended: int) -> int:
        """Tokens whose blocks it holds then. ended: `_ended_with`."""
        return ended

    def _begin_decodes(self, end_s: float, finished: list[int]) -> None:
        """Prompts that are computed make a token; those whose last it is join `finished`, the others decode."""
        record, began = self.record, 0
        for request in self._full:
            made = self._made.get(request, 0) + 1
            if made == 1:
                record.first_s[request] = end_s
            else:
                self.gaps.add(end_s - self._paused_s.pop(request))
            left = record.output_len[request] - made
            if not left:
                self._made.pop(request, None)
                finished.append(request)
                continue
            held = record.input_len[request] + made - 1
            self._made[request], self._joined[request] = made, self.tick
            self._begin_decode(request, held, left)
            began += 1
        record.output_tokens += len(self._full)
        if began and not self.runs_decodes:
            self._behind.append((end_s, began))

    def _begin_decode(self, request: int, held: int, left: int) -> None:
        """A request with so many cached tokens decodes from now on, and has so many tokens left to make."""
        self.ending.setdefault(self.tick + left, []).append(request)
        self.need[(held - self.tick) % self._block] += 1
        self.n += 1
        self.cached += held
