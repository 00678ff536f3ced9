"""ModelSpec and Step to op graph: what blocks return, one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.number import Num
from archsim.blocks.block import Context
from archsim.blocks.dispatch import InvalidBlock
from archsim.blocks.layer import Layer, count_layers, lower_layers, walk_layers
from archsim.blocks.residuals import mixture
from archsim.blocks.stage import lower_stages, step_before
from archsim.graph.builder import Builder
from archsim.graph.graph import Block
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor, Use
from archsim.spec.model import Embedding, Head, HeadDense, MlmHead, Model, Mtp, NGrams, Stack

PARTS = ("mtp", "mlm-head", "vision", "audio")
"""Optional parts of a checkpoint that are left out of the count unless asked for."""


def lower(model: Model, step: Step, parts: Collection[str] = ()) -> Block:
    """The op graph of one forward pass.

    An encoder-decoder runs its encoder when a sequence has no past yet, and keeps the cross-attention cache
    afterwards. `parts` names optional modules to include. Raises SpecError for blocks that do not fit together.
    """
    with blocks_checked(model.name):
        return _lowered(model, step, parts)


@contextmanager
def blocks_checked(name: str) -> Iterator[None]:
    """Blocks that do not fit together are an error of the spec of this name: SpecError."""
    try:
        yield
    except InvalidBlock as error:
        raise SpecError(f"{quote(name)}: {error}", code=error.code) from None


def _lowered(model: Model, step: Step, parts: Collection[str]) -> Block:
    traced = model.traced_graph(step)
    if traced is not None:
        return traced
    e = model.embedding
    rows = e.rows or model.vocab_size
    width = "V D" if e.factor is None else "V Df"
    b = Builder(T=step.tokens, D=model.d_model, D2=model.d_model, V=rows, Df=e.factor, S=step.n_seqs)
    with b.block("embedding", V=e.input_rows or rows):
        table = b.weight("tokens", width, "embedding")
    memory = _encode(b, model, table, step) if model.encoder is not None else None
    x = _embed(b, e, table, step, "embedding")
    ctx = Context(step=step, cached=model.cached, memory=memory)
    x = _stack(b, x, ctx, model.layers, e)
    if model.final_norm is not None:
        x = model.final_norm.lower(b, "final_norm", x)
    _outputs(b, model, x, table, step, parts, ctx)
    return b.graph()


def _outputs(
    b: Builder, model: Model, x: Tensor, table: Tensor, step: Step, parts: Collection[str], ctx: Context
) -> None:
    if model.architecture == "encoder":
        if model.pooler:
            _pool(b, x, step)
        if "mlm-head" in parts and model.mlm_head is not None:
            _mlm(b, model.mlm_head, x, table)
        return
    head = model.head or Head()
    _logits(b, head, x, table, step)
    if "mtp" in parts and model.mtp is not None:
        _mtp(b, model.mtp, x, table, step, ctx)


def _encode(b: Builder, model: Model, table: Tensor, step: Step) -> Tensor | None:
    """The encoder over all source tokens; None (its weights only named) once the sequences are under way."""
    assert model.encoder is not None
    started = all(_positive(s.past) for s in step.seqs)
    source = step.encoder()
    if started:
        return None
    with b.block("encoder", T=source.tokens, S=source.n_seqs):
        x = _source(b, model, model.encoder, table, source)
        x = _stack(b, x, Context(step=source, cached=False), model.encoder.layers, Embedding())
        if model.encoder.final_norm is not None:
            x = model.encoder.final_norm.lower(b, "final_norm", x)
    return x


def _source(b: Builder, model: Model, encoder: Stack, table: Tensor, source: Step) -> Tensor:
    """The vectors that the encoder's layers begin with: of tokens, or of what stages make of a sound or an image."""
    if encoder.front:
        with b.part("encoder front"), b.block("front", T=(frames := step_before(encoder.front, source)).tokens):
            return lower_stages(b, None, encoder.front, frames)[0]
    e = encoder.embedding or Embedding()
    if encoder.own_table:
        with b.block("embedding"):
            table = b.weight("tokens", " ".join(table.axes), "embedding")
    return _embed(b, e, table, source, "embedding")


def _positive(past: Num) -> bool:
    """Whether there is a past, of all points where it is an array; of a polynomial nobody knows."""
    if isinstance(past, int):
        return past > 0
    return hasattr(past, "min") and bool(past.min() > 0)


def _embed(b: Builder, e: Embedding, table: Tensor, step: Step, name: str) -> Tensor:
    """Token, position and segment vectors, summed, normed, projected to the model's width."""
    d = "Df" if e.factor is not None else "D"
    with b.part("embedding"), b.block(name):
        scale = b.sizes["D"] ** 0.5 if e.scale == "sqrt_d_model" else e.scale
        attrs = {} if scale is None else {"scale": scale}
        mask = [Use(b.weight("mask_token", d, "embedding_other"), {d: 0})] if e.mask_token else []
        x = b.gather("x", table.part(V=step.tokens), "T " + d, *mask, index="token", **attrs)
        late = e.positions is not None and e.positions.after_projection
        x = x if late else _positions(b, e, x, step, d)
        if e.token_types is not None:
            with b.scope(Ty=e.token_types):
                segments = b.weight("token_types", "Ty " + d, "embedding_other")
            x = b.map("x_type", "add", x, b.gather("type", segments.part(), "T " + d, index="zero"))
        for i, rows in enumerate(e.tables):
            with b.scope(Ty=rows):
                own = b.weight(f"table_{i}", "Ty " + d, "embedding_other")
            x = b.map(f"x_table_{i}", "add", x, b.gather(f"entry_{i}", own.part(), "T " + d, index="zero"))
        x = x if e.ngrams is None else _with_ngrams(b, e.ngrams, x, step)
        if e.norm is not None:
            x = e.norm.lower(b, "norm", x, d)
        if e.factor is not None:
            x = b.linear("project_in", x, "Df D", "T D", bias="D" if e.factor_bias else False)
        return _positions(b, e, x, step, "D") if late else x


def _with_ngrams(b: Builder, ngrams: NGrams, x: Tensor, step: Step) -> Tensor:
    """The mean of the token's vector and those of the last tokens, each through its own projection."""
    vocabulary, n = b.sizes["V"], ngrams.count
    with b.scope(V=sum(ngrams.rows(vocabulary)), Ne=n, Dn=ngrams.width(b.sizes["D"])):
        table = b.weight("ngrams", "V Dn", "embedding")
        touched = table.part(V=step.tokens * n)
        found = b.gather("ngrams_x", touched, "T Ne Dn", index="ngram", ngrams=ngrams, vocabulary=vocabulary)
        y = b.contract("ngrams_y", found, b.weight("w_ngrams", "Ne Dn D", inner=("Ne", "Dn")), "T D")
    return b.map("x_ngrams", "add", x, y, scale_sum=1 / (n + 1))


def _positions(b: Builder, e: Embedding, x: Tensor, step: Step, d: str) -> Tensor:
    p = e.positions
    if p is None:
        return x
    if p.kind == "sinusoidal":
        return b.map("x_position", "add", x, b.constant("sinusoid", "sinusoid", "T " + d))
    with b.scope(X=(p.max or 0) + p.offset):
        table = b.weight("positions", "X " + d, "position")
    rows = sum(s.new for s in step.seqs)
    position = b.gather("position", table.part(X=rows), "T " + d, index="position", offset=p.offset)
    return b.map("x_position", "add", x, position)


def _stack(b: Builder, x: Tensor, ctx: Context, layers: tuple[Layer, ...], e: Embedding) -> Tensor:
    """All layers, with what they share declared before them."""
    leaves = walk_layers(layers)
    for layer in leaves:
        if layer.attention is not None:
            layer.attention.declare(b, ctx)
    if e.per_layer is not None:
        ctx.shared["per_layer"] = (_per_layer_inputs(b, x, ctx, layers, e),)
    hyper = next((layer.hyper for layer in leaves if layer.hyper is not None), None)
    if hyper is not None:
        with b.scope(A=hyper.n):
            return hyper.merge(b, lower_layers(b, hyper.spread(b, x), ctx, layers))
    if any(layer.residuals is not None for layer in leaves):
        return _mixed(b, lower_layers(b, x, ctx, layers), ctx, leaves)
    altup = next((layer.altup for layer in leaves if layer.altup is not None), None)
    if altup is None:
        return lower_layers(b, x, ctx, layers)
    with b.scope(A=altup.n, A3=altup.n - 1):
        projected = b.contract("altup_in", x, b.weight("w_altup_in", "A3 D D2", inner=("D",)), "T A3 D2")
        x = b.map("streams", "altup_split", x, projected, axes="T A D")
        x = lower_layers(b, x, ctx, layers)
        rest = b.select("other_streams", x, "T A3 D", "rest", A=altup.n - 1)
        merged = b.contract("altup_out", rest, b.weight("w_altup_out", "A3 D D2", inner=("D",)), "T A3 D2")
        return b.map("merged", "altup_merge", x, merged, axes="T D")


def _mixed(b: Builder, x: Tensor, ctx: Context, leaves: list[Layer]) -> Tensor:
    """The streams of attention residuals as one, behind the last layer."""
    last = next(layer.residuals for layer in reversed(leaves) if layer.residuals is not None)
    return mixture(b, "output_mixture", x, ctx, last.norm)


def _per_layer_inputs(b: Builder, x: Tensor, ctx: Context, layers: tuple[Layer, ...], e: Embedding) -> Tensor:
    """Per-layer embeddings of the tokens, mixed with a projection of the ordinary embedding. Over T Y Pl."""
    spec = e.per_layer
    assert spec is not None
    with b.part("embedding"), b.block("per_layer", Y=count_layers(layers), Pl=spec.d, Vp=spec.vocab_size):
        table = b.weight("tokens", "Vp Y Pl", "embedding_per_layer")
        own = b.gather("own", table.part(Vp=ctx.step.tokens), "T Y Pl", index="token", scale=spec.d**0.5)
        context = b.map("context_scaled", "scale", b.linear("context", x, "D Y Pl", "T Y Pl"), by_size="D", power=-0.5)
        context = spec.norm.lower(b, "norm", context, "Pl")
        return b.map("inputs", "add", context, own, scale_sum=2**-0.5)


def _logits(b: Builder, head: Head, x: Tensor, table: Tensor, step: Step) -> None:
    tokens = step.n_seqs if step.last else step.tokens
    with b.part("output head"), b.block("head", T=tokens):
        h = b.select("last", x, "T D", "last", T=tokens) if step.last else x
        d = "D"
        if head.dense is not None:
            h = _dense(b, head.dense, h, "D2", head.dense.bias)
        if "Df" in table.axes and head.tied:
            h, d = b.linear("project_out", h, "D Df", "T Df"), "Df"
        if head.tied:
            y = b.contract("logits", h, table, "T V")
        else:
            y = b.contract("logits", h, b.weight("w_logits", f"V {d}", "head", (d,)), "T V")
        if head.bias:
            y = b.map("logits+b", "add", y, b.weight("b_logits", "V", "bias"))
        if head.scale is not None:
            y = b.map("logits_scaled", "scale", y, by=head.scale)
        if head.softcap is not None:
            b.map("logits_capped", "softcap", y, cap=head.softcap)


def _pool(b: Builder, x: Tensor, step: Step) -> None:
    with b.part("pooler"), b.block("pooler", T=step.n_seqs):
        first = b.select("first", x, "T D", "first", T=step.n_seqs)
        b.map("pooled", "tanh", b.linear("dense", first, "D D2", "T D2", bias=True))


def _mlm(b: Builder, spec: MlmHead, x: Tensor, table: Tensor) -> None:
    with b.part("MLM head"), b.block("mlm_head"):
        h = _dense(b, spec, x, "Df" if "Df" in table.axes else "D2", True) if spec.dense else x
        w = table if spec.tied else b.weight("w_decoder", "V D", "head", ("D",))
        y = b.contract("decoder", h, w, "T V")
        if spec.bias:
            b.map("decoder+b", "add", y, b.weight("b_decoder", "V", "bias"))


def _dense(b: Builder, spec: MlmHead | HeadDense, x: Tensor, d: str, bias: bool) -> Tensor:
    """What stands before the output matrix: a product to the width of the table (axis `d`), an activation, a norm."""
    h = b.map("h()", spec.activation, b.linear("dense", x, "D " + d, "T " + d, bias=bias))
    if spec.norm is not None:
        h = spec.norm.lower(b, "norm", h, d)
    return b.view("h_d", h, "T " + ("Df" if d == "Df" else "D"))


def _mtp(b: Builder, spec: Mtp, x: Tensor, table: Tensor, step: Step, ctx: Context) -> None:
    """Each module: norm both inputs, merge to one width, one layer, norm; embedding and head are the trunk's."""
    with b.block("mtp", spec.n):
        e = b.gather("x", table.part(V=step.tokens), "T D", index="token")
        e, h = spec.norm.lower(b, "embedding_norm", e), spec.norm.lower(b, "hidden_norm", x)
        merged = b.map("merged", "add", b.linear("merge_embedding", e, "D D2", "T D2"),
                       b.linear("merge_hidden", h, "D D2", "T D2"))  # fmt: skip
        y = spec.layer.lower(b, b.view("h", merged, "T D"), ctx, "layer")
        spec.norm.lower(b, "final_norm", y)
        b.carry(x, y)
