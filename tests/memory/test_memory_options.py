"""Settings of memory that not every engine has: a cache of given size, weights and pages in host memory, tensors by
their names in GGUF files."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.memory.offload import host_patterns

GIB = 2**30


def fit(model: str, hw: str, **options: Any) -> Any:
    return archsim.fit(model, hw, suggest=False, **options)


def test_cache_of_given_size() -> None:
    """vLLM's `kv_cache_memory_bytes` takes the place of the memory fraction; beyond the device it does not start."""
    size = 20 * GIB
    answer = fit("llama3.1-8b", "h100", engine="vllm", kv_cache_memory_bytes=size, gpu_memory_utilization=0.3)
    assert answer.budget.room == size and answer.kv_tokens == size // 131072
    assert answer.budget.limit == answer.budget.fixed + size
    whole = answer.budget.visible - answer.budget.fixed
    most, beyond = (fit("llama3.1-8b", "h100", engine="vllm", kv_cache_memory_bytes=n) for n in (whole, whole + 1))
    assert most.fits and not beyond.fits and beyond.budget.room == -1


def test_weights_in_host_memory() -> None:
    """Layers' weights up to the given size, the first ones first, one more begun at most; they are read at the link's
    rate, and what leaves the device is room for the cache."""
    plain, less, more = (
        fit("llama3.1-70b", "h100", engine="vllm", weights="fp8", max_model_len=8192, cpu_offload_gb=n)
        for n in (0, 8, 20)
    )
    assert plain.offload is None
    largest = 28672 * 8192
    for answer, asked in ((less, 8), (more, 20)):
        assert 0 <= answer.offload.host_weights - asked * GIB < largest
        assert plain.budget.weights - answer.budget.weights == answer.offload.host_weights
        assert answer.budget.room - plain.budget.room == answer.offload.host_weights
        assert answer.offload.ideal_s > answer.offload.host_weights / 63e9 and not answer.offload.assumed
    slower = fit(
        "llama3.1-70b", "h100", engine="vllm", weights="fp8", max_model_len=8192, cpu_offload_gb=20, host_bandwidth=20e9
    )
    assert slower.offload.ideal_s > more.offload.ideal_s


def test_each_stage_has_its_own_in_host_memory() -> None:
    """The size is of every device, of tensor-parallel ranks and of pipeline stages."""
    for degrees in ({"tp": 2}, {"pp": 2}):
        plain, out = (
            fit("llama3.1-70b", "h100", engine="vllm", max_model_len=8192, cpu_offload_gb=n, **degrees) for n in (0, 10)
        )
        left = plain.budget.weights - out.budget.weights
        assert 10 * GIB <= left < 10 * GIB + 2 * 28672 * 8192


def test_everything_beyond_the_layers_stays() -> None:
    """A size beyond the layers leaves the tables of tokens and the head on the device."""
    answer = fit("llama3.1-8b", "h100", engine="vllm", cpu_offload_gb=1000)
    assert answer.budget.weights == 2 * (2 * 128256 * 4096 + 4096)


def test_pages_in_host_memory() -> None:
    """The size is that of all tensor-parallel ranks together."""
    one, two = (
        fit("llama3.1-8b", "h100", engine="vllm", tp=n, max_model_len=8192, kv_offloading_size=64) for n in (1, 2)
    )
    assert one.host_tokens == two.host_tokens == 64 * GIB // 131072
    assert one.to_dict()["host_kv_tokens"] == one.host_tokens
    assert fit("llama3.1-8b", "h100", engine="vllm").host_tokens is None


@pytest.mark.parametrize(
    ("model", "patterns", "options"),
    [
        ("mixtral-8x7b", "ffn_.*_exps=CPU", {"cpu_moe": True}),
        ("mixtral-8x7b", r"blk\.[0-9]\.ffn_(up|gate|down)_exps\.weight=CPU", {"n_cpu_moe": 10}),
    ],
)
def test_tensors_by_name(model: str, patterns: str, options: dict[str, Any]) -> None:
    """llama.cpp's own `--cpu-moe` and `--n-cpu-moe` are such patterns (common/arg.cpp)."""
    common: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q4_k_m", "max_model_len": 4096}
    named, usual = (fit(model, "rtx-4090", **common, **more) for more in ({"override_tensor": patterns}, options))
    assert named.budget.weights == usual.budget.weights
    assert named.offload.host_weights == usual.offload.host_weights > 0


def test_one_matrix_of_each_layer() -> None:
    common: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q8_0", "max_model_len": 4096}
    plain, out = (
        fit("llama3.1-8b", "rtx-4090", **common, override_tensor=text) for text in ((), r"\.ffn_up\.weight=CPU")
    )
    assert plain.budget.weights - out.budget.weights == 32 * 4096 * 14336 * 34 // 32


def test_patterns() -> None:
    assert host_patterns(("a.*=CPU,b=cpu", "c=CPU")) == ("a.*", "b", "c")
    for text in ("exps=CUDA0", "exps", "=CPU", "(=CPU"):
        with pytest.raises(UsageError, match="--override-tensor"):
            host_patterns((text,))


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        ("sglang", {"kv_cache_memory_bytes": GIB}),
        ("trtllm", {"cpu_offload_gb": 1}),
        ("vllm", {"override_tensor": "exps=CPU"}),
        ("vllm@0.4", {"cpu_offload_gb": 1}),
        ("vllm@0.6", {"kv_cache_memory_bytes": GIB}),
        ("vllm@0.9", {"kv_offloading_size": 4}),
    ],
)
def test_engines_without(engine: str, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no `--"):
        fit("llama3.1-8b", "h100", engine=engine, **option)


@pytest.mark.parametrize("option", [{"cpu_offload_gb": -1}, {"kv_cache_memory_bytes": 0}])
def test_no_such_size(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        fit("llama3.1-8b", "h100", engine="vllm", **option)
