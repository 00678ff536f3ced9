"""How many requests run at once: one rule for `estimate` and `validate`, and which limit it is."""

from __future__ import annotations

import pytest

import archsim
from archsim.accuracy.capacity import largest_batch
from archsim.accuracy.question import Run
from archsim.base.errors import UsageError
from archsim.serving.steady_state import steady
from archsim.spec.load import load_hardware, load_model


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_estimate_and_validate_run_as_many(engine: str) -> None:
    found = archsim.estimate(
        "llama2-7b", "h100", engine=engine, input_len=2048, output_len=2048, concurrency=300, devices=1
    )
    run = Run(model="llama2-7b", device="h100", engine=engine, isl=2048, osl=2048, devices=1)
    assert found.serving is not None
    assert found.serving.running == largest_batch(run) < 300


def test_the_limit_that_binds_is_named() -> None:
    few = archsim.estimate("qwen2.5-0.5b", "h100", engine="vllm", concurrency=5000).serving
    assert few is not None and few.refusal is not None
    assert "at most 1,024 sequences (--max-num-seqs)" in few.refusal
    full = archsim.estimate("llama2-7b", "h100", engine="vllm", output_len=2048, concurrency=300, devices=1).serving
    assert full is not None and full.refusal is not None
    assert "the KV cache has room for" in full.refusal


def test_no_running_request_is_no_steady_state() -> None:
    with pytest.raises(UsageError):
        steady(
            load_model("qwen2.5-0.5b"),
            load_hardware("h100"),
            concurrency=4,
            input_len=16,
            output_len=16,
            most_running=0,
        )
