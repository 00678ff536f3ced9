"""Matrix products: bound, order in extents and bandwidth, tiles, the cache, and what fits recover."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import changed

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.calibration.calibrate import gather_groups
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.gemm import COPIES, TILE
from archsim.timing.classes.model import Fitted, bounded_kernel_seconds, default_constants
from archsim.timing.device import DeviceRates

MODEL = MODELS["gemm"]
DEVICES = ("h100-sxm", "a100-sxm", "l40s", "mi300x", "tpu-v5e", "apple-m3-max")
FORMATS = ("bf16", "fp16", "fp8", "fp8_block", "int8_wo", "int4_wo", "w8a8_sq")
EXTENT = st.integers(1, 2**16)
FAST = settings(max_examples=60, deadline=None)
SHARES = st.floats(0.01, 1.0)


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def product(m: int, n: int, k: int, dtype: str = "bf16", warm: float = 0) -> KernelCall:
    """One call."""
    return KernelCall("gemm", dtype, dims={"m": m, "n": n, "k": k, "warm": warm})


def time(call: KernelCall, at: DeviceRates, **constants: float) -> float:
    """Seconds with the usual constants, or some others."""
    fitted = Fitted(constants={**default_constants(MODEL).constants, **constants})
    return float(bounded_kernel_seconds(MODEL, call, at, fitted))


@FAST
@given(st.sampled_from(DEVICES), st.sampled_from(FORMATS), EXTENT, EXTENT, EXTENT, st.sampled_from([0, 1]))
def test_never_below_the_bound(device: str, dtype: str, m: int, n: int, k: int, warm: int) -> None:
    """Not even with perfect constants and no floor to speak of."""
    at, call = machine(device), product(m, n, k, dtype, warm)
    assert time(call, at, matrix=1.0, memory=1.0, floor_us=0.5) >= max(MODEL.bound(call, at))


@FAST
@given(st.sampled_from(DEVICES), st.sampled_from(FORMATS), EXTENT, EXTENT, EXTENT, st.sampled_from("mnk"),
       st.floats(1, 4), SHARES, SHARES, st.sampled_from([0, 1]))  # fmt: skip
def test_larger_products_take_no_less(
    device: str, dtype: str, m: int, n: int, k: int, name: str, factor: float, pad: float, wave: float, warm: int
) -> None:
    """Along each extent, with any share of padding and of last waves."""
    at, call = machine(device), product(m, n, k, dtype, warm)
    larger = call._replace(dims={**call.dims, name: int(call.dims[name] * factor)})
    assert time(larger, at, pad=pad, wave=wave) >= time(call, at, pad=pad, wave=wave) * (1 - 1e-9)


@FAST
@given(st.sampled_from(DEVICES), EXTENT, EXTENT, EXTENT, st.floats(0.1, 1))
def test_less_bandwidth_takes_no_less(device: str, m: int, n: int, k: int, factor: float) -> None:
    """Other rates unchanged."""
    at = machine(device)
    slow = changed(at, bandwidth=at.bandwidth * factor)
    assert time(product(m, n, k), slow) >= time(product(m, n, k), at) * (1 - 1e-9)


def test_weights_of_a_model_come_from_memory() -> None:
    """Only a kernel timed by itself finds them in the cache, and only if all copies fit there."""
    at = machine("l40s")
    side = int((at.cache_bytes / COPIES / 2) ** 0.5)
    small, large = side // 2, side * 2
    assert MODEL.bound(product(1, small, small), at)[1] == small * small * 2 / at.bandwidth
    assert MODEL.bound(product(1, small, small, warm=1), at)[1] == 0
    assert time(product(1, small, small, warm=1), at) < time(product(1, small, small), at)
    assert time(product(1, large, large, warm=1), at) == time(product(1, large, large), at)


@pytest.mark.parametrize(("kernel", "warm"), [("torch.nn.functional.linear", 1.0), ("", None)])
def test_rows_of_tables_say_that_weights_may_be_warm(kernel: str, warm: float | None) -> None:
    """A call of no named kernel is one of a model."""
    call = KernelCall("gemm", kernel=kernel, dims={"m": 1, "n": 512, "k": 512})
    assert MODEL.prepare(call).dims.get("warm") == warm


def test_one_row_beyond_whole_tiles_costs_a_share_of_a_tile() -> None:
    """Compute-bound, with edges padded in full and without."""
    at, n = machine("h100-sxm"), 132 * TILE
    edges = [
        time(product(8 * TILE + 1, n, 8192), at, pad=p) - time(product(8 * TILE, n, 8192), at, pad=p) for p in (0.01, 1)
    ]
    assert edges[1] > 20 * edges[0] > 0


def test_a_long_inner_extent_is_serial() -> None:
    """A product of one tile grows with k though it has neither arithmetic nor traffic to speak of."""
    at = machine("h100-sxm")
    grown = time(product(1, 32, 65536), at, step_ns=1.0) - time(product(1, 32, 1024), at, step_ns=1.0)
    assert grown == pytest.approx(64512e-9, rel=0.1)


def test_errors_are_quoted_by_rows() -> None:
    """Four regimes, each from its first m."""
    rows = np.array([1.0, 16, 17, 128, 129, 1024, 1025])
    assert MODEL.regime(KernelCall("gemm", dims={"m": rows}), rows * 0).tolist() == [0, 0, 1, 1, 2, 2, 3]


def test_labels_of_a_library_are_one_implementation() -> None:
    """Where in a model a product stands says nothing about how it runs."""
    hardware = {"h100-sxm": archsim.load_hardware("h100-sxm")}
    parts = [synthetic(kernel=name) for name in ("cublas/mlp_up_proj", "cublas/mlp_down_proj")]
    assert [group.key.kernel for _, group in gather_groups(parts, hardware)] == [""]
    parts = [synthetic(kernel=name) for name in ("DeepGemm", "Cutlass")]
    assert [group.key.kernel for _, group in gather_groups(parts, hardware)] == ["DeepGemm", "Cutlass", ""]


TRUE = {
    "matrix": 0.7,
    "memory": 0.9,
    "overlap": 2.0,
    "pad": 0.3,
    "wave": 0.4,
    "step_ns": 0.6,
    "warm": 2.0,
    "floor_us": 4.0,
}


def synthetic(kernel: str = "library", count: int = 600, noise: float = 0.0) -> Group:
    """Products whose times follow the formula, with a ripple of up to 10 % of which it knows nothing."""
    rng = np.random.default_rng(1)
    sides = 2.0 ** rng.uniform(8, 14, (count // 15, 2)).round(1)
    site = rng.integers(0, len(sides), count)
    dims = {"m": np.round(2 ** rng.uniform(0, 13, count)), "n": np.round(sides[site, 0]), "k": np.round(sides[site, 1])}
    call = MODEL.prepare(KernelCall("gemm", kernel=kernel, dims=dims))
    times = bounded_kernel_seconds(MODEL, call, machine("h100-sxm"), Fitted(constants=TRUE))
    times = times * np.exp(noise * np.sin(np.log2(dims["m"])))
    return Group(
        key=Key("gemm", "h100-sxm", "bf16", "", "x 1", kernel), rows=np.arange(count), dims=call.dims, seconds=times
    )


def test_fit_recovers_what_made_the_times() -> None:
    """Constants that the shapes identify, and times everywhere."""
    at, group = machine("h100-sxm"), synthetic()
    found = fitting.fit_constants(MODEL, group, at)
    for name in ("matrix", "memory", "overlap", "floor_us"):
        assert found[name] == pytest.approx(TRUE[name], rel=0.05), name
    assert (
        fitting.errors(bounded_kernel_seconds(MODEL, group.call, at, Fitted(constants=found)), group.seconds).p90 < 0.02
    )


@pytest.mark.slow
def test_surface_learns_a_ripple_and_keeps_the_order_in_m() -> None:
    """Out of fold it halves the formula's error; along nodes of m time does not fall."""
    at, group = machine("h100-sxm"), synthetic(count=1500, noise=0.1)
    options = fitting.Options(**MODEL.options)
    plain, full = (
        fitting.errors(fitting.out_of_fold(MODEL, group, at, options._replace(surfaces=s)), group.seconds).median
        for s in (False, True)
    )
    assert full < plain / 2, (full, plain)
    fitted = fitting.fit(MODEL, group, at, options)
    m = 2.0 ** np.arange(0, 14)
    for side in (512, 4096):
        times = bounded_kernel_seconds(
            MODEL, KernelCall("gemm", dims={"m": m, "n": m * 0 + side, "k": m * 0 + side}), at, fitted
        )
        assert (np.diff(times) >= -0.02 * times[:-1]).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_and_arrays_agree(dtype: str) -> None:
    """One by one as in a graph, and as a table."""
    at = machine("l40s" if "fp8" in dtype else "a100-sxm")
    shapes = [(1, 4096, 4096), (129, 11008, 4096), (5000, 300, 777)]
    dims = dict(zip("mnk", np.array(shapes, float).T, strict=True))
    together = bounded_kernel_seconds(MODEL, KernelCall("gemm", dtype, dims=dims), at, default_constants(MODEL))
    assert together == pytest.approx([time(product(*shape, dtype), at) for shape in shapes], rel=1e-12)
    assert STORED[dtype].weight <= 2


def test_rows_that_quantise_are_told_apart_from_the_product() -> None:
    """A table's floor and slope of two kernels become those of each, given the floor of 16-bit products."""
    rng, at = np.random.default_rng(5), machine("h100-sxm")
    m, n, k = (2.0 ** rng.integers(low, high, 300) for low, high in ((0, 14), (9, 14), (9, 14)))
    truth = {**default_constants(MODEL).constants, "floor_us": 2.8, "quantise_us": 9.0, "quantise": 0.4}
    key = Key("gemm", "H100-SXM", "fp8", "", "vllm", "scaled_mm")
    call = MODEL.prepare(KernelCall("gemm", "fp8", kernel="scaled_mm", dims={"m": m, "n": n, "k": k}))
    dims = {name: np.asarray(value, float) for name, value in call.dims.items()}
    seconds = np.asarray(MODEL.formula(call, at, truth)) * rng.lognormal(sigma=0.03, size=300)
    group = Group(key=key, rows=np.arange(300), dims=dims, seconds=seconds)
    found = fitting.fit_constants(MODEL, group, at, {"floor_us": 2.8})
    assert found["floor_us"] == 2.8
    assert found["quantise_us"] == pytest.approx(9.0, rel=0.1)
    assert found["quantise"] == pytest.approx(0.4, rel=0.2)
    alone = KernelCall("gemm", "fp8", dims={"m": 8, "n": 4096, "k": 4096})
    with_pass = alone._replace(dims={**alone.dims, "quantise": 1})
    assert time(with_pass, at, **found) - time(alone, at, **found) == pytest.approx(9e-6, rel=0.15)


@pytest.mark.parametrize("host", [0.0, 80.0])
def test_a_hosts_loop_is_seen_where_there_is_one(host: float) -> None:
    """Quick rows that all take as long are the host's; the floor of the device stays what it is."""
    rng, at = np.random.default_rng(6), machine("h100-sxm")
    m, n, k = (2.0 ** rng.integers(low, high, 400) for low, high in ((0, 14), (9, 14), (9, 14)))
    dims = {"m": m, "n": n, "k": k, "warm": np.ones(400), "quantise": np.zeros(400)}
    call = KernelCall("gemm", "bf16", dims=dims)
    device = np.asarray(MODEL.formula(call, at, default_constants(MODEL).constants))
    seconds = np.maximum(device, host * 1e-6) * rng.lognormal(sigma=0.03, size=400)
    group = Group(key=Key("gemm", "H100-SXM", "bf16", "", "vllm", "x"), rows=np.arange(400), dims=dims, seconds=seconds)
    found = fitting.fit_constants(MODEL, group, at)
    assert found["host_us"] == pytest.approx(host or 0.1, rel=0.1)
    assert found["floor_us"] < 6
