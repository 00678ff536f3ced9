"""Expert layers: what a rank gets, bounds, order in tokens and bandwidth, and what kernel names say."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates import changed

import archsim
from archsim.accuracy.table import Group, Key
from archsim.calibration import fitting
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Fitted, bounded_kernel_seconds, default_constants, kernel_seconds
from archsim.timing.classes.moe import Moe, Share, implementation, share, traits
from archsim.timing.device import DeviceRates

MODEL = Moe()
DEVICES = ("h100-sxm", "a100-sxm", "l40s", "mi300x")
SHAPES = ((8, 2, 4096, 14336), (32, 4, 2880, 2880), (128, 1, 5120, 8192), (128, 8, 2048, 768), (512, 22, 2048, 5120))
FAST = settings(max_examples=80, deadline=None)
TOKENS, SKEW, WARM = (st.integers(1, 2**15), st.sampled_from([0.0, 0.5, 1.0, 1.01, 1.2]), st.sampled_from([0, 1]))
SHAPE, RANKS = st.sampled_from(SHAPES), st.sampled_from([1, 2, 4, 8])


@cache
def machine(name: str) -> DeviceRates:
    """A device of the catalog."""
    return DeviceRates(archsim.load_hardware(name))


def call(m: int, shape: tuple[int, int, int, int], dtype: str = "bf16", **more: float) -> KernelCall:
    """One call; `more` are tp, ep, skew, gated and warm."""
    return KernelCall("moe", dtype, dims={"m": m, **dict(zip(MODEL.families, shape, strict=True)), **more})


def time(of: KernelCall, at: DeviceRates) -> float:
    """Seconds by the formula with the usual constants, before any bound is applied."""
    return float(kernel_seconds(MODEL, of, at, default_constants(MODEL)))


def drawn(m: int, experts: int, topk: int, ep: int, skew: float, rng: np.random.Generator) -> Share:
    """The busiest rank of one draw: power-law loads, none above m, rows left over to the emptiest experts."""
    low, high = (1, 0.8 * m) if m * topk > experts else (0.01, 2)
    a = 1 - skew
    loads = ((high**a - low**a) * rng.random(experts) + low**a) ** (1 / a)
    rows = np.minimum(np.round(loads / loads.sum() * m * topk).astype(int), m)
    while (short := m * topk - rows.sum()) != 0:
        rows[np.argmin(rows) if short > 0 else np.argmax(rows)] += 1 if short > 0 else -1
    ranks = rows.reshape(ep, -1)
    busiest = ranks[ranks.sum(axis=1).argmax()]
    return Share(busiest.sum(), (busiest > 0).sum())


@pytest.mark.parametrize("skew", [1.01, 1.2])
@pytest.mark.parametrize(("experts", "topk", "ep"), [(128, 8, 1), (128, 8, 4), (256, 8, 16), (128, 1, 4), (512, 22, 8)])
def test_the_busiest_rank_of_drawn_loads(experts: int, topk: int, ep: int, skew: float) -> None:
    """Rows within a fifth and experts within a quarter of the mean of 20 draws."""
    rng = np.random.default_rng(0)
    for m in (64, 256, 1024):
        draws = [drawn(m, experts, topk, ep, skew, rng) for _ in range(20)]
        found = share(m, experts, topk, ep, skew)
        assert found.rows == pytest.approx(np.mean([d.rows for d in draws]), rel=0.2)
        assert found.hits == pytest.approx(np.mean([d.hits for d in draws]), rel=0.25)


def test_balanced_loads_are_exact() -> None:
    """Even shares: as many experts as there are rows, then all."""
    assert share(4, 128, 8, 1, 0) == Share(32, 32)
    assert share(4096, 128, 8, 16, 0) == Share(2048, 8)


@FAST
@given(TOKENS, SHAPE, RANKS, SKEW)
def test_shares_are_possible(m: int, shape: tuple[int, int, int, int], ep: int, skew: float) -> None:
    """At least the mean load, at most every token at every expert held, and no more experts hit than rows."""
    experts, topk = shape[:2]
    rows, hits = share(m, experts, topk, ep, skew)
    assert m * topk / ep * (1 - 1e-9) <= rows <= m * min(topk, experts / ep) * (1 + 1e-9)
    assert 0 < hits <= min(rows, experts / ep) * (1 + 1e-9)


@FAST
@given(st.floats(1, 2**15), st.floats(1, 4), st.sampled_from([*SHAPES, (16, 4), (8, 1)]), RANKS, SKEW)
def test_experts_hit_for_each_token_never_rise(
    m: float, factor: float, shape: tuple[int, ...], ep: int, skew: float
) -> None:
    """Also from one row an expert on, where the tail of loads takes over; no more are hit than by independent draws."""
    experts, topk = shape[:2]
    (rows, few), (_, more) = (share(tokens, experts, topk, ep, skew) for tokens in (m, m * factor))
    assert few * (1 - 1e-9) <= more <= few * factor * (1 + 1e-9)
    if skew > 0:
        assert few <= max(experts / ep * -np.expm1(-rows * ep / experts), 1) * (1 + 1e-9)


@FAST
@given(TOKENS, st.floats(1, 8), SHAPE, RANKS, RANKS, SKEW, WARM, st.sampled_from(DEVICES))
def test_more_tokens_take_no_less(
    m: int, factor: float, shape: tuple[int, int, int, int], tp: int, ep: int, skew: float, warm: int, device: str
) -> None:
    """Through the crossing from few rows an expert to many, and out of the last-level cache."""
    at = machine(device)
    here, there = (call(n, shape, tp=tp, ep=ep, skew=skew, warm=warm) for n in (m, int(m * factor)))
    assert time(there, at) >= time(here, at) * (1 - 1e-6)


@FAST
@given(TOKENS, SHAPE, RANKS, SKEW, st.floats(1, 4), st.sampled_from(DEVICES))
def test_more_bandwidth_takes_no_more(
    m: int, shape: tuple[int, int, int, int], ep: int, skew: float, factor: float, device: str
) -> None:
    """Everything else alike."""
    at, of = machine(device), call(m, shape, ep=ep, skew=skew)
    assert time(of, changed(at, bandwidth=at.bandwidth * factor)) <= time(of, at) * (1 + 1e-9)


@FAST
@given(TOKENS, SHAPE, RANKS, RANKS, SKEW, WARM, st.sampled_from(["bf16", "fp8", "fp8_block", "w4a16_mxfp4"]))
def test_never_below_the_bound(
    m: int, shape: tuple[int, int, int, int], tp: int, ep: int, skew: float, warm: int, dtype: str
) -> None:
    """Even if every constant is at its most favourable end; and the formula alone does at least the arithmetic."""
    of, at = call(m, shape, dtype, tp=tp, ep=ep, skew=skew, warm=warm), machine("h100-sxm")
    down = ("floor_us", "tile", "foreign", "spread")
    best = Fitted(constants={name: c.low if name in down else c.high for name, c in MODEL.constants.items()})
    assert bounded_kernel_seconds(MODEL, of, at, best) >= max(MODEL.bound(of, at)) * (1 - 1e-9)
    assert time(of, at) >= MODEL.bound(of, at)[0] * (1 - 1e-9)


def test_the_bound_of_an_even_layer() -> None:
    """All rows through three matrices, and every expert hit read once."""
    least = MODEL.minimum_work(call(4, (128, 8, 2048, 768), skew=0.0), machine("h100-sxm"))
    assert least.flops == 2 * 4 * 8 * 3 * 2048 * 768
    assert least.traffic.total == 32 * 3 * 2048 * 768 * 2


def test_two_matrices_do_two_thirds_of_three() -> None:
    """Experts without a gate."""
    shape, at = (128, 8, 2048, 768), machine("h100-sxm")
    gated, plain = (MODEL.minimum_work(call(512, shape, skew=0.0, gated=g), at) for g in (1, 0))
    assert plain.flops == pytest.approx(gated.flops * 2 / 3)
    assert plain.traffic.total == pytest.approx(gated.traffic.total * 2 / 3)


@pytest.mark.parametrize(
    ("kernel", "name", "skew", "gated"),
    [
        ("triton_experts/balanced", "triton_experts", 0.0, 1.0),
        ("flow_nongated/power_law_1.01", "flow_nongated", 1.01, 0.0),
        ("marlin/power_law_1.2", "marlin", 1.2, 1.0),
        ("marlin", "marlin", None, 1.0),
    ],
)
def test_names_of_kernels(kernel: str, name: str, skew: float | None, gated: float) -> None:
    """The distribution is an extent and no part of the implementation."""
    assert implementation(kernel) == MODEL.variant(kernel) == name
    assert traits(kernel).get("skew") == skew
    assert traits(kernel)["gated"] == gated


def test_a_table_row_gets_what_its_name_says() -> None:
    """As arrays beside arrays; what the row itself gives stands."""
    rows = call(1, (128, 8, 2048, 768))._replace(kernel="x/power_law_1.2")
    table = rows._replace(dims={name: np.array([1.0, 2.0]) * value for name, value in rows.dims.items()})
    assert MODEL.prepare(table).dims["skew"].tolist() == [1.2, 1.2]
    assert MODEL.prepare(rows._replace(dims={**rows.dims, "skew": 0.3})).dims["skew"] == 0.3
    assert "warm" not in MODEL.prepare(call(1, (128, 8, 2048, 768))).dims


def test_a_model_is_priced_between_even_and_skewed() -> None:
    """Where routing is not stated, experts hit lie between the even spread and the harshest table."""
    for m in (8, 32, 128):
        even, unknown, harsh = (share(m, 256, 8, 1, skew).hits for skew in (0.0, 0.5, 1.2))
        assert harsh <= unknown <= even or unknown == pytest.approx(harsh, rel=0.2)
    loads = [share(4096, 256, 8, 8, skew).rows for skew in (0.0, 0.5, 1.01, 1.2)]
    assert all(a <= b for a, b in pairwise(loads))


def test_arrays_and_numbers_agree() -> None:
    """The same code prices one call and a table."""
    m, ep, skew = np.array([1, 33, 5000]), np.array([1, 8, 16]), np.array([0.0, 0.5, 1.2])
    shape = {name: np.full(3, value) for name, value in zip(MODEL.families, (128, 8, 2048, 768), strict=True)}
    table = kernel_seconds(
        MODEL,
        KernelCall("moe", dims={"m": m, "ep": ep, "skew": skew, **shape}),
        machine("l40s"),
        default_constants(MODEL),
    )
    for i in range(3):
        alone = call(int(m[i]), (128, 8, 2048, 768), ep=int(ep[i]), skew=float(skew[i]))
        assert table[i] == pytest.approx(time(alone, machine("l40s")))


@pytest.mark.slow
def test_a_fit_finds_unseen_models() -> None:
    """Rows made with other constants: shapes of models that the fit has not seen come out within 5 %."""
    rng, at = np.random.default_rng(1), machine("h100-sxm")
    shapes = np.array(SHAPES)[rng.integers(0, len(SHAPES), 600)]
    dims = {name: shapes[:, i].astype(float) for i, name in enumerate(MODEL.families)}
    dims["m"] = 2.0 ** rng.integers(0, 15, 600)
    dims["ep"], dims["tp"] = 2.0 ** rng.integers(0, 4, 600), np.ones(600)
    dims["skew"] = rng.choice([0.0, 1.01, 1.2], 600)
    truth = {
        **default_constants(MODEL).constants,
        "matrix": 0.4,
        "memory": 0.9,
        "stream": 0.3,
        "floor_us": 40.0,
        "tile": 60.0,
    }
    times = MODEL.formula(KernelCall("moe", dims=dims), at, truth)
    group = Group(key=Key("moe", "", "bf16", "", "", ""), rows=np.arange(600), dims=dims, seconds=times)
    options = fitting.Options(**MODEL.options)
    assert fitting.errors(fitting.out_of_fold(MODEL, group, at, options), times).median < 0.05
