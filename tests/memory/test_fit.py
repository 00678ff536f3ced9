"""`archsim fit`: published starts of engines, consistency with the other commands, and what must always hold."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import archsim
from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.memory.check_fit import FitRequest, check_change, check_fit
from archsim.memory.engine_memory import EngineTensors
from archsim.spec.catalog import names
from archsim.spec.load import load_hardware, load_model
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan

FACTS = yaml.safe_load((Path(__file__).parents[1] / "facts" / "transformers_peaks.yaml").read_text("utf-8"))
GIB = 2**30


def fit(model: str, hw: str, **options: Any) -> Any:
    """The answer without suggestions."""
    return archsim.fit(model, hw, suggest=False, **options)


@pytest.mark.parametrize("model", FACTS["peaks"]["gib"])
def test_peak_of_transformers(model: str) -> None:
    """Weights, cache and one whole-prompt step come within 5 % of the measured peak."""
    for prompt, measured in FACTS["peaks"]["gib"][model].items():
        answer = fit(model, "a100-80gb", engine="hf@4.46", max_model_len=prompt + 2048, max_num_batched_tokens=prompt)
        peak = answer.budget.weights + answer.request_bytes + answer.budget.activations
        assert peak / GIB == pytest.approx(measured, rel=0.05), prompt


ENGINES = (
    "generic",
    "vllm",
    "vllm@0.11",
    "vllm@0.6.3",
    "vllm@0.2.7",
    "sglang",
    "sglang@0.4",
    "trtllm",
    "llamacpp",
    "hf",
)
MODELS = (
    "llama3.1-8b",
    "gemma3-27b",
    "deepseek-v3",
    "qwen3.5-397b-a17b",
    "gpt-oss-20b",
    "mamba-2.8b",
    "t5-base",
    "bert-base",
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_consistent(model: str, engine: str) -> None:
    """Tokens x bytes a token are the bytes of the cache; the parts add up to the budget; JSON holds no NaN."""
    answer = fit(model, "h200", engine=engine, devices=8 if model in ("deepseek-v3", "qwen3.5-397b-a17b") else 1)
    data, budget = answer.to_dict(), answer.budget
    device = data["per_device"]
    if data["kv_tokens"] is not None and budget.room >= 0:
        assert device["kv_cache_bytes"] == round(data["kv_tokens"] * device["kv_bytes_per_token"])
        assert device["kv_cache_bytes"] <= budget.room
        page = device["kv_bytes_per_token"] * max(256, answer.length)
        assert budget.room - device["kv_cache_bytes"] <= page
    assert budget.fixed + budget.room == device["budget_bytes"] <= device["visible_bytes"] <= device["capacity_bytes"]
    assert answer.fits == (budget.room >= answer.need)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama3.1-8b", "gpt-oss-20b", "deepseek-v3", "bert-base", "t5-base"])
@pytest.mark.parametrize("engine", ["generic", "vllm", "sglang", "hf"])
def test_weights_of_all_commands(model: str, engine: str) -> None:
    """`count`, `estimate` and `fit` hold the same weights, whole and cut."""
    whole = archsim.count(model).weight_bytes
    assert fit(model, "b200", engine=engine).budget.weights == whole
    tp = 8 if model in ("deepseek-v3", "gpt-oss-20b") else 2 if model != "bert-base" else 1
    cut = archsim.estimate(model, "b200", tp=tp, engine=engine).memory.weights
    assert fit(model, "b200", engine=engine, tp=tp).budget.weights == cut


def test_generic_is_estimate() -> None:
    """Without an engine, `fit` divides a device as `estimate` does."""
    for model, hw in (("llama3.1-8b", "h100"), ("gemma3-27b", "h200"), ("mixtral-8x7b", "b200")):
        memory, answer = archsim.estimate(model, hw).memory, fit(model, hw)
        assert answer.budget.limit == memory.usable
        assert (answer.budget.activations, answer.budget.non_torch) == (memory.activations, memory.runtime)
        assert answer.budget.room - answer.need == memory.free
        assert answer.fits == memory.fits


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["generic", "vllm", "vllm@0.11", "sglang", "trtllm", "llamacpp", "hf"])
@pytest.mark.parametrize("model", ["llama3.1-8b", "gemma3-12b", "gpt-oss-20b"])
def test_longer_never_fits_more(engine: str, model: str) -> None:
    """A longer context never turns NO into a fit, nor leaves more room."""
    rooms = [fit(model, "rtx-4090", engine=engine, max_model_len=n) for n in (512, 4096, 40_000, 130_000)]
    for shorter, longer in itertools.pairwise(rooms):
        assert longer.need >= shorter.need and longer.budget.room <= shorter.budget.room
        assert shorter.fits or not longer.fits


@pytest.mark.parametrize("engine", ["generic", "vllm@0.11", "trtllm", "llamacpp", "hf"])
def test_more_memory_never_fits_less(engine: str) -> None:
    """On cards that differ in memory alone, the larger holds at least as many tokens."""
    small = archsim.load_hardware("rtx-3090")
    tokens = []
    for gib in (20, 24, 32, 48, 64):
        memory = small.memory.model_copy(update={"capacity": f"{gib} GiB"})
        answer = archsim.fit("llama3.1-8b", small.model_copy(update={"memory": memory}), engine=engine, suggest=False)
        tokens.append((answer.fits, answer.kv_tokens))
    assert tokens == sorted(tokens)


def test_longest_is_the_boundary() -> None:
    """The longest request fits, one page more does not; found over layers that differ."""
    for model in ("llama3.1-8b", "gemma3-27b", "gpt-oss-20b"):
        first = fit(model, "a100-80gb", engine="vllm@0.11")
        at, beyond = (
            fit(model, "a100-80gb", engine="vllm@0.11", max_model_len=n) for n in (first.longest, first.longest + 16)
        )
        assert at.fits and not beyond.fits


def test_caches_are_the_graphs() -> None:
    """What `fit` says a request takes is what the op graph of that length holds, windows and states included."""
    for name in ("gemma3-27b", "deepseek-v3", "qwen3.5-397b-a17b", "mamba-2.8b", "llama4-scout"):
        model, hw = archsim.load_model(name), archsim.load_hardware("b200")
        formats = choose_formats(model)
        tensors = EngineTensors(model, hw, formats, choose_engine("generic"))
        (stage,) = tensors.stages(Plan())
        for length in (1, 500, 5000, 70_000):
            graph = formats.apply(lower(model, step_for(model, 1, length)))
            assert stage.request_bytes(length, tensors.paging) == c.state_bytes(graph), (name, length)


def test_pipeline_is_judged_by_its_fullest_stage() -> None:
    """Each stage is compared with its own layers: two stages hold more tokens than one, on each device."""
    one, two = (fit("llama3.1-8b", "rtx-3090", engine="vllm@0.11", pp=n) for n in (1, 2))
    assert two.kv_tokens > 2 * one.kv_tokens
    assert two.kv_bytes_per_token == one.kv_bytes_per_token / 2


def test_meanings_of_the_fraction() -> None:
    """0.9 of the total, of the static part and of what is free leave different amounts."""
    total = fit("llama3.1-8b", "h100", engine="vllm@0.11", gpu_memory_utilization=0.9).budget
    static = fit("llama3.1-8b", "h100", engine="sglang", mem_fraction_static=0.9).budget
    free = fit("llama3.1-8b", "h100", engine="trtllm", gpu_memory_utilization=0.9).budget
    assert total.room == int(0.9 * total.visible) - total.loaded - total.activations - total.non_torch
    assert static.room == int(0.9 * (static.visible - static.non_torch)) - static.weights
    assert free.room == int(0.9 * (free.visible - free.fixed))


def test_settings_turn_the_right_part() -> None:
    """Eager mode drops graphs, fewer sequences the sampler's logits, slots and parts take memory."""
    base = fit("gemma3-27b", "b200", engine="vllm")
    eager = fit("gemma3-27b", "b200", engine="vllm", enforce_eager=True)
    assert eager.budget.room - base.budget.room == base.budget.graphs > 0
    fewer = fit("gemma3-27b", "b200", engine="vllm", max_num_seqs=256)
    assert fewer.budget.activations < base.budget.activations
    slots = fit("gemma3-27b", "b200", engine="vllm", max_loras=2, max_lora_rank=32)
    one = fit("gemma3-27b", "b200", engine="vllm", max_loras=1, max_lora_rank=16)
    assert slots.budget.extra == 4 * one.budget.extra > 0
    seeing, blind = (fit("gemma3-27b", "b200", engine="vllm", without=w) for w in ("", "vision"))
    assert seeing.budget.weights == blind.budget.weights + 2 * 423_060_336
    drafting = fit("deepseek-v3", "b300", engine="vllm", tp=8, parts=("mtp",))
    plain = fit("deepseek-v3", "b300", engine="vllm", tp=8)
    assert drafting.budget.weights > plain.budget.weights and drafting.growth > plain.growth


def test_offload() -> None:
    """Fewer layers on the device leave less there and decode slower; experts in host memory likewise."""
    full, half, none = (
        fit("mixtral-8x7b", "rtx-4090", engine="llama.cpp", weights="gguf_q4_0", max_model_len=4096, n_gpu_layers=n)
        for n in (33, 16, 0)
    )
    assert full.budget.weights > half.budget.weights > none.budget.weights == 0
    assert full.offload.ideal_s < half.offload.ideal_s < none.offload.ideal_s
    experts = fit("mixtral-8x7b", "rtx-4090", engine="llama.cpp", weights="gguf_q4_0", max_model_len=4096, cpu_moe=True)
    assert experts.budget.weights < half.budget.weights
    faster = fit(
        "mixtral-8x7b", "rtx-4090", engine="llama.cpp", weights="gguf_q4_0", cpu_moe=True, host_bandwidth=200e9
    )
    assert faster.offload.ideal_s < experts.offload.ideal_s and not faster.offload.assumed
    total = archsim.count("mixtral-8x7b", weights="gguf_q4_0").weight_bytes
    assert half.budget.weights + half.offload.host_weights == total


def test_suggestions_are_computed() -> None:
    """Every suggestion really fits, with the tokens it says, and the limits agree."""
    answer = archsim.fit("qwen3-32b", "rtx-4090", engine="vllm@0.11", max_model_len=16384)
    assert not answer.fits and answer.suggestions
    for change in answer.suggestions:
        words = change.change.split()
        options = dict(zip((w.strip("-").replace("-", "_") for w in words[::2]), words[1::2], strict=True))
        typed = {k: int(v) if v.isdecimal() else v for k, v in options.items()}
        again = fit("qwen3-32b", "rtx-4090", engine="vllm@0.11", **{"max_model_len": 16384, **typed})
        assert again.fits and again.kv_tokens == change.kv_tokens
    assert (
        answer.inverse.devices
        == fit("qwen3-32b", "rtx-4090", engine="vllm@0.11", max_model_len=16384, devices="auto").plan.devices
    )


def test_refusals() -> None:
    """Degrees that do not divide, fractions beyond one, options that do not exist, and no number that is enough."""
    with pytest.raises(InvalidPlan):
        fit("llama3.1-405b", "h100", tp=11)
    with pytest.raises(UsageError, match="gpu-memory-utilization"):
        fit("llama3.1-8b", "h100", gpu_memory_utilization=1.5)
    with pytest.raises(UsageError, match="no option named"):
        fit("llama3.1-8b", "h100", colour="red")
    with pytest.raises(AnswerNo):
        fit("llama3.1-405b", "rtx-3070", devices="auto")


def test_tight_is_ten_per_cent_either_side() -> None:
    """TIGHT within 10 % of what the request needs, whether it fits or not; FITS and NO beyond."""
    longest = fit("llama3.1-8b", "rtx-4090", engine="vllm@0.11").longest
    verdicts = []
    for share in (0.85, 0.95, 1.05, 1.2):
        answer = fit("llama3.1-8b", "rtx-4090", engine="vllm@0.11", max_model_len=int(longest * share))
        verdicts.append((answer.verdict, answer.fits))
    assert verdicts == [("FITS", True), ("TIGHT", True), ("TIGHT", False), ("NO", False)]


def test_attention_replicas() -> None:
    """With attention data parallelism caches and attention weights are whole on each device, experts are divided."""
    tensor = fit("deepseek-v3", "h200", engine="vllm@0.11", tp=8)
    replicas = fit("deepseek-v3", "h200", engine="vllm@0.11", dp=8, ep=8)
    assert replicas.budget.weights > tensor.budget.weights
    assert replicas.kv_bytes_per_token == tensor.kv_bytes_per_token


def test_share_of_older_sglang() -> None:
    """Before 0.5 the static share fell with tensor parallelism; since then it follows from the device."""
    shares = [fit("llama3.1-70b", "h100", engine="sglang@0.4.6", tp=n).budget.share for n in (1, 2, 4, 8)]
    assert shares == [0.88, 0.87, 0.85, 0.81]
    assert 0.8 < fit("llama3.1-70b", "h100", engine="sglang", tp=8).budget.share < 0.9


@pytest.mark.parametrize("hw", ["h100", "rtx-4060-8gb"])
@pytest.mark.parametrize("engine", [entry.name for entry in names("engines")])
def test_every_engine_says_what_would_make_it_fit(engine: str, hw: str) -> None:
    """Whatever flags an engine has, of a model that fits on one of the devices and not on the other."""
    try:
        answer = archsim.fit("llama2-7b", hw, engine=engine)
    except UsageError as error:
        assert error.hints, engine  # of an engine that does not run the model's format, what does
        return
    assert answer.inverse is not None
    assert all(change.devices >= 1 for change in answer.suggestions)


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "nemotron-h-8b", "llama2-70b"])
@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("weights", [None, "fp8"])
def test_a_change_is_left_out_only_where_it_does_not_fit(model: str, devices: int, weights: str | None) -> None:
    """What is not tried, because the weights alone are too large, would not fit; all else is answered alike."""
    asked = FitRequest(devices=devices, weights=weights, engine="vllm")
    spec, hardware = load_model(model), load_hardware("l40s")
    whole, found = check_fit(spec, hardware, asked), check_change(spec, hardware, asked)
    assert not whole.fits if found is None else found.to_dict() == whole.to_dict()
