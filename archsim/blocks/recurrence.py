"""What recurrent mixers share: the short causal convolution that they begin with, and the chunks of a prefill."""

from __future__ import annotations

from archsim.base.number import Num, ceil_div
from archsim.blocks.block import Context
from archsim.graph.builder import Builder
from archsim.graph.graph import Op
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
