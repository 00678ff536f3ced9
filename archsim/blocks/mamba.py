"""Selective state-space mixers: Mamba (arXiv:2312.00752) and Mamba-2 (arXiv:2405.21060)."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import model_validator
from archsim.base.number import Num, ceil_div
from archsim.blocks import tiny
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Changes, Count, InvalidBlock
from archsim.blocks.norm import Norm
from archsim.blocks.recurrence import causal_conv, chunk_pairs, padded, single
from archsim.graph.builder import Builder
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor

SCAN_RATE = 7
"""Vector FLOP per state element and token: exp(dt·A), dt·B, ·x, h·decay + input."""


class Mamba(MixerSpec):
    """Mamba-1: every channel of d_inner has a state of d_state numbers that decays by an input-dependent step."""

    kind: Literal["mamba"] = "mamba"
    d_inner: Count
    d_state: Count
    d_conv: Count = 4
    dt_rank: Count
    bias: bool = False
    conv_bias: bool = True
    inner_norm: Norm | None = None

    about = {"mamba": About(label="Mamba",
                            paper="selective state spaces: Gu and Dao 2023, arXiv:2312.00752, section 3")}  # fmt: skip
    letters = {"dt_rank": ("Rd", "rank of the time step")}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        sizes: dict[str, Num] = {"I": self.d_inner, "Ns": self.d_state, "W": self.d_conv, "R": self.dt_rank}
        with b.block(name, **sizes, S=ctx.step.n_seqs):
            u = b.linear("x", x, "D I", "T I", bias=self.bias)
            z = b.linear("z", x, "D I", "T I", bias=self.bias)
            u = causal_conv(b, "conv", u, "I", ctx, bias=self.conv_bias, activation="silu")
            r = b.linear("dt_down", u, "I R", "T R")
            drive, read = b.linear("B", u, "I Ns", "T Ns"), b.linear("C", u, "I Ns", "T Ns")
            if self.inner_norm:
                r = self.inner_norm.lower(b, "dt_norm", r, "R")
                drive = self.inner_norm.lower(b, "b_norm", drive, "Ns")
                read = self.inner_norm.lower(b, "c_norm", read, "Ns")
            dt = b.map("dt()", "softplus", b.linear("dt", r, "R I", "T I", bias=True))
            y = self._scan(b, u, dt, drive, read)
            return b.linear("out", b.map("gated", "swiglu", z, y), "I D", "T D", bias=self.bias)

    def _scan(self, b: Builder, u: Tensor, dt: Tensor, drive: Tensor, read: Tensor) -> Tensor:
        a, skip = b.weight("A_log", "I Ns", "scalar"), b.weight("D_skip", "I", "scalar")
        state = b.state("state", "S I Ns", "recurrent", fp32=True)
        with b.block("scan", kernel="selective_scan"):
            h = b.emit(
                "scan", "h", (u, dt, a, drive, state), b.tensor("h", "T I Ns"), state,
                fn="selective_scan", rate=SCAN_RATE,
            )  # fmt: skip
            y = b.contract("y", h, read, "T I", cls="attention")
            return b.map("y+skip", "add", y, skip, u)


class Mamba2(MixerSpec):
    """Mamba-2: heads of d_head channels share one decay; B and C are shared by groups of heads.

    A prefill runs in chunks of `chunk` tokens: pairs inside, the state between. A single token updates the state.
    """

    kind: Literal["mamba2"] = "mamba2"
    n_heads: Count
    d_head: Count
    d_state: Count
    n_groups: Count = 1
    d_conv: Count = 4
    chunk: Count = 256
    bias: bool = False
    conv_bias: bool = True
    norm: Norm | None = None

    about = {"mamba2": About(label="Mamba-2",
                             paper="state space duality: Dao and Gu 2024, arXiv:2405.21060, section 7")}  # fmt: skip

    def tiny_fields(self) -> Changes:
        """Heads stay a multiple of their groups."""
        groups = min(self.n_groups, tiny.HEADS)
        return {"n_heads": min(self.n_heads, tiny.HEADS) // groups * groups, "n_groups": groups}

    @model_validator(mode="after")
    def _groups(self) -> Mamba2:
        if self.n_heads % self.n_groups:
            raise InvalidBlock(f"n_heads {self.n_heads} is not a multiple of n_groups {self.n_groups}")
        return self

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        step = ctx.step
        sizes: dict[str, Num] = {"Gr": self.n_groups, "J": self.n_heads // self.n_groups, "Ns": self.d_state}
        with b.block(name, **sizes, H=self.d_head, W=self.d_conv, S=step.n_seqs):
            z = b.linear("z", x, "D Gr J H", "T Gr J H", bias=self.bias)
            u = self._branch(b, "x", x, "Gr J H", ctx)
            drive, read = self._branch(b, "B", x, "Gr Ns", ctx), self._branch(b, "C", x, "Gr Ns", ctx)
            dt = b.linear("dt", x, "D Gr J", "T Gr J", bias=self.bias)
            dt = b.map("dt()", "softplus", b.map("dt+b", "add", dt, b.weight("dt_bias", "Gr J", "scalar")))
            y = (self._scan if single(step) else self._chunks)(b, u, dt, drive, read, step)
            y = b.map("gated", "swiglu", z, y)
            if self.norm:
                y = self.norm.lower(b, "norm", y, "J H", weight="Gr J H")
            return b.linear("out", y, "Gr J H D", "T D", bias=self.bias)

    def _branch(self, b: Builder, n: str, x: Tensor, axes: str, ctx: Context) -> Tensor:
        y = b.linear(n, x, "D " + axes, "T " + axes, bias=self.bias)
        return causal_conv(b, "conv_" + n, y, axes, ctx, bias=self.conv_bias, activation="silu")

    def _own(self, b: Builder) -> tuple[Tensor, Tensor, Tensor]:
        """The logarithms of the decays, the weights of the skip, the state."""
        a, skip = b.weight("A_log", "Gr J", "scalar"), b.weight("D_skip", "Gr J", "scalar")
        return a, skip, b.state("state", "S Gr J H Ns", "recurrent", fp32=True)

    def _scan(self, b: Builder, u: Tensor, dt: Tensor, drive: Tensor, read: Tensor, step: Step) -> Tensor:
        """One token: the state decays, takes in B·x and is read by C."""
        a, skip, state = self._own(b)
        with b.block("scan", kernel="selective_scan"):
            h = b.emit(
                "scan", "h", (u, dt, a, drive, state), b.tensor("h", "T Gr J H Ns"), state,
                fn="selective_scan", rate=SCAN_RATE,
            )  # fmt: skip
            y = b.contract("y", h, read, "T Gr J H", cls="attention")
            return b.map("y+skip", "add", y, skip, u)

    def _chunks(self, b: Builder, u: Tensor, dt: Tensor, drive: Tensor, read: Tensor, step: Step) -> Tensor:
        """State-space duality (arXiv:2405.21060 section 6): C·B of the pairs inside a chunk, times the decay
        between them, weighs the inputs; the inputs of a chunk add up to its state; C reads the state before it.

        The reference repeats B and C for every head of a group, and passes states on by one product over all pairs
        of chunks. `full` counts both; a scan needs neither.
        """
        a, skip, state = self._own(b)
        attrs = {"chunk": self.chunk, "inputs": (u.name, dt.name, drive.name, read.name), "A_log": a.name}
        sizes = {"P": chunk_pairs(step, self.chunk), "C": padded(step, self.chunk), "Z": self._passed(step)}
        with b.block("scan", kernel="ssd", attrs=attrs | {"D_skip": skip.name}, **sizes):
            with b.scope(T=b.sizes["C"]):
                x = b.map("x_dt", "mul", u, dt, axes="T Gr J H")
                decay = b.map("decay", "scale", dt, a, axes="T Gr J")
                inside = self._inside(b, x, decay, drive, read, "Gr P" if step.masked else "Gr J P")
                update = b.map("B_decayed", "mul", drive, decay, axes="T Gr J Ns")
                update = b.contract("update", update, x, "T Gr J H Ns", cls="attention")
                if not step.masked:
                    between = b.map("decay_between", "scale", decay, axes="Z Gr J")
                    states = b.view("states", update, "Z Gr J H Ns")
                    update = b.contract("passed", between, states, "Z Gr J H Ns", cls="attention")
                across = b.contract("C_state", read, state, "T Gr J H", cls="attention")
                b.emit("scan", "state+", (update, state), state, fn="decay", rate=2)
                y = b.map("y", "add", inside, across, decay)
            return b.map("y+skip", "add", y, skip, u, axes="T Gr J H")

    def _inside(self, b: Builder, x: Tensor, decay: Tensor, drive: Tensor, read: Tensor, pairs: str) -> Tensor:
        """What the tokens of a chunk give each other, over padded T."""
        keys, values = b.view("keys", drive, "C Gr Ns"), b.view("values", x, "C Gr J H")
        scores = b.contract("CB", read, keys, pairs, cls="attention")
        weights = b.map("CB_decayed", "scale", scores, decay, axes="Gr J P")
        return b.contract("inside", weights, values, "T Gr J H", cls="attention")

    def _passed(self, step: Step) -> Num:
        """Pairs of states, the one before the first chunk and those after each, that a prefill multiplies."""
        if step.masked:
            return 0
        return sum(s.batch * (1 + ceil_div(s.new, self.chunk)) ** 2 for s in step.seqs)
