"""Softmax attention with heads of its own: MHA, GQA and MQA, and everything that varies about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num, minimum
from archsim.blocks import tiny
from archsim.blocks.attention_gate import Gate
from archsim.blocks.block import AttentionSpec, Context, PositionBlock, Projection
from archsim.blocks.block_indexer import BlockIndexer
from archsim.blocks.dispatch import About, Changes, Count, Extent, Fields, InvalidBlock, Spec
from archsim.blocks.mask import MaskSpec
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import convolved
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor

HEADS: Mapping[Literal["q", "k", "v"], str] = {"q": "K G H", "k": "K H", "v": "K Hv"}
"""The output axes of each projection."""


def _sharing(n_kv_heads: int | None) -> str:
    """The kind of attention with so many key/value heads; None: as many as heads."""
    return "mha" if n_kv_heads is None else "mqa" if n_kv_heads == 1 else "gqa"


class QkvBias(Spec):
    """Which of the three projections have a bias."""

    q: bool = False
    k: bool = False
    v: bool = False


class QkNorm(Norm):
    """Normalisation of queries and keys. over: each `head` with one weight of d_head (Qwen3, Gemma 3);
    `heads`: each head with weights of its own (Command R+); `all`: the whole projection (OLMo 2, MiniMax-M2).
    """

    over: Literal["head", "heads", "all"] = "head"
    place: Literal["before_rope", "after_rope"] = "before_rope"
    value: bool = False

    decisions = {"*": "qk_norm"}


class Temperature(Spec):
    """Llama 4's attention temperature: q of a token at `position` is multiplied by
    1 + attn_scale · ln(1 + floor((position + first) / floor_scale)). first: what the first token is counted as.
    steady: 1 + attn_scale · ln(max((position + first) / floor_scale, 1)) in place of the steps (Inkling).
    """

    floor_scale: float = Field(gt=0)
    attn_scale: float
    first: Literal[0, 1] = 1
    steady: bool = False


class Attention(AttentionSpec):
    """softmax(q kᵀ · scale) v over `n_heads` query heads of `d_head` and n_kv_heads key/value heads.

    kind: mha (n_kv_heads = n_heads), gqa (arXiv:2305.13245, n_kv_heads given), mqa (arXiv:1911.02150, one). d_head_v:
    value head size where it differs. scale: factor on q·k, default 1/sqrt(d_head). softcap: scores become
    cap·tanh(score/cap). temperature: queries grow with their position. sinks: one learned logit per head joins the
    softmax. clip: projections are clamped to ± clip, behind their norms. kv_from: path of the layer (names joined by
    dots) whose last cache is read instead of an own one. global_projections: the `global_tokens` of a mask that looks
    both ways see all tokens through q, k and v of their own (Longformer); without such tokens they lie idle.
    keys_as_values: one projection gives keys and values, which part behind it: norm and rotation of the keys (Gemma 4's
    global layers). inner_norm: of the heads' outputs before the last projection (BitNet). indexer: chooses blocks of
    keys (MiniMax-M3).
    q_rank, q_norm: queries come through a latent of this width and its norm (Step-3). kv_conv: taps of a causal
    convolution of keys and of values over time, added to them before their norms (Inkling). q_factor: a learned factor
    on each dimension of queries, the same for all heads (Gemma's encoder of sound).
    """

    kind: Literal["mha", "gqa", "mqa"]
    n_heads: Count
    n_kv_heads: Count | None = None
    d_head: Count
    d_head_v: Count | None = None
    bias: bool = False
    qkv_bias: bool | QkvBias | None = None
    out_bias: bool | None = None
    qk_norm: QkNorm | None = None
    position: PositionBlock | None = None
    mask: MaskSpec = Field(default_factory=MaskSpec)
    scale: float | None = None
    temperature: Temperature | None = None
    softcap: float | None = None
    sinks: bool = False
    gate: Gate | None = None
    clip: float | None = None
    kv_from: str | None = None
    global_projections: bool = False
    keys_as_values: bool = False
    inner_norm: Norm | None = None
    indexer: BlockIndexer | None = None
    q_rank: Count | None = None
    q_norm: Norm | None = None
    kv_conv: Count | None = None
    q_factor: bool = False

    about = {
        "mha": About("mha", "Multi-head attention", "MHA",
                     "multi-head attention: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2"),
        "gqa": About("gqa", "Grouped-query attention", "GQA",
                     "grouped-query attention: Ainslie et al. 2023, arXiv:2305.13245, section 2.2"),
        "mqa": About("mqa", "Multi-query attention", "MQA",
                     "multi-query attention: Shazeer 2019, arXiv:1911.02150, section 3"),
    }  # fmt: skip
    letters = {"kv_heads": ("K", "key/value heads"), "groups": ("G", "query heads per key/value head")}
    decisions = {
        "n_kv_heads": "sharing", "qkv_bias": "biases", "out_bias": "biases", "qk_norm": "qk_norm",
        "global_projections": "windows", "kv_from": "cache_sharing", "keys_as_values": "keys_as_values",
        "gate": "attention_gate", "inner_norm": "norm_place", "indexer": "indexer",
        "q_norm": "query_latent", "kv_conv": "short_convolutions",
    }  # fmt: skip
    axis_fields = {"H": "d_head", "Hv": "d_head", "Q": "q_rank"}

    @model_validator(mode="after")
    def _heads(self) -> Attention:
        if self.kind == "gqa" and self.n_kv_heads is None:
            raise InvalidBlock("`n_kv_heads` is required for `kind: gqa`", "E104")
        if self.kind == "mqa" and self.n_kv_heads not in (None, 1):
            raise InvalidBlock(f"`kind: mqa` has one key/value head, not {self.n_kv_heads}")
        if self.kind == "mha" and self.n_kv_heads not in (None, self.n_heads):
            raise InvalidBlock(
                f"`kind: mha` has as many key/value heads as heads ({self.n_heads}), not {self.n_kv_heads}; "
                "did you mean `kind: gqa`?"
            )
        if self.encoding.rotated_size(self.d_head) % 2:
            raise InvalidBlock(f"rope turns pairs of dimensions: d_head {self.d_head} is odd")
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise InvalidBlock(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}: "
                "every key/value head serves the same number of query heads"
            )
        if self.keys_as_values and self.d_head_v not in (None, self.d_head):
            raise InvalidBlock("`keys_as_values`: keys and values are as wide as each other")
        if self.global_projections and self.mask.mask().causal:
            raise InvalidBlock("`global_projections` need a mask that looks both ways, such as `bidirectional: true`")
        if self.indexer is not None and self.mask != MaskSpec():
            raise InvalidBlock("`indexer` chooses among all keys before a query, so it goes with a causal mask alone")
        return self

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""
        if self.kind == "mqa":
            return 1
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def label(self) -> str:
        """As tables print it: by the number of key/value heads rather than by `kind`."""
        return self.names(_sharing(None if self.groups == 1 else self.kv_heads)).label

    @property
    def has_bias(self) -> bool:
        """Whether a projection to queries, keys or values has a bias."""
        return any(self.biased(name) for name in HEADS)

    def biased(self, name: Literal["q", "k", "v"]) -> bool:
        """Whether the projection `name` has a bias."""
        if isinstance(self.qkv_bias, QkvBias):
            return bool(getattr(self.qkv_bias, name))
        return self.bias if self.qkv_bias is None else self.qkv_bias

    def softmax_scale(self) -> Num:
        """Factor on q·k."""
        return (self.d_head**-0.5 if self.scale is None else self.scale) * self.encoding.softmax_factor()

    # ------------------------------------------------------------------ facts
    def extents(self) -> dict[str, int]:
        """N heads, or K·G of them where they share keys and values."""
        found, unused = super().extents(), "N" if self.kind == "gqa" else "KG"
        return {letter: n for letter, n in found.items() if letter not in unused}

    def with_extents(self, extents: Mapping[str, Extent]) -> Changes:
        """Heads are groups times key/value heads."""
        if "K" not in extents:
            return super().with_extents(extents)
        rest = super().with_extents({letter: n for letter, n in extents.items() if letter not in "KG"})
        return rest | {"n_heads": extents["K"] * extents["G"], "n_kv_heads": extents["K"]}

    def tiny_fields(self) -> Changes:
        """At most four heads: one key/value head stays one, some stay some, and as many as heads stay that."""
        heads = min(self.n_heads, tiny.HEADS)
        if self.n_kv_heads is None:
            return super().tiny_fields() | {"n_heads": heads}
        some = heads // 2 if heads == tiny.HEADS and self.kv_heads > 1 else 1
        return super().tiny_fields() | {"n_heads": heads, "n_kv_heads": heads if self.groups == 1 else some}

    def normal_form(self, fields: Fields) -> Fields:
        """By numbers of heads instead of `kind`; a flag for each bias; what is as elsewhere is None."""
        shared = {
            "n_kv_heads": None if self.groups == 1 else self.kv_heads,
            "d_head_v": None if self.d_head_v == self.d_head else self.d_head_v,
            "qkv_bias": tuple(self.biased(name) for name in HEADS),
            "out_bias": self.bias if self.out_bias is None else self.out_bias,
        }
        return {name: value for name, value in fields.items() if name not in ("kind", "bias")} | shared

    @classmethod
    def to_document(cls, fields: Fields) -> Fields:
        """With its `kind`."""
        q, k, v = fields["qkv_bias"]
        flags = q if q == k == v else {"q": q, "k": k, "v": v}
        kind = _sharing(fields.get("n_kv_heads"))
        return fields | {"kind": kind, "bias": fields["out_bias"], "qkv_bias": flags}

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """How keys and values are shared."""
        return _sharing(fields.get("n_kv_heads"))

    @classmethod
    def fields_from(cls, other: Fields) -> Fields:
        """The one flag of classes with all biases or none stands for each."""
        found = super().fields_from(other)
        return found | {"qkv_bias": (other["bias"],) * 3, "out_bias": other["bias"]} if "bias" in other else found

    # ------------------------------------------------------------------ lowering
    def sizes(self) -> dict[str, Num]:
        """Extents of the axes that the projections use."""
        d_head_v = self.d_head if self.d_head_v is None else self.d_head_v
        return {"K": self.kv_heads, "G": self.groups, "H": self.d_head, "Hv": d_head_v, "Q": self.q_rank or 0}

    def declare(self, b: Builder, ctx: Context) -> None:
        """What the whole stack shares: relative-position tables."""
        with b.scope(**self.sizes()):
            self.encoding.declare(b, ctx)

    def widths(self) -> tuple[int, ...]:
        """Query heads are cut; key/value heads as far as they go."""
        return (self.n_heads,)

    def replicated_heads(self) -> int:
        """Key/value heads: each rank has as many of them, or each of them is on as many ranks."""
        return self.kv_heads

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "attention") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        mask, step = self.indexer.mask() if self.indexer else self.mask.mask(), ctx.step
        local = step.pairs(mask) - self._global_pairs(step) if step.masked else step.pairs(mask)
        with b.block(name, **self.sizes(), C=step.stored(mask), P=local):
            q = self._project(b, "q", x)
            keys = self._keys_values(b, x, ctx, mask)
            rows: Projection = lambda kind, rows, out: self._rows(b, kind, rows, out)  # noqa: E731
            self.encoding.project(b, x, ctx, rows, lambda name, y: self._tempered(b, name, y))
            index = self.indexer.lower(b, x, ctx, self.encoding) if self.indexer else ""
            o = self.core(b, q, *keys, ctx, mask, index)
            if self.global_projections:
                o = self._global(b, x, o, ctx)
            if self.gate:
                o = self.gate.lower(b, x, o, "K G Hv" if self.gate.per == "element" else "K G")
            if self.inner_norm:
                o = self.inner_norm.lower(b, "inner_norm", o, "K G Hv")
            bias = "D" if (self.bias if self.out_bias is None else self.out_bias) else False
            return b.linear("o", o, "K G Hv D", "T D", bias=bias)

    def lower_cross(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """Attention of decoder tokens over the encoder's output, whose keys and values are computed once; or, without
        a cache, of latents over what they sum up.
        """
        step = ctx.step
        source = step.encoder()
        keys, pairs = source.tokens, step.cross_pairs()
        if ctx.joined:
            keys, pairs = keys + step.tokens, pairs + step.pairs(Mask(causal=False))
        with b.block("cross_attention", **self.sizes(), C=keys, P=pairs):
            q = self._project(b, "q", x)
            k, v = self._cross_cached(b, ctx, source) if ctx.cached else self._cross_keys(b, x, ctx)
            o = self.core(b, q, k, v, ctx, None)
            bias = "D" if (self.bias if self.out_bias is None else self.out_bias) else False
            return b.linear("o", o, "K G Hv D", "T D", bias=bias)

    def _cross_cached(self, b: Builder, ctx: Context, source: Step) -> tuple[Tensor, Tensor]:
        """The cache of the encoder's output, filled where there is such output."""
        k, v = b.state("k_cache", "C K H", "cross"), b.state("v_cache", "C K Hv", "cross")
        if ctx.memory is not None:
            with b.block("source", T=source.tokens):
                b.append(k, self._project(b, "k", ctx.memory), source=True)
                b.append(v, self._project(b, "v", ctx.memory), source=True)
        return k, v

    def _cross_keys(self, b: Builder, x: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of what is attended to, whose width may be another; of `x` too where they are joined."""
        if ctx.memory is None:
            raise InvalidBlock("`cross_attention` needs something to attend to")
        with b.scope(T=b.sizes["C"], D=ctx.memory.axes["D"]):
            rows = b.map("joined", "concat", ctx.memory, x, axes="T D") if ctx.joined else ctx.memory
            k, v = self._project(b, "k", rows), self._project(b, "v", rows)
            return b.view("keys", k, "C K H"), b.view("values", v, "C K Hv")

    def _project(self, b: Builder, kind: Literal["q", "k", "v"], x: Tensor, suffix: str = "") -> Tensor:
        heads, name = HEADS[kind], kind + suffix
        if kind == "q" and self.q_rank is not None:
            latent = b.linear(name + "_down", x, "D Q", "T Q")
            latent = latent if self.q_norm is None else self.q_norm.lower(b, name + "_latent_norm", latent, "Q")
            y = b.linear(name, latent, f"Q {heads}", f"T {heads}", bias=self.biased(kind))
            return self._finished(b, kind, y, suffix)
        y = b.linear(name, x, f"D {heads}", f"T {heads}", bias=self.biased(kind))
        return self._finished(b, kind, y, suffix)

    def _rows(self, b: Builder, kind: Literal["q", "k"], rows: Operand, out: str) -> Tensor:
        """Rows of a table of positions through the projection of queries or keys, named `out`."""
        heads = HEADS[kind]
        y = b.contract(out, rows, b.weight("w_" + kind, "D " + heads, inner=("D",)), "R " + heads)
        return b.map(out + "+b", "add", y, b.weight("b_" + kind, heads, "bias")) if self.biased(kind) else y

    def _finished(self, b: Builder, kind: Literal["q", "k", "v"], y: Tensor, suffix: str = "") -> Tensor:
        """What a projection gives, normed, clipped, rotated and tempered."""
        heads, name = HEADS[kind], kind + suffix
        before = kind != "v" and self.qk_norm is not None and self.qk_norm.place == "before_rope"
        y = self._norm(b, name, y, heads) if before else y
        if self.clip is not None:
            y = b.map(name + "_clip", "clip", y, limit=self.clip)
        if kind == "v":
            if self.qk_norm and self.qk_norm.value:
                plain = Norm(kind=self.qk_norm.kind, affine=False, eps=self.qk_norm.eps)
                y = plain.lower(b, name + "_norm", y, "Hv")
            return y
        y = self.encoding.rotate(b, name + "_rope", y)
        y = y if before else self._norm(b, name, y, heads)
        if kind == "q" and self.q_factor:
            y = b.map(name + "_factor", "mul", y, b.weight(name + "_dim_factor", "H", "scalar"))
        return y if kind == "k" else self._tempered(b, name + "_temperature", y)

    def _tempered(self, b: Builder, name: str, y: Tensor) -> Tensor:
        return y if self.temperature is None else b.map(name, "scale", y, temperature=self.temperature)

    def _norm(self, b: Builder, name: str, y: Tensor, heads: str) -> Tensor:
        if self.qk_norm is None:
            return y
        over = heads if self.qk_norm.over == "all" else "H"
        weight = "H" if self.qk_norm.over == "head" else heads
        return self.qk_norm.lower(b, name + "_norm", y, over=over, weight=weight)

    def _keys_values(self, b: Builder, x: Tensor, ctx: Context, mask: Mask) -> tuple[Operand, Operand]:
        """Keys and values to attend over: projected here or taken from another layer, cached or not."""
        if self.kv_from is not None:
            k_cache, v_cache, copy = ctx.shared_cache(self.kv_from)
        else:
            k, v = self._both(b, x, ctx)
            if not ctx.cached:
                with b.scope(C=ctx.step.tokens):
                    return b.view("keys", k, "C K H"), b.view("values", v, "C K Hv")
            k_cache, v_cache, copy = b.state("k_cache", "C K H"), b.state("v_cache", "C K Hv"), None
            kept = ctx.step.appended(mask)
            b.append(k_cache, k, kept)
            b.append(v_cache, v, kept)
            ctx.caches[ctx.path] = (k_cache, v_cache)
        read = ctx.step.read(mask)
        return k_cache.part(copy, C=read), v_cache.part(copy, C=read)

    def _both(self, b: Builder, x: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of x."""
        if self.kv_conv is not None:
            return self._convolved(b, "k", x, ctx, self.kv_conv), self._convolved(b, "v", x, ctx, self.kv_conv)
        if not self.keys_as_values:
            return self._project(b, "k", x), self._project(b, "v", x)
        raw = b.linear("k", x, f"D {HEADS['k']}", f"T {HEADS['k']}", bias=self.biased("k"))
        values = b.view("v", raw, f"T {HEADS['v']}")
        return self._finished(b, "k", raw), self._finished(b, "v", values)

    def _convolved(self, b: Builder, kind: Literal["k", "v"], x: Tensor, ctx: Context, taps: int) -> Tensor:
        """Keys or values, with a convolution of themselves over time."""
        y = b.linear(kind, x, f"D {HEADS[kind]}", f"T {HEADS[kind]}", bias=self.biased(kind))
        return self._finished(b, kind, convolved(b, kind + "_conv", y, HEADS[kind], ctx, taps))

    def core(
        self, b: Builder, q: Tensor, k: Operand, v: Operand, ctx: Context, mask: Mask | None, index: str = ""
    ) -> Tensor:
        """softmax(q kᵀ) v: one fused kernel wherever one exists. index: scores that keys are chosen by."""
        scale = self.softmax_scale()
        with b.block("core", kernel="attention"):
            s = b.contract("qk", q, k, "K G P", cls="attention", scale=scale)
            if self.softcap:
                s = b.map("s_cap", "softcap", s, cap=self.softcap)
            if mask is not None:
                s = self.encoding.scores(b, s, q, k, ctx, scale)
            sinks = (b.weight("sinks", "K G", "bias"),) if self.sinks else ()
            p = b.map("p", "softmax", s, *sinks, mask=mask, **({"index": index} if index else {}))
            return b.contract("pv", p, v, "T K G Hv", cls="attention")

    def _global_pairs(self, step: Step) -> Num:
        """Pairs of the global tokens' own queries, which the second projections serve."""
        if not (self.global_projections and self.mask.global_tokens):
            return 0
        return sum(s.batch * minimum(s.new, self.mask.global_tokens) * s.new for s in step.seqs)

    def _global(self, b: Builder, x: Tensor, o: Tensor, ctx: Context) -> Tensor:
        """Longformer's second set of projections: its global tokens attend to all through them."""
        step, tokens = ctx.step, self.mask.global_tokens
        if not tokens:
            for kind in HEADS:
                b.idle(b.weight(f"w_{kind}_global", "D " + HEADS[kind]))
                if self.biased(kind):
                    b.idle(b.weight(f"b_{kind}_global", HEADS[kind], "bias"))
            return o
        rows = sum(s.batch * minimum(s.new, tokens) for s in step.seqs)
        with b.scope(T=rows):
            q = self._project(b, "q", b.select("x_global", x, "T D", "first"), "_global")
        k, v = self._project(b, "k", x, "_global"), self._project(b, "v", x, "_global")
        with b.block("global", T=rows, C=step.tokens, P=self._global_pairs(step)):
            keys, values = b.view("keys", k, "C K H"), b.view("values", v, "C K Hv")
            seen = self.core(b, q, keys, values, ctx, None)
        return b.map("o_all", "concat", seen, o, axes="T K G Hv")
