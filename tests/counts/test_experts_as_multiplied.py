"""Which products experts in 4-bit floats run as: what the engine picks on the device where no flag says otherwise."""

from __future__ import annotations

import pytest

import archsim
from archsim.counts.formats import choose_formats
from archsim.spec.load import load_hardware, load_model
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import table_dtype


@pytest.mark.parametrize(
    ("engine", "device", "dtype"),
    [
        ("trtllm", "b200", "w4a8_mxfp4_mxfp8"), ("sglang", "gb200", "w4a8_mxfp4_mxfp8"),
        ("vllm", "b200", "w4a16_mxfp4"),
        ("trtllm", "h100", "w4a16_mxfp4"), ("sglang", "mi300x", "w4a16_mxfp4"), ("generic", "b200", "w4a16_mxfp4"),
    ],
)  # fmt: skip
def test_activations_are_quantised_where_the_engine_and_the_device_do(engine: str, device: str, dtype: str) -> None:
    """TensorRT-LLM and SGLang quantise them to MXFP8 on Blackwell; vLLM does not unless it is told."""
    stored = choose_formats(load_model("gpt-oss-120b"), engine=engine).weights["expert"]
    assert table_dtype(stored, DeviceRates(load_hardware(device))) == dtype


@pytest.mark.parametrize("device", ["b200", "b300-sxm", "gb200"])
def test_engines_do_not_differ_by_an_implementation_that_none_picks(device: str) -> None:
    """TensorRT-LLM's 16-bit kernel on B200 takes 2.5 times as long; at a batch of 64 it made TPOT 21 ms."""
    found = {}
    for engine in ("trtllm", "sglang", "vllm"):
        decode = archsim.estimate("gpt-oss-120b", device, tp=2, batch=64, engine=engine).decode
        assert decode is not None
        found[engine] = float(decode.expected_s)
    assert max(found.values()) < 1.4 * min(found.values())


def test_without_units_weights_are_unpacked() -> None:
    """The bound of what an H100 unpacks is that of 16 bits, whatever the engine does elsewhere."""
    hopper = load_hardware("h100")
    assert hopper.peak_flops("fp8@fp4/bf16") == hopper.peak_flops("bf16")


def test_products_with_8_bit_activations_run_at_their_rate() -> None:
    """Half of that of 4 by 4 bits on Blackwell, which bounded them before; vLLM's flag is a format of its own."""
    blackwell = load_hardware("b200")
    assert blackwell.peak_flops("fp8@fp4/bf16") == blackwell.peak_flops("fp8") != blackwell.peak_flops("fp4")
    told = choose_formats(load_model("gpt-oss-120b"), "w4a8_mxfp4_mxfp8", engine="vllm")
    own = choose_formats(load_model("gpt-oss-120b"), engine="trtllm")
    assert table_dtype(told.weights["expert"], DeviceRates(blackwell)) == "w4a8_mxfp4_mxfp8"
    assert told.weights["expert"].bits == own.weights["expert"].bits and told.weights["default"].name == "bf16"
