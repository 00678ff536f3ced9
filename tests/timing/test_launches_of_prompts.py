"""Steps with prompts that no captured graph holds: the host launches their kernels, and a fast device waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from archsim.counts.formats import choose_formats
from archsim.engines.overhead import HostWork
from archsim.graph.step import Step
from archsim.serving.step_times import ExactSteps, StepTable
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.step_pricer import StepPricer, engine_overheads


def pricer(engine: str, model: str = "llama3.1-70b", tp: int = 8, launch_us: float | None = None) -> StepPricer:
    """A pricer on B200s, with another time for each launch where one is given."""
    found, overheads = load_model(model), engine_overheads(engine)
    if launch_us is not None:
        launch = (1e-6 * launch_us,) * 3
        overheads = overheads._replace(host=HostWork(overheads.host.step_s, overheads.host.sequence_s, launch))
    formats = choose_formats(found, "fp8" if model.startswith("llama") else None, engine=engine)
    return StepPricer.of(found, load_hardware("b200"), formats, overheads, Plan(tp=tp, engine="vllm"))


def test_prompts_beyond_the_largest_graph_take_their_launches() -> None:
    """512 tokens run in a graph; from one more on each kernel is launched, until the device is slower than the host."""
    eager, captured = pricer("vllm", launch_us=50), pricer("vllm", launch_us=0)
    at = {n: float(eager.price(Step.prefill(1, n)).expected_s) for n in (512, 513, 1024, 32_768)}
    without = {n: float(captured.price(Step.prefill(1, n)).expected_s) for n in at}
    launches = eager.price(Step.prefill(1, 1024)).rank.launches
    assert at[512] == without[512] and at[32_768] == without[32_768]
    assert at[513] == at[1024] > 1.5 * without[1024]
    assert at[1024] == pytest.approx(launches * 50e-6 + float(eager.overheads.host.time(1)))


@pytest.mark.parametrize("step", [Step.decode(256, 4096), Step.decode(700, 4096, new=4)])
def test_decodes_and_verified_drafts_run_in_graphs(step: Step) -> None:
    assert pricer("vllm", launch_us=50).price(step).expected_s == pricer("vllm", launch_us=0).price(step).expected_s


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm@0.7"])
def test_engines_whose_graphs_of_prompts_are_not_known_wait_for_none(engine: str) -> None:
    assert pricer(engine).prompt_graphs is None


def on_amd(engine: str, device: str, model: str = "deepseek-r1") -> StepPricer:
    """A pricer on eight devices of AMD."""
    found = load_model(model)
    formats = choose_formats(found, engine=engine)
    plan = Plan(tp=8, engine="sglang")
    return StepPricer.of(found, load_hardware(device), formats, engine_overheads(engine), plan)


@pytest.mark.parametrize("device", ["mi300x", "mi325x", "mi355x"])
def test_short_prompts_wait_for_the_host_of_the_device(device: str) -> None:
    """Where runs say what a launch takes; long ones do not, nor do decodes."""
    times = on_amd("sglang", device)
    fit = times.timer.architecture
    assert fit is not None and fit.prompt_launch_s[0] > 0
    short, long = (times.price(Step.prefill(1, n)) for n in (256, 16_384))
    step_s = float(times.overheads.host.time(1))
    assert float(short.expected_s) == pytest.approx(float(short.rank.launches) * fit.prompt_launch_s[0] + step_s)
    assert short.low_s < short.expected_s < short.high_s
    bare = replace(on_amd("sglang", device), prompt_graphs=None)
    for step in (Step.prefill(1, 16_384), Step.decode(64, 4096)):
        assert times.price(step).expected_s == bare.price(step).expected_s
    assert long.expected_s > short.expected_s > bare.price(Step.prefill(1, 256)).expected_s


def test_hosts_of_one_architecture_differ() -> None:
    """The same kernels: what a short prompt takes is the host's."""
    first, second = (float(on_amd("sglang", device).price(Step.prefill(1, 256)).expected_s)
                     for device in ("mi300x", "mi325x"))  # fmt: skip
    assert first > 1.5 * second


def test_an_engine_that_borrows_gaps_does_not_borrow_a_host() -> None:
    times = on_amd("vllm", "mi300x")
    assert times.timer.architecture is not None and times.timer.architecture.prompt_launch_s[0] == 0
    assert times.overheads.host == engine_overheads("vllm").host


@pytest.mark.slow
@pytest.mark.parametrize(("decodes", "context", "chunks"), [
    (0, 0, [(256, 0)]), (0, 0, [(922, 0), (900, 0)]), (0, 0, [(12_000, 0)]), (64, 96_000, []),
])  # fmt: skip
def test_tables_of_engines_without_graphs_of_prompts_wait(
    decodes: int, context: int, chunks: list[tuple[int, int]]
) -> None:
    times = on_amd("sglang", "mi325x")
    table, exact = StepTable(times, tokens=16_384, sequences=128), ExactSteps(times)
    assert table.seconds(decodes, context, chunks) == pytest.approx(exact.seconds(decodes, context, chunks), rel=5e-4)


def test_gpt_oss_is_captured_further() -> None:
    assert pricer("vllm", "gpt-oss-120b", 2).prompt_graphs == 1024


@pytest.mark.parametrize(
    ("decodes", "context", "chunks"),
    [
        (0, 0, [(1024, 0)]), (8, 8_000, [(1024, 0)]), (64, 96_000, [(400, 0)]), (64, 96_000, [(600, 0), (700, 100)]),
        (10, 10_000, [(5, 900)]), (600, 60_000, [(1, 99)]), (8, 8_000, [(8_000, 0)]),
    ],
)  # fmt: skip
def test_tables_of_steps_wait_as_steps_do(decodes: int, context: int, chunks: list[tuple[int, int]]) -> None:
    """The simulation's tables, their intervals and classes."""
    times = pricer("vllm")
    table, exact = StepTable(times, tokens=8192, sequences=640), ExactSteps(times)
    assert table.seconds(decodes, context, chunks) == pytest.approx(exact.seconds(decodes, context, chunks), rel=2e-4)
    found, wanted = table.interval(decodes, context, chunks), exact.time(decodes, context, chunks)
    assert found.low == pytest.approx(float(wanted.low_s), rel=1e-3)
    assert found.high == pytest.approx(float(wanted.high_s), rel=1e-3)
    classes = table.classes(decodes, context, chunks)
    assert sum(classes.values()) == pytest.approx(found.expected, rel=1e-6)


def test_ranks_that_step_together_wait_together() -> None:
    times = pricer("vllm")
    table = StepTable(times, tokens=8192, sequences=64)
    one = table.seconds(8, 8_000, [(1024, 0)])
    assert table.gang_seconds([(8, 8_000, [(1024, 0)]), (8, 8_000, [])]) == pytest.approx(one, rel=1e-6)
