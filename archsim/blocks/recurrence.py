"""What recurrent mixers share (the short causal convolution, the chunks of a prefill), and the two that need no more:
the real-gated linear recurrent unit of Griffin (arXiv:2402.19427) and the short convolution of LFM2 (arXiv:2511.23404).
"""

from __future__ import annotations

from typing import Literal

from archsim.base.data_class import dataclass
from archsim.base.lazy_model import model_validator
from archsim.base.number import Num, ceil_div, minimum
from archsim.blocks import tiny
from archsim.blocks.block import Context, MixerSpec
from archsim.blocks.dispatch import About, Activation, Changes, Count, InvalidBlock
from archsim.graph.builder import Builder
from archsim.graph.graph import Op, OpClass
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor


def causal_conv(
    b: Builder, name: str, x: Tensor, channels: str, ctx: Context, *, bias: bool, activation: str | None
) -> Tensor:
    """x over T and `channels`, convolved along time with one kernel of W taps per channel.

    The state holds the last W - 1 inputs of each sequence. Implementations pad and convolve T + W - 1 positions
    in prefill, which `full` FLOPs count and `masked` ones do not.
    """
    step, taps = ctx.step, b.sizes["W"]
    w = b.weight(name + "_w", channels + " W", "conv")
    with b.scope(W1=taps - 1):
        state = b.state(name + "_state", f"S {channels} W1", "recurrent")
    y = b.tensor(name, "T " + channels)
    prefill = all(isinstance(s.past, int) and s.past == 0 for s in step.seqs)
    padded = prefill and not step.masked
    extent = step.tokens + step.n_seqs * (taps - 1) if padded else step.tokens
    # The kept inputs count as rows of S here: an axis W1 beside W would multiply the FLOP of the convolution.
    kept = state.part(S=step.n_seqs * (taps - 1), W1=1)
    conv = Op(
        kind="contract", name=b.name(name), cls="conv", fn="causal_conv",
        reads=(x.part(), w.part(), kept), writes=(y.part(T=extent), kept),
    )  # fmt: skip
    b.add(conv)
    if bias:
        y = b.map(name + "+b", "add", y, b.weight(name + "_b", channels, "bias"))
    return b.map(name + "()", activation, y) if activation else y


def convolution(
    b: Builder, name: str, x: Tensor, weight: str, out: str, *, bias: str = "", cls: OpClass = "matmul"
) -> Tensor:
    """A product with a weight over the axes `weight`, of which Ck counts the neighbours that a filter sees. x has the
    tokens that enter, the scope those that leave: 2 FLOP for each of these, neighbour and pair of channels.
    """
    inner = tuple(axis for axis in weight.split() if axis not in out.split())
    w = b.weight("w_" + name, weight, "conv", inner)
    y = b.emit("contract", name, (x, w), b.tensor(name, out), cls=cls)
    return b.map(name + "+b", "add", y, b.weight("b_" + name, bias, "bias")) if bias else y


def depthwise(b: Builder, name: str, x: Tensor, channels: str, bias: bool = False) -> Tensor:
    """Each channel convolved by itself with Ck taps, without a state: an encoder sees whole sequences."""
    over = channels if bias else ""
    return convolution(b, name, x, f"Ck {channels}", f"T {channels}", bias=over, cls="conv")


def convolved(b: Builder, name: str, x: Tensor, channels: str, ctx: Context, taps: int) -> Tensor:
    """x over T and `channels` plus a causal convolution of it along time, of so many taps per channel."""
    with b.scope(W=taps, S=ctx.step.n_seqs):
        return b.map(name + "_residual", "add", x, causal_conv(b, name, x, channels, ctx, bias=False, activation=None))


def token_shift(b: Builder, x: Tensor, names: str) -> list[Tensor]:
    """x + (the token before - x) · w for every weight vector named, over T and D; the state holds the last token."""
    state = b.state("shift_state", "S D", "recurrent")
    before = b.emit("scan", "before", (x, state), b.tensor("before", "T D"), state, fn="shift", rate=0)
    change = b.map("change", "add", before, x, right=-1.0)
    return [b.map(f"{n}_shifted", "add", x, change, b.weight(f"mix_{n}", "D", "scalar")) for n in names.split()]


def single(step: Step) -> bool:
    """Whether every sequence has one new token: then the state alone is used.

    The reference implementations do so only where there is a state; `full` counts a chunk for a first token.
    """
    if not all(isinstance(s.new, int) and s.new == 1 for s in step.seqs):
        return False
    return step.masked or not all(isinstance(s.past, int) and s.past == 0 for s in step.seqs)


def chunk_pairs(step: Step, chunk: int, filled: bool = True) -> Num:
    """(query, key) pairs inside the chunks that a prefill is cut into; a decode step has none.

    filled: the last chunk is filled up before it is computed, which `full` counts.
    """
    if single(step):
        return 0
    if step.masked:
        return step.pairs(Mask(chunk=chunk))
    if not filled:
        whole = [(s, s.new // chunk * chunk) for s in step.seqs]
        return sum(s.batch * (n * chunk + (s.new - n) * (s.new - n)) for s, n in whole)
    return sum(s.batch * ceil_div(s.new, chunk) * chunk * chunk for s in step.seqs)


def padded(step: Step, chunk: int) -> Num:
    """Tokens rounded up to whole chunks, which an implementation computes and `full` counts."""
    if step.masked:
        return step.tokens
    return sum(s.batch * ceil_div(s.new, chunk) * chunk for s in step.seqs)


@dataclass(frozen=True, slots=True)
class ChunkEdges:
    """The chunks of a prefill that pass no gradient through states: the first of a sequence finds an empty state, and
    the state behind the last is not read. filled: the last chunk is filled up before it is computed.
    """

    step: Step
    chunk: int
    filled: bool

    @property
    def first(self) -> Num:
        """Tokens of first chunks."""
        if self.filled and not self.step.masked:
            return sum(s.batch * self.chunk for s in self.step.seqs)
        return sum(s.batch * minimum(s.new, self.chunk) for s in self.step.seqs)

    @property
    def last(self) -> Num:
        """Tokens of last chunks."""
        if self.filled and not self.step.masked:
            return sum(s.batch * self.chunk for s in self.step.seqs)
        return sum(s.batch * (s.new - (ceil_div(s.new, self.chunk) - 1) * self.chunk) for s in self.step.seqs)


class RgLru(MixerSpec):
    """The RG-LRU of RecurrentGemma: two branches of d_inner; one convolved and passed through a diagonal recurrence
    whose two gates are block-diagonal (n_blocks), the other a GELU gate.
    """

    kind: Literal["rg_lru"] = "rg_lru"
    d_inner: Count
    n_blocks: Count
    d_conv: Count = 4
    activation: Activation = "gelu_tanh"

    about = {"rg_lru": About("rg-lru", label="RG-LRU",
                             paper="Griffin: De et al. 2024, arXiv:2402.19427, section 2.4")}  # fmt: skip

    @model_validator(mode="after")
    def _blocks(self) -> RgLru:
        if self.d_inner % self.n_blocks:
            raise InvalidBlock(f"d_inner {self.d_inner} is not a multiple of n_blocks {self.n_blocks}")
        return self

    def tiny_fields(self) -> Changes:
        """Channels stay a multiple of their blocks."""
        blocks = min(self.n_blocks, tiny.HEADS)
        return {"n_blocks": blocks, "d_inner": min(self.d_inner, tiny.WIDTH) // blocks * blocks}

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        width = self.d_inner // self.n_blocks
        with b.block(name, Nb=self.n_blocks, I=width, I2=width, W=self.d_conv, S=ctx.step.n_seqs):
            y = b.linear("y", x, "D Nb I", "T Nb I", bias="Nb I")
            y = b.map("y()", self.activation, y)
            u = b.linear("x", x, "D Nb I", "T Nb I", bias="Nb I")
            u = causal_conv(b, "conv", u, "Nb I", ctx, bias=True, activation=None)
            gates = [
                b.map(n + "()", "sigmoid", b.linear(n, u, "Nb I I2", "T Nb I2", bias="Nb I2"))
                for n in ("input_gate", "recurrence_gate")
            ]
            decay, state = (b.weight("lambda", "Nb I", "scalar"), b.state("state", "S Nb I", "recurrent", fp32=True))
            with b.block("scan", kernel="rg_lru"):
                h = b.emit("scan", "h", (u, *gates, decay, state), b.tensor("h", "T Nb I"), state, fn="rg_lru", rate=8)
            return b.linear("out", b.map("gated", "mul", h, y), "Nb I D", "T D", bias="D")


class ShortConv(MixerSpec):
    """C · conv(B · x): a causal convolution of d_inner channels between two gates, all three read from the input.

    Nothing is carried over but the last d_conv - 1 inputs of the convolution. square: d_conv x d_conv patches of an
    image are convolved, without a state (the encoder of LFM3-VL).
    """

    kind: Literal["short_conv"] = "short_conv"
    d_inner: Count
    d_conv: Count = 3
    bias: bool = False
    square: bool = False

    about = {"short_conv": About("short convolution", label="Short conv",
                                 paper="LFM2 technical report: Liquid AI 2025, arXiv:2511.23404")}  # fmt: skip

    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "mixer") -> Tensor:
        """The mixing of tokens; returns a tensor over T and D."""
        with b.block(name, I=self.d_inner, W=self.d_conv, S=ctx.step.n_seqs):
            before, after, u = (b.linear(n, x, "D I", "T I", bias=self.bias) for n in ("B", "C", "x"))
            u = b.map("gated_in", "mul", before, u)
            if self.square:
                with b.scope(Ck=self.d_conv**2):
                    u = depthwise(b, "conv", u, "I", self.bias)
            else:
                u = causal_conv(b, "conv", u, "I", ctx, bias=self.bias, activation=None)
            return b.linear("out", b.map("gated", "mul", after, u), "I D", "T D", bias=self.bias)
