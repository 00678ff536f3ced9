"""Step tables hold the prices of steps: of every class of architecture, with random decodes and chunks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from archsim import api
from archsim.base.errors import UsageError
from archsim.predict.estimate import pricer_for
from archsim.serving.step_times import Captured, Chunk, ExactSteps, StepTable
from archsim.spec.catalog import files
from archsim.spec.engine import load_engine
from archsim.timing.step_pricer import StepPricer

CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": ("llama3.1-8b", "h100", {}),
    "experts": ("qwen3-30b-a3b", "h200-sxm", {"engine": "sglang"}),
    "latent": ("deepseek-v3", "h200-sxm", {"tp": 8}),
    "windowed": ("gpt-oss-20b", "b200", {"engine": "trtllm"}),
    "windowed, wide": ("gemma3-12b", "a100-80gb", {}),
    "recurrent": ("mamba-2.8b", "l40s", {}),
    "gated delta, experts": ("qwen3.5-397b-a17b", "b200", {"tp": 8}),
    "gated delta, hybrid": ("qwen3-next-80b-a3b", "h100", {"tp": 4}),
    "gated delta, decodes as chunks": ("qwen3.5-9b", "h100", {"engine": "vllm@0.22.0"}),
    "gated delta, latent": ("kimi-linear-48b-a3b", "h200-sxm", {"tp": 2}),
    "state space": ("mamba2-2.7b", "a100-80gb", {"weights": "bf16"}),
    "state space, hybrid": ("nemotron-h-8b", "h100", {}),
    "lightning, experts": ("minimax-text-01", "h200-sxm", {"tp": 8}),
    "chunked windows": ("llama4-scout", "h100", {"tp": 4}),
    "replicas, experts": ("qwen3-30b-a3b", "h100", {"dp": 4, "ep": 4}),
    "pipeline": ("qwen2.5-32b", "l40s", {"tp": 2, "pp": 2}),
}

FAST = ("dense", "latent", "windowed", "state space", "gated delta, experts", "replicas, experts")

DRAWN = tuple[int, int, list[Chunk]]


@cache
def _pricer(name: str) -> StepPricer:
    model, device, options = CLASSES[name]
    return pricer_for(api.estimate(model, device, **options))


@cache
def _table(name: str) -> StepTable:
    return StepTable(_pricer(name), tokens=6200, sequences=520, context=24_000)


def _random_step(draw: random.Random) -> DRAWN:
    """To 512 decodes after 12,000 tokens each, to three chunks of 2,048 tokens after 8,192; some of few tokens."""
    decodes = draw.choice([0, draw.randint(1, 512), draw.randint(1, 512), draw.randint(1, 64)])
    some = [draw.choice([draw.randint(1, 2048), int(2 ** draw.uniform(0, 11))]) for _ in range(draw.randint(0, 3))]
    chunks = [(new, draw.choice([0, draw.randint(0, 8192)])) for new in (some if some or decodes else [512])]
    return decodes, decodes * draw.randint(1, 12_000), chunks


def _errors(name: str, count: int, seed: int) -> list[tuple[float, DRAWN]]:
    draw, table, exact = random.Random(seed), _table(name), ExactSteps(_pricer(name))
    steps = [_random_step(draw) for _ in range(count)]
    return sorted((abs(table.seconds(*step) / exact.seconds(*step) - 1), step) for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_a_table_holds_the_prices_of_steps(name: str) -> None:
    """A few dozen of the steps below."""
    assert _errors(name, 24, 3)[-1][0] < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_a_table_holds_the_prices_of_500_steps(name: str) -> None:
    """The 99th percentile within 0.2 %, none above 0.5 %."""
    errors = _errors(name, 500, 11)
    assert errors[-6][0] <= 2e-3, errors[-6:]
    assert errors[-1][0] <= 5e-3, errors[-6:]


def test_a_scan_in_chunks_is_the_sum_of_its_sequences() -> None:
    """Short and long prompts, from the beginning and from inside a chunk, beside decodes: no mean of them."""
    table, exact = _table("state space"), ExactSteps(_pricer("state space"))
    steps: list[DRAWN] = [
        (0, 0, [(17, 206), (17, 0), (691, 0)]), (0, 0, [(2, 0), (607, 0), (166, 1230)]), (9, 9 * 700, [(300, 9000)]),
        (19, 175_712, [(674, 5951), (1593, 0), (1621, 5489)]), (12, 39_228, [(2019, 0), (181, 0), (1663, 2330)]),
    ]  # fmt: skip
    for step in steps:
        assert table.seconds(*step) == pytest.approx(exact.seconds(*step), rel=5e-4), step


def test_last_tokens_of_a_prompt_take_a_state_further() -> None:
    """They run in the kernels of decodes, of attention and of states alike."""
    name = "gated delta, hybrid"
    table, exact = _table(name), ExactSteps(_pricer(name))
    step = (44, 478_632, [(4, 5920), (7, 6949)])
    assert table.seconds(*step) == pytest.approx(exact.seconds(*step), rel=5e-4)


def test_decodes_that_run_as_chunks_beside_prompts_are_in_tables() -> None:
    name = "gated delta, decodes as chunks"
    table, exact = _table(name), ExactSteps(_pricer(name))
    steps: list[DRAWN] = [
        (440, 440 * 480, [(342, 0), (150, 0)]), (64, 64 * 480, [(342, 0)]), (512, 512 * 480, []), (0, 0, [(900, 0)]),
        (44, 478_632, [(4, 5920), (7, 6949)]), (1, 300, [(2048, 0), (1024, 1024)]),
    ]  # fmt: skip
    for step in steps:
        assert table.seconds(*step) == pytest.approx(exact.seconds(*step), rel=2e-3), step


def test_steps_beyond_a_table_are_priced() -> None:
    """More sequences or tokens than it was made for."""
    table = StepTable(_pricer("dense"), tokens=256, sequences=16, context=2048)
    for step in ((40, 40_000, []), (3, 3000, [(5000, 0)]), (3, 3000, [(300, 0), (700, 0)])):
        assert table.seconds(*step) == table.exact.seconds(*step)


def test_a_chunk_of_one_token_is_a_decode() -> None:
    """A step of its own has no kernel for it."""
    for times in (_table("latent"), ExactSteps(_pricer("latent"))):
        assert times.seconds(3, 3000, [(1, 1000)]) == pytest.approx(times.seconds(4, 4000, []), rel=1e-9)


def test_an_empty_step_is_refused() -> None:
    """No sequence, no step."""
    with pytest.raises(UsageError, match="at least one sequence"):
        _table("dense").seconds(0, 0, [])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ["dense", "latent", "gated delta, experts"])
@pytest.mark.parametrize("step", [(40, 80_000, []), (40, 80_000, [(700, 300), (90, 0)]), (0, 0, [(2000, 0)])])
def test_classes_and_ends_are_those_of_the_step(name: str, step: tuple[int, int, Sequence[Chunk]]) -> None:
    """What each class takes adds up to the step; the interval is the pricer's."""
    table, time = _table(name), ExactSteps(_pricer(name)).time(*step)
    classes = table.classes(*step)
    assert sum(classes.values()) == pytest.approx(table.seconds(*step), rel=1e-3)
    for part in time.by_class:
        if part.time.expected > 0.01 * time.expected_s and part.kernel_class != "composition":
            same = sum(p.time.expected for p in time.by_class if p.kernel_class == part.kernel_class)
            assert classes[part.kernel_class] == pytest.approx(same, rel=0.02)
    found = table.interval(*step)
    assert found.low == pytest.approx(time.low_s, rel=0.03) and found.high == pytest.approx(time.high_s, rel=0.03)
    for end in ("low", "high"):
        there = table.at(end, step)
        assert there.seconds(*step) == pytest.approx(getattr(found, end), rel=3e-3)
        assert sum(there.classes(*step).values()) == pytest.approx(there.seconds(*step), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "latent", "gated delta, experts"])
def test_a_table_that_forgets_classes_says_the_same(name: str) -> None:
    """Steps that were asked for before, others, and their reasons."""
    pricer, draw = _pricer(name), random.Random(7)
    table, other = StepTable(pricer), StepTable(pricer)
    before = [_random_step(draw) for _ in range(10)]
    times = [table.seconds(*step) for step in before]
    table.forget_classes()
    assert [table.seconds(*step) for step in before] == times
    for step in [*before, *(_random_step(draw) for _ in range(10))]:
        assert table.seconds(*step) == other.seconds(*step)
        assert table.classes(*step) == other.classes(*step)
        assert table.at("high", step).seconds(*step) == other.at("high", step).seconds(*step)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "gated delta, experts"])
def test_worlds_of_low_and_high_ends_lie_within_the_intervals_of_steps(name: str) -> None:
    """Errors of kernels go one way in all steps, so no step leaves its own interval, and few come far from its end."""
    table, draw = _table(name), random.Random(5)
    low, high = table.at("low"), table.at("high")
    for step in [_random_step(draw) for _ in range(20)]:
        expected, found = table.seconds(*step), table.interval(*step)
        assert found.low * (1 - 2e-2) <= low.seconds(*step) < expected * 0.97
        assert expected * 1.03 < high.seconds(*step) <= found.high * (1 + 2e-2)


@pytest.mark.slow
def test_a_step_runs_in_the_next_captured_graph() -> None:
    """Tokens are padded, attention is not; table and exact price agree."""
    captured = Captured(decodes=(1, 2, 4, 8, 16, 24, 32), mixed=(64, 128))
    assert [captured.padded(n, False) for n in (3, 9, 24, 32, 33)] == [4, 16, 24, 32, 33]
    pricer = _pricer("experts")
    table, plain = (
        StepTable(pricer, tokens=512, sequences=64, context=4096, captured=c) for c in (captured, Captured())
    )
    exact = ExactSteps(pricer, captured=captured)
    for step in ((9, 9000, []), (16, 16_000, []), (33, 33_000, []), (9, 9000, [(60, 0)]), (9, 9000, [(200, 0)])):
        assert table.seconds(*step) == pytest.approx(exact.seconds(*step), rel=2e-3)
    assert table.seconds(9, 9000, []) > plain.seconds(9, 9000, [])
    assert table.seconds(16, 16_000, []) == plain.seconds(16, 16_000, [])


@pytest.mark.parametrize(("engine", "version", "sizes", "beyond"), [
    ("vllm", "", [1, 2, 4, 8, 16, 40, 256, 272, 512], 513), ("vllm", "0.10", [1, 2, 4, 8, 256, 264, 272, 512], 513),
    ("sglang", "", [1, 2, 4, 8, 12, 16, 24, 256], 257),
])  # fmt: skip
def test_graphs_of_engines(engine: str, version: str, sizes: list[int], beyond: int) -> None:
    """Sizes of the engines' own lists, by version; prompts run in vLLM's graphs and beside SGLang's."""
    found = Captured.of(load_engine(engine, version).scheduler.captured, 1024, 256)
    assert set(sizes) <= set(found.decodes) and found.padded(beyond, False) == beyond
    assert found.padded(33, False) == 40 and found.padded(33, True) == (40 if engine == "vllm" else 33)
    assert Captured.of(load_engine("hf").scheduler.captured, 8, 256) == Captured()
    assert max(Captured.of(load_engine("vllm").scheduler.captured, 16, 256).decodes) == 32


def test_graphs_of_every_engine_can_be_listed() -> None:
    """Also of those whose document has sizes alone (Text Generation Inference), with none between or beyond."""
    assert Captured.of(load_engine("tgi").scheduler.captured, 128, 256) == Captured(decodes=(1, 2, 4, 8, 16, 32))
    for engine in files("engines"):
        rule = load_engine(engine).scheduler.captured
        found = Captured.of(rule, 128, 256).decodes
        assert list(found) == sorted(set(found)) and (rule is None or set(rule.sizes) <= {*found, 512})


@pytest.mark.slow
def test_a_gang_waits_for_its_fullest_rank() -> None:
    """Ranks with equal loads are one rank; an idle one changes nothing; the longer attention and tokens decide."""
    table = _table("replicas, experts")
    own = (20, 40_000, [(300, 0)])
    assert table.gang_seconds([own] * 4) == pytest.approx(table.seconds(*own), rel=1e-12)
    assert table.gang_seconds([own, (0, 0, [])]) == pytest.approx(table.seconds(*own), rel=1e-12)
    decodes = (200, 1_000_000, [])
    both = table.gang_seconds([own, decodes])
    assert max(table.seconds(*own), table.seconds(*decodes)) <= both <= table.seconds(200, 1_000_000, [(300, 0)])
    assert table.gang_seconds([decodes, (10, 1000, [])]) == pytest.approx(table.seconds(*decodes), rel=1e-12)
