"""DeepSeek-V4's attention: a window of tokens beside entries that stand for many tokens each."""

from __future__ import annotations

from typing import Literal

from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num, divide
from archsim.blocks import tiny
from archsim.blocks.block import AttentionSpec, Context
from archsim.blocks.compressor import Compressor
from archsim.blocks.dispatch import About, Changes, Count, InvalidBlock, Spec
from archsim.blocks.mask import MaskSpec
from archsim.blocks.mla import LatentNorm
from archsim.blocks.norm import Norm
from archsim.blocks.rope import Rope
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor


class EntryIndexer(Spec):
    """Light heads that choose `top_k` entries for every query; their keys are entries of their own, `d_head` wide."""

    n_heads: Count
    d_head: Count
    top_k: Count

    decisions = {"*": "indexer"}
    limits = {"top_k": 2}
    brief = "the best {top_k:,} entries"


class CompressedAttention(AttentionSpec):
    """`n_heads` query heads, through a latent of `q_rank`, over one head that is key and value at once. A query sees
    the last `window` tokens (mask) and, with `ratio`, entries of so many tokens each, which a learned softmax over them
    makes. overlap: an entry also takes in the tokens of the entry before, by projections of their own. indexer: chooses
    among entries. Queries and keys are rotated, and results are turned back. Heads give their results to `out_groups`
    matrices, of which each makes `out_rank` numbers. A learned logit per head joins the softmax.
    """

    kind: Literal["compressed"] = "compressed"
    n_heads: Count
    d_head: Count
    q_rank: Count
    out_groups: Count
    out_rank: Count
    ratio: Count | None = None
    overlap: bool = False
    indexer: EntryIndexer | None = None
    norm: LatentNorm = Field(default_factory=lambda: LatentNorm(kind="rmsnorm", eps=1e-6))
    position: Rope = Field(default_factory=lambda: Rope(interleaved=True))
    mask: MaskSpec

    about = {"compressed": About("compressed attention", "Compressed attention", "CSA",
                                 "compressed attention: DeepSeek-V4, section 2.3")}  # fmt: skip
    letters = {"out_rank": ("Or", "rank of a group's output")}
    decisions = {"ratio": "compression", "overlap": "compression", "indexer": "indexer", "mask": "windows",
                 "out_groups": "latent_sizes", "out_rank": "latent_sizes"}  # fmt: skip
    words = {"ratio": "tokens per entry", "overlap": "overlap"}
    absent = {"indexer": None, "ratio": None}
    kind_decision = "latent"
    axis_fields = {"Q": "q_rank", "H": "d_head", "Or": "out_rank"}
    caches_heads = False

    @model_validator(mode="after")
    def _consistent(self) -> CompressedAttention:
        if self.n_heads % self.out_groups:
            raise InvalidBlock(f"n_heads {self.n_heads} is not a multiple of out_groups {self.out_groups}")
        if self.ratio is None and (self.overlap or self.indexer is not None):
            raise InvalidBlock("`overlap` and `indexer` are about entries, so they need `ratio`")
        if self.mask.kind != "sliding":
            raise InvalidBlock("`kind: compressed` sees a window of tokens: its mask is `kind: sliding`")
        return self

    @property
    def kv_heads(self) -> int:
        """One head is key and value."""
        return 1

    @property
    def label(self) -> str:
        """As tables print it: by what is compressed."""
        if self.ratio is None:
            return "SWA"
        return "HCA" if self.indexer is None else "CSA"

    def tiny_fields(self) -> Changes:
        """Two groups of heads."""
        heads = min(self.n_heads, tiny.HEADS)
        groups = min(self.out_groups, 2) if heads % 2 == 0 else 1
        ratio = None if self.ratio is None else min(self.ratio, 4 if self.overlap else tiny.WINDOW)
        return super().tiny_fields() | {"n_heads": heads, "out_groups": groups, "out_rank": 8, "ratio": ratio}

    def entries(self) -> Mask:
        """Which entries a query sees."""
        return Mask(ratio=self.ratio or 0, top_k=self.indexer.top_k if self.indexer else 0)

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "attention") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step, near, far = ctx.step, self.mask.mask(), self.entries()
        pairs = step.pairs(near) + (step.pairs(far) if self.ratio else 0)
        heads = {"N": self.out_groups, "J": divide(self.n_heads, self.out_groups)}
        sizes: dict[str, Num] = {**heads, "H": self.d_head, "Q": self.q_rank, "Or": self.out_rank}
        with b.block(name, **sizes, S=step.n_seqs, C=step.stored(near), P=pairs):
            latent = self.norm.lower(b, "q_norm", b.linear("q_down", x, "D Q", "T Q"), "Q")
            q = Norm(kind="rmsnorm", affine=False, eps=self.norm.eps).lower(
                b, "q_head_norm", b.linear("q", latent, "Q N J H", "T N J H"), "H"
            )
            q = self.position.rotate(b, "q_rope", q)
            keys: list[Operand] = [self._window(b, x, step, near)]
            index = ""
            if self.ratio is not None:
                keys.append(self._compressor(self.d_head, "H").lower(b, x, step, far))
                index = self._index(b, x, latent, step) if self.indexer else ""
            o = self._core(b, q, keys, near, far, index)
            o = b.map("o_rope", "rope", o, rope=self.position, inverse=True)
            return b.linear("o", b.linear("o_down", o, "N J H Or", "T N Or"), "N Or D", "T D")

    def _window(self, b: Builder, x: Tensor, step: Step, near: Mask) -> Operand:
        """Keys, which are values too, of the last tokens."""
        kv = self.norm.lower(b, "kv_norm", b.linear("kv", x, "D H", "T H"), "H")
        kv = self.position.rotate(b, "kv_rope", kv)
        cache = b.state("kv_cache", "C H")
        b.append(cache, kv, step.appended(near))
        return cache.part(C=step.read(near))

    def _compressor(self, width: int, axis: str) -> Compressor:
        assert self.ratio is not None
        return Compressor(self.ratio, self.overlap, width, axis, self.norm, self.position)

    def _index(self, b: Builder, x: Tensor, latent: Tensor, step: Step) -> str:
        """Scores of all entries, over P (query and entry); returns the name of the tensor."""
        assert self.indexer is not None
        spec, every = self.indexer, Mask(ratio=self.ratio or 0)
        with b.part("indexer"), b.block("indexer", Ni=spec.n_heads, Hi=spec.d_head, P=step.pairs(every)):
            q = self.position.rotate(b, "q_rope", b.linear("q", latent, "Q Ni Hi", "T Ni Hi"))
            keys = self._compressor(spec.d_head, "Hi").lower(b, x, step, every)
            weight = b.linear("weights", x, "D Ni", "T Ni", role="router")
            s = b.map("relu", "relu", b.contract("scores", q, keys, "Ni P", cls="attention"))
            total = b.tensor("sum", "P")
            return b.emit(
                "map", "sum", (s, weight), total, fn="head_sum", rate=2 * spec.n_heads,
                attrs={"keeps": self.entries()},
            ).name  # fmt: skip

    def _core(self, b: Builder, q: Tensor, keys: list[Operand], near: Mask, far: Mask, index: str) -> Tensor:
        """One softmax over the window and the entries."""
        seen: Num = sum([use.axes["C"] for use in keys])
        attrs: JsonObject = ({"entries": far} if self.ratio else {}) | ({"index": index} if index else {})
        with b.block("core", kernel="attention", C=seen):
            both = b.map("keys", "join", *keys, axes="C H") if len(keys) > 1 else keys[0]
            s = b.contract("qk", q, both, "N J P", cls="attention", scale=self.d_head**-0.5)
            p = b.map("p", "softmax", s, b.weight("sinks", "N J", "bias"), mask=near, **attrs)
            return b.contract("pv", p, both, "T N J H", cls="attention")
