"""The source of an encoder-decoder apart from its prompt: counts, times, caches, and sounds that say its length."""

from __future__ import annotations

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.spec.lower import lower


def test_window_of_whisper() -> None:
    """30 s of sound are 3,000 frames of 10 ms, and 1,500 vectors of its encoder (arXiv:2212.04356)."""
    heard = archsim.estimate("whisper-large-v3", "h100", audio="30", input_len=4, output_len=60)
    assert heard.workload.source_len == 1500 and heard.workload.input_len == 4
    shorter = archsim.estimate("whisper-large-v3", "h100", audio="7.5", input_len=4, output_len=60)
    assert shorter.workload.source_len == 1500
    assert heard.to_dict()["workload"]["source_len"] == 1500


def test_cross_caches_are_as_long_as_the_source() -> None:
    """Keys and values of the source in every decoder layer, of the answer beside them; nothing else is cached."""
    model = archsim.load_model("whisper-tiny")
    layers, width = 4, 384
    for source, prompt in ((1500, 4), (700, 30)):
        answer = archsim.count(model, source_len=source, input_len=prompt)
        assert answer.kv_bytes == 2 * 2 * layers * width * (source + prompt)


def test_work_follows_each_length() -> None:
    """The encoder's work hangs on the source alone, attention over it on the product of both lengths."""
    model = archsim.load_model("t5-base")

    def attention(source: int, prompt: int) -> int:
        return int(c.flops(lower(model, step_for(model, 1, prompt, source=source)), "attention"))

    d, n = 12 * 64, 12
    assert attention(300, 20) - attention(300, 10) == n * 4 * d * (10 * 300 + sum(range(11, 21)))
    assert attention(400, 10) - attention(300, 10) == n * 4 * d * (400**2 - 300**2 + 100 * 10)


def test_as_long_as_the_prompt_unless_given() -> None:
    model = archsim.load_model("t5-base")
    load = Workload(input_len=70)
    assert WorkloadSteps(model, load).source == 70
    assert archsim.count(model, input_len=70).full == archsim.count(model, input_len=70, source_len=70).full


def test_steady_state_and_memory() -> None:
    """A longer source leaves fewer sequences and lets each wait longer for its first token."""
    short, long = (
        archsim.estimate("t5-3b", "h100", input_len=16, output_len=64, source_len=n, concurrency=16, engine="vllm")
        for n in (256, 1024)
    )
    assert short.serving is not None and long.serving is not None
    assert short.serving.ttft is not None and long.serving.ttft is not None
    assert float(short.serving.ttft.expected) < float(long.serving.ttft.expected)
    few, many = (
        archsim.fit("whisper-large-v3", "rtx-3090", engine="vllm", source_len=n, max_model_len=448, suggest=False)
        for n in (1500, 100)
    )
    layers, d = 32, 1280
    assert few.request_bytes == 2 * 2 * layers * d * (448 + 1504)  # in pages of 16 tokens
    assert many.kv_tokens > few.kv_tokens


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ("llama3-8b", {"source_len": 100}, "no encoder"),
        ("whisper-tiny", {"source_len": 1501}, "at most 1,500"),
        ("whisper-tiny", {"source_len": 0}, "positive"),
        ("whisper-tiny", {"audio": "31x2"}, "one audio clip"),
        ("t5-base", {"audio": "30"}, "no audio encoder"),
    ],
)
def test_refused(model: str, options: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        archsim.estimate(model, "h100", **options)  # type: ignore[arg-type]
