"""One memory: `estimate`, `fit` and `sweep` say the same of a model, a device and an engine; and how it is divided."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import archsim
from archsim.base.errors import ArchsimError
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.memory.kv_cache import Paging
from archsim.memory.plan_search import PlanSearch
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.device import DeviceRates

MODELS = (
    "llama3.1-8b", "llama2-70b", "mixtral-8x7b", "deepseek-v3", "gemma3-27b", "gpt-oss-120b", "qwen3-32b",
    "mamba-2.8b", "t5-large", "qwen3-30b-a3b",
)  # fmt: skip
DEVICES = ("h100", "a100-80gb", "h200", "rtx-4090", "m3-ultra", "mi300x")
ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "hf")


@pytest.mark.slow
@pytest.mark.parametrize("hw", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_estimate_and_fit_have_one_memory(model: str, hw: str) -> None:
    """Verdict, weights, activations, KV tokens and the room that is left, for every engine, on one device and on a
    group of devices."""
    compared = 0
    for engine, devices in itertools.product(ENGINES, (1, 8 if hw != "m3-ultra" else 1)):
        try:
            answer = archsim.fit(model, hw, engine=engine, devices=devices, max_model_len=3072, suggest=False)
        except ArchsimError as error:
            with pytest.raises(type(error)):
                archsim.estimate(model, hw, engine=engine, devices=devices, input_len=2048, output_len=1024)
            continue
        estimate = archsim.estimate(model, hw, engine=engine, devices=devices, input_len=2048, output_len=1024)
        memory = estimate.memory
        assert (memory.kv_tokens, memory.weights) == (answer.kv_tokens, answer.budget.weights)
        assert (memory.verdict, memory.fits) == (answer.verdict, answer.fits)
        assert memory.division == answer.budget
        shown, told = estimate.to_dict()["memory"], answer.to_dict()
        assert shown["kv_tokens"] == told["kv_tokens"] and shown["fits"] == told["fits"]
        compared += 1
    assert compared >= len(ENGINES)


def test_a_contradiction_that_was() -> None:
    """DeepSeek-R1 in Q4_K_M fits a Mac Studio with 512 GB under llama.cpp for both commands."""
    options: dict[str, Any] = {"engine": "llama.cpp", "weights": "q4_k_m"}
    assert archsim.fit("deepseek-r1", "m3-ultra", **options, max_model_len=8192, suggest=False).fits
    assert archsim.estimate("deepseek-r1", "m3-ultra", **options, input_len=8000, output_len=192).memory.fits


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["generic", "vllm", "vllm@0.7", "sglang", "trtllm", "llamacpp", "hf"])
@pytest.mark.parametrize("model", ["llama3.1-8b", "gemma3-27b", "deepseek-v3", "t5-large", "bert-base"])
@pytest.mark.parametrize("plan", [Plan(), Plan(tp=2, pp=3), Plan(tp=2, dp=4)])
def test_arrays_are_the_numbers(engine: str, model: str, plan: Plan) -> None:
    """The memory of a grid of workloads is, point by point, that of the numbers."""
    spec, hw = archsim.load_model(model), load_hardware("h200")
    tensors = EngineTensors(spec, hw, choose_formats(spec), choose_engine(engine))
    batches, prompts, answers = (1, 5, 64), (2, 700, 40_000), (1, 333)
    load = Workload(
        batch=np.array(batches, float).reshape(-1, 1, 1), input_len=np.array(prompts, float).reshape(-1, 1),
        output_len=np.array(answers, float),
    )  # fmt: skip
    grid = EngineMemoryModel(tensors, load).on(plan)
    shape = len(batches), len(prompts), len(answers)
    for name in ("weights", "kv_cache", "activations", "free", "needed", "usable"):
        values = np.broadcast_to(getattr(grid, name), shape)
        for at in itertools.product(*map(range, shape)):
            b, i, o = batches[at[0]], prompts[at[1]], answers[at[2]]
            one = EngineMemoryModel(tensors, Workload(batch=b, input_len=i, output_len=o)).on(plan)
            assert values[at] == pytest.approx(getattr(one, name), rel=1e-12, abs=2), (name, b, i, o)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_a_sweep_is_the_estimate(engine: str) -> None:
    """With an engine named, a sweep chooses the plans and holds the bytes that `estimate` does."""
    rows = archsim.sweep(
        ["mixtral-8x7b"], hw=["h100"], engine=[engine], batch="1,64", input_len="2048,20000", output_len="256"
    ).to_dict()["rows"]
    for row in rows:
        answer = archsim.estimate("mixtral-8x7b", "h100", engine=engine, batch=row["batch"], input_len=row["input_len"])
        assert (row["devices"], row["tp"], row["pp"]) == (
            answer.plan.devices, answer.plan.tp, answer.plan.pp
        )  # fmt: skip
        assert row["memory_bytes_per_device"] == pytest.approx(answer.memory.needed, rel=1e-12)
        assert row["free_bytes_per_device"] == pytest.approx(answer.memory.free, rel=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["vllm@0.11", "sglang", "trtllm", "hf", "generic"])
@pytest.mark.parametrize("model", ["llama2-70b", "qwen3-235b-a22b"])
def test_the_smallest_plan_is_the_smallest_that_fits(model: str, engine: str) -> None:
    """No candidate before the one that is found fits; `fit --devices auto` finds the same."""
    spec, hw = archsim.load_model(model), load_hardware("a100-80gb")
    tensors = EngineTensors(spec, hw, choose_formats(spec), choose_engine(engine))
    search = PlanSearch(EngineMemoryModel(tensors, Workload(input_len=4000, output_len=96)), DeviceRates(hw))
    plan, memory, _ = search.smallest(search.start(), frozenset())
    assert memory.fits
    for other in search.linked(search.start(), frozenset()):
        if other.devices == plan.devices:
            break
        assert not search.memory.on(other).fits
    if engine != "generic":
        options: dict[str, Any] = {"engine": engine, "max_model_len": 4096, "devices": "auto"}
        assert archsim.fit(model, "a100-80gb", suggest=False, **options).plan == plan


def test_pages_and_windows() -> None:
    """A cache is as long as its request in whole pages; a windowed layer keeps its window, and with `chunk` a step."""
    full, cut, chunk = (Paging(block=16, windows=w, chunk=2048) for w in ("full", "cut", "chunk"))
    assert [p.slots(1024, 5000) for p in (full, cut, chunk)] == [5008, 1024, 3072]
    assert [p.slots(1 << 27, 5000) for p in (full, cut, chunk)] == [5008] * 3
    assert chunk.slots(1024, 100) == 112


def test_an_engine_admits_as_many_as_its_scheduler() -> None:
    """The steady state runs no more requests than the engine's limit, however much cache there is."""
    many = archsim.estimate("llama3.2-1b", "h200", engine="vllm@0.6", concurrency=2000, input_len=64, output_len=64)
    assert many.serving is not None and many.serving.running == 256


def test_a_pipeline_that_does_not_fit_shows_the_stage_that_lacks_most() -> None:
    """At any length, so that what is needed never falls as requests grow."""
    model, engine = load_model("ling-3.0-flash"), choose_engine("sglang")
    formats = choose_formats(model, None, None, engine="sglang")
    tensors, plan = EngineTensors(model, load_hardware("l4"), formats, engine), Plan(tp=2, pp=2, engine="sglang")
    lengths = (1024, 4096, 8192, 65_536, 1 << 20)
    held = [EngineMemoryModel(tensors, Workload(batch=1, input_len=n, output_len=1)).on(plan) for n in lengths]
    assert {memory.weights for memory in held} == {max(stage.weights for stage in tensors.stages(plan))}
    assert all(after.needed >= before.needed for before, after in itertools.pairwise(held))
    assert not held[0].fits
