"""More of a device, or less work, never takes longer."""

from __future__ import annotations

import numpy as np
import pytest

from archsim.base.units import parse_quantity
from archsim.counts.formats import choose_formats
from archsim.graph.step import Step
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.classes.call import KernelCall
from archsim.timing.kernel_timer import timer
from archsim.timing.step_pricer import StepPricer, engine_overheads


def faster(hardware: Hardware, bandwidth: float, peak: float) -> Hardware:
    """The device with its bandwidth and peaks multiplied; its name stays."""
    rate = float(parse_quantity(hardware.memory.bandwidth, "B/s")) * bandwidth
    memory = hardware.memory.model_copy(update={"bandwidth": f"{rate:.12g} B/s"})
    peaks = {
        dtype: entry.model_copy(
            update={
                unit: f"{float(parse_quantity(value, 'FLOP/s')) * peak:.12g} FLOP/s"
                for unit, value in entry.model_dump(exclude_none=True, include={"matrix", "vector"}).items()
            }
        )
        for dtype, entry in hardware.compute.peak.items()
    }
    compute = hardware.compute.model_copy(update={"peak": peaks})
    copy = hardware.model_copy(update={"memory": memory, "compute": compute})
    for derived in set(copy.__dict__) - set(Hardware.all_fields):
        del copy.__dict__[derived]
    return copy


@pytest.mark.sampled(16)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize(
    ("model", "weights", "device"),
    [
        ("minimax-text-01", "fp8", "rtx-3090"),
        ("mixtral-8x7b", "bf16", "t4"),
        ("llama3-8b", "bf16", "a30"),
        ("qwen3-30b-a3b", "bf16", "h20"),
    ],
)
def test_a_device_with_higher_rates_is_never_slower(model: str, weights: str, device: str, engine: str) -> None:
    """The fit that stands for a device follows from what it is, so that no rate moves it to slower kernels."""
    spec, hardware = load_model(model), load_hardware(device)
    formats = choose_formats(spec, weights, None, engine=engine)
    before = dict.fromkeys(("bandwidth", "peak"), (float("inf"),) * 3)
    for by in (1.0, 1.3, 2.0, 4.0):
        for name, scales in {"bandwidth": (by, 1.0), "peak": (1.0, by)}.items():
            pricer = StepPricer.of(spec, faster(hardware, *scales), formats, engine_overheads(engine), Plan())
            steps = Step.prefill(1, 64), Step.prefill(1, 4096), Step.decode(8, 2048)
            now = tuple(pricer.price(step).expected_s for step in steps)
            assert all(new <= old * (1 + 1e-9) for new, old in zip(now, before[name], strict=True)), (name, by)
            before[name] = now


@pytest.mark.parametrize(
    ("model", "weights", "device", "plan"),
    [
        ("llama4-maverick", "fp8", "a10", Plan(pp=4)),
        ("glm-5", None, "gaudi-3", Plan(tp=2, pp=2)),
        ("t5-large", None, "a100-sxm-80gb", Plan(pp=2)),
    ],
)
def test_a_longer_prompt_takes_longer_through_a_pipeline(
    model: str, weights: str | None, device: str, plan: Plan
) -> None:
    """Each piece reads the weights, so that cutting a prompt of many experts into more pieces does not speed it up."""
    spec, hardware = load_model(model), load_hardware(device)
    formats = choose_formats(spec, weights, None)
    pricer = StepPricer.of(spec, hardware, formats, engine_overheads(), plan)
    tokens = np.arange(1536, 8193, 128)
    by_length = Step.prefill(1, tokens, tokens if spec.encoder is not None else None)
    by_batch = Step.prefill(np.arange(1, 33), 512, 512 if spec.encoder is not None else None)
    for step in (by_length, by_batch):
        times = pricer.prefill(step).expected_s
        assert np.all(times[1:] >= np.maximum.accumulate(times)[:-1] * (1 - 1e-3))


def test_arrays_of_prefills_in_a_pipeline_equal_single_ones() -> None:
    """Also where some prompts are shorter than a piece and others longer."""
    spec, hardware = load_model("llama4-maverick"), load_hardware("a10")
    pricer = StepPricer.of(spec, hardware, choose_formats(spec, "fp8", None), engine_overheads(), Plan(pp=4))
    tokens = np.array([512, 2048, 3000, 5000])
    together = pricer.prefill(Step.prefill(1, tokens)).expected_s
    alone = [pricer.prefill(Step.prefill(1, int(n))).expected_s for n in tokens]
    assert together == pytest.approx(alone, rel=1e-9)


def test_an_implementation_is_not_left_for_one_that_cannot_run_the_call() -> None:
    """Above the tokens that any was measured at: experts without a gate, whose kernel is faster, are no such kernel."""
    clock = timer(load_hardware("rtx-6000-ada"), "trtllm")
    dims = {"experts": 128, "topk": 4, "hidden": 2880, "inter": 2880, "tp": 1, "ep": 1, "gated": 1}
    times = [clock.time(KernelCall("moe", "bf16", dims={**dims, "m": m})).expected for m in (16_384, 16_385, 20_000)]
    assert times == sorted(times)
    tokens = np.array([16_384.0, 16_385.0, 20_000.0])
    assert clock.time(KernelCall("moe", "bf16", dims={**dims, "m": tokens})).expected == pytest.approx(times)


def test_a_prompt_that_begins_a_tile_is_no_faster_through_a_pipeline_than_a_shorter_one() -> None:
    """Pieces are counted in whole tiles: 2,435 tokens had filled the stages less well than 2,656 for as many tiles."""
    spec, hardware = load_model("phi-3-mini-4k"), load_hardware("h100-nvl")
    formats = choose_formats(spec, "fp8", None, engine="sglang")
    pricer = StepPricer.of(spec, hardware, formats, engine_overheads("sglang"), Plan(pp=4))
    tokens = np.unique(np.round(2 ** np.arange(10, 14.01, 0.125)))
    times = pricer.prefill(Step.prefill(1, tokens)).expected_s
    assert np.all(times[1:] >= np.maximum.accumulate(times)[:-1] * (1 - 1e-3))
