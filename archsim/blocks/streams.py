"""Additions to the residual stream: AltUp's parallel streams, LAuReL, per-layer embeddings (Gemma 3n)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from archsim.base.lazy_model import Field
from archsim.blocks.block import Context
from archsim.blocks.dispatch import Activation, Count, Spec
from archsim.blocks.norm import Norm
from archsim.graph.builder import Builder
from archsim.graph.tensor import Tensor


class PerLayerInput(Spec):
    """A small embedding of the token for this layer, gated by the stream and projected back into it."""

    d: Count
    activation: Activation = "gelu_tanh"
    norm: Norm

    decisions = {"*": "per_layer"}
    brief = "{d:,} per layer"

    def lower(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """What this layer's embedding adds, over T and D."""
        with b.block("per_layer", Pl=self.d):
            own = b.select("own", ctx.shared["per_layer"][0], "T Pl", "next", Y=1)
            gate = b.map("gate()", self.activation, b.linear("gate", x, "D Pl", "T Pl"))
            y = b.linear("up", b.map("gated", "mul", gate, own), "Pl D", "T D")
            return self.norm.lower(b, "norm", y)

    def add(self, b: Builder, y: Tensor, x: Tensor, ctx: Context) -> Tensor:
        """`y` with this layer's embedding added, for a single stream."""
        return b.map("with_per_layer", "add", y, self.lower(b, x, ctx))


class Laurel(Spec):
    """LAuReL (arXiv:2411.07501): the branch's input plus a low-rank map of it, added beside the branch."""

    rank: Count
    norm: Norm

    decisions = {"*": "laurel"}
    brief = "rank {rank:,}"

    def lower(self, b: Builder, h: Tensor) -> Tensor:
        """h + norm(right(left(h)))."""
        with b.block("laurel", Lr=self.rank):
            y = b.linear("right", b.linear("left", h, "D Lr", "T Lr"), "Lr D", "T D")
            return b.map("sum", "add", h, self.norm.lower(b, "norm", y))


class AltUp(Spec):
    """AltUp (arXiv:2301.13310): n streams, of which a layer computes one and corrects the others."""

    n: Annotated[Count, Field(ge=2)]
    norm: Norm

    decisions = {"*": "altup"}
    limits = {"n": 4}
    brief = "{n} streams"

    def around(
        self, b: Builder, x: Tensor, layer: Callable[[Tensor], Tensor], per_layer: PerLayerInput | None, ctx: Context
    ) -> Tensor:
        """Predict all streams, run the layer on the first, correct all by its innovation. T A D to T A D."""
        with b.scope(A=self.n, A2=self.n, Am=self.n):
            predicted = self._predict(b, x)
            y = layer(b.select("active", predicted, "T D", "first", A2=1))
            corrected = self._correct(b, predicted, y)
            if per_layer is None:
                return corrected
            first = b.select("first", corrected, "T D", "first", A=1)
            first = b.map("scaled", "mul", first, b.weight("output_scale", "D", "scalar"))
            return b.map("with_per_layer", "add", corrected, per_layer.lower(b, first, ctx), term="other_streams")

    def _router(self, b: Builder, name: str, x: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
        norm, router = weights
        h = b.map(name + "_norm", self.norm.kind, x, norm, over=("D",), eps=self.norm.eps, offset=self.norm.offset)
        h = b.map(name + "_scale", "scale", h, by_size="D")
        return b.map(name + "_tanh", "tanh", b.contract(name, h, router, "T Am"))

    def _predict(self, b: Builder, x: Tensor) -> Tensor:
        active = b.select("stream", x, "T D", "first", A=1)
        coefficients = b.linear(
            "predict", self._router(b, "route", active, self._weights(b)), "Am A2 A", "T A2 A", role="router"
        )
        return b.map("predicted", "add", b.contract("mix", x, coefficients, "T A2 D"), x)

    def _correct(self, b: Builder, predicted: Tensor, y: Tensor) -> Tensor:
        coefficients = b.linear(
            "correct", self._router(b, "reroute", y, self._weights(b)), "Am A", "T A", role="router"
        )
        return b.map("corrected", "altup_correct", predicted, y, coefficients, axes="T A D")

    def _weights(self, b: Builder) -> tuple[Tensor, Tensor]:
        return b.weight("router_norm", "D", "norm"), b.weight("w_router", "D Am", "router", ("D",))
