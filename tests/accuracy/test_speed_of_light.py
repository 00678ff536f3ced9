"""Nothing public beats the speed of light that is stated for it: formats, accumulators and batches are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accuracy import tables as t

import archsim
from archsim.counts.formats import choose_formats
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model
from archsim.timing.device import DeviceRates

NEARLY = 1.02
"""Factor that rounding, clocks above the listed boost and unlisted prompt tokens explain."""

TINYCHAT = {"model": "llama3-8b", "device": "rtx-4090", "weights_dtype": "awq_int4_g128", "engine": "TinyChat"}
"""https://github.com/mit-han-lab/llm-awq, README of tinychat, 2.0."""

STATIC = {"engine": "TensorRT-LLM", "device": "a100-sxm-80gb", "weights_dtype": "w8a8", "isl": 1024, "osl": 512}
"""https://github.com/mit-han-lab/omniserve at 02b2925, README: the best of all batches that memory holds."""

PUBLIC: list[dict[str, Any]] = [
    t.run("ttft_ms", **TINYCHAT, isl=512, osl=1, batch=1, value=33),
    t.run("ttft_ms", **TINYCHAT, isl=1024, osl=1, batch=1, value=64),
    t.run("ttft_ms", **TINYCHAT, isl=4096, osl=1, batch=1, value=275),
    t.run("throughput_tok_s", **STATIC, model="qwen1.5-72b", batch=None, value=53),
    t.run("throughput_tok_s", **STATIC, model="llama2-7b", batch=None, value=2334),
]


def test_public_runs_do_not_beat_it(tmp_path: Path) -> None:
    """Products that accumulate in fp16, caches of a batch that is not stated."""
    found = archsim.validate(t.write(tmp_path / "r.csv", PUBLIC)).rows
    for name, measured, bound in zip(found.metrics, found.measured, found.naive, strict=True):
        over = measured / bound if name.endswith("tok_s") else bound / measured
        assert over < NEARLY, (name, measured, bound)


@pytest.mark.parametrize("asked", [None, "mxfp4", "gguf_mxfp4_moe"])
def test_a_gguf_file_keeps_only_experts_in_mxfp4(asked: str | None) -> None:
    """llama.cpp runs gpt-oss from files with all else in q8_0, whatever the format is called."""
    found = choose_formats(load_model("gpt-oss-20b"), asked, engine="llamacpp")
    kinds: dict[str, set[str]] = {"experts": set(), "attention": set()}
    for name, format in found.tensors.items():
        if ".moe." in name and name.rpartition(".")[2] in ("w_gate", "w_up", "w_down"):
            kinds["experts"].add(format.name)
        if ".attention." in name and name.rpartition(".")[2] in ("w_q", "w_k", "w_v", "w_o"):
            kinds["attention"].add(format.name)
    assert kinds == {"experts": {"mxfp4"}, "attention": {"q8_0"}}


def test_other_engines_keep_what_is_published() -> None:
    """vLLM reads the checkpoint: 16 bits beside the experts."""
    assert choose_formats(load_model("gpt-oss-20b"), None, engine="vllm").weights["default"].bits == 16


@pytest.mark.parametrize(("device", "ratio"), [("rtx-4090", 2.0), ("rtx-3090", 2.0), ("a100", 1.0), ("l40s", 1.0)])
def test_the_peak_is_the_accumulators(device: str, ratio: float) -> None:
    """fp16 accumulation is twice as fast on GeForce cards, for products with weights and not for attention."""
    wide = DeviceRates(load_hardware(device))
    narrow = wide.accumulating("fp16")
    assert narrow.matrix_flops("bf16") / wide.matrix_flops("bf16") == pytest.approx(ratio, rel=0.01)
    assert narrow.attention_flops("bf16") == wide.matrix_flops("bf16")
    assert narrow.matrix_flops("int8") == wide.matrix_flops("int8")


@pytest.mark.parametrize(("engine", "ratio"), [("tinychat", 2.0), ("vllm", 1.0)])
def test_the_engine_says_what_it_accumulates_in(engine: str, ratio: float) -> None:
    """The bound of a long prompt on a GeForce card is that of the engine's accumulator."""
    ideal = [
        float(estimate(load_model("llama3-8b"), load_hardware("rtx-4090"), weights="awq_int4", input_len=4096,
                       engine=name).prefill.ideal_s)
        for name in ("autoawq", engine)
    ]  # fmt: skip
    assert ideal[0] / ideal[1] == pytest.approx(ratio, rel=0.15)
