"""Pipeline stages as engines cut them: which layers, and what of the ends, each stage holds."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.graph.graph import Block
from archsim.memory.budget import Held, layer_tensors
from archsim.memory.kv_blocks import Stage
from archsim.spec.engine import Engine
from archsim.spec.model import Model

TABLES = ("embedding", "position", "embedding_other", "embedding_per_layer")
"""Roles of tensors outside of layers that belong to the first stage."""


def layer_counts(layers: int, stages: int, rule: str) -> list[int]:
    """Layers of every stage. rule: where those go that are left over, as in the engine document."""
    each, over = divmod(layers, stages)
    counts = [each] * stages
    if rule == "output":  # llama.cpp: the output matrix counts as one more layer
        places = [layer * stages // (layers + 1) for layer in range(layers)]
        return [places.count(i) for i in range(stages)]
    if rule == "even":
        size = -(-layers // stages)
        return [max(0, min(size, layers - i * size)) for i in range(stages)]
    if rule == "all_last":
        counts[-1] += over
        return counts
    start = {"first": 0, "last": stages - over, "before_last": stages - 1 - over}[rule]
    return [n + (start <= i < start + over) for i, n in enumerate(counts)]


def stages(graph: Block, count: int, rules: Engine, model: Model) -> tuple[Stage, ...]:
    """What the device of every stage holds.

    The first has the tables of the input, the last the head; of a tied table both have a copy. Where layers are
    cut as `estimate` does ("even"), all that is outside of layers is in the last.
    """
    weights, caches = layer_tensors(graph, "weight"), layer_tensors(graph, "state")
    ends = (
        ([], list(weights[-1]))
        if rules.parallelism.pipeline == "even" or count == 1
        else _ends(weights[-1], rules, model)
    )
    result, at = [], 0
    counts = layer_counts(len(weights) - 1, count, rules.parallelism.pipeline)
    for i, size in enumerate(counts):
        own = [held for layer in weights[at : at + size] for held in layer]
        own += (ends[0] if i == 0 else []) + (ends[1] if i == count - 1 else [])
        kept = [held for layer in caches[at : at + size] for held in layer]
        kept += caches[-1] if i == count - 1 else []
        result.append(Stage(weights=sum(round(held.bytes) for held in own), caches=tuple(kept)))
        at += size
    return tuple(result)


def _ends(outside: Sequence[Held], rules: Engine, model: Model) -> tuple[list[Held], list[Held]]:
    """What is outside of layers, by the end of the pipeline that holds it."""
    first = [held for held in outside if held.tensor.role in TABLES]
    last = [held for held in outside if held.tensor.role not in TABLES]
    if model.head is not None and model.head.tied:
        last += [held for held in first if held.tensor.name == "embedding.tokens"]
    return ([] if rules.memory.embedding == "host" else first), last
