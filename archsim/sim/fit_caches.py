"""What caches take in an engine: whole pages, windows kept or cut, by request length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from archsim.base.number import ceil_div
from archsim.graph.graph import Block
from archsim.graph.tensor import Tensor, nbytes
from archsim.sim.budget import Held, layer_tensors
from archsim.spec.engine import Engine

LONGEST = 1 << 27
"""Tokens of the request that caches are first laid out for: longer than any window, so that what is shorter in
the graph is a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """An engine's way to keep caches. block: tokens a page holds. windows: as in the engine document. chunk:
    tokens of one step."""

    block: int
    windows: str
    chunk: int

    def slots(self, stored: int, length: int) -> int:
        """Tokens that one layer keeps of a request of `length`; `stored`: its extent at LONGEST."""
        if stored < LONGEST and self.windows != "full":
            length = min(length, stored + (self.chunk if self.windows == "chunk" else 0))
        return int(ceil_div(length, self.block)) * self.block


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the device of one pipeline stage holds. weights: bytes. caches: of one request of LONGEST tokens."""

    weights: int
    caches: tuple[Held, ...]

    def request_bytes(self, length: int, paging: Paging) -> int:
        """Cache and state of one request of `length` tokens."""
        return sum(round(_resized(held.tensor, length, paging)) * int(held.copies) for held in self.caches)

    @property
    def paged(self) -> bool:
        """Whether every byte belongs to a page of the same kind: no windows, no constant states."""
        grows = [h.tensor.axes.get("C") == LONGEST for h in self.caches]
        return bool(grows) and all(grows)

    def tokens(self, room: int, length: int, paging: Paging) -> int:
        """Tokens that `room` bytes hold: whole pages; where layers differ, by requests of `length`."""
        if room <= 0 or not self.caches:
            return 0
        if self.paged or (paging.windows == "full" and not self._constant):
            return room // self.request_bytes(paging.block, paging) * paging.block
        return int(room / self.request_bytes(length, paging) * length)

    @property
    def _constant(self) -> bool:
        return any("C" not in h.tensor.axes for h in self.caches)


def stages(graph: Block, count: int) -> tuple[Stage, ...]:
    """Layers in equal runs; what is outside of layers is charged to the last, as `estimate` does."""
    weights, caches = layer_tensors(graph, "weight"), layer_tensors(graph, "state")
    *layers, outside = list(zip(weights, caches, strict=True))
    size = -(-len(layers) // count)
    runs = [layers[i : i + size] for i in range(0, len(layers), size)] or [[]]
    runs[-1].append(outside)
    return tuple(_stage([w for w, _ in run], [s for _, s in run]) for run in runs)


def _stage(weights: Sequence[Sequence[Held]], caches: Sequence[Sequence[Held]]) -> Stage:
    total = sum(round(held.bytes) for group in weights for held in group)
    return Stage(weights=total, caches=tuple(held for group in caches for held in group))


def _resized(tensor: Tensor, length: int, paging: Paging) -> int:
    if "C" not in tensor.axes or tensor.role == "recurrent":
        return int(nbytes(tensor))
    slots = paging.slots(int(tensor.axes["C"]), length)
    return int(nbytes(replace(tensor, axes={**tensor.axes, "C": slots})))


def expanded(graph: Block, rules: Engine) -> Block:
    """The graph with MLA's latent cache as the keys and values of every head, where the engine keeps those."""
    from archsim.graph.graph import map_tensors, ops

    if rules.latent == "latent":
        return graph
    heads = next((op.writes[0].axes for op, _ in ops(graph) if op.name.endswith(".k_up")), None)
    if heads is None:
        return graph

    def change(tensor: Tensor) -> Tensor:
        if tensor.kind != "state" or not tensor.name.endswith(("latent_cache", "rope_cache")):
            return tensor
        width = 2 * heads["Hn"] if tensor.name.endswith("latent_cache") else 2 * tensor.axes["Hr"]
        return replace(tensor, axes={"C": tensor.axes["C"], "N": heads["N"], "Hn": width})

    return map_tensors(graph, change)
