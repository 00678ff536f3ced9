"""Weights in files that are made for one engine imply it; what an engine does not run is refused with what it does."""

from __future__ import annotations

from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.counts.engine_formats import engine_for
from archsim.spec.catalog import files
from archsim.spec.engine import load_engine
from archsim.spec.format import load_format
from archsim.spec.load import load_model

GGUF = [name for name in files("formats") if name.startswith("gguf_")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("weights", ["gguf_q4_k_m", "Q8_0", "iq2_xs"])
@pytest.mark.parametrize("engine", ["generic", "llama.cpp", "ollama"])
def test_gguf_runs_in_llama_cpp_everywhere(weights: str, engine: str) -> None:
    """Estimate, fit, sweep, compare and trace give the figures of `--engine llama.cpp`, named or not."""
    named: dict[str, Any] = {"weights": weights, "engine": "llama.cpp"}
    options: dict[str, Any] = {"weights": weights, "engine": engine}
    model, hw = "qwen2.5-14b", "rtx-4090"
    found, wanted = a.estimate(model, hw, **options), a.estimate(model, hw, **named)
    assert found.plan.engine == "llamacpp"
    assert found.metrics == wanted.metrics and found.memory.to_dict() == wanted.memory.to_dict()
    fitted, same = (a.fit(model, hw, suggest=False, **asked) for asked in (options, named))
    assert fitted.budget == same.budget and fitted.kv_tokens == same.kv_tokens
    (row,) = a.sweep(model, hw, **options).to_dict()["rows"]
    assert (row["engine"], row["prefill_expected_s"]) == ("llamacpp", pytest.approx(wanted.metrics["ttft_s"]))
    compared, _ = a.compare(model, [hw, "h100"], **options).candidates
    assert compared.answer is not None and compared.answer.metrics == wanted.metrics
    assert a.trace(model, hw, **options).estimate.metrics == wanted.metrics


def test_no_gguf_prefill_beats_the_peak_of_the_card() -> None:
    """4,096 tokens of a 14B on an RTX 4090: above what bf16 products at the card's peak take (165 TFLOP/s)."""
    answer = a.estimate("qwen2.5-14b", "rtx-4090", input_len=4096, weights="gguf_q4_k_m")
    assert answer.metrics["ttft_s"] is not None
    assert answer.metrics["ttft_s"] > answer.prefill.flops / 165e12


@pytest.mark.sampled(3)
@pytest.mark.parametrize("weights", GGUF)
def test_every_gguf_format_implies_the_engine(weights: str) -> None:
    """No GGUF file type is left to no engine in particular."""
    assert load_format(weights).engine == "llamacpp"


@pytest.mark.slow
def test_the_line_that_says_so(archsim: Any) -> None:
    """The page says in one line which engine was taken, and why; nothing where the engine is named."""
    line = "gguf_q4_k_m weights imply llama.cpp"
    for command, hw in (("estimate", "h100"), ("fit", "h100"), ("compare", "h100,a100")):
        words = (command, "llama3.2-1b", "--hw", hw, "--weights", "gguf_q4_k_m")
        assert archsim(*words).out.count(line) == 1
        assert line not in archsim(*words, "--engine", "ollama").out


@pytest.mark.parametrize(
    ("engine", "weights", "hint"),
    [
        ("llamacpp", "fp8", "gguf_q8_0"), ("llamacpp", "awq_int4", "gguf_q4_k_m"), ("vllm", "exl2_4.0bpw", "exllamav2"),
        ("vllm", "exl3_4.0bpw", "exllamav3"), ("trtllm", "gguf_q4_k_m", "llamacpp"),
        ("hf", "q4_k_m", "llamacpp"), ("sglang", "q4f16", "mlcllm"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_run_is_refused(engine: str, weights: str, hint: str) -> None:
    """With the formats that it runs, or the engine that runs the format."""
    for ask in (a.estimate, a.fit, a.compare, a.sweep):
        with pytest.raises(UsageError) as found:
            ask("llama3.1-8b", ["rtx-4090", "h100"] if ask is a.compare else "rtx-4090", engine=engine, weights=weights)
        assert found.value.code == "E121"
        assert hint in " ".join(found.value.hints) and load_engine(engine).title in found.value.message


@pytest.mark.parametrize("engine", [name for name in files("engines") if name != "generic"])
def test_an_engine_runs_what_it_is_said_to(engine: str) -> None:
    """The formats that hints name are not refused."""
    model = load_model("llama3.1-8b")
    for weights in (*load_engine(engine).formats.weights, "bf16", "fp16"):
        assert engine_for(model, weights, engine).engine == engine


def test_a_checkpoint_that_an_engine_does_not_read_is_said() -> None:
    """A warning names a format that it runs; gpt-oss keeps its own experts in GGUF files, so none is needed."""
    warned = engine_for(load_model("deepseek-v3"), None, "llamacpp").warnings
    assert [note.code for note in warned] == ["W10"] and "gguf_q8_0" in warned[0].text
    assert not engine_for(load_model("gpt-oss-20b"), None, "llamacpp").warnings
    assert not engine_for(load_model("gpt-oss-20b"), "mxfp4", "llamacpp").warnings
