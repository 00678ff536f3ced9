"""Schedulers of other engines, request by request as their sources have them: references for the counters of
`archsim.serving.scheduler`. vLLM 0.7.3 `core/scheduler.py` (`_schedule_default`), SGLang 0.5.23
`managers/schedule_policy.py` and `schedule_batch.py`, TensorRT-LLM `pyexecutor/scheduler.py` with GUARANTEED_NO_EVICT.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from reference_scheduler import Engine, Request

Step = dict[Request, int]


@dataclass
class V0(Engine):
    """Prompts whole and alone while any fits; else decodes, the last of which give way."""

    watermark: float = 0.01

    def schedule(self, waiting: deque[Request], running: list[Request], ended: list[Request]) -> Step:
        step: Step = {}
        least = int(self.watermark * self.blocks)

        def free() -> int:
            return self.blocks - sum(-(-max(r.computed, step.get(r, 0)) // self.block) for r in running)

        while waiting:
            new = waiting[0].tokens
            if free() - -(-new // self.block) < least:
                break
            if sum(step.values()) + new > self.budget or len(running) >= self.max_seqs:
                break
            running.append(waiting.popleft())
            step[running[-1]] = new
        if step:
            return step
        queue, kept, taken = deque(running), [], 0
        while queue:
            request = queue.popleft()
            needs = request.computed % self.block == 0
            preempted = False
            while needs and self.blocks - sum(map(self.held, [*kept, request, *queue])) - taken < 1:
                victim = queue.pop() if queue else request
                victim.computed = 0
                victim.preemptions += 1
                waiting.appendleft(victim)
                preempted = victim is request
                if preempted:
                    break
            if not preempted:
                taken += needs
                kept.append(request)
                step[request] = 1
        running[:] = kept
        return step


@dataclass
class Sglang(Engine):
    """Prompts alone while a batch of them can be formed; admission by the new-token ratio; retraction of decodes."""

    start: float = 0.7
    least: float = 0.098
    decay_steps: int = 600
    retract_steps: int = 20
    longest: int = 4096

    def __post_init__(self) -> None:
        self.ratio, self.full = self.start, False
        self.chunked: Request | None = None
        self.kept: list[Request] = []  # have ended, and are in the running batch until decodes are prepared
        self.seen: list[Request] = []
        self.decoded: list[Request] = []  # by the last step

    def schedule(self, waiting: deque[Request], running: list[Request], ended: list[Request]) -> Step:
        left = [r for r in self.seen if r not in running and len(r.token_s) == r.answer]
        self.kept += [r for r in left if r in self.decoded]
        if any(r not in self.decoded for r in left):  # the last batch of prompts is filtered
            self.full = False
        if not running and not waiting:
            self.ratio = self.start
        alive = [r for r in running if r not in ended]
        step = self.prompts(waiting, running, alive)
        if not step:
            if self.kept or not running:  # update_running_batch
                self.kept, self.full = [], False
            step = self.prompts(waiting, running, alive) if not alive and not ended else {}
            if not step:
                step = self.decodes(waiting, running, alive, bool(ended))
                self.decoded = [*[r for r in self.decoded if r in ended], *step]
            else:
                self.decoded = []
        else:
            self.decoded = [r for r in self.decoded if r in ended]
        self.seen = list(running)
        return step

    def free(self, running: list[Request]) -> int:
        return self.blocks - sum(map(self.held, running))

    def prompts(self, waiting: deque[Request], running: list[Request], alive: list[Request]) -> Step:
        if (self.full or not waiting) and self.chunked is None:
            return {}
        step: Step = {}
        decoding = [r for r in alive if r is not self.chunked]
        expected = self.ratio * sum(min(r.answer - len(r.token_s), self.longest) for r in decoding)
        left, budget = self.free(running) * self.block - expected, self.budget

        def charge(request: Request, new: int) -> None:
            nonlocal left, budget
            ends = request.computed + new == request.tokens
            left -= new + self.block + (min(request.answer - len(request.token_s), self.longest) if ends else 0)
            budget -= new
            step[request] = new
            self.chunked = None if ends else request

        if self.chunked is not None:
            charge(self.chunked, min(self.chunked.tokens - self.chunked.computed, budget))
        while waiting and budget > 0:
            request = waiting[0]
            if len(running) + len(self.kept) >= self.max_seqs:
                self.full = True
            if self.full:
                break
            if request.tokens + min(request.answer - len(request.token_s), self.longest) + self.block >= left:
                self.full = bool(running)
                break
            running.append(waiting.popleft())
            charge(request, min(request.tokens, budget))
        return step

    def decodes(self, waiting: deque[Request], running: list[Request], alive: list[Request], ended: bool) -> Step:
        def short(requests: list[Request]) -> bool:
            return sum(r.computed % self.block == 0 for r in requests) > self.free(running)

        if not alive:
            return {}
        if not short(alive):
            self.ratio = max(self.ratio - (self.start - self.least) / self.decay_steps, self.least)
            return dict.fromkeys(alive, 1)
        if ended:
            return {}
        kept = sorted(alive, key=lambda r: (len(r.token_s), -r.prompt), reverse=True)
        while short(kept):
            victim = kept.pop()
            running.remove(victim)
            victim.computed = 0
            victim.preemptions += 1
            waiting.append(victim)
        made, answers = sum(len(r.token_s) for r in kept), sum(r.answer for r in kept)
        self.ratio = min(1.0, (made + self.retract_steps * len(kept)) / (answers + 1))
        self.full = False
        return dict.fromkeys([r for r in running if r in kept], 1)


@dataclass
class TensorRtLlm(Engine):
    """Decodes and whole prompts together; a request starts when its whole answer has room."""

    def schedule(self, waiting: deque[Request], running: list[Request], ended: list[Request]) -> Step:
        step = {r: 1 for r in running if r not in ended}
        while waiting and len(running) < self.max_seqs:
            request = waiting[0]
            promised = sum(-(-(r.prompt + r.answer - 1) // self.block) for r in (*running, request))
            if promised > self.blocks or sum(step.values()) + request.prompt > self.budget:
                break
            step[request] = request.prompt
            running.append(waiting.popleft())
        return step
