"""The op graph of any step of a model: whole, and as one rank of a plan runs it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from functools import cached_property, lru_cache

from archsim.base.data_class import dataclass
from archsim.counts.formats import Formats
from archsim.counts.lowered_steps import REMEMBERED_GRAPHS, REMEMBERED_MODELS, LoweredSteps, StepMemo, shared_steps
from archsim.graph.graph import Block
from archsim.graph.passes.shard import Mesh, shard, with_full_ranks
from archsim.graph.step import Seqs, Step
from archsim.spec.layer_columns import LayerRun, longest_run
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, fullest_share

mesh_of = lru_cache(maxsize=64)(Mesh.of)
"""Meshes are kept: they remember how they cut each shape."""


def rank_mesh(model: Model, plan: Plan) -> Mesh:
    """The mesh of a plan's ranks, for the rank that holds most experts."""
    return mesh_of(plan.tp, plan.dp, plan.ep, fullest_share(model, plan.ep))


class StepGraphs:
    """Graphs of one model in its formats. Each step is lowered once and then cut for any plan. parts: optional modules
    that run as well, as of `spec.lower`. lowered: graphs that are shared with other formats.
    """

    def __init__(
        self, model: Model, formats: Formats, parts: Collection[str] = (), lowered: LoweredSteps | None = None
    ) -> None:
        self.model = model
        self.formats = formats
        self.lowered = lowered or LoweredSteps(model, parts)
        self._whole = StepMemo[Block](REMEMBERED_GRAPHS)
        self._ranks = StepMemo[Block](REMEMBERED_GRAPHS)

    @cached_property
    def run(self) -> LayerRun | None:
        """Layers that differ in width alone, where the model has many."""
        return longest_run(self.model)

    @staticmethod
    def shared(model: Model, formats: Formats) -> StepGraphs:
        """The graphs that all questions about a model in these formats share; for steps of numbers."""
        return _shared_graphs(_Structure(model.name, formats.name, model, formats))

    def common(self) -> StepGraphs:
        """The graphs that all questions about this model share; for steps of numbers."""
        return StepGraphs.shared(self.model, self.formats)

    def forget_arrays(self) -> None:
        """Graphs of steps of arrays, which take much memory, are made again where they are asked for."""
        for memo in (self._whole, self._ranks):
            memo.arrays.clear()
        self.lowered.forget_arrays()

    def whole(self, step: Step) -> Block:
        """The graph of a step on a single device."""
        return self._whole.get(step, None, lambda: self.formats.apply(self.lowered.get(with_sums(step))))

    def rank(self, step: Step, plan: Plan) -> Block:
        """The graph on the rank that has most to do; stages of a pipeline share it."""
        degrees = plan.tp, plan.dp, plan.ep
        return self._ranks.get(step, degrees, lambda: self._rank(step, plan))

    def _rank(self, step: Step, plan: Plan) -> Block:
        """The graph cut for a plan. Whole sequences of each kind are dealt out over the data ranks."""
        mesh, graph, filled = rank_mesh(self.model, plan), self.whole(step), step.filled(plan.dp)
        return shard(graph if filled is step else with_full_ranks(graph, self.whole(filled), mesh), mesh)


class PopulationGraphs(StepGraphs):
    """Graphs of a model whose numbers are columns (`archsim.spec.population`), which no other question shares."""

    run = None

    def common(self) -> StepGraphs:
        """These graphs."""
        return self


def with_sums(step: Step) -> Step:
    """The step with its arrays as sums of products, which a graph is counted in without touching them."""
    if step.plain:
        return step
    from archsim.base.array_sum import Arrays  # loads NumPy

    arrays = Arrays()
    seqs, source = (
        tuple(Seqs(arrays.sum_of(s.batch), arrays.sum_of(s.new), arrays.sum_of(s.past), s.absorbed) for s in kind)
        for kind in (step.seqs, step.source)
    )
    return replace(step, seqs=seqs, source=source, room=arrays.sum_of(step.room))


@dataclass(frozen=True, slots=True)
class _Structure:
    """What graphs follow from beside the step, by value."""

    model_name: str
    formats_name: str
    model: Model = field(hash=False)
    formats: Formats = field(hash=False)


@lru_cache(maxsize=REMEMBERED_MODELS)
def _shared_graphs(structure: _Structure) -> StepGraphs:
    return StepGraphs(structure.model, structure.formats, lowered=shared_steps(structure.model))
