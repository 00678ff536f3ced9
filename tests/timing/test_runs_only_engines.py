"""Engines without kernel tables: prompts switch kernels by rows, and experts run as products of the engine."""

from __future__ import annotations

import numpy as np
import pytest

from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model
from archsim.timing.calibration import default_store, experts_like
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.gemm import Gemm
from archsim.timing.classes.model import default_constants
from archsim.timing.device import DeviceRates

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
