"""Images and sounds of a request: both in one prompt, and with every prompt of a steady state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.predict.encoder import encoder_works
from archsim.predict.estimate import pricer_for
from archsim.serving.steady_state import steady_state_of

BOTH = {"image": "896x896x2", "audio": "10x3"}
LOAD: dict[str, Any] = {"engine": "vllm", "input_len": 512, "output_len": 128, "concurrency": 16}


def test_both_in_one_prompt() -> None:
    """Tokens of both are part of the prompt, and both encoders come before it."""
    both = a.estimate("gemma4-e4b", "h100", input_len=256, **BOTH).to_dict()
    seen, heard = (a.estimate("gemma4-e4b", "h100", input_len=256, **{k: v}).to_dict() for k, v in BOTH.items())
    phases = both["phases"]
    tokens = phases["encoder"]["tokens"] + phases["sound_encoder"]["tokens"]
    assert both["workload"]["input_len"] == 256 + tokens
    assert (phases["encoder"]["tokens_per_image"], phases["sound_encoder"]["tokens_per_sound"]) == (256, 250)
    assert phases["encoder"] == seen["phases"]["encoder"] and phases["sound_encoder"] == heard["phases"]["encoder"]
    times = [phases[phase]["expected_s"] for phase in ("encoder", "sound_encoder", "prefill")]
    assert both["metrics"]["ttft_s"] == pytest.approx(sum(times))


def test_the_page_names_both(archsim: Any) -> None:
    """How many tokens are of which, a row for each encoder, and their share of TTFT."""
    page = archsim("estimate", "gemma4-e4b", "--hw", "h100", "--image", "896x896x2", "--audio", "10x3").out
    page = " ".join(page.split())
    assert "512 of them of 2 images, 750 of them of 3 sounds" in page
    assert "image encoder" in page and "sound encoder" in page and "the encoders are" in page


def test_encoders_run_with_every_prompt_of_a_steady_state() -> None:
    """As the closed form says of prompts that take so much longer, with the cache that their tokens take."""
    plain = a.estimate("qwen3-vl-8b", "h100", **{**LOAD, "input_len": 512 + 2 * 1024})
    seen = a.estimate("qwen3-vl-8b", "h100", image="1024x1024x2", **LOAD)
    assert plain.serving is not None and seen.serving is not None and seen.serving.encoder is not None
    assert plain.workload == seen.workload and plain.memory.to_dict() == seen.memory.to_dict()
    one = a.estimate("qwen3-vl-8b", "h100", engine="vllm", image="1024x1024x2").encoders[0].time.duration
    assert seen.serving.encoder.expected == pytest.approx(one.expected)
    found = steady_state_of(pricer_for(seen), 16, 512 + 2 * 1024, 128, encoders=[one])
    assert seen.serving.tokens_per_s == pytest.approx(found.tokens_per_s)
    longer = seen.serving.request.expected - plain.serving.request.expected
    assert longer == pytest.approx(one.expected)  # an engine's time for each request
    assert seen.serving.ttft is not None and plain.serving.ttft is not None
    assert seen.serving.ttft.expected - plain.serving.ttft.expected > one.expected
    assert seen.serving.tpot.expected > plain.serving.tpot.expected


def test_the_page_of_a_steady_state(archsim: Any) -> None:
    """The time of one request's images, and that it runs with every prompt."""
    page = archsim("estimate", "qwen3-vl-8b", "--hw", "h100", "--image", "512x512", "--concurrency", "4", "-v").out
    page = " ".join(page.split())
    assert "of each request's images, with its prompt" in page
    assert "their encoder runs with every prompt, for one request at a time" in page


def test_replicas_share_the_images_of_a_batch() -> None:
    """Two replicas encode half of them each."""
    options: dict[str, Any] = {"image": "1024x1024", "tp": 1}
    two = a.estimate("qwen3-vl-30b-a3b", "h100", devices=2, dp=2, ep=2, batch=8, **options).encoders[0].time
    one = a.estimate("qwen3-vl-30b-a3b", "h100", devices=1, batch=4, **options).encoders[0].time
    assert float(two.expected_s) == pytest.approx(float(one.expected_s))


@pytest.mark.parametrize("command", ["compare", "sweep", "fit", "report"])
def test_commands_that_take_no_images_say_which_does(archsim: Any, command: str, tmp_path: Path) -> None:
    """With the exit code of a wrong question."""
    out = ["--out", str(tmp_path / "page.html")] if command == "report" else []
    answer = archsim(command, "qwen3-vl-8b", "--hw", "h100", *out, "--image", "512x512")
    assert answer.code == 2 and "archsim estimate MODEL --hw DEVICE" in answer.err


def test_cached_tokens_are_those_of_the_text() -> None:
    """A prefix cache cannot hold more than the text of a prompt; images are new in every request."""
    with pytest.raises(UsageError, match="cannot be cached"):
        a.estimate("qwen3-vl-8b", "h100", image="512x512", cached_input=600, **LOAD)


@pytest.mark.parametrize("concurrency", [None, 8])
def test_energy_is_of_the_encoder_too(concurrency: int | None) -> None:
    """More joules for each token with images than with as much text; a power limit makes encoders slower as well."""
    options: dict[str, Any] = {"engine": "vllm", "output_len": 32, "concurrency": concurrency, "energy": True}
    seen = a.estimate("qwen3-vl-8b", "h100", input_len=256, image="1024x1024x2", **options)
    text = a.estimate("qwen3-vl-8b", "h100", input_len=256 + 2048, **options)
    assert seen.energy is not None and text.energy is not None
    assert seen.energy.joules.expected > text.energy.joules.expected * 1.05
    limited = a.estimate("qwen3-vl-8b", "h100", input_len=256, image="1024x1024x2", power_limit=300, **options)
    assert float(limited.encoders[0].time.expected_s) > float(seen.encoders[0].time.expected_s)
    if seen.serving is not None and limited.serving is not None:
        assert limited.serving.encoder is not None and seen.serving.encoder is not None
        assert limited.serving.encoder.expected > seen.serving.encoder.expected
        assert limited.serving.tokens_per_s < seen.serving.tokens_per_s


@pytest.mark.parametrize("given", [{"image": ""}, {"audio": ""}, {"image": " "}])
def test_an_empty_size_is_no_image_left_out(given: dict[str, str]) -> None:
    """It is refused like any other that is none."""
    with pytest.raises(UsageError, match=r"1024x768|seconds of audio"):
        encoder_works(a.load_model("gemma4-e4b"), given.get("image"), given.get("audio"))


@pytest.fixture
def florence(tmp_path: Path) -> Path:
    """A small encoder-decoder whose encoder reads images."""
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2) | {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    text = {"model_type": "bart", "d_model": 1024, "vocab_size": 1000, **sizes}
    config = {"model_type": "florence2", "vision_config": {}, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    return tmp_path


def test_images_of_an_encoder_decoder_are_of_its_source(florence: Path, archsim: Any) -> None:
    """Not of its prompt, whose length stays, whether the source has a length of its own or not."""
    for given, text in (({"source_len": 10}, 10), ({}, 100)):
        load = a.estimate(florence, "h100", image="768x768x2", input_len=100, **given).workload
        assert (load.input_len, load.source_len) == (100, text + 2 * 577)
    page = " ".join(
        archsim("estimate", str(florence), "--hw", "h100", "--image", "768x768", "--source-len", "10").out.split()
    )
    assert "2,048 tokens in · 587 of source, 577 of them of 1 image" in page


def test_no_cache_holds_a_source(florence: Path) -> None:
    """Its prompt is computed with its source, in one step."""
    with pytest.raises(UsageError, match=r"--cached-input.*source"):
        a.estimate(florence, "h100", input_len=512, concurrency=4, cached_input=100)


@pytest.mark.parametrize(("given", "tower"), [({"image": "64x64"}, "vision"), ({"audio": "3"}, "audio")])
def test_an_encoder_that_is_left_out_encodes_nothing(given: dict[str, str], tower: str) -> None:
    """`--without` takes it out of memory."""
    with pytest.raises(UsageError, match=f"needs the {tower} tower, which `--without` leaves out"):
        a.estimate("gemma4-e4b", "h100", without=tower, **given)


def test_an_encoder_that_runs_is_in_memory() -> None:
    """Of an engine too that loads it only where its file is named (llama.cpp's `--mmproj`)."""
    load: dict[str, Any] = {"engine": "llamacpp", "input_len": 512}
    seen, text = (a.estimate("qwen3-vl-8b", "h100", **load, **given) for given in ({"image": "64x64"}, {}))
    vision = a.estimate("qwen3-vl-8b", "h100", input_len=512, engine="vllm").memory.weights
    assert seen.memory.weights - text.memory.weights == pytest.approx(1.153e9, rel=0.01)
    assert vision > text.memory.weights
    assert any(note.code == "A27" for note in seen.assumptions)
