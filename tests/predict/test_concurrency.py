"""`--concurrency`: a load above what has room queues, the batch that runs is the one timed, one pair is printed."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from archsim import estimate

LOADS = (1, 2, 3, 5, 8, 12, 16, 48, 128, 2000)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("model", "hw", "engine", "devices"),
    [
        ("olmo-7b", "t4", "generic", "auto"),
        ("olmo-7b", "t4", "hf", 2),
        ("llama3.1-8b", "rtx-4090", "vllm", "auto"),
        ("llama2-13b", "a100-80gb", "sglang", 2),
        ("gemma3-27b", "h100", "trtllm", 1),
        ("mamba-2.8b", "t4", "generic", 1),
    ],
)
def test_more_requests_in_flight_wait_and_never_run_fewer(model: str, hw: str, engine: str, devices: int | str) -> None:
    """The plan is that of the model, what runs never falls and has room, and tokens/s do not fall."""
    answers = [estimate(model, hw, engine=engine, devices=devices, concurrency=n) for n in LOADS]
    assert len({answer.plan for answer in answers}) == 1
    states = [answer.serving for answer in answers]
    assert all(state is not None for state in states)
    running = [state.running for state in states if state]
    assert running == sorted(running) and running[-1] < LOADS[-1]
    rates = [state.tokens_per_s for state in states if state]
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(rates))
    for asked, answer in zip(LOADS, answers, strict=True):
        assert answer.serving is not None and answer.workload.batch == answer.serving.running <= asked
        assert answer.memory.fits
        waits = answer.serving.running < asked
        assert (answer.serving.refusal is not None and "wait" in answer.serving.refusal) or not waits


def test_one_more_than_runs_does_not_fit() -> None:
    """What runs is the most that has room, activations of that batch included."""
    answer = estimate("olmo-7b", "t4", devices=2, concurrency=64)
    each = answer.memory.kv_cache // answer.workload.batch
    assert 0 <= answer.memory.free < each


@pytest.mark.parametrize("load", ["8", "2000"])
def test_the_page_has_one_pair_of_times(archsim: Any, load: str) -> None:
    """One TTFT and one TPOT on the page, which `-q` prints too; a load above the room exits with 0."""
    args = ("estimate", "llama3.1-8b", "--hw", "rtx-4090", "--engine", "vllm", "--concurrency", load)
    whole, short = archsim(*args), archsim(*args, "-q")
    assert whole.code == short.code == 0
    page, line = whole.out, short.out
    assert len(re.findall(r"^\s*(?:prefill\s+\()?TTFT", page, re.MULTILINE)) == 1
    assert page.count("TPOT") == 1
    state = estimate("llama3.1-8b", "rtx-4090", engine="vllm", concurrency=int(load)).serving
    assert state is not None
    tpot = re.search(r"TPOT ([\d.]+ \w+)", line)
    assert tpot and float(tpot[1].split()[0]) == pytest.approx(state.tpot.expected * 1e3, rel=1e-3)
    assert re.search(rf"TPOT +\S+ \w+ +{re.escape(tpot[1])}", page)
    assert ("waiting" in line) == (" wait" in page) == (state.running < int(load))


def test_an_answer_is_the_same_text_whatever_was_asked_before() -> None:
    """A server's load is counted in fractions of sequences: equal steps of floats and of integers are kept apart, and
    counts of whole sequences stay integers.
    """
    estimate("llama2-70b", "h100", concurrency=16)
    answer = json.dumps(estimate("llama2-70b", "a100", batch=4).to_dict()["phases"])
    assert re.findall(r'"flops": \d+[,}]', answer) and not re.findall(r'"flops": \d+\.\d', answer)
