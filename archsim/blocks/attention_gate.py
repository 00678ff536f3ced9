"""A gate on what attention gives."""

from __future__ import annotations

from typing import Literal

from archsim.blocks.dispatch import Spec
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class Gate(Spec):
    """A gate on the attention output, computed from the layer's input, per element or per head: its sigmoid, or its
    softplus (Laguna). bias: a number for each head.
    """

    kind: Literal["sigmoid", "softplus"] = "sigmoid"
    per: Literal["element", "head"] = "element"
    bias: bool = False

    decisions = {"*": "attention_gate"}
    brief = "{kind} for each {per}"

    def lower(self, b: Builder, x: Tensor, o: Tensor, axes: str) -> Tensor:
        """The heads' outputs times the gate, which is computed from `x` over `axes`."""
        gate = b.linear("gate", x, "D " + axes, "T " + axes)
        if self.bias:
            heads = axes if self.per == "head" else axes.rsplit(maxsplit=1)[0]
            gate = b.map("gate+b", "add", gate, b.weight("b_gate", heads, "bias"))
        if self.kind == "sigmoid":
            return b.map("gated", "gate", o, gate)
        return b.map("gated", "mul", o, b.map("gate()", self.kind, gate))
