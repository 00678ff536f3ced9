"""The short causal depthwise convolution that recurrent mixers begin with."""

from __future__ import annotations

from archsim.blocks.context import Context
from archsim.graph.builder import Builder
from archsim.graph.graph import Op
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
