"""RWKV-7 (arXiv:2503.14456): a generalised delta rule, between token shifts and gates of low rank."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num
from archsim.blocks import tiny
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Changes, Count, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import ChunkEdges, chunk_pairs, padded, single, token_shift
from archsim.graph.builder import Builder
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor

FIRST_VALUES = "first values"
"""Where the first layer's values wait, which those of later layers are mixed with."""


class Rwkv7(MixerSpec):
    """Time mixing of RWKV-7: states of d_head x d_head that decay channel by channel and are corrected along a key of
    their own; decay, correction rate and gate come through matrices of the ranks given, and so does the share of the
    first layer's values that is mixed in. value_rank: none in the first layer, whose values they are; where no layer
    came before, a layer's values are mixed with themselves.

    Prefill runs in chunks: four products of pairs, four with the state, a triangular system, as in the kernels of
    flash-linear-attention.
    """

    kind: Literal["rwkv7"] = "rwkv7"
    d_inner: Count
    d_head: Count = 64
    decay_rank: Count
    rate_rank: Count
    gate_rank: Count
    value_rank: Count | None = None
    chunk: Count = 16
    norm: Norm = Field(default_factory=lambda: Norm(kind="layernorm", eps=64e-5))

    about = {"rwkv7": About("rwkv-7", label="RWKV-7", paper="RWKV-7: Peng et al. 2025, arXiv:2503.14456")}
    letters = {"decay_rank": ("Rd", "rank of the decay")}
    limits = {"decay_rank": 8, "rate_rank": 8, "gate_rank": 8, "value_rank": 8, "d_inner": tiny.WIDTH}

    @model_validator(mode="after")
    def _whole_heads(self) -> Rwkv7:
        if self.d_inner % self.d_head:
            raise InvalidBlock(f"d_inner {self.d_inner} is not a multiple of d_head {self.d_head}")
        return self

    def tiny_fields(self) -> Changes:
        """Heads fill the inner width."""
        return {"d_head": tiny.D_HEAD}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"N": self.d_inner // self.d_head, "H": self.d_head, "Hv": self.d_head}
        with b.block(name, **sizes, S=step.n_seqs, P=chunk_pairs(step, self.chunk), C=padded(step, self.chunk)):
            r_in, w_in, k_in, v_in, a_in, g_in = token_shift(b, x, "r w k v a g")
            r, k = b.linear("r", r_in, "D N H", "T N H"), b.linear("k", k_in, "D N H", "T N H")
            v = self._values(b, v_in, ctx)
            decay = b.map("decay()", "sigmoid", self._low_rank(b, "decay", w_in, self.decay_rank, "N H", "tanh"))
            rate = b.map("rate()", "sigmoid", self._low_rank(b, "rate", a_in, self.rate_rank, "N H"))
            gate = self._low_rank(b, "gate", g_in, self.gate_rank, "N Hv", "sigmoid", bias=False)
            kk, ka, bonus = (b.weight(n, "N H", "scalar") for n in ("key_scale", "key_rate", "bonus"))
            away = Norm(kind="l2norm", eps=1e-12, affine=False).lower(b, "away", b.map("k_scaled", "mul", k, kk), "H")
            k = b.map("k_mixed", "rated", k, rate, ka)
            y = self._mix(b, r, decay, k, v, away, rate, step)
            y = self.norm.lower(b, "norm", y, "Hv", weight="N Hv")
            y = b.map("y", "add", y, v, b.map("own", "dot", r, k, bonus, axes="T N"))
            return b.linear("o", b.map("gated", "mul", y, gate), "N Hv D", "T D")

    def _mix(
        self, b: Builder, r: Tensor, decay: Tensor, k: Tensor, v: Tensor, away: Tensor, rate: Tensor, step: Step
    ) -> Tensor:
        state = b.state("state", "S N H Hv", "recurrent", fp32=True)
        inputs = (r, decay, k, v, away, rate)
        attrs = {"chunk": self.chunk, "inputs": tuple(x.name for x in inputs)}
        with b.block("core", kernel="rwkv7", attrs=attrs):
            if single(step):
                new = b.emit("scan", "new", (*inputs[1:], state), b.tensor("new", "T N H Hv"), state,
                             fn="rwkv7", rate=7)  # fmt: skip
                return b.map("read", "scale", r, new, axes="T N Hv")
            with b.scope(T=b.sizes["C"]):
                return self._chunks(b, r, decay, k, v, away, rate, state, ChunkEdges(step, self.chunk, filled=True))

    def _chunks(
        self, b: Builder, r: Tensor, decay: Tensor, k: Tensor, v: Tensor, away: Tensor, rate: Tensor, state: Tensor,
        edges: ChunkEdges,
    ) -> Tensor:  # fmt: skip
        """The chunked form: what each token takes away is solved for, then keys and values are added."""
        left = [b.map(f"{n}_decayed", "mul", x, decay, axes="T N H") for n, x in (("away", away), ("r", r))]
        keys = [b.map("b", "mul", away, rate, axes="C N H"), b.map("k_decayed", "mul", k, decay, axes="C N H")]
        (ab, ak), (rb, rk) = (
            [b.contract(f"{n}{m}", x, y, "N P", cls="attention") for m, y in zip("bk", keys, strict=True)]
            for n, x in zip("ar", left, strict=True)
        )
        values = b.view("values", v, "C N Hv")
        found = b.contract("away_state", left[0], state, "T N Hv", cls="attention", reads_state_of=edges)
        found = b.map("found", "add", found, b.contract("akv", ak, values, "T N Hv", cls="attention"))
        taken = b.emit("map", "taken", (ab, found), b.tensor("taken", "T N Hv"), fn="solve", rate=self.chunk)
        inside = b.contract("rbu", rb, b.view("takens", taken, "C N Hv"), "T N Hv", cls="attention")
        given = b.contract("rkv", rk, values, "T N Hv", cls="attention")
        across = b.contract("r_state", left[1], state, "T N Hv", cls="attention", reads_state_of=edges)
        updates = [
            b.contract(f"update_{n}", b.map(f"{n}_left", "mul", x, decay, axes="T N H"), y, "T N H Hv",
                       cls="attention", adds_to_state_of=edges)
            for n, x, y in (("taken", away, taken), ("given", k, v))
        ]  # fmt: skip
        b.emit("scan", "state+", (*updates, state), state, fn="decay", rate=3)
        return b.map("o", "add", across, b.map("both", "add", inside, given))

    def _low_rank(
        self, b: Builder, n: str, x: Tensor, rank: int, axes: str, inner: str | None = None, bias: bool = True
    ) -> Tensor:
        with b.scope(Rk=rank):
            h = b.linear(f"{n}_down", x, "D Rk", "T Rk")
            h = b.map(f"{n}_inner", inner, h) if inner else h
            return b.linear(n, h, f"Rk {axes}", f"T {axes}", bias=bias)

    def _values(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        v = b.linear("v", x, "D N Hv", "T N Hv")
        if self.value_rank is None:
            ctx.shared[FIRST_VALUES] = (v,)
            return v
        share = b.map("share()", "sigmoid", self._low_rank(b, "share", x, self.value_rank, "N Hv"))
        first = ctx.shared.get(FIRST_VALUES, (v,))[0]
        change = b.map("v_change", "add", first, v, right=-1.0)
        return b.map("v_mixed", "add", v, change, share)
