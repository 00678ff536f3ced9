"""Encoders within steps: which images a chunk begins, and what a server that gets them does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.predict.encoder_steps import EncodedItems, EncoderSteps
from archsim.predict.served_engine import at_end, gang_seconds
from archsim.serving.step_parts import Chunk
from archsim.timing.duration import Duration

TWO = EncodedItems("image", 2, 100, 0, lambda n: Duration(n + 0.5, n, n + 1.0, n / 2, "calibrated"))
ONE = EncodedItems("sound", 1, 40, 200, lambda n: Duration(10.0 * n, 9.0 * n, 11.0 * n, n, "calibrated"))


class Flat:
    """Steps that take as many seconds as they have decodes."""

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        return float(decodes)


@pytest.mark.parametrize(
    ("new", "past", "images", "sounds"),
    [(300, 0, 2, 1), (100, 0, 1, 0), (101, 0, 2, 0), (1, 100, 1, 0), (50, 101, 0, 0), (60, 150, 0, 1), (99, 241, 0, 0),
     (20, 300, 0, 0)],
)  # fmt: skip
def test_what_begins_in_a_chunk(new: int, past: int, images: int, sounds: int) -> None:
    """An image is encoded once, in the chunk of its first token; parts of a prompt add up to all."""
    assert (TWO.begun(new, past), ONE.begun(new, past)) == (images, sounds)
    assert sum(TWO.begun(7, past) for past in range(0, 300, 7)) == 2


def test_seconds_of_steps() -> None:
    """All images of a step at once, then its sounds; steps of decodes as they are."""
    steps = EncoderSteps(Flat(), (TWO, ONE))
    assert steps.seconds(3, 0, ()) == 3.0
    assert steps.seconds(3, 0, [(150, 0)]) == 3.0 + 2.5
    assert steps.seconds(3, 0, [(150, 0), (300, 0)]) == 3.0 + 4.5 + 10.0
    assert steps.at("low", Flat()).seconds(0, 0, [(300, 0)]) == 2.0 + 9.0
    assert list(islice(steps.decoding(5, 100), 3)) == [5.0, 5.0, 5.0]


def test_ranks_wait_for_the_one_that_encodes_longest() -> None:
    """One image on one rank, two on the other."""
    assert gang_seconds(EncoderSteps(Flat(), (TWO,)))([(4, 9, [(100, 0)]), (2, 9, [(200, 0)])]) == 4.0 + 2.5


LOAD: dict[str, Any] = {"engine": "vllm", "input_len": 512, "output_len": 32, "requests": 40, "concurrency": 1,
                        "replications": 1}  # fmt: skip


def test_a_request_alone_waits_for_its_images() -> None:
    """TTFT is that of as long a prompt of text, and the time of its images; the cache holds their tokens."""
    seen = a.simulate("qwen3-vl-8b", "h100", image="1024x1024x2", **LOAD)
    text = a.simulate("qwen3-vl-8b", "h100", **{**LOAD, "input_len": 512 + 2048})
    encoder = a.estimate("qwen3-vl-8b", "h100", engine="vllm", image="1024x1024x2").encoders[0].time
    longer = [run.observed.latencies["ttft_s"]["mean"] for run in (seen, text)]
    assert longer[0].value - longer[1].value == pytest.approx(float(encoder.expected_s), rel=1e-6)
    assert longer[0].low - longer[1].low == pytest.approx(float(encoder.low_s), rel=0.05)
    tpot = [run.observed.latencies["tpot_s"]["mean"].value for run in (seen, text)]
    assert tpot[0] == pytest.approx(tpot[1])
    assert seen.state["kv_occupancy"]["max"] == text.state["kv_occupancy"]["max"]
    assert seen.to_dict()["workload"]["encoded"] == [{"noun": "image", "count": 2, "tokens": 1024}]


def test_a_chunked_prompt_encodes_each_image_once() -> None:
    """In chunks of 512 tokens as well: images take longer one by one than together."""
    whole, cut = (
        a.simulate("qwen3-vl-8b", "h100", image="1024x1024x2", **LOAD, max_num_batched_tokens=n, max_num_seqs=8)
        for n in (8192, 512)
    )
    one, two = (
        float(a.estimate("qwen3-vl-8b", "h100", engine="vllm", image=f"1024x1024x{n}").encoders[0].time.expected_s)
        for n in (1, 2)
    )
    text = [
        a.simulate("qwen3-vl-8b", "h100", **{**LOAD, "input_len": 2560, "max_num_batched_tokens": n, "max_num_seqs": 8})
        for n in (8192, 512)
    ]
    added = [
        seen.observed.latencies["ttft_s"]["mean"].value - plain.observed.latencies["ttft_s"]["mean"].value
        for seen, plain in zip((whole, cut), text, strict=True)
    ]
    assert added == pytest.approx([two, 2 * one], rel=1e-6)


@pytest.mark.slow
def test_the_closed_form_agrees() -> None:
    """Time per token and throughput of requests of mixed lengths with images, within two percent."""
    options: dict[str, Any] = {"engine": "vllm", "input_len": 512, "concurrency": 8, "image": "1024x1024x2"}
    closed = a.estimate("qwen3-vl-8b", "h100", output_len=256, **options).serving
    lengths = {"output_len": "uniform:128-384", "requests": 400, "replications": 1, "expected_only": True}
    run = a.simulate("qwen3-vl-8b", "h100", **options, **lengths)
    assert closed is not None
    assert run.observed.latencies["tpot_s"]["mean"].value == pytest.approx(closed.tpot.expected, rel=0.02)
    assert run.throughput()["output_tokens_per_s"].value == pytest.approx(closed.tokens_per_s, rel=0.02)


def test_pools_encode_where_prompts_are_computed() -> None:
    """Replicas for answers encode nothing."""
    options = {**LOAD, "disaggregate": "1:1", "kv_link": "50 GB/s"}
    seen = a.simulate("qwen3-vl-8b", "h100", image="512x512", **options)
    assert seen.server.decode is not None
    assert seen.server.encoded and not seen.server.decode.server.encoded
    text = a.simulate("qwen3-vl-8b", "h100", **{**options, "input_len": 512 + 256})
    tpot = [run.observed.latencies["tpot_s"]["mean"].value for run in (seen, text)]
    assert tpot[0] == pytest.approx(tpot[1])


def test_the_page_and_what_is_refused(archsim: Any, tmp_path: Path) -> None:
    """How many tokens are of images; prompts that begin alike, and models that see nothing."""
    asked = ["--hw", "h100", "--engine", "vllm", "--concurrency", "2", "--requests", "50", "--image", "512x512x2"]
    page = " ".join(archsim("simulate", "qwen3-vl-8b", *asked, "-v").out.split())
    assert "and 512 more of 2 images" in page and "holds its first token" in page
    assert "archsim estimate qwen3-vl-8b --hw h100 --engine vllm --image 512x512x2" in page
    assert "no vision encoder" in archsim("simulate", "llama3.1-8b", *asked).err
    with pytest.raises(UsageError, match="share nothing"):
        a.simulate("qwen3-vl-8b", "h100", image="512x512", **{**LOAD, "shared_prefix": 256})
    assert at_end(EncoderSteps(Flat(), ()), None, 0) is not None  # type: ignore[arg-type]
