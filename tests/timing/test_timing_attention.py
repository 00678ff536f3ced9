"""Attention over a cache: counts, bound, order in extents and bandwidth, windows, prefixes, and what fits recover."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import changed

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.timing.classes.attention import ROWS, padded, pairs, span
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import Fitted, bounded_kernel_seconds, default_constants
from archsim.timing.classes.surface import Surface
from archsim.timing.device import DeviceRates

PREFILL, DECODE = MODELS["attn_prefill"], MODELS["attn_decode"]
DEVICES = ("h100-sxm", "a100-sxm", "l40s", "mi300x", "tpu-v5e", "apple-m3-max")
FAST = settings(max_examples=60, deadline=None)
BATCH, LENGTH = st.integers(1, 2048), st.integers(1, 2**17)
GROUPS, GROUP = st.integers(1, 64), st.integers(1, 64)
WIDTH, WINDOW = st.sampled_from([64, 80, 96, 128, 192, 256, 512]), st.sampled_from([0, 1, 128, 1024, 8192])
OPS = ("attn_prefill", "attn_decode")


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def decode(batch: int, length: int, groups: int = 8, group: int = 4, width: int = 128, window: int = 0) -> KernelCall:
    """One new token a sequence."""
    dims = {"batch": batch, "seq_kv": length, "heads": groups * group, "kv_heads": groups}
    return KernelCall("attn_decode", "bf16", "bf16", dims={**dims, "head_dim": width, "window": window})


def prefill(batch: int, s: int, groups: int = 8, group: int = 4, width: int = 128, window: int = 0, c: int = 0,
            causal: int = 1) -> KernelCall:  # fmt: skip
    """s tokens a sequence after c cached ones."""
    dims = {"batch": batch, "seq_q": s, "seq_kv": s + c, "heads": groups * group, "kv_heads": groups}
    return KernelCall(
        "attn_prefill", "bf16", "bf16", dims={**dims, "head_dim": width, "window": window, "causal": causal}
    )


def call_of(op: str, batch: int, length: int, groups: int, group: int, width: int, window: int) -> KernelCall:
    """A call of either class."""
    make = decode if op == "attn_decode" else prefill
    return make(batch, length, groups, group, width, window)


def with_dims(call: KernelCall, **dims: float) -> KernelCall:
    """The call with other extents."""
    return call._replace(dims={**call.dims, **dims})


def time(call: KernelCall, at: DeviceRates | None = None, **constants: float) -> float:
    """Seconds with the usual constants, or some others."""
    model = MODELS[call.kernel_class]
    return float(bounded_kernel_seconds(model, call, at or machine("h100-sxm"),
                         Fitted(constants={**default_constants(model).constants, **constants})))  # fmt: skip


def counted(s: int, c: int, window: int, causal: bool) -> int:
    """Pairs of a query and a token that it sees, one by one."""
    total = 0
    for query in range(c, c + s):
        end = query + 1 if causal else c + s
        total += min(end, window) if window else end
    return total


@pytest.mark.sampled(2)
@pytest.mark.parametrize("window", [0, 1, 5, 16, 40, 100])
@pytest.mark.parametrize(("s", "c"), [(1, 0), (7, 0), (32, 0), (33, 7), (16, 60), (1, 99)])
@pytest.mark.parametrize("causal", [True, False])
def test_pairs_are_those_counted_one_by_one(s: int, c: int, window: int, causal: bool) -> None:
    """With tiles of one row; larger tiles have no fewer."""
    call = prefill(1, s, c=c, window=window, causal=int(causal))
    assert pairs(call, 1) == pytest.approx(counted(s, c, window, causal))
    assert pairs(call, ROWS) >= pairs(call, 1)


def test_a_window_wider_than_the_cache_is_none() -> None:
    """In what counts; the kernel may still be another."""
    assert pairs(prefill(1, 512, window=4096), 1) == pairs(prefill(1, 512), 1)
    assert span(prefill(1, 512, window=4096)) == 512
    at = machine("h100-sxm")
    assert DECODE.bound(decode(4, 512, window=4096), at) == DECODE.bound(decode(4, 512), at)


@FAST
@given(st.sampled_from(OPS), st.sampled_from(DEVICES), BATCH, LENGTH, GROUPS, GROUP, WIDTH, WINDOW)
def test_never_below_the_bound(
    op: str, device: str, batch: int, length: int, groups: int, group: int, width: int, window: int
) -> None:
    """Not even with perfect constants."""
    at, call = machine(device), call_of(op, batch, length, groups, group, width, window)
    assert time(call, at, matrix=1.0, memory=1.0, floor_us=1.0) >= max(MODELS[op].bound(call, at))


@FAST
@given(st.sampled_from(OPS), BATCH, LENGTH, GROUPS, GROUP, WIDTH, WINDOW, st.floats(1, 4),
       st.sampled_from(["batch", "length", "heads", "head_dim"]), st.floats(0.005, 1))  # fmt: skip
def test_more_work_takes_no_less(
    op: str, batch: int, length: int, groups: int, group: int, width: int, window: int, factor: float, name: str,
    outside: float,
) -> None:  # fmt: skip
    """Along the batch, the length, the query heads and their width."""
    call = call_of(op, batch, length, groups, group, width, window)
    names = {"length": ("seq_kv",) if op == "attn_decode" else ("seq_q", "seq_kv"), "heads": ("heads",)}
    grown = {n: int(call.dims[n] * factor) for n in names.get(name, (name,))}
    if name == "heads" and group == 1 < grown["heads"] / groups:
        return  # a kernel for grouped heads splits the cache where another does not
    less, more = (time(c, outside=outside) for c in (call, with_dims(call, **grown)))
    assert more >= less * (1 - 1e-9)


@FAST
@given(st.sampled_from(OPS), BATCH, LENGTH, GROUPS, GROUP, WIDTH, WINDOW, st.floats(1, 8))
def test_more_bandwidth_takes_no_more(
    op: str, batch: int, length: int, groups: int, group: int, width: int, window: int, factor: float
) -> None:
    """Everything else equal."""
    at, call = machine("a100-sxm"), call_of(op, batch, length, groups, group, width, window)
    assert time(call, changed(at, bandwidth=at.bandwidth * factor)) <= time(call, at) * (1 + 1e-9)


@pytest.mark.parametrize("op", OPS)
def test_corrections_that_rise_keep_the_order(op: str) -> None:
    """A surface multiplies the formula and nothing else."""
    model, call = MODELS[op], call_of(op, 4, 2048, 8, 4, 128, 0)
    raised = [Surface(axes, [0.1] * int(np.prod([axis.nodes for axis in axes]))) for axes in model.grids]
    plain = default_constants(model)
    fitted = Fitted(constants=plain.constants, surfaces=tuple(raised))
    expected = bounded_kernel_seconds(model, call, machine("h100-sxm"), plain) * np.exp(0.1 * len(raised))
    assert bounded_kernel_seconds(model, call, machine("h100-sxm"), fitted) == pytest.approx(expected)


@pytest.mark.parametrize("op", OPS)
def test_surfaces_stay_small(op: str) -> None:
    """At most some 1,500 nodes, and every axis is a coordinate."""
    model = MODELS[op]
    assert sum(int(np.prod([axis.nodes for axis in axes])) for axes in model.grids) <= 1500
    at = model.coordinates(call_of(op, 4, 2048, 8, 4, 128, 0), machine("h100-sxm"))
    assert {axis.name for axes in model.grids for axis in axes} <= set(at)


@pytest.mark.parametrize("op", OPS)
def test_arrays_and_numbers_agree(op: str) -> None:
    """Row by row, windows among them, formula and coordinates."""
    model, at = MODELS[op], machine("h100-sxm")
    rows = [(1, 1, 1, 1, 64, 0), (3, 300, 4, 5, 96, 128), (256, 5000, 8, 8, 128, 0), (2, 64, 1, 64, 256, 1024)]
    calls = [call_of(op, *row) for row in rows]
    table = calls[0]._replace(dims={n: np.array([float(c.dims[n]) for c in calls]) for n in calls[0].dims})
    together = bounded_kernel_seconds(model, table, at, default_constants(model))
    assert together == pytest.approx(
        [bounded_kernel_seconds(model, call, at, default_constants(model)) for call in calls]
    )
    many = model.coordinates(table, at)
    for position, call in enumerate(calls):
        one = model.coordinates(call, at)
        assert {n: np.broadcast_to(v, len(rows))[position] for n, v in many.items()} == pytest.approx(one)


def test_a_cached_prefix_costs_its_pairs_and_no_more() -> None:
    """A chunk after a prefix takes longer than alone, less than all of it at once, and more the longer the prefix."""
    chunk, last, whole = prefill(1, 2048), prefill(1, 2048, c=30720), prefill(1, 32768)
    assert time(chunk) < time(last) < time(whole)
    chunks = [prefill(1, 2048, c=c) for c in range(0, 32768, 2048)]
    assert sum(time(c, floor_us=1.0) for c in chunks) == pytest.approx(time(whole, floor_us=1.0), rel=0.15)
    times = [time(prefill(1, 128, c=c)) for c in (0, 1000, 10_000, 100_000)]
    assert times == sorted(times)


def test_one_query_after_a_long_prefix_is_split() -> None:
    """Else a single multiprocessor would walk the whole cache: the time stays near that of a decode step."""
    short, long = prefill(1, 16, c=131072 - 16), decode(1, 131072)
    assert time(short) < 5 * time(long)


def test_an_encoder_does_twice_the_pairs() -> None:
    """Without a causal mask, at long sequences twice the time."""
    ratio = time(prefill(4, 16384, causal=0)) / time(prefill(4, 16384))
    assert ratio == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("op", OPS)
def test_a_window_saves_time(op: str) -> None:
    """Unless the kernel works through everything outside all the same."""
    full, windowed = call_of(op, 32, 16384, 8, 4, 128, 0), call_of(op, 32, 16384, 8, 4, 128, 1024)
    assert time(windowed) < 0.5 * time(full)
    assert time(windowed, outside=1.0) == pytest.approx(time(full), rel=0.2)


@pytest.mark.parametrize(("width", "built"), [(32, 64), (64, 64), (80, 96), (96, 96), (128, 128), (192, 192),
                                              (200, 224), (512, 512)])  # fmt: skip
def test_heads_are_padded_to_the_next_width(width: int, built: int) -> None:
    """Of the widths that kernels are built for."""
    assert padded(width) == built


def test_query_heads_share_a_load() -> None:
    """Eight query heads over one KV head take little longer than one, and far less than eight KV heads."""
    one, grouped, apart = decode(16, 16384, 1, 1), decode(16, 16384, 1, 8), decode(16, 16384, 8, 1)
    assert time(grouped) < 1.5 * time(one)
    assert time(apart) > 3 * time(grouped)


def test_checking_a_draft_costs_little_more_than_a_token() -> None:
    """Some queries a sequence read the cache once."""
    call = decode(16, 8192)
    assert time(call) <= time(with_dims(call, seq_q=4)) < 1.5 * time(call)


def test_only_tables_find_the_cache_warm() -> None:
    """A row that names its kernel was timed on one cache; a model's layers each read their own."""
    at, call = machine("l40s"), decode(8, 2048)
    table = DECODE.prepare(call._replace(kernel="some_kernel"))
    assert DECODE.prepare(call) == call
    assert time(table, at, warm=4.0) < time(call, at, warm=4.0)
    assert DECODE.bound(table, at)[1] < DECODE.bound(call, at)[1]


def test_one_byte_caches_halve_the_bound() -> None:
    """What is read is the cache."""
    at, call = machine("h100-sxm"), decode(64, 8192)
    assert DECODE.bound(call._replace(kv_dtype="fp8"), at)[1] == DECODE.bound(call, at)[1] / 2


@pytest.mark.parametrize("op", OPS)
def test_a_fit_recovers_its_constants(op: str) -> None:
    """From times that the formula itself makes: no row is off by more than two per cent."""
    model, at, random = MODELS[op], machine("h100-sxm"), np.random.default_rng(1)
    count = 300
    dims = {"batch": 2.0 ** random.integers(0, 8, count), "seq_kv": 2.0 ** random.integers(4, 14, count)}
    dims |= {"kv_heads": 2.0 ** random.integers(0, 4, count), "window": random.choice([0.0, 512.0], count)}
    dims |= {"heads": dims["kv_heads"] * 2.0 ** random.integers(0, 5, count), "seq_q": dims["seq_kv"]}
    dims |= {"head_dim": random.choice([64.0, 128.0, 256.0], count)}
    if op == "attn_decode":
        dims.pop("seq_q")
    call = KernelCall(op, "bf16", "bf16", dims=dims)
    wanted = {**default_constants(model).constants, "matrix": 0.5, "memory": 0.7, "tile_us": 4.0, "floor_us": 7.0}
    truth = model.formula(call, at, wanted)
    key = Key(op, "H100-SXM", "bf16", "bf16", "engine 1", "kernel")
    group = Group(key=key, rows=np.arange(count), dims=dims, seconds=truth)
    found = fitting.fit_constants(model, group, at)
    assert np.abs(model.formula(call, at, found) / truth - 1).max() < 0.02
    assert found["floor_us"] == pytest.approx(7.0, rel=0.05)
