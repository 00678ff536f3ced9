"""How an engine keeps caches: in whole pages, windows kept or cut, in formats of its own."""

from __future__ import annotations

from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.number import Num, ceil_div, floor_div, minimum
from archsim.graph.graph import Block, map_tensors, ops
from archsim.graph.tensor import FP32, Format, Tensor
from archsim.spec.engine import CachePools, Engine, PageGroups

LONGEST = 1 << 40
"""Tokens of the request that caches are laid out for: so many that windows, compressed entries and whole caches are
told apart by what they keep of it.
"""

LONGEST_SOURCE = LONGEST // 2 + 1
"""Tokens of that request's source, of an encoder-decoder: caches of cross-attention are told apart by it."""

WIDEST_WINDOW = 1 << 27
"""Tokens of a window at most. What keeps more of that request, and not all, has an entry for several tokens each."""


def is_window(stored: int) -> bool:
    """Whether a layer that keeps so much of a request of LONGEST has a window."""
    return 0 < stored <= WIDEST_WINDOW


def tokens_of_entry(stored: int) -> int:
    """Tokens that each entry stands for, of a layer without a window that keeps so much of a request of LONGEST."""
    return 1 if stored == LONGEST_SOURCE else round(LONGEST / stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """An engine's way to keep caches. block: tokens a page holds. windows: as in the engine document. chunk:
    tokens of one step. groups: of layers with pages that are equally large, None where each has its own. pools: of
    layers with windows or states, None where all share one.
    """

    block: int
    windows: str
    chunk: int
    groups: PageGroups | None = None
    pools: CachePools | None = None

    @property
    def running(self) -> Paging:
        """The same for requests that run: of the tokens of a single step at most."""
        return self if self.groups is None else replace(self, groups=self.groups.model_copy(update={"steps": 1}))

    @property
    def alone(self) -> Paging:
        """The same without padding to equal pages."""
        return replace(self, groups=None)

    def slots(self, stored: int, length: Num) -> Num:
        """Tokens that one layer keeps of a request of `length`; `stored`: what it keeps of one of LONGEST."""
        if is_window(stored):
            if self.windows != "full":
                length = minimum(length, stored + (self.chunk if self.windows == "chunk" else 0))
            return self.whole_pages(length)
        return floor_div(self.whole_pages(length), tokens_of_entry(stored))

    def whole_pages(self, length: Num) -> Num:
        """Tokens of the pages that hold so many."""
        return ceil_div(length, self.block) * self.block


def with_cache_formats(graph: Block, rules: Engine, keys: Format | None = None, values: Format | None = None) -> Block:
    """The graph with recurrent states as the engine keeps them, and keys and values in formats of their own."""
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


def has_latent_cache(graph: Block) -> bool:
    """Whether an attention of the graph caches latents (MLA)."""
    uses = (use.tensor for op, _ in ops(graph) for use in (*op.reads, *op.writes))
    return any(t.kind == "state" and t.name.endswith("latent_cache") for t in uses)


def with_expanded_latents(graph: Block, rules: Engine) -> Block:
    """The graph with MLA's latent cache as the keys and values of every head, where the engine keeps those."""
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
