"""Engines without kernel tables: prompts switch kernels by rows, and experts run as products of the engine."""

from __future__ import annotations

import numpy as np
import pytest

from archsim.engines.overhead import overheads_of
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model
from archsim.timing.calibration import default_store, experts_like
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.gemm import Gemm
from archsim.timing.classes.model import default_constants
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import Timer, timer

SWITCHED = {**default_constants(Gemm()).constants, "matrix": 0.25, "widened": 0.45, "widen_rows": 64, "pass_rows": 512}


def products(m: object, device: str = "rtx-3090") -> np.ndarray:
    """Seconds of a 4-bit product of m rows."""
    machine = DeviceRates(load_hardware(device)).accumulating("fp16")
    call = KernelCall("gemm", "w8a8_sq", dims={"m": m, "n": 14336, "k": 4096, "weight_bytes": 0.57})
    return Gemm().formula(call, machine, SWITCHED)


def test_more_rows_never_take_less_time() -> None:
    """Not at the switch to 16-bit products either."""
    times = products(np.arange(1, 2000))
    assert (np.diff(times) >= -1e-12).all()


@pytest.mark.parametrize("device", ["rtx-3090", "rtx-5000-ada", "h100-pcie", "t4"])
def test_a_row_takes_no_longer_after_the_switch_than_at_it(device: str) -> None:
    """An engine switches to another kernel where it gains by it: more requests at a time answer no fewer a second."""
    rows = np.arange(1, 129)
    each = products(rows, device) / rows
    assert (np.diff(each) <= each[1:] * 1e-12).all()


@pytest.mark.parametrize("device", ["rtx-3090", "rtx-4090", "a100"])
def test_long_prompts_run_at_the_16_bit_peak(device: str) -> None:
    """Beyond the switch the rate follows the fp16 peak of the engine's accumulator, not the int8 one."""
    machine = DeviceRates(load_hardware(device)).accumulating("fp16")
    flops = 2 * 2**17 * 14336 * 4096
    share = flops / (products(2**17, device) * machine.matrix_flops("fp16"))
    assert 0.25 < share <= 0.45


def test_arrays_and_numbers_agree() -> None:
    """On both sides of the switch."""
    rows = [1, 8, 64, 65, 512, 513, 4096]
    assert products(np.array(rows)).tolist() == pytest.approx([products(m) for m in rows])


def test_experts_are_products_of_the_engine() -> None:
    """Their constants are those of its products, with a launch for each matrix."""
    found = experts_like({"memory": 0.9, "unpack": 11.0, "floor_us": 4.0, "pass_rows": 512})
    assert (found["memory"], found["unpack"], found["floor_us"], found["rereads"]) == (0.9, 11.0, 12.0, 1.0)
    entries = {(e.engine, e.vendor) for e in default_store().by_op["moe"] if not e.device}
    assert {("llamacpp", "NVIDIA"), ("llamacpp", "Apple"), ("llamacpp", "AMD"), ("autoawq", "NVIDIA")} <= entries


@pytest.mark.parametrize(
    ("model", "device", "low", "high"),
    [
        ("gpt-oss-20b", "rtx-4090", 170, 250)  # what people report of batch 1
    ],
)
def test_a_single_request_of_a_mixture_of_experts(model: str, device: str, low: float, high: float) -> None:
    """Batch 1 reads the weights of few experts at the rate of matrix-vector products."""
    found = estimate(load_model(model), load_hardware(device), engine="llamacpp", input_len=128, output_len=128).decode
    assert found is not None and low <= 1 / float(found.expected_s) <= high


def gpt_fast() -> Timer:
    """gpt-fast's timer on an A100."""
    document = overheads_of("gptfast", measured=default_store().engines)
    return timer(load_hardware("a100"), document.kernels, version="", own=document.name)


@pytest.mark.parametrize(("dtype", "own"), [("int8_wo", True), ("int4_wo", True), ("bf16", False)])
def test_an_engine_takes_tables_but_for_what_its_own_runs_say(dtype: str, own: bool) -> None:
    """gpt-fast's weight-only products are its own, its 16-bit ones those of the engine whose tables stand for it."""
    fit, *_ = gpt_fast().choose(MODELS["gemm"], KernelCall("gemm", dtype))
    fitted = [e.constants for e in default_store().by_op["gemm"] if e.engine == "gptfast" and e.dtype == dtype]
    assert bool(fitted) == own
    assert (fit.grade == "device") == own
    assert not own or fit.fitted.constants["memory"] == fitted[0]["memory"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("model", "weights", "devices", "rate"),
    [
        # https://github.com/pytorch-labs/gpt-fast README, September 2024: A100 80GB, batch 1
        ("llama2-7b", "int8", 1, 155.58), ("llama2-7b", "int4_g32", 1, 196.8), ("llama2-70b", "int8", 1, 19.13),
        ("llama2-70b", "int4_g32", 1, 25.25),
    ],
)  # fmt: skip
def test_weight_only_decoding_of_gpt_fast(model: str, weights: str, devices: int, rate: float) -> None:
    """Within an eighth; with Marlin's constants they came out 17 to 43 % too fast."""
    found = estimate(load_model(model), load_hardware("a100"), devices=devices, weights=weights, engine="gptfast",
                     input_len=5, output_len=200).decode  # fmt: skip
    assert found is not None and 1 / float(found.expected_s) == pytest.approx(rate, rel=0.125)


def prompts(device: str, engine: str, weights: str, model: str = "llama3-8b", tokens: int = 512) -> tuple[float, ...]:
    """Tokens of a prompt per second: expected, and the ends of the interval."""
    found = estimate(load_model(model), load_hardware(device), weights=weights, engine=engine, input_len=tokens,
                     output_len=16).prefill  # fmt: skip
    assert found is not None
    return tuple(tokens / float(time) for time in (found.expected_s, found.high_s, found.low_s))


@pytest.mark.parametrize(("device", "faster"), [("rtx-3090", True), ("p40", True), ("v100", False), ("mi210", False)])
def test_prompts_in_int8_since_b3216(device: str, faster: bool) -> None:
    """On NVIDIA devices with int8 products, tensor cores or DP4A, quantised weights are no longer widened; 16-bit files
    and single tokens are as they were.
    """
    for tokens, weights, other in ((512, "gguf_q4_k_m", faster), (512, "fp16", False), (1, "gguf_q4_k_m", False)):
        old, new = (prompts(device, f"llamacpp@{build}", weights, tokens=tokens)[0] for build in ("b3215", "b3216"))
        assert (new > 1.15 * old) if other else new == old


def test_requests_lose_nothing_by_company() -> None:
    """From sums of vectors to tiles, a token of a batch takes no longer than one of a smaller batch."""
    constants = {name: value for name, value in SWITCHED.items() if name != "widen_rows"} | {"vector_rows": 8.0}
    machine = DeviceRates(load_hardware("rtx-3090")).accumulating("fp16")
    rows = np.arange(1, 2000)
    call = KernelCall("gemm", "w8a8_sq", dims={"m": rows, "n": 14336, "k": 4096, "weight_bytes": 0.57})
    times = Gemm().formula(call, machine, constants)
    assert (np.diff(times) >= -1e-12).all()
    assert (np.diff((times / rows)[:128]) <= 1e-12).all()
