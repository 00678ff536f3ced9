"""Which fit stands for a call, what its interval is, and what borrowing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from archsim.spec.load import load_hardware
from archsim.timing.calibration import DeviceTraits, Entry, FitQuery, Store, TransferError, default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import default_constants
from archsim.timing.kernel_timer import (
    ANY_CLASS,
    at_other_balance,
    distance,
    level_of,
    levels_of,
    nearest,
    split_engine,
    timer,
)

DEVICE = DeviceTraits("h200-sxm", "NVIDIA", "Hopper", 2023.8)


def entry(**fields: object) -> Entry:
    """A GEMM fit on an H100 by vllm, with some fields changed."""
    usual = {
        "device": "h100-sxm", "engine": "vllm", "version": "0.24.0", "op": "gemm", "dtype": "bf16",
        "constants": {"matrix": 0.8}, "vendor": "NVIDIA", "family": "Hopper", "released": 2022.0,
        "interval": {str(i): (-0.1, 0.2) for i in range(4)},
    }  # fmt: skip
    return Entry(**{**usual, **fields})  # type: ignore[arg-type]


def wanted(**fields: object) -> FitQuery:
    """The same on an H200."""
    usual = FitQuery(DEVICE, "vllm", "0.24.0", "gemm", "bf16", "", "")
    return usual._replace(**fields)


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ({}, {"family": "Ampere", "device": "a100", "released": 2020.8}),
        ({}, {"engine": "trtllm"}),
        ({}, {"dtype": "fp8"}),
        ({"dtype": "fp16"}, {"dtype": "fp8_block"}),
        ({}, {"kernel": "cutlass"}),
        ({"device": "h200-sxm"}, {}),
        ({}, {"version": "0.14.0"}),
    ],
)
def test_the_nearer_fit_is_preferred(near: dict[str, object], far: dict[str, object]) -> None:
    """DeviceTraits, architecture, engine, format, implementation and version all count."""
    one, other = distance(entry(**near), wanted()), distance(entry(**far), wanted())
    assert one is not None and other is not None and one < other


@pytest.mark.parametrize("first", [0, 1])
def test_of_equally_near_fits_the_better_kernels_stand(first: int) -> None:
    """A third engine's latent attention is not taken for the slow one of two, whichever is listed first."""
    shared = {"op": "mla_decode", "interval": {}}
    slow = entry(engine="sglang", constants={"matrix": 0.9, "memory": 0.09}, **shared)
    fast = entry(engine="trtllm", constants={"matrix": 0.9, "memory": 0.95}, **shared)
    known = Store(entries=(slow, fast)[:: 1 if first == 0 else -1], levels={}, engines={})
    assert nearest(known, wanted(op="mla_decode")).fitted.constants["memory"] == 0.95


def test_a_kernel_that_walks_alone_stands_for_its_own_engine_alone() -> None:
    """TensorRT-LLM 1.0's latent attention splits no sequence: on an L40S it says nothing of vLLM's."""
    query = wanted(op="mla_decode")
    slow = entry(op="mla_decode", engine="trtllm", device="h200-sxm", constants={"walk_ns": 75.0})
    other = entry(op="mla_decode", engine="sglang", constants={"walk_ns": 0.4})
    own = query._replace(engine="trtllm")
    assert distance(other, query) < distance(slow, query) and distance(slow, own) < distance(other, own)


def test_how_a_kernel_is_written_goes_with_its_code() -> None:
    """TensorRT-LLM 1.0's latent attention walks alone on any device; a later version has another kernel."""
    level = TransferError(interval={str(i): (-0.3, 0.3) for i in range(4)}, trust=0.0)
    slow = entry(op="mla_decode", engine="trtllm", version="1.0.0", family="Ada", constants={"walk_ns": 75.0})
    known = Store(entries=(slow,), levels={"mla_decode": {"device": level}}, engines={})
    same = wanted(op="mla_decode", engine="trtllm", version="1.0.0", kernel="default")
    assert nearest(known, same).fitted.constants["walk_ns"] == 75.0
    usual = MODELS["mla_decode"].constants["walk_ns"].usual
    assert nearest(known, same._replace(version="1.3.0")).fitted.constants["walk_ns"] == pytest.approx(usual)


@pytest.mark.parametrize(("fed", "rate"), [(2.8, 5.0), (14.0, 1.2), (28.0, 1.2)])
def test_a_cache_is_the_faster_beside_memory_the_less_memory_gives(fed: float, rate: float) -> None:
    """It gives a unit 14 bytes in a cycle; where memory does too, other fits say what is left of it."""
    level = TransferError(interval={str(i): (-0.3, 0.3) for i in range(4)})
    slow = entry(device="l40s", family="Ada", constants={"warm": 6.0}, per_cycle={"memory": 2.4})
    quick = entry(device="h100-sxm", family="Ampere", dtype="fp8", constants={"warm": 1.2}, per_cycle={"memory": 14.0})
    known = Store(entries=(slow, quick), levels={"gemm": {"device": level}}, engines={})
    there = wanted(device=DEVICE._replace(id="other", per_cycle=(("memory", fed),)))
    assert nearest(known, there).fitted.constants["warm"] == pytest.approx(rate)


def test_weights_alone_in_fewer_bits_have_errors_of_their_own() -> None:
    """They are unpacked and multiplied in 16; grades that nothing is known of are those of narrow formats."""
    narrow, weights = (TransferError(interval={str(i): (-end, end) for i in range(4)}) for end in (0.3, 0.5))
    levels = {"moe narrow": {"device": narrow, "class": narrow}, "moe weight-only": {"device": weights}}
    known = Store(entries=(), levels=levels, engines={})
    assert [level_of("moe", each) for each in ("fp8", "int4_wo", "fp16")] == ["moe narrow", "moe weight-only", "moe"]
    assert levels_of(known, wanted(op="moe", dtype="int4_wo")) == {"device": weights, "class": narrow}
    assert levels_of(known, wanted(op="moe", dtype="fp8")) == {"device": narrow, "class": narrow}
    assert levels_of(known, wanted(op="moe")) == {}


def test_a_relative_of_another_balance_is_no_better_known_than_another_architecture() -> None:
    """Half as much as where half of the balance is kept; an interval that is wider anyway stands."""
    narrow, wide = {"0": (-0.1, 0.1)}, {"0": (-0.4, 0.6), "1": (-1.0, 1.0)}
    assert at_other_balance(narrow, wide, 0.0) == {"0": (-0.4, 0.6)}
    assert at_other_balance(narrow, wide, 0.5) == {"0": (-0.2, 0.3)}
    assert at_other_balance(wide, narrow, 0.0) == wide


def test_what_says_nothing_is_never_used() -> None:
    """Another vendor's device, or a fit that holds on its own machine alone."""
    assert distance(entry(vendor="AMD"), wanted()) is None
    assert distance(entry(local=True), wanted()) is None
    assert distance(entry(device="", engine="llamacpp"), wanted()) is None


@pytest.mark.parametrize(
    ("fields", "grade"),
    [
        ({"device": "h200-sxm"}, "fitted"), ({}, "family"), ({"family": "Ampere"}, "device"),
        ({"family": "Ampere", "dtype": "fp8"}, "far"), ({"device": "h200-sxm", "dtype": "fp8"}, "format"),
        ({"device": "h200-sxm", "engine": "sglang"}, "engine"),
    ],
)  # fmt: skip
def test_the_grade_is_the_weakest_link(fields: dict[str, object], grade: str) -> None:
    """What was fitted, on what, decides the evidence and the interval."""
    known = Store(entries=(entry(**fields),), levels={}, engines={})
    assert nearest(known, wanted()).grade == grade


def test_without_any_fit_the_usual_constants_stand() -> None:
    """Datasheet evidence, with the interval that the store states for it."""
    level = TransferError(interval={str(i): (-0.3, 0.4) for i in range(4)})
    known = Store(entries=(), levels={"gemm": {"datasheet": level}}, engines={})
    found = nearest(known, wanted())
    assert (found.grade, found.level) == ("datasheet", level)
    assert found.fitted.constants["memory"] == MODELS["gemm"].constants["memory"].usual


def test_usual_constants_may_be_the_middle_of_all_fits() -> None:
    """Where the store says that it comes nearer: of the class, in formats as wide, and of no implementation alone; what
    hosts take is no part of it, and on architectures with runs of their own nothing of it is used.
    """
    level = TransferError(interval={str(i): (-0.3, 0.4) for i in range(4)}, middle=True)
    fits = [entry(op="norm", constants={"memory": share, "host_us": 50.0, "own": 1.0}) for share in (0.3, 0.5, 0.6)]
    others = [entry(op="norm", constants={"memory": 0.9}, kernel="cutlass")]
    known = Store(entries=(*fits, *others), levels={"norm": {"datasheet": level}}, engines={})
    elsewhere = wanted(op="norm", device=DEVICE._replace(id="mi300x", vendor="AMD", family="CDNA 3"))
    found = nearest(known, elsewhere).fitted.constants
    assert found == {**default_constants(MODELS["norm"]).constants, "memory": 0.5}
    by_runs = elsewhere._replace(device=elsewhere.device._replace(runs=(-0.2, 0.2)))
    assert nearest(known, by_runs).fitted.constants["memory"] == MODELS["norm"].constants["memory"].usual


def test_products_of_another_vendor_say_nothing_of_usual_constants() -> None:
    """Libraries for matrix units are a vendor's own."""
    level = TransferError(interval={str(i): (-0.3, 0.4) for i in range(4)}, middle=True)
    known = Store(entries=(entry(constants={"memory": 0.5}),), levels={"gemm": {"datasheet": level}}, engines={})
    elsewhere = wanted(device=DEVICE._replace(id="mi300x", vendor="AMD", family="CDNA 3"))
    assert nearest(known, elsewhere).fitted.constants["memory"] == MODELS["gemm"].constants["memory"].usual


def test_products_scale_with_what_both_devices_sustain() -> None:
    """Across architectures only, and never above the peak."""
    known = Store(entries=(entry(family="Ampere", sustained=0.8),), levels={}, engines={})
    half = nearest(known, wanted(device=DEVICE._replace(sustained=0.4)))
    assert half.fitted.constants["matrix"] == pytest.approx(0.4)
    full = nearest(known, wanted(device=DEVICE._replace(sustained=1.2)))
    assert full.fitted.constants["matrix"] == 1.0


def test_a_loop_on_the_host_is_no_part_of_a_step() -> None:
    """Rows of a table wait for it, whatever the device does meanwhile; a captured step has no such loop."""
    slow = entry(device="h200-sxm", constants={"host_us": 60.0, "floor_us": 5.0})
    clock = timer(load_hardware("h200-sxm"), "vllm", None, "0.24.0", Store(entries=(slow,), levels={}, engines={}))
    call = KernelCall("gemm", "bf16", dims={"m": 8, "n": 4096, "k": 4096})
    assert clock.time(call._replace(kernel="cutlass")).expected == pytest.approx(60e-6, rel=0.05)
    assert 5e-6 < clock.time(call).expected < 25e-6
    long = call._replace(dims={"m": 8192, "n": 8192, "k": 8192})
    assert clock.time(long._replace(kernel="cutlass")).expected == pytest.approx(clock.time(long).expected, rel=0.01)


def test_experts_floors_are_alike_in_a_step() -> None:
    """What one implementation has beyond the middle of all is the time of the loop that measured it."""
    floors = {"vllm": 80.0, "sglang": 20.0, "trtllm": 24.0}
    known = Store(
        entries=tuple(
            entry(op="moe", device="h200-sxm", engine=name, constants={"floor_us": floor})
            for name, floor in floors.items()
        ),
        levels={}, engines={},
    )  # fmt: skip
    clock = timer(load_hardware("h200-sxm"), "vllm", None, "0.24.0", known)
    call = KernelCall("moe", dims={"m": 1, "experts": 8, "topk": 1, "hidden": 64, "inter": 64, "tp": 1, "ep": 1})
    assert clock.time(call).expected == pytest.approx(24e-6, rel=0.05)
    assert clock.time(call._replace(kernel="mine/balanced")).expected == pytest.approx(80e-6, rel=0.05)


def experts(kernel: str, **fields: object) -> Entry:
    """An implementation of experts on an H200."""
    return entry(op="moe", device="h200-sxm", kernel=kernel, **fields)


def test_the_fastest_implementation_that_can_runs() -> None:
    """By shape where none is named; a named one is that one, and one that was never measured there is left out."""
    known = Store(
        entries=(
            experts("decode", constants={"floor_us": 10.0, "matrix": 0.1}, measured={"m": (1, 64)}),
            experts("bulk", constants={"floor_us": 10.0, "matrix": 0.6, "memory": 0.3}, measured={"m": (1, 8192)}),
            experts("two", constants={"floor_us": 3.0, "matrix": 0.9}, measured={"m": (1, 8192), "gated": (0, 0)}),
        ),
        levels={}, engines={},
    )  # fmt: skip
    clock = timer(load_hardware("h200-sxm"), "vllm", None, "0.24.0", known)

    def call(m: float, kernel: str = "") -> KernelCall:
        dims = {"m": m, "experts": 64, "topk": 4, "hidden": 4096, "inter": 2048, "tp": 1, "ep": 1, "warm": 0}
        return KernelCall("moe", kernel=kernel, dims=dims)

    few, many = clock.time(call(4)).expected, clock.time(call(4096)).expected
    assert few == clock.time(call(4, "decode")).expected < clock.time(call(4, "bulk")).expected
    assert many == clock.time(call(4096, "bulk")).expected
    assert clock.time(call(4096, "two")).expected < many, "quicker, but for experts of two matrices alone"
    both = clock.time(call(np.array([4.0, 4096.0])))
    assert both.expected.tolist() == pytest.approx([few, many])
    assert (both.low <= both.expected).all() and (both.expected <= both.high).all()


def test_mxfp4_runs_in_the_format_that_is_fastest() -> None:
    """Weights of one format are multiplied in 16 or in 8 bits, as the implementation goes."""
    known = Store(
        entries=(
            experts("wide", dtype="w4a16_mxfp4", constants={"floor_us": 9.0, "matrix": 0.3, "tile": 1.0}),
            experts("narrow", dtype="w4a8_mxfp4_mxfp8", constants={"floor_us": 14.0, "matrix": 0.6, "tile": 1.0}),
        ),
        levels={}, engines={},
    )  # fmt: skip
    clock = timer(load_hardware("h200-sxm"), "vllm", None, "0.24.0", known)
    dims = {"experts": 8, "topk": 2, "hidden": 4096, "inter": 4096, "tp": 1, "ep": 1, "warm": 0}

    def time(dtype: str, m: int) -> float:
        return float(clock.time(KernelCall("moe", dtype, dims={"m": m, **dims})).expected)

    for m in (1, 8192):
        assert time("mxfp4", m) == pytest.approx(min(time("w4a16_mxfp4", m), time("w4a8_mxfp4_mxfp8", m)))
    assert time("w4a16_mxfp4", 1) < time("w4a8_mxfp4_mxfp8", 1)
    assert time("w4a16_mxfp4", 8192) > time("w4a8_mxfp4_mxfp8", 8192)


@pytest.mark.parametrize("trust", [0.0, 0.5, 1.0])
def test_what_one_architecture_reaches_is_trusted_as_far_as_measured(trust: float) -> None:
    """A poor share is not carried whole to the next architecture; on its own it stands."""
    usual = MODELS["gemm"].constants["memory"].usual
    poor = entry(constants={"memory": 0.3, "host_us": 50.0})
    level = TransferError(interval={str(i): (-0.3, 0.3) for i in range(4)}, trust=trust)
    known = Store(entries=(poor,), levels={"gemm": {"device": level}}, engines={})
    there = wanted(device=DEVICE._replace(id="b200-sxm", family="Blackwell", memory=poor.memory))
    carried = nearest(known, there).fitted.constants
    assert carried["memory"] == pytest.approx(0.3**trust * usual ** (1 - trust))
    assert carried["host_us"] == 50.0
    assert nearest(known, wanted()).fitted.constants["memory"] == 0.3


def test_another_engine_on_another_device_is_off_by_both() -> None:
    """The squares of both errors add up; the same engine is off by the device alone."""
    device = TransferError(interval={str(i): (-0.3, 0.4) for i in range(4)})
    engine = TransferError(interval={str(i): (-0.4, 0.3) for i in range(4)})
    known = Store(entries=(entry(family="Ampere"),), levels={"gemm": {"device": device, "engine": engine}}, engines={})
    assert nearest(known, wanted()).level.interval["0"] == (-0.3, 0.4)
    assert nearest(known, wanted(engine="trtllm")).level.interval["0"] == pytest.approx((-0.5, 0.5))


def test_the_time_of_a_host_is_carried_whole() -> None:
    """A block that is launched from the host takes as long there on any device."""
    level = TransferError(interval={str(i): (-0.3, 0.3) for i in range(4)}, trust=0.0)
    block = entry(op="mla_module_prefill", family="Ampere", constants={"launch_us": 900.0, "ramp_us": 300.0})
    known = Store(entries=(block,), levels={"mla_module_prefill": {"device": level}}, engines={})
    carried = nearest(known, wanted(op="mla_module_prefill")).fitted.constants
    assert carried["launch_us"] == 900.0 and carried["ramp_us"] < 100.0


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "a40", "rtx-4090", "mi300x", "tpu-v5e", "apple-m2-ultra"])
def test_every_class_has_a_time_on_every_device(name: str) -> None:
    """Calibrated or not: positive, finite, inside its interval, not below the bound."""
    clock = timer(load_hardware(name))
    calls = [
        KernelCall("gemm", "bf16", dims={"m": 64, "n": 4096, "k": 4096}),
        KernelCall(
            "attn_decode", dims={"batch": 8, "seq_q": 1, "seq_kv": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}
        ),
        KernelCall("moe", dims={"m": 64, "experts": 64, "topk": 4, "hidden": 2048, "inter": 1024, "tp": 1, "ep": 1}),
        KernelCall("elementwise", dims={"read_bytes": 1 << 20, "write_bytes": 1 << 20}),
    ]
    for call in calls:
        timed = clock.time(call)
        assert 0 < timed.low <= timed.expected <= timed.high < 10, call.kernel_class
        assert timed.evidence in ("calibrated", "transferred", "datasheet")
        assert timed.expected >= max(MODELS[call.kernel_class].bound(call, clock.machine)[:2]) * (1 - 1e-12)


def test_arrays_and_numbers_agree() -> None:
    """One code prices an op of a graph and a table of calls."""
    clock = timer(load_hardware("h100"), "vllm", None, "0.24.0")
    m = np.array([1, 7, 64, 500, 4096])
    many = clock.time(KernelCall("gemm", "bf16", dims={"m": m, "n": 0 * m + 6144, "k": 0 * m + 4096}))
    for i, rows in enumerate(m.tolist()):
        one = clock.time(KernelCall("gemm", "bf16", dims={"m": rows, "n": 6144, "k": 4096}))
        assert one.expected == pytest.approx(many.expected[i], rel=1e-12)
        assert (one.low, one.high) == pytest.approx((many.low[i], many.high[i]), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("vllm 0.24.0", ("vllm", "0.24.0")), ("trtllm 1.3.0rc20", ("trtllm", "1.3.0rc20")), ("nccl", ("nccl", "")),
     ("torch 2.11.0", ("torch", "2.11.0")), ("", ("", ""))],
)  # fmt: skip
def test_engines_of_tables(text: str, parts: tuple[str, str]) -> None:
    """Name and version."""
    assert split_engine(text) == parts


def test_stores_are_independent() -> None:
    """One device timed with two stores: each answers from its own fits, whatever the other has remembered."""
    call = KernelCall("gemm", "bf16", dims={"m": 8, "n": 4096, "k": 4096})
    before = timer(load_hardware("h100"), "vllm").once(call)
    slower = [e._replace(constants={**e.constants, "floor_us": 500.0}, surfaces=None) for e in default_store().entries]
    other = replace(default_store(), entries=tuple(slower))
    inside = timer(load_hardware("h100"), "vllm", store=other).once(call)
    after = timer(load_hardware("h100"), "vllm").once(call)
    assert inside.expected > 2 * before.expected and after == before


def test_what_no_row_of_a_fit_depends_on_is_as_other_fits_have_it() -> None:
    """Of its own device first; a loop's host time stays its own."""
    own = entry(constants={"matrix": 0.8, "memory": 0.5, "host_us": 9.0}, unused=("memory", "host_us"))
    others = [entry(dtype="fp8", constants={"matrix": 0.5, "memory": value, "host_us": 50.0}) for value in (0.8, 0.9)]
    far = entry(device="a100-sxm", family="Ampere", constants={"memory": 0.2})
    unseen = entry(dtype="fp8", constants={"memory": 0.1}, unused=("memory",))
    found = nearest(Store(entries=(own, *others, far, unseen), levels={}, engines={}), wanted()).fitted.constants
    assert found["memory"] == pytest.approx(0.85) and found["host_us"] == 9.0
    alone = nearest(Store(entries=(own, far), levels={}, engines={}), wanted()).fitted.constants
    assert alone["memory"] == pytest.approx(0.2)


def test_a_class_that_says_nothing_of_a_grade_has_the_error_of_all() -> None:
    """An own one comes first."""
    every, own = (TransferError(interval={str(code): (-end, end) for code in range(4)}) for end in (0.7, 0.3))
    elsewhere = wanted(device=DEVICE._replace(id="l40s", family="Ada", memory="GDDR6"))
    levels = {ANY_CLASS: {"class": every, "datasheet": every}}
    entries = (entry(memory="HBM"),)
    assert nearest(Store(entries=entries, levels=levels, engines={}), elsewhere).level == every
    assert nearest(Store(entries=(), levels=levels, engines={}), elsewhere).level == every
    levels |= {"gemm": {"class": own}}
    assert nearest(Store(entries=entries, levels=levels, engines={}), elsewhere).level == own
