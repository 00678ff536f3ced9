"""What a fit says of another device of the same architecture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from archsim.base.units import parse_quantity
from archsim.spec import catalog
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware
from archsim.timing.calibration import FitQuery, default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import nearest_entry, timer
from archsim.timing.relatives import beside_other_work, on_relative, related

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


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "batch", "seq_kv", "cache", "us"),
    [(16, 1, 256, 128, 8192, "bf16", 371.54), (32, 8, 128, 64, 8192, "fp8", 540.21)],
)
def test_units_that_are_fed_faster_reach_less_of_the_bandwidth(
    heads: int, kv_heads: int, head_dim: int, batch: int, seq_kv: int, cache: str, us: float
) -> None:
    """An H20's memory gives each of its units twice what an H100's gets, and its slow products show what padding the
    H100's memory hid: decodes of FlashInfer on an H20 (alibaba/InferSim at f2293da).
    """
    dims = {"batch": batch, "seq_kv": seq_kv, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    call = KernelCall("attn_decode", "bf16", cache, dims=dims)
    assert timer(load_hardware("h20"), "sglang").time(call).expected == pytest.approx(us * 1e-6, rel=0.2)


@pytest.mark.parametrize(("batch", "seq_kv", "us"), [(256, 8192, 4739.0), (128, 32768, 10753.0), (64, 1024, 187.0)])
def test_products_that_memory_hid_bound_a_relative_that_multiplies_slowly(batch: int, seq_kv: int, us: float) -> None:
    """Latent attention on an H20, whose products take five times as long as its bytes: an H100's fits, where memory
    decides, say of neither the share nor the correction (FlashMLA, alibaba/InferSim at f2293da).
    """
    dims = {"batch": batch, "seq_kv": seq_kv, "heads": 128}
    time = timer(load_hardware("h20"), "sglang").time(KernelCall("mla_decode", "bf16", "bf16", dims=dims))
    assert time.expected == pytest.approx(us * 1e-6, rel=0.2)
    assert time.expected > 1.1 * time.ideal


def test_other_work_takes_as_long_beside_a_faster_peak() -> None:
    """Half of the time beside products that are twice as fast leaves a third; a cache's share stays."""
    assert beside_other_work(0.5, 2.0) == pytest.approx(1 / 3)
    assert beside_other_work(0.5, 1.0) == 0.5
    assert beside_other_work(1.0, 3.0) == 1.0
    assert beside_other_work(1.7, 3.0) == 1.7


def test_a_relative_with_more_bandwidth_reads_weights_faster_but_not_in_proportion() -> None:
    """An H200 has 1.43 times the H100's bandwidth for the same units."""
    call = KernelCall("gemm", "bf16", dims={"m": 8, "n": 28672, "k": 8192})
    one, other = (timer(load_hardware(name), "vllm").time(call).expected for name in ("h100-sxm", "h200-sxm"))
    assert 1.1 < one / other < 4.8 / 3.35


def with_peak(hardware: Hardware, by: float) -> Hardware:
    """The device with the peaks of its matrix units multiplied; all else, its name too, as it is."""
    peaks = {
        dtype: entry.model_copy(update={"matrix": f"{float(parse_quantity(entry.matrix, 'FLOP/s')) * by:.12g} FLOP/s"})
        if entry.matrix
        else entry
        for dtype, entry in hardware.compute.peak.items()
    }
    copy = hardware.model_copy(update={"compute": hardware.compute.model_copy(update={"peak": peaks})})
    for derived in set(copy.__dict__) - set(Hardware.all_fields):
        del copy.__dict__[derived]
    return copy


def relatives() -> Iterator[Hardware]:
    """Devices of the catalog whose architecture was measured on another device."""
    entries = [entry for entry in default_store().by_op["gemm"] if entry.device]
    measured, vendors = {entry.device for entry in entries}, {entry.vendor for entry in entries}
    for name, path in sorted(catalog.files("hw").items()):
        if path.parent.name == "devices" and name not in measured:
            hardware = load_hardware(name)
            if hardware.vendor in vendors and any(related(e, timer(hardware, "vllm").device) for e in entries):
                yield hardware


SIZES = np.unique(np.round(2 ** np.arange(0, 14.1, 0.5)))
GROWING = [
    *(KernelCall("gemm", dtype, dims={"m": SIZES, "n": n, "k": k})
      for dtype in ("bf16", "fp8", "fp8_block", "int4") for n, k in ((2560, 1280), (7168, 16384))),
    *(KernelCall("attn_decode", "bf16", cache, "",
                 {"batch": batch, "seq_kv": SIZES, "heads": heads, "kv_heads": kv_heads, "head_dim": width})
      for cache in ("bf16", "fp8")
      for batch, heads, kv_heads, width in ((1, 4, 4, 80), (16, 64, 8, 128), (128, 48, 1, 128), (256, 64, 2, 128))),
    KernelCall("attn_prefill", "bf16", "bf16", "",
               {"batch": 1, "seq_q": SIZES, "seq_kv": SIZES, "heads": 32, "kv_heads": 8, "head_dim": 128}),
    KernelCall("moe", "fp8_block",
               dims={"m": SIZES, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "tp": 8, "ep": 1}),
    *(KernelCall("mla_decode", "bf16", "bf16", "", {"batch": batch, "seq_kv": SIZES, "heads": 128})
      for batch in (4, 128)),
]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("part", range(8))
def test_a_relative_with_a_higher_peak_is_never_slower(part: int, engine: str) -> None:
    """From a fifth of its peak, where products bound what memory bounds on the measured device, to four times.

    Steps of models do not take longer by 0.1 % (`benchmarks/accuracy/monotone.py`); single kernels may by 3 %, of sizes
    between the nodes at which a correction is read.
    """
    scales = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.05, 1.2, 1.5, 1.65, 1.75, 1.9, 2.0, 2.2, 3.0, 4.0)
    found = list(relatives())
    assert {"h20", "rtx-4090", "b300-sxm"} <= {hardware.id for hardware in found}
    for hardware in found[part::8]:
        clocks = [timer(with_peak(hardware, by), engine) for by in scales]
        for call in GROWING:
            times = [clock.time(call).expected for clock in clocks]
            for by, (slow, fast) in zip(scales[1:], pairwise(times), strict=True):
                longer = float(np.max(fast / slow)) - 1
                assert longer <= 0.03, (hardware.id, call.kernel_class, call.dtype, call.kv_dtype, by, longer)


@pytest.mark.parametrize("source", ["h100-sxm", "l40s", "a100-sxm-80gb"])
@pytest.mark.parametrize("op", ["elementwise", "moe", "attn_prefill", "attn_decode", "gemm"])
def test_a_cache_takes_as_long_beside_quicker_memory(source: str, op: str) -> None:
    """A relative whose memory gives units twice as much reads its cache no slower, and at most by what memory gained
    where the cache was hardly faster.
    """
    known = default_store()
    fits = [each for each in known.by_op[op] if each.device == source and not each.kernel]
    device = timer(load_hardware(source)).device
    quicker = device._replace(
        id="relative", per_cycle=tuple((n, 2 * x if n == "memory" else x) for n, x in device.per_cycle)
    )
    for fit in fits:
        query = FitQuery(quicker, fit.engine, fit.version, op, fit.dtype, fit.kv_dtype, "")
        found = on_relative(fit.constants, fit, query)
        for name in {"warm", "cached", "faster"} & set(fit.constants):
            share = next(each for each in ("memory", "stream") if each in fit.constants)
            gained = 2 * found[share] * found[name] / (fit.constants[share] * fit.constants[name])
            assert 1 <= found[name] <= fit.constants[name]
            assert 1 - 1e-9 <= gained < 2 + 1e-9
