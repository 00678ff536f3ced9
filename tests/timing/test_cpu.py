"""Kernels of a processor: the level of memory that feeds them, dispatch, threads, and how a graph becomes calls."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.accuracy.table import Group, Key
from archsim.calibration.fitting import fit_constants
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.kernels import kernels
from archsim.graph.step import Step
from archsim.spec.hardware import Hardware
from archsim.spec.load import open_model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.cpu import GRAIN, PAGE, pages_of_row
from archsim.timing.classes.model import default_constants, kernel_seconds
from archsim.timing.cpu_calls import calls_by_op
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import CallRules
from archsim.timing.step_pricer import StepPricer, engine_overheads

GEMM = KernelCall("cpu_gemm", "fp32", dims={"m": 1, "n": 1024, "k": 1024, "bytes": 1 << 30})


@cache
def processor() -> Hardware:
    """A made-up machine of four cores: 1 MiB and 16 MiB of caches at 400 and 200 GB/s, memory at 50."""
    document = {
        "schema": "archsim.hardware/1", "id": "made-up-4c", "name": "made up", "vendor": "x", "per": "socket",
        "arch": {"family": "made up"},
        "compute": {
            "units": {"kind": "core", "count": 4},
            "peak": {"fp32": {"vector": "0.4 TFLOP/s"}, "bf16": {"vector": "1.6 TFLOP/s"}},
        },
        "memory": {"type": "DDR", "capacity": "16 GB", "bandwidth": "50 GB/s"},
        "cache": {
            "llc": "16 MiB",
            "levels": [
                {"name": "l2", "size": "1 MiB", "bandwidth": "400 GB/s"},
                {"name": "llc", "size": "16 MiB", "bandwidth": "200 GB/s"},
            ],
        },
    }  # fmt: skip
    return Hardware.model_validate(document)


def seconds(call: KernelCall, **changes: float) -> float:
    """The formula with usual constants."""
    model, dims = MODELS[call.kernel_class], {**call.dims, **changes}
    usual = default_constants(model)
    return float(kernel_seconds(model, call._replace(dims=dims), DeviceRates(processor()), usual))


def test_weights_that_stay_in_a_cache_come_back_at_its_rate() -> None:
    in_memory, in_cache = seconds(GEMM), seconds(GEMM, bytes=4 << 20)
    assert in_memory > 2 * in_cache
    assert seconds(GEMM, bytes=1 << 28) == pytest.approx(in_memory, rel=0.01)


def test_a_small_step_is_all_dispatch() -> None:
    tiny = KernelCall("cpu_gemm", "fp32", dims={"m": 1, "n": 8, "k": 8})
    floor = MODELS["cpu_gemm"].constants["floor_us"].usual * 1e-6
    assert seconds(tiny) == pytest.approx(floor, rel=0.02)


def test_a_call_costs_more_where_its_code_has_gone_from_the_caches() -> None:
    call = KernelCall("cpu_elementwise", "fp32", dims={"m": 1, "n": 64, "bytes": 512})
    warm, near, far = (seconds(call, between=size) for size in (0, 4 << 20, 1 << 28))
    constants = MODELS["cpu_elementwise"].constants
    assert near - warm == pytest.approx(constants["near_us"].usual * 1e-6, rel=0.05)
    assert far - near == pytest.approx(constants["far_us"].usual * 1e-6, rel=0.05)


def test_distances_follow_the_order_of_calls() -> None:
    """A second rotation comes right behind the first; norms have the products of half a layer between them."""
    spec, _ = open_model("smollm2-135m")
    formats = choose_formats(spec, "fp32", engine="torch")
    step = Step.decode(1, 128)
    graph = StepGraphs(spec, formats).rank(step, Plan())
    calls = calls_by_op(kernels(graph), CallRules(step, DeviceRates(processor())), "eager", 0)
    between = {
        name: [c.call.dims["between"] for c in calls if c.call.kernel == name] for name in ("rope", "add_rmsnorm")
    }
    assert between["rope"][1] == 0
    assert between["rope"][0] > 4 * 3 * 576 * 1536
    assert 4 * 576 * 576 < between["add_rmsnorm"][1] < between["rope"][0]


def test_fewer_threads_are_slower_but_not_in_proportion() -> None:
    one, four = seconds(GEMM, m=512, threads=1), seconds(GEMM, m=512, threads=4)
    assert 2.5 * four < one < 4 * four
    assert seconds(GEMM, m=512) == pytest.approx(four)


def test_small_tensors_run_on_one_thread() -> None:
    """Bytes per second double by more than two as a tensor outgrows the grain."""

    def rate(elements: int) -> float:
        call = KernelCall("cpu_elementwise", "fp32", dims={"m": 1, "n": elements, "bytes": 4 * elements})
        return 4 * elements / (seconds(call) - 10e-6)

    assert rate(4 * GRAIN) > 2 * rate(GRAIN // 2)


def test_heads_that_share_a_key_head_are_rows_that_attend_at_once() -> None:
    """Of one token; the rows of a prompt are its tokens."""
    dims = {"batch": 8, "heads": 24, "kv_heads": 24, "head_dim": 64, "seq_q": 1, "seq_kv": 512}
    model, machine = MODELS["cpu_attention"], DeviceRates(processor())

    def rows(**changes: float) -> float:
        call = KernelCall("cpu_attention", "bf16", dims={**dims, **changes})
        return float(2 ** model.coordinates(call, machine)["rows"])

    assert rows() == 1
    assert rows(kv_heads=6) == 4
    assert rows(kv_heads=6, seq_q=128) == pytest.approx(128)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("cpu_")])
def test_more_work_never_takes_less_time(name: str) -> None:
    dims = {
        "m": 8, "n": 256, "k": 256, "experts": 8, "batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 64, "seq_q": 4,
        "seq_kv": 512, "bytes": 1 << 20,
    }  # fmt: skip
    call = KernelCall(name, "fp32", dims={key: dims[key] for key in (*MODELS[name].dims, "bytes")})
    for key in MODELS[name].dims:
        assert seconds(call, **{key: 2 * dims[key]}) >= seconds(call) * (1 - 1e-9), key


@given(st.integers(1, 40000))
def test_pages_of_rows_are_those_that_rows_touch(size: int) -> None:
    rows = PAGE  # after so many the pattern repeats
    touched = sum((i * size + size - 1) // PAGE - i * size // PAGE + 1 for i in range(rows))
    assert pages_of_row(size) == pytest.approx(touched / rows)


def test_rows_of_whole_pages_are_quicker_than_slightly_shorter_ones() -> None:
    whole, broken = (seconds(GEMM, k=k) / k for k in (1024, 1040))
    assert whole < broken


def test_constants_are_found_again() -> None:
    rng = np.random.default_rng(0)
    model, machine = MODELS["cpu_gemm"], DeviceRates(processor())
    true = {
        "floor_us": 9.0, "near_us": 10.0, "far_us": 20.0, "matrix": 0.6, "half_rows": 5.0, "memory": 0.35,
        "cached": 0.3, "overlap": 2.0, "serial": 0.05, "page_ns": 8.0,
    }  # fmt: skip
    count = 200
    dims = {
        "m": 2.0 ** rng.integers(0, 11, count), "n": 2.0 ** rng.integers(6, 14, count),
        "k": 64.0 * rng.integers(1, 128, count), "bytes": 2.0 ** rng.integers(18, 30, count),
    }  # fmt: skip
    key = Key("cpu_gemm", "made-up-4c", "fp32", "", "torch 2.13.0", "linear")
    call = KernelCall("cpu_gemm", "fp32", dims=dims)
    group = Group(key=key, rows=np.arange(count), dims=dims, seconds=np.asarray(model.formula(call, machine, true)))
    found = fit_constants(model, group, machine)
    for name in ("floor_us", "matrix", "memory"):
        assert found[name] == pytest.approx(true[name], rel=0.15), name


def price(model: str, engine: str, step: Step, weights: str = "fp32") -> dict[str, float]:
    """Seconds by class of kernels, without calibrations."""
    spec, _ = open_model(model)
    formats = choose_formats(spec, weights, engine=engine)
    pricer = StepPricer.of(
        spec, processor(), formats, engine_overheads(engine), Plan(), store=Store(entries=(), levels={}, engines={})
    )
    time = pricer.price(step)
    assert time.expected_s >= time.ideal_s
    return {part.kernel_class: float(part.time.expected) for part in time.by_class}


def test_a_model_is_priced_from_kernels_of_a_processor() -> None:
    parts = price("smollm2-135m", "torch", Step.decode(1, 128))
    assert set(parts) - {"composition"} == {"cpu_gemm", "cpu_attention", "cpu_elementwise"}
    assert parts["cpu_gemm"] > 0.5 * sum(parts.values())


def test_compiled_functions_are_kernels_of_their_own() -> None:
    """Norms, gates and rotations are; products and attention stay what they are."""
    spec, _ = open_model("smollm2-135m")
    step = Step.prefill(1, 512)
    graph = StepGraphs(spec, choose_formats(spec, "fp32", engine="torch")).rank(step, Plan())
    rules = CallRules(step, DeviceRates(processor()))
    eager, compiled = (
        {one.call.kernel for one in calls_by_op(kernels(graph), rules, form, 0)} for form in ("eager", "compiled")
    )
    functions = {"add_rmsnorm", "rope", "swiglu"}
    assert eager - compiled == functions
    assert compiled - eager == {f"compiled {name}" for name in functions}


def test_narrow_weights_read_less() -> None:
    wide, narrow = (price("smollm2-135m", "torch", Step.decode(1, 128), dtype) for dtype in ("fp32", "bf16"))
    assert narrow["cpu_gemm"] < 0.7 * wide["cpu_gemm"]


def test_experts_and_states_have_classes_of_their_own() -> None:
    assert "cpu_experts" in price("qwen3-30b-a3b", "torch", Step.decode(1, 128))
    assert "cpu_scan" in price("mamba-2.8b", "torch", Step.prefill(1, 64))


def test_other_engines_on_a_processor_are_priced_as_before() -> None:
    parts = price("smollm2-135m", "llamacpp", Step.decode(1, 128))
    assert not [name for name in parts if name.startswith("cpu_")]


def test_device_files_give_streams() -> None:
    streams = DeviceRates(processor()).streams
    assert [stream.size for stream in streams] == [1 << 20, 16 << 20, 0]
    assert [stream.rate for stream in streams] == [4e11, 2e11, 5e10]
