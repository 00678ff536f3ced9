"""Memory beyond the language model: towers of optional parts, and slots for adapters."""

from __future__ import annotations

from collections.abc import Collection

from archsim.base.number import product
from archsim.counts.formats import Formats
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block
from archsim.spec.model import Model


def extra_bytes(model: Model, formats: Formats, parts: Collection[str], tp: int) -> int:
    """Opaque towers asked for, cut over the tensor-parallel ranks. Other parts are in the graph already."""
    towers = sum(formats.tower_bytes(tower.params) for tower in model.towers if tower.name in parts)
    return -(-towers // tp)


def lora_bytes(graph: Block, slots: int, rank: int) -> int:
    """Slots for adapters, allocated when the engine starts: rank x (inputs + outputs) of every linear weight on
    the rank, 2 bytes each (https://github.com/vllm-project/vllm/issues/14450).
    """
    if not slots:
        return 0
    total = 0
    for item in inventory(graph):
        tensor = item.tensor
        if tensor.role == "linear" and tensor.inner:
            inner = product(n for a, n in tensor.axes.items() if a in tensor.inner)
            outer = product(n for a, n in tensor.axes.items() if a not in tensor.inner)
            total += round((inner + outer) * item.copies)
    return 2 * slots * rank * total
