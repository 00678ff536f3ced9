"""The plan that is taken where none is asked for: replicas of the attention that share the experts, uneven experts, and
what plans are ranked by.
"""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import AnswerNo, InvalidPlan
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.step_graphs import rank_mesh
from archsim.graph.passes.shard import shard
from archsim.predict.what_fits import what_fits
from archsim.spec.load import load_hardware, load_model
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan, check, fullest_share, tp_degrees

RACK = "gb200-nvl72-rack"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("devices", [64, 72])
def test_a_rack_runs_deepseek_with_attention_replicas(devices: int) -> None:
    """One replica of the attention on each GPU and the experts over the whole link domain, also where 256 experts do
    not divide by 72, or what is as fast within a hundredth; much faster than tensor parallelism alone, which cuts
    nothing of a latent cache.
    """
    answer = archsim.estimate("deepseek-v3", RACK, devices=devices, batch=1024)
    usual = archsim.estimate("deepseek-v3", RACK, devices=devices, batch=1024, tp=1, dp=devices, ep=devices)
    assert answer.plan.tp <= 2 and answer.plan.ep == devices == answer.plan.tp * answer.plan.dp
    assert answer.memory.fits and answer.decode is not None and usual.decode is not None
    assert answer.decode.expected_s == pytest.approx(usual.decode.expected_s, rel=0.01)
    cut = archsim.estimate("deepseek-v3", RACK, devices=64, tp=64, batch=1024)
    assert cut.decode is not None
    assert not cut.memory.fits
    assert answer.decode.expected_s < cut.decode.expected_s / 2


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_one_request_and_full_load_want_other_plans(objective: Any) -> None:
    """Ranked by a single request's step, tensor parallelism; by tokens per second at full load, replicas."""
    answer = archsim.estimate("deepseek-v3", "h200", devices=8, batch=1, objective=objective)
    assert (answer.plan.dp > 1) == (objective == "throughput")


def test_the_best_plan_is_taken_and_those_near_it_are_listed() -> None:
    """No plan on the same devices that fits has a shorter step; those up to 10 % slower are named."""
    options: dict[str, Any] = {"devices": 8, "batch": 128}
    answer = archsim.estimate("deepseek-v3", "h200", **options)

    def step(**plan: int) -> float:
        found = archsim.estimate("deepseek-v3", "h200", **options, **plan, input_len=2304 - 1, output_len=1).decode
        assert found is not None
        return float(found.expected_s)

    best = step(tp=answer.plan.tp, dp=answer.plan.dp, ep=answer.plan.ep)
    for plan in ({"tp": 8}, {"tp": 4, "dp": 2, "ep": 8}, {"tp": 2, "dp": 4, "ep": 8}, {"tp": 1, "dp": 8, "ep": 8}):
        assert step(**plan) >= best
    assert answer.near
    for ranked in answer.near:
        p = ranked.plan
        assert step(tp=p.tp, dp=p.dp, ep=p.ep) / best == pytest.approx(1 + ranked.slower, rel=0.01)
        assert 0 <= ranked.slower <= 0.1


def test_degrees_that_are_asked_for_stay() -> None:
    for asked in ({"tp": 8}, {"pp": 2}, {"dp": 2, "tp": 4}, {"tp": 1, "dp": 8, "ep": 8}):
        plan = archsim.estimate("deepseek-v3", "h200", devices=8, batch=256, **asked).plan
        assert {name: getattr(plan, name) for name in asked} == asked
    with pytest.raises(InvalidPlan):
        archsim.estimate("deepseek-v3", "h200", devices=8, tp=8, ep=3)


def test_models_without_experts_and_engines_without_replicas_keep_their_plans() -> None:
    for model, engine in (("llama2-70b", "vllm"), ("mixtral-8x7b", "llamacpp"), ("mixtral-8x7b", "vllm@0.6")):
        answer = archsim.estimate(model, "h200", devices=8, batch=256, engine=engine)
        assert answer.plan.dp == 1 and not answer.near


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), [(1, 3072), (256, 8192)])
def test_fit_takes_the_plan_of_estimate(batch: int, length: int) -> None:
    for engine in ("vllm", "sglang"):
        e = archsim.estimate(
            "deepseek-v3", "h200", devices=8, batch=batch, engine=engine, input_len=length - 1000, output_len=1000
        )
        f = archsim.fit(
            "deepseek-v3", "h200", devices=8, batch=batch, engine=engine, max_model_len=length, suggest=False
        )
        assert (f.plan, f.verdict, f.kv_tokens) == (e.plan, e.memory.verdict, e.memory.kv_tokens)


def test_uneven_experts_are_those_of_the_fullest_rank() -> None:
    """256 experts on 72 ranks: 4 on the fullest, whose rows are 4/256 of all; no rank of 64 has more."""
    model = load_model("deepseek-v3")
    plan = check(model, Plan(dp=72, ep=72))
    assert fullest_share(model, 72) == 4 * 72 / 256
    graphs = {n: shard(lower(model, step_for(model, n * 8, 1)), rank_mesh(model, Plan(dp=n, ep=n))) for n in (64, 72)}
    held = {n: [i.tensor.axes["E"] for i in c.inventory(graph) if "E" in i.tensor.axes] for n, graph in graphs.items()}
    assert set(held[72]) == set(held[64]) == {4}
    assert plan.devices == 72
    with pytest.raises(InvalidPlan, match="more than the 256 experts"):
        check(model, Plan(dp=512, ep=512))


def test_a_plan_that_does_not_fit_is_answered_with_one_that_does() -> None:
    """Among the changes that would make it fit is another plan on the same devices."""
    options: Any = {"devices": 64, "tp": 64, "batch": 1024}
    changes = [s.change for s in what_fits(load_model("deepseek-v3"), load_hardware(RACK), options)]
    assert "--tp 1 --dp 64 --ep 64" in changes


def test_key_value_heads_are_shared_evenly() -> None:
    """8 key/value heads on 6 ranks: the 96 query heads divide, but engines refuse to start so."""
    assert archsim.estimate("glm-4.5", "h200").plan.tp == 8
    with pytest.raises(InvalidPlan, match="of the 8 key/value heads") as refusal:
        archsim.estimate("glm-4.5", "h200", tp=6)
    assert refusal.value.hints[0] == "valid degrees: 1, 2, 4, 8, 16, 24, 32, 48, 96"


def test_few_key_value_heads_are_replicated() -> None:
    """As many copies of each head: 10 heads on 20 ranks, one head on any number."""
    assert tp_degrees(load_model("phi-4"), 20) == (1, 2, 5, 10, 20)
    assert 71 in tp_degrees(load_model("falcon-7b"))


@pytest.mark.parametrize(
    ("model", "hw", "batch", "said", "hints"),
    [
        ("llama3.1-405b", "t4", 1, "its weights take", ["a device with more memory"]),
        ("llama3.1-70b", "rtx-4090", 64, "on each of", ["a narrower format", "a smaller batch"]),
    ],
)
def test_what_fits_nowhere_is_answered_with_what_would(
    model: str, hw: str, batch: int, said: str, hints: list[str]
) -> None:
    """Formats that would not fit either are no hint, nor is a smaller batch where the weights alone are too large."""
    with pytest.raises(AnswerNo) as caught:
        archsim.estimate(model, hw, batch=batch)
    assert said in caught.value.message
    assert [hint.partition(":")[0].removesuffix(" or a shorter context") for hint in caught.value.hints] == hints


@pytest.mark.parametrize("engine", ["generic", "llamacpp"])
@pytest.mark.parametrize("device", ["apple-m1-7core", "xeon-8480plus"])
def test_devices_that_no_link_joins_are_refused_by_both(device: str, engine: str) -> None:
    """`fit` refuses in the words of `estimate`."""
    said = []
    for ask in (archsim.estimate, archsim.fit):
        with pytest.raises(InvalidPlan, match="joins 2 devices") as refused:
            ask("falcon3-1b", device, devices=2, engine=engine)
        said.append(str(refused.value))
    assert said[0] == said[1]
