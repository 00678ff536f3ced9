"""Model states: ZeRO's sums a parameter, its stages in order, optimizers, and every recipe of the catalog."""

from __future__ import annotations

import pytest

from archsim.base.errors import InvalidPlan, UnknownName
from archsim.spec.catalog import names
from archsim.spec.load import load_model
from archsim.spec.recipe import load_recipe
from archsim.training.layout import Layout, check_layout
from archsim.training.optimizers import OPTIMIZERS, Matrix, load_optimizer, newton_schulz_flops
from archsim.training.states import Weight, rank_states

MATRIX = Weight(Matrix(1000, 4000))
NUMBERS = MATRIX.matrix.elements
RECIPES = sorted(entry.name for entry in names("recipes"))


def per_parameter(recipe: str, optimizer: str = "adamw", **layout: int) -> float:
    states = rank_states([MATRIX], load_recipe(recipe), load_optimizer(optimizer), Layout(**layout))
    return states.total / NUMBERS


@pytest.mark.parametrize(
    ("recipe", "expected"), [("bf16", 16), ("megatron-bf16", 18), ("pure-bf16", 8), ("fp8-delayed", 20)]
)
def test_bytes_of_a_parameter(recipe: str, expected: float) -> None:
    assert per_parameter(recipe) == expected  # arXiv:1910.02054: 2 + 2 + 12; Megatron-LM: 2 + 4 + 12


def test_shards_of_data_ranks() -> None:
    assert per_parameter("bf16", dp=64, zero=1) == 2 + 2 + 12 / 64  # arXiv:1910.02054 figure 1
    assert per_parameter("bf16", dp=64, zero=2) == 2 + 14 / 64
    assert per_parameter("bf16", dp=64, zero=3) == 16 / 64
    assert per_parameter("megatron-bf16", dp=32, cp=2, zero=1) == 6 + 12 / 64
    assert per_parameter("fsdp-bf16", dp=8, zero=3) == 16 / 8
    assert per_parameter("bf16", dp=64, zero=3, hsdp=8) == 16 / 8


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_stage_of_zero_holds_more_than_the_one_before(recipe: str, optimizer: str) -> None:
    held = [per_parameter(recipe, optimizer, dp=8, zero=zero) for zero in range(4)]
    assert held == sorted(held, reverse=True) and held[3] > 0


def test_optimizers() -> None:
    assert per_parameter("pure-bf16", "lion") == 6
    assert per_parameter("pure-bf16", "sgd") == 6
    assert per_parameter("pure-bf16", "adamw-8bit") == 4 + 2 * (1 + 4 / 256)
    assert per_parameter("pure-bf16", "adafactor") == pytest.approx(4 + 4 * 5000 / NUMBERS)
    table = Weight(Matrix(1000, 4000, role="embedding"))
    muon = [rank_states([w], load_recipe("bf16"), load_optimizer("muon"), Layout()).optimizer for w in (MATRIX, table)]
    assert muon == [8 * NUMBERS, 12 * NUMBERS]
    assert newton_schulz_flops(MATRIX.matrix) == 5 * (4 * 1000**2 * 4000 + 2 * 1000**3)
    assert newton_schulz_flops(table.matrix) == 0


def test_frozen_weights_have_no_gradients() -> None:
    frozen = MATRIX._replace(trainable=False)
    states = rank_states([frozen], load_recipe("qlora-nf4"), load_optimizer("adamw"), Layout())
    assert states.gradients == states.optimizer == 0
    assert 0.5 < states.weights / NUMBERS < 0.6
    assert rank_states([frozen], load_recipe("lora"), load_optimizer("adamw"), Layout()).weights == 2 * NUMBERS


def test_experts_are_shared_by_fewer_ranks() -> None:
    layout = Layout(dp=16, ep=8, zero=1)
    dense, expert = (
        rank_states([w], load_recipe("bf16"), load_optimizer("adamw"), layout).optimizer / NUMBERS
        for w in (MATRIX, MATRIX._replace(expert=True))
    )
    assert (dense, expert) == (12 / 16, 12 / 2)


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout(tp=3), "tp 3"),
        (Layout(dp=3, global_batch=4), "not a multiple"),
        (Layout(ep=2), "no experts"),
        (Layout(pp=4, schedule="zigzag", global_batch=8), "no schedule"),
        (Layout(vpp=2, pp=2, global_batch=8), "one stage a rank"),
        (Layout(pp=16, vpp=4, schedule="interleaved", global_batch=64), "more than the 32 layers"),
        (Layout(cp=3), "cp 3"),
        (Layout(tp=8, sp=True, seq_len=4092), "multiples of tp"),
        (Layout(dp=8, hsdp=3, zero=3, global_batch=8), "hsdp 3"),
        (Layout(dp=8, hsdp=4, zero=1, global_batch=8), "--zero 3"),
    ],
)
def test_layouts_that_cannot_be(layout: Layout, says: str) -> None:
    with pytest.raises(InvalidPlan, match=says):
        check_layout(load_model("llama3-8b"), layout)


def test_layouts_of_experts() -> None:
    model = load_model("mixtral-8x7b")
    assert check_layout(model, Layout(tp=2, etp=2, ep=8, dp=16, global_batch=16)).expert_data_ranks == 2
    with pytest.raises(InvalidPlan, match="etp 2"):
        check_layout(model, Layout(tp=4, etp=2, ep=2, dp=4, global_batch=16))
    with pytest.raises(InvalidPlan, match="ep 3"):
        check_layout(model, Layout(ep=3, dp=3, global_batch=3))


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match="optimizer"):
        load_optimizer("adamwx")
    with pytest.raises(UnknownName, match="recipe"):
        load_recipe("bf17")


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_say_where_they_come_from(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.sources and recipe.title
