"""Runs of one replica on made-up step times, and what holds in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isclose

from hypothesis import strategies as st

from archsim.serving.cache import Cache
from archsim.serving.engine import Replica
from archsim.serving.policy import Policy
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler


def seconds(decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
    """A step without kernels: a floor, and some time for each token and each cached token."""
    prompts = sum(new * (1.0 + 1e-3 * (past + new / 2)) for new, past in chunks)
    return 1.0 + 0.01 * decodes + 1e-4 * context + 0.02 * prompts


class Times:
    """`seconds` as the time of steps; keeps the steps."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.steps: list[tuple[int, int, list[tuple[int, int]]]] = []

    def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        self.steps.append((decodes, context, list(chunks)))
        return self.scale * seconds(decodes, context, chunks)


class Fixed:
    """Requests at given times."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = sorted((t, i) for i, t in enumerate(times))
        self.sent = 0
        self.next_s = self.times[0][0] if times else inf

    def pop(self) -> int:
        index = self.times[self.sent][1]
        self.sent += 1
        self.next_s = self.times[self.sent][0] if self.sent < len(self.times) else inf
        return index

    def complete(self, index: int, now_s: float) -> None:
        """The others come by themselves."""


class Watched(Scheduler):
    """Checks what holds in every step."""

    __slots__ = ("prompt_steps", "steps")

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.steps: list[dict[int, int]] = []

    def schedule(self) -> bool:
        answer = super().schedule()
        policy, cache = self.policy, self.cache
        tokens = dict(self.prompts)
        assert len(self.running) <= policy.max_seqs
        assert 0 <= cache.free <= cache.total
        assert sum(self.need) == self.n and min(self.need) >= 0
        assert self.decodes + sum(new for new, _ in self.chunks) <= max(policy.budget, self.n)
        if answer:
            decoding = [r for r in self.running if r in self._joined] if self.runs_decodes else []
            self.steps.append({**dict.fromkeys(decoding, 1), **tokens})
        return answer


def run(arrivals: Sequence[float], prompts: Sequence[int], answers: Sequence[int], policy: Policy, cache: Cache,
        times: Times | None = None) -> tuple[RunRecord, Watched]:  # fmt: skip
    record = RunRecord.of(prompts, answers)
    scheduler = Watched(policy, cache, record)
    Replica(scheduler, times or Times(), Fixed(arrivals), one_by_one=True).run()
    return record, scheduler


def equal(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs are the same, sums but for rounding."""
    columns = ("start_s", "first_s", "last_s", "preemptions")
    sums = ("busy_s", "running_s", "waiting_s", "used_block_s", "end_s")
    counts = ("steps", "output_tokens", "prompt_tokens", "recomputed_tokens", "finished", "most_running",
              "most_waiting", "most_used_blocks")  # fmt: skip
    return (
        all(getattr(one, name) == getattr(other, name) for name in (*columns, *counts))
        and all(isclose(getattr(one, name), getattr(other, name), abs_tol=1e-9) for name in sums)
        and one.gaps.weights == other.gaps.weights
        and one.samples.t_s == other.samples.t_s
        and one.limits.keys() == other.limits.keys()
    )


LOADS = st.lists(
    st.tuples(st.floats(0, 60).map(lambda t: round(t, 1)), st.integers(1, 120), st.integers(1, 40)),
    min_size=1, max_size=14,
)  # fmt: skip

ENGINES = st.fixed_dictionaries({
    "max_seqs": st.integers(1, 8), "budget": st.integers(8, 64), "blocks": st.integers(40, 60),
    "block": st.sampled_from([1, 4, 5]), "ahead": st.booleans(), "whole": st.booleans(),
})  # fmt: skip


def conserved(record: RunRecord, cache: Cache) -> bool:
    """What holds at the end of every run, whatever the engine."""
    done = [i for i in range(len(record)) if i not in record.refused]
    assert record.finished == len(done)
    assert cache.free == cache.total
    assert record.output_tokens == sum(record.output_len[i] for i in done)
    computed = sum(record.input_len[i] for i in done) - record.hit_tokens + record.recomputed_tokens
    assert record.prompt_tokens == computed
    for i in done:
        assert record.arrival_s[i] <= record.ready_s[i] <= record.start_s[i] < record.first_s[i] <= record.last_s[i]
    sojourn = sum(record.last_s[i] - record.ready_s[i] for i in done)
    assert isclose(record.running_s + record.waiting_s, sojourn, rel_tol=1e-9, abs_tol=1e-6)  # Little's law
    assert waits_as_sampled(record)
    return True


def waits_as_sampled(record: RunRecord) -> bool:
    """Samples know of requests that arrived during a step: between two of them no more wait on average than at most,
    and where none gave way their sums follow from the times of the requests.
    """
    t_s, waiting_s = [0.0, *record.samples.t_s], [0.0, *record.samples.waiting_s]
    for i in range(1, len(t_s)):
        assert waiting_s[i] - waiting_s[i - 1] <= record.most_waiting * (t_s[i] - t_s[i - 1]) + 1e-6
        if not sum(record.preemptions) and not record.refused:
            known = [
                max(0.0, min(t_s[i], start) - ready)
                for ready, start in zip(record.ready_s, record.start_s, strict=True)
            ]
            assert isclose(waiting_s[i], sum(known), rel_tol=1e-9, abs_tol=1e-6)
    return True
