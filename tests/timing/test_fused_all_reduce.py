"""vLLM's all-reduces up to a size run in TensorRT-LLM's kernel with the norm behind them."""

from __future__ import annotations

import pytest

from archsim.spec.load import load_hardware
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import Timer, timer
from archsim.timing.step_pricer import engine_overheads

MIB = 2**20


def timer_of(engine: str, device: str = "b200") -> Timer:
    overheads = engine_overheads(engine)
    return timer(
        load_hardware(device), overheads.kernels, version=overheads.version, own=overheads.name,
        all_reduce=overheads.all_reduce,
    )  # fmt: skip


def seconds(engine: str, size: float, ranks: int = 8, device: str = "b200") -> float:
    call = KernelCall("engine_all_reduce", dims={"n_gpus": ranks, "bytes": size, "stride": 1})
    return float(timer_of(engine, device).once(call).expected)


def test_small_sums_take_the_fused_kernel_and_large_ones_the_engines_own() -> None:
    """On eight B200s up to 1 MiB: 256 KiB take 8 us in TensorRT-LLM's kernel and 22 in vLLM's own."""
    assert seconds("vllm", MIB / 4) == seconds("trtllm", MIB / 4) < 0.5 * seconds("vllm@0.15", MIB / 4)
    assert seconds("vllm", 2 * MIB) == seconds("vllm@0.15", 2 * MIB)
    assert seconds("vllm", 2 * MIB, ranks=4) == seconds("trtllm", 2 * MIB, ranks=4)


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "l40s", "mi300x", "rtx-pro-6000"])
def test_devices_without_the_kernel_keep_their_own(device: str) -> None:
    assert seconds("vllm", MIB / 4, 4, device) == seconds("vllm@0.15", MIB / 4, 4, device)


@pytest.mark.parametrize("device", ["h100", "h20", "b200", "b300"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_larger_sum_never_takes_less(device: str, ranks: int) -> None:
    """512 KiB over eight H100s took 17.6 us in TensorRT-LLM's kernel, and two bytes more 11.9 in vLLM's own."""
    sizes = sorted(size + more for size in (MIB * 2**n for n in range(-4, 8)) for more in (0, 2))
    times = [seconds("vllm", size, ranks, device) for size in sizes]
    assert times == sorted(times)
