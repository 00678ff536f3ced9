"""Wrong numbers that calculators have published, each with the right one. The names are those of the threads."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import InvalidPlan
from archsim.spec.format import load_format

GIB = 2**30


def fit(model: str, hw: str, **options: Any) -> Any:
    """The answer without suggestions."""
    return archsim.fit(model, hw, suggest=False, **options)


def cache_gib(model: str, length: int, **options: Any) -> float:
    """The cache of one sequence in GiB."""
    return archsim.count(model, input_len=length, **options).kv_bytes / GIB


def test_windows_and_head_size() -> None:
    """unslothai/unsloth#4757: 81.38 GiB for 10 global and 52 windowed layers; heads are 128, not 168 wide."""
    assert cache_gib("gemma3-27b", 131072) == pytest.approx(10.41, abs=0.01)


def test_linear_layers_have_no_cache() -> None:
    """unslothai/unsloth#4757, jundot/omlx#2725: all layers counted where every fourth attends: 53.25 for 16 GiB."""
    counted = archsim.count("qwen3.5-397b-a17b")
    assert counted.kv_bytes_per_token == 15 * 2 * 2 * 256 * 2
    assert counted.state_bytes > 0


def test_latent_cache() -> None:
    """unslothai/unsloth#4757 (2.08 GiB) and LMCache/LMCache#694 (two latents of 512): one of 512 + 64 numbers."""
    assert cache_gib("deepseek-v3.1", 163840) == pytest.approx(10.72, abs=0.01)
    assert archsim.count("deepseek-v3").kv_bytes_per_token == 61 * (512 + 64) * 2


def test_explicit_head_size() -> None:
    """unslothai/unsloth#4757: 2.19 GiB with heads of hidden / heads = 64; they are 128."""
    assert cache_gib("qwen3-0.6b", 40960) == 4.375


def test_windowed_file_in_llama_cpp() -> None:
    """gpustack/gpustack#2101: 139 GB at 128,000 tokens with 8-bit keys; about 32 GB were measured at 85,000."""
    answer = fit("gemma3-27b", "a100-80gb", engine="llama.cpp", weights="gguf_q4_0", max_model_len=85000)
    assert (answer.budget.fixed + answer.request_bytes) / 1e9 < 32


def test_windows_by_engine() -> None:
    """alvarobartt/hf-mem#70: 6.09 GiB is the ideal; engines that keep windowed layers in full take 12 GiB."""
    ideal = fit("gpt-oss-20b", "h100", max_model_len=8192, batch=32)
    full = fit("gpt-oss-20b", "h100", engine="vllm@0.9.1", max_model_len=8192, batch=32)
    pools = fit("gpt-oss-20b", "h100", engine="sglang", max_model_len=8192, batch=32)
    assert ideal.need / GIB == pytest.approx(6.09, abs=0.01)
    assert full.need / GIB == pytest.approx(12.0, abs=0.01)
    assert pools.need / GIB == pytest.approx(12.0 * (1 + 0.8) / 2, abs=0.01)  # half of the layers have a window


def test_windowed_half_counts_little() -> None:
    """ai-dynamo/aiconfigurator#1537: 2.26 GiB a sequence at 65,536 tokens in fp8; half the layers are windowed."""
    assert cache_gib("gpt-oss-120b", 65536, kv_cache_dtype="fp8") == pytest.approx(1.13, abs=0.01)


def test_experts_are_divided() -> None:
    """ai-dynamo/aiconfigurator#1390: all experts on each of 8 devices."""
    one, eight = (fit("kimi-k2.5", "b300", engine="vllm", tp=8, ep=ep).budget.weights for ep in (1, 8))
    whole = archsim.count("kimi-k2.5").weight_bytes
    assert whole / 8 <= eight < 1.1 * whole / 8
    assert one == pytest.approx(eight, rel=0.02)


def test_fraction_defaults() -> None:
    """ai-dynamo/aiconfigurator#1396: the default is 0.92, not the whole card; 0.90 before 0.22."""
    assert fit("llama3.1-8b", "b200", engine="vllm").budget.share == 0.92
    assert fit("llama3.1-8b", "b200", engine="vllm@0.22.0").budget.share == 0.92
    assert fit("llama3.1-8b", "b200", engine="vllm@0.21.3").budget.share == 0.90


def test_three_numbers_multiply() -> None:
    """redhat-performance/configiq#112, vllm-project/vllm#51041: tokens x bytes a token are the bytes, and tokens of
    a hybrid model are concurrency x length."""
    answer = fit("gemma3-27b", "h200", engine="vllm")
    device = answer.to_dict()["per_device"]
    assert answer.kv_tokens * device["kv_bytes_per_token"] == pytest.approx(device["kv_cache_bytes"], rel=1e-6)
    assert answer.kv_tokens == int(answer.concurrency * answer.length)


def test_compute_buffer() -> None:
    """ollama/ollama#17201: no buffer for the step itself. llama.cpp logs 258.5 MiB for a vocabulary of 128,256, as
    long as it keeps logits of a whole step.
    """
    buffers = [
        fit("llama3-8b", "rtx-4090", engine=f"llama.cpp{version}", weights="gguf_q4_0").budget.activations
        for version in ("@b6000", "")
    ]
    assert buffers[0] / 2**20 == pytest.approx(258.5, rel=0.1)
    assert 0 < buffers[1] < buffers[0]


def test_default_context() -> None:
    """AlexsJones/llmfit#302: 26.3 GB and NO on a card of 8 GB, at the longest context of the model."""
    assert fit("qwen3-8b", "rtx-4060", engine="llama.cpp", weights="gguf_q4_0").fits


def test_sizes_of_files() -> None:
    """canitrun.dev: half a byte a weight, 4.0, 35.0 and 202.5 GB."""
    for model, gigabytes in (("llama3.1-8b", 4.92), ("llama3.1-70b", 42.5), ("llama3.1-405b", 243)):
        size = archsim.count(model, weights="gguf_q4_k_m").weight_bytes / 1e9
        assert size == pytest.approx(gigabytes, rel=0.01), model


def test_no_constant_factor() -> None:
    """The formula parameters x bytes x 1.2: weights are 141.1 GB, and each token takes 0.328 MB."""
    counted = archsim.count("llama3.1-70b")
    assert counted.weight_bytes / 1e9 == pytest.approx(141.1, abs=0.05)
    assert counted.kv_bytes_per_token == 327_680


def test_eight_bits_are_a_byte() -> None:
    """docs.vultr.com, 2026-03-17: 210 GB in fp8, 26 GB on each of 8; they are at least 405 and 47 GiB."""
    assert archsim.count("llama3.1-405b", weights="fp8").weight_bytes >= 405e9
    assert fit("llama3.1-405b", "h100", tp=8, weights="fp8", engine="vllm").budget.weights / GIB >= 47


def test_active_is_not_total() -> None:
    """alpha-one-index: all 47 B active, and tensor parallelism over 11 devices."""
    assert archsim.count("mixtral-8x7b").active / 1e9 == pytest.approx(12.9, abs=0.05)
    with pytest.raises(InvalidPlan):
        fit("llama3.1-405b", "h100", tp=11)


def test_parameters_are_billions() -> None:
    """besthub.dev: 1.17 trillion."""
    assert archsim.count("gpt-oss-120b").total / 1e9 == pytest.approx(116.8, abs=0.05)


def test_memory_of_the_chip() -> None:
    """optimum-tpu: 16 GB a chip; it has 95 GB."""
    assert archsim.load_hardware("tpu-v5p").memory_bytes / 1e9 == pytest.approx(95, rel=0.08)


def test_one_estimator() -> None:
    """AlexsJones/llmfit#805: two commands, two models of the same thing."""
    answer, estimate = (
        fit("qwen3-30b-a3b", "rtx-3090", weights="int4"),
        archsim.estimate("qwen3-30b-a3b", "rtx-3090", weights="int4"),
    )
    assert (
        answer.budget.weights == estimate.memory.weights == archsim.count("qwen3-30b-a3b", weights="int4").weight_bytes
    )
    assert answer.need == estimate.memory.kv_cache


def test_activations_are_not_cache() -> None:
    """LLMServingSim#59: 54,400 tokens from the share less the weights; 31 % too many."""
    tokens = fit("llama3.1-8b", "rtx-4090", engine="vllm@0.11", gpu_memory_utilization=0.9).kv_tokens
    assert tokens == pytest.approx(54_400 / 1.31, rel=0.1)


def test_communication_takes_memory() -> None:
    """vllm-project/vllm#2031: buffers outside of torch were given to the cache."""
    one, four = (fit("llama2-70b", "a100-80gb", engine="vllm@0.11", tp=n).budget.non_torch for n in (1, 4))
    assert four > one > 0


def test_per_device_never_a_sum() -> None:
    """vllm-project/vllm#28228 and #13061: free memory of both devices taken as one cache."""
    answer = fit("llama3.1-70b", "h100", engine="vllm@0.11", tp=4)
    assert answer.kv_cache_bytes + answer.budget.weights < answer.budget.capacity
    assert answer.kv_bytes_per_token == 327_680 // 4


def test_wider_four_bits() -> None:
    """4 bits are not 4 bits: an exponent of 8 bits for 32 numbers is 4.25, one for 16 is 4.5."""
    assert load_format("mxfp4").format().bits == 4.25
    assert load_format("nvfp4").format().bits >= 4.5


def test_working_set() -> None:
    """Andyyyy64/whichllm#152, AlexsJones/llmfit#570: all of a Mac's memory as budget."""
    for name in ("apple-m1-max", "apple-m1-7core", "apple-m2-ultra"):
        budget = fit("llama3.2-1b", name, engine="llama.cpp", weights="gguf_q4_0").budget
        assert budget.limit <= archsim.load_hardware(name).working_set_bytes < budget.capacity


def test_heads_are_replicated() -> None:
    """tenstorrent/vllm#50: 8 / 32 heads a device; each keeps a whole one."""
    eight, more = (fit("llama3.1-70b", "b200", engine="vllm", tp=n) for n in (8, 32))
    assert more.kv_bytes_per_token == eight.kv_bytes_per_token == 80 * 2 * 128 * 2


def test_latent_is_whole_on_each_rank() -> None:
    """LMCache/LMCache#694: a latent cannot be cut by heads, so tensor parallelism does not shrink it."""
    answer = fit("deepseek-v3", "h200", engine="vllm", tp=8)
    assert answer.kv_bytes_per_token == 61 * 576 * 2
    naive = fit("deepseek-v3", "h200", engine="vllm@0.6.6", tp=8)
    assert naive.kv_bytes_per_token > 3 * answer.kv_bytes_per_token


def test_windows_kept_in_full_by_older_engines() -> None:
    """vllm-project/vllm#11382 and #16118: before the hybrid cache manager every layer kept the whole context."""
    old, new = (fit("gemma3-27b", "h100", engine=f"vllm@{v}", max_model_len=32768) for v in ("0.8.4", "0.11"))
    assert old.need == 62 * 2 * 16 * 128 * 2 * 32768
    assert new.need < old.need / 2


@pytest.mark.parametrize("device", ("rtx-4090", "rtx-3090", "l40s"))
@pytest.mark.parametrize("engine", ("vllm", "sglang"))
def test_a_gguf_prompt_takes_as_long_as_the_kernels_of_llama_cpp(engine: str, device: str) -> None:
    """vLLM and SGLang multiply GGUF's blocks by kernels taken from llama.cpp, not by their own int8 kernels."""
    prompt, own, int8 = (
        archsim.estimate("qwen2.5-14b", device, weights=weights, engine=name).prefill.expected_s
        for weights, name in (("gguf_q4_k_m", engine), ("gguf_q4_k_m", "llama.cpp"), ("int8_dynamic", engine))
    )
    assert prompt > 0.9 * own
    assert prompt > 2 * int8
