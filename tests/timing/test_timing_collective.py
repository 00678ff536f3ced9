"""Collectives: bounds shared with the roofline, order in size, rate and group, and what each term stands for."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.graph.graph import Op
from archsim.graph.tensor import Tensor, Use
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.collective import Collective, by_group
from archsim.timing.classes.model import Fitted, KernelModel, bounded_kernel_seconds, default_constants
from archsim.timing.classes.surface import Surface
from archsim.timing.device import DeviceRates, Hop
from archsim.timing.roofline import communication

OPS = sorted(op for op, model in MODELS.items() if isinstance(model, Collective))
DEVICES = ("h100-sxm", "b200", "l40s", "mi300x", "tpu-v5e", "gb200-nvl72")
FAST = settings(max_examples=40, deadline=None)
SIZES = st.integers(1, 2**33)
GROUPS = st.sampled_from([2, 4, 8])


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def time(op: str, device: str, n: int, size: int, stride: int = 1, dtype: str = "bf16") -> float:
    """Microseconds with the usual constants."""
    model = MODELS[op]
    call = KernelCall(op, dtype, dims={"n_gpus": n, "bytes": size, "stride": stride})
    return float(bounded_kernel_seconds(model, call, machine(device), default_constants(model))) * 1e6


def slower(device: str, factor: float) -> DeviceRates:
    """The same device with links of a fraction of their rate."""

    class Slower(DeviceRates):
        def hops(self, ranks: int, stride: int = 1) -> tuple[Hop, ...]:
            found = DeviceRates.hops(self, ranks, stride)
            return tuple(hop._replace(rate=hop.rate * factor) for hop in found)

    return Slower(archsim.load_hardware(device))


@pytest.mark.parametrize("fn", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize(("group", "stride"), [(2, 1), (4, 1), (8, 1), (4, 2), (2, 8), (32, 1), (512, 1)])
def test_the_bound_is_the_rooflines(fn: str, group: int, stride: int) -> None:
    """An op of a graph and the call made of it have one least time, whatever levels they span."""
    held = Use(Tensor("x", {"T": 1000, "D": 512}, "act"), {"T": 1000, "D": 512})
    op = Op(kind="collective", name="x", reads=(held,), writes=(held,), fn=fn,
            attrs={"group": group, "stride": stride})  # fmt: skip
    gathered = group if fn == "all_gather" else 1
    name = {"all_to_all": "nccl_alltoall"}.get(fn, f"nccl_{fn}")
    call = KernelCall(name, dims={"n_gpus": group, "bytes": 1000 * 512 * 2 * gathered, "stride": stride})
    least = MODELS[call.kernel_class].bound(call, machine("h100-sxm"))[2]
    assert least == pytest.approx(communication(op, machine("h100-sxm"))[1])
    assert least > 0


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), GROUPS, SIZES)
def test_never_below_the_links(op: str, device: str, n: int, size: int) -> None:
    """The formula itself, before it is clamped, stays above what the links need."""
    model = MODELS[op]
    call = KernelCall(op, dims={"n_gpus": n, "bytes": size})
    plain = model.formula(call, machine(device), default_constants(model).constants)
    assert plain >= model.bound(call, machine(device))[2] * (1 - 1e-9)


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), GROUPS, SIZES, st.floats(1, 4))
def test_more_bytes_take_no_less(op: str, device: str, n: int, size: int, factor: float) -> None:
    """Time does not fall with the payload."""
    assert time(op, device, n, int(size * factor)) >= time(op, device, n, size) * (1 - 1e-9)


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), GROUPS, SIZES, st.floats(0.1, 1))
def test_slower_links_take_no_less(op: str, device: str, n: int, size: int, factor: float) -> None:
    """Time does not fall when every level loses rate."""
    model, call = MODELS[op], KernelCall(op, dims={"n_gpus": n, "bytes": size})
    slow = bounded_kernel_seconds(model, call, slower(device, factor), default_constants(model))
    assert slow >= bounded_kernel_seconds(model, call, machine(device), default_constants(model)) * (1 - 1e-9)


@FAST
@given(st.sampled_from([op for op in OPS if op not in ("nccl_send_recv",)]), SIZES)
def test_more_ranks_take_no_less(op: str, size: int) -> None:
    """Groups of one server and of many, in int8, which switches do not add up."""
    times = [time(op, "h100-sxm", n, size, dtype="int8") for n in (2, 4, 8, 16, 32, 64, 128, 256, 512)]
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(times))


@pytest.mark.parametrize("op", [op for op in OPS if op != "nccl_send_recv"])
def test_latency_of_large_groups_grows_slower_than_the_group(op: str) -> None:
    """Sixty-four servers are not eight times eight: trees span networks."""
    few, many = time(op, "h100-sxm", 64, 4096), time(op, "h100-sxm", 512, 4096)
    assert few < many < 2 * few
    assert many < 1000


def test_a_group_of_one_waits_for_nobody() -> None:
    """No ranks to talk to, no time."""
    for op in OPS:
        assert time(op, "h100-sxm", 1, 2**20) == 0


def test_the_switch_adds_large_sums_of_eight_only() -> None:
    """NVLS: faster on eight than on four, never in int8, no use for small messages."""
    large = 2**28
    assert time("nccl_all_reduce", "h100-sxm", 8, large) < time("nccl_all_reduce", "h100-sxm", 4, large)
    assert time("nccl_all_reduce", "h100-sxm", 8, large, dtype="int8") > time("nccl_all_reduce", "h100-sxm", 8, large)
    small = [time("nccl_all_reduce", "h100-sxm", 8, 4096, dtype=dtype) for dtype in ("bf16", "int8")]
    assert small[0] == pytest.approx(small[1])


def test_two_levels_overlap_in_part() -> None:
    """Four servers of eight: more than either level alone, less than one after another."""
    model, at = MODELS["nccl_all_reduce"], machine("b200")
    constants = default_constants(model).constants
    assert isinstance(model, Collective)
    size, hops = 2**32, at.hops(32, 1)
    both = model.over(size, hops, constants)
    inner, outer = model.over(size, hops[:1], constants), model.over(size / 8, hops[1:], constants)
    assert max(inner, outer) < both < inner + outer


@pytest.mark.parametrize("device", ["mi300x", "tpu-v5e"])
def test_a_mesh_gives_large_groups_more_links(device: str) -> None:
    """Eight ranks of a full mesh or a torus reach their neighbours over more links than two."""
    size = 2**28
    assert time("nccl_all_gather", device, 8, size) < time("nccl_all_gather", device, 2, size)


def test_engines_beat_nccl_on_small_sums_and_use_it_on_large_ones() -> None:
    """One-shot reads in place of a ring; where memory of peers is out of reach, NCCL it is."""
    for n in (2, 4, 8):
        small = [time(op, "h100-sxm", n, 2**14) for op in ("engine_all_reduce", "nccl_all_reduce")]
        large = [time(op, "h100-sxm", n, 2**28) for op in ("engine_all_reduce", "nccl_all_reduce")]
        assert small[0] < 0.7 * small[1]
        assert large[0] == pytest.approx(large[1], rel=1e-3)
    assert time("engine_all_reduce", "l40s", 4, 2**14) == pytest.approx(
        time("nccl_all_reduce", "l40s", 4, 2**14), rel=1e-3
    )


@pytest.mark.parametrize(
    ("kernel", "variant"),
    [("", "graph"), ("TRTLLM", "graph"), ("vLLM_custom_graph", "graph"), ("vLLM_custom_eager", "eager")],
)
def test_an_unnamed_kernel_is_replayed(kernel: str, variant: str) -> None:
    """Graphs of models are priced as CUDA graphs."""
    assert MODELS["engine_all_reduce"].variant(kernel) == variant


def test_a_table_of_calls_costs_what_its_rows_cost() -> None:
    """Arrays of mixed groups, strides and sizes against one call at a time."""
    n, stride = np.array([2, 8, 4, 2, 16, 8]), np.array([1, 1, 2, 8, 1, 1])
    size = np.array([100, 2**20, 2**24, 2**20, 2**26, 2**30])
    for op in OPS:
        model = MODELS[op]
        table = KernelCall(op, dims={"n_gpus": n, "bytes": size, "stride": stride})
        found = bounded_kernel_seconds(model, table, machine("h100-sxm"), default_constants(model)) * 1e6
        rows = zip(n.tolist(), size.tolist(), stride.tolist(), strict=True)
        assert found.tolist() == pytest.approx([time(op, "h100-sxm", *row) for row in rows])


def test_groups_are_told_apart() -> None:
    """The rule sees each group's own levels."""
    call = KernelCall("", dims={"n_gpus": np.array([2, 4, 2]), "bytes": np.array([1.0, 1.0, 3.0])})
    found = by_group(call, machine("h100-sxm"), lambda size, hops: size * hops[0].ranks)
    assert found.tolist() == [2, 4, 6]


def table(model: KernelModel, noise: float) -> Group:
    """Times of a made-up device with a hump in the middle and some noise."""
    size = np.tile(2.0 ** np.arange(9, 30), 3)
    dims = {"n_gpus": np.repeat([2.0, 4.0, 8.0], 21), "bytes": size}
    truth = dict(default_constants(model).constants, base_us=7.0, link=0.6)
    times = model.formula(KernelCall(model.kernel_class, "int8", dims=dims), machine("h100-sxm"), truth)
    factor = np.exp(np.random.default_rng(1).normal(0, noise, len(size))) * (1 + 0.5 * (size > 2**14) * (size < 2**22))
    key = Key(model.kernel_class, "H100-SXM", "int8", "", "nccl 2", "nccl")
    return Group(key=key, rows=np.arange(len(size)), dims=dims, seconds=times * factor)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["nccl_all_reduce", "nccl_alltoall", "engine_all_reduce"])
def test_a_fit_follows_what_the_formula_does_not_know(op: str) -> None:
    """The correction takes away a third of what the formula leaves, on sizes that it has not seen."""
    model, group = MODELS[op], table(MODELS[op], 0.02)
    options = fitting.Options(**getattr(model, "options", {}))
    plain = fitting.out_of_fold(model, group, machine("h100-sxm"), options._replace(surfaces=False))
    whole = fitting.out_of_fold(model, group, machine("h100-sxm"), options)
    left = [fitting.errors(found, group.seconds).median for found in (plain, whole)]
    assert left[1] < 0.7 * left[0]
    assert left[1] < 0.06


@pytest.mark.parametrize("op", ["nccl_all_reduce", "nccl_all_gather"])
def test_noise_does_not_make_more_bytes_faster(op: str) -> None:
    """With its surface a fit to very noisy rows still rises with the payload."""
    model, group = MODELS[op], table(MODELS[op], 0.3)
    options = fitting.Options(**getattr(model, "options", {}))
    fitted = fitting.fit(model, group, machine("h100-sxm"), options)
    size = 2.0 ** np.arange(8, 31, 0.25)
    for n in (2.0, 4.0, 8.0):
        call = KernelCall(op, "int8", dims={"n_gpus": np.full(len(size), n), "bytes": size})
        times = bounded_kernel_seconds(model, call, machine("h100-sxm"), fitted)
        assert (times / np.maximum.accumulate(times)).min() > 0.95


def test_what_was_measured_in_a_server_is_not_carried_over_the_network() -> None:
    """A surface of one server's curves leaves groups of sixteen devices alone."""
    model = MODELS["nccl_all_reduce"]
    axes = model.grids[0]
    lifted = Surface(axes, np.tile([0.5, 0.5, 0.5, 0.0], axes[0].nodes).tolist())
    fitted = Fitted(constants=default_constants(model).constants, surfaces=(lifted,))
    for n, stride, same in ((8, 1, False), (16, 1, True), (2, 8, True)):
        call = KernelCall(model.kernel_class, dims={"n_gpus": n, "bytes": 2**20, "stride": stride})
        plain = bounded_kernel_seconds(model, call, machine("h100-sxm"), default_constants(model))
        assert (bounded_kernel_seconds(model, call, machine("h100-sxm"), fitted) == pytest.approx(plain)) is same
