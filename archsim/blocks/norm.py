"""Normalisation: LayerNorm, RMSNorm and their variants."""

from __future__ import annotations

from typing import Literal

from archsim.base.lazy_model import Field
from archsim.blocks.dispatch import About, Fields, Spec
from archsim.graph.builder import Builder, Operand
from archsim.graph.tensor import Tensor, split_axes

EFFECTS = {
    "rmsnorm": "without mean and bias", "layernorm": "that takes the mean away", "l2norm": "to length one",
}  # fmt: skip


class Norm(Spec):
    """y = (x - mean) / sqrt(var + eps) * w + b (LayerNorm), or x / rms(x) * w (RMSNorm).

    affine: a learned weight (false: non-parametric, as OLMo). bias: a learned bias (LayerNorm's default).
    offset: the weight is stored as w and used as 1 + w (Gemma, Nemotron): same count, other initialisation.
    groups: of so many runs of channels, each normed by itself (Ling 2.5).
    """

    kind: Literal["rmsnorm", "layernorm", "l2norm"]
    eps: float = 1e-5
    affine: bool = True
    bias: bool | None = None
    offset: bool = False
    groups: int = Field(default=1, ge=1)

    about = {
        "rmsnorm": About("rmsnorm", "RMSNorm", "RMSNorm"), "layernorm": About("layernorm", "LayerNorm", "LayerNorm"),
        "l2norm": About("l2norm", "L2 norm", "L2Norm"),
    }  # fmt: skip
    decisions = {"*": "norm_type"}
    words = {"offset": "weights around one"}

    @property
    def effect(self) -> str:
        """What it does, for readers who compare it with a paper's words."""
        return EFFECTS[self.kind]

    def normal_form(self, fields: Fields) -> Fields:
        """Whether there is a bias, said outright."""
        return fields | {"bias": self.has_bias}

    @property
    def has_bias(self) -> bool:
        """Whether a bias vector is learned."""
        return self.affine and (self.kind == "layernorm" if self.bias is None else self.bias)

    def lower(
        self, b: Builder, name: str, x: Operand, over: str = "D", weight: str | None = None, axes: str | None = None
    ) -> Tensor:
        """Normalise `x` over the axes `over`; the weight's axes may be more (one per head) than those."""
        learned = over if weight is None else weight
        weights = [b.weight(name, learned, "norm")] if self.affine else []
        if self.has_bias:
            weights.append(b.weight(name + "_bias", learned, "norm"))
        more = {"groups": self.groups} if self.groups > 1 else {}
        return b.map(
            name + "()", self.kind, x, *weights, axes=axes, over=split_axes(over), eps=self.eps, offset=self.offset,
            **more,
        )  # fmt: skip
