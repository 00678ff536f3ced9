"""Attention masks as data: which keys a query may see."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.blocks.dispatch import About, Count, Fields, InvalidBlock, Spec
from archsim.graph.step import Mask


class MaskSpec(Spec):
    """causal, bidirectional, prefix (a bidirectional start), sliding (the last `window` keys, the query's own
    included; to both sides with `bidirectional: true`), chunked (keys of the own chunk), banded (GPT-3's locally
    banded layers: sliding under another name), block_sparse (a window and every `vertical`-th key before it), blocked
    (queries of a chunk of `window` are multiplied with the `context` keys in and around it).
    """

    kind: Literal["causal", "bidirectional", "prefix", "sliding", "chunked", "banded", "block_sparse", "blocked"] = (
        "causal"
    )
    window: Count | None = None
    bidirectional: bool = False
    prefix: Count | None = None
    vertical: Count | None = None
    block: Count | None = None
    global_tokens: int = 0
    context: Count | None = None

    about = {"block_sparse": About("block-sparse")}
    letters = {"window": ("W", "window")}
    decisions = {"*": "windows"}

    def extents(self) -> dict[str, int]:
        """Cutting into chunks rounds, which a polynomial cannot: their length stays a number."""
        return {} if self.kind in ("chunked", "blocked") else super().extents()

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """Its kind and window."""
        name = super().describe(fields)
        return f"{name} {fields['window']:,}" if fields["window"] else name

    @model_validator(mode="after")
    def _window_needed(self) -> MaskSpec:
        needs = self.kind in ("sliding", "chunked", "block_sparse", "blocked")
        if needs and self.window is None:
            raise InvalidBlock(f"mask kind {self.kind} needs `window`: in tokens, such as `window: 4096`", "E104")
        if (self.kind == "blocked") != (self.context is not None):
            raise InvalidBlock("mask kind blocked needs `context`, the keys of a chunk's queries, and no other has it")
        return self

    def mask(self, top_k: int = 0) -> Mask:
        """The mask as counting and execution see it; `top_k` keys per query when an indexer selects them."""
        width = self.window or 0
        chunked = self.kind in ("chunked", "blocked")
        return Mask(
            causal=not (self.bidirectional or self.kind in ("bidirectional", "blocked")),
            window=0 if chunked else width,
            chunk=width if chunked else 0,
            global_tokens=self.global_tokens,
            prefix=self.prefix or 0,
            vertical=(self.vertical or 0) if self.kind == "block_sparse" else 0,
            block=self.block or 0,
            top_k=top_k,
            context=self.context or 0,
        )
