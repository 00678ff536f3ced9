"""Speculative decoding in a replica: what is accepted, what it saves, what it takes of steps and cache."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_runs import ENGINES, Fixed, Times, conserved

from archsim.base.errors import UsageError
from archsim.serving.acceptance import AcceptedDrafts, Drafting, parse_drafting
from archsim.serving.cache import BlockCache, Cache
from archsim.serving.engine import Replica
from archsim.serving.policy import Policy
from archsim.serving.prefix_cache import PrefixCache
from archsim.serving.random_numbers import Stream
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Scheduler
from archsim.serving.speculative_scheduler import SpeculativeScheduler

LOADS = st.lists(
    st.tuples(st.floats(0, 60).map(lambda t: round(t, 1)), st.integers(1, 60), st.integers(1, 30)),
    min_size=1, max_size=10,
)  # fmt: skip


def drafts(shares: Sequence[float]) -> AcceptedDrafts:
    return AcceptedDrafts(tuple(shares), Stream.of(0, "acceptance"))


def served(
    load: Sequence[tuple[float, int, int]], policy: Policy, cache: Cache, shares: Sequence[float]
) -> tuple[RunRecord, Times]:
    arrivals, prompts, answers = (list(column) for column in zip(*load, strict=True))
    record, times = RunRecord.of(prompts, answers), Times()
    scheduler = (
        SpeculativeScheduler(policy, cache, record, drafts(shares), len(shares)) if shares
        else Scheduler(policy, cache, record)
    )  # fmt: skip
    Replica(scheduler, times, Fixed(arrivals)).run()
    return record, times


@pytest.mark.slow
@given(LOADS, ENGINES, st.lists(st.floats(0, 1), min_size=1, max_size=4), st.booleans())
@settings(max_examples=80, deadline=None)
def test_nothing_is_lost_or_made_twice(
    load: list[tuple[float, int, int]], e: dict[str, int], shares: list[float], found_again: bool
) -> None:
    """Requests, tokens, blocks and Little's law, whatever is accepted, and where requests give way."""
    shares = sorted(shares, reverse=True)
    policy = Policy(max_seqs=e["max_seqs"], budget=e["budget"] + 8 * (len(shares) + 1), ahead=int(e["ahead"]))
    tokens = (e["blocks"] // 2) * e["block"]
    cache = PrefixCache(tokens, e["block"], [i for _, i, _ in load]) if found_again else BlockCache(tokens, e["block"])
    record, _ = served(load, policy, cache, shares)
    assert conserved(record, cache)
    assert record.gaps.count == sum(record.output_len[i] - 1 for i in range(len(load)) if i not in record.refused)
    assert record.verified <= record.decode_tokens <= (len(shares) + 1) * record.verified


def test_no_acceptance_is_a_token_a_step_and_full_acceptance_all_of_them() -> None:
    """The steps of an engine without drafts, or one for each `drafts` + 1 tokens."""
    load, policy = [(0.0, 10, 22), (0.0, 30, 13), (3.0, 5, 2)], Policy(max_seqs=4, budget=64)
    plain, without = served(load, policy, BlockCache(800, 4), ())
    none, steps = served(load, policy, BlockCache(800, 4), (0.0, 0.0, 0.0))
    assert steps.steps == without.steps and list(none.last_s) == list(plain.last_s)
    every, _ = served(load, policy, BlockCache(800, 4), (1.0, 1.0, 1.0))
    assert every.verified == sum(-(-(answer - 1) // 4) for _, _, answer in load) and plain.verified == 0
    zeros = every.gaps.weights[0]
    assert zeros == every.decode_tokens - every.verified and every.gaps.least == 0.0


def test_steps_are_those_of_each_request_by_itself() -> None:
    """Sequences and cached tokens of every step, from the draws of each request alone."""
    shares, load = (0.7, 0.4), [(0.0, 8, 17), (0.0, 8, 30), (0.0, 8, 9)]
    _, times = served(load, Policy(max_seqs=4, budget=64), BlockCache(800, 4), shares)
    held = []
    for request, (_, prompt, answer) in enumerate(load):
        cached, made = [], 0
        for accepted in drafts(shares).of(request, 0, answer):
            if made < answer - 1:
                cached.append(prompt + made)
                made += accepted + 1
        held.append(cached)
    decodes = [(decodes, context) for decodes, context, chunks in times.steps if not chunks]
    longest = max(map(len, held))
    expected = [[cached[i] for cached in held if i < len(cached)] for i in range(longest)]
    assert decodes == [(len(step), sum(step)) for step in expected]


def test_draws_depend_on_request_and_step_alone() -> None:
    """And have the stated shares."""
    many = drafts((0.8, 0.5, 0.1)).of(3, 0, 20_000)
    assert list(many[100:120]) == list(drafts((0.8, 0.5, 0.1)).of(3, 100, 20))
    for position, share in enumerate((0.8, 0.5, 0.1)):
        assert isclose(sum(n > position for n in many) / len(many), share, abs_tol=0.015)


def test_a_step_must_have_room_for_the_drafts_of_all_sequences() -> None:
    """With what to do."""
    with pytest.raises(UsageError, match="no room for 32 sequences of 4"):
        served([(0.0, 4, 4)], Policy(max_seqs=32, budget=64), BlockCache(800, 4), (0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [("0.5", (0.5, 0.25, 0.125)), ("0.8,0.6,0.5", (0.8, 0.6, 0.5)), ("1.875", (0.5, 0.25, 0.125)), ("4", (1, 1, 1)),
     ("0", (0, 0, 0))],
)  # fmt: skip
def test_ways_to_state_acceptance(text: str, accepted: tuple[float, ...]) -> None:
    """A probability, shares by position, tokens a step."""
    found = parse_drafting("draft:org/model,3", text)
    assert found is not None and found.method == "draft" and found.model == "org/model"
    assert all(isclose(a, b, abs_tol=1e-9) for a, b in zip(found.accepted, accepted, strict=True))


def test_measured_steps_state_acceptance(tmp_path: Path) -> None:
    """A column of the tokens that each step made."""
    file = tmp_path / "steps.csv"
    file.write_text("tokens\n1\n3\n2\n4\n")
    assert parse_drafting("mtp:3", f"{file}:tokens") == Drafting("mtp", 3, (0.75, 0.5, 0.25))
    with pytest.raises(UsageError, match="more than 3 tokens, of 2 drafts"):
        parse_drafting("mtp:2", f"{file}:tokens")


def test_a_tree_of_drafts() -> None:
    """SGLang's numbers of steps, branches and verified tokens; without a tree one token more than drafts."""
    found = parse_drafting("eagle:4,topk=4,tokens=16", "0.5")
    assert found is not None and (found.drafts, found.topk, found.verified, len(found.accepted)) == (4, 4, 16, 4)
    assert str(found) == "eagle:4,topk=4,tokens=16" and parse_drafting(str(found), "0.5") == found
    assert parse_drafting("eagle:4, tokens=16, topk=4", "0.5") == found
    chain = parse_drafting("mtp:3", "0.5")
    assert chain is not None and chain.verified == 4 and str(chain) == "mtp:3"


@pytest.mark.parametrize(
    ("way", "acceptance", "said"),
    [("mtp:3", None, "needs `--acceptance`"), (None, "0.5", "give `--speculative`"), ("tea:3", "0.5", "not a draft"),
     ("ngram:0", "0.5", "not a number of drafts"), ("draft:3", "0.5", "not a draft"), ("mtp:2", "3.5", "cannot be"),
     ("mtp:2", "0.5,0.6", "cannot be"), ("mtp:2", "0.6,0.5,0.4", "3 positions"), ("mtp:2", "nan", "cannot be"),
     ("mtp:2", "", "cannot be"), ("ngram:2,topk=2,tokens=4", "0.5", "made by a module"),
     ("eagle:4,topk=4,tokens=4", "0.5", "5 to 53 tokens, not 4"), ("eagle:2,topk=1,tokens=4", "0.5", "3 to 3 tokens"),
     ("eagle:4,topk=0,tokens=5", "0.5", "a tree of 4 drafts"), ("eagle:3,topk=2", "0.5", "has `topk` and `tokens`"),
     ("eagle:3,tokens=8", "0.5", "has `topk` and `tokens`")],
)  # fmt: skip
def test_what_cannot_be_is_refused(way: str | None, acceptance: str | None, said: str) -> None:
    """Nothing is assumed."""
    with pytest.raises(UsageError, match=said):
        parse_drafting(way, acceptance)
