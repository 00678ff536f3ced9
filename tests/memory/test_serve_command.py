"""The command line that `fit` prints: read back by its own options, it is the same question."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

OWN = {
    "--tensor-parallel-size": "--tp", "--tp-size": "--tp", "--tp_size": "--tp", "--pipeline-parallel-size": "--pp",
    "--context-length": "--max-model-len", "--max_seq_len": "--max-model-len", "--max_batch_size": "--max-num-seqs",
    "--max-running-requests": "--max-num-seqs", "--max_num_tokens": "--max-num-batched-tokens",
    "--chunked-prefill-size": "--max-num-batched-tokens", "--quantization": "--weights",
    "--kv_cache_free_gpu_memory_fraction": "--gpu-memory-utilization",
}  # fmt: skip
"""The engines' flags under one name of each in `archsim fit`."""


def line(archsim: Any, *arguments: str) -> list[str]:
    return shlex.split(archsim("fit", *arguments, "--command").out)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("plan", [(), ("--devices", "4", "--tp", "4")])
def test_it_is_the_question_that_was_answered(archsim: Any, engine: str, plan: tuple[str, ...]) -> None:
    """Every flag, given back to `fit`, leaves as many tokens of cache."""
    asked = ("llama3-8b", "--hw", "h100", "--engine", engine)
    flags = line(archsim, *asked, *plan, "--kv-cache-dtype", "fp8")
    assert "meta-llama/Meta-Llama-3-8B" in flags
    begin = next(i for i, word in enumerate(flags) if word.startswith("--") and word != "--model-path")
    words = [OWN.get(word, word).replace("_", "-") for word in flags[begin:]]
    words = ["fp8" if word.startswith("fp8") else word for word in words]
    found, wanted = (
        json.loads(archsim("fit", *asked, *more, "--json").out)["kv_tokens"]
        for more in (("--devices", plan[1] if plan else "1", *words), (*plan, "--kv-cache-dtype", "fp8"))
    )
    assert found == wanted


@pytest.mark.slow
def test_plans_and_formats(archsim: Any) -> None:
    """Replicas of the attention, experts, weights quantised while they are loaded, weights that need other files."""
    wide = line(archsim, "deepseek-v3", "--hw", "h200", "--tp", "1", "--dp", "8", "--ep", "8", "--engine", "sglang")
    assert wide[3:5] == ["--model-path", "deepseek-ai/DeepSeek-V3"]
    assert "--tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8" in " ".join(wide)
    assert "--quantization fp8" in " ".join(
        line(archsim, "llama3-8b", "--hw", "h100", "--weights", "fp8", "--engine", "vllm")
    )
    four = line(archsim, "llama3-8b", "--hw", "h100", "--weights", "awq_int4", "--engine", "vllm")
    assert four[:3] == ["vllm", "serve", "./llama3-8b-awq_int4"]
    local = line(archsim, "llama3-8b", "--hw", "rtx-4090", "--weights", "gguf_q4_k_m", "--engine", "llamacpp")
    assert local[:3] == ["llama-server", "--model", "llama3-8b-gguf_q4_k_m.gguf"]
    assert int(local[local.index("--ctx-size") + 1]) % int(local[local.index("--parallel") + 1]) == 0


def test_experts_on_the_host(archsim: Any) -> None:
    """What runs them follows from the format that they are in; without any the command is the plain one."""
    asked = ("kimi-k2-thinking", "--hw", "rtx-4090", "--tp", "4", "--ctx", "8k", "--engine", "ktransformers")
    words = " ".join(line(archsim, *asked, "--kt-num-gpu-experts", "1"))
    assert "--kt-weight-path ./kimi-k2-thinking --kt-method RAWINT4 --kt-num-gpu-experts 1 --tp-size 4" in words
    plain = " ".join(line(archsim, "qwen3-30b-a3b", "--hw", "h100", "--engine", "ktransformers"))
    assert "--kt" not in plain and "--chunked-prefill-size 8192" in plain


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "reason", "code"),
    [(("llama3-8b", "--hw", "h100", "--engine", "hf"), "not known", 2),
     (("deepseek-v3", "--hw", "h100", "--devices", "1", "--engine", "vllm"), "does not fit", 1)],
)  # fmt: skip
def test_where_there_is_none(archsim: Any, arguments: tuple[str, ...], reason: str, code: int) -> None:
    found = archsim("fit", *arguments, "--command")
    assert found.code == code and reason in found.err and found.out == ""


@pytest.mark.parametrize(
    ("engine", "cache", "word"),
    [
        ("vllm", "nvfp4", "nvfp4"), ("sglang", "nvfp4", "nvfp4"),
        ("sglang", "fp8", "fp8_e4m3"), ("ktransformers", "fp8", "fp8_e4m3"), ("tgi", "fp8", "fp8_e4m3fn"),
    ],
)  # fmt: skip
def test_caches_in_the_words_of_the_engine(archsim: Any, engine: str, cache: str, word: str) -> None:
    """Choices of `--kv-cache-dtype` in the wheels of vLLM 0.33 and SGLang 0.5.23."""
    flags = line(archsim, "llama3-8b", "--hw", "b200", "--engine", engine, "--kv-cache-dtype", cache)
    assert flags[flags.index("--kv-cache-dtype") + 1] == word


@pytest.mark.parametrize(
    ("engine", "cache"), [("sglang", "int8"), ("sglang@0.5.15", "nvfp4"), ("ktransformers", "int8")]
)
def test_caches_that_the_engine_does_not_have(archsim: Any, engine: str, cache: str) -> None:
    """SGLang has no caches of whole numbers; those of 4 bits came with 0.5.16."""
    refused = archsim("fit", "llama3-8b", "--hw", "b200", "--engine", engine, "--kv-cache-dtype", cache)
    assert refused.code == 2 and f"has no {cache} cache" in refused.err
