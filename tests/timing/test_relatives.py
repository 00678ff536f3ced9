"""What a fit says of another device of the same architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware
from archsim.timing.calibration import FitQuery, default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import nearest_entry, timer

SHAPES = [
    KernelCall("gemm", "bf16", dims={"m": 4096, "n": 8192, "k": 8192}),
    KernelCall("gemm", "fp8_block", dims={"m": 16, "n": 4096, "k": 7168}),
    KernelCall("attn_decode", "bf16", "fp8", "",
               {"batch": 32, "seq_q": 1, "seq_kv": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128}),
    KernelCall("attn_prefill", "bf16", "bf16", "",
               {"batch": 1, "seq_q": 4096, "seq_kv": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}),
    KernelCall("moe", "fp8_block",
               dims={"m": 64, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "tp": 8, "ep": 1}),
    KernelCall("mla_decode", "bf16", "fp8", "", {"batch": 16, "seq_kv": 4096, "heads": 128}),
]  # fmt: skip


@pytest.fixture
def twin(tmp_path: Path) -> Hardware:
    """An H100 by another name, with nothing else changed."""
    path = tmp_path / "twin.yaml"
    path.write_text("schema: archsim.hardware/1\nid: twin\nvariant_of: h100-sxm\nname: Twin of an H100\naliases: []\n")
    return load_hardware(str(path))


@pytest.mark.parametrize("call", SHAPES, ids=lambda call: f"{call.kernel_class}-{call.dtype}")
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_twin_of_a_fitted_device_has_its_times(twin: Hardware, engine: str, call: KernelCall) -> None:
    """The interval alone is wider: nobody measured the twin."""
    own, other = timer(load_hardware("h100-sxm"), engine).time(call), timer(twin, engine).time(call)
    assert other.expected == pytest.approx(own.expected, rel=1e-9)
    assert other.evidence == "transferred"
    assert other.high / other.low >= own.high / own.low * (1 - 1e-9)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("h200-sxm", "h100-sxm"), ("h20", "h100-sxm"), ("gh200-96gb", "h100-sxm"), ("h100-nvl", "h100-sxm"),
        ("b300-sxm", "b200-sxm"), ("gb200", "b200-sxm"), ("gb300", "b200-sxm"), ("a30", "a100-sxm-80gb"),
        ("rtx-4090", "l40s"), ("rtx-3090", "l40s"), ("rtx-pro-6000", "l40s"),
    ],
)  # fmt: skip
def test_devices_borrow_from_their_own_architecture_and_class(name: str, source: str) -> None:
    """A workstation's Blackwell runs other kernels than a data centre's; Blackwell Ultra runs the same."""
    clock = timer(load_hardware(name), "vllm")
    entry = nearest_entry(default_store(), FitQuery(clock.device, "vllm", "", "gemm", "bf16", "", ""))
    assert entry is not None and entry.device == source


def test_units_that_multiply_slowly_reach_more_of_their_peak() -> None:
    """An H20 multiplies at 15 % of an H100's rate: 32768 x 4096 x 12288 in DeepGEMM took 11.78 ms, 95 % of its peak
    (alibaba/InferSim at f2293da); the H100's own share would be 16.3.
    """
    call = KernelCall("gemm", "fp8_block", "", "deepgemm", {"m": 32768, "n": 4096, "k": 12288})
    assert timer(load_hardware("h20"), "sglang").time(call).expected == pytest.approx(11.78e-3, rel=0.1)
