"""Model FLOP of training, and the conventions in which frameworks print them.

Model FLOP are what forward and backward need if nothing is computed twice: three times the products of the forward
pass, whose gradient is two products of the same size each.
"""

from __future__ import annotations

from archsim.base.data_class import dataclass
from archsim.base.number import Num
from archsim.counts import graph_counts as c
from archsim.counts.count import count, step_for
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.stack import FlopConvention

PASSES = 3
"""Products of forward and backward over those of the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlops:
    """Training FLOP of one token, without recomputation. weights: products with weight matrices. attention: scores and
    values under the mask; attention_full: as if every token saw every other. head: products with the output
    table, among `weights`. params: of the whole model."""

    weights: float
    attention: float
    attention_full: float
    head: float
    params: int

    @property
    def causal(self) -> float:
        """With the pairs that the mask allows."""
        return self.weights + self.attention

    @property
    def full(self) -> float:
        """With all pairs."""
        return self.weights + self.attention_full

    def printed(self, convention: FlopConvention, recompute: str = "none") -> float:
        """As a framework's convention counts them. Where it counts what is recomputed, full recomputation adds the
        forward of the layers, a selective one that of the scores.
        """
        weights = self.weights if convention.weights == "matrices" else 2 * PASSES * self.params
        scores = {"full": self.attention_full, "causal": self.attention, "none": 0.0}[convention.attention]
        again = {"full": weights - self.head + scores, "selective:attention": scores}.get(recompute, 0.0)
        return float(weights + scores + (again / PASSES if convention.recomputed else 0.0))


SEQUENCE = 4096
"""Tokens of a training sequence where none are asked for, over which attention's share is counted."""


def flops_per_token(model: Model, seq_len: int = SEQUENCE) -> Num:
    """`model_flops(...).causal` alone; of a model whose numbers are columns, of each candidate."""
    graph = lower(model, step_for(model, 1, seq_len, last=False))
    return PASSES * c.flops(graph) / seq_len


def model_flops(model: Model, seq_len: int) -> ModelFlops:
    """FLOP of training on sequences of `seq_len`, the head at every position."""
    counted = count(model, input_len=seq_len, logits="all")
    masked, full = counted.masked, counted.full
    return ModelFlops(
        weights=PASSES * (masked.matmul + masked.conv) / seq_len, attention=PASSES * masked.attention / seq_len,
        attention_full=PASSES * full.attention / seq_len, params=int(counted.total),
        head=float(2 * PASSES * model.d_model * model.vocab_size),
    )  # fmt: skip
