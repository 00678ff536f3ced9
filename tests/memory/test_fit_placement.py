"""Where `archsim fit` puts things: pipeline stages, host memory, replicas, cache types, and the peak while loading."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import InvalidPlan
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.graph.tensor import numel
from archsim.memory.engine_memory import EngineTensors, Settings
from archsim.memory.tensors import layer_counts
from archsim.spec.load import load_hardware
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan


def fit(model: str, hw: str, **options: Any) -> Any:
    """The answer without suggestions."""
    return archsim.fit(model, hw, suggest=False, **options)


def tensors(model: Any, engine: str) -> EngineTensors:
    """What an engine lays out of a model on one device."""
    return EngineTensors(model, load_hardware("h100"), choose_formats(model), choose_engine(engine))


@pytest.mark.parametrize("model", ["mamba-2.8b", "qwen3.5-397b-a17b", "minimax-text-01"])
def test_llama_cpp_keeps_all_recurrent_states_in_fp32(model: str) -> None:
    """States of convolutions too, which others keep in 16 bits; it prints `R (f32)` and `S (f32)`."""
    spec = archsim.count(model).model
    graph = lower(spec, step_for(spec, 1, 1))
    states = [i for i in c.inventory(graph, kind="state") if i.tensor.role == "recurrent"]
    elements = sum(int(numel(i.tensor)) * int(i.copies) for i in states)
    kept = {
        engine: sum(
            round(held.bytes)
            for held in tensors(spec, engine).stages(Plan())[0].caches
            if held.tensor.role == "recurrent"
        )
        for engine in ("llamacpp", "vllm")
    }
    assert kept["llamacpp"] == 4 * elements
    assert kept["vllm"] == archsim.count(model).state_bytes


@pytest.mark.parametrize(
    ("rule", "layers", "stages", "expected"),
    [
        ("before_last", 32, 4, [8, 8, 8, 8]),
        ("before_last", 30, 4, [7, 8, 8, 7]),
        ("before_last", 61, 2, [31, 30]),
        ("all_last", 30, 4, [7, 7, 7, 9]),
        ("first", 30, 4, [8, 8, 7, 7]),
        ("last", 30, 4, [7, 7, 8, 8]),
        ("even", 30, 4, [8, 8, 8, 6]),
        ("output", 32, 2, [17, 15]),
        ("output", 30, 4, [8, 8, 8, 6]),
    ],
)
def test_layers_that_are_left_over(rule: str, layers: int, stages: int, expected: list[int]) -> None:
    """vLLM 43/10 is 4,4,4,4,4,4,5,5,5,4; TensorRT-LLM's first ranks and SGLang's last take one more."""
    assert layer_counts(layers, stages, rule) == expected
    assert layer_counts(43, 10, "before_last") == [4, 4, 4, 4, 4, 4, 5, 5, 5, 4]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("engine", ["generic", "vllm", "vllm@0.7", "sglang", "trtllm"])
@pytest.mark.parametrize("model", ["llama3.2-3b", "llama3.1-70b", "deepseek-v3", "mamba-2.8b", "gemma3n-e2b"])
def test_stages_hold_the_whole_model(model: str, engine: str) -> None:
    """All weights are on some stage, and on no two, but for a tied table; the same for caches."""
    spec = archsim.load_model(model)
    laid_out = tensors(spec, engine)
    (whole,) = laid_out.stages(Plan())
    cut = laid_out.stages(Plan(pp=4))
    table = 2 * spec.vocab_size * spec.d_model if spec.head.tied and engine != "generic" else 0
    assert sum(stage.weights * stage.count for stage in cut) == whole.weights + table
    caches = sum(stage.request_bytes(1000, laid_out.paging) * stage.count for stage in cut)
    assert caches == whole.request_bytes(1000, laid_out.paging)


def test_a_tied_table_is_on_both_ends() -> None:
    """The first stage looks tokens up, the last multiplies by the same table."""
    spec = archsim.load_model("llama3.2-3b")
    first, middle, last = tensors(spec, "vllm").stages(Plan(pp=3))
    table, norm = 2 * spec.vocab_size * spec.d_model, 2 * spec.d_model
    assert 10 * (first.weights - table) == 9 * middle.weights
    assert last.weights == first.weights + norm


def test_keys_and_values_in_formats_of_their_own() -> None:
    """llama.cpp's `-ctk` and `-ctv`; the latent of MLA counts as keys."""
    options: dict[str, Any] = {"engine": "llama.cpp", "max_model_len": 4096}
    both, keys, none = (
        fit("llama3.1-8b", "h100", **options, cache_type_k=k, cache_type_v=v).kv_bytes_per_token
        for k, v in (("q8_0", "q4_0"), ("q8_0", None), (None, None))
    )
    each = 32 * 8 * 128
    assert (both, keys, none) == (each * (34 + 18) / 32, each * (34 / 32 + 2), each * 4)
    latent = fit("deepseek-v3", "b300", **options, cache_type_k="q8_0")
    assert latent.kv_bytes_per_token == 61 * 576 * 34 / 32
    assert fit("llama3.1-8b", "h100", **options, cache_type_k="q8_0", cache_type_v="q8_0").cache_name == "q8_0"


def test_experts_of_some_layers() -> None:
    """`--n-cpu-moe N` leaves the routed experts of the first N layers in host memory, nothing else."""
    options: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q4_k_m", "max_model_len": 4096}
    answers = [fit("qwen3-30b-a3b", "rtx-4090", **options, n_cpu_moe=n) for n in (0, 10, 48, 60)]
    held = [answer.budget.weights for answer in answers]
    assert held[0] > held[1] > held[2] == held[3]
    assert answers[0].offload is None
    all_out = fit("qwen3-30b-a3b", "rtx-4090", **options, cpu_moe=True)
    assert (held[2], answers[2].offload) == (all_out.budget.weights, all_out.offload)
    assert answers[1].offload.host_weights < answers[2].offload.host_weights


def test_experts_in_host_memory_are_suggested() -> None:
    """The fewest layers with which it fits; one less does not."""
    options: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q8_0", "max_model_len": 8192}
    answer = archsim.fit("qwen3-30b-a3b", "rtx-4090", **options)
    (change,) = [c.change for c in answer.suggestions if c.change.startswith("--n-cpu-moe")]
    n = int(change.split()[1])
    assert fit("qwen3-30b-a3b", "rtx-4090", **options, n_cpu_moe=n).fits
    assert not fit("qwen3-30b-a3b", "rtx-4090", **options, n_cpu_moe=n - 1).fits


def test_attention_replicas_inside_tensor_parallelism() -> None:
    """SGLang's DP attention: 8 devices with 4 replicas are two ways of tensor parallelism each."""
    answer = fit("deepseek-v3", "h200", engine="sglang", tp=8, dp=4, enable_dp_attention=True)
    plan = answer.plan
    assert (plan.devices, plan.tp, plan.dp, plan.ep) == (8, 2, 4, 8)
    with pytest.raises(InvalidPlan, match="not a multiple"):
        fit("deepseek-v3", "h200", engine="sglang", tp=8, dp=3, enable_dp_attention=True)
    with pytest.raises(InvalidPlan, match="experts"):
        fit("llama3.1-8b", "h200", engine="sglang", tp=8, enable_dp_attention=True)


def test_peak_while_loading() -> None:
    """fp8 made of a 16-bit checkpoint: older engines load that first, two releases hold both, newer ones neither."""
    wide = archsim.count("llama3.1-8b").weight_bytes
    narrow = archsim.count("llama3.1-8b", weights="fp8").weight_bytes
    peaks = [fit("llama3.1-8b", "h100", engine=f"vllm@{v}", weights="fp8").load_peak for v in ("0.12", "0.13", "0.15")]
    table = 131_072 * 128 * 2  # sines and cosines of all positions
    assert peaks == [wide, wide + narrow + table, narrow + table]
    assert fit("llama3.1-8b", "h100", engine="vllm@0.12").load_peak == wide + table
    assert fit("deepseek-v3", "b300", engine="vllm@0.13", weights="fp8", tp=8).warnings == ()
    tight = fit("qwen3-14b", "rtx-4090", engine="vllm@0.12", weights="fp8", max_model_len=4096)
    assert tight.fits and "W06" in {note.code for note in tight.warnings}


def test_host_memory_with_several_devices() -> None:
    """What lies in host memory is on no device, however many there are; the devices share the rest."""
    options: dict[str, Any] = {"engine": "llama.cpp", "weights": "gguf_q4_k_m", "max_model_len": 4096}
    for moved in ({"cpu_moe": True}, {"n_gpu_layers": 16}, {"n_gpu_layers": 33}, {"n_cpu_moe": 5}):
        one, two = (fit("mixtral-8x7b", "rtx-4090", **options, **moved, devices=n) for n in (1, 2))
        assert two.offload.host_weights == one.offload.host_weights
        assert two.offload.ideal_s == pytest.approx(one.offload.ideal_s)
        spec = archsim.load_model("mixtral-8x7b")
        formats, engine = choose_formats(spec, "gguf_q4_k_m"), choose_engine("llamacpp")
        cut = EngineTensors(spec, load_hardware("h100"), formats, engine, Settings(**moved)).stages(Plan(pp=2))
        assert sum(stage.weights * stage.count for stage in cut) == one.budget.weights
        assert two.budget.weights in {stage.weights for stage in cut}
