"""Prices layouts of one training run: what does not depend on a layout is made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field
from functools import lru_cache
from math import exp
from typing import NamedTuple, TypeVar

from archsim.base.data_class import dataclass
from archsim.counts.training_graph import TrainingGraph, training_graph, training_step_of
from archsim.engines.names import DEFAULT_ENGINE
from archsim.graph.passes.adapters import Adapters
from archsim.graph.passes.grad_plan import Trainable, everything
from archsim.graph.tensor import Format, Tensor
from archsim.memory.engine_rules import non_torch_of, size
from archsim.spec.engine import load_engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import expert_counts
from archsim.spec.recipe import Recipe, stored
from archsim.spec.stack import StackFactors, TrainingStack
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import Timer
from archsim.timing.kernel_timer import timer as timer_of
from archsim.timing.step_pricer import engine_overheads
from archsim.training.costs import MicroBatch, micro_batch_times
from archsim.training.layout import Layout
from archsim.training.memory import MemoryRules, RankMemory, Working, rank_memory
from archsim.training.offload import NOTHING, Offload, host_rate
from archsim.training.optimizers import HIDDEN, Optimizer
from archsim.training.pass_times import PassRules
from archsim.training.rank import RankGraphs, rank_graphs, replicas_of_mesh
from archsim.training.schedules import Order, PipelineShape, directions, schedule_of, stage_homes
from archsim.training.stages import StageLayers, stage_layers
from archsim.training.states import States, Weight
from archsim.training.step import Host, StepRules, TrainingStep, training_step_time

T = TypeVar("T")

TRAINED_PARTS = ("mlm-head",)
"""Optional modules that training runs where a model has them: what an encoder's loss is taken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a run has beside its layout. trainable: which weights are updated. adapters: of LoRA, trained alone."""

    recipe: Recipe
    optimizer: Optimizer
    stack: TrainingStack
    dialect: str
    loss: str
    trainable: Trainable = everything
    adapters: Adapters | None = None

    def product_format(self, tensor: Tensor) -> Format:
        """In which products read a weight: matrices of layers in the recipe's format for them, all else in that of
        activations.
        """
        return stored(self.recipe.products if tensor.role in HIDDEN else self.recipe.activations)

    def storage_format(self, tensor: Tensor) -> Format:
        """In which a weight lies in memory: frozen matrices of layers in the recipe's format for them."""
        if tensor.role in HIDDEN and not self.trainable(tensor):
            return stored(self.recipe.frozen)
        return self.product_format(tensor)


class Choice(NamedTuple):
    """A layout, what is recomputed in it, and what lies on the host."""

    layout: Layout
    recompute: str = "none"
    offload: Offload = NOTHING


class Held(NamedTuple):
    """Memory of every rank of the pipeline; worst: the rank with most. width: log of either end of the interval."""

    ranks: tuple[RankMemory, ...]
    capacity: int
    runtime: int
    width: float

    @property
    def worst(self) -> int:
        """The rank whose memory is fullest."""
        return max(range(len(self.ranks)), key=lambda i: self.ranks[i].allocated)

    @property
    def most(self) -> RankMemory:
        """Its memory."""
        return self.ranks[self.worst]

    @property
    def low(self) -> float:
        """Lower end of the interval of what the fullest device needs."""
        return self.most.allocated * exp(-self.width) + self.runtime

    @property
    def high(self) -> float:
        """Its upper end."""
        return self.most.allocated * exp(self.width) + self.runtime

    @property
    def fits(self) -> bool:
        """Whether tensors and runtime fit; what the allocator reserves beyond can be given back."""
        return self.most.allocated + self.runtime <= self.capacity


class Priced(NamedTuple):
    """A choice with its memory and the time of its step."""

    choice: Choice
    memory: Held
    step: TrainingStep
    micro: MicroBatch
    graph: TrainingGraph


@dataclass(slots=True)
class TrainingPricer:
    """Prices any layout of a model, a device and a setup. graphs by micro-batch and recomputation; ranks, their times
    and the states of their pieces by what cuts a micro-batch. Layouts that do not fit are not timed.
    """

    model: Model
    hardware: Hardware
    setup: Setup
    timer: Timer
    factors: StackFactors
    graphs: dict[Hashable, TrainingGraph] = field(default_factory=dict)
    ranks: dict[Hashable, tuple[RankGraphs, Working]] = field(default_factory=dict)
    times: dict[Hashable, MicroBatch] = field(default_factory=dict)
    states: dict[Hashable, States] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, hardware: Hardware, setup: Setup) -> TrainingPricer:
        """A pricer with the calibrations that archsim comes with."""
        experts = bool(expert_counts(model))
        factors = setup.stack.factors(hardware.id, hardware.arch.family, experts=experts)
        return cls(model, hardware, setup, timer_of(hardware, rates=DeviceRates(hardware)), factors)

    def graph(self, layout: Layout, recompute: str) -> TrainingGraph:
        """The training graph of the micro-batches that are looked at together."""
        batch = layout.micro_batch * replicas_of_mesh(layout)
        return _known(
            self.graphs, (batch, layout.seq_len, recompute),
            lambda: training_graph(
                self.model, training_step_of(self.model, batch, layout.seq_len), trainable=self.setup.trainable,
                dialect=self.setup.dialect, loss=self.setup.loss, recompute=recompute, adapters=self.setup.adapters,
                parts=TRAINED_PARTS, activations=stored(self.setup.recipe.activations),
            ),
        )  # fmt: skip

    def rank(self, choice: Choice) -> tuple[RankGraphs, Working]:
        """A rank's graphs, and the most that its passes make and drop."""
        return _known(self.ranks, rank_key(choice), lambda: self._rank(choice))

    def _rank(self, choice: Choice) -> tuple[RankGraphs, Working]:
        rank = rank_graphs(self.graph(choice.layout, choice.recompute), choice.layout, self.setup)
        return rank, Working.of(rank)

    def micro_batch(self, choice: Choice) -> MicroBatch:
        """The times of the pieces of a rank."""
        return _known(self.times, rank_key(choice), lambda: self.timed(self.rank(choice)[0]))

    def timed(self, rank: RankGraphs) -> MicroBatch:
        """The times of its pieces, with the factors as they are now."""
        step = training_step_of(self.model, rank.layout.micro_batch, rank.layout.seq_len)
        form = engine_overheads(self.setup.stack.engine).cpu if self.timer.machine.is_processor else ""
        return micro_batch_times(rank, PassRules(self.timer, self.factors, step, rank.formats, rank.packed, form))

    def memory(self, choice: Choice) -> Held:
        """Memory of every rank of the pipeline."""
        layout = choice.layout
        rank, working = self.rank(choice)
        stages = stage_layers(rank.order, layout.stages)
        home = stage_homes(layout.schedule, layout.pp, layout.vpp)
        orders = short_orders(layout)
        made = self.setup.stack.gradients == "made" and layout.micro_batches == 1
        by_matrix = self.setup.stack.gathers == "matrices"
        rules = MemoryRules(
            layout, self.setup.recipe, self.setup.optimizer, made, by_matrix, choice.offload, self.states,
            two_uses=self._two_uses(rank, layout),
        )  # fmt: skip
        tied = self._tied(rank, stages)
        found = [
            rank_memory(
                rank, stages, orders[r],
                [s for s, at in enumerate(home) if at == r], rules, working, tied,
            )
            for r in range(layout.pp)
        ]  # fmt: skip
        return Held(tuple(found), self.hardware.working_set_bytes, runtime_bytes(layout.devices), self.factors.memory)

    def price(self, choice: Choice, memory: Held | None = None) -> Priced:
        """Memory and time of a choice."""
        layout = choice.layout
        rank, micro = self.rank(choice)[0], self.micro_batch(choice)
        host = Host(choice.offload, host_rate(self.hardware)) if choice.offload else None
        rules = StepRules(
            layout, self.setup.recipe, self.setup.optimizer, self.timer, self.factors, self.model.d_model, host
        )
        step = training_step_time(rank, micro, stage_layers(rank.order, layout.stages), rules)
        held = memory or self.memory(choice)
        return Priced(choice, held, step, micro, self.graph(layout, choice.recompute))

    def least_seconds(self, choice: Choice) -> float:
        """A step takes no less: what the busiest stage works on all micro-batches."""
        layout = choice.layout
        rank, micro = self.rank(choice)[0], self.micro_batch(choice)
        home = stage_homes(layout.schedule, layout.pp, layout.vpp)
        stages = stage_layers(rank.order, layout.stages)
        busy = [0.0] * layout.pp
        pieces = {name: piece.forward_total_s + piece.backward_total_s for name, piece in micro.pieces.items()}
        for s, at in enumerate(home):
            busy[at] += stages[s % len(stages)].total(pieces.__getitem__)
        return max(busy) * layout.micro_batches / directions(layout.schedule)

    def _two_uses(self, rank: RankGraphs, layout: Layout) -> float:
        """Elements of the token table that is the head too, where one stage has both."""
        if layout.stages > 1 or self.model.head is None or not self.model.head.tied:
            return 0.0
        return sum(w.matrix.elements for w in rank.weights.first if w.matrix.role == "embedding" and w.trainable)

    def _tied(self, rank: RankGraphs, stages: tuple[StageLayers, ...]) -> tuple[Weight, ...]:
        """The token table that the last stage has a copy of where the head is tied to it."""
        if len(stages) == 1 or self.model.head is None or not self.model.head.tied:
            return ()
        return tuple(w for w in rank.weights.first if w.matrix.role == "embedding")


def rank_key(choice: Choice) -> Hashable:
    """What cuts a micro-batch."""
    x = choice.layout
    return x.tp, x.cp, x.ep, x.etp, x.sp, x.micro_batch, x.seq_len, choice.recompute


@lru_cache(maxsize=64)
def runtime_bytes(devices: int) -> int:
    """What a process holds beside its tensors."""
    return size(non_torch_of(load_engine(DEFAULT_ENGINE), devices).bytes)


def short_orders(layout: Layout) -> list[Order]:
    """The orders of all ranks, for as few micro-batches as keep as many tensors alive as all do."""
    ranks, m = layout.pp, layout.micro_batches
    few = m if layout.schedule == "gpipe" else min(m, 4 * ranks)
    return schedule_of(PipelineShape(layout.schedule, ranks, few, layout.vpp)).orders


def _known(known: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    """The value of a key, made where there is none."""
    if key not in known:
        known[key] = make()
    return known[key]
