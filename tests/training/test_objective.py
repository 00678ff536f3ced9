"""What layouts are chosen by."""

from __future__ import annotations

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.spec.load import load_hardware, load_model
from archsim.spec.recipe import load_recipe
from archsim.spec.stack import load_stack
from archsim.training.layout import Layout
from archsim.training.objective import OBJECTIVES, device_seconds, joules
from archsim.training.optimizers import load_optimizer
from archsim.training.pricer import Setup, TrainingPricer
from archsim.training.search import Fixed, candidates, search


@pytest.fixture(scope="module")
def pricer() -> TrainingPricer:
    setup = Setup(
        recipe=load_recipe("bf16"), optimizer=load_optimizer("adamw"), stack=load_stack("generic"), dialect="fused",
        loss="eager",
    )  # fmt: skip
    return TrainingPricer.of(load_model("llama3-8b"), load_hardware("h100"), setup)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_best_is_the_best_of_all_that_fit(pricer: TrainingPricer, name: str) -> None:
    start, objective = Layout(seq_len=2048, global_batch=16), OBJECTIVES[name]
    choices = [c for n in (4, 8) for c in candidates(pricer.model, n, 8, start, Fixed({"micro_batch": 1}))]
    found = search(pricer, choices, objective=objective).best
    every = [pricer.price(choice) for choice in choices]
    scores = [objective.score(pricer, each) for each in every if each.memory.fits]
    assert objective.score(pricer, found)[0] == pytest.approx(min(scores)[0])


@pytest.mark.slow
def test_cost_and_energy_of_a_token(pricer: TrainingPricer) -> None:
    answer = archsim.train("llama3-8b", "h100", devices=8, tokens="1T", price=2.0, objective="cost")
    assert answer.run is not None and answer.run.usd is not None and answer.pricer is not None
    seconds = device_seconds(answer.pricer, answer.priced)
    assert answer.run.usd == pytest.approx(seconds * 1e12 / 3600 * 2.0 / 0.9, rel=1e-6)
    assert answer.run.energy is not None
    each = joules(answer.pricer, answer.priced) * 1e12 / 3.6e6 / 0.9
    assert answer.run.energy.kwh.expected == pytest.approx(each, rel=1e-6)
    assert answer.layout.devices in (1, 2, 4, 8) and answer.to_dict()["plan"]["objective"] == "cost"


def test_an_objective_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no objective is named"):
        archsim.train("llama3-8b", "h100", devices=8, objective="fame")
