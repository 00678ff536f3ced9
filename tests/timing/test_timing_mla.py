"""Latent attention: bounds, order in batch, length and bandwidth, and what a fit finds again."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import changed

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.mla import MlaDecode
from archsim.timing.classes.model import Fitted, bounded_kernel_seconds, default_constants, kernel_seconds
from archsim.timing.device import DeviceRates

DEVICES = ("h100-sxm", "a100-sxm", "l40s", "mi300x")
OPS = {"mla_prefill": "seq_q", "mla_decode": "seq_kv"}
FAST = settings(max_examples=60, deadline=None)
BATCH, LENGTH, HEADS = st.integers(1, 1024), st.integers(1, 2**17), st.integers(1, 128)
FACTOR, CACHE, WARM = st.floats(1, 4), st.sampled_from(["bf16", "fp8"]), st.sampled_from([0, 1])


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def call(op: str, batch: int, length: int, heads: int, cache_dtype: str = "bf16", warm: int = 0) -> KernelCall:
    """One call."""
    return KernelCall(op, "bf16", cache_dtype, dims={"batch": batch, OPS[op]: length, "heads": heads, "warm": warm})


def time(of: KernelCall, at: DeviceRates) -> float:
    """Seconds by the formula with the usual constants, before any bound is applied."""
    return float(kernel_seconds(MODELS[of.kernel_class], of, at, default_constants(MODELS[of.kernel_class])))


@FAST
@given(st.sampled_from(list(OPS)), st.sampled_from(DEVICES), BATCH, LENGTH, HEADS, CACHE, WARM)
def test_never_below_the_bound(
    op: str, device: str, batch: int, length: int, heads: int, cache_dtype: str, warm: int
) -> None:
    """Arithmetic at the peak and the cache once, even if every constant is at its most favourable end."""
    of, at, model = call(op, batch, length, heads, cache_dtype, warm), machine(device), MODELS[op]
    best = Fitted(constants={name: c.low if "_" in name else c.high for name, c in model.constants.items()})
    assert bounded_kernel_seconds(model, of, at, best) >= max(model.bound(of, at)) * (1 - 1e-9)
    assert time(of, at) >= model.bound(of, at)[0]


@FAST
@given(st.sampled_from(list(OPS)), st.sampled_from(DEVICES), BATCH, LENGTH, HEADS, FACTOR, WARM)
def test_more_work_takes_no_less(
    op: str, device: str, batch: int, length: int, heads: int, factor: float, warm: int
) -> None:
    """In sequences, length and heads, also where the cache outgrows the last-level cache."""
    at = machine(device)
    here = time(call(op, batch, length, heads, warm=warm), at) * (1 - 1e-9)
    assert time(call(op, int(batch * factor), length, heads, warm=warm), at) >= here
    assert time(call(op, batch, int(length * factor), heads, warm=warm), at) >= here
    assert time(call(op, batch, length, int(heads * factor), warm=warm), at) >= here


@FAST
@given(st.sampled_from(list(OPS)), st.sampled_from(DEVICES), BATCH, LENGTH, HEADS, FACTOR)
def test_more_bandwidth_takes_no_more(op: str, device: str, batch: int, length: int, heads: int, factor: float) -> None:
    """Everything else alike."""
    at, of = machine(device), call(op, batch, length, heads)
    assert time(of, changed(at, bandwidth=at.bandwidth * factor)) <= time(of, at) * (1 + 1e-9)


def test_one_cache_entry_serves_all_heads() -> None:
    """Decoding reads 576 elements a token whatever the heads; scores and sums grow with them."""
    model, at = MODELS["mla_decode"], machine("h100-sxm")
    few, many = (model.minimum_work(call("mla_decode", 4, 1000, heads), at) for heads in (1, 64))
    assert few.traffic.total == many.traffic.total == 4 * 1000 * 576 * 2
    assert many.flops == 64 * few.flops == 64 * 2 * 4 * 1000 * (576 + 512)


def test_prompts_are_counted_over_the_triangle() -> None:
    """Keys of 192 and values of 128 against every earlier token and oneself."""
    least = MODELS["mla_prefill"].minimum_work(call("mla_prefill", 2, 3, 8), machine("h100-sxm"))
    assert least.flops == 2 * 2 * 8 * (1 + 2 + 3) * (192 + 128)


def test_heads_of_one_tile_cost_the_same_products() -> None:
    """Up to 64 heads share a tile where padding is complete; the 65th opens another."""
    model, at = MlaDecode(), changed(machine("h100-sxm"), bandwidth=1e18)
    full = {**default_constants(model).constants, "padding": 1.0, "block_us": 0.0, "walk_ns": 1e-9, "floor_us": 0.0}
    times = [model.formula(call("mla_decode", 8, 2**16, heads), at, full) for heads in (1, 64, 65)]
    assert times[0] == pytest.approx(times[1])
    assert times[2] == pytest.approx(2 * times[1], rel=0.01)


def test_tables_are_warm_and_models_are_not() -> None:
    """A row that names its kernel was timed on one cache over and over: a small one is read from the device's own."""
    model, at = MlaDecode(), machine("l40s")
    row = model.prepare(KernelCall("mla_decode", kernel="any", dims={"batch": 4, "seq_kv": 8192, "heads": 8}))
    assert row.dims["warm"] == 1 and model.bound(row, at)[1] == 0
    assert model.bound(call("mla_decode", 4, 8192, 8), at)[1] > 0


@pytest.mark.parametrize("op", OPS)
def test_arrays_and_numbers_agree(op: str) -> None:
    """The same code prices one call and a table."""
    batch, length, heads = np.array([1, 7, 64]), np.array([17, 4096, 333]), np.array([1, 16, 128])
    table = time_table(op, batch, length, heads)
    for i in range(3):
        alone = time(call(op, int(batch[i]), int(length[i]), int(heads[i])), machine("a100-sxm"))
        assert table[i] == pytest.approx(alone)


def time_table(op: str, batch: np.ndarray, length: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Seconds of arrays."""
    of = KernelCall(op, "bf16", "bf16", dims={"batch": batch, OPS[op]: length, "heads": heads})
    return np.asarray(kernel_seconds(MODELS[op], of, machine("a100-sxm"), default_constants(MODELS[op])))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_a_fit_finds_unseen_heads_and_keeps_order(op: str) -> None:
    """Rows made with other constants and a ripple: unseen heads come out within 5 %, and time rises in length."""
    model, at = MODELS[op], machine("h100-sxm")
    grid = np.meshgrid(2 ** np.arange(0, 9, 2), 2 ** np.arange(4, 15), 2 ** np.arange(0, 8), indexing="ij")
    dims = dict(zip(("batch", OPS[op], "heads"), (x.ravel().astype(float) for x in grid), strict=True))
    of = KernelCall(op, "bf16", "bf16", dims=dims)
    truth = {name: np.sqrt(c.usual * c.low) if "_" in name else c.usual * 0.8 for name, c in model.constants.items()}
    truth = {name: max(value, model.constants[name].low) for name, value in truth.items()}
    ripple = 1 + 0.1 * np.sin(np.log2(dims[OPS[op]]))
    group = Group(
        key=Key(op, "", "bf16", "bf16", "", ""),
        rows=np.arange(len(ripple)),
        dims=dims,
        seconds=model.formula(of, at, truth) * ripple,
    )
    assert fitting.errors(fitting.out_of_fold(model, group, at), group.seconds).median < 0.05
    fitted = fitting.fit(model, group, at)
    length = np.geomspace(16, 16384, 80)
    line = KernelCall(op, "bf16", "bf16", dims={"batch": length * 0 + 4, OPS[op]: length, "heads": length * 0 + 8})
    times = kernel_seconds(model, line, at, fitted)
    assert (times[1:] >= times[:-1] * 0.97).all()
