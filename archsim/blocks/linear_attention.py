"""Linear attention with a matrix state: lightning attention and the gated delta net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num
from archsim.blocks import tiny
from archsim.blocks.block import Context, MixerSpec, PositionBlock
from archsim.blocks.dispatch import About, Activation, Changes, Count, Extent, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import ChunkEdges, causal_conv, chunk_pairs, padded, single
from archsim.graph.builder import Builder
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


def _attrs(chunk: int, *inputs: Tensor) -> dict[str, object]:
    """What running a body in chunks needs: their size, and the names of its inputs."""
    return {"chunk": chunk, "inputs": tuple(x.name for x in inputs)}


class Lightning(MixerSpec):
    """Lightning attention (arXiv:2401.04658, MiniMax-01): activated q, k, v; a decaying outer-product state per
    head; RMS norm and a sigmoid gate on the output. Prefill runs in chunks: pairs inside, the state between. The
    decay is fixed: 2^(-8 i / n) for head i of n, slower with every layer of the model and almost none in the last.
    activation: none where null; qk_norm, position: of queries and keys, each head by itself (Ling 2.5).
    """

    kind: Literal["lightning"] = "lightning"
    n_heads: Count
    d_head: Count
    chunk: Count = 256
    activation: Activation | None = "silu"
    norm: Norm = Field(default_factory=lambda: Norm(kind="rmsnorm", eps=1e-6))
    qk_norm: Norm | None = None
    position: PositionBlock | None = None

    about = {"lightning": About(label="Lightning", paper="lightning attention: Qin et al. 2024, arXiv:2401.04658")}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"N": self.n_heads, "H": self.d_head, "Hv": self.d_head, "C": step.tokens}
        with b.block(name, **sizes, S=step.n_seqs, P=chunk_pairs(step, self.chunk, filled=False)):
            axes = {"q": "N H", "k": "N H", "v": "N Hv"}
            q, k, v = (self._project(b, n, x, a) for n, a in axes.items())
            o = self._mix(b, q, k, v, step)
            o = self.norm.lower(b, "norm", o, "N Hv")
            o = b.map("gated", "gate", o, b.linear("gate", x, "D N Hv", "T N Hv"))
            return b.linear("o", o, "N Hv D", "T D")

    def _project(self, b: Builder, name: str, x: Tensor, axes: str) -> Tensor:
        y = b.linear(name, x, "D " + axes, "T " + axes)
        y = b.map(name + "()", self.activation, y) if self.activation is not None else y
        if name == "v":
            return y
        y = self.qk_norm.lower(b, name + "_norm", y, "H") if self.qk_norm is not None else y
        return self.position.rotate(b, name + "_rope", y) if self.position is not None else y

    def _mix(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, step: Step) -> Tensor:
        state = b.state("state", "S N H Hv", "recurrent", fp32=True)
        with b.block("core", kernel="lightning", attrs=_attrs(self.chunk, q, k, v)):
            edges = ChunkEdges(step, self.chunk, filled=False)
            o = b.contract("q_state", q, state, "T N Hv", cls="attention", reads_state_of=edges)
            if not single(step):
                keys, values = b.view("keys", k, "C N H"), b.view("values", v, "C N Hv")
                p = b.map("decay", "scale", b.contract("qk", q, keys, "N P", cls="attention"))
                o = b.map("o", "add", o, b.contract("pv", p, values, "T N Hv", cls="attention"))
            update = b.contract("kv", k, v, "T N H Hv", cls="attention", adds_to_state_of=edges)
            b.emit("scan", "update", (update, state), state, fn="decay", rate=2)
            return o


class DeltaRule(MixerSpec):
    """A matrix state per head that forgets by a gate and is corrected by the error of its own prediction, what mixers
    with a delta rule share. Prefill runs in chunks, whose interactions are solved exactly.
    """

    d_conv: Count = 4
    chunk: Count = 64
    norm: Norm = Field(default_factory=lambda: Norm(kind="rmsnorm", eps=1e-6))

    def _branch(self, b: Builder, n: str, x: Tensor, axes: str, ctx: Context) -> Tensor:
        y = b.linear(n, x, "D " + axes, "T " + axes)
        return causal_conv(b, "conv_" + n, y, axes, ctx, bias=False, activation="silu")

    def _mix(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, step: Step) -> Tensor:
        state = b.state("state", "S N J H Hv", "recurrent", fp32=True)
        with b.block("core", kernel="gated_delta", attrs=_attrs(self.chunk, q, k, v, beta, decay)):
            if single(step):
                return self._step(b, q, k, v, beta, decay, state)
            with b.scope(T=b.sizes["C"]):
                return self._chunks(b, q, k, v, beta, decay, state, ChunkEdges(step, self.chunk, filled=True))

    def _step(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, state: Tensor) -> Tensor:
        """One token: predict, correct, read. Elementwise sums over the state, no matrix product."""
        new = b.emit(
            "scan", "delta", (k, v, beta, decay, state), b.tensor("delta", "T N J H Hv"), state,
            fn="gated_delta", rate=6,
        )  # fmt: skip
        return b.map("read", "scale", q, new, axes="T N J Hv")

    def _chunks(
        self, b: Builder, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, state: Tensor, edges: ChunkEdges
    ) -> Tensor:
        """The chunked form: a triangular system per chunk and head, three products of pairs, three with the state.

        The two triangular solves are vector work here, as in torch's counter: half a chunk of multiply-adds per
        element.
        """
        keys, values = b.view("keys", k, "C N H"), b.view("values", v, "C N J Hv")
        kk = b.contract("kk", b.map("k_beta", "mul", k, beta, axes="T N J H"), keys, "N J P", cls="attention")
        system = b.map("system", "scale", kk, decay)
        corrected = self._solve(b, "solve_v", system, values, "T N J Hv")
        k_cum = self._solve(b, "solve_k", system, keys, "T N J H")
        predicted = b.contract("predict", k_cum, state, "T N J Hv", cls="attention", reads_state_of=edges)
        new = b.map("new", "add", corrected, predicted)
        qk = b.map("decayed", "scale", b.contract("qk", q, keys, "N J P", cls="attention"))
        inter = b.contract("q_state", b.map("q_decay", "mul", q, decay, axes="T N J H"), state, "T N J Hv",
                           cls="attention", reads_state_of=edges)  # fmt: skip
        intra = b.contract("qkv", qk, b.view("news", new, "C N J Hv"), "T N J Hv", cls="attention")
        update = b.contract("update", b.map("k_decay", "mul", k, decay, axes="T N J H"), new, "T N J H Hv",
                            cls="attention", adds_to_state_of=edges)  # fmt: skip
        b.emit("scan", "state+", (update, state), state, fn="decay", rate=2)
        return b.map("o", "add", inter, intra)

    def _solve(self, b: Builder, name: str, system: Tensor, x: Tensor, out: str) -> Tensor:
        """One triangular solve of every chunk."""
        return b.emit("map", name, (system, x), b.tensor(name, out), fn="solve", rate=self.chunk)


class GatedDeltaNet(DeltaRule):
    """Gated delta rule (arXiv:2412.06464; Qwen3-Next, Qwen3.5): one forget gate per head.

    negative_eigenvalues: corrections up to twice the error, so that a state can turn around (OLMo Hybrid).
    """

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    n_key_heads: Count
    n_value_heads: Count
    d_key: Count
    d_value: Count
    negative_eigenvalues: bool = False

    about = {"gated_delta_net": About("gated delta net", label="Gated DeltaNet",
                                      paper="gated delta networks: Yang et al. 2024, arXiv:2412.06464")}  # fmt: skip
    letters = {"n_key_heads": ("N", "heads"), "d_key": ("H", "head size"), "d_value": ("Hv", "value head size")}

    @model_validator(mode="after")
    def _groups(self) -> GatedDeltaNet:
        if self.n_value_heads % self.n_key_heads:
            text = f"n_value_heads {self.n_value_heads} is not a multiple of n_key_heads {self.n_key_heads}"
            raise InvalidBlock(text)
        return self

    def with_extents(self, extents: Mapping[str, Extent]) -> Changes:
        """Value heads are a multiple of the key heads."""
        found = super().with_extents(extents)
        groups = self.n_value_heads // self.n_key_heads
        return found | ({"n_value_heads": extents["N"] * groups} if "N" in extents else {})

    def tiny_fields(self) -> Changes:
        """Value heads stay a multiple of the key heads."""
        groups = min(self.n_value_heads // self.n_key_heads, tiny.HEADS)
        keys = max(min(self.n_key_heads, tiny.HEADS // groups), 1)
        return {"n_key_heads": keys, "n_value_heads": keys * groups}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"N": self.n_key_heads, "J": self.n_value_heads // self.n_key_heads, "H": self.d_key}
        sizes |= {"Hv": self.d_value, "W": self.d_conv, "S": step.n_seqs}
        with b.block(name, **sizes, P=chunk_pairs(step, self.chunk), C=padded(step, self.chunk)):
            q, k = self._branch(b, "q", x, "N H", ctx), self._branch(b, "k", x, "N H", ctx)
            v = self._branch(b, "v", x, "N J Hv", ctx)
            z = b.linear("z", x, "D N J Hv", "T N J Hv")
            beta = b.map("beta()", "sigmoid", b.linear("beta", x, "D N J", "T N J"))
            if self.negative_eigenvalues:
                beta = b.map("beta_doubled", "scale", beta, by=2.0)
            decay = b.linear("decay", x, "D N J", "T N J")
            dt, a = b.weight("dt_bias", "N J", "scalar"), b.weight("A_log", "N J", "scalar")
            decay = b.map("decay()", "softplus", decay, dt, a, decay=True)
            o = self._mix(b, q, k, v, beta, decay, step)
            o = self.norm.lower(b, "norm", o, "Hv")
            o = b.map("gated", "swiglu", z, o)
            return b.linear("o", o, "N J Hv D", "T D")
