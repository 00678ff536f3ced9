"""How tokens reach experts on other ranks: what an engine's document says becomes the kernels of a step."""

from __future__ import annotations

import pytest

from archsim.counts.count import step_for
from archsim.counts.formats import Formats, choose_formats
from archsim.graph.kernels import kernels_with_edges
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.expert_exchange import multiprocessors
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import lower_to_calls
from archsim.timing.kernel_timer import timer
from archsim.timing.step_by_format import StepByFormat
from archsim.timing.step_pricer import StepPricer, engine_overheads

EXCHANGES = {"moe_dispatch", "moe_combine", "nccl_all_gather", "nccl_reduce_scatter", "nccl_alltoall"}
MODEL, TOKENS = "qwen3-30b-a3b", 4


def formats(weights: str | None = None) -> Formats:
    """Formats of the model."""
    return choose_formats(load_model(MODEL), weights, None, engine="generic")


def pricer(engine: str, ranks: int, weights: str | None = None, hw: str = "h100-sxm", tp: int = 1) -> StepPricer:
    """Attention over `ranks` replicas, experts over all devices."""
    plan = Plan(tp=tp, dp=ranks, ep=ranks * tp)
    return StepPricer.of(load_model(MODEL), load_hardware(hw), formats(weights), engine_overheads(engine), plan)


def calls(engine: str, ranks: int, weights: str | None = None, tp: int = 1) -> list[KernelCall]:
    """The calls of a decode step with so many tokens a rank."""
    one = pricer(engine, ranks, weights, tp=tp)
    step = step_for(load_model(MODEL), TOKENS * ranks, 1, 1000, 1001)
    costs = one.price(step).rank.costs
    kernels = [kernel for kernel, _ in kernels_with_edges(one.graphs.rank(step, one.plan))]
    found = lower_to_calls(kernels, [cost.traffic for cost in costs], one.call_rules(step))
    return [call for fused in found for call in fused.calls]


def exchanges(engine: str, ranks: int, weights: str | None = None, tp: int = 1) -> list[tuple[str, str]]:
    """Class and format of the calls that exchange tokens, each once."""
    found = calls(engine, ranks, weights, tp)
    return list(dict.fromkeys((call.kernel_class, call.dtype) for call in found if call.kernel_class in EXCHANGES))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tokens_are_gathered_in_a_server_and_dispatched_beyond(engine: str) -> None:
    """Up to the ranks of the document all-gather and reduce-scatter, from there on kernels of expert parallelism."""
    inside, beyond = exchanges(engine, 8), exchanges(engine, 16)
    assert [name for name, _ in inside][:2] == ["nccl_all_gather", "nccl_reduce_scatter"]
    assert [name for name, _ in beyond] == ["moe_dispatch", "moe_combine"]
    assert {call.kernel_class for call in calls(engine, 16)} >= {"moe_wideep"}
    assert "moe_wideep" not in {call.kernel_class for call in calls(engine, 8)}


def test_engines_that_say_nothing_take_the_collective_library() -> None:
    """An all-to-all of rows in 16 bits."""
    assert [name for name, _ in exchanges("generic", 16)] == ["nccl_alltoall"]
    assert [name for name, _ in exchanges("vllm@0.8", 16)] == ["nccl_alltoall"]


def test_tokens_travel_as_the_experts_read_them() -> None:
    """8 bits to experts in FP8, 16 to others; results come back in 16 bits."""
    assert exchanges("sglang", 16, "fp8_block") == [("moe_dispatch", "fp8"), ("moe_combine", "bf16")]
    assert exchanges("sglang", 16) == [("moe_dispatch", "bf16"), ("moe_combine", "bf16")]


def test_extents_are_the_graphs() -> None:
    """A rank's tokens, experts a token picks, the model's width; tensor ranks each exchange for their own experts."""
    model = load_model(MODEL)
    (call,) = {id(c): c for c in calls("sglang", 16) if c.kernel_class == "moe_dispatch"}.values()
    assert (call.dims["m"], call.dims["topk"], call.dims["hidden"], call.dims["n_gpus"]) == (
        TOKENS,
        8,
        model.d_model,
        16,
    )
    halves = next(c for c in calls("sglang", 16, tp=2) if c.kernel_class == "moe_dispatch")
    assert (halves.dims["m"], halves.dims["topk"], halves.dims["stride"]) == (TOKENS, 4, 2)


def test_experts_of_an_exchange_are_those_that_its_ranks_hold() -> None:
    """On the way out and back, with tensor ranks half of them each."""
    for tp, held in ((1, 128), (2, 64)):
        found = [c for c in calls("sglang", 16, tp=tp) if c.kernel_class in ("moe_dispatch", "moe_combine")]
        assert {(c.kernel_class, c.dims["experts"]) for c in found} == {("moe_dispatch", held), ("moe_combine", held)}


ONE = {"m": 512.0, "topk": 2, "hidden": 4096, "n_gpus": 8, "picked": 1}
"""Tokens that are sent once for each of their experts."""


def exchange_seconds(constants: dict[str, float] | None = None, **dims: float) -> float:
    """Seconds by the formula on an H100, with the usual constants but for those given."""
    model = MODELS["moe_dispatch"]
    all_constants = {**{name: one.usual for name, one in model.constants.items()}, **(constants or {})}
    call = KernelCall("moe_dispatch", "fp8", dims={**ONE, **dims})
    return float(model.formula(call, DeviceRates(load_hardware("h100-sxm")), all_constants))


def test_kernels_that_send_for_every_expert_start_a_multiprocessor_for_each() -> None:
    """Eight experts keep eight busy, 128 as many; 256 two warp groups on 128, and no more than the device has."""
    machine = DeviceRates(load_hardware("h100-sxm"))

    def started(experts: float, **dims: float) -> float:
        call = KernelCall("moe_dispatch", "fp8", dims={**ONE, "experts": experts, **dims})
        return float(multiprocessors(call, machine))

    assert [started(n) for n in (8, 128, 256, 384)] == [8, 128, 128, 128]
    assert started(8, picked=0) == 20 and started(8, sms=12) == 12
    many = exchange_seconds({"link": 1.0, "floor_us": 1.0}, experts=128)
    assert exchange_seconds({"link": 1.0, "floor_us": 1.0}, experts=8) > 2.5 * many


def test_a_token_alone_takes_longer_than_its_share_of_a_busy_multiprocessor() -> None:
    """The wider the longer: what few tokens take is no floor alone."""
    narrow, wide = (exchange_seconds({"flight": 9.0}, m=1, hidden=hidden) for hidden in (2048, 7168))
    assert wide - narrow > 5 * (exchange_seconds({"flight": 0.1}, m=1, hidden=7168) - narrow)
    assert wide > narrow


def test_what_a_loop_takes_on_the_host_is_in_no_step() -> None:
    """Rows of one table stand at 70 us up to 128 tokens, since they were launched one by one."""
    for op in ("moe_dispatch", "conv1d_prefill"):
        model, machine = MODELS[op], DeviceRates(load_hardware("h100-sxm"))
        dims = ONE if op == "moe_dispatch" else {"m": 64.0, "n": 8192, "k": 4, "batch": 1, "seq_q": 64}
        quick = {name: one.usual for name, one in model.constants.items()}
        slow = {**quick, "host_us": 400.0}
        step = KernelCall(op, "bf16", dims=dict(dims))
        row = model.prepare(step._replace(kernel="timed alone"))
        assert model.formula(step, machine, slow) == model.formula(step, machine, quick)
        assert model.formula(row, machine, slow) >= 400e-6 > model.formula(row, machine, quick)


def test_work_of_an_exchange_is_the_graphs() -> None:
    """The bound of the call is that of the graph's collective, and no time is below it."""
    one = pricer("sglang", 16)
    step = step_for(load_model(MODEL), TOKENS * 16, 1, 1000, 1001)
    machine = DeviceRates(load_hardware("h100-sxm"))
    stated = sorted({cost.comm_s for cost in one.price(step).rank.costs if cost.path.endswith("all_to_all")})
    found = [c for c in calls("sglang", 16) if c.kernel_class in ("moe_dispatch", "moe_combine")]
    least = sorted({MODELS[c.kernel_class].minimum_work(c, machine).comm_s for c in found})
    assert least == pytest.approx(stated)
    clock = timer(load_hardware("h100-sxm"), "sglang")
    assert all(clock.time(c).low >= MODELS[c.kernel_class].bound(c, machine)[2] for c in found)


def test_low_latency_kernels_take_few_tokens_and_others_many() -> None:
    """The fastest that can run so many: time rises without a jump down where one gives way to the other."""
    clock = timer(load_hardware("h100-sxm"), "sglang")
    times = []
    for tokens in (1, 16, 128, 1024, 2048, 8192, 65536):
        dims = {"m": tokens, "topk": 8, "hidden": 7168, "n_gpus": 8}
        times.append(clock.time(KernelCall("moe_dispatch", "fp8", dims=dims)).expected)
    assert times == sorted(times)
    assert times[1] < 60e-6


def test_vendors_without_such_tables_take_the_all_to_all() -> None:
    """Nothing was measured of them: the class of collectives says more."""
    clock = timer(load_hardware("mi300x"), "sglang")
    dims = {"m": 64.0, "topk": 8, "hidden": 7168, "n_gpus": 16}
    call = KernelCall("moe_combine", dims=dims)
    general = MODELS["moe_combine"].as_general(call)
    assert clock.time(call) == clock.time(general)
    assert general.dims["bytes"] == 64 * 8 * 7168 * 2


def test_formats_one_after_another_are_each_their_own() -> None:
    """The dispatch follows the format of the experts, though it reads no weight."""
    one = pricer("sglang", 16)
    step = step_for(load_model(MODEL), TOKENS * 16, 1, 1000, 1001)
    quick = StepByFormat(one, step)
    for weights in ("bf16", "fp8_block"):
        assert quick.price(formats(weights)).expected_s == pytest.approx(
            pricer("sglang", 16, weights).price(step).expected_s
        )
