"""Entries that stand for several tokens: a softmax over learned gates, channel by channel (DeepSeek-V4)."""

from __future__ import annotations

from archsim.base.data_class import dataclass
from archsim.base.number import Num
from archsim.blocks.norm import Norm
from archsim.blocks.rope import Rope
from archsim.graph.builder import Builder
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor, Use

WORK = 8
"""Vector FLOP for every number that goes into an entry: a softmax and a weighted sum."""


def pool(b: Builder, kv: Tensor, gate: Tensor, axis: str, ratio: int, overlap: bool = False) -> Tensor:
    """The entries over C and `axis` that new tokens complete, from numbers and gates over T and Hc (`axis`, twice with
    overlap), a learned one for each place (Wr) added to the gates. Tokens that wait are kept over S, Wb and Hb.
    """
    bias = b.weight("position_bias", "Wr Hc", "bias")
    buffer = b.state("buffer", "S Wb Hb", "recurrent", fp32=True)
    with b.block("pool", kernel="compress"):
        return b.emit(
            "scan", "pooled", (kv, gate, bias, buffer), b.tensor("pooled", f"C {axis}"), buffer,
            fn="compress", rate=WORK * ratio * (2 if overlap else 1), attrs={"ratio": ratio, "overlap": overlap},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compressor:
    """One entry for every `ratio` tokens, `width` wide, over `axis`. overlap: each entry also takes in the tokens of
    the one before, so there are two series of numbers for every token.

    Tokens whose entry is not complete wait in a buffer in 32 bits (with overlap, those of the entry before as well), as
    in DeepSeek's own implementation.
    """

    ratio: int
    overlap: bool
    width: int
    axis: str
    norm: Norm
    position: Rope

    def lower(self, b: Builder, x: Tensor, step: Step, mask: Mask) -> Use:
        """The cache of entries, of which attention reads those that `mask` allows."""
        series = 2 if self.overlap else 1
        width, every = series * self.width, Mask(ratio=self.ratio)
        sizes: dict[str, Num] = {"Hc": width, "Hb": 2 * width, "Wr": self.ratio, "Wb": series * self.ratio}
        with b.block("compressor", **sizes, C=step.stored(every)):
            kv, gate = b.linear("kv", x, "D Hc", "T Hc"), b.linear("gate", x, "D Hc", "T Hc")
            complete = step.appended(every)
            with b.scope(C=complete):
                y = pool(b, kv, gate, self.axis, self.ratio, self.overlap)
                y = self.norm.lower(b, "norm", y, self.axis)
                y = b.map("rope", "rope", y, rope=self.position, every=self.ratio)
            cache = b.state("entries", f"C {self.axis}")
            b.append(cache, y, complete)
            return cache.part(C=step.read(mask))
