"""The matrix memory of xLSTM (arXiv:2405.04517), as in xLSTM 7B (arXiv:2503.13427)."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field
from archsim.base.number import Num
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Count
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import ChunkEdges, chunk_pairs, single
from archsim.graph.builder import Builder
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


class MLstm(MixerSpec):
    """mLSTM: a matrix state per head and a vector that normalises what is read of it, with an exponential input gate
    and a sigmoid forget gate per head, both of capped logits; a norm per head and a sigmoid gate on the output.

    Prefill runs in chunks: pairs inside, the state between. bias: of all matrices but the two gates', which have one.
    """

    kind: Literal["mlstm"] = "mlstm"
    n_heads: Count
    d_key: Count
    d_value: Count
    chunk: Count = 64
    gate_cap: float = 15.0
    bias: bool = False
    eps: float = 1e-6
    norm: Norm = Field(default_factory=lambda: Norm(kind="layernorm", eps=1e-6, bias=False))

    about = {"mlstm": About("mlstm", label="mLSTM",
                            paper="xLSTM: Beck et al. 2024, arXiv:2405.04517, section 2.3")}  # fmt: skip
    letters = {"d_key": ("H", "head size"), "d_value": ("Hv", "value head size")}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"N": self.n_heads, "H": self.d_key, "Hv": self.d_value, "C": step.tokens}
        with b.block(name, **sizes, S=step.n_seqs, P=chunk_pairs(step, self.chunk, filled=False)):
            axes = {"q": "N H", "k": "N H", "v": "N Hv", "z": "N Hv"}
            q, k, v, z = (b.linear(n, x, "D " + a, "T " + a, bias=self.bias) for n, a in axes.items())
            gates = [
                b.map(f"{n}_capped", "softcap", b.linear(n, x, "D N", "T N", bias=True), cap=self.gate_cap)
                for n in ("input_gate", "forget_gate")
            ]
            o = self.norm.lower(b, "norm", self._mix(b, q, k, v, gates, step), "Hv", weight="N Hv")
            return b.linear("o", b.map("gated", "gate", o, z), "N Hv D", "T D", bias="D" if self.bias else False)

    def _mix(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, gates: list[Tensor], step: Step) -> Tensor:
        memory = b.state("state", "S N H Hv", "recurrent", fp32=True)
        vector = b.state("normaliser", "S N H", "recurrent", fp32=True)
        largest = b.state("largest", "S N", "recurrent", fp32=True)
        attrs = {
            "chunk": self.chunk, "inputs": tuple(x.name for x in (q, k, v, *gates)), "eps": self.eps,
            "states": (memory.name, vector.name, largest.name),
        }  # fmt: skip
        with b.block("core", kernel="mlstm", attrs=attrs):
            edges = ChunkEdges(step, self.chunk, filled=False)
            b.emit("scan", "largest+", (*gates, largest), largest, fn="decay", rate=3)
            o = b.contract("q_state", q, memory, "T N Hv", cls="attention", reads_state_of=edges)
            if not single(step):
                keys, values = b.view("keys", k, "C N H"), b.view("values", v, "C N Hv")
                p = b.map("decayed", "mul", b.contract("qk", q, keys, "N P", cls="attention"), *gates)
                o = b.map("o", "add", o, b.contract("pv", p, values, "T N Hv", cls="attention"))
            update = b.contract("kv", k, v, "T N H Hv", cls="attention", adds_to_state_of=edges)
            b.emit("scan", "update", (update, memory), memory, fn="decay", rate=2)
            b.emit("scan", "normaliser+", (k, vector), vector, fn="decay", rate=3)
            return b.map("normalised", "mul", o, q, axes="T N Hv")
