"""A model with as few layers to go through as what it caches takes: layers that differ elsewhere are run as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from functools import lru_cache

from archsim.base.data_class import dataclass
from archsim.blocks.layer import Layer
from archsim.spec.model import Model


def with_equal_caches(model: Model) -> Model:
    """The model with layers that differ in their feed-forward block alone as repetitions of the first of them. Caches,
    and all that goes over them, are those of the model; weights and arithmetic are not. The model itself where less
    than half of its layers could be left out.
    """
    return _with_equal_caches(_Named(model.name, model))


@dataclass(frozen=True, slots=True)
class _Named:
    """A model by value, found by its name."""

    name: str
    model: Model = field(hash=False)


@lru_cache(maxsize=4)
def _with_equal_caches(named: _Named) -> Model:
    model = named.model
    alike: Counter[Layer] = Counter()
    first: dict[Layer, Layer] = {}
    for layer in model.layers:
        kind = layer.model_copy(update={"name": None, "repeat": 1, "ffn": None})
        alike[kind] += layer.repeat
        first.setdefault(kind, layer)
    if 2 * len(first) >= len(model.layers) or any(layer.layers for layer in model.layers):
        return model
    layers = tuple(layer.model_copy(update={"repeat": alike[kind]}) for kind, layer in first.items())
    return model.model_copy(update={"layers": layers})
