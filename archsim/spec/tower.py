"""Vision and audio encoders as graphs: what a step of patches or frames runs."""

from __future__ import annotations

from typing import cast

from archsim.blocks.stage import lower_stages, tokens_after
from archsim.graph.builder import Builder
from archsim.graph.graph import Block
from archsim.graph.step import Step
from archsim.spec.lower import blocks_checked
from archsim.spec.model import Model, Tower


def lower_tower(tower: Tower, step: Step) -> Block:
    """The graph of an encoder over so many patches or frames of each image or sound. Raises SpecError for blocks that
    do not fit together.
    """
    b = Builder(T=step.tokens, S=step.n_seqs)
    with blocks_checked(f"{tower.name} tower"), b.part(f"{tower.name} encoder"):
        lower_stages(b, None, tower.stages, step)
    return b.graph()


def tokens_of(tower: Tower, step: Step) -> int:
    """Vectors that leave an encoder for the language model."""
    return int(tokens_after(tower.stages, step))


class TowerModel(Model):
    """An encoder as a model of its own, so that whatever counts and times steps does so for it."""

    @property
    def tower(self) -> Tower:
        """The encoder itself, which is no field of the document."""
        return cast(Tower, self.__dict__["_tower"])

    @classmethod
    def of(cls, model: Model, tower: Tower) -> TowerModel:
        """The encoder of a model, stored in the format of the model's plain tensors."""
        layers = model.layers if model.encoder is None else model.encoder.layers
        made = cls(
            name=f"{model.name} {tower.name}", architecture="encoder", d_model=model.d_model, vocab_size=1,
            layers=layers[:1], embedding=model.embedding.model_copy(update={"input_rows": None}),
            weights={"default": model.weights["default"]},
        )  # fmt: skip
        return made.model_copy(update={"_tower": tower})

    def traced_graph(self, step: Step) -> Block:
        """The encoder's graph."""
        return lower_tower(self.tower, step)
