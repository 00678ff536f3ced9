"""A cache in FP8 is not slower than one in 16 bits where a device reads it natively and no table says otherwise."""

from __future__ import annotations

import pytest

import archsim
from archsim.spec.load import load_hardware
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import timer


@pytest.mark.parametrize("device", ["rtx-pro-6000", "rtx-5090"])
def test_narrow_caches_cost_nothing_where_kernels_are_carried_over(device: str) -> None:
    """SGLang's kernels convert on H100 and L40S: decodes of one request took longer on an RTX PRO 6000."""
    times = {}
    for kv in ("bf16", "fp8"):
        found = archsim.estimate("llama3.1-8b", device, batch=1, input_len=1024, engine="sglang", kv_cache_dtype=kv)
        assert found.decode is not None
        times[kv] = float(found.prefill.expected_s), float(found.decode.expected_s)
    assert times["fp8"][0] <= times["bf16"][0] and times["fp8"][1] <= times["bf16"][1]


def test_tables_of_the_device_are_kept() -> None:
    """SGLang's latent decode on H100 takes twice as long over FP8, as its rows say."""
    dims = {"batch": 32, "heads": 16, "seq_kv": 4096}
    calls = [KernelCall("mla_decode", kv_dtype=kv, dims=dims) for kv in ("fp8", "bf16")]
    narrow, wide = (timer(load_hardware("h100"), "sglang").once(call).expected for call in calls)
    assert narrow > 1.3 * wide
