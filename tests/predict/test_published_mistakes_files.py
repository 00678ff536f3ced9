"""Wrong numbers that tools have published for configs, checkpoints and formulas, each with the right one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from importers.gguf_files import Q, Shapes, write
from importers.test_safetensors import Tensors, header, packed

import archsim
from archsim.importers.safetensors import Entry, measure

GIB, MIB = 2**30, 2**20

QWEN_27B: dict[str, Any] = {
    "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
    "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4,
    "linear_num_value_heads": 48, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
"""Qwen3.5-27B, and Qwen3.6-27B and 3.8-27B which have its shape."""

QWEN_32B: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip

MIXTRAL_8X22B: dict[str, Any] = {
    "model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56,
    "num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip


def config(folder: Path, content: dict[str, Any]) -> Path:
    """A config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def qwen_32b(folder: Path, kind: str) -> tuple[Path, Tensors, int]:
    """The header of Qwen3-32B as AWQ or MLX store it, its tensors and their bytes. MLX packs the tables too."""
    d, ff, vocab = 5120, 25600, 151936
    shapes = {
        "self_attn.q_proj": (8192, d), "self_attn.k_proj": (1024, d), "self_attn.v_proj": (1024, d),
        "self_attn.o_proj": (d, 8192), "mlp.gate_proj": (ff, d), "mlp.up_proj": (ff, d), "mlp.down_proj": (d, ff),
    }  # fmt: skip
    table = kind if kind == "mlx" else "fp16"
    t = packed(table, "model.embed_tokens", vocab, d) | packed(table, "lm_head", vocab, d)
    t["model.norm.weight"] = ("F16", [d])
    for i in range(64):
        for name, (out, inner) in shapes.items():
            t |= packed(kind, f"model.layers.{i}.{name}", out, inner)
        for name, n in (("input_layernorm", d), ("post_attention_layernorm", d),
                        ("self_attn.q_norm", 128), ("self_attn.k_norm", 128)):  # fmt: skip
            t[f"model.layers.{i}.{name}.weight"] = ("F16", [n])
    quantised = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    config(folder, QWEN_32B | (quantised if kind == "awq" else {}))
    data, size = header(t)
    (folder / "model.safetensors").write_bytes(data)
    return folder / "model.safetensors", t, size


# ---------------------------------------------------------------------- caches
def test_layers_without_cache(tmp_path: Path) -> None:
    """https://github.com/unslothai/unsloth/pull/4757: 53.25 GiB at 262,144; 16 of 64 layers have one: 16 GiB.
    https://github.com/jundot/omlx/issues/2725: 16 MiB for a block of 64 tokens; it is 4 MiB."""
    path = config(tmp_path, QWEN_27B)
    assert archsim.count(path, input_len=262144).kv_bytes == 16 * GIB
    assert archsim.count(path, input_len=64).kv_bytes == 4 * MIB


@pytest.mark.slow
def test_cache_and_state_of_a_hybrid_model(tmp_path: Path) -> None:
    """https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1862: about 75 GB at 262,144 tokens in 8 bits;
    the log says 16384.00 MiB of cache and 598.50 MiB for 4 sequences' states, about 47 GB in all, with the input table
    in host memory and the states of all four."""
    path = config(tmp_path, QWEN_27B)
    counted = archsim.count(path, input_len=262144)
    assert counted.kv_bytes / MIB == 16384
    assert counted.state_bytes / MIB == pytest.approx(598.5 / 4, rel=0.02)
    answer = archsim.fit(
        path, "a100-80gb", engine="llama.cpp", weights="gguf_q8_0", max_model_len=262144, suggest=False
    )
    on_host = archsim.count(path, weights="gguf_q8_0").weight_bytes - answer.budget.weights
    held = answer.budget.fixed + answer.request_bytes + on_host + 3 * counted.state_bytes
    assert held / 1e9 == pytest.approx(47, abs=0.5)


def test_four_bits_do_not_quarter_a_cache(tmp_path: Path) -> None:
    """https://github.com/unslothai/unsloth/issues/9525: 16.15 GiB, of which the states keep their precision; q4_0
    takes 18 bytes for 32 numbers, https://github.com/ggml-org/llama.cpp block_q4_0."""
    path = config(tmp_path, QWEN_27B)
    sixteen, four = (archsim.count(path, input_len=262144, kv_cache_dtype=k) for k in ("fp16", "q4_0"))
    assert (sixteen.kv_bytes + sixteen.state_bytes) / GIB == pytest.approx(16.15, abs=0.01)
    assert four.state_bytes == sixteen.state_bytes
    assert four.kv_bytes * 32 * 2 == sixteen.kv_bytes * 18


def test_heads_differ_by_layer(tmp_path: Path) -> None:
    """https://github.com/tmac1973/llama-toolchest/pull/58: 58 GB for gemma-4-12b at 131,072 tokens in q8_0, 40 times
    the cache: 40 of 48 layers have 8 heads of 256 and a window of 1,024, the others one head of 512.
    Written with the layers of gemma3, whose keys are the same."""
    d, ff, n = 3840, 15360, 16
    tensors: Shapes = {"token_embd.weight": ((d, 1024), Q.Q8_0), "output_norm.weight": ((d,), Q.F32)}
    local = [i % 6 != 5 for i in range(48)]
    for i, window in enumerate(local):
        kv, head = (8, 256) if window else (1, 512)
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            tensors[f"blk.{i}.{name}.weight"] = ((d,), Q.F32)
        for name, shape in (("attn_q", (d, n * head)), ("attn_k", (d, kv * head)), ("attn_v", (d, kv * head)),
                            ("attn_output", (n * head, d)), ("ffn_gate", (d, ff)), ("ffn_up", (d, ff)),
                            ("ffn_down", (ff, d))):  # fmt: skip
            tensors[f"blk.{i}.{name}.weight"] = (shape, Q.Q8_0)
    keys: dict[str, object] = {
        "block_count": 48, "context_length": 262144, "embedding_length": d, "attention.head_count": n,
        "attention.head_count_kv": [8 if window else 1 for window in local], "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": local, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }  # fmt: skip
    path = write(tmp_path / "model.gguf", "gemma3", keys, tensors)
    cache = archsim.count(path, input_len=131072, kv_cache_dtype="q8_0").kv_bytes
    numbers = 131072 * 8 * 2 * 512 + 1024 * 40 * 2 * 8 * 256  # the formula of that pull request
    assert cache == numbers * 34 // 32
    assert 48 * 2 * d * 131072 * 34 / 32 / cache == pytest.approx(40, rel=0.05)
    answer = archsim.fit(path, "rtx-4090", engine="llama.cpp", max_model_len=131072, kv_cache_dtype="q8_0")
    assert answer.fits


def test_dense_model_at_long_context() -> None:
    """https://github.com/ollama/ollama/issues/10359: 59 GB for mistral-small3.1 at 32,768 tokens; the driver shows
    26.7 GB on all devices, the image encoder's graph included."""
    answer = archsim.fit(
        "mistral-small-3.1-24b", "a100-80gb", engine="llama.cpp", weights="gguf_q4_k_m", max_model_len=32768,
        suggest=False,
    )  # fmt: skip
    assert answer.request_bytes == 5 * GIB
    assert 18 < (answer.budget.fixed + answer.request_bytes) / 1e9 < 26.7


# ---------------------------------------------------------------------- packed weights
def test_packed_integers_are_not_parameters(tmp_path: Path) -> None:
    """https://github.com/AlexsJones/llmfit/issues/1045: 7.84 for 27 billion, as packed integers were counted. Here
    Qwen3-32B, 32.8 billion by https://huggingface.co/Qwen/Qwen3-32B."""
    path, tensors, size = qwen_32b(tmp_path, "awq")
    counted = archsim.count(path)
    assert counted.total == 32_762_123_264
    assert counted.weight_bytes == size
    elements = sum(Entry(dtype, tuple(shape)).elements for dtype, shape in tensors.values())
    assert counted.total > 5 * elements


def test_unpacked_counts_are_not_words(tmp_path: Path) -> None:
    """https://github.com/jundot/omlx/issues/3489: 131 GB for Qwen3-32B in 4 bits, 32.8 billion already unpacked
    numbers as words of 4 bytes. It is half a byte each, and 4 bytes of scale and bias for 64."""
    path, _, size = qwen_32b(tmp_path, "mlx")
    counted = archsim.count(path)
    assert counted.total * 4 / 1e9 == pytest.approx(131, abs=0.1)
    assert counted.weight_bytes == size
    assert 16 < counted.weight_bytes / 1e9 < 18.5


def test_eight_bits_in_words() -> None:
    """https://github.com/huggingface/hub-docs/issues/2704: 88.6 billion, the sum of 9,964,787,842 numbers and
    78,613,118,976 words of four; the model's own total is 314,590,621,012. Scales and biases are no parameters."""
    words, plain = 78_613_118_976, 9_964_787_842
    groups = words * 4 // 64
    tensors = {
        "model.layers.0.mlp.up_proj.weight": Entry("U32", (words // 16, 16)),
        "model.layers.0.mlp.up_proj.scales": Entry("BF16", (groups, 1)),
        "model.layers.0.mlp.up_proj.biases": Entry("BF16", (groups, 1)),
        "model.norm.weight": Entry("BF16", (plain - 2 * groups,)),
    }
    found = measure(tensors, 1, {"bits": 8, "group_size": 64})
    assert sum(found.params.values()) == pytest.approx(314_590_621_012, rel=1e-6)
    assert sum(found.bytes.values()) == words * 4 + plain * 2


def test_two_experts_of_eight_are_active(tmp_path: Path) -> None:
    """alpha-one-index: Mixtral 8x22B with 141 billion active; https://mistral.ai/news/mixtral-8x22b: 39 of 141."""
    counted = archsim.count(config(tmp_path, MIXTRAL_8X22B))
    assert counted.total / 1e9 == pytest.approx(140.6, abs=0.1)
    assert counted.active / 1e9 == pytest.approx(39.1, abs=0.1)


# ---------------------------------------------------------------------- FLOP
def test_causal_attention_is_half() -> None:
    """https://github.com/NVIDIA/Megatron-LM/issues/831: 121 % of the peak at 16,384 tokens, all pairs counted;
    https://github.com/AI-Hypercomputer/maxtext/pull/1988: the same."""
    counted = archsim.count("llama3.1-8b", input_len=16384)
    assert counted.masked.attention / counted.full.attention == pytest.approx(0.5, abs=1e-4)


def test_attention_is_counted(tmp_path: Path) -> None:
    """https://github.com/pytorch/pytorch/issues/195460: 0 FLOP for a fused attention of (1, 12, 64, 64)."""
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12, "num_hidden_layers": 1}
    model = config(tmp_path, {"model_type": "llama", "intermediate_size": 2048, "vocab_size": 1000} | sizes)
    assert archsim.count(model, input_len=64).full.attention == 12_582_912


def test_attention_has_the_heads_of_the_queries() -> None:
    """https://github.com/pytorch/pytorch/issues/177169: 32 heads of queries on 8 of keys could not be counted."""
    assert archsim.count("llama3.1-8b", input_len=64).full.attention == 32 * (4 * 64 * 64 * 32 * 128)


def test_products_of_activations_are_counted() -> None:
    """https://github.com/allenai/olmoearth_pretrain/pull/605: thop sees no matmul, so it is low by 1 + N / 6d."""
    flops = archsim.count("gpt3-175b", input_len=2048).full
    assert flops.total / flops.matmul == pytest.approx(1 + 2048 / (6 * 12288), rel=1e-4)


# ---------------------------------------------------------------------- devices and times
def test_bandwidth_is_in_bytes() -> None:
    """bytecairn.com: 1008e9 / 8 bytes a second."""
    assert archsim.load_hardware("rtx-4090").bandwidth == 1008e9


def test_peak_without_sparsity() -> None:
    """https://github.com/NVIDIA/Megatron-LM/issues/1565: 420 of 1979 TFLOP/s, the sparse peak; 42.5 % of 989."""
    assert 420e12 / archsim.load_hardware("h200").peak_flops("bf16").flops == pytest.approx(0.425, abs=0.001)


def test_time_between_tokens() -> None:
    """https://github.com/redhat-performance/configiq/issues/8: all of the time over all tokens; the first token is
    no part of it."""
    times = archsim.estimate("llama3.1-8b", "h100", input_len=2048, output_len=256).to_dict()["metrics"]
    assert times["tpot_s"] == pytest.approx((times["e2e_s"] - times["ttft_s"]) / 255, rel=1e-9)
