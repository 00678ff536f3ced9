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
    few = archsim.estimate("qwen2.5-0.5b", "h100", engine="vllm", output_len=2048, concurrency=5000).serving
    assert few is not None and few.refusal is not None
    assert "at most 1,024 sequences (--max-num-seqs)" in few.refusal
    short = archsim.estimate("qwen2.5-0.5b", "h100", engine="vllm", output_len=64, concurrency=800)
    assert short.serving is not None and short.workload.batch == round(short.serving.running) < 300
    assert "steps of 8,192 tokens are full" in (short.serving.refusal or "")
    full = archsim.estimate("llama2-7b", "h100", engine="vllm", output_len=2048, concurrency=300, devices=1).serving
    assert full is not None and full.refusal is not None
    assert "the KV cache has room for" in full.refusal


def test_an_engine_that_never_takes_room_back_reserves_whole_answers() -> None:
    """TensorRT-LLM starts a request where its prompt and answer have room beside those of the others."""
    load = {"engine": "trtllm", "input_len": 1024, "output_len": 1024, "concurrency": 300, "devices": 1}
    closed = archsim.estimate("llama2-7b", "h100", **load).serving  # type: ignore[arg-type]
    served = archsim.simulate(
        "llama2-7b",
        "h100",
        requests=900,
        length_spread=0.99,
        replications=1,
        expected_only=True,
        **{name: value for name, value in load.items() if name != "devices"},
    )  # type: ignore[arg-type]
    assert closed is not None and closed.running < 300
    assert served.state["running"]["max"] == pytest.approx(closed.running, rel=0.02)


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
