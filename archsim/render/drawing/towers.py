"""Vision and audio encoders as columns of their own, whose vectors stand among those of the text."""

from __future__ import annotations

from functools import cached_property

from archsim.blocks.stage import LayersStage, stage_names
from archsim.counts.towers import ONE, tower_size
from archsim.render.drawing.column import Column, column
from archsim.render.drawing.flow import nodes_by_name
from archsim.render.drawing.plan import Plan, StackPlan
from archsim.render.drawing.stack import layer_kinds
from archsim.render.drawing.tally import Tally
from archsim.render.drawing.traits import stage_box
from archsim.render.drawing.words import Marks
from archsim.spec.model import Embedding, Model, Tower
from archsim.spec.tower import TowerModel, lower_tower


class TowerPlan(Plan):
    """An encoder whose stages are known. Shares of FLOP are those of the language model, so it has none."""

    def __init__(self, model: Model, tower: Tower) -> None:
        self.model = TowerModel.of(model, tower)
        self.tower, self.tokens = tower, ONE.tokens
        self.graph = lower_tower(tower, ONE)
        self.blocks = nodes_by_name(self.graph)
        self.tally = Tally(self.graph)
        self.whole = self.tally.whole()._replace(flops=0)

    @cached_property
    def main(self) -> StackPlan:
        """Its stages, the layers of the first stage of layers drawn by kind."""
        nodes = list(self.graph.body)
        named = list(stage_names(self.tower.stages))
        titles = {name: stage_box(self.tower, name, stage) for name, stage in named}
        found = next(((name, stage) for name, stage in named if isinstance(stage, LayersStage)), None)
        if found is None:
            return StackPlan(layers=(), kinds=(), before=tuple(nodes), after=(), embedding=Embedding(), titles=titles)
        name, stage = found
        place = next(i for i, node in enumerate(nodes) if node.name == name)
        prefix = f"{name}."
        return StackPlan(
            layers=stage.layers, kinds=layer_kinds(stage.layers, self.blocks, prefix), before=tuple(nodes[:place]),
            after=tuple(nodes[place + 1 :]), embedding=Embedding(), prefix=prefix, side=f"{self.tower.name} ",
            titles=titles,
        )  # fmt: skip


def tower_columns(model: Model, marked: Marks) -> list[Column]:
    """A column for each encoder whose stages are known; its boxes add up to its parameters."""
    return [_column(model, tower, marked) for tower in model.towers if tower.stages]


def _column(model: Model, tower: Tower, marked: Marks) -> Column:
    plan = TowerPlan(model, tower)
    title = f"{tower.name.capitalize()} encoder: {tower_size(tower):,}, not in the total"
    drawn = column(plan, plan.main, marked, title)
    drawn.picture = drawn.picture._replace(body=drawn.picture.body.replace("data-params=", "data-beside="))
    return drawn
