"""Limits of one replica of the attention, where an engine's flags are of all of them (SGLang) or of each."""

from __future__ import annotations

import pytest

from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineTensors, Settings
from archsim.predict.served_engine import of_replica, policy_of
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan

TOLD = Settings(max_num_seqs=64, max_num_batched_tokens=16384)


@pytest.mark.parametrize(
    ("engine", "settings", "drafts", "seqs", "tokens"),
    [
        ("sglang", TOLD, False, 4, 1024),
        ("sglang", TOLD, True, 4, 1024),
        ("sglang", Settings(max_num_seqs=8), True, 1, 512),  # chunks of 8,192 tokens by default
        ("sglang", Settings(), True, 3, 512),  # 48 of all replicas
        ("sglang", Settings(), False, 2048, 512),  # computed from the cache of each
        ("trtllm", TOLD, False, 64, 16384),
        ("vllm", TOLD, False, 64, 16384),
    ],
)
def test_limits_over_sixteen_replicas(engine: str, settings: Settings, drafts: bool, seqs: int, tokens: int) -> None:
    model, hardware, chosen = load_model("deepseek-v3"), load_hardware("h100"), choose_engine(engine)
    formats = choose_formats(model, None, None, engine=chosen.name)
    tensors = EngineTensors(model, hardware, formats, chosen, settings)
    found = of_replica(policy_of(tensors), tensors, Plan(tp=1, dp=16, ep=16), drafts=drafts)
    assert (found.max_seqs, found.budget) == (seqs, tokens)
    alone = of_replica(policy_of(tensors), tensors, Plan(tp=16), drafts=False)
    assert alone.budget == (settings.max_num_batched_tokens or alone.budget)


def test_tokens_of_prompts_are_of_each_rank_and_as_the_flag_says() -> None:
    model, hardware, engine = load_model("llama3-8b"), load_hardware("h100"), choose_engine("sglang")
    formats = choose_formats(model, None, None, engine=engine.name)
    for settings, tokens in ((Settings(), 16384), (Settings(max_prefill_tokens=2048), 2048)):
        assert policy_of(EngineTensors(model, hardware, formats, engine, settings)).prompt_tokens == tokens
