"""Position terms that enter attention scores: ALiBi, T5, Shaw, Transformer-XL, XLNet, DeBERTa, Inkling's profiles.

Each has `declare`, which makes what the whole stack shares, and `scores`, which adds its term to q·k.
"""

from __future__ import annotations

from typing import Literal

from archsim.base.json_types import JsonObject
from archsim.base.number import Num, maximum, minimum
from archsim.blocks.block import Context, Position, Projection, Tempered
from archsim.blocks.dispatch import About, Count
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder, Operand
from archsim.graph.tensor import Tensor


class Alibi(Position):
    """A penalty linear in distance, one fixed slope per head (arXiv:2108.12409): no parameters."""

    kind: Literal["alibi"] = "alibi"

    about = {"alibi": About(label="ALiBi")}

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores less slope x distance."""
        return b.map("s_alibi", "add", s, term="alibi")


class T5Bias(Position):
    """A learned scalar per head and bucketed distance (arXiv:1910.10683 section 2.1).

    shared: one table for the whole stack, declared by its first layer (T5); otherwise one per layer (UMT5).
    """

    kind: Literal["t5"] = "t5"
    buckets: Count = 32
    max_distance: Count = 128
    shared: bool = True

    about = {"t5": About("relative bias of t5", label="Relative")}

    def declare(self, b: Builder, ctx: Context) -> None:
        """One table for the stack."""
        if self.shared and "t5" not in ctx.shared:
            with b.scope(Bk=self.buckets):
                ctx.shared["t5"] = (b.weight("relative_bias", "Bk K G", "position_bias"),)

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus the bias of each pair's bucket."""
        with b.scope(Bk=self.buckets):
            own = () if self.shared else (b.weight("relative_bias", "Bk K G", "position_bias"),)
            (table,) = own or ctx.shared["t5"]
        both_ways = not ctx.cached
        bias = b.gather("bias", table.part(), "K G P", index="t5", max_distance=self.max_distance, both_ways=both_ways)
        return b.map("s_bias", "add", s, bias, term="pair")


class TransformerXl(Position):
    """Relative positions as keys: (q + u)·k + (q + v)·(W_r r) (arXiv:1901.02860), and XLNet's segment term.

    bias: u and v are learned per layer, once per stack, or not at all. span: distances that have a key, where those are
    fewer than a sequence has (attention within blocks). odd: without a cache, one key for each of the 2n - 1 distances
    (conformers), where XLNet has 2n.
    """

    kind: Literal["transformer_xl", "xlnet"] = "transformer_xl"
    bias: Literal["layer", "stack", "none"] = "layer"
    span: Count | None = None
    odd: bool = False

    about = {"transformer_xl": About("transformer-xl", label="Relative"), "xlnet": About(label="Relative")}

    def declare(self, b: Builder, ctx: Context) -> None:
        """The two content and position biases, when the stack shares them."""
        if self.bias == "stack" and "txl" not in ctx.shared:
            ctx.shared["txl"] = self._biases(b)

    def _biases(self, b: Builder) -> tuple[Tensor, ...]:
        names = ["u", "v"] + (["segment"] if self.kind == "xlnet" else [])
        return tuple(b.weight("r_" + n, "K G H", "bias") for n in names)

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus the position term, shifted so that column j is distance i - j."""
        length = _longest(ctx) if ctx.cached else 2 * _longest(ctx) - self.odd  # keys lie on both sides
        length = length if self.span is None else self.span
        with b.scope(R=length, Sg=2):
            r = b.linear("r", b.constant("sinusoid", "sinusoid", "R D"), "D K G H", "R K G H")
            biases = () if self.bias == "none" else ctx.shared.get("txl") or self._biases(b)
            if biases:
                u = b.contract("uk", biases[0], k, "C K G", cls="attention")
                s = b.map("s_u", "add", s, u, term="key", scale=scale)
            q_v = b.map("q_v", "add", q, biases[1]) if biases else q
            qr = b.contract("qr", q_v, r, "T K G R", cls="attention")
            s = b.map("s_r", "add", s, qr, term="shift", scale=scale)
            if self.kind == "xlnet":
                e = b.weight("segment_embedding", "Sg K G H", "position_bias")
                qs = b.contract("qs", b.map("q_s", "add", q, biases[2]), e, "T K G Sg", cls="attention")
                s = b.map("s_s", "add", s, qs, term="segment", scale=scale)
        return s


class Decomposed(Position):
    """A bias for every pair of patches: the query times a vector for the distance of rows, plus the query times one for
    the distance of columns, within squares of side x side patches (arXiv:2112.01526, as SAM has them).
    """

    kind: Literal["decomposed"] = "decomposed"
    side: Count

    about = {"decomposed": About("decomposed relative positions", label="Relative")}

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus both biases."""
        for name in ("rows", "columns"):
            with b.scope(Rd=2 * self.side - 1):
                table = b.weight(f"r_{name}", "Rd H", "position_bias")
            with b.scope(Rd=self.side):
                term = b.contract(f"q{name}", q, table.part(Rd=self.side), "T K G Rd", cls="attention")
            s = b.map(f"s_{name}", "add", s, term, term="grid")
        return s


class Shaw(Position):
    """A learned key for each distance, which queries are multiplied with beside those of tokens (arXiv:1803.02155
    section 3.2). rows: distances that have one. span: keys that a query sees, in blocks.
    """

    kind: Literal["shaw"] = "shaw"
    rows: Count
    span: Count

    about = {"shaw": About("relative keys", label="Relative")}

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus the query times the key of each distance."""
        with b.scope(Rd=self.rows):
            table = b.weight("relative_keys", "Rd H", "position_bias")
        with b.scope(Rd=self.span):
            term = b.contract("qd", q, table.part(Rd=self.span), "T K G Rd", cls="attention")
        return b.map("s_distance", "add", s, term, term="distance", scale=scale)


class Deberta(Position):
    """Disentangled attention (arXiv:2006.03654): content-to-position and position-to-content scores.

    span: distances to each side that have an embedding. Key and query of positions have projections of their own, or,
    `shared`, those of contents (DeBERTa-v3, whose implementation projects every row at every step). max_distance:
    distances beyond span/2 share rows, more the farther they are, up to this one. Every term makes the softmax scale
    smaller: it is 1/sqrt(3 d_head) with both.
    """

    kind: Literal["deberta"] = "deberta"
    span: Count = 512
    c2p: bool = True
    p2c: bool = True
    shared: bool = False
    max_distance: Count | None = None
    norm: Norm | None = None

    about = {"deberta": About(label="Relative")}

    def softmax_factor(self) -> float:
        """1/sqrt(number of terms), the product of contents included."""
        return float((1 + self.c2p + self.p2c) ** -0.5)

    def declare(self, b: Builder, ctx: Context) -> None:
        """The table of relative embeddings, 2 x span rows."""
        if "deberta" not in ctx.shared:
            with b.scope(R=2 * self.span):
                table = b.weight("relative_embedding", "R D", "position_bias")
                if self.norm:
                    table = self.norm.lower(b, "relative_norm", table)
            ctx.shared["deberta"] = (table,)

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus both position terms; rows beyond the present length are not touched."""
        rows = self._rows(ctx)
        far: JsonObject = {"span": self.span, "max_distance": self.max_distance} if self.max_distance else {}
        with b.scope(R=rows):
            touched = ctx.shared["deberta"][0].part(R=rows)
            if self.c2p:
                pk = ctx.shared["pos_k"][0] if self.shared else b.linear("pos_k", touched, "D K G H", "R K G H")
                term = b.contract("c2p", q, pk, "T K G R", cls="attention")
                s = b.map("s_c2p", "add", s, term, term="c2p", scale=scale, **far)
            if self.p2c:
                own = not self.shared
                pq = b.linear("pos_q", touched, "D K G H", "R K G H", bias=True) if own else ctx.shared["pos_q"][0]
                term = b.contract("p2c", k, pq, "C K G R", cls="attention")
                s = b.map("s_p2c", "add", s, term, term="p2c", scale=scale, **far)
        return s

    def _rows(self, ctx: Context) -> Num:
        """Rows of the table that a step touches."""
        return 2 * self.span if self.shared else 2 * minimum(self.span, _longest(ctx))

    def project(self, b: Builder, x: Tensor, ctx: Context, rows: Projection, tempered: Tempered) -> None:
        """The table through the projections of queries and keys, for the layer that is lowered."""
        if self.shared:
            with b.scope(R=self._rows(ctx)):
                table = ctx.shared["deberta"][0].part(R=self._rows(ctx))
                if self.c2p:
                    ctx.shared["pos_k"] = (rows("k", table, "pos_k"),)
                if self.p2c:
                    ctx.shared["pos_q"] = (rows("q", table, "pos_q"),)


class Profiles(Position):
    """A bias for each backward distance below `extent`, mixed from `rank` learned profiles as the hidden state of the
    query's token says, for every head; no bias beyond (Inkling, in transformers' `modeling_inkling.py`).
    """

    kind: Literal["profiles"] = "profiles"
    rank: Count
    extent: Count

    about = {"profiles": About("relative profiles", label="Relative")}

    def project(self, b: Builder, x: Tensor, ctx: Context, rows: Projection, tempered: Tempered) -> None:
        """The bias of every distance, for each query and head."""
        with b.scope(Rk=self.rank, R=self.extent):
            mixture = tempered("r_temperature", b.linear("r", x, "D K G Rk", "T K G Rk"))
            ctx.shared["profiles"] = (b.linear("r_profile", mixture, "Rk R", "T K G R", role="position_bias"),)

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores plus the bias of each pair's distance."""
        return b.map("s_profile", "add", s, *ctx.shared["profiles"], term="near")


def _longest(ctx: Context) -> Num:
    """The longest context among the step's sequences."""
    lengths = [seqs.past + seqs.new for seqs in ctx.step.seqs]
    longest: Num = lengths[0]
    for length in lengths[1:]:
        longest = maximum(longest, length)
    return longest
