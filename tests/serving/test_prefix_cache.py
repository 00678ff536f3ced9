"""Prefix caches: runs of blocks against blocks one by one, what is hit and what is computed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_cache import Blocks
from replica_runs import ENGINES, Fixed, Times, Watched, conserved, equal

from archsim.serving.block_runs import block_runs
from archsim.serving.cache import BlockCache, Cache
from archsim.serving.engine import Replica
from archsim.serving.load import Prompts
from archsim.serving.policy import Policy
from archsim.serving.prefix_cache import PrefixCache, RadixCache
from archsim.serving.record import RunRecord
from archsim.serving.resume_points import Resuming
from archsim.serving.scheduler import Scheduler

RULES = (Resuming(1, junctions="beside"), Resuming(3, junctions="beside"), Resuming(1, 4, 8, "instead"))
"""Where layers with a state or a window let prompts go on."""

WORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=4)
"""What a prompt consists of: for each run one of three, and its tokens."""


def prompts_of(said: Sequence[Sequence[tuple[int, int]]]) -> Prompts:
    """Prompts in which equal beginnings are equal runs. A last word of kind 2 is the prompt's own; a first one of
    kind 2 continues the answer, of 7 tokens, of the prompt before.
    """
    ids: dict[tuple[object, ...], int] = {}
    runs: list[tuple[tuple[int, int], ...]] = []
    for index, words in enumerate(said):
        prompt: list[tuple[int, int]] = []
        before: tuple[object, ...] = ()
        if words[0][0] == 2 and index:
            prompt, before = [*runs[-1], (1000 + index - 1, 7)], ("after", index)
        for word in words:
            before = (*before, word)
            prompt.append((ids.setdefault(before, len(ids)), word[1]))
        if words[-1][0] == 2 and said[(index + 1) % len(said)][0][0] != 2:
            prompt[-1] = (-1, words[-1][1])
        runs.append(tuple(prompt))
    return Prompts(runs=runs, answers=[1000 + i for i in range(len(runs))])


class Driver:
    """Requests take, extend and give back blocks, in runs and one by one alike."""

    def __init__(self, prompts: Prompts, block: int, blocks: int, need: int = 0) -> None:
        self.runs = prompts.runs
        self.lengths = [sum(n for _, n in prompt) for prompt in prompts.runs]
        rule = Resuming(need, junctions="beside") if need else None
        self.cache = PrefixCache(blocks * block, block, self.lengths, prompts, rule)
        self.blocks = Blocks(block, blocks, need)
        self.points: dict[int, set[int]] = {}  # of a request that runs, blocks up to points that it has yet to leave
        self.done: dict[int, int] = {}  # computed tokens of a request that runs
        self.made = [0] * len(self.lengths)
        self.ended: set[int] = set()

    def tokens(self, request: int, count: int) -> list[object]:
        said: list[object] = []
        for run, length in (*self.runs[request], (1000 + request, 7)):
            said += [(run if run >= 0 else -2 - request, i) for i in range(length)]
        return said[:count]

    def begin(self, request: int, new: int) -> None:
        """A request is admitted, if it has not ended and there is room."""
        if request in self.ended or any(1000 <= run != 1000 + request and run - 1000 not in self.ended
                                        for run, _ in self.runs[request]):  # fmt: skip
            return
        total = self.lengths[request] + self.made[request]
        tokens, hit = self.tokens(request, total), self.cache.prefix(request, total)
        assert hit == self.cache.block * len(self.blocks.found(tokens))
        new = min(new, total - hit)
        longest = self.blocks.in_layers_that_keep_all(tokens)
        room = self.cache.admit(request, hit, hit + new)
        assert room == self.blocks.admit(request, tokens, new)
        if room:
            block = self.cache.block
            self.points[request] = {
                (self.lengths[request] - 1) // block,
                *((longest,) if longest * block > hit else ()),
            }
            self._store(request, hit + new)

    def go_on(self, request: int, new: int) -> None:
        """The next chunk of a prompt, or a token of the answer."""
        before, total = self.done[request], self.lengths[request] + self.made[request]
        decodes = before == total
        if decodes and self.made[request] == 7:
            return self.leave(request, again=False)
        after = before + 1 if decodes else min(total, before + new)
        blocks = -(-after // self.cache.block) + -before // self.cache.block
        assert self.blocks.extend(request, after) == (blocks <= self.cache.free)
        if blocks > self.cache.free:
            return self.leave(request, again=True)
        if decodes:
            self.cache.take(blocks)
            self.made[request] += 1
        else:
            assert self.cache.extend(request, before, after)
        self._store(request, after)
        return None

    def _store(self, request: int, done: int) -> None:
        self.done[request] = done
        self.cache.store(request, min(done, self.lengths[request]))
        self.blocks.store(request, self.tokens(request, done))
        for point in self.points[request] if self.blocks.need else ():
            if 0 < point * self.cache.block <= done:
                self.blocks.leave_point(self.tokens(request, point * self.cache.block))
        self.points[request] = {point for point in self.points[request] if point * self.cache.block > done}

    def leave(self, request: int, again: bool) -> None:
        """It ends or gives way."""
        done = self.done.pop(request)
        if again:
            self.cache.give_way(request, done, done)
        else:
            self.cache.release(request, done, done)
            self.ended.add(request)
        self.blocks.release(request)


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(0, 9)), max_size=80)


@pytest.mark.slow
@given(st.lists(WORDS, min_size=2, max_size=8), STEPS, st.sampled_from([1, 2, 3, 4]), st.integers(15, 40),
       st.sampled_from([0, 0, 1, 2, 5, 100]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_runs_hit_what_blocks_one_by_one_hit(
    said: list[list[tuple[int, int]]], steps: list[tuple[int, int, int]], block: int, blocks: int, need: int
) -> None:
    """Hits, room and free blocks at every step, as of vLLM's own queue, also where layers with a window or a state let
    prompts go on at some points only; up to a block that is computed twice.
    """
    driver = Driver(prompts_of(said), block, blocks, need)
    for pick, new, what in steps:
        request = pick % len(said)
        if request not in driver.done:
            driver.begin(request, new)
        elif what == 0:
            driver.leave(request, again=new > 10)
        else:
            driver.go_on(request, new)
        assert driver.cache.free == len(driver.blocks.queue)
        if driver.blocks.twice:
            return


def tokens_of(prompts: Prompts, request: int, answer: int) -> list[tuple[int, int]]:
    """A request's tokens, as they are told apart."""
    runs = (*prompts.runs[request], (prompts.answers[request], answer))
    return [(run if run >= 0 else -2 - request, i) for run, length in runs for i in range(length)]


def served(policy: Policy, cache: Cache, prompts: Sequence[int], answers: Sequence[int],
           arrivals: Sequence[float] | None = None) -> tuple[RunRecord, Watched]:  # fmt: skip
    record = RunRecord.of(prompts, answers)
    scheduler = Watched(policy, cache, record)
    Replica(scheduler, Times(), Fixed(arrivals or [0.0] * len(prompts)), one_by_one=True).run()
    return record, scheduler


@pytest.mark.slow
@example(  # decodes take a block of what the sixth would find: its next chunk takes less without
    said=[[(0, 7)], [(2, 1)], [(2, 4)], [(2, 1), (0, 1)], [(0, 1), (0, 1), (0, 7)], [(2, 1), (0, 7), (0, 9), (0, 9)],
          [(2, 1), (0, 3)]],
    answers=[1, 2, 2, 5, 5, 1, 12, 1, 1, 1], spread=False, kind=PrefixCache,
    e={"max_seqs": 3, "budget": 16, "blocks": 40, "block": 1, "ahead": False, "whole": False},
    rule=Resuming(need=1, prompts=4, answers=8, junctions="instead"),
)  # fmt: skip
@given(st.lists(WORDS, min_size=2, max_size=10), st.lists(st.integers(1, 12), min_size=10, max_size=10), ENGINES,
       st.booleans(), st.sampled_from([PrefixCache, RadixCache]), st.sampled_from([None, *RULES]))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_hits_are_what_was_computed_before(
    said: list[list[tuple[int, int]]], answers: list[int], e: dict[str, int], spread: bool, kind: type[PrefixCache],
    rule: Resuming | None,
) -> None:  # fmt: skip
    """Prompt tokens computed are prompts less hits, and what gave way; no hit exceeds what an earlier request has in
    common; steps that only decode can be skipped. A tree gives up whole leaves, so that decodes make room where a
    prompt needs it for its next chunk alone: no engine has both.
    """
    prompts = prompts_of([[(kind if kind < 2 or not i else 1, n) for i, (kind, n) in enumerate(words)]
                          for words in said])  # fmt: skip
    lengths = [sum(n for _, n in runs) for runs in prompts.runs]
    answers, block = answers[: len(said)], e["block"]
    policy = Policy(max_seqs=e["max_seqs"], budget=e["budget"], ahead=int(e["ahead"]),
                    room="prompt" if e["whole"] or kind is RadixCache else "chunk")  # fmt: skip
    blocks = max(e["blocks"] // 2, 1 + max(-(-(p + a) // block) for p, a in zip(lengths, answers, strict=True)))
    arrivals = [30.0 * i * spread for i in range(len(said))]

    def cache() -> PrefixCache:
        return kind(blocks * block, block, lengths, prompts, rule)

    record, scheduler = served(policy, cache(), lengths, answers, arrivals)
    assert conserved(record, scheduler.cache)
    assert record.hit_tokens == sum(record.prefix_hit)
    all_tokens = [tokens_of(prompts, i, answer) for i, answer in enumerate(answers)]
    for i, own in enumerate(all_tokens):
        earlier = [all_tokens[j] for j in range(len(said)) if j != i and record.start_s[j] <= record.start_s[i]]
        common = max((_common(own, other) for other in earlier), default=0)
        assert record.prefix_hit[i] <= min(common, lengths[i] - 1) and record.prefix_hit[i] % block == 0
    skipping = RunRecord.of(lengths, answers)
    Replica(Scheduler(policy, cache(), skipping), Times(), Fixed(arrivals)).run()
    assert equal(skipping, record) and list(skipping.prefix_hit) == list(record.prefix_hit)


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_identical_prompts_compute_only_their_last_block() -> None:
    """All of them where the cache is warm, all but the first where it is not."""
    for prompt, last in ((100, 4), (96, 16)):
        prompts = Prompts(runs=[((7, prompt),)] * 5, answers=[-1] * 5)
        for warm, computed in ((True, 5 * last), (False, 4 * last + prompt)):
            cache = PrefixCache(4096, 16, [prompt] * 5, prompts)
            if warm:
                cache.fill()
            record, _ = served(Policy(max_seqs=4, budget=64), cache, [prompt] * 5, [3] * 5)
            assert record.prompt_tokens == computed and record.hit_tokens == 5 * prompt - computed
            assert conserved(record, cache)


def test_prompts_that_share_nothing_are_served_as_without_a_prefix_cache() -> None:
    """The same run, but for requests that give way: they find their own blocks."""
    prompts, answers, arrivals = [30, 40, 50, 20] * 5, [20, 9, 15, 30] * 5, [3.0 * i for i in range(20)]
    policy = Policy(max_seqs=4, budget=64)
    for runs in (None, Prompts(runs=[((-1, n),) for n in prompts], answers=[-1] * 20)):
        record, _ = served(policy, PrefixCache(2000, 4, prompts, runs), prompts, answers, arrivals)
        plain, _ = served(policy, BlockCache(2000, 4), prompts, answers, arrivals)
        assert equal(record, plain) and not record.hit_tokens
    # as in the golden schedules, but the second request finds its two blocks: 1 of 9 tokens is computed again
    _, scheduler = served(Policy(max_seqs=2, budget=16), PrefixCache(16, 4, [7, 8, 1]), [7, 8, 1], [4, 2, 1])
    assert scheduler.steps == [{0: 7, 1: 8}, {0: 1}, {0: 1}, {0: 1}, {1: 5, 2: 1}]


def test_a_later_turn_finds_the_conversation_before_it() -> None:
    """Prompt and answer, in whole blocks; the last token of an answer was never computed."""
    said = [((0, 20),), ((0, 20), (1, 13), (2, 10))]
    prompts = Prompts(runs=said, answers=[1, 3])
    cache = PrefixCache(400, 4, [20, 43], prompts)
    record, _ = served(Policy(max_seqs=4, budget=64), cache, [20, 43], [13, 2], [0.0, 100.0])
    assert list(record.prefix_hit) == [0, 32] and conserved(record, cache)


def test_a_full_cache_keeps_the_most_common_runs_when_it_is_warm() -> None:
    """And of a conversation's turns only the first counts."""
    runs = [((1, 40), (-1, 8)), ((1, 40), (2, 40)), ((1, 40), (2, 40)), ((5, 40),), ((5, 40), (6, 9), (7, 8))]
    lengths = [sum(n for _, n in prompt) for prompt in runs]
    prompts = Prompts(runs=runs, answers=[-1, -1, -1, 6, -1])
    for after, last in ((None, 16), ([-1, -1, -1, -1, 3], 0)):
        cache = PrefixCache(96, 8, lengths, prompts)
        cache.fill(after)
        assert [cache.prefix(i, n) for i, n in enumerate(lengths)] == [40, 72, 72, last, last]
        assert cache.free == cache.total


def test_a_request_that_gives_way_finds_its_prompt_in_a_tree() -> None:
    """And with blocks by hash what it made since as well: 40 tokens of a prompt and 16 of its answer."""
    for kind, found in ((PrefixCache, 56), (RadixCache, 40)):
        cache = kind(400, 8, [40])
        assert cache.admit(0, 0, 40)
        cache.store(0, 40)
        cache.take(2)
        cache.give_way(0, 56, 56)
        assert cache.free == cache.total and cache.prefix(0, 57) == found


def test_a_tree_gives_up_whole_runs_and_keeps_one_copy() -> None:
    """Blocks are reused one by one from the end of a run; a tree frees the run. Two requests that compute the same
    prompt at the same time hold it twice, or once.
    """
    prompts = Prompts(runs=[((1, 40),), ((2, 64),), ((1, 40),)], answers=[-1] * 3)
    lengths, left = [40, 64, 40], {}
    for kind in (PrefixCache, RadixCache):
        cache = kind(96, 8, lengths, prompts)
        assert cache.admit(0, 0, 40)
        cache.store(0, 40)
        cache.release(0, 40, 40)
        assert cache.admit(1, 0, 64)  # 8 of 12 blocks: one of the five of the first prompt
        left[kind] = cache.prefix(2, 40)
        cache.store(1, 64)
        cache.release(1, 64, 64)
        assert cache.free == cache.total
        both = kind(96, 8, lengths, prompts)
        assert both.admit(0, 0, 8) and both.admit(2, 0, 8)
        for request in (0, 2):
            assert both.extend(request, 8, 40)
            both.store(request, 40)
        assert both.free == (12 - 5 if kind is RadixCache else 12 - 10)
        for request in (0, 2):
            both.release(request, 40, 40)
        assert both.free == both.total and both.prefix(0, 40) == 32
    assert left == {PrefixCache: 32, RadixCache: 0}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 4), st.integers(0, 7)),
                min_size=2, max_size=14),
       ENGINES, st.sampled_from([0.0, 7.0]))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_blocks_of_a_trace_that_always_stand_together_are_one_run(
    said: list[tuple[int, int, int, int]], e: dict[str, int], apart: float
) -> None:
    """A run for each recorded block gives the same hits, times and preemptions. A prompt goes along with an earlier one
    for some blocks, then alone, and ends with tokens of no block or within one.
    """
    size, blocks, lengths, runs = 8, list[tuple[int, ...]](), [], []
    for index, (like, common, own, rest) in enumerate(said):
        before = blocks[like % index] if index else ()
        blocks.append((*before[: min(common, len(before))], *(100 * index + i for i in range(own + 1))))
        lengths.append(size * len(blocks[-1]) + (rest if rest < 4 else -rest))
    joined, single = block_runs(blocks, lengths, size), list[list[tuple[int, int]]]()
    for own, prompt in zip(blocks, lengths, strict=True):
        single.append([(block, min(size, prompt - size * at)) for at, block in enumerate(own)])
        single[-1] += [(-1, prompt - size * len(own))] * (prompt > size * len(own))
    fewer = sum(map(len, single)) - sum(map(len, joined))
    nothing_in_common = all(common == 0 for _, common, _, _ in said)
    assert fewer >= (1 if nothing_in_common and max(own for _, _, own, _ in said) else 0)
    total = max(e["blocks"] // 2, 2 + max(lengths) // e["block"] + 4)
    policy = Policy(max_seqs=e["max_seqs"], budget=e["budget"], ahead=int(e["ahead"]))
    for prompts in (joined, single):
        cache = PrefixCache(total * e["block"], e["block"], lengths, Prompts(runs=prompts, answers=[-1] * len(prompts)))
        runs.append(served(policy, cache, lengths, [5] * len(said), [apart * i for i in range(len(said))])[0])
    assert equal(*runs) and list(runs[0].prefix_hit) == list(runs[1].prefix_hit)


def said(*words: str) -> tuple[list[int], Prompts]:
    """Prompts as words of runs, each a letter and its tokens: equal beginnings are equal runs."""
    ids: dict[str, int] = {}
    runs = []
    for prompt in words:
        parts = prompt.split()
        runs.append(
            [(ids.setdefault(" ".join(parts[: i + 1]), len(ids)), int(parts[i][1:])) for i in range(len(parts))]
        )
    return [sum(n for _, n in run) for run in runs], Prompts(runs=runs, answers=[100 + i for i in range(len(words))])


def found(rule: Resuming | None, lengths: list[int], prompts: Prompts, answer: int = 3, block: int = 4,
          kind: type[PrefixCache] = PrefixCache) -> list[int]:  # fmt: skip
    """Hits of prompts that follow each other, each after the one before has ended."""
    cache = kind(4000, block, lengths, prompts, rule)
    times = [100.0 * i for i in range(len(lengths))]
    record, _ = served(Policy(max_seqs=4, budget=4096), cache, lengths, [answer] * len(lengths), times)
    assert conserved(record, cache)
    return list(record.prefix_hit)


def test_states_are_found_where_prompts_ended_and_where_they_parted() -> None:
    """By hand, blocks of 4, as of vLLM 0.33 with recurrent layers: an equal prompt goes on behind its last whole block
    (the 6th of 26 tokens); one that shares 16 tokens finds them in the full attention but no state there, computes all,
    and leaves a state at the 16th; the next one with these tokens goes on from it. A prompt that ends with a whole
    block computes that again.
    """
    lengths, prompts = said("a16 b10", "a16 b10", "a16 c10", "a16 d10", "a16 d4", "a16 d4")
    assert found(None, lengths, prompts) == [0, 24, 16, 16, 16, 16]
    assert found(Resuming(1, junctions="beside"), lengths, prompts) == [0, 24, 0, 16, 16, 16]
    assert found(Resuming(1), lengths, prompts) == [0, 24, 0, 0, 0, 16]


def test_windows_are_found_where_all_of_their_blocks_are_kept() -> None:
    """By hand, blocks of 4: a window of 9 tokens takes the 2 blocks before a point. Prompts of up to 3 blocks keep all
    of theirs, if the window takes 3, so that any beginning of them is found.
    """
    lengths, prompts = said("a16 b10", "a16 c10", "a16 d10")
    assert found(Resuming(2, junctions="beside"), lengths, prompts) == [0, 0, 16]
    lengths, prompts = said("a4 b9", "a4 c9", "a4 b9")
    assert found(Resuming(3, junctions="beside"), lengths, prompts) == [0, 4, 12]
    assert found(Resuming(2, junctions="beside"), lengths, prompts) == [0, 0, 12]
    lengths, prompts = said("a16 b10", "a16 b2 c9")  # the blocks before the 5th, beyond the window of the 6th
    assert found(Resuming(2, junctions="beside"), lengths, prompts) == [0, 0]
    assert found(Resuming(6, junctions="beside"), lengths, prompts) == [0, 16]


def test_answers_are_found_where_requests_ended_in_a_tree() -> None:
    """By hand, as of SGLang with recurrent layers: states at multiples of 4 tokens of prompts, or where a prompt was
    found beyond the last state in place of that, and at multiples of 8 when a request ends.
    """
    lengths, prompts = [21, 40, 40], Prompts(runs=[[(0, 21)], [(0, 21), (7, 12), (1, 7)], [(0, 21), (7, 12), (2, 7)]],
                                             answers=[7, 8, 9])  # fmt: skip
    rule = Resuming(1, prompts=4, answers=8, junctions="instead")
    assert found(rule, lengths, prompts, answer=13, block=1, kind=RadixCache) == [0, 32, 32]
    no_answers = Resuming(1, prompts=4, junctions="instead")
    assert found(no_answers, lengths, prompts, answer=13, block=1, kind=RadixCache) == [0, 20, 32]
    lengths, prompts = said("a18 b10", "a18 c11", "a18 c11", "a18 d10")
    assert found(no_answers, lengths, prompts, block=1, kind=RadixCache) == [0, 0, 16, 16]
    both = Resuming(1, prompts=4, junctions="beside")
    assert found(both, lengths, prompts, block=1, kind=RadixCache) == [0, 0, 28, 16]


def test_points_go_with_the_blocks_before_them() -> None:
    """Of 25 blocks the second prompt takes 20, five of them those at the end of the first: the state there is gone; a
    window as wide as the prompt has what it needs before any block that is left.
    """
    lengths, prompts = said("a40", "b80", "a40")
    for rule, hit in ((None, 20), (Resuming(1), 0), (Resuming(100), 20)):
        cache = PrefixCache(100, 4, lengths, prompts, rule)
        record, _ = served(Policy(max_seqs=1, budget=4096), cache, lengths, [1, 1, 1], [0.0, 100.0, 200.0])
        assert list(record.prefix_hit) == [0, 0, hit] and conserved(record, cache)
