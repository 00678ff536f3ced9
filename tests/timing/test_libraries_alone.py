"""Rows of a library of kernels hold its kernel alone, those of an engine what the engine launches."""

from __future__ import annotations

import numpy as np
import pytest

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration.calibrate import prepare_rows
from archsim.timing.calibration import Entry, FitQuery
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.kernel_timer import as_timed, middle_constants, timer

DIMS = {"m": 16384.0, "n": 576.0, "k": 7168.0}


@pytest.mark.parametrize(("engine", "quantises"), [("DeepGEMM", 0.0), ("sglang 0.5.14", 1.0), ("", 1.0)])
def test_a_library_is_given_its_operands_as_it_reads_them(engine: str, quantises: float) -> None:
    """Fits and estimates agree on it."""
    key = Key("gemm", "H20", "fp8_block", "", engine, "deepgemm")
    group = Group(key=key, rows=np.arange(1), dims={n: np.array([x]) for n, x in DIMS.items()}, seconds=np.ones(1))
    assert prepare_rows(MODELS["gemm"], group).dims["quantise"].tolist() == [quantises]


def test_products_of_a_library_take_less_by_the_pass() -> None:
    """DeepGEMM's rows of an H20 take less than the product at its peak and that pass at memory's rate."""
    call = KernelCall("gemm", "fp8_block", kernel="deepgemm", dims=DIMS)
    device = archsim.load_hardware("h20")
    alone, whole = (timer(device, engine).time(call).expected for engine in ("DeepGEMM", "sglang"))
    assert whole - alone > DIMS["m"] * DIMS["k"] * 3 / device.bandwidth


def test_what_a_graph_or_a_row_states_stands() -> None:
    """Only rows with a kernel's name, of classes with such a pass, that do not say it themselves, are changed."""
    row = KernelCall("gemm", "fp8_block", kernel="deepgemm", dims=DIMS)
    unnamed, stated = row._replace(kernel=""), row._replace(dims={**DIMS, "quantise": 1.0})
    assert all(as_timed(MODELS["gemm"], call, "deepgemm") is call for call in (unnamed, stated))
    norm = KernelCall("norm", kernel="deepgemm", dims={"m": 1.0, "n": 1.0})
    assert as_timed(MODELS["norm"], norm, "deepgemm") is norm


def test_usual_constants_are_those_over_a_cache_in_the_same_format() -> None:
    """Where there are any; else all count."""
    traits = timer(archsim.load_hardware("l40s"), "vllm").device
    entries = [
        Entry("h100-sxm", engine, "", "attn_prefill", "bf16", {"matrix": share}, kv_dtype=kv, vendor=traits.vendor)
        for engine, kv, share in (("vllm", "fp8", 0.2), ("sglang", "bf16", 0.6), ("trtllm", "", 0.8))
    ]

    def matrix(kv: str, known: list[Entry]) -> float:
        return middle_constants(known, FitQuery(traits, "vllm", "", "attn_prefill", "bf16", kv, ""))["matrix"]

    assert matrix("fp8", entries) == 0.2
    assert matrix("bf16", entries) == matrix("fp16", entries) == matrix("", entries) == pytest.approx(0.7)
    assert matrix("fp8", entries[1:]) == pytest.approx(0.7)
