"""What an architecture takes in training: one sequence on one device, nothing shared out and nothing recomputed."""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.number import Num
from archsim.counts.training_graph import training_graph, training_step_of
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.stack import DEFAULT_STACK, load_stack
from archsim.training.layout import Layout
from archsim.training.memory import MemoryRules, Working, rank_memory
from archsim.training.methods import tuning_of
from archsim.training.optimizers import load_optimizer
from archsim.training.pricer import TRAINED_PARTS, Choice, Priced, Setup, TrainingPricer, short_orders
from archsim.training.rank import rank_graphs
from archsim.training.stages import stage_layers


class TrainingNeeds(NamedTuple):
    """FLOP of a token, forward and backward, masked pairs left out; bytes at the peak of a step: weights, gradients,
    AdamW states, and what is kept of one sequence; seconds of the step, None without a device.
    """

    flops_per_token: Num
    bytes: int
    step_s: float | None


class StepOnDevice(NamedTuple):
    """A step of one sequence of so many tokens on one device."""

    hardware: Hardware
    length: int
    priced: Priced


def usual_setup(name: str = DEFAULT_STACK) -> Setup:
    """AdamW with a stack and its recipe; bf16 where none is named."""
    stack = load_stack(name)
    tuning = tuning_of(stack, None, None, None, None)
    return Setup(
        recipe=tuning.recipe, optimizer=load_optimizer("adamw"), stack=stack, dialect=stack.dialect, loss=stack.loss
    )


def step_on_device(model: Model, length: int, hardware: Hardware) -> StepOnDevice:
    """The price of a step. Raises UsageError for a model that has nothing to take a loss of."""
    priced = TrainingPricer.of(model, hardware, usual_setup()).price(Choice(Layout(seq_len=length)))
    return StepOnDevice(hardware, length, priced)


def training_needs(model: Model, length: int, hardware: Hardware | None = None) -> TrainingNeeds:
    """What a step of one sequence takes. Raises UsageError for a model that has nothing to take a loss of."""
    layout, setup = Layout(seq_len=length), usual_setup()
    if hardware is not None:
        priced = step_on_device(model, length, hardware).priced
        flops, most, seconds = priced.graph.flops, priced.memory.most, priced.step.expected_s
        return TrainingNeeds(flops.model_causal // length, round(most.allocated), seconds)
    step = training_step_of(model, 1, length)
    graph = training_graph(model, step, dialect=setup.dialect, loss=setup.loss, parts=TRAINED_PARTS)
    rank = rank_graphs(graph, layout, setup)
    rules = MemoryRules(layout, setup.recipe, setup.optimizer, setup.stack.gradients == "made", False)
    (order,) = short_orders(layout)
    most = rank_memory(rank, stage_layers(rank.order, 1), order, [0], rules, Working.of(rank))
    return TrainingNeeds(graph.flops.model_causal // length, round(most.allocated), None)
