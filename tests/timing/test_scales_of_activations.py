"""Whether scales of FP8 activations are stored or found for each token decides what an engine launches."""

from __future__ import annotations

import pytest

import archsim


def decode_ms(engine: str, weights: str) -> float:
    found = archsim.estimate("llama3.1-8b", "h100", batch=8, weights=weights, kv_cache_dtype="fp8", engine=engine)
    assert found.decode is not None
    return float(found.decode.expected_s) * 1e3


def test_stored_scales_spare_tensorrt_llm_a_kernel_for_each_product() -> None:
    """Four products a layer, 2 to 4 us each, in 32 layers."""
    assert 0.1 < decode_ms("trtllm", "fp8_channel") - decode_ms("trtllm", "fp8") < 1.0


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_that_treat_both_alike_take_the_same_time(engine: str) -> None:
    """vLLM finds scales in the kernel before, SGLang has a kernel for either; scales of weights are few bytes."""
    assert decode_ms(engine, "fp8_channel") == pytest.approx(decode_ms(engine, "fp8"), rel=2e-3)
