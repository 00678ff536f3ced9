"""The command `archsim fit`: exit codes, spellings of the engines, layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim as package
from archsim.render.pages.fit import PLAIN_LINES
from archsim.spec.engine import load_engine

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent

KEYS = {
    "schema", "fits", "verdict", "devices", "kv_tokens", "max_model_len", "max_concurrency", "per_device",
    "suggestions",
}  # fmt: skip
PER_DEVICE = {
    "capacity_bytes", "budget_bytes", "weights_bytes", "activation_bytes", "cuda_graph_bytes", "non_torch_bytes",
    "kv_cache_bytes", "kv_bytes_per_token",
}  # fmt: skip


def test_contract(archsim: Any) -> None:
    """The document has the contract's keys, is what the function returns, and the same twice."""
    args = ("fit", "gpt-oss-20b", "--hw", "rtx-4090", "--engine", "vllm@0.11", "--json")
    result = archsim(*args)
    data = json.loads(result.out)
    assert result.code == 0 and data["schema"] == "archsim.fit/1"
    assert data.keys() >= KEYS and data["per_device"].keys() >= PER_DEVICE
    assert all({"change", "kv_tokens"} <= change.keys() for change in data["suggestions"])
    assert data == package.fit("gpt-oss-20b", "rtx-4090", engine="vllm@0.11").to_dict()
    assert archsim(*args).out == result.out


def test_exit_codes(archsim: Any) -> None:
    """0 for an answer, 1 with --check where it does not fit, 2 for a wrong use, 3 for a bad file."""
    small = ("fit", "llama3.1-70b", "--hw", "rtx-4090", "-c", "8k")
    assert archsim(*small).code == 0
    assert archsim(*small, "--check").code == archsim(*small, "--fail-if-not-fit", "--json").code == 1
    assert archsim("fit", "llama3.1-8b", "--hw", "h100", "-c", "8k", "--check").code == 0
    assert archsim("fit", "llama3.1-8b", "--hw", "h100", "--engine", "nonesuch").code == 2
    assert archsim("fit", "llama3.1-8b", "--hw", "h100", "--gpu-memory-utilization", "2").code == 2
    assert archsim("fit", "nowhere.yaml", "--hw", "h100").code == 3


SPELLINGS = (
    ("--max-model-len", "8192"), ("--ctx", "8k"), ("--context-length", "8K"), ("--max-seq-len", "8192"), ("-c", "8k"),
    ("--ctx-size", "8192"), ("--num-ctx", "8192"),
)  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS, ids=" ".join)
def test_spellings_of_the_context(spelling: tuple[str, str], archsim: Any) -> None:
    """Each engine's name for the context length, with a suffix or without."""
    data = json.loads(archsim("fit", "llama3.1-8b", "--hw", "h100", *spelling, "--json").out)
    assert data["settings"]["max_model_len"] == 8192


def test_spellings_of_the_rest(archsim: Any) -> None:
    """One command line in vLLM's words and one in others' say the same."""
    ours = ("--tp", "2", "--gpu-memory-utilization", "0.8", "--max-num-batched-tokens", "4k", "--block-size", "32",
            "--enforce-eager", "--kv-cache-dtype", "fp8", "--max-num-seqs", "64", "--weights", "fp8")  # fmt: skip
    theirs = ("--tensor-parallel-size", "2", "--mem-util", "0.8", "--chunked-prefill-size", "4096", "--page-size", "32",
              "--disable-cuda-graph", "-ctk", "fp8", "-ctv", "fp8", "--max-running-requests", "64",
              "--quant", "fp8")  # fmt: skip
    base = ("fit", "llama3.1-70b", "--hw", "h100", "--engine", "vllm", "--json")
    assert archsim(*base, *ours).out == archsim(*base, *theirs).out


def test_page(archsim: Any) -> None:
    """The page is at most 100 columns wide and has the lines that people search an engine's log for, or plain ones."""
    logged = {
        "vllm": ("GPU KV cache size: ", "Maximum concurrency for ", "estimated maximum model length is "),
        "sglang": ("max_total_num_tokens=", "Load weight end", "longest request: "),
    }
    for engine in ("vllm", "sglang", "trtllm", "llamacpp", "hf", "generic"):
        result = archsim("fit", "gemma3-27b", "--hw", "a100-80gb", "--engine", engine, "-v")
        assert result.code == 0
        assert max(len(line) for line in result.out.splitlines()) <= 100
        for words in logged.get(engine, ("KV cache: ", "requests of ", "longest request: ")):
            assert words in result.out
        assert ("log lines" in result.out) is (engine in logged)
        assert "\x1b" not in result.out and "nan" not in result.out


def test_engines_log_only_what_there_is_a_line_for() -> None:
    """A fact that no page states would be passed over in silence."""
    for path in sorted((ROOT / "specs" / "engines").glob("*.yaml")):
        assert set(load_engine(path.stem).log) <= set(PLAIN_LINES), path.stem


def test_several_devices(archsim: Any) -> None:
    """Several devices give one row each, in either spelling."""
    both = archsim("fit", "llama3.1-8b", "--hw", "l4,h100", "-c", "8k")
    assert "l4" in both.out and "h100-sxm" in both.out
    assert archsim("fit", "llama3.1-8b", "--hw", "l4", "--hw", "h100", "-c", "8k").out == both.out
    data = json.loads(archsim("fit", "llama3.1-8b", "--hw", "l4,h100", "--json").out)
    assert [answer["hardware"]["name"] for answer in data["answers"]] == ["l4", "h100-sxm"]
    lines = archsim("fit", "llama3.1-8b", "--hw", "l4,h100", "-q").out.splitlines()
    assert len(lines) == 2 and lines[0].startswith(("FITS", "TIGHT", "NO"))
    assert len(archsim("fit", "llama3.1-8b", "--hw", "l4,h100", "--format", "csv").out.splitlines()) == 3


@pytest.mark.parametrize("model", ["mamba-2.8b", "bert-base", "t5-base", "gemma3n-e4b", "deepseek-v3"])
def test_every_architecture(model: str, archsim: Any) -> None:
    """Models without a growing cache, encoders, shared caches: an answer, and null where a number does not exist."""
    data = json.loads(archsim("fit", model, "--hw", "h200", "--json").out)
    grows = model not in ("mamba-2.8b", "bert-base")
    assert (data["max_model_len"] is not None) == grows
    assert archsim("fit", model, "--hw", "h200").code == 0


def test_spellings_of_host_memory(archsim: Any) -> None:
    """llama.cpp's short names, and types of keys and values of their own."""
    base = ("fit", "mixtral-8x7b", "--hw", "rtx-4090", "--engine", "llama.cpp", "--weights", "gguf_q4_k_m", "--json")
    short = archsim(*base, "-ncmoe", "12", "-ctk", "q8_0").out
    assert short == archsim(*base, "--n-cpu-moe", "12", "--cache-type-k", "q8_0").out
    assert json.loads(short)["offload"]["host_weights_bytes"] > 0
    page = archsim(*base[:-1], "-ctk", "q8_0", "-ctv", "q4_0", "-c", "8k").out
    assert "q8_0 keys, q4_0 values KV cache" in page
    assert archsim(*base, "--cache-type-v", "gguf_q4_k_m").code == 2


def test_spelling_of_attention_replicas(archsim: Any) -> None:
    """SGLang counts all devices as tp."""
    base = ("fit", "deepseek-v3", "--hw", "h200", "--engine", "sglang", "--json")
    theirs = archsim(*base, "--tp-size", "8", "--dp-size", "8", "--enable-dp-attention")
    assert theirs.out == archsim(*base, "--dp", "8", "--ep", "8").out
    assert archsim(*base, "--tp", "8", "--dp", "3", "--enable-dp-attention").code == 2
