"""Attention over selected entries multiplies whole tiles of heads, in whole waves of the device's units."""

from __future__ import annotations

from dataclasses import replace

import pytest

import archsim
from archsim.timing.calibration import default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import default_constants
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import timer

MODEL = MODELS["dsa_attn"]
CONSTANTS = {**default_constants(MODEL).constants, "memory": 1.0, "floor_us": 1e-3, "row_us": 1e-3}
"""Nothing but products."""


def call(rows: float, heads: float = 64) -> KernelCall:
    """So many rows of one token over a long cache."""
    dims = {"batch": rows, "seq_q": 1.0, "seq_kv": 9000.0, "heads": heads, "head_dim": 576.0, "topk": 2048.0}
    return KernelCall("dsa_attn", kv_dtype="fp8", dims=dims)


def seconds(device: str, rows: float, heads: float = 64) -> float:
    """By the formula alone."""
    return float(MODEL.formula(call(rows, heads), DeviceRates(archsim.load_hardware(device)), CONSTANTS))


@pytest.mark.parametrize(("device", "wave"), [("h100-sxm", 132), ("b200-sxm", 74), ("rtx-pro-6000", 188)])
def test_rows_are_multiplied_in_whole_waves(device: str, wave: int) -> None:
    """Two units share a row on a B200: measured, 64 rows take 44 us, 128 take 87, 256 take 161."""
    one, full, more = (seconds(device, rows) for rows in (1, wave, wave + 1))
    assert full == pytest.approx(one, rel=0.05)
    assert more == pytest.approx(2 * one, rel=0.05)


@pytest.mark.parametrize(("device", "padded"), [("h100-sxm", 64), ("b200-sxm", 128)])
def test_heads_are_padded_to_whole_tiles(device: str, padded: int) -> None:
    """Heads of one rank take as long as the tile that they are padded to, and one more head takes another tile."""
    few, whole, beyond = (seconds(device, 4096, heads) for heads in (8, padded, padded + 1))
    assert few == pytest.approx(whole, rel=0.03)
    assert beyond == pytest.approx(2 * whole, rel=0.03)


@pytest.mark.parametrize(("device", "measured_us"), [("h100-sxm", 4029.3), ("b200-sxm", 4072.4)])
def test_the_other_architecture_says_how_long_rows_take(device: str, measured_us: float) -> None:
    """Two sequences of 4,096 new tokens, by a store without the device's fits (71 % off in the median before)."""
    store = default_store()
    others = replace(store, entries=tuple(e for e in store.entries if e.device != device))
    prompts = call(2)._replace(dims={**call(2).dims, "seq_q": 4096.0, "seq_kv": 20480.0})
    found = timer(archsim.load_hardware(device), "sglang", store=others).time(prompts)
    assert found.expected * 1e6 == pytest.approx(measured_us, rel=0.25)
    assert found.high / found.low < 2.5
