"""Batching rules of engines as their documents have them, against schedulers that visit every request and by hand."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import pytest
import reference_engines as engines
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_scheduler import Engine, Request
from replica_runs import LOADS, Fixed, Times, Watched, conserved, equal, seconds

from archsim.predict.served_engine import batching_policy
from archsim.serving.acceptance import AcceptedDrafts
from archsim.serving.cache import BlockCache
from archsim.serving.engine import Replica
from archsim.serving.gang import Gang, slowest
from archsim.serving.micro_batches import MicroBatches
from archsim.serving.policy import Policy
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler
from archsim.serving.speculative_scheduler import SpeculativeScheduler
from archsim.spec.engine import load_engine

Load = list[tuple[float, int, int]]

V0, SGLANG, TRTLLM, SLOTS = ("vllm", "0.7.3"), ("sglang", ""), ("trtllm", ""), ("llamacpp", "")


def policy(engine: tuple[str, str], max_seqs: int, budget: int) -> Policy:
    """An engine's rules with small limits."""
    return batching_policy(load_engine(*engine).scheduler, max_seqs, budget, context=4096)


def run(load: Load, rules: Policy, blocks: int, block: int, times: Times | None = None) -> tuple[RunRecord, Watched]:
    """One run, step by step."""
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    record, cache = RunRecord.of(prompts, answers), BlockCache(blocks * block, block)
    scheduler = Watched(rules, cache, record)
    Replica(scheduler, times or Times(), Fixed(arrivals), one_by_one=True).run()
    assert conserved(record, cache)
    skipping = RunRecord.of(prompts, answers)
    Replica(Scheduler(rules, BlockCache(blocks * block, block), skipping), times or Times(), Fixed(arrivals)).run()
    assert list(skipping.last_s) == list(record.last_s) and skipping.steps == record.steps
    return record, scheduler


LIMITS = st.tuples(st.integers(1, 6), st.integers(24, 64), st.integers(45, 90))


def equals(load: Load, rules: Policy, theirs: Engine) -> None:
    """The same steps, times and preemptions as a scheduler that visits every request."""
    record, scheduler = run(load, rules, theirs.blocks, theirs.block)
    ran = [i for i in range(len(load)) if i not in record.refused]
    theirs.requests = [Request(i, *load[i]) for i in ran]
    theirs.run()
    assert scheduler.steps == theirs.steps
    for request in theirs.requests:
        assert isclose(record.first_s[request.id], request.token_s[0])
        assert isclose(record.last_s[request.id], request.token_s[-1])
        assert record.preemptions[request.id] == request.preemptions


@given(LOADS, LIMITS, st.sampled_from([1, 4]))
@settings(max_examples=40, deadline=None)
def test_vllm_before_v1(load: Load, limits: tuple[int, int, int], block: int) -> None:
    """0.7.3: prompts alone and whole, 1 % of the blocks stay free, the last that was admitted gives way."""
    seqs, _, blocks = limits
    equals(load, policy(V0, seqs, 160), engines.V0([], seconds, seqs, 160, blocks, block))


@pytest.mark.slow
@given(LOADS, LIMITS)
@settings(max_examples=50, deadline=None)
def test_sglang(load: Load, limits: tuple[int, int, int]) -> None:
    """0.5.23: prompts alone, the new-token ratio, retraction of those with the fewest tokens."""
    seqs, budget, blocks = limits
    equals(load, policy(SGLANG, seqs, budget), engines.Sglang([], seconds, seqs, budget, 2 * blocks, 1, ahead=True))


@given(LOADS, LIMITS, st.sampled_from([1, 4]))
@settings(max_examples=40, deadline=None)
def test_tensorrt_llm(load: Load, limits: tuple[int, int, int], block: int) -> None:
    """GUARANTEED_NO_EVICT: room for the whole answer, nobody is ever paused."""
    seqs, _, blocks = limits
    equals(load, policy(TRTLLM, seqs, 130), engines.TensorRtLlm([], seconds, seqs, 130, blocks, block, ahead=True))


class Second(Times):
    """Every step lasts one second."""

    def seconds(self, decodes: int, context: int, chunks: object) -> float:  # type: ignore[override]
        return 1.0


GOLDEN = {
    # engine, (arrival, prompt, answer), blocks of 4 (SGLang: 1), max_seqs, budget, tokens of each request in each step
    "V0: a prompt that arrives interrupts the decodes": (
        V0, [(0.0, 4, 3), (0.5, 4, 2), (2.5, 4, 1)], 20, 4, 16, [{0: 4}, {1: 4}, {0: 1, 1: 1}, {2: 4}, {0: 1}]),
    "V0: prompts share a step up to its tokens": (
        V0, [(0.0, 10, 2), (0.0, 6, 2), (0.0, 1, 1)], 20, 4, 16, [{0: 10, 1: 6}, {2: 1}, {0: 1, 1: 1}]),
    "V0: a prompt that the step has no tokens for keeps those behind it waiting": (
        V0, [(0.0, 10, 2), (0.0, 9, 1), (0.0, 1, 1)], 20, 4, 16, [{0: 10}, {1: 9, 2: 1}, {0: 1}]),
    "V0: no more sequences than allowed": (
        V0, [(0.0, 4, 2), (0.0, 4, 3), (0.0, 4, 1)], 20, 2, 16, [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}, {1: 1}]),
    "V0: the whole prompt must have room": (
        V0, [(0.0, 8, 3), (0.0, 13, 1)], 5, 4, 16, [{0: 8}, {0: 1}, {0: 1}, {1: 13}]),
    "V0: one of a hundred blocks stays free": (
        V0, [(0.0, 4, 2), (0.0, 393, 1), (0.0, 388, 1)], 100, 4, 400, [{0: 4}, {0: 1}, {1: 393}, {2: 388}]),
    "V0: the last that was admitted gives way and is computed again": (
        V0, [(0.0, 4, 3), (0.0, 4, 3)], 3, 4, 16, [{0: 4, 1: 4}, {0: 1}, {0: 1}, {1: 5}, {1: 1}]),
    "V0: two give way to one, the earlier of them returns first": (
        V0, [(0.0, 8, 4), (0.0, 4, 2), (0.0, 4, 2)], 4, 4, 16,
        [{0: 8, 1: 4, 2: 4}, *[{0: 1}] * 3, {1: 5, 2: 5}]),
    "V0: a request that has ended leaves before the next step": (
        V0, [(0.0, 4, 1), (0.0, 4, 1)], 20, 1, 16, [{0: 4}, {1: 4}]),
    "V0: an arrival during a step waits for its end": (
        V0, [(0.0, 4, 2), (1.5, 4, 1)], 20, 4, 16, [{0: 4}, {0: 1}, {1: 4}]),
    "SGLang: prompts alone, then decodes": (
        SGLANG, [(0.0, 4, 2), (0.0, 4, 3)], 60, 4, 16, [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1}]),
    "SGLang: the last prompt of a batch is cut, and goes on before others": (
        SGLANG, [(0.0, 10, 2), (0.0, 20, 1), (0.0, 3, 1)], 90, 4, 16,
        [{0: 10, 1: 6}, {1: 14, 2: 2}, {2: 1}, {0: 1}]),
    "SGLang: an arrival during a step misses the one that is scheduled already": (
        SGLANG, [(0.0, 4, 4), (0.5, 4, 1)], 60, 4, 16, [{0: 4}, {0: 1}, {1: 4}, {0: 1}, {0: 1}]),
    "SGLang: one that ends leaves its place when decodes are scheduled after its result is known": (
        SGLANG, [(0.0, 4, 2), (0.0, 4, 5), (0.0, 4, 1)], 60, 2, 16,
        [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1}, {1: 1}, {2: 4}, {1: 1}]),
    "SGLang: a step with prompts opens no place": (
        # 0 and 1 end together; their places are open in the step after decodes of 2, which runs alone
        SGLANG, [(0.0, 4, 2), (0.0, 4, 2), (0.0, 4, 9), (0.5, 4, 1)], 60, 4, 16,
        [{0: 4, 1: 4, 2: 4}, {0: 1, 1: 1, 2: 1}, {3: 4}, *[{2: 1}] * 7]),
    "SGLang: the place of one that ends stays taken while prompts run": (
        SGLANG, [(0.0, 4, 2), (0.0, 4, 9), (0.5, 4, 1), (1.5, 4, 1)], 60, 3, 16,
        [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}, {1: 1}, {3: 4}, *[{1: 1}] * 6]),
    "SGLang: places of all that have ended are open at once where nothing decodes": (
        SGLANG, [(0.0, 4, 2), (0.0, 4, 2), (0.0, 4, 1)], 60, 2, 16, [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}]),
    "SGLang: no prompt while its whole answer has no room, whoever could run": (
        SGLANG, [(0.0, 10, 9), (0.0, 10, 9)], 34, 4, 32, [{0: 10}, *[{0: 1}] * 8, {1: 10}, *[{1: 1}] * 8]),
    "SGLang: a batch that had no room is full until a request leaves it": (
        # 1 has no room beside 0 and keeps 2 out, which would have some; 20 + 9 + 1 of 34 leave 2 + 1 + 1 no token
        SGLANG, [(0.0, 10, 3), (0.0, 20, 9), (0.0, 2, 1)], 34, 4, 32,
        [{0: 10}, {0: 1}, {0: 1}, {1: 20}, *[{1: 1}] * 8, {2: 2}]),
    "SGLang: two prompts whose answers would not fit together run together": (
        # 4 + 20 + 1 < 44 - 0: 1 is admitted in the next step, as 0 then counts 0.7 x 19 tokens
        SGLANG, [(0.0, 4, 20), (1.5, 4, 12)], 44, 4, 32,
        [{0: 4}, {0: 1}, {0: 1}, {1: 4}, *[{0: 1, 1: 1}] * 11, *[{0: 1}] * 6]),
    "SGLang: those with the fewest tokens are retracted, and wait behind others": (
        # 2 + 36 + 1 < 66 - 0.698 x 37; after 32 steps both hold 70, 1 has made 33 tokens and 0 35
        SGLANG, [(0.0, 2, 40), (1.5, 2, 36)], 70, 4, 64,
        [{0: 2}, {0: 1}, {0: 1}, {1: 2}, *[{0: 1, 1: 1}] * 32, *[{0: 1}] * 5, {1: 35}, {1: 1}, {1: 1}]),
    "SGLang: a request that alone would fill the cache is refused": (
        SGLANG, [(0.0, 10, 9), (0.0, 10, 10), (0.0, 4, 1)], 21, 4, 32, [{0: 10}, *[{0: 1}] * 8, {2: 4}]),
    "SGLang: the ratio starts anew when the server idles": (
        SGLANG, [(0.0, 4, 2), (9.0, 4, 2)], 60, 4, 16, [{0: 4}, {0: 1}, {1: 4}, {1: 1}]),
    "TensorRT-LLM: prompts beside decodes": (
        TRTLLM, [(0.0, 4, 4), (0.5, 4, 2)], 20, 4, 16, [{0: 4}, {0: 1}, {0: 1, 1: 4}, {0: 1, 1: 1}]),
    "TensorRT-LLM: a prompt is not cut": (
        TRTLLM, [(0.0, 10, 2), (0.0, 8, 1), (0.0, 1, 1)], 20, 4, 16, [{0: 10}, {0: 1, 1: 8, 2: 1}]),
    "TensorRT-LLM: a decode takes a token of the step": (
        TRTLLM, [(0.0, 4, 5), (1.0, 16, 1), (1.0, 4, 1)], 20, 4, 16,
        [{0: 4}, *[{0: 1}] * 4, {1: 16}, {2: 4}]),
    "TensorRT-LLM: the whole answer must have room": (
        TRTLLM, [(0.0, 4, 9), (0.0, 4, 9)], 5, 4, 16, [{0: 4}, *[{0: 1}] * 8, {1: 4}, *[{1: 1}] * 8]),
    "TensorRT-LLM: nobody is paused": (
        TRTLLM, [(0.0, 4, 5), (0.0, 4, 5), (0.0, 4, 1)], 5, 4, 16,
        [{0: 4, 1: 4, 2: 4}, *[{0: 1, 1: 1}] * 4]),
    "TensorRT-LLM: the head of the queue blocks those behind it": (
        TRTLLM, [(0.0, 8, 5), (0.0, 12, 1), (0.0, 4, 1)], 5, 4, 32, [{0: 8}, *[{0: 1}] * 4, {1: 12, 2: 4}]),
    "TensorRT-LLM: no more sequences than allowed, free one step after the end": (
        TRTLLM, [(0.0, 4, 2), (0.0, 4, 4), (0.0, 4, 1)], 20, 2, 16,
        [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1}, {1: 1, 2: 4}]),
    "TensorRT-LLM: a prompt beyond a step is refused": (
        TRTLLM, [(0.0, 17, 1), (0.0, 16, 9)], 20, 2, 16, [{1: 16}, *[{1: 1}] * 8]),
    "TensorRT-LLM: one token of answer needs no room": (
        TRTLLM, [(0.0, 8, 1), (0.0, 12, 1)], 5, 4, 32, [{0: 8, 1: 12}]),
    "TensorRT-LLM: blocks are free one step after the end": (
        TRTLLM, [(0.0, 8, 2), (0.0, 12, 2), (0.0, 4, 1)], 6, 4, 32, [{0: 8}, {0: 1}, {1: 12, 2: 4}, {1: 1}]),
    "slots: one token for each slot that generates, then prompts up to the batch": (
        SLOTS, [(0.0, 4, 3), (0.0, 20, 2)], 20, 4, 16, [{0: 4, 1: 12}, {0: 1, 1: 8}, {0: 1, 1: 1}]),
    "slots: others wait for one": (
        SLOTS, [(0.0, 4, 2), (0.0, 4, 1), (0.0, 4, 1)], 20, 1, 16, [{0: 4}, {0: 1}, {1: 4}, {2: 4}]),
    "slots: a slot that a request leaves is taken in the next step": (
        SLOTS, [(0.0, 4, 2), (0.0, 4, 3), (0.0, 4, 1)], 20, 2, 16, [{0: 4, 1: 4}, {0: 1, 1: 1}, {1: 1, 2: 4}]),
    "slots: an arrival during a step is in the next one": (
        SLOTS, [(0.0, 4, 3), (0.5, 4, 1)], 20, 2, 16, [{0: 4}, {0: 1, 1: 4}, {0: 1}]),
    "slots: nobody gives way": (
        SLOTS, [(0.0, 4, 9), (0.0, 4, 9)], 5, 2, 16, [{0: 4}, *[{0: 1}] * 8, {1: 4}, *[{1: 1}] * 8]),
    "slots: prompts go on in the order of their slots": (
        SLOTS, [(0.0, 20, 1), (0.0, 10, 1), (0.0, 4, 1)], 30, 3, 16, [{0: 16}, {0: 4, 1: 10, 2: 2}, {2: 2}]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_schedules(name: str) -> None:
    """Steps as the engine's source has them, written by hand."""
    engine, load, blocks, max_seqs, budget, steps = GOLDEN[name]
    block = 1 if engine == SGLANG else 4
    found = run(load, policy(engine, max_seqs, budget), blocks, block, Second())[1].steps  # type: ignore[arg-type]
    assert found == steps


FIXED: dict[str, tuple[Load, int, bool, list[dict[int, int]]]] = {
    "not admitted where the answers of both would run out of cache": (
        # after step 2: 0 holds 7 and has 17 left, 38 are free; 38 - 5 - 2 x 17 < 2, where 4 + 18 + 1 < 38 - 0.698 x 17
        [(0.0, 4, 20), (1.5, 4, 18)], 44, False, [{0: 4}, *[{0: 1}] * 19, {1: 4}, *[{1: 1}] * 17]),
    "admitted where the one that ends first leaves room for the rest of the other": (
        # 34 - 5 - 2 x 7 > 2, and with the 7 of request 0 36 - 24 > 1
        [(0.0, 4, 10), (1.5, 4, 24)], 40, False,
        [{0: 4}, {0: 1}, {0: 1}, {1: 4}, *[{0: 1, 1: 1}] * 7, *[{1: 1}] * 16]),
    "with a prefix cache all of what is left is counted, whoever ends first": (
        # 4 + 24 + 1 > 34 - 1 x 7
        [(0.0, 4, 10), (1.5, 4, 24)], 40, True, [{0: 4}, *[{0: 1}] * 9, {1: 4}, *[{1: 1}] * 23]),
}  # fmt: skip
"""Requests that ignore the end of a sequence, tokens of the cache, whether prefixes are kept, and the steps."""


@pytest.mark.parametrize("name", FIXED)
def test_sglang_plans_for_answers_that_ignore_their_end(name: str) -> None:
    """`add_one_req_ignore_eos` and `_get_running_request_total_token_offset` of 0.5.23, by hand."""
    load, tokens, kept, steps = FIXED[name]
    rules = replace(policy(SGLANG, 4, 64), ignores_eos=True, shares_prefixes=kept)
    assert run(load, rules, tokens, 1, Second())[1].steps == steps


def test_micro_batches_run_one_after_another() -> None:
    """Decodes and the beginning of a prompt first; what is left, 8 tokens at a time; small steps as they are."""
    times = Times()
    split = MicroBatches(times, 8)
    assert split.seconds(2, 20, [(4, 0)]) == seconds(2, 20, [(4, 0)])
    times.steps.clear()
    split.seconds(3, 30, [(10, 5), (2, 0)])
    assert times.steps == [(3, 30, [(5, 5)]), (0, 0, [(5, 10), (2, 0)])]
    times.steps.clear()
    split.seconds(20, 200, [])
    assert times.steps == [(8, 80, []), (8, 80, []), (4, 40, [])]


@given(LOADS, LIMITS, st.sampled_from([SGLANG, TRTLLM, V0, ("vllm", "")]), st.sampled_from([(), (0.8, 0.5)]))
@settings(max_examples=80, deadline=None)
def test_ranks_that_go_on_as_before_are_not_asked(
    load: Load, limits: tuple[int, int, int], engine: tuple[str, str], drafts: tuple[float, ...]
) -> None:
    """Two ranks under an engine's rules, with and without drafts: as where each is asked in every step."""
    arrivals, prompts, answers = (list(column) for column in zip(*sorted(load), strict=True))
    rules, runs = policy(engine, *limits[:2]), []
    for one_by_one in (True, False):
        record, ranks = RunRecord.of(prompts, answers), list[Scheduler]()
        for _ in range(2):
            cache = BlockCache(limits[2] * 4, 4)
            if drafts:
                accepts = AcceptedDrafts(drafts, Stream.of(0, "acceptance"))
                ranks.append(SpeculativeScheduler(rules, cache, record, accepts, len(drafts)))
            else:
                ranks.append(Scheduler(rules, cache, record))
        Gang(ranks, slowest(Times()), Fixed(arrivals), one_by_one=one_by_one).run()
        runs.append(record)
    assert equal(*runs)


def test_prompts_wait_for_others() -> None:
    """By hand, steps of one second: a prompt of 4 beside one decode lets three steps pass, less where a second prompt
    fills 9 tokens with it, and none where nobody decodes.
    """
    rules = replace(policy(TRTLLM, 4, 16), ahead=0, wait_steps=3, wait_tokens=9)
    load = [(0.0, 4, 6), (1.5, 4, 1), (6.5, 4, 5), (7.5, 4, 1), (8.5, 4, 1)]
    _, scheduler = run(load, rules, 20, 4, Second())
    assert scheduler.steps == [
        {0: 4}, {0: 1}, {0: 1}, {0: 1}, {0: 1}, {0: 1, 1: 4}, {2: 4}, {2: 1}, {2: 1, 3: 4, 4: 4}, {2: 1}, {2: 1},
    ]  # fmt: skip


def test_a_prompt_that_does_not_fit_beside_others_waits_whole() -> None:
    """SGLang's --max-prefill-tokens: 16 tokens hold two prompts of 6, not a third in part; one alone may be longer, and
    is cut at the chunk. Without the limit the third is cut.
    """
    prompts = [(0.0, 6, 1)] * 3
    rules = policy(SGLANG, 4, 16)
    steps = {}
    for limit in (0, 16):
        _, scheduler = run(prompts, replace(rules, prompt_tokens=limit), blocks=64, block=1)
        steps[limit] = scheduler.steps
    assert steps[0] == [{0: 6, 1: 6, 2: 4}, {2: 2}] and steps[16] == [{0: 6, 1: 6}, {2: 6}]
    _, scheduler = run([(0.0, 30, 1), (0.0, 4, 1)], replace(rules, prompt_tokens=8), blocks=64, block=1)
    assert scheduler.steps == [{0: 16}, {0: 14}, {1: 4}]
