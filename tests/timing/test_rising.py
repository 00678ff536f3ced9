"""A call takes no less time than every smaller one of its kind, whatever surfaces were fitted and on whatever device
they are read.
"""

from __future__ import annotations

import math
import random
from math import prod
from typing import Any

import numpy as np
import pytest

from archsim.spec.load import load_hardware
from archsim.timing.classes import rising
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import Fitted, KernelModel, default_constants, kernel_seconds
from archsim.timing.classes.rising import Lattice, rising_seconds
from archsim.timing.classes.surface import Axis, Surface
from archsim.timing.device import DeviceRates

DEVICES = ("h100-sxm", "t4", "rtx-4090", "mi300x", "h20")
GROWING = sorted(name for name, model in MODELS.items() if model.growths)
SEVERAL = [name for name in GROWING if len(MODELS[name].growths) > 1]
EXTENTS = {
    "m": 96, "n": 4096, "k": 5120, "batch": 6, "seq_q": 200, "seq_kv": 3000, "heads": 32, "kv_heads": 8,
    "head_dim": 128, "experts": 64, "topk": 4, "hidden": 4096, "inter": 1536, "ep": 4, "n_gpus": 8, "bytes": 3e6,
    "read_bytes": 3e6, "write_bytes": 1e6,
}  # fmt: skip
ROUGH = 0.25
"""Largest difference of corrections of neighbouring nodes in a surface."""

LEFT = 5e-3
"""Fall of a time, as its logarithm, that is let pass where a class grows along several extents."""


def machine(name: str) -> DeviceRates:
    return DeviceRates(load_hardware(name))


def rough(model: KernelModel, seed: int) -> Fitted:
    """The usual constants with corrections that go up and down at random; of odd seeds as of another cache."""
    rng = np.random.default_rng(seed)

    def surface(axes: tuple[Axis, ...]) -> Surface:
        shape = [axis.nodes for axis in axes]
        return Surface(axes, (rng.uniform(-ROUGH / 2, ROUGH / 2, prod(shape))).tolist())

    return Fitted(default_constants(model).constants, tuple(map(surface, model.grids)), borrowed=seed % 2 == 1)


def usual(model: KernelModel) -> KernelCall:
    """A call of the class."""
    named = dict(model.dims and {name: EXTENTS[name] for name in model.dims})
    if "kv_heads" in named and model.kernel_class.startswith("attn_encoder"):
        named |= {"kv_heads": 16, "heads": 16, "head_dim": 72, "seq_q": 3000, "causal": 0}
    return KernelCall(model.kernel_class, dims={name: float(value) for name, value in named.items()})


def along(model: KernelModel, call: KernelCall, axis: str, values: Any) -> KernelCall:
    """The call with one of its growths at other places."""
    at = {name: value + 0 * values for name, value in model.growth(call).items()} | {axis: values}
    return model.grown(model.smallest(call), at)


def lines(model: KernelModel) -> list[tuple[Axis, Any]]:
    """Every growth of a class, and places along it, closer than nodes and beyond both ends."""
    return [
        (axis, np.arange(max(axis.start, 0), axis.start + axis.step * (axis.nodes + 1), 0.1)) for axis in model.growths
    ]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", GROWING)
def test_time_never_falls_as_a_call_grows(name: str) -> None:
    """Exactly where a class grows along one extent, also between nodes; where along several, by no more than `LEFT` in
    surfaces that are rougher than any that was fitted.
    """
    model, rng = MODELS[name], random.Random(name)
    for seed in range(3):
        at, fitted = machine(rng.choice(DEVICES)), rough(model, seed)
        for axis, values in lines(model):
            call = along(model, usual(model), axis.name, values)
            times = np.log(rising_seconds(model, call, at, fitted, {}))
            assert np.diff(times).min() > (-LEFT if len(model.growths) > 1 else -1e-9), (seed, axis.name)


@pytest.mark.parametrize("name", ["gemm", "moe", "attn_decode", "attn_prefill", "gdn_prefill", "elementwise"])
def test_these_surfaces_would_let_times_fall(name: str) -> None:
    model, at = MODELS[name], machine("h100-sxm")
    fitted = rough(model, 0)
    plain = [kernel_seconds(model, along(model, usual(model), axis.name, x), at, fitted) for axis, x in lines(model)]
    assert min(np.diff(np.log(times)).min() for times in plain) < -4e-3


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", GROWING)
def test_numbers_and_arrays_say_the_same(name: str) -> None:
    model, at = MODELS[name], machine("rtx-4090")
    fitted = rough(model, 7)
    for axis, values in lines(model):
        some = values[::17] + 0.013
        call = along(model, usual(model), axis.name, some)
        together = rising_seconds(model, call, at, fitted, {})
        known: dict[Any, Any] = {}
        for i, time in enumerate(together):
            dims = {k: float(np.broadcast_to(v, some.shape)[i]) for k, v in call.dims.items()}
            assert rising_seconds(model, call._replace(dims=dims), at, fitted, known) == pytest.approx(time, rel=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GROWING)
def test_what_rises_anyway_stays_as_it_is(name: str) -> None:
    """With one correction everywhere, times are the formula's times that."""
    model, at = MODELS[name], machine("h100-sxm")
    flat = tuple(Surface(axes, [0.1] * prod(axis.nodes for axis in axes)) for axes in model.grids)
    fitted = Fitted(default_constants(model).constants, flat)
    for axis, values in lines(model):
        call = along(model, usual(model), axis.name, values)
        formula = kernel_seconds(model, call, at, fitted)
        assert rising_seconds(model, call, at, fitted, {}) == pytest.approx(formula, rel=1e-6)


def lattice(model: KernelModel, call: KernelCall, *nodes: Any) -> KernelCall:
    """The calls on nodes of the growths."""
    axes = [
        axis.start + axis.step * at for axis, at in zip(model.growths, np.meshgrid(*nodes, indexing="ij"), strict=True)
    ]
    return model.grown(model.smallest(call), dict(zip((axis.name for axis in model.growths), axes, strict=True)))


def test_a_node_lies_halfway_between_the_longest_below_and_the_shortest_above() -> None:
    model, at = MODELS["gdn_prefill"], machine("h100-sxm")
    assert len(model.growths) == 2 and not model.halved
    fitted, call = rough(model, 3), usual(model)
    grid = lattice(model, call, *(np.arange(float(axis.nodes)) for axis in model.growths))
    times, own = (
        np.asarray(f) for f in (rising_seconds(model, grid, at, fitted, {}), kernel_seconds(model, grid, at, fitted))
    )
    longest = np.array([[own[: i + 1, : j + 1].max() for j in range(own.shape[1])] for i in range(own.shape[0])])
    shortest = np.array([[own[i:, j:].min() for j in range(own.shape[1])] for i in range(own.shape[0])])
    assert times == pytest.approx(np.sqrt(longest * shortest), rel=1e-9)
    assert (times > own * 1.01).any() and (times < own * 0.99).any()


MORE = {"seq_kv": 4096.0}
"""Extents that lie on nodes."""

HALVED = sorted(name for name in GROWING if MODELS[name].halved)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", HALVED)
def test_twice_as_much_takes_at_most_twice_as_long(name: str) -> None:
    """On a device with another cache than the fit's: two calls of half the sequences would do the same."""
    model = MODELS[name]
    axis = next(axis for axis in model.growths if axis.name == model.halved)
    nodes = np.arange(float(axis.nodes))
    for seed, device in enumerate(DEVICES):
        at, fitted = machine(device), rough(model, seed)._replace(borrowed=True)
        call = along(model, usual(model)._replace(dims=usual(model).dims | MORE), axis.name, nodes)
        times = rising_seconds(model, call, at, fitted, {})
        assert (times[1:] <= 2 * times[:-1] * (1 + 1e-9)).all()
        assert (times[1:] >= times[:-1] * (1 - 1e-9)).all()


def _halfway_by_hand(own: Any) -> Any:
    """Logarithms of times at the nodes of two growths: monotone, then no steeper than the work along the second."""
    first, count = range(own.shape[0]), range(own.shape[1])
    rising = np.array([[(own[: i + 1, : j + 1].max() + own[i:, j:].min()) / 2 for j in count] for i in first])
    repeated = [[min(rising[i, k] + (j - k) * np.log(2) for k in count if k <= j) for j in count] for i in first]
    part = [[max(rising[i, k] - (k - j) * np.log(2) for k in count if k >= j) for j in count] for i in first]
    return (np.array(repeated) + np.array(part)) / 2


def test_a_node_lies_halfway_between_smaller_calls_repeated_and_parts_of_larger_ones() -> None:
    model, at = MODELS["attn_decode"], machine("h100-sxm")
    assert [axis.name for axis in model.growths][1] == model.halved
    fitted = rough(model, 3)
    grid = lattice(model, usual(model), *(np.arange(float(axis.nodes)) for axis in model.growths))
    times = np.log(np.asarray(rising_seconds(model, grid, at, fitted, {})))
    own = np.log(np.asarray(kernel_seconds(model, grid, at, fitted)))
    assert times == pytest.approx(_halfway_by_hand(own), abs=1e-9)
    plain = np.log(np.asarray(rising_seconds(model, grid, at, fitted._replace(borrowed=False), {})))
    assert (np.abs(plain - times) > 0.01).any()


def test_these_surfaces_would_take_more_than_twice_as_long() -> None:
    model, at = MODELS["attn_decode"], machine("h100-sxm")
    nodes = np.arange(float(model.growths[1].nodes))
    times = kernel_seconds(model, along(model, usual(model), "batch", nodes), at, rough(model, 0))
    assert (times[1:] > 2.02 * times[:-1]).any()


@pytest.mark.parametrize("name", ["gemm", "moe", "gdn_prefill", "elementwise"])
def test_rough_surfaces_make_times_no_longer_on_average(name: str) -> None:
    """Over many surfaces whose corrections are 0 on average, times are the formula's on average too."""
    model, at = MODELS[name], machine("h100-sxm")
    call = lattice(model, usual(model), *(np.arange(2.0, axis.nodes - 2) for axis in model.growths))
    off = [
        np.log(rising_seconds(model, call, at, rough(model, seed), {}))
        - np.log(model.formula(call, at, rough(model, 0).constants))
        for seed in range(60)
    ]
    assert abs(np.mean(off)) < 0.01


@pytest.mark.parametrize("widths", [(512.0, 4096), (512.0, 640, 4096, 5000, 11008)])
@pytest.mark.parametrize("most", [500_000, 300])
def test_calls_of_several_kinds_are_told_apart(
    widths: tuple[float, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kinds one after another, many at once, or so many at once as there is room for."""
    monkeypatch.setattr(rising, "MOST", most)
    model, at = MODELS["gemm"], machine("t4")
    fitted = rough(model, 5)
    rows = [(m, n, k) for m in (1.0, 96, 700) for n in widths for k in (1024.0, 9000)]
    dims = dict(zip("mnk", np.array(rows).T, strict=True))
    together = rising_seconds(model, KernelCall("gemm", dims=dims), at, fitted, {})
    for row, time in zip(rows, together, strict=True):
        one = rising_seconds(model, KernelCall("gemm", dims=dict(zip("mnk", row, strict=True))), at, fitted, {})
        assert one == pytest.approx(time, rel=1e-9)


def test_every_class_that_a_graph_is_priced_by_says_how_it_grows() -> None:
    """Whole blocks and processors are left out: no graph becomes the former, and caches decide on the latter."""
    silent = {name for name, model in MODELS.items() if model.grids and not model.growths}
    assert all("_module_" in name or name.startswith("cpu_") for name in silent)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", GROWING)
def test_tables_of_many_kinds_are_as_their_rows(name: str) -> None:
    """Every extent of a call drawn anew for each row, but for an encoder's heads."""
    model, at, rng = MODELS[name], machine("h100"), np.random.default_rng(len(name))
    fitted, call = rough(model, 3), usual(model)
    rows = {key: np.maximum(np.round(value * rng.uniform(0.5, 2, 12)), 1) for key, value in call.dims.items()}
    if "encoder" in name:
        rows |= {key: np.full(12, call.dims[key]) for key in ("kv_heads", "heads", "head_dim", "causal")}
    together = rising_seconds(model, call._replace(dims=rows), at, fitted, {})
    for i in range(12):
        one = rising_seconds(model, call._replace(dims={k: float(v[i]) for k, v in rows.items()}), at, fitted, {})
        assert one == pytest.approx(together[i], rel=1e-9)


def test_tables_of_neighbouring_numbers_of_sequences_share_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six sequences lie between four and eight, as five do: one table of the formula instead of three; equal times."""
    model, device = MODELS["attn_prefill"], machine("h100-sxm")
    fitted, length = rough(model, 1), np.geomspace(16, 4096, 20)[:, None]
    calls = []
    for batch in (5.0, 6.0):
        call = usual(model)
        calls.append(call._replace(dims=call.dims | {"batch": batch, "seq_q": length, "seq_kv": length + np.arange(9)}))
    apart = [rising_seconds(model, call, device, fitted, {}) for call in calls]
    sizes: list[int] = []
    own = type(model).formula

    def counted(self: KernelModel, *asked: Any) -> Any:
        found = own(self, *asked)
        sizes.append(np.size(found))
        return found

    monkeypatch.setattr(type(model), "formula", counted)
    known: rising.Lattices = {}
    first = rising_seconds(model, calls[0], device, fitted, known)
    made, sizes[:] = sum(size >= 180 for size in sizes), []
    second = rising_seconds(model, calls[1], device, fitted, known)
    assert (first == apart[0]).all() and (second == apart[1]).all()
    assert sum(size >= 180 for size in sizes) == 1 < made


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SEVERAL)
def test_nodes_that_cannot_matter_are_left_out_and_no_others(name: str) -> None:
    """Bounds that say where to look may not change what is found."""
    model, rng = MODELS[name], random.Random(name)
    for seed in range(2):
        fitted, at = rough(model, seed), machine(rng.choice(DEVICES))
        kind = model.smallest(usual(model))
        quick, whole = Lattice(model, kind, at, fitted), Lattice(model, kind, at, fitted)
        whole.lowest, whole.highest = -math.inf, math.inf
        for _ in range(3):
            node = tuple(rng.randrange(axis.nodes) for axis in model.growths)
            assert quick._shared(node) == whole._shared(node), (seed, node)
        assert len(quick.known) < len(whole.known)


@pytest.mark.parametrize("name", SEVERAL)
def test_coordinates_lie_between_those_of_the_smallest_and_the_largest_call(name: str) -> None:
    model, at = MODELS[name], machine("h100-sxm")
    call, last = usual(model), [axis.nodes - 1 for axis in model.growths]
    for window in (0.0, 100.0, 4096.0) if "window" in model.dims or "attn" in name else (0.0,):
        kind = model.smallest(call._replace(dims={**call.dims, **({"window": window} if window else {})}))
        every = lattice(model, kind, *np.ogrid[tuple(slice(n + 1) for n in last)])
        ends = [model.coordinates(lattice(model, kind, *nodes), at) for nodes in ([0] * len(last), last)]
        for coordinate, values in model.coordinates(every, at).items():
            low, high = sorted(one[coordinate] for one in ends)
            assert low - 1e-9 <= np.min(values) and np.max(values) <= high + 1e-9, (coordinate, window)
