"""Scaling laws as documents: where the optimum of a compute budget is, and the loss of a shape.

N: parameters as the law counts them. D: training tokens. C: FLOP of training, 6ND. Constants are in `specs/scaling`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal, NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.errors import NoSuchName, UsageError
from archsim.base.lazy_model import Field, model_validator
from archsim.base.number import Num
from archsim.blocks.dispatch import InvalidBlock, Spec
from archsim.spec import loader
from archsim.spec.catalog import data_roots

DEFAULT_LAW = "besiroglu2024"
FLOPS_PER_PARAM = 6
"""Training FLOP per parameter and token: 2 forward, 4 backward."""

Positive = Annotated[float, Field(gt=0)]
Line = Annotated[str, Field(min_length=1, max_length=400)]
Range = tuple[Positive, Positive]


class Shape(NamedTuple):
    """Parameters and the training tokens that they see."""

    params: float
    tokens: float

    @property
    def flops(self) -> float:
        """FLOP of training: 6ND."""
        return FLOPS_PER_PARAM * self.params * self.tokens

    @property
    def tokens_per_param(self) -> float:
        """D/N."""
        return self.tokens / self.params


class Optimum(Spec):
    """The optimal number of parameters as a power of compute: `params` at `flops`, and the exponent."""

    params: Positive
    flops: Positive
    exponent: Annotated[float, Field(gt=0, lt=1)]

    def at(self, flops: float) -> Shape:
        """The optimal shape of a compute budget; tokens follow from 6ND."""
        params = self.params * (flops / self.flops) ** self.exponent
        return Shape(params, flops / (FLOPS_PER_PARAM * params))

    def of_params(self, params: float) -> Shape:
        """The shape whose optimum has so many parameters."""
        return Shape(params, self.flops * (params / self.params) ** (1 / self.exponent) / (FLOPS_PER_PARAM * params))

    def of_tokens(self, tokens: float) -> Shape:
        """The shape whose optimum has so many tokens: D is a power (1 - exponent) of C."""
        here = self.at(self.flops)
        return self.at(self.flops * (tokens / here.tokens) ** (1 / (1 - self.exponent)))


class OptimumLoss(Spec):
    """Loss at the optimum of a compute budget: (flops / C) ** exponent, in nats per token."""

    flops: Positive
    exponent: Positive

    def at(self, flops: float) -> float:
        """The loss at the optimum of a budget."""
        return float((self.flops / flops) ** self.exponent)


class Loss(Spec):
    """Loss of a shape in nats per token: E + A / N**alpha + B / D**beta (Hoffmann et al., equation 10)."""

    E: Positive
    A: Positive
    B: Positive
    alpha: Positive
    beta: Positive

    def at(self, shape: Shape) -> float:
        """The loss of a shape."""
        return float(self.of(shape.params, shape.tokens))

    def of(self, params: Num, tokens: Num) -> Num:
        """The loss of parameters and tokens; of arrays, of each."""
        return self.E + self.A / params**self.alpha + self.B / tokens**self.beta

    @property
    def optimum(self) -> Optimum:
        """Where the loss is least on 6ND = C: N = G (C/6) ** (beta / (alpha + beta))."""
        both = self.alpha + self.beta
        params = (self.alpha * self.A / (self.beta * self.B)) ** (1 / both)
        return Optimum(params=params, flops=float(FLOPS_PER_PARAM), exponent=self.beta / both)

    def tokens(self, params: float, loss: float) -> float:
        """Tokens with which so many parameters reach a loss; infinite where they never do."""
        rest = loss - self.E - self.A / params**self.alpha
        return float((self.B / rest) ** (1 / self.beta)) if rest > 0 else math.inf


class Repeated(Spec):
    """What repeated tokens and excess parameters are worth: the share of each that is left decays exponentially, with
    these constants in repetitions (Muennighoff et al., equations 5 and 6)."""

    tokens: Positive
    params: Positive

    def effective(self, shape: Shape, unique: float, optimum: Optimum) -> Shape:
        """The shape of equal loss whose tokens are all different. unique: tokens that there are."""
        own = min(unique, shape.tokens)
        enough = min(optimum.of_tokens(own).params, shape.params)
        return Shape(_worth(shape.params, enough, self.params), _worth(shape.tokens, own, self.tokens))


def _worth(total: float, first: float, scale: float) -> float:
    """`first` in full, and what is beyond it as repetitions that are worth less and less."""
    return first + first * scale * -math.expm1(-(total / first - 1) / scale)


class Served(Spec):
    """The compute of a model's life, training and serving. law: whose loss is asked. flops_per_param: of one served
    token."""

    law: Line
    flops_per_param: Positive


class Fitted(Spec):
    """Ranges of the runs that a law was fitted to."""

    params: Range
    tokens: Range
    epochs: Range | None = None

    def outside(self, shape: Shape, epochs: float = 1.0) -> dict[str, float]:
        """What lies outside, and by which factor."""
        asked = {"parameters": (shape.params, self.params), "tokens": (shape.tokens, self.tokens)}
        if self.epochs is not None:
            asked["epochs"] = (epochs, self.epochs)
        factors = {what: max(value / high, low / value) for what, (value, (low, high)) in asked.items()}
        return {what: factor for what, factor in factors.items() if factor > 1}


class LawSource(Spec):
    """Where the constants are from."""

    title: Line
    url: Line


class Law(Spec):
    """One law. params_counted: what N counts. A law gives the loss of any shape, or where the optimum is, or the cost
    of serving over another law."""

    title: Line
    params_counted: Literal["all", "without embeddings"]
    loss: Loss | None = None
    optimum: Optimum | None = None
    optimum_loss: OptimumLoss | None = None
    repeated: Repeated | None = None
    served: Served | None = None
    fitted: Fitted | None = None
    sources: tuple[LawSource, ...]
    notes: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _one_form(self) -> Law:
        if sum(form is not None for form in (self.loss, self.optimum, self.served)) != 1:
            raise InvalidBlock("a law has exactly one of `loss`, `optimum` and `served`")
        if self.fitted is None and self.served is None:
            raise InvalidBlock("a law has `fitted`, the range of its runs")
        return self


class NamedLaw(NamedTuple):
    """A law that answers: its constants under the name that it was asked for by."""

    name: str
    law: Law

    @property
    def optimum(self) -> Optimum:
        """Where the optimum of a budget is."""
        found = self.law.loss.optimum if self.law.loss is not None else self.law.optimum
        assert found is not None
        return found

    def loss(self, shape: Shape) -> float | None:
        """The loss of a shape; at the optimum alone where the law says no more; None where it says none."""
        if self.law.loss is not None:
            return self.law.loss.at(shape)
        at_optimum = math.isclose(self.optimum.at(shape.flops).params, shape.params, rel_tol=1e-9)
        return self.law.optimum_loss.at(shape.flops) if self.law.optimum_loss is not None and at_optimum else None


@cache
def load_laws() -> Mapping[str, Law]:
    """All laws by name, the default one first."""
    folder = data_roots("specs")[-1] / "scaling"
    found = {path.stem: loader.validate(loader.read(path), Law) for path in sorted(folder.glob("*.yaml"))}
    if DEFAULT_LAW not in found:
        raise UsageError("specs/scaling is missing from archsim's data", hints=("install archsim anew",))
    return {DEFAULT_LAW: found[DEFAULT_LAW], **found}


def law_named(name: str) -> Law:
    """One law. Raises NoSuchName (E101)."""
    laws = load_laws()
    if name.lower() not in laws:
        from difflib import get_close_matches

        close = get_close_matches(name.lower(), laws, n=3)
        raise NoSuchName(f"no scaling law {quote(name)}", close=close, hints=(f"known: {', '.join(laws)}",))
    return laws[name.lower()]


def serving_flops_per_param() -> float:
    """FLOP of one served token and parameter, as the law about serving states it."""
    return next(law.served.flops_per_param for law in load_laws().values() if law.served is not None)
