"""What a device holds of every candidate of a population: weights and caches without walking their layers."""

from __future__ import annotations

from archsim.base.number import nearest
from archsim.counts import graph_counts as c
from archsim.memory.engine_memory import EngineTensors
from archsim.memory.tensors import PipelineStage, TensorCopies
from archsim.spec.parallelism import Plan


class PopulationTensors(EngineTensors):
    """The tensors of all candidates, on a single device that holds the whole model."""

    def stages(self, plan: Plan) -> tuple[PipelineStage, ...]:
        """The one stage: every weight, and the caches of the longest request."""
        assert plan.devices == 1, "candidates are not cut over devices"
        if plan not in self._stages:
            graph = self.rank(plan)
            held = tuple(TensorCopies(item.tensor, item.copies) for item in c.inventory(graph, kind="state"))
            self._stages[plan] = (PipelineStage(weights=nearest(c.weight_bytes(graph)), caches=held),)
        return self._stages[plan]
