"""What caches take in an engine: whole pages, windows kept or cut, by request length."""

from __future__ import annotations

from dataclasses import dataclass, replace

from archsim.base.number import ceil_div
from archsim.graph.graph import Block
from archsim.graph.tensor import Format, Tensor, nbytes
from archsim.memory.budget import Held
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


def _resized(tensor: Tensor, length: int, paging: Paging) -> int:
    if "C" not in tensor.axes or tensor.role == "recurrent":
        return int(nbytes(tensor))
    slots = paging.slots(int(tensor.axes["C"]), length)
    return int(nbytes(replace(tensor, axes={**tensor.axes, "C": slots})))


def stated(graph: Block, rules: Engine, keys: Format | None = None, values: Format | None = None) -> Block:
    """The graph with recurrent states as the engine keeps them, and keys and values in formats of their own."""
    from archsim.graph.graph import map_tensors
    from archsim.graph.tensor import FP32

    if rules.memory.states == "model" and keys is None and values is None:
        return graph

    def change(tensor: Tensor) -> Tensor:
        if tensor.kind != "state":
            return tensor
        if tensor.role == "recurrent":
            return replace(tensor, format=FP32) if rules.memory.states == "fp32" else tensor
        own = values if tensor.name.endswith("v_cache") else keys
        return tensor if own is None else replace(tensor, format=own)

    return map_tensors(graph, change)


def expanded(graph: Block, rules: Engine) -> Block:
    """The graph with MLA's latent cache as the keys and values of every head, where the engine keeps those."""
    from archsim.graph.graph import map_tensors, ops

    if rules.memory.latent == "latent":
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
