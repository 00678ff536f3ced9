"""The training-recipe document: how weights, gradients and optimizer states are stored, and what products run in."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field, LazyModel
from archsim.graph.tensor import Format
from archsim.spec import loader
from archsim.spec.catalog import resolve
from archsim.spec.document_cache import DocumentCache
from archsim.spec.format import load_format

Method = Literal["full", "lora", "qlora"]
"""What is trained: every weight, or adapters beside frozen ones, which QLoRA stores in few bits."""


class Recipe(LazyModel):
    """Formats of training, each the name of a format document.

    weights: of trainable weights between steps. working: in which products read them and gathers move them, where that
    is another copy. copies: further copies of matrices that products read; copies_alone: whether matrices of layers
    are stored as these and not as `weights` too (`fp8_param_gather` of Megatron). gradients: as they are accumulated;
    reduced: as they cross the fabric. master: of the optimizer's own copy of weights; none where it updates the
    weights themselves. moments: of the optimizer's moments. products: of the products of matrices in layers; experts'
    too. activations: of activations, and of the products of all other weights. frozen: of matrices of layers that are
    not trained. method: what of a model it is made to train, where that is not asked.
    """

    schema_: Literal["archsim.recipe/1"] = Field(alias="schema")
    name: str
    title: str
    aliases: tuple[str, ...] = ()
    weights: str
    working: str | None = None
    copies: tuple[str, ...] = ()
    copies_alone: bool = False
    gradients: str
    reduced: str | None = None
    master: str | None = None
    moments: str
    products: str = "bf16"
    activations: str = "bf16"
    frozen: str = "bf16"
    method: Method = "full"
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def gathered(self) -> str:
        """The format in which weights are gathered."""
        return self.copies[0] if self.copies and self.copies_alone else self.working or self.weights

    @property
    def sent(self) -> str:
        """The format in which gradients cross the fabric."""
        return self.reduced or self.gradients


def format_bytes_of(name: str | None) -> float:
    """Bytes of one element in whole blocks; 0 without a name."""
    return 0.0 if name is None else stored(name).bits / 8


def stored(name: str) -> Format:
    """The format of a name."""
    return load_format(name).format()


def load_recipe(name: str) -> Recipe:
    """The recipe of a name, alias or path. Raises UnknownName, SpecError."""
    path = resolve("recipes", name).path
    return _DOCUMENTS.get(path, lambda reader: loader.validate(reader.read(path), Recipe, document="recipe"))


_DOCUMENTS: DocumentCache[Recipe] = DocumentCache("recipe")
"""Recipes by path, each kept while its file stays the same."""
