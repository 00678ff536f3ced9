"""Index heads that choose whole blocks of keys (MiniMax-M3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archsim.base.lazy_model import Field
from archsim.blocks.dispatch import Count, Spec
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder
from archsim.graph.step import CAUSAL, Mask
from archsim.graph.tensor import Tensor

if TYPE_CHECKING:
    from archsim.blocks.block import Context, Position


class BlockIndexer(Spec):
    """One index head for every key/value head scores the one index key that is cached of a token. The best score of
    each `block` keys is that of the block; a query attends to the `n_blocks` best blocks, of which `local` are its own
    block and those just before it. Queries and keys of the index are normed and rotated like those of the attention.
    """

    d_head: Count
    block: Count
    n_blocks: Count
    local: Count = 1
    norm: Norm = Field(default_factory=lambda: Norm(kind="rmsnorm", eps=1e-6))

    decisions = {"*": "indexer"}
    limits = {"n_blocks": 2, "local": 1}
    brief = "the best {n_blocks:,} blocks of {block:,} keys"

    @property
    def top_k(self) -> int:
        """Keys that a query attends to."""
        return self.n_blocks * self.block

    def lower(self, b: Builder, x: Tensor, ctx: Context, position: Position) -> str:
        """Scores of all keys, over K (key/value heads) and P; returns the name of the tensor."""
        step = ctx.step
        with b.part("indexer"), b.block("indexer", Hi=self.d_head, C=step.stored(), P=step.pairs(CAUSAL)):
            q = self.norm.lower(b, "q_norm", b.linear("q", x, "D K Hi", "T K Hi"), "Hi")
            k = self.norm.lower(b, "k_norm", b.linear("k", x, "D Hi", "T Hi"), "Hi")
            q, k = position.rotate(b, "q_rope", q), position.rotate(b, "k_rope", k)
            cache = b.state("k_cache", "C Hi")
            b.append(cache, k)
            return b.contract("scores", q, cache.part(C=step.read()), "K P", cls="attention").name

    def mask(self) -> Mask:
        """What attention over the chosen blocks computes."""
        return Mask(top_k=self.top_k, block=self.block, local=self.local)
