"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values live in one small latent."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num
from archsim.blocks import tiny
from archsim.blocks.attention_gate import Gate
from archsim.blocks.block import AttentionSpec, Context
from archsim.blocks.compressor import pool
from archsim.blocks.dispatch import About, Changes, Count, Fields, InvalidBlock, Spec
from archsim.blocks.mask import MaskSpec
from archsim.blocks.norm import Norm
from archsim.blocks.rope import Rope
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import CAUSAL, Mask, Step
from archsim.graph.tensor import Tensor, Use

Queries = tuple[Operand, ...]
"""Queries without position, and those with it where there are any."""

Caches = tuple[Tensor, ...]
"""The latent, and the rotated key where there is one."""

UpProjections = tuple[Tensor, Tensor]
"""Those of keys and of values."""


FREQUENCIES = "learned_frequencies"
"""Under which the stack keeps its table of factors on frequencies."""

CountOrNone = Annotated[int, Field(strict=True, ge=0, le=10**9)]
"""A whole number that may be 0."""


class Weighing(NamedTuple):
    """What decides how much each key counts, beside the products: the mask, the name of the scores that keys are chosen
    by, and the logits that join the softmax.
    """

    mask: Mask
    chosen: str
    sinks: tuple[Tensor, ...]


class Indexer(Spec):
    """DeepSeek's lightning indexer: light heads with one cached key per token choose `top_k` keys per query.

    shared: the layer has none of its own, and takes the choice of the last one before it that has (GLM-5.2).
    pool: keys are cached as one for every so many tokens, which a learned softmax over them makes, and chosen by such
    groups; tokens of the group that is not complete are always seen (GLM-5.3-Flash). query_norm: of what its queries
    are projected from; query_scale: they grow with their position as the attention's may (Mistral Large 4).
    """

    n_heads: Count
    d_head: Count
    top_k: Count
    shared: bool = False
    pool: Count | None = None
    query_norm: Norm | None = None
    query_scale: bool = False
    norm: Norm = Field(default_factory=lambda: Norm(kind="layernorm", eps=1e-6))

    decisions = {"*": "indexer"}
    limits = {"top_k": tiny.WINDOW, "pool": tiny.WINDOW // 2}
    brief = "the best {top_k:,} keys"

    @model_validator(mode="after")
    def _whole_pools(self) -> Indexer:
        if self.pool is not None and self.top_k % self.pool:
            raise InvalidBlock(f"top_k {self.top_k} is not a multiple of pool {self.pool}")
        return self

    def tiny_fields(self) -> Changes:
        """Two groups of keys where they are chosen by groups."""
        return {} if self.pool is None else {"top_k": 2 * min(self.pool, self.limits["pool"])}


class LatentNorm(Norm):
    """The norm of a latent."""

    decisions = {"*": "latent_sizes"}


class Mla(AttentionSpec):
    """Queries (through a latent of q_rank, or directly) against keys that are `kv_rank` latent dimensions per
    token plus d_rope rotated ones (0: none, GLM-5.3-Flash) shared by all heads; only those two are cached. position:
    null where those are not rotated (Kimi Linear). gate: on the heads' outputs (Ling 3.0). sinks: a learned logit of
    each head that joins the softmax (Hy4). query_scale: queries of a head are multiplied by a learned number times the
    logarithm of their position, counted from 1, plus another; learned_frequencies: one table of factors exp(alpha) on
    the frequencies of the rotation, for all layers (Mistral Large 4).

    Two lowerings compute the same: naive expands every latent to per-head keys and values (prefill), absorbed
    moves the up-projections to the query and the output (decode).
    """

    kind: Literal["mla"] = "mla"
    n_heads: Count
    q_rank: Count | None = None
    kv_rank: Count
    d_nope: Count
    d_rope: CountOrNone
    d_v: Count
    bias: bool = False
    norm: LatentNorm = Field(default_factory=lambda: LatentNorm(kind="rmsnorm", eps=1e-6))
    position: Rope | None = Field(default_factory=lambda: Rope(interleaved=True))
    mask: MaskSpec = Field(default_factory=MaskSpec)
    indexer: Indexer | None = None
    gate: Gate | None = None
    sinks: bool = False
    query_scale: bool = False
    learned_frequencies: bool = False

    about = {"mla": About("mla", "Latent attention", "MLA",
                          "multi-head latent attention: DeepSeek-V2, arXiv:2405.04434, section 2.1")}  # fmt: skip
    letters = {"d_nope": ("Hn", "non-rotary head size"), "d_rope": ("Hr", "rotary head size"),
               "d_v": ("Hv", "value head size")}  # fmt: skip
    decisions = {
        "indexer": "indexer", "gate": "attention_gate", "sinks": "attention_extras", "query_scale": "attention_extras",
        "learned_frequencies": "attention_extras", "*": "latent_sizes",
    }  # fmt: skip
    words = {"bias": "q/k/v"}
    absent = {"q_rank": None, "indexer": None, "gate": None}
    kind_decision = "latent"
    axis_fields = {"Q": "q_rank", "L": "kv_rank", "Hn": "d_nope", "Hr": "d_rope", "Hv": "d_v"}
    caches_heads = False
    rotated = "d_rope"

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """What it caches of a token."""
        return f"mla of {fields['kv_rank'] + fields['d_rope']:,} per token"

    @classmethod
    def fields_from(cls, other: Fields) -> Fields:
        """Projections have a bias where all three of the other class have one."""
        found = super().fields_from(other)
        return found | {"bias": all(other["qkv_bias"])} if "qkv_bias" in other else found

    @property
    def borrows(self) -> bool:
        """Whether it takes the choice of keys of a layer before it."""
        return self.indexer is not None and self.indexer.shared

    @property
    def head_size(self) -> int:
        """Width of a head's output."""
        return self.d_v

    def softmax_scale(self) -> Num:
        """Factor on q·k: 1/sqrt(d_nope + d_rope), times YaRN's correction."""
        return (self.d_nope + self.d_rope) ** -0.5 * self.encoding.latent_softmax_factor()

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "attention") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        mask = self.mask.mask(self.indexer.top_k if self.indexer else 0)
        if self.indexer is not None and self.indexer.pool is not None:
            mask = replace(mask, block=self.indexer.pool)
        sizes: dict[str, Num] = {"N": self.n_heads, "Q": self.q_rank, "L": self.kv_rank, "Hn": self.d_nope}
        sizes |= {"Hr": self.d_rope, "Hv": self.d_v, "C": step.stored(), "P": step.pairs(mask)}
        with b.block(name, **sizes):
            q_in, source = self._query_input(b, x)
            q: Queries = (b.linear("q_nope", q_in, f"{source} N Hn", "T N Hn"),)
            if self.d_rope:
                rotated = b.linear("q_rope", q_in, f"{source} N Hr", "T N Hr")
                q = (*q, self._rotate(b, "q_rotated", rotated, ctx))
            if self.query_scale:
                q = _grown(b, "N", *q)
            caches = self._latents(b, x, ctx)
            weighed = Weighing(mask, self._chosen(b, x, q_in, source, ctx), self._sinks(b))
            up = b.weight("w_uk", "L N Hn", inner=("L",)), b.weight("w_uv", "L N Hv", inner=("L",))
            parts = step.by_absorption()
            if len(parts) == 1:
                o = self._attend(b, q, caches, up, weighed, *parts[0])
            else:
                o = self._attend_apart(b, q, caches, up, weighed, parts)
            if self.gate is not None:
                o = self.gate.lower(b, x, o, "N Hv" if self.gate.per == "element" else "N")
            return b.linear("o", o, "N Hv D", "T D", bias=self.bias)

    def declare(self, b: Builder, ctx: Context) -> None:
        """One table of factors on frequencies for the stack."""
        if self.learned_frequencies and FREQUENCIES not in ctx.shared:
            with b.scope(Fr=self.d_rope // 2):
                ctx.shared[FREQUENCIES] = (b.weight("rope_frequencies", "Fr", "scalar"),)

    def _rotate(self, b: Builder, name: str, x: Tensor, ctx: Context) -> Tensor:
        """Queries or the key turned by their positions, by frequencies that are learned where there are such."""
        if not self.learned_frequencies or self.position is None:
            return self.encoding.rotate(b, name, x)
        return b.map(name, "learned_rope", x, *ctx.shared[FREQUENCIES], rope=self.position)

    def _sinks(self, b: Builder) -> tuple[Tensor, ...]:
        """The logits that join the softmax, where there are any."""
        return (b.weight("sinks", "N", "bias"),) if self.sinks else ()

    def _attend_apart(
        self, b: Builder, q: Queries, caches: Caches, up: UpProjections, weighed: Weighing,
        parts: tuple[tuple[bool, Step], ...],
    ) -> Tensor:  # fmt: skip
        """Decodes over the latents beside prompts that expand them, each into its rows of one output."""
        made: list[Tensor] = []
        for absorbed, step in parts:
            rows = {"T": step.tokens, "C": step.stored(), "P": step.pairs(weighed.mask)}
            with b.block("absorbed" if absorbed else "expanded", **rows):
                own = tuple(_use_rows(part, step.tokens) for part in q)
                made.append(self._attend(b, own, caches, up, weighed, absorbed, step))
        return b.emit("view", "o_rows", tuple(made), b.tensor("o_rows", "T N Hv"))

    def _attend(
        self, b: Builder, q: Queries, caches: Caches, up: UpProjections, weighed: Weighing, absorbed: bool, step: Step
    ) -> Tensor:
        """Attention of some sequences in one of the two forms; returns a tensor over T, N and Hv."""
        read = step.read(weighed.mask) if absorbed else step.read()
        lower = self._absorbed if absorbed else self._naive
        return lower(b, q, tuple(cache.part(C=read) for cache in caches), up, weighed)

    def _query_input(self, b: Builder, x: Tensor) -> tuple[Tensor, str]:
        """What queries are projected from: the layer's input, or its low-rank latent."""
        if self.q_rank is None:
            return x, "D"
        down = b.linear("q_down", x, "D Q", "T Q", bias=self.bias)
        return self.norm.lower(b, "q_norm", down, "Q"), "Q"

    def _latents(self, b: Builder, x: Tensor, ctx: Context) -> Caches:
        """What is cached: the normed latent, and the rotated key that all heads share where there is one."""
        down = b.linear("kv_down", x, "D L", "T L", bias=self.bias)
        latent = self.norm.lower(b, "kv_norm", down, "L")
        made: tuple[Tensor, ...] = (latent,)
        caches: Caches = (b.state("latent_cache", "C L"),)
        if self.d_rope:
            bias = "Hr" if self.bias else False
            key = self._rotate(b, "k_rotated", b.linear("k_rope", x, "D Hr", "T Hr", bias=bias), ctx)
            made, caches = (*made, key), (*caches, b.state("rope_cache", "C Hr"))
        for cache, new in zip(caches, made, strict=True):
            b.append(cache, new)
        ctx.caches[ctx.path] = caches
        return caches

    def _chosen(self, b: Builder, x: Tensor, q_in: Tensor, source: str, ctx: Context) -> str:
        """The scores by which keys are chosen, by name: this layer's, or those of the last layer with an indexer of its
        own; empty where every key is attended to, and for a layer looked at by itself.
        """
        if self.indexer is None:
            return ""
        if not self.indexer.shared:
            ctx.shared["indexer"] = (self._index(b, x, q_in, source, ctx),)
        return ctx.shared["indexer"][0].name if "indexer" in ctx.shared else ""

    def _index(self, b: Builder, x: Tensor, q_in: Tensor, source: str, ctx: Context) -> Tensor:
        """Scores of the indexer over every cached token; all pairs, whatever is kept afterwards."""
        assert self.indexer is not None
        spec, step = self.indexer, ctx.step
        seen = CAUSAL if spec.pool is None else Mask(ratio=spec.pool)
        with b.part("indexer"), b.block("indexer", Ni=spec.n_heads, Hi=spec.d_head, P=step.pairs(seen)):
            q_in = q_in if spec.query_norm is None else spec.query_norm.lower(b, "q_norm", q_in, source)
            q = b.linear("q", q_in, f"{source} Ni Hi", "T Ni Hi")
            q = _grown(b, "Ni", q)[0] if spec.query_scale else q
            k = spec.norm.lower(b, "k_norm", b.linear("k", x, "D Hi", "T Hi"), "Hi")
            keys = self._index_keys(b, x, k, step, seen)
            weight = b.linear("weights", x, "D Ni", "T Ni", role="router")
            s = b.contract("scores", q, keys, "Ni P", cls="attention")
            s = b.map("relu", "relu", s)
            return b.contract("sum", s, weight, "P", cls="attention")

    def _index_keys(self, b: Builder, x: Tensor, k: Tensor, step: Step, seen: Mask) -> Operand:
        """What the indexer's queries are multiplied with: cached keys, or one for every group of them."""
        if not seen.ratio:
            cache = b.state("k_cache", "C Hi")
            b.append(cache, k)
            return cache.part(C=step.read())
        gate = b.linear("gate", x, "D Hi", "T Hi")
        sizes: dict[str, Num] = {"Hc": b.sizes["Hi"], "Hb": 2 * b.sizes["Hi"], "Wr": seen.ratio, "Wb": seen.ratio}
        with b.scope(**sizes, S=step.n_seqs, C=step.stored(seen)):
            complete = step.appended(seen)
            with b.scope(C=complete):
                pooled = pool(b, k, gate, "Hi", seen.ratio)
            cache = b.state("k_cache", "C Hi")
            b.append(cache, pooled, complete)
            return cache.part(C=step.read(seen))

    def _naive(self, b: Builder, q: Queries, cached: Queries, up: UpProjections, weighed: Weighing) -> Tensor:
        latent, uk, uv = cached[0], *up
        k, v = b.contract("k_up", latent, uk, "C N Hn"), b.contract("v_up", latent, uv, "C N Hv")
        return self._core(b, q, (k, *cached[1:]), v, "T N Hv", weighed)

    def _absorbed(self, b: Builder, q: Queries, cached: Queries, up: UpProjections, weighed: Weighing) -> Tensor:
        uk, uv = up
        wide = b.contract("q_absorbed", q[0], uk, "T N L")
        o = self._core(b, (wide, *q[1:]), cached, cached[0], "T N L", weighed)
        return b.contract("o_up", o, uv, "T N Hv")

    def _core(self, b: Builder, q: Queries, keys: Queries, v: Operand, out: str, weighed: Weighing) -> Tensor:
        scale = self.softmax_scale()
        index = {"index": weighed.chosen} if weighed.chosen else {}
        with b.block("core", kernel="attention"):
            s = b.contract("qk", q[0], keys[0], "N P", cls="attention", scale=scale)
            if len(q) > 1:
                rope = b.contract("qk_rope", q[1], keys[1], "N P", cls="attention", scale=scale)
                s = b.map("s", "add", s, rope)
            p = b.map("p", "softmax", s, *weighed.sinks, mask=weighed.mask, **index)
            return b.contract("pv", p, v, out, cls="attention")


def _grown(b: Builder, heads: str, *queries: Operand) -> tuple[Tensor, ...]:
    """Queries times scale·ln(position + 1) + bias, both learned for each head."""
    scale, bias = b.weight("query_scale", heads, "scalar"), b.weight("query_bias", heads, "bias")
    return tuple(b.map(f"q_grown_{i}", "grown", q, scale, bias) for i, q in enumerate(queries))


def _use_rows(x: Operand, tokens: Num) -> Use:
    """So many of a tensor's tokens."""
    tensor = x.tensor if isinstance(x, Use) else x
    return tensor.part(T=tokens)
