"""Kernels without a contraction: traffic, the cache, order in size and bandwidth."""

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
from archsim.timing.classes.elementwise import Elementwise
from archsim.timing.classes.model import bounded_kernel_seconds, default_constants
from archsim.timing.device import DeviceRates

OPS = ("norm", "act", "rope", "add")
DEVICES = ("h100-sxm", "a100-sxm", "l40s", "mi300x", "tpu-v5e", "apple-m3-max")
FAST = settings(max_examples=40, deadline=None)
ROWS, WIDTHS = st.integers(1, 2**17), st.sampled_from([640, 2560, 8192, 57344])


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def time(call: KernelCall, at: DeviceRates) -> float:
    """Seconds with the usual constants."""
    return float(
        bounded_kernel_seconds(MODELS[call.kernel_class], call, at, default_constants(MODELS[call.kernel_class]))
    )


def rows(op: str, m: int, n: int) -> KernelCall:
    """m tokens of n elements."""
    return KernelCall(op, dims={"m": m, "n": n})


@pytest.mark.parametrize(("op", "elements"), [("norm", 2), ("act", 1.5), ("rope", 2), ("add", 3)])
def test_traffic_of_each_class(op: str, elements: float) -> None:
    """Elements read and written for one of a row, two bytes each."""
    model = MODELS[op]
    assert isinstance(model, Elementwise)
    assert sum(model.moved(rows(op, 3, 100))) == 3 * 100 * elements * 2


def test_a_class_is_the_fused_pass_of_its_bytes() -> None:
    """A norm costs what any pass with its reads and writes costs."""
    whole = KernelCall("elementwise", dims={"read_bytes": 64 * 4096 * 2, "write_bytes": 64 * 4096 * 2})
    assert time(rows("norm", 64, 4096), machine("h100-sxm")) == time(whole, machine("h100-sxm"))


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), ROWS, WIDTHS, st.floats(1, 4))
def test_more_tokens_take_no_less(op: str, device: str, m: int, n: int, factor: float) -> None:
    """Also where tensors outgrow the cache."""
    at = machine(device)
    assert time(rows(op, int(m * factor), n), at) >= time(rows(op, m, n), at) * (1 - 1e-9)


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), ROWS, WIDTHS, st.floats(0.1, 1))
def test_less_bandwidth_takes_no_less(op: str, device: str, m: int, n: int, factor: float) -> None:
    """The cache is held to scale with memory."""
    at = machine(device)
    slow = changed(at, bandwidth=at.bandwidth * factor)
    assert time(rows(op, m, n), slow) >= time(rows(op, m, n), at) * (1 - 1e-9)


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), ROWS, WIDTHS)
def test_never_below_the_memory_bound(op: str, device: str, m: int, n: int) -> None:
    """Tensors beyond the cache go through memory at its rate, in the formula itself."""
    model, at = MODELS[op], machine(device)
    bound = model.bound(rows(op, m, n), at)[1]
    assert time(rows(op, m, n), at) >= bound
    if m * n * 2 > 4 * at.cache_bytes:
        assert bound > 0


def test_what_the_cache_holds_is_faster_by_the_byte() -> None:
    """A fifth of the cache against ten times its size, without the floor."""
    model, at = MODELS["add"], machine("h100-sxm")
    floor = default_constants(model).constants["floor_us"] * 1e-6
    small, large = at.cache_bytes // 5, at.cache_bytes * 10
    rates = []
    for size in (small, large):
        call = KernelCall("elementwise", dims={"read_bytes": size, "write_bytes": 0})
        rates.append(size / (time(call, at) - floor))
    assert rates[0] > 1.3 * rates[1]
    assert rates[1] < at.bandwidth


def test_without_a_cache_there_is_one_rate() -> None:
    """A device that lists none reads everything from memory."""
    at = changed(machine("h100-sxm"), cache_bytes=0)
    floor = default_constants(MODELS["elementwise"]).constants["floor_us"] * 1e-6
    calls = [KernelCall("elementwise", dims={"read_bytes": size, "write_bytes": 0}) for size in (2**20, 2**30)]
    one, other = (call.dims["read_bytes"] / (time(call, at) - floor) for call in calls)
    assert one == pytest.approx(other)


@pytest.mark.parametrize("op", OPS)
def test_a_table_costs_what_its_rows_cost(op: str) -> None:
    """Arrays against one call at a time."""
    m, n = np.array([1, 100, 5000]), np.array([2560, 8192, 57344])
    found = bounded_kernel_seconds(MODELS[op], rows(op, m, n), machine("a100-sxm"), default_constants(MODELS[op]))  # type: ignore[arg-type]
    single = [time(rows(op, *pair), machine("a100-sxm")) for pair in zip(m.tolist(), n.tolist(), strict=True)]
    assert found.tolist() == pytest.approx(single)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", OPS)
def test_a_fit_to_rounded_times_rises(op: str) -> None:
    """Times in whole microseconds, as public profiles state them: within 4 % on widths unseen, and never falling."""
    model, at = MODELS[op], machine("a100-sxm")
    m, n = (part.ravel() for part in np.meshgrid(np.arange(32, 4096, 192.0), [2560.0, 4096, 5120, 8192]))
    dims = {"m": m, "n": n}
    truth = dict(default_constants(model).constants, floor_us=5.0, memory=0.5)
    exact = model.formula(KernelCall(op, dims=dims), at, truth)
    key = Key(op, "A100-SXM", "bf16", "", "profiler", "")
    group = Group(key=key, rows=np.arange(len(m)), dims=dims, seconds=np.round(exact * 1e6) * 1e-6)
    unseen = fitting.out_of_fold(model, group, at)
    assert fitting.errors(unseen, exact).median < 0.04
    fitted = fitting.fit(model, group, at)
    line = {"m": 2.0 ** np.arange(0, 13, 0.25), "n": np.full(52, 4096.0)}
    times = bounded_kernel_seconds(model, KernelCall(op, dims=line), at, fitted)
    assert (times / np.maximum.accumulate(times)).min() > 0.96
