"""A model on one device in other weight formats: whatever does not hang on weights is laid out once for all formats."""

from __future__ import annotations

from dataclasses import replace

from archsim.base.number import Num
from archsim.counts import graph_counts as c
from archsim.counts.formats import Formats
from archsim.engines.names import EngineChoice
from archsim.graph.graph import Block
from archsim.memory.engine_memory import EngineTensors
from archsim.memory.tensors import PipelineStage
from archsim.spec.parallelism import Plan


class OtherWeights(EngineTensors):
    """The tensors of `like`'s model in other weights, whose caches and activations are stored as those of `like`.

    On a single device graphs and caches are those of `like`, and each weight takes its new format; plans of several
    devices are laid out anew.
    """

    def __init__(self, like: EngineTensors, formats: Formats, engine: EngineChoice) -> None:
        super().__init__(like.model, like.hardware, formats, engine, like.settings, like.lowered)
        self._like = like

    @staticmethod
    def serves(like: EngineTensors, formats: Formats, engine: EngineChoice) -> bool:
        """Whether the formats differ from those of `like` in weights alone, under the same rules."""
        mine = like.formats
        same = (mine.kv, mine.activations) == (formats.kv, formats.activations)
        return same and like.rules is engine.rules and not like.settings.offload.anything

    def graph(self, plan: Plan, tokens: Num, source: Num | None = None) -> Block:
        """One rank's graph; on one device with the weights as `like` has them."""
        return self._like.graph(plan, tokens, source) if plan.devices == 1 else super().graph(plan, tokens, source)

    def rank(self, plan: Plan) -> Block:
        """One rank's graph of the longest request; on one device with the weights as `like` has them."""
        return self._like.rank(plan) if plan.devices == 1 else super().rank(plan)

    def weights(self, plan: Plan) -> list[c.Item]:
        """The weights on one rank, in their formats."""
        return [item._replace(tensor=self.formats.stored(item.tensor)) for item in c.inventory(self.rank(plan))]

    def stages(self, plan: Plan) -> tuple[PipelineStage, ...]:
        """What the devices hold: on one device what it holds of `like`, in other weights."""
        if plan not in self._stages and plan.devices == 1:
            stored = round(self._like.held(plan).bytes_in(self.formats)) + self.tower_bytes(plan)
            stored += sum(round(stage.weights) for stage in self.draft_stages(plan) if stage is not None)
            self._stages[plan] = tuple(replace(stage, weights=stored) for stage in self._like.stages(plan))
        return super().stages(plan)
