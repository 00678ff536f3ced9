"""Without load, `simulate` says what `estimate` says: the same steps, at the same times."""

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.engines.overhead import overheads_of
from archsim.engines.prompt_cut import prompt_cut
from archsim.graph.step import Step
from archsim.serving.steady_state import SteadyState
from archsim.spec.engine import load_engine
from archsim.spec.load import load_hardware, load_model
from archsim.spec.parallelism import Plan
from archsim.timing.prompt_steps import prompt_steps
from archsim.timing.step_pricer import StepPricer

ENGINES = ("generic", "vllm", "vllm@0.6", "sglang", "trtllm", "llamacpp", "tgi")
MODELS = ("phi-4", "qwen3-30b-a3b", "gemma3-12b")
LENGTHS = (300, 513, 700, 2049, 9000, 40_000)
OFF = 0.006
"""Of a table of steps, and of chunks that stand for others; captured graphs pad small steps by up to half a percent."""


def ttft_of_both(model: str, engine: str, length: int) -> tuple[float, float]:
    """Seconds by `estimate`, and by `simulate` with one request at a time."""
    load = {"engine": engine, "input_len": length, "output_len": 8}
    alone = archsim.estimate(model, "h100", **load)  # type: ignore[arg-type]
    served = archsim.simulate(
        model, "h100", concurrency=1, requests=2, replications=1, expected_only=True, prefix_cache="off", **load
    )  # type: ignore[misc]
    ttft = alone.metrics["ttft_s"]
    assert ttft is not None
    return ttft, served.observed.latencies["ttft_engine_s"]["mean"].value


@pytest.mark.parametrize(("engine", "length"), [("llamacpp", 513), ("vllm@0.6", 2049), ("vllm", 9000)])
def test_a_prompt_beyond_a_step_takes_as_long_alone_as_under_no_load(engine: str, length: int) -> None:
    """A prompt of 513 tokens takes llama.cpp a second step, which reads all weights again."""
    alone, served = ttft_of_both("qwen3-30b-a3b", engine, length)
    assert served == pytest.approx(alone, rel=OFF)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_zero_load_is_the_estimate(model: str, engine: str) -> None:
    """Prompts around and beyond a step of every engine whose schedule is known; refused ones exceed a whole step."""
    for length in LENGTHS:
        try:
            alone, served = ttft_of_both(model, engine, length)
        except UsageError:
            context = load_model(model).max_context
            assert context and not prompt_cut(choose_engine(engine).rules.scheduler, load_hardware("h100"), context)
            continue
        assert served == pytest.approx(alone, rel=OFF), length


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 512), (1, 513), (3, 300), (4, 2049), (2, 5120), (7, 511)])
def test_steps_hold_every_token_of_the_prompts(batch: int, length: int) -> None:
    """Tokens, and pairs of tokens in attention, are those of the whole prompts where these are cut alone."""
    whole = Step.prefill(batch, length)
    parts = prompt_steps(whole, 512)
    assert sum(count * step.tokens for count, step in parts) == pytest.approx(whole.tokens)
    assert all(step.tokens <= 512 + 1e-9 for _, step in parts)
    if batch == 1:
        assert sum(count * step.pairs() for count, step in parts) == pytest.approx(whole.pairs())


def test_a_prefill_in_steps_adds_up() -> None:
    """Operations are those of the whole prompt; weights are read once a step; each kernel has one row."""
    model, hardware = load_model("llama3.1-8b"), load_hardware("h100")
    engine = load_engine("llamacpp")
    overheads = overheads_of("llamacpp", measured={}, document=engine)
    pricer = StepPricer.of(model, hardware, choose_formats(model), overheads, Plan())
    one, four = (pricer.prefill(Step.prefill(1, tokens)) for tokens in (512, 2048))
    assert len({row.path for row in four.ops}) == len(four.ops) == len(one.ops)
    assert four.total("weight_bytes") == pytest.approx(4 * one.total("weight_bytes"), rel=1e-3)
    assert four.expected_s == pytest.approx(sum(row.expected_s for row in four.ops), rel=1e-9)
    assert four.low_s < four.expected_s < four.high_s
    assert float(pricer.prefill_ideal_s(Step.prefill(1, 2048))) == pytest.approx(float(four.ideal_s))


AGREES = {"tpot": 0.06, "rate": 0.055}
"""How far the closed form may be from `simulate`, where all requests have room: of TPOT, and of tokens per second."""

SHAPES = (
    (300, 65, 4),
    (300, 65, 64),
    (1024, 65, 16),
    (1024, 65, 256),
    (1024, 500, 64),
    (4000, 65, 64),
    (1024, 2000, 8),
)
"""Prompt, answer and requests in flight."""


def _both_ways(
    model: str, device: str, engine: str, prompt: int, answer: int, concurrency: int, requests: int
) -> tuple[SteadyState, float, float]:
    """The closed form, and TPOT and output tokens a second of the simulated loop, of requests of different lengths, of
    which many follow each other in every place: the first wave is in step.
    """
    load = {"engine": engine, "concurrency": concurrency}
    found = archsim.simulate(
        model,
        device,
        requests=requests,
        input_len=prompt,
        output_len=answer,
        length_spread=0.8,
        replications=1,
        expected_only=True,
        prefix_cache="off",
        first_wave="drop",
        **load,
    )  # type: ignore[misc]
    means = {"input_len": round(found.usual.input_len), "output_len": round(found.usual.output_len)}
    closed = archsim.estimate(model, device, **means, **load).serving  # type: ignore[arg-type]
    assert closed is not None
    rate = found.throughput()["output_tokens_per_s"].value
    return closed, found.observed.latencies["tpot_s"]["mean"].value, rate


@pytest.mark.slow
@pytest.mark.parametrize("answer", [100, 500])
@pytest.mark.parametrize("concurrency", [4, 16, 64])
@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm"])
def test_a_closed_loop_has_the_closed_forms_tpot(engine: str, concurrency: int, answer: int) -> None:
    """Usual loads on one device that was measured."""
    off = 0.035 if engine == "sglang" or answer > 100 else 0.08
    closed, tpot, _ = _both_ways("llama3.1-8b", "h100", engine, 1024, answer, concurrency, 40 * concurrency)
    assert closed.tpot.expected == pytest.approx(tpot, rel=off)


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "answer", "concurrency"), SHAPES)
@pytest.mark.parametrize("engine", ["vllm", "vllm@0.6", "sglang", "trtllm", "tgi"])
@pytest.mark.parametrize(("model", "device"), [("llama3.1-8b", "h100"), ("llama3.1-8b", "a100"), ("phi-4", "h100")])
def test_a_closed_loop_is_the_closed_form(
    model: str, device: str, engine: str, prompt: int, answer: int, concurrency: int
) -> None:
    """Short and long prompts and answers, few and many requests, on two devices and models."""
    closed, tpot, rate = _both_ways(model, device, engine, prompt, answer, concurrency, 25 * concurrency + 200)
    assert closed.tpot.expected == pytest.approx(tpot, rel=AGREES["tpot"])
    assert closed.tokens_per_s == pytest.approx(rate, rel=AGREES["rate"])
