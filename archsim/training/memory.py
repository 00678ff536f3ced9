"""Memory of every rank of a pipeline over a step: the most that is alive at once, and of what it consists."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from archsim.graph.graph import Block, ops
from archsim.graph.passes.loss import TRANSIENT
from archsim.graph.tensor import nbytes, numel
from archsim.spec.recipe import Recipe, format_bytes_of
from archsim.training.layout import Layout
from archsim.training.offload import NOTHING, Offload
from archsim.training.optimizers import Optimizer
from archsim.training.pipeline import most_alive
from archsim.training.rank import FIRST, LAST, RankGraphs, working_bytes
from archsim.training.schedules import Order
from archsim.training.stages import StageLayers
from archsim.training.states import States, Weight, rank_states

RESERVED = 1.06
"""Bytes that PyTorch's allocator reserves over those that tensors take, 1.03 to 1.12 on published runs."""

GATHERED_LAYERS = 2
"""Layers that ZeRO 3 has whole at once: the one that runs and the next, whose gather runs behind it."""


UNDER_WAY = 2
"""Layers whose saved tensors are on the device where the host keeps them: the one that runs, and one on its way."""


class RankMemory(NamedTuple):
    """Bytes of one rank at its peak; the parts add up to `allocated`. in_flight: micro-batches times stages alive."""

    states: States
    saved: float
    working: float
    logits: float
    gathered: float
    in_flight: int

    @property
    def allocated(self) -> float:
        """All tensors."""
        return self.states.total + self.saved + self.working + self.logits + self.gathered

    @property
    def reserved(self) -> float:
        """What the allocator holds."""
        return self.allocated * RESERVED


class MemoryRules(NamedTuple):
    """What memory follows from beside the graphs. gradients_made: whether a step's only backward makes them.
    by_matrix: whether ZeRO 3 gathers matrices one by one, not layers. two_uses: elements of a table that is looked up
    and multiplied with. known: states of pieces of ranks, which
    live as long as it does.
    """

    layout: Layout
    recipe: Recipe
    optimizer: Optimizer
    gradients_made: bool = False
    by_matrix: bool = False
    offload: Offload = NOTHING
    known: dict[Hashable, States] | None = None
    two_uses: float = 0.0


class Working(NamedTuple):
    """The most that the passes make and drop, by piece. wide: the largest weight that is dequantised for a product.
    logits: what the loss makes and drops of the logits' size.
    """

    forward: Mapping[str, float]
    backward: Mapping[str, float]
    wide: Mapping[str, float] = {}
    logits: float = 0.0

    @classmethod
    def of(cls, rank: RankGraphs) -> Working:
        """Of a rank's graphs."""
        wide: dict[str, float] = {}
        for op, _ in ops(rank.forward):
            for use in op.reads:
                if use.tensor.name in rank.packed:
                    home = rank.layer_of(op.name)
                    wide[home] = max(wide.get(home, 0.0), float(nbytes(use.tensor)))
        passes = [working_bytes(graph, rank.layer_of) for graph in (rank.forward, rank.backward)]
        return cls(passes[0], passes[1], wide, loss_bytes(rank.forward))

    def most(self, pieces: Sequence[str]) -> float:
        """Of some pieces."""
        return max((max(self.forward.get(n, 0.0), self.backward.get(n, 0.0)) + self.wide.get(n, 0.0) for n in pieces),
                   default=0.0)  # fmt: skip


def loss_bytes(forward: Block) -> float:
    """What the loss makes and drops of the logits' size."""
    losses = [op for op, _ in ops(forward) if op.fn == "cross_entropy"]
    return sum(TRANSIENT[op.attrs["implementation"]] * float(numel(op.reads[0])) for op in losses)


def piece_weights(rank: RankGraphs, name: str) -> tuple[Weight, ...]:
    """The weights of a layer, or of an end."""
    ends = {FIRST: rank.weights.first, LAST: rank.weights.last}
    return ends[name] if name in ends else rank.weights.layers[name]


def piece_states(rank: RankGraphs, name: str, rules: MemoryRules) -> States:
    """Model states of a layer, or of an end."""
    x, known = rules.layout, rules.known
    key = (id(rank), name, x.zero, x.shards, x.expert_shards)
    if known is not None and key in known:
        return known[key]
    found = rank_states(piece_weights(rank, name), rules.recipe, rules.optimizer, x)
    if known is not None:
        known[key] = found
    return found


def stage_states(
    rank: RankGraphs, held: Sequence[StageLayers], rules: MemoryRules, tied: Sequence[Weight] = ()
) -> States:
    """Model states of some stages. tied: tables that the last stage has a copy of where it is not the first as well."""
    total = States()
    for stage in held:
        for name, times in stage.pieces.items():
            own = piece_states(rank, name, rules)
            total = total.plus(States(*(part * times for part in own)))
        if stage.last and not stage.first:
            total = total.plus(rank_states(tied, rules.recipe, rules.optimizer, rules.layout))
    return total


def rank_memory(
    rank: RankGraphs, stages: Sequence[StageLayers], order: Order, own: Sequence[int], rules: MemoryRules,
    working: Working, tied: Sequence[Weight] = (),
) -> RankMemory:  # fmt: skip
    """Memory of one rank. stages: of the whole pipeline; own: those that the rank holds, in the numbers of `order`."""
    n = len(stages)
    held = [stages[s % n] for s in own]
    states = stage_states(rank, held, rules, tied)
    kept = rank.kept
    sizes = {**kept.layers, FIRST: kept.first, LAST: kept.last}
    layers_bytes = {s: stages[s % n].total(sizes.__getitem__) for s in order.stages}
    alive = most_alive(order, {s: round(size) for s, size in layers_bytes.items()})
    loss = kept.last if any(stage.last for stage in held) else 0.0
    if "activations" in rules.offload:
        largest = max((kept.layers[name] for stage in held for name in stage.layers), default=0.0)
        alive = min(alive, round(loss + UNDER_WAY * largest))
    if "optimizer" in rules.offload:
        states = states._replace(optimizer=0.0)
    names = [name for stage in held for name in stage.layers]
    at_loss = working.most([LAST]) + working.logits if loss else 0.0
    in_layers = max((working.most([name]) + kept.anew.get(name, 0.0) for name in names), default=0.0)
    shared = RankMemory(states, alive - loss, 0.0, 0.0, gathered_bytes(rank, held, rules), most_alive(order))
    moments = [shared._replace(logits=loss + at_loss), shared._replace(working=in_layers)]
    if rules.gradients_made:
        moments = _without_gradients(shared, moments, max((kept.layers[name] for name in names), default=0.0))
        moments.append(shared._replace(saved=0.0, working=summed_bytes(rules)))
    return max(moments, key=lambda each: each.allocated)


def summed_bytes(rules: MemoryRules) -> float:
    """What autograd holds at the end of a backward beside all gradients: those of both uses of a table, and their sum,
    which is made anew (InputBuffer::accumulate of torch/csrc/autograd/input_buffer.cpp).
    """
    return (USES - 1) * rules.two_uses * format_bytes_of(rules.recipe.gradients)


USES = 3
"""A table's gradients by its look-up and by the head, and the sum."""


def _without_gradients(shared: RankMemory, moments: Sequence[RankMemory], one_layer: float) -> list[RankMemory]:
    """Moments of a step whose backward makes the gradients: at the loss and at the last layer there are none, at the
    first layer all, and of the saved tensors only those of one layer are left.
    """
    before = shared.states._replace(gradients=0.0)
    at_loss, in_layers = (each._replace(states=before) for each in moments)
    return [at_loss, in_layers, moments[1]._replace(saved=min(one_layer, shared.saved))]


def gathered_bytes(rank: RankGraphs, held: Sequence[StageLayers], rules: MemoryRules) -> float:
    """Whole weights and gradients of ZeRO 3 beside the shards: of the layers that run, and of all where a
    pipeline keeps them for its other micro-batches (FSDP2 adds their gradients up before it scatters them).
    """
    if rules.layout.zero < 3 or rules.layout.shards == 1:
        return 0.0
    weight, gradient = format_bytes_of(rules.recipe.gathered), format_bytes_of(rules.recipe.gathered)
    sizes = {name: sum(w.matrix.elements for w in piece_weights(rank, name)) for stage in held for name in stage.pieces}
    largest = max(sizes.values(), default=0.0)
    if rules.layout.pp > 1:
        whole = format_bytes_of(rules.recipe.sent) if rules.layout.micro_batches > 1 else 0.0
        return sum(stage.total(sizes.__getitem__) for stage in held) * (weight + whole) + largest * gradient
    if rules.by_matrix:
        weights = (w for stage in held for name in stage.pieces for w in piece_weights(rank, name))
        largest = max((w.matrix.elements for w in weights), default=0.0)
    layers = sum(1 for stage in held for _ in range(sum(stage.pieces.values())))
    return largest * weight * min(GATHERED_LAYERS, layers) + largest * gradient
