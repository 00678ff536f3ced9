"""Settings of memory that not every engine has: a cache of given size, weights and pages in host memory, tensors by
their names in GGUF files."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineTensors, Settings
from archsim.memory.offload import host_patterns
from archsim.memory.tensors import layer_counts
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan

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
        ("vllm", {"cpu_moe": True}),
        ("sglang", {"n_gpu_layers": 10}),
        ("sglang", {"n_gpu_layers": 0}),
        ("trtllm", {"n_cpu_moe": 4}),
    ],
)
def test_engines_without(engine: str, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no `--"):
        fit("llama3.1-8b", "h100", engine=engine, **option)


def test_an_option_of_another_engine_is_refused_with_the_engines_that_have_it() -> None:
    with pytest.raises(UsageError) as refused:
        fit("llama3.1-8b", "h100", engine="vllm", n_gpu_layers=10)
    assert refused.value.hints == ("engines that have it: llamacpp",)
    with pytest.raises(UsageError) as refused:
        fit("llama3.1-8b", "h100", engine="llama.cpp", cpu_offload_gb=1)
    assert refused.value.hints == ("engines that have it: ktransformers, sglang, vllm",)


@pytest.mark.parametrize("option", [{"cpu_offload_gb": -1}, {"kv_cache_memory_bytes": 0}])
def test_no_such_size(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        fit("llama3.1-8b", "h100", engine="vllm", **option)


KT: dict[str, Any] = {"engine": "ktransformers", "max_model_len": 4096, "host_bandwidth": 300e9}


def test_experts_of_each_layer_in_host_memory() -> None:
    """KTransformers' `--kt-num-gpu-experts`: devices keep so many of 128 experts of each of the 48 layers, the host has
    the others; more than there are is all of them."""
    held = {n: fit("qwen3-30b-a3b", "rtx-4090", **KT, num_gpu_experts=n) for n in (0, 32, 128, 500)}
    one = 48 * 3 * 2048 * 768 * 2  # bytes of one expert of each layer
    for n, answer in held.items():
        kept = min(n, 128)
        assert answer.budget.weights - held[0].budget.weights == kept * one
        assert answer.offload.host_weights == (128 - kept) * one
    everything = archsim.count("qwen3-30b-a3b").weight_bytes
    assert held[32].budget.weights + held[32].offload.host_weights == everything
    assert fit("qwen3-30b-a3b", "rtx-4090", **KT).offload is None


def test_experts_of_both_memories_run_at_once() -> None:
    """A token waits for the slower of both: beside experts that the host computes those of the device take no time."""
    none, some, few = (fit("qwen3-30b-a3b", "rtx-4090", **KT, num_gpu_experts=n).offload.ideal_s for n in (0, 32, 120))
    chosen = 48 * 8 * 3 * 2048 * 768 * 2 / 300e9  # seconds of a token's experts, all of them on the host
    assert none - some == pytest.approx(chosen * 32 / 128, rel=1e-6)
    slow = 48 * 8 * 3 * 2048 * 768 * 2 / load_hardware("rtx-4090").bandwidth
    assert few == pytest.approx(none - chosen + slow * 120 / 128, rel=1e-6)


def test_the_host_has_experts_once() -> None:
    """Tensor parallelism cuts what devices keep, and not what the host has."""
    one, two = (fit("qwen3-30b-a3b", "rtx-4090", **KT, num_gpu_experts=16, tp=tp) for tp in (1, 2))
    assert one.offload.host_weights == two.offload.host_weights
    assert two.budget.weights < 0.52 * one.budget.weights


def test_the_most_experts_that_fit_are_suggested() -> None:
    answer = archsim.fit("qwen3-30b-a3b", "rtx-4090", **KT)
    (change,) = [c.change for c in answer.suggestions if c.change.startswith("--kt-num-gpu-experts")]
    n = int(change.split()[1])
    assert fit("qwen3-30b-a3b", "rtx-4090", **KT, num_gpu_experts=n).fits
    assert not fit("qwen3-30b-a3b", "rtx-4090", **KT, num_gpu_experts=n + 1).fits


@pytest.mark.parametrize(
    ("model", "option", "words"),
    [
        ("llama3.1-8b", {}, "no routed experts"),
        ("qwen3-30b-a3b", {"weights": "int4"}, "not modelled in host memory"),
        ("qwen3-30b-a3b", {"tp": 2, "ep": 2}, "expert parallelism"),
        ("qwen3-30b-a3b", {"engine": "vllm"}, "has no `--num-gpu-experts`"),
    ],
)
def test_experts_that_cannot_be_there(model: str, option: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit(model, "rtx-4090", **{**KT, "num_gpu_experts": 0, **option})


LLAMA_CPP: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q4_k_m", "max_model_len": 8192}


def test_proportions_of_layers() -> None:
    """llama.cpp puts position `i` of the layers and the output matrix on the first device whose running share is above
    `i` of all: of 80 layers and proportions 3,1 the first 61 of 81 positions (src/llama-model.cpp)."""
    assert layer_counts(80, 2, "output", (3, 1)) == [61, 19]
    assert layer_counts(80, 2, "output", (2, 2)) == layer_counts(80, 2, "output") == [41, 39]
    whole = fit("llama3.3-70b", "rtx-4090", **LLAMA_CPP).memory.stage
    model = load_model("llama3.3-70b")
    tensors = EngineTensors(
        model, load_hardware("rtx-4090"), choose_formats(model, "gguf_q4_k_m"), choose_engine("llama.cpp"),
        Settings(tensor_split=(3.0, 1.0)),
    )  # fmt: skip
    first, last = tensors.stages(Plan(pp=2))
    assert first.weights + last.weights == pytest.approx(whole.weights, rel=1e-6)
    paging = tensors.paging
    assert first.request_bytes(8192, paging) * 19 == last.request_bytes(8192, paging) * 61


def test_rows_of_matrices() -> None:
    """All matrices are shared by the proportions, so the weights of both devices are nearly equal, and the output
    matrix no longer loads the last one; caches stay where their layers are."""
    layers, rows = (
        fit("llama3.3-70b", "rtx-4090", devices=2, split_mode=mode, **LLAMA_CPP) for mode in ("layer", "row")
    )
    assert rows.budget.weights < layers.budget.weights
    alone = fit("llama3.3-70b", "rtx-4090", **LLAMA_CPP)
    assert rows.budget.weights == pytest.approx(alone.budget.weights / 2, rel=1e-3)
    assert rows.request_bytes in (
        layers.request_bytes,
        layers.request_bytes * 41 // 39,
        layers.request_bytes * 39 // 41,
    )


def test_tensors_over_devices() -> None:
    """Weights and caches are both cut in two."""
    cut = fit("llama3.3-70b", "rtx-4090", devices=2, split_mode="tensor", **LLAMA_CPP)
    assert (cut.plan.tp, cut.plan.pp) == (2, 1)
    assert cut.request_bytes == fit("llama3.3-70b", "rtx-4090", **LLAMA_CPP).request_bytes / 2


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"split_mode": "none", "devices": 2}, "one device"),
        ({"split_mode": "graph"}, "is one of layer"),
        ({"tensor_split": "3,1,1", "devices": 2}, "3 proportions"),
        ({"tensor_split": "3,0", "devices": 2}, "above 0"),
        ({"tensor_split": "a,b", "devices": 2}, "such as 3,1"),
    ],
)
def test_no_such_split(option: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit("llama3.3-70b", "rtx-4090", **LLAMA_CPP, **option)


def test_a_draft_of_its_own_context() -> None:
    """llama.cpp: weights, fp16 caches of as many tokens and a compute buffer, all of the draft's own size."""
    plain, with_draft, draft = (
        fit(model, "rtx-4090", **{**LLAMA_CPP, "weights": form}, **more)
        for model, form, more in (
            ("llama3.1-8b", "gguf_q4_k_m", {}),
            ("llama3.1-8b", "gguf_q4_k_m", {"draft_model": "llama3.2-1b", "draft_weights": "gguf_q8_0"}),
            ("llama3.2-1b", "gguf_q8_0", {}),
        )
    )
    for part in (lambda f: f.budget.weights, lambda f: f.request_bytes, lambda f: f.budget.activations):
        assert part(with_draft) == pytest.approx(part(plain) + part(draft), rel=1e-9)
    assert any("llama3.2-1b" in note.text for note in with_draft.assumptions)
    narrow = fit("llama3.1-8b", "rtx-4090", **LLAMA_CPP, kv_cache_dtype="q8_0", draft_model="llama3.2-1b")
    assert narrow.request_bytes - draft.request_bytes == pytest.approx(plain.request_bytes * 17 / 32)


def test_a_draft_in_the_same_cache() -> None:
    """vLLM: pages of the same tokens in the same format; its layers are cut over the same devices."""
    plain, with_draft = (
        fit("llama3.1-8b", "h100", engine="vllm", tp=2, kv_cache_dtype="fp8", draft_model=draft)
        for draft in (None, "llama3.2-1b")
    )
    assert with_draft.growth - plain.growth == 16 * 2 * 8 * 64 / 2
    assert with_draft.budget.activations == plain.budget.activations
    with pytest.raises(UsageError, match="not modelled"):
        fit("llama3.1-8b", "h100", engine="vllm@0.20", draft_model="llama3.2-1b")


@pytest.mark.parametrize("engine", ["llamacpp", "llamacpp@b6000", "vllm"])
def test_what_holds_more_beside_a_draft(engine: str) -> None:
    """Other options are tried with the draft, too: a document that holds a mapping had no hash."""
    form = "fp8" if engine == "vllm" else "gguf_q4_k_m"
    found = archsim.fit(
        "llama3.1-8b", "rtx-4090", engine=engine, weights=form, draft_model="llama3.2-1b", max_model_len=4096
    )
    assert found.fits and found.suggestions
