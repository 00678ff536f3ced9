"""`archsim train`: the contract's object, defaults, layouts that are chosen, and the search behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import archsim
from archsim.base.errors import InvalidPlan, UsageError
from archsim.spec.load import load_hardware, load_model
from archsim.spec.recipe import load_recipe
from archsim.spec.stack import load_stack
from archsim.training.layout import Layout
from archsim.training.optimizers import load_optimizer
from archsim.training.pricer import Setup, TrainingPricer
from archsim.training.search import Fixed, candidates, search


def test_the_object_of_the_contract() -> None:
    found: dict[str, Any] = archsim.train("llama3-8b", "h100", dp=8, zero=3, tokens="1T", recompute="none").to_dict()
    assert found["schema"] == "archsim.train/1"
    assert found["plan"]["dp"] == 8 and found["plan"]["zero"] == 3 and found["plan"]["recipe"] == "bf16"
    held = found["memory"]["per_device"]
    parts = ("weights", "gradients", "optimizer", "saved", "working", "logits", "gathered")
    assert held["peak_allocated_bytes"] == pytest.approx(sum(held[f"{part}_bytes"] for part in parts))
    assert held["low_bytes"] < held["peak_allocated_bytes"] + held["runtime_bytes"] < held["high_bytes"]
    step = found["step"]
    exposed = sum(each["exposed_s"] for each in step["communication"])
    assert step["expected_s"] == pytest.approx(sum(step["parts"].values()) + exposed)
    assert step["ideal_s"] <= step["low_s"] < step["expected_s"] < step["high_s"]
    flops, metrics = found["flops"]["per_token"], found["metrics"]
    assert flops["model_causal"] < flops["model_full"]
    assert metrics["mfu_causal"] < metrics["mfu_full"] < 1
    assert found["run"]["tokens"] == 10**12
    hours = found["run"]["days"] * 24 * 8
    assert found["run"]["device_hours"] == pytest.approx(hours)
    assert found["params"]["total"] == 8_030_261_248


def test_model_flops_are_three_times_the_forward() -> None:
    flops = archsim.train("llama3-8b", "h100", recompute="none").to_dict()["flops"]
    assert flops["backward"] == pytest.approx(2 * flops["forward"])


def test_a_layout_is_chosen_that_fits() -> None:
    answer = archsim.train("llama3-8b", "h100", devices=8)
    assert answer.chosen and answer.fits and answer.layout.devices == 8
    assert not archsim.train("llama3-8b", "h100").fits  # 16 bytes a parameter are 128 GB


def test_what_does_not_fit_says_what_would_help() -> None:
    answer = archsim.train("llama3-8b", "h100", dp=8, zero=0)
    assert not answer.fits and any(each.fits for each in answer.suggestions)
    assert all(each.peak_bytes < 0 for each in answer.suggestions)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
def test_pruned_search_equals_the_whole_one(model: str) -> None:
    setup = Setup(
        recipe=load_recipe("bf16"), optimizer=load_optimizer("adamw"), stack=load_stack("generic"), dialect="fused",
        loss="eager",
    )  # fmt: skip
    pricer = TrainingPricer.of(load_model(model), load_hardware("h100"), setup)
    start, fixed = Layout(global_batch=128), Fixed({"micro_batch": 1, "cp": 1})
    pruned, whole = (search(pricer, candidates(pricer.model, 64, 8, start, fixed), prune) for prune in (True, False))
    assert pruned.best.choice == whole.best.choice
    assert pruned.best in whole.pareto or pruned.best.step.expected_s == whole.pareto[0].step.expected_s


def test_what_cannot_be() -> None:
    with pytest.raises(InvalidPlan, match="multiple of tp"):
        archsim.train("llama3-8b", "h100", devices=6, tp=4)
    with pytest.raises(UsageError, match="recompute"):
        archsim.train("llama3-8b", "h100", recompute="some")
    with pytest.raises(UsageError, match="goodput"):
        archsim.train("llama3-8b", "h100", goodput=2.0)


def test_the_page_names_what_decides() -> None:
    answer = archsim.train("llama3-8b", "h100", devices=8, tokens="1T")
    text = str(answer)
    assert "fastest of" in text and "does not fit" in text and "tokens per parameter" in text
    assert answer.run is not None and answer.run.outcome is not None
    # 20 tokens a parameter are near the optimum of the law: 1T are several times that.
    assert answer.run.outcome.tokens_per_parameter == pytest.approx(124.5, abs=0.1)
    assert 4 < answer.run.outcome.ratio_to_optimum < 8
    assert answer.bound[0] == "compute" and answer.bound[1] > 0.9
    assert answer.run.price is None and answer.run.usd is None and "dollars" not in text
    given = archsim.train("llama3-8b", "h100", dp=8, zero=1, recompute="none", tokens="1T", price=5.0).run
    assert given is not None and given.to_dict()["usd"] == given.device_hours * 5
    assert given.to_dict()["price_from"] == "--price"


@pytest.mark.slow
def test_changes_are_estimates() -> None:
    """A suggestion costs what the changed run is answered with."""
    asked: dict[str, Any] = {"dp": 8, "micro_batch": 1, "global_batch": 64}
    answer = archsim.train("llama3-8b", "h100", zero=0, recompute="none", **asked)
    change = next(each for each in answer.suggestions if each.change == "--zero 1")
    other = archsim.train("llama3-8b", "h100", zero=1, recompute="none", **asked)
    assert change.fits == other.fits
    assert change.peak_bytes == other.priced.memory.most.allocated - answer.priced.memory.most.allocated
    assert change.step_s == pytest.approx(other.priced.step.expected_s - answer.priced.step.expected_s)


def test_no_law_of_dense_models_for_experts_or_adapters() -> None:
    for options in ({"model": "mixtral-8x7b", "devices": 64}, {"model": "llama3-8b", "method": "lora"}):
        name = str(options.pop("model"))
        run = archsim.train(name, "h200", tokens="1T", tp=1, recompute="full", **options).run  # type: ignore[arg-type]
        assert run is not None and run.outcome is None


CATALOG = sorted(path.stem for path in (Path(archsim.__file__).parents[1] / "specs" / "models").glob("[!_]*.yaml"))
WITHOUT_HEAD = ("modernbert-base",)
"""Encoders whose spec has no head to take a loss of."""


@pytest.mark.sampled(120)
@pytest.mark.parametrize("name", CATALOG)
def test_every_model_of_the_catalog_can_be_trained(name: str) -> None:
    if name in WITHOUT_HEAD:
        with pytest.raises(UsageError, match="no output over the vocabulary"):
            archsim.train(name, "h100", devices=1, seq_len=512, global_batch=1)
        return
    _trains(name)


@pytest.mark.parametrize("name", ["t5-base", "mamba-2.8b", "bert-base"])
def test_other_architectures_are_trained(name: str) -> None:
    """Encoder-decoders, convolutions with their gradients, and encoders with their head."""
    _trains(name)


def _trains(name: str) -> None:
    answer = archsim.train(name, "h100", devices=1, seq_len=512, global_batch=1, recompute="none")
    data: dict[str, Any] = answer.to_dict()
    assert data["step"]["expected_s"] >= data["step"]["ideal_s"] > 0
    forward, backward = data["flops"]["forward"], data["flops"]["backward"]
    assert 1.8 * forward < backward < 3.5 * forward
    assert data["params"]["trainable"] == data["params"]["total"] > 0


@pytest.mark.parametrize(
    ("recipe", "stated", "divisor"),
    [("fp32", None, "fp32"), ("fp8-delayed", None, "bf16"), ("fp8-delayed", "fp8", "fp8")],
)
def test_utilisation_divides_by_the_peak_of_the_recipe(recipe: str, stated: str | None, divisor: str) -> None:
    """That of its activations unless one is stated: MFU of fp8 runs is over bf16's, as they are published."""
    options = {} if stated is None else {"mfu_peak": stated}
    answer = archsim.train("gpt2-small", "h100", recipe=recipe, global_batch=8, seq_len=512, **options)
    metrics = answer.to_dict()["metrics"]
    assert metrics["peak_format"] == divisor
    assert metrics["peak_flops"] == load_hardware("h100").peak_flops(divisor).flops
