"""`archsim simulate`: its limits against the pricer and the closed form, its JSON, its refusals."""

from __future__ import annotations

import json
from math import isclose
from typing import Any

import pytest

import archsim
from archsim.base.errors import AnswerNo, UsageError
from archsim.graph.step import Step
from archsim.predict.served_engine import at_end, half_octave
from archsim.predict.simulation import Simulation
from archsim.serving.steady_state import steady
from archsim.spec.catalog import files
from archsim.spec.engine import load_engine

SMALL = ("gpt2-small", "h100")


ENDED = "only where earlier prompts ended, where an earlier prompt left what it had in common"


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, engine, says, hits",
    [("gemma3-1b", "vllm", ENDED, [0, 0, 512, 512]), ("gemma3-1b", "vllm@0.28", "as in the others", [0, 512, 512, 512]),
     ("qwen3.5-0.8b", "vllm", ENDED, [0, 0, 512, 512]), ("qwen3.5-0.8b", "vllm@0.25", "no prompt finds", [0] * 4),
     ("qwen3.5-0.8b", "sglang", "where requests ended, where an earlier prompt left", [0, 0, 512, 512]),
     ("llama3.2-1b", "vllm", None, [0, 512, 512, 512])],
)  # fmt: skip
def test_prefixes_of_layers_that_keep_less(model: str, engine: str, says: str | None, hits: list[int]) -> None:
    """Of prompts that share 512 tokens, by version: the first leaves nothing at their end, the second does; said as an
    assumption where prompts begin alike.
    """
    options: dict[str, Any] = {"arrival": "constant", "rate": 0.2, "requests": 4, "replications": 1, "seed": 1,
                               "expected_only": True, "input_len": 700, "output_len": 8, "engine": engine}  # fmt: skip
    shared = archsim.simulate(model, "h100", shared_prefix=512, **options)
    assert list(shared.record.prefix_hit) == hits
    assert says is None or any(says in note.text for note in shared.assumptions)
    alone = archsim.simulate(model, "h100", **options)
    assert not any("layers with a window or a state" in note.text for note in alone.assumptions)


@pytest.mark.slow
def test_one_request_alone_takes_the_price_of_its_steps() -> None:
    """Zero load: TTFT is the prompt's step, TPOT the mean over the contexts of the answer."""
    found = archsim.simulate(*SMALL, rate=0.1, requests=20, input_len=512, output_len=64, replications=1, warmup=0)
    price = found.server.pricer.price
    first = float(price(Step.prefill(1, 512)).expected_s)
    gaps = [float(price(Step.decode(1, 512 + i)).expected_s) for i in range(1, 64)]
    assert isclose(mean_of(found, "ttft_s"), first, rel_tol=2e-3)
    assert isclose(mean_of(found, "tpot_s"), sum(gaps) / len(gaps), rel_tol=1e-3)
    assert mean_of(found, "queue_s") == 0.0


def test_one_request_alone_takes_as_long_through_a_pipeline_as_its_steps() -> None:
    """All stages, one after another; drafts are refused over them."""
    options: dict[str, Any] = {
        "input_len": 512,
        "output_len": 16,
        "replications": 1,
        "warmup": 0,
        "expected_only": True,
    }
    found = archsim.simulate(*SMALL, devices=2, pp=2, rate=0.1, requests=20, **options)
    price = found.server.pricer.price
    gaps = [float(price(Step.decode(1, 512 + i)).expected_s) for i in range(1, 16)]
    assert isclose(mean_of(found, "ttft_s"), float(price(Step.prefill(1, 512)).expected_s), rel_tol=2e-3)
    assert isclose(mean_of(found, "tpot_s"), sum(gaps) / len(gaps), rel_tol=1e-3)
    with pytest.raises(UsageError, match="drafts over 2 pipeline stages"):
        archsim.simulate(*SMALL, devices=2, pp=2, rate=1, requests=20, speculative="ngram:2", acceptance="0.5")


@pytest.mark.slow
def test_the_front_end_comes_before_the_engine() -> None:
    """As stated, or as runs under load say of the engine; the time of the engine stays."""
    options: dict[str, Any] = {"rate": 0.1, "requests": 20, "input_len": 500, "output_len": 4, "replications": 1,
                               "warmup": 0}  # fmt: skip
    alone, stated = archsim.simulate(*SMALL, **options), archsim.simulate(*SMALL, front_end="20,10", **options)
    assert isclose(mean_of(stated, "ttft_s"), mean_of(alone, "ttft_s") + 0.025)
    assert isclose(mean_of(stated, "ttft_engine_s"), mean_of(alone, "ttft_s"))
    measured = archsim.simulate("llama3.1-8b", "h100", engine="vllm", front_end="measured", **options)
    front = measured.to_dict()["engine"]["front_end"]  # type: ignore[index,call-overload]
    longer = mean_of(measured, "ttft_s") - mean_of(measured, "ttft_engine_s")
    assert front["request_s"] > 0 and isclose(longer, front["request_s"] + 500 * front["token_s"])
    assert alone.to_dict()["engine"]["front_end"] is None  # type: ignore[index,call-overload]
    for wrong in ("fast", "-1", "1,2,3", "nan"):
        with pytest.raises(UsageError, match="--front-end"):
            archsim.simulate(*SMALL, front_end=wrong, **options)


def test_a_cache_beyond_any_machine_is_refused() -> None:
    """It would not fit a counter."""
    with pytest.raises(UsageError, match="--kv-tokens"):
        archsim.simulate(*SMALL, rate=1, requests=5, kv_tokens=10**40)


@pytest.mark.slow
def test_steps_larger_than_any_machine_have_no_tables_of_that_size() -> None:
    """A limit of 10^12 tokens a step limits nothing: the answer is that of a limit that is never reached."""
    options: dict[str, Any] = {"rate": 2.0, "requests": 20, "replications": 1, "input_len": 50, "output_len": 5}
    many, few = (archsim.simulate("gpt2-small", "t4", **options, max_num_batched_tokens=tokens).to_dict()["metrics"]
                 for tokens in (10**12, 10**5))  # fmt: skip
    assert many == few


@pytest.mark.slow
def test_prompt_tokens_of_a_step_have_a_limit_of_their_own() -> None:
    """SGLang takes no further prompt beyond it; an engine that has no such limit says so."""
    options: dict[str, Any] = {"rate": float("inf"), "requests": 40, "input_len": 1000, "output_len": 20, "warmup": 0,
                               "replications": 1}  # fmt: skip
    few, many = (archsim.simulate("llama3.1-8b", "h100", **options, engine="sglang", max_prefill_tokens=most)
                 .to_dict()["metrics"]["ttft_s"]["p50"]["value"] for most in (2048, 16_384))  # fmt: skip
    assert few < many
    with pytest.raises(UsageError, match="no limit on the prompt tokens"):
        archsim.simulate("llama3.1-8b", "h100", **options, engine="vllm", max_prefill_tokens=2048)


@pytest.mark.slow
def test_admission_replaces_the_rule_of_the_engine() -> None:
    """TensorRT-LLM keeps room for whole answers; with room for the prompt alone more requests start, and give way."""
    options: dict[str, Any] = {"rate": float("inf"), "requests": 60, "input_len": 300, "output_len": 200, "warmup": 0,
                               "replications": 1, "kv_tokens": 4096, "engine": "trtllm"}  # fmt: skip
    kept, given = (archsim.simulate("llama3.1-8b", "h100", **options, admission=way) for way in ("answer", "chunk"))
    own = archsim.simulate("llama3.1-8b", "h100", **options)
    state = [found.to_dict()["state"] for found in (own, kept, given)]
    assert state[0] == state[1]
    assert state[1]["preemptions"] == 0 < state[2]["preemptions"]  # type: ignore[index,call-overload,operator]
    assert state[1]["running"]["max"] < state[2]["running"]["max"]  # type: ignore[index,call-overload,operator]
    with pytest.raises(UsageError, match="--admission"):
        archsim.simulate("llama3.1-8b", "h100", **options, admission="all")


def mean_of(found: Simulation, metric: str) -> float:
    """The mean of a metric, which is there."""
    value = found.observed.latencies[metric]["mean"]
    assert value is not None
    return value.value


@pytest.mark.slow
def test_tables_answer_as_the_pricer_does() -> None:
    """`exact` prices every step."""
    options: dict[str, Any] = {"concurrency": 4, "requests": 30, "input_len": "uniform:100-300", "output_len": 8,
                               "replications": 1}  # fmt: skip
    tables, exact = (archsim.simulate(*SMALL, exact=way, **options) for way in (False, True))
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert isclose(mean_of(tables, metric), mean_of(exact, metric), rel_tol=2e-3)


@pytest.mark.slow
def test_a_closed_loop_with_spread_lengths_is_the_closed_form() -> None:
    """TPOT and tokens per second of the steady state."""
    model, device = archsim.load_model("llama3.1-8b"), archsim.load_hardware("h100")
    found = archsim.simulate(model, device, concurrency=32, requests=600, input_len=1024, output_len=256,
                             length_spread=0.8, first_wave="drop", replications=1)  # fmt: skip
    prompt, answer = (round(found.workload[key]["mean"]) for key in ("input_len", "output_len"))  # type: ignore[index,call-overload]
    closed = steady(model, device, concurrency=32, input_len=prompt, output_len=answer)
    assert isclose(mean_of(found, "tpot_s"), float(closed.tpot.expected), rel_tol=0.02)
    tokens = found.throughput()["output_tokens_per_s"].value
    assert isclose(tokens, closed.tokens_per_s, rel_tol=0.04)


@pytest.mark.slow
def test_json_has_the_contract_s_keys_and_is_the_same_for_a_seed() -> None:
    """Byte for byte; another seed draws anew."""

    def text(seed: int) -> str:
        options: dict[str, Any] = {"rate": 50.0, "requests": 200, "input_len": "uniform:200-400", "output_len": 20}
        return json.dumps(archsim.simulate(*SMALL, seed=seed, slo="ttft=0.5,tpot=0.05", **options).to_dict())

    assert text(0) == text(0) != text(1)
    found = json.loads(text(0))
    assert found["schema"] == "archsim.simulate/1"
    assert {"model", "hardware", "plan", "engine", "workload", "metrics", "throughput", "slo", "state", "replicas",
            "series", "found", "refused", "evidence", "assumptions", "warnings"} <= found.keys()  # fmt: skip
    mean = found["metrics"]["ttft_s"]["mean"]
    assert mean["low"] < mean["value"] < mean["high"] and mean["sampling_low"] < mean["sampling_high"]
    assert found["metrics"]["ttft_s"]["p99"] is None
    assert {"metric": "ttft_s.p99", "reason": "190 measured requests; it takes 1,000"} in found["refused"]
    assert found["slo"]["met"] is True and found["state"]["stationary"] is True
    assert found["state"]["limited_by"] == "rate"


def test_too_much_load_is_refused_a_ttft() -> None:
    """By the a growing backlog, with their growth; TPOT stays."""
    found = archsim.simulate(*SMALL, rate=1000.0, requests=2000, input_len=500, output_len=50, replications=2,
                             max_num_seqs=16)  # fmt: skip
    assert found.observed.stationary is False and found.observed.backlog_per_s > 0
    assert found.observed.latencies["ttft_s"]["mean"] is None and found.observed.latencies["tpot_s"]["mean"] is not None
    assert found.state["limited_by"] == "sequences"
    assert "not stationary" in str(found)


def test_what_cannot_be_simulated_is_refused() -> None:
    """With what to do."""
    with pytest.raises(UsageError, match="say how requests arrive"):
        archsim.simulate(*SMALL)
    with pytest.raises(UsageError, match="how MLC LLM schedules requests is not known"):
        archsim.simulate(*SMALL, rate=1.0, engine="mlcllm")
    with pytest.raises(UsageError, match="not a decoder"):
        archsim.simulate("bert-base", "h100", rate=1.0)
    with pytest.raises(AnswerNo):
        archsim.simulate("llama2-70b", "t4", rate=1.0, devices=1)
    with pytest.raises(UsageError, match="no request can run"):
        archsim.simulate(*SMALL, rate=1.0, kv_tokens=64, requests=10)
    with pytest.raises(UsageError, match="none is measured"):
        archsim.simulate(*SMALL, rate=1.0, requests=10, warmup=10)
    with pytest.raises(UsageError, match="--first-wave"):
        archsim.simulate(*SMALL, concurrency=2, first_wave="half")
    with pytest.raises(UsageError, match="--chunked-prefill"):
        archsim.simulate(*SMALL, concurrency=2, chunked_prefill="maybe")


def test_a_small_cache_makes_requests_give_way() -> None:
    """Preemptions and what limits the load are on the page and in the JSON."""
    found = archsim.simulate(*SMALL, concurrency=8, requests=100, input_len=100, output_len=200, kv_tokens=1024,
                             replications=1)  # fmt: skip
    assert found.state["preemptions"] > 0 and found.state["limited_by"] == "cache"  # type: ignore[operator]
    assert "preemptions" in str(found) and any(note.code == "W12" for note in found.warnings)


@pytest.mark.slow
def test_prompts_in_the_cache_are_hit_and_nothing_shared_is_as_without() -> None:
    """Half of each prompt is a system prompt; one of length 0 is none; warm hits the first ones too."""
    load: dict[str, Any] = {"rate": 20.0, "requests": 60, "input_len": 128, "output_len": 16, "engine": "vllm",
                            "replications": 1}  # fmt: skip
    off, on, warm = (archsim.simulate(*SMALL, shared_prefix="128:2", prefix_cache=use, **load).state
                     for use in ("off", None, "warm"))  # fmt: skip
    assert off["prefix_hit_share"] == 0.0 and warm["prefix_hit_share"] == 0.5
    assert 0.45 < on["prefix_hit_share"] < 0.5  # type: ignore[operator]
    none, plain = (archsim.simulate(*SMALL, shared_prefix=length, prefix_cache=use, **load).to_dict()
                   for length, use in (("0", "on"), (None, "off")))  # fmt: skip
    assert [none[key] for key in ("metrics", "state", "series")] == [
        plain[key] for key in ("metrics", "state", "series")
    ]
    with pytest.raises(UsageError, match="--prefix-cache"):
        archsim.simulate(*SMALL, prefix_cache="maybe", **load)


@pytest.mark.slow
def test_sglang_finds_prompts_in_its_tree() -> None:
    """By default; `off` computes them all."""
    options: dict[str, Any] = {"rate": 5.0, "requests": 100, "input_len": 50, "shared_prefix": 200, "output_len": 8,
                               "replications": 1, "engine": "sglang"}  # fmt: skip
    shares = [archsim.simulate("llama3.1-8b", "h100", prefix_cache=way, **options).state["prefix_hit_share"]
              for way in (None, "off")]  # fmt: skip
    assert 0.75 < shares[0] < 0.8 and shares[1] == 0  # type: ignore[operator]


@pytest.mark.slow
def test_drafts_cost_their_verification_and_save_what_is_accepted() -> None:
    """The same draws for a seed; acceptance 0 is slower than no drafts, 1 makes 4 tokens a step."""
    load: dict[str, Any] = {"rate": 5.0, "requests": 40, "input_len": 64, "output_len": 41, "replications": 1}

    def run(acceptance: str) -> Simulation:
        return archsim.simulate(*SMALL, speculative="ngram:3", acceptance=acceptance, **load)

    plain, none, every = archsim.simulate(*SMALL, **load), run("0"), run("1")
    assert mean_of(none, "tpot_s") > mean_of(plain, "tpot_s") > 3.5 * mean_of(every, "tpot_s")
    assert none.state["accepted_per_step"] == 0.0 and every.state["accepted_per_step"] == 3.0
    assert plain.state["accepted_per_step"] is None and "speculative ngram:3" in str(every)
    assert json.dumps(run("0.6").to_dict()) == json.dumps(run("0.6").to_dict())


@pytest.mark.slow
def test_the_front_end_that_is_left_out_is_named() -> None:
    """With the option that adds it; not where it is in, nor of engines without runs under load."""
    load: dict[str, Any] = {"concurrency": 2, "requests": 4, "replications": 1, "expected_only": True}
    usual = archsim.simulate(*SMALL, engine="vllm", **load)
    front = usual.to_dict()["engine"]["front_end_left_out"]
    assert front["request_s"] > 0.01 and usual.to_dict()["engine"]["front_end"] is None
    assert "(`--front-end measured`)" in str(usual)
    measured = archsim.simulate(*SMALL, engine="vllm", front_end="measured", **load)
    assert measured.to_dict()["engine"]["front_end"] == front and measured.server.left_out.nothing
    for asked in ({"engine": "vllm", "front_end": "none"}, {"engine": "llamacpp"}):
        assert "--front-end" not in str(archsim.simulate(*SMALL, **asked, **load))


@pytest.mark.slow
def test_a_load_that_piles_up_names_the_replicas_that_serve_it() -> None:
    """About as many as it takes; none for a load that is served."""

    def run(rate: float, replicas: int) -> Simulation:
        return archsim.simulate(
            "llama3.1-8b", "h100", engine="vllm", rate=rate, replicas=replicas, requests=2000, replications=1,
            expected_only=True,
        )  # fmt: skip

    over = run(60, 1)
    enough = over.state["replicas_for_load"]
    assert f"about {enough} replicas would serve them" in str(over)
    assert run(60, enough + 1).state["stationary"] and not run(60, enough - 1).state["stationary"]
    assert run(5, 1).state["replicas_for_load"] is None


def test_a_model_that_does_not_fit_names_the_devices_that_hold_it() -> None:
    """Where any number does."""
    with pytest.raises(AnswerNo) as error:
        archsim.simulate("llama3-70b", "h100", devices=1, rate=1, requests=4)
    assert "`--devices 2`" in error.value.hints[0]
    archsim.simulate("llama3-70b", "h100", devices=2, rate=1, requests=4, replications=1, expected_only=True)


def test_sglang_runs_fewer_requests_with_drafts_where_nobody_says_how_many() -> None:
    """48, of all replicas of the attention together; a stated limit, and other engines, are left alone."""
    load: dict[str, Any] = {"concurrency": 4, "requests": 4, "replications": 1, "expected_only": True,
                            "speculative": "ngram:3", "acceptance": "0.5"}  # fmt: skip

    def most(engine: str, **options: Any) -> int:
        return archsim.simulate(*SMALL, engine=engine, **{**load, **options}).server.policy.max_seqs

    assert most("sglang") == 48 and most("sglang", max_num_seqs=64) == 64
    assert most("sglang", speculative=None, acceptance=None) > 48 and most("vllm") > 48


def test_loads_that_differ_little_share_the_tables_of_the_ends() -> None:
    """Sizes of a usual step are rounded by a fifth at most, and a table at an end is made once for equal ones."""
    assert [half_octave(n) for n in (0.2, 1, 1.3, 2.5, 5.5, 7, 1000)] == [1, 1, 1, 3, 6, 8, 1024]
    assert all(max(half_octave(n) / n, n / half_octave(n)) <= 1.2 for n in range(3, 5000))
    served = archsim.simulate("llama3.2-1b", "h100", engine="vllm", rate=1, requests=20, replications=1).server
    times, steps = served.times(2000), [served.usual_steps(n, 1000, 200) for n in (10, 11, 30)]
    low = [at_end(times, step, -1) for step in steps]
    assert low[0] is low[1] and low[1] is not low[2] and low[0] is not at_end(times, steps[0], 1)
    assert low[0].seconds(8, 8000, ()) < times.seconds(8, 8000, ()) < at_end(times, steps[0], 1).seconds(8, 8000, ())


@pytest.mark.slow
@pytest.mark.parametrize("engine", [name for name in files("engines") if load_engine(name).scheduler.batching])
def test_every_engine_whose_schedule_is_known_serves_a_load(engine: str) -> None:
    """All requests end, and nothing is faster than one request alone."""
    found = archsim.simulate(
        "llama3.2-1b", "h100", engine=engine, rate=2, requests=40, input_len="200", output_len="20", replications=1,
        expected_only=True,
    ).to_dict()  # fmt: skip
    alone = archsim.estimate("llama3.2-1b", "h100", engine=engine, input_len=200, output_len=20).to_dict()["metrics"]
    assert found["throughput"]["output_tokens_per_s"]["value"] > 0
    assert found["metrics"]["tpot_s"]["mean"]["value"] > alone["tpot_s"] * 0.999
    assert found["metrics"]["ttft_s"]["mean"]["value"] > alone["ttft_s"] * 0.999


def test_the_page_names_the_engine_s_own_flag_and_a_changing_rate() -> None:
    """What limits a run, as its engine calls it; the load with its bursts."""
    load: dict[str, Any] = {"requests": 40, "replications": 1, "expected_only": True, "length_spread": 0.8}
    slots = archsim.simulate(*SMALL, engine="llamacpp", concurrency=8, **load)
    assert slots.state["limited_by"] == "sequences" and "run at once (--parallel)" in str(slots)
    burst = archsim.simulate(*SMALL, rate=5, rate_profile="0:1,2:10,4:1", **load)
    assert "5 requests/s, poisson, × 10 from 2 s on, × 1 from 4 s on" in str(burst)
