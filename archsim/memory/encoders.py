"""What engines keep free for vision encoders: a factor on the memory fraction, or the step over the largest images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from archsim.counts.formats import Formats
from archsim.counts.images import Images, ImageWork
from archsim.counts.step_graphs import mesh_of
from archsim.counts.towers import tower_depth, tower_tp
from archsim.graph.passes.shard import shard
from archsim.memory.activations import forward_bytes
from archsim.spec.engine import Engine
from archsim.spec.model import Model, Tower


class EncoderStep(NamedTuple):
    """The step of an encoder on one device. images: of the largest size. tokens: of each. inside: bytes while it runs.
    outputs: bytes that it leaves for the language model.
    """

    images: int
    tokens: int
    inside: int
    outputs: int


def encoder_share(rules: Engine, towers: Sequence[Tower]) -> float:
    """Factor on the engine's memory fraction for the encoders that it loads."""
    rule = rules.memory.encoders.share
    seen = [tower_depth(tower) for tower in towers if tower.name == "vision"]
    return rule.of(*seen[0]) if rule is not None and seen else 1.0


def largest_encoder_step(
    model: Model, formats: Formats, rules: Engine, towers: Sequence[Tower], tokens: int, tp: int
) -> EncoderStep | None:
    """The step that an engine profiles at its start: as many images of the largest size as `tokens` tokens hold, one at
    least. None where it does not, or where nothing says how large an image gets.
    """
    tower = next((t for t in towers if t.name == "vision" and t.stages and t.images is not None), None)
    if not rules.memory.encoders.profiled or tower is None or tower.images is None:
        return None
    from archsim.spec.tower import TowerModel

    side = tower.images.largest
    one = ImageWork.of(model, Images(side, side))
    images = max(1, tokens // max(one.tokens, 1))
    own = TowerModel.of(model, tower)
    graph = formats.apply(own.traced_graph(one.step(images)))
    inside = forward_bytes(shard(graph, mesh_of(tower_tp(tower, tp), 1, 1, 1)), rules.memory.activations.element)
    outputs = images * one.tokens * model.d_model * rules.memory.activations.element
    return EncoderStep(images, one.tokens, int(inside), int(outputs))
