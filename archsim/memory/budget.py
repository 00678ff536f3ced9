"""Memory of one device: weights, caches, activations, and what the runtime takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from archsim.base.json_types import JsonObject
from archsim.base.number import Num, nearest, where
from archsim.counts import graph_counts as c
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block, blocks
from archsim.graph.tensor import Tensor, nbytes

USABLE = 0.90
"""Share of the memory that a process plans with, the usual default of serving engines."""

RUNTIME_BYTES = 512 * 2**20
"""CUDA context and libraries: engines log 0.33 to 0.6 GiB outside their own tensors (see docs/concepts.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on the fullest device. kv_cache: of all sequences at their full length, recurrent states included."""

    capacity: int
    usable: int
    weights: Num
    kv_cache: Num
    activations: Num
    runtime: int

    @property
    def needed(self) -> Num:
        """All that must fit."""
        return self.weights + self.kv_cache + self.activations + self.runtime

    @property
    def free(self) -> Num:
        """What is left; negative when it does not fit."""
        return self.usable - self.needed

    @property
    def fits(self) -> Any:
        """Whether everything fits into the usable share."""
        return self.free >= 0

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return {
            "fits": self.fits,
            "per_device": {
                "capacity_bytes": self.capacity, "usable_bytes": self.usable, "weights_bytes": self.weights,
                "kv_cache_bytes": self.kv_cache, "activation_bytes": self.activations,
                "runtime_bytes": self.runtime, "free_bytes": self.free,
            },
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor on a device, and how many of it."""

    tensor: Tensor
    copies: Num

    @property
    def bytes(self) -> Num:
        """Bytes of all copies."""
        return nbytes(self.tensor) * self.copies


def layer_tensors(graph: Block, kind: str) -> list[list[Held]]:
    """The tensors of one kind of every layer in order, then of what is outside layers (embedding, head)."""
    home: dict[str, list[Held]] = {}
    leaves = _leaf_layers(graph)
    names = {b.name for b in leaves}
    outside: list[Held] = []
    for item in inventory(graph, kind=kind):
        owner = _owner(item.tensor.name, names)
        if owner is None:
            outside.append(Held(item.tensor, item.copies))
        else:
            home.setdefault(owner, []).append(Held(item.tensor, 1))
    return [*(home.get(b.name, []) for b in leaves), outside]


def layer_bytes(graph: Block) -> list[tuple[Num, Num]]:
    """(weight, state) bytes of every layer in order, then of what is outside layers (embedding, head)."""
    both = (layer_tensors(graph, "weight"), layer_tensors(graph, "state"))
    known: dict[tuple[int, int], tuple[Num, Num]] = {}  # repetitions of a layer hold the very same lists
    for w, s in zip(*both, strict=True):
        if (id(w), id(s)) not in known:
            known[id(w), id(s)] = (sum(h.bytes for h in w), sum(h.bytes for h in s))
    return [known[id(w), id(s)] for w, s in zip(*both, strict=True)]


def _leaf_layers(graph: Block) -> list[Block]:
    """Layer blocks in order of execution, repetitions written out: loops that hold no other loop."""
    found: list[Block] = []

    def visit(block: Block) -> None:
        inner = [child for child in block.body if isinstance(child, Block) and _has_loop(child)]
        for _ in range(block.times if block.carry else 1):
            if block.carry and not inner:
                found.append(block)
            for child in inner:
                visit(child)

    visit(graph)
    return found


def _has_loop(block: Block) -> bool:
    return any(b.carry for b in blocks(block))


def _owner(name: str, names: set[str]) -> str | None:
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:i])
        if path in names:
            return path
    return None


def fullest_stage(graph: Block, stages: int) -> tuple[Num, Num]:
    """(weight, state) bytes of the pipeline stage that holds most: layers in equal runs, the ends also the rest.

    Embedding and head are charged to one stage together, which overstates by the smaller of the two.
    """
    *layers, outside = layer_bytes(graph)
    size = -(-len(layers) // stages)
    runs = [layers[i : i + size] for i in range(0, len(layers), size)] or [[]]
    distinct = {tuple(map(id, run)): _summed(run) for run in runs[:-1]}
    weights, state = _summed([*runs[-1], outside])
    for other in distinct.values():
        more = sum(other) > weights + state
        weights, state = where(more, other[0], weights), where(more, other[1], state)
    return weights, state


def _summed(run: list[tuple[Num, Num]]) -> tuple[Num, Num]:
    """(weight, state) bytes of some layers; alike ones are the very same object."""
    alike = {id(layer): layer for layer in run}
    counts = Counter(map(id, run))
    return (
        sum(n * alike[key][0] for key, n in counts.items()),
        sum(n * alike[key][1] for key, n in counts.items()),
    )


def memory(
    capacity: int, usable: float, whole: Block, activations: Num, stages: int, runtime: int = RUNTIME_BYTES
) -> Memory:
    """The budget of one device. whole: a graph with every weight and the caches at full length."""
    if stages > 1:
        weights, state = fullest_stage(whole, stages)
    else:
        weights, state = c.weight_bytes(whole), c.state_bytes(whole)
    return Memory(
        capacity=capacity, usable=int(capacity * usable), weights=nearest(weights), kv_cache=nearest(state),
        activations=activations, runtime=runtime,
    )  # fmt: skip
