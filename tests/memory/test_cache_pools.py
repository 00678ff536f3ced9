"""Caches that hold an entry for several tokens, and engines that divide the room between kinds of caches beforehand."""

from __future__ import annotations

import pytest

import archsim
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineTensors
from archsim.memory.kv_cache import LONGEST, LONGEST_SOURCE, Paging
from archsim.memory.tensors import PipelineStage
from archsim.render.pages.simulate import limit_in_words
from archsim.spec.catalog import names
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan


def stage_of(model: str, engine: str) -> tuple[PipelineStage, Paging]:
    """The caches of a model on one device, and how an engine keeps them."""
    chosen = choose_engine(engine)
    spec = load_model(model)
    tensors = EngineTensors(spec, load_hardware("h100"), choose_formats(spec, "bf16", None, engine=engine), chosen)
    (stage,) = tensors.stages(Plan())
    return stage, tensors.paging


@pytest.mark.parametrize("model", [entry.name for entry in names("models") if entry.status is None])
def test_caches_are_as_large_as_counted(model: str) -> None:
    """A request's cache in an engine that cuts windows is what `count` says, whatever the length."""
    spec = load_model(model)
    if spec.architecture != "decoder":
        pytest.skip("its cache is of source and answer")
    stage, _ = stage_of(model, "generic")
    for tokens in (100, 5_000, 300_000):
        held = stage.request_bytes(tokens, Paging(block=1, windows="cut", chunk=0))
        counted = archsim.count(model, input_len=tokens)
        assert held == counted.kv_bytes + counted.state_bytes, tokens


@pytest.mark.parametrize(("stored", "slots"), [(LONGEST, 1_000), (LONGEST_SOURCE, 1_000), (LONGEST // 2, 500),
                                               (LONGEST // 128, 7), (4_096, 1_000), (512, 512)])  # fmt: skip
def test_slots(stored: int, slots: int) -> None:
    """Whole caches, those of sources, entries and windows are told apart."""
    assert Paging(block=1, windows="cut", chunk=0).slots(stored, 1_000) == slots


def test_pages_of_entries() -> None:
    """Pages are of tokens, entries of whole pages."""
    assert Paging(block=256, windows="cut", chunk=0).slots(LONGEST // 128, 257) == 4


def test_growth_of_entries() -> None:
    """DeepSeek-V4-Flash: 43 layers keep a window of 1,024 B a token; 21 have an entry of 1,024 B and its key of 256 B
    for 4 tokens each, 20 one of 1,024 B for 128.
    """
    stage, _ = stage_of("deepseek-v4-flash", "generic")
    assert stage.growth == 43 * 1024 + 21 * 1280 // 4 + 20 * 1024 // 128


def test_windows_have_a_pool() -> None:
    """12 layers of gpt-oss-20b keep all tokens, 12 a window: 0.8 times as many."""
    answer = archsim.fit("gpt-oss-20b", "h100", engine="sglang", suggest=False)
    of_layer = 2 * 8 * 64 * 2
    assert answer.kv_tokens == int(answer.budget.room / (of_layer * (12 + 0.8 * 12)))
    one_pool = archsim.fit("gpt-oss-20b", "h100", engine="sglang@0.4.8", suggest=False)
    assert one_pool.kv_tokens == one_pool.budget.room // (24 * of_layer)


@pytest.mark.parametrize(("engine", "share"), [("sglang", 1.0), ("sglang@0.5.7", 0.8)])
def test_windows_without_a_pool_of_their_own(engine: str, share: float) -> None:
    """Since 0.5.9 models whose architecture is not listed keep all tokens in every layer."""
    answer = archsim.fit("gemma3-27b", "h200", engine=engine, suggest=False)
    windowed = 62 - 62 // 6
    assert answer.kv_tokens == int(answer.budget.room / (2 * 16 * 128 * 2 * (62 // 6 + share * windowed)))


def test_short_requests_are_as_many_as_the_pool_of_windows_holds() -> None:
    stage, paging = stage_of("gpt-oss-20b", "sglang")
    room = 10**10
    whole = stage.tokens(room, 131_072, paging)
    assert stage.tokens(room, 100, paging) == pytest.approx(0.8 * whole, abs=1)
    for length in (100, 128, 150, 160, 1_000):
        held = room / stage.request_bytes(length, paging)
        assert held * length == pytest.approx(min(whole, 0.8 * whole * length / min(length, 128)), rel=1e-4)


@pytest.mark.parametrize(("engine", "states"), [("sglang", 5), ("sglang@0.5.12", 3)])
def test_states_have_a_pool(engine: str, states: int) -> None:
    """Recurrent states get 0.9 of the memory of keys and values; requests are limited by both pools."""
    stage, paging = stage_of("qwen3-next-80b-a3b", engine)
    room = 19 * 2**30
    keys = 12 * 2 * 2 * 256 * 2
    assert stage.tokens(room, 32_768, paging) == int(10 * 2**30 / keys)
    of_states = sum(copies.bytes for copies in stage.caches if "C" not in copies.tensor.axes or
                    copies.tensor.role == "recurrent")  # fmt: skip
    assert stage.requests_of_states(room, paging) == int(9 * 2**30 / of_states) // states
    assert stage.requests_of_states(room, paging, prefixes=False) == int(9 * 2**30 / of_states)
    assert room / stage.request_bytes(10, paging) == pytest.approx(9 * 2**30 / of_states / states)
    assert room / stage.request_bytes(10**6, paging) == pytest.approx(10 * 2**30 / keys / 10**6)


def test_a_simulated_server_runs_what_its_states_allow() -> None:
    """Requests beyond the pool of states wait; an older version, of fewer states for each, runs more."""
    most = []
    for version in ("0.5.15", "0.5.13"):
        answer = archsim.simulate(
            "qwen3-next-80b-a3b", hw="h100", devices=4, tp=4, engine=f"sglang@{version}", concurrency=2_000,
            requests=2_500, input_len=64, output_len=32, replications=1, expected_only=True,
        )  # fmt: skip
        most.append(answer.to_dict()["state"]["running"]["max"])
    assert 0 < most[0] < most[1] < 2_000
    assert most[0] / most[1] == pytest.approx(3 / 5, rel=0.02)


@pytest.mark.parametrize(("limit", "words"), [(None, "room for recurrent states"), (4, "--max-running-requests")])
def test_pages_say_which_limit_it_is(limit: int | None, words: str) -> None:
    """Requests that wait for states do not wait for a flag."""
    answer = archsim.simulate(
        "qwen3-next-80b-a3b", hw="h200", devices=2, tp=2, engine="sglang", concurrency=300, requests=400,
        input_len=200, output_len=50, replications=1, expected_only=True, max_num_seqs=limit,
    )  # fmt: skip
    assert answer.state["limited_by"] == "sequences"
    assert words in limit_in_words(answer)


def test_tokens_of_a_pipeline_are_those_of_its_smallest_pool() -> None:
    """The stage whose states hold fewest requests may have room for more tokens than another."""
    answer = archsim.simulate(
        "qwen3-next-80b-a3b", hw="h200", devices=5, pp=5, engine="sglang", concurrency=4, requests=8,
        input_len=200, output_len=20, replications=1, expected_only=True,
    )  # fmt: skip
    assert answer.server.memory.kv_tokens > 1.3 * answer.server.kv_tokens
