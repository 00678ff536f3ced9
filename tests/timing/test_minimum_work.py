"""Every call that a graph is lowered to does the work of its kernels: one roofline, whoever asks for it.

Kernels of a fused call together against the calls that do their work: FLOP, HBM bytes and what one rank sends. The
bytes of weights and caches that the time model's formula reads are those of the graph too.
"""

from __future__ import annotations

import pytest

from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import mesh_of
from archsim.graph.kernels import kernels_with_edges, traffics
from archsim.graph.passes.shard import shard
from archsim.graph.step import Step
from archsim.spec.catalog import names
from archsim.spec.load import load_hardware, load_model
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan, tp_degrees
from archsim.timing.classes.catalog import MODELS
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_calls import CallRules, FusedCall, lower_to_calls
from archsim.timing.roofline import Work, times, work
from archsim.timing.step_pricer import StepPricer, engine_overheads

CLOSE = 1e-3

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(model, kernel class) -> why its work differs from the graph's. Five at most."""

MODELS_OF_CATALOG = [entry.name for entry in names("models") if entry.path is not None]
MACHINE: DeviceRates = DeviceRates(load_hardware("h100-sxm"))


def _cases() -> list[tuple[str, int]]:
    found = []
    for name in MODELS_OF_CATALOG:
        degrees = tp_degrees(load_model(name), 8)
        found += [(name, tp) for tp in (1, 8) if tp in degrees]
    return found


def _steps(name: str) -> list[Step]:
    model = load_model(name)
    decode = [step_for(model, 8, 1, 4095, 4096, absorbed=True)] if model.cached else []
    return [step_for(model, 4, 1000), *decode]


def _lowered(name: str, step: Step, tp: int) -> tuple[list[Work], list[FusedCall]]:
    model = load_model(name)
    formats = choose_formats(model, None, None, engine="generic")
    graph = shard(formats.apply(lower(model, step)), mesh_of(tp, 1, 1))
    found = kernels_with_edges(graph)
    moved = traffics(graph, MACHINE.cache_bytes)
    kernels = [kernel for kernel, _ in found]
    works = [work(kernel, part, MACHINE) for kernel, part in zip(kernels, moved, strict=True)]
    return works, lower_to_calls(kernels, moved, CallRules(step, MACHINE))


def _problems(name: str, tp: int) -> list[str]:
    found = []
    for step in _steps(name):
        works, calls = _lowered(name, step, tp)
        for call in calls:
            found += _differences(call, [works[i] for i in call.members]) if call.main else []
    return found


def _differences(call: FusedCall, members: list[Work]) -> list[str]:
    """What the calls' least work states otherwise than the roofline of the kernels that they stand for."""
    least = [MODELS[main.kernel_class].minimum_work(main, MACHINE) for main in call.main]
    operands = sum(MODELS[main.kernel_class].operand_bytes(main) for main in call.main)
    kinds = {main.kernel_class for main in call.main}
    owned = sum(w.traffic.weight if kinds & {"gemm", "moe", "mla_bmm"} else w.traffic.state for w in members)
    if kinds & {"conv1d_prefill", "conv1d_decode"}:  # taps and kept inputs
        owned += sum(w.traffic.weight for w in members)
    pairs = {
        "FLOP": (sum(w.flops for w in least), sum(w.flops for w in members)),
        "bytes": (sum(w.traffic.total for w in least), sum(w.traffic.total for w in members)),
        "sent": (sum(w.comm_bytes for w in least), sum(w.comm_bytes for w in members)),
        "link seconds": (sum(w.comm_s for w in least), sum(w.comm_s for w in members)),
    }
    if owned and len(kinds) == 1:  # keys and values of an encoder are activations
        pairs["weights or cache"] = (operands, owned)
    return [
        f"{'+'.join(sorted(kinds))} {what}: {got:.6g} instead of {wanted:.6g}"
        for what, (got, wanted) in pairs.items()
        if abs(got - wanted) > CLOSE * max(abs(wanted), 1e-12)
    ]


@pytest.mark.slow
def test_there_are_cases_of_every_class() -> None:
    """The whole catalog, alone and on eight ranks; no more than five exceptions."""
    cases = _cases()
    assert len({name for name, _ in cases}) == len(MODELS_OF_CATALOG) >= 186
    assert sum(tp == 8 for _, tp in cases) > 100
    assert len(EXCEPTIONS) <= 5


@pytest.mark.sampled(72)
@pytest.mark.parametrize(("name", "tp"), _cases())
def test_calls_do_the_work_of_their_kernels(name: str, tp: int) -> None:
    """FLOP, HBM bytes and communication agree within 0.1 %."""
    problems = [p for p in _problems(name, tp) if (name, p.split()[0]) not in EXCEPTIONS]
    assert not problems, "\n".join(dict.fromkeys(problems))


@pytest.mark.sampled(72)
@pytest.mark.parametrize("name", MODELS_OF_CATALOG)
def test_no_launch_is_priced_below_its_bound(name: str) -> None:
    """On eight H100, batch 8 and 4k: every fitted time is above the roofline of its kernels, so nothing is lifted."""
    model = load_model(name)
    plan = Plan(tp=max(degree for degree in tp_degrees(model, 8) if degree <= 8))
    formats = choose_formats(model, None, None, engine="generic")
    clock = StepPricer.of(model, load_hardware("h100-sxm"), formats, engine_overheads(), plan)
    steps = [step_for(model, 8, 4096)]
    steps += [step_for(model, 8, 1, 4095, 4096, absorbed=True)] if model.cached else []
    assert [clock.price(step).rank.lifted for step in steps] == [0] * len(steps)


def test_products_of_one_activation_read_it_once() -> None:
    """Q, K and V together move what one product as wide as all three moves; what few tokens need stays in the cache."""
    model = load_model("llama3.1-8b")
    tokens = 32_768
    works, calls = _lowered("llama3.1-8b", step_for(model, 1, tokens), 1)
    fused = next(call for call in calls if len(call.members) == 3)
    moved = sum(works[i].traffic.act for i in fused.members)
    assert moved == pytest.approx(2 * tokens * (4096 + 4096 + 2 * 1024))
    intensities = [works[i].flops / works[i].traffic.act for i in fused.members]
    assert intensities == pytest.approx([intensities[0]] * 3)
    works, calls = _lowered("llama3.1-8b", step_for(model, 1, 100), 1)
    assert sum(w.traffic.act for w in works) == 0


def test_products_are_bound_by_the_dtype_that_each_multiplies_in() -> None:
    """DeBERTa projects relative positions in fp32, and multiplies all pairs in 16 bits."""
    works, calls = _lowered("deberta-base", step_for(load_model("deberta-base"), 8, 4096), 1)
    attention = next(call for call in calls if call.main[0].kernel_class == "attn_encoder")
    done = dict(works[attention.members[0]].matrix)
    assert done["fp32"] == 2 * 2 * (1024 * 768 * 768) and done["bf16"] > 100 * done["fp32"]
    compute, _, _ = times(works[attention.members[0]], MACHINE)
    peaks = {dtype: MACHINE.matrix_flops(dtype) for dtype in done}
    assert compute >= done["bf16"] / peaks["bf16"]
    assert compute < (done["bf16"] + done["fp32"]) / peaks["fp32"] / 4
    assert {call.dtype for call in attention.main} == {"bf16", "fp32"}
    assert min(call.dims["hbm_bytes"] for call in attention.main) >= 0
