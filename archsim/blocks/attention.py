"""Softmax attention with heads of its own: MHA, GQA and MQA, and everything that varies about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from archsim.base.number import Num, divide, minimum
from archsim.blocks.context import Context
from archsim.blocks.dispatch import Count, Impossible, PositionBlock, Spec
from archsim.blocks.mask import MaskSpec
from archsim.blocks.norm import Norm
from archsim.blocks.positional import Position
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor

NO_POSITION = Position()
HEADS: Mapping[Literal["q", "k", "v"], str] = {"q": "K G H", "k": "K H", "v": "K Hv"}
"""The output axes of each projection."""


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


class Temperature(Spec):
    """Llama 4's attention temperature: q of a token at `position` is multiplied by
    1 + attn_scale · ln(1 + floor((position + 1) / floor_scale)).
    """

    floor_scale: float = Field(gt=0)
    attn_scale: float


class Gate(Spec):
    """A sigmoid gate on the attention output, computed from the layer's input, per element or per head."""

    kind: Literal["sigmoid"] = "sigmoid"
    per: Literal["element", "head"] = "element"


class Attention(Spec):
    """softmax(q kᵀ · scale) v over `n_heads` query heads of `d_head` and n_kv_heads key/value heads.

    kind: mha (n_kv_heads = n_heads), gqa (arXiv:2305.13245, n_kv_heads given), mqa (arXiv:1911.02150, one).
    d_head_v: value head size where it differs. scale: factor on q·k, default 1/sqrt(d_head). softcap: scores
    become cap·tanh(score/cap). temperature: queries grow with their position. sinks: one learned logit per head joins
    the softmax. clip: projections are clamped to ± clip. kv_from: path of the layer (names joined by dots) whose
    last cache is read instead of an own one. global_projections: the `global_tokens` of a mask that looks both
    ways see all tokens through q, k and v of their own (Longformer); without such tokens they lie idle.
    keys_as_values: one projection gives keys and values, which part behind it: norm and rotation of the keys
    (Gemma 4's global layers).
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

    @model_validator(mode="after")
    def _heads(self) -> Attention:
        if self.kind == "gqa" and self.n_kv_heads is None:
            raise Impossible("`n_kv_heads` is required for `kind: gqa`", "E104")
        if self.kind == "mqa" and self.n_kv_heads not in (None, 1):
            raise Impossible(f"`kind: mqa` has one key/value head, not {self.n_kv_heads}")
        if self.kind == "mha" and self.n_kv_heads not in (None, self.n_heads):
            raise Impossible(
                f"`kind: mha` has as many key/value heads as heads ({self.n_heads}), not {self.n_kv_heads}; "
                "did you mean `kind: gqa`?"
            )
        rotated = self.position is not None and self.position.kind == "rope" and self.position.dim is None
        if rotated and self.d_head % 2:
            raise Impossible(f"rope turns pairs of dimensions: d_head {self.d_head} is odd")
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise Impossible(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}: "
                "every key/value head serves the same number of query heads"
            )
        if self.keys_as_values and self.d_head_v not in (None, self.d_head):
            raise Impossible("`keys_as_values`: keys and values are as wide as each other")
        if self.global_projections and self.mask.mask().causal:
            raise Impossible(
                "`global_projections` need a mask that looks both ways, such as `bidirectional: true`"
            )
        return self

    @property
    def encoding(self) -> Position:
        """The position encoding; without one, one that does nothing."""
        return NO_POSITION if self.position is None else self.position

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""
        if self.kind == "mqa":
            return 1
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def groups(self) -> int:
        """Query heads per key/value head."""
        return divide(self.n_heads, self.kv_heads)  # type: ignore[no-any-return]

    def biased(self, name: Literal["q", "k", "v"]) -> bool:
        """Whether the projection `name` has a bias."""
        if isinstance(self.qkv_bias, QkvBias):
            return bool(getattr(self.qkv_bias, name))
        return self.bias if self.qkv_bias is None else self.qkv_bias

    def softmax_scale(self) -> float:
        """Factor on q·k."""
        factor: float = self.encoding.softmax_factor()
        if self.scale is not None:
            return self.scale * factor
        return float(self.d_head**-0.5) * factor if isinstance(self.d_head, int) else 1.0

    # ------------------------------------------------------------------ lowering
    def sizes(self) -> dict[str, Any]:
        """Extents of the axes that the projections use."""
        d_head_v = self.d_head if self.d_head_v is None else self.d_head_v
        return {"K": self.kv_heads, "G": self.groups, "H": self.d_head, "Hv": d_head_v}

    def declare(self, b: Builder, ctx: Context) -> None:
        """What the whole stack shares: relative-position tables."""
        with b.scope(**self.sizes()):
            self.encoding.declare(b, ctx)

    def widths(self) -> tuple[int, ...]:
        """Query heads are cut; key/value heads as far as they go."""
        return (self.n_heads,)

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "attention") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        mask, step = self.mask.mask(), ctx.step
        local = step.pairs(mask) - self._global_pairs(step) if step.masked else step.pairs(mask)
        with b.block(name, **self.sizes(), C=step.stored(mask), P=local):
            q = self._project(b, "q", x)
            keys = self._keys_values(b, x, ctx, mask)
            o = self.core(b, q, *keys, ctx, mask)
            if self.global_projections:
                o = self._global(b, x, o, ctx)
            if self.gate:
                o = self._gated(b, x, o)
            bias = "D" if (self.bias if self.out_bias is None else self.out_bias) else False
            return b.linear("o", o, "K G Hv D", "T D", bias=bias)

    def lower_cross(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """Attention of decoder tokens over the encoder's output, whose keys and values are computed once."""
        step = ctx.step
        source = step.encoder()
        with b.block("cross_attention", **self.sizes(), C=source.tokens, P=step.cross_pairs()):
            q = self._project(b, "q", x)
            k, v = b.state("k_cache", "C K H", "cross"), b.state("v_cache", "C K Hv", "cross")
            if ctx.memory is not None:
                with b.block("source", T=source.tokens):
                    b.append(k, self._project(b, "k", ctx.memory), source=True)
                    b.append(v, self._project(b, "v", ctx.memory), source=True)
            o = self.core(b, q, k, v, ctx, None)
            bias = "D" if (self.bias if self.out_bias is None else self.out_bias) else False
            return b.linear("o", o, "K G Hv D", "T D", bias=bias)

    def _project(self, b: Builder, kind: Literal["q", "k", "v"], x: Tensor, suffix: str = "") -> Tensor:
        heads, name = HEADS[kind], kind + suffix
        y = b.linear(name, x, f"D {heads}", f"T {heads}", bias=self.biased(kind))
        return self._finished(b, kind, y, suffix)

    def _finished(self, b: Builder, kind: Literal["q", "k", "v"], y: Tensor, suffix: str = "") -> Tensor:
        """What a projection gives, clipped, normed, rotated and tempered."""
        heads, name = HEADS[kind], kind + suffix
        if self.clip is not None:
            y = b.map(name + "_clip", "clip", y, limit=self.clip)
        if kind == "v":
            if self.qk_norm and self.qk_norm.value:
                plain = Norm(kind=self.qk_norm.kind, affine=False, eps=self.qk_norm.eps)
                y = plain.lower(b, name + "_norm", y, "Hv")
            return y
        before = self.qk_norm is not None and self.qk_norm.place == "before_rope"
        y = self._norm(b, name, y, heads) if before else y
        y = self.encoding.rotate(b, name + "_rope", y)
        y = y if before else self._norm(b, name, y, heads)
        if kind == "k" or self.temperature is None:
            return y
        return b.map(name + "_temperature", "scale", y, temperature=self.temperature)

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
            k, v = self._both(b, x)
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

    def _both(self, b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of x."""
        if not self.keys_as_values:
            return self._project(b, "k", x), self._project(b, "v", x)
        raw = b.linear("k", x, f"D {HEADS['k']}", f"T {HEADS['k']}", bias=self.biased("k"))
        values = b.view("v", raw, f"T {HEADS['v']}")
        return self._finished(b, "k", raw), self._finished(b, "v", values)

    def core(self, b: Builder, q: Tensor, k: Operand, v: Operand, ctx: Context, mask: Mask | None) -> Tensor:
        """softmax(q kᵀ) v: one fused kernel wherever one exists."""
        scale = self.softmax_scale()
        with b.block("core", kernel="attention"):
            s = b.contract("qk", q, k, "K G P", cls="attention", scale=scale)
            if self.softcap:
                s = b.map("s_cap", "softcap", s, cap=self.softcap)
            if mask is not None:
                s = self.encoding.scores(b, s, q, k, ctx, scale)
            sinks = (b.weight("sinks", "K G", "bias"),) if self.sinks else ()
            p = b.map("p", "softmax", s, *sinks, mask=mask)
            return b.contract("pv", p, v, "T K G Hv", cls="attention")

    def _gated(self, b: Builder, x: Tensor, o: Tensor) -> Tensor:
        assert self.gate is not None
        heads = "K G Hv" if self.gate.per == "element" else "K G"
        return b.map("gated", "gate", o, b.linear("gate", x, "D " + heads, "T " + heads))

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
